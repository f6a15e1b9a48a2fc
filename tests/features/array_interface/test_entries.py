"""Entry points of consumers that rules name: what they are given, told, and what is put back."""

from __future__ import annotations

import sys

import pytest

from ...processes import sabotaged
from .scene import ALL_RAW, ENTRIES, LIB, SCENE
from .scene import run as run

# --- what they are given ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["install(); import lib", "import lib; install()"])
@pytest.mark.parametrize("call", ["{}(array)", "{}(buffer=array)", "{}(array, 'CHW', copy=True)",
                                  "{}(copy=True, layout='CHW', buffer=array)"])  # fmt: skip
def test_argument_is_normalized_on_its_way(run, order, call):
    code = f"""
{order}
for entry in (lib.Image, lib.upload):
    array = make(stream=None)
    image = {call.format("entry")}
    print(image.entries == interface(), type(image.buffer).__name__, image.buffer.owner is array)
    print(image.layout, image.copy, array.reads, array.interface == interface(stream=None))
print(found())
"""
    *lines, last = run(code)
    rest = "CHW True" if "CHW" in call else "HW False"
    assert lines == ["True View True", f"{rest} 1 True"] * 2
    assert last == "CG834:info"
    assert run.err == ""


def test_what_needs_nothing_goes_through_as_it_is(run):
    code = """
install("strict")
import lib
print(is_raw())
for entry in (lib.Image, lib.upload):
    for array in (make(), make(stream=7), make(data=(0x1000, True)), make(strides=(4,))):
        image = entry(array)
        print(image.buffer is array, image.entries is array.interface, array.reads)
view = cudaguard.normalize(make(stream=None))
print(lib.Image(view).buffer is view, lib.upload(buffer=view).buffer is view)
print(found())
"""
    assert run(code) == ["none", *["True True 2"] * 8, "True True", "nothing"]
    assert run.err == ""


@pytest.mark.parametrize("call", ["None", "buffer=None", "4", "[1.0]", "", "a=1", "make(), 1, 2",
                                  "make(), buffer=make()"])  # fmt: skip
def test_errors_of_a_wrong_call_are_the_consumers_own(run, call):
    code = f"""
if "guard" in sys.argv: install()
import lib
for entry in (lib.Image, lib.upload):
    try:
        entry({call})
    except Exception as error:
        print(type(error).__name__, error, error.__cause__, error.__context__)
"""
    path = run.child.write("program.py", SCENE + code)
    bare, guarded = (
        run.child.command(sys.executable, path, *arguments, timeout=60)
        for arguments in ([], ["guard"])
    )
    assert len(bare.stdout.splitlines()) == 2
    assert guarded.stdout == bare.stdout
    assert guarded.stderr == bare.stderr == ""


@pytest.mark.parametrize(
    "error",
    ["RuntimeError('requires grad')", "KeyError('bf16')", "AttributeError('on the CPU')",
     "KeyboardInterrupt()"],
)  # fmt: skip
@pytest.mark.parametrize("entry", ENTRIES)
def test_error_of_a_producer_is_its_own(run, entry, error):
    code = f"""
install()
import lib
array = Failing({error})
try:
    {entry}(array)
except BaseException as error:
    print(error is array.error, error.__cause__, error.__context__, 1 <= array.reads <= 2)
print(found())
"""
    assert run(code) == ["True None None True", "nothing"]
    assert run.err == ""


DALI = """
cudaguard.install(os.environ.get("MODE", "fix"), rules=[cudaguard.Rule(
    id="LOCAL2", watch=("nvidia.dali.backend",),
    actions=({"normalize_argument": "Tensor.__init__", "parameter": "array"},),
    why="test")])
"""


def backend(child):
    child.write("nvidia/dali/backend.py", '''
class Tensor:
    def __init__(self, array):
        try:
            self.entries = array.__cuda_array_interface__
        except Exception:
            raise TypeError("no array") from None
        self.buffer = array
''')  # fmt: skip


def test_consumer_goes_by_its_profile(run):
    backend(run.child)
    code = """
from nvidia.dali.backend import Tensor
for changes in ({}, {"stream": None}, {"typestr": "|b1"}):
    array = make(**changes)
    tensor = Tensor(array)
    print(sorted(tensor.entries), tensor.entries["typestr"], array.reads)
print(found())
"""
    fields = "['data', 'shape', 'typestr', 'version']"
    assert run(DALI + code) == [
        f"{fields} <f4 2", f"{fields} <f4 1", f"{fields} |? 1", "CG834:info CG834:info",
    ]  # fmt: skip
    assert run.err == ""


# --- what is told, and in which mode ------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fix", "strict", "warn", "observe", "off"])
@pytest.mark.parametrize(("field", "raw", "mended"), [("shape", [4], (4,)), ("stream", None, ...)])
def test_modes(run, mode, field, raw, mended):
    code = f"""
install({mode!r})
import lib
for entry in (lib.Image, lib.upload):
    for _ in range(3):
        array = make({field}={raw!r})
        image = entry(array)
        print(image.buffer is array, image.entries.get({field!r}, ...))
print(found())
"""
    *lines, last = run(code)
    repairs = mode in ("fix", "strict")
    assert lines == ([f"False {mended}"] if repairs else [f"True {raw}"]) * 6
    severity = {"fix": "info", "strict": "info", "warn": "warning", "observe": "warning"}
    assert last == (f"CG834:{severity[mode]}" if mode != "off" else "nothing")
    assert len(run.warnings) == (mode == "warn")
    if mode == "warn":
        (warning,) = run.warnings
        assert "program.py" in warning  # the line that made the call
        assert "lib may not read arrays.Producer correctly without this change" in warning
        assert f"{field} {raw} " in warning
        assert "CUDAGUARD=fix" in run.err


@pytest.mark.parametrize("mode", ["fix", "strict", "warn", "observe"])
def test_wait_for_a_consumer_that_does_not_only_where_something_may_be_done(run, mode):
    run.child.write("warp/__init__.py", "def array(data):\n    return data\n")
    code = f"""
from cudaguard.features.array_interface import waiting
waiting.wait_for = lambda stream, _: print("waits for", stream) or True
action = {{"normalize_argument": "array", "parameter": "data"}}
RULE = RULE.replace(watch=("warp",), actions=(action,))
install({mode!r})
import warp
for _ in range(2):
    array = make(stream=7)
    print(warp.array(array) is array)
print(found())
"""
    if mode in ("fix", "strict"):
        assert run(code) == ["waits for 7", "True", "waits for 7", "True", "CG831:info"]
    else:
        assert run(code) == ["True", "True", "nothing"]
    assert run.err == ""


@pytest.mark.parametrize("mode", ["fix", "strict", "warn", "observe"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_array_that_cannot_be_mended(run, mode, entry):
    code = f"""
install({mode!r})
import lib
for _ in range(2):
    array = make(stream=0)
    try:
        print({entry}(array).buffer is array)
    except cudaguard.ArrayInterfaceError as error:
        print(error.field, error.value, array.reads)
print(found())
"""
    lines = run(code)
    if mode == "strict":
        assert lines[:2] == ["stream 0 1"] * 2
    else:
        assert lines == ["True", "True", "CG835:warning"]
    assert len(run.warnings) == (mode != "observe")  # in `strict` before it raises
    for warning in run.warnings:
        assert "program.py" in warning
        assert "ArrayInterfaceWarning: [CG835]" in warning
        assert "may not read the stream of " in warning
        assert "because: stream is 0: it must be absent" in run.err


@pytest.mark.parametrize(
    ("use", "said"),
    [
        *((f"{entry}(array).buffer is array", "preparing an array for lib") for entry in ENTRIES),
        ("array.__cuda_array_interface__ is array.interface", "correcting what lib.Array exports"),
    ],
)
def test_failure_of_our_own_never_breaks_a_call_or_an_export(run, use, said):
    code = f"""
install()
import lib
{sabotaged("cudaguard.features.array_interface.repair", "is_canonical")}
array = {"lib.Array(interface(shape=[4]))" if "is array.i" in use else "make(shape=[4])"}
print({use}, found())
"""
    assert run(code) == ["True CG807:warning"]
    (warning,) = run.warnings
    assert said in warning
    assert "ZeroDivisionError" in run.err


# --- coming and going ---------------------------------------------------------------------------


def test_uninstall_puts_back_the_very_same_objects(run):
    code = """
import lib
before = dict(vars(lib)), dict(vars(lib.Image)), dict(vars(lib.Array))
guard = install()
changed = [sorted(k for k, v in old.items() if now[k] is not v) for old, now in
           zip(before, (vars(lib), vars(lib.Image), vars(lib.Array)))]
print(changed)
print([line for line in cudaguard.status().changes if line.startswith("lib.")])
guard.uninstall()
print(before == (dict(vars(lib)), dict(vars(lib.Image)), dict(vars(lib.Array))))
print(cudaguard.status().changes)
"""
    assert run(code) == [
        "[['upload'], ['__init__'], ['__cuda_array_interface__']]",
        "['lib.Image.__init__', 'lib.upload', 'lib.Array']",
        "True",
        "()",
    ]


def test_blocks_in_any_order(run):
    code = """
import lib
a, b = cudaguard.guard(rules=[RULE]), cudaguard.guard(rules=[RULE])
print(is_raw())
a.__enter__(); print(is_raw())
b.__enter__(); print(is_raw())
a.__exit__(None, None, None); print(is_raw(), lib.Image(make(shape=[4])).entries["shape"])
b.__exit__(None, None, None); print(is_raw(), lib.Image(make(shape=[4])).entries["shape"])
with cudaguard.guard(rules=[RULE]):
    with cudaguard.guard("observe"):
        print(is_raw(), lib.Image(make(shape=[4])).entries["shape"])
    print(is_raw(), lib.Image(make(shape=[4])).entries["shape"])
install()
with cudaguard.guard():
    pass
print(is_raw())
"""
    assert run(code) == [
        ALL_RAW, "none", "none", "none (4,)", f"{ALL_RAW} [4]",
        "none [4]", "none (4,)", "none",
    ]  # fmt: skip


def test_rule_can_be_switched_off_and_on_again(run):
    code = """
import lib
install()
print(is_raw())
cudaguard.install(disable=["LOCAL1"])
print(is_raw(), lib.Image(make(shape=[4])).entries["shape"])
cudaguard.install(enable=["LOCAL1"])
print(is_raw(), lib.Image(make(shape=[4])).entries["shape"])
action = {"normalize_argument": "upload", "parameter": "buffer"}
cudaguard.install(rules=[RULE.replace(actions=(action,))])
print(is_raw())
"""
    assert run(code) == ["none", f"{ALL_RAW} [4]", "none (4,)", "Image Array"]


def test_two_rules_about_the_same(run):
    code = """
import lib
cudaguard.install(rules=[RULE, RULE.replace(id="LOCAL2")])
for entry in (lib.Image, lib.upload):
    array = make(stream=None)
    print("stream" in entry(array).entries, array.reads)
print(is_raw())
cudaguard.uninstall()
print(is_raw())
"""
    assert run(code) == ["False 1", "False 1", "none", ALL_RAW]


def test_later_patch_over_ours_stays_and_calls_pass_through(run):
    code = """
install()
import lib
def over(ours):
    def theirs(*args, **kwargs):
        print("theirs", end=" ")
        return ours(*args, **kwargs)
    return theirs
lib.Image.__init__, lib.upload = over(lib.Image.__init__), over(lib.upload)
export = lib.Array.__cuda_array_interface__
lib.Array.__cuda_array_interface__ = property(lambda self: export.fget(self))
for entry in (lib.Image, lib.upload):
    print("stream" in entry(make(stream=None)).entries)
cudaguard.uninstall()
for line in cudaguard.status().changes:
    print(line)
for entry in (lib.Image, lib.upload):
    array = make(stream=None)
    print(entry(array).buffer is array, array.reads)
array = lib.Array(interface(shape=[4]))
print(array.__cuda_array_interface__ is array.interface)
"""
    assert run(code) == [
        "theirs False",
        "theirs False",
        "lib.Image.__init__: passes through, under a later patch (stays)",
        "lib.upload: passes through, under a later patch (stays)",
        "lib.Array: passes through, under a later patch (stays)",
        "theirs True 1",
        "theirs True 1",
        "True",
    ]


# --- classes stay themselves --------------------------------------------------------------------


def test_subclasses(run):
    code = """
install()
import lib
class Silent(lib.Image): pass
class Calling(lib.Image):
    def __init__(self, name, buffer):
        self.name = name
        super().__init__(buffer, layout="CHW")
class Replacing(lib.Image):
    def __init__(self, buffer):
        self.entries = buffer.__cuda_array_interface__
for kind, arguments in ((Silent, ()), (Calling, ("a",)), (Replacing, ())):
    array = make(stream=None)
    image = kind(*arguments, array)
    print("stream" in image.entries, isinstance(image, lib.Image), array.reads)
class Mine(lib.Array): pass
class Wider(lib.Array):
    @property
    def __cuda_array_interface__(self):
        return {**super().__cuda_array_interface__, "strides": None}
for kind in (Mine, Wider):
    print(kind(interface(shape=[4])).__cuda_array_interface__)
cudaguard.uninstall()
print("stream" in Calling("a", make(stream=None)).entries, Calling("a", make()).layout)
"""
    plain = "'shape': (4,), 'typestr': '<f4', 'data': (4096, False), 'version': 3"
    assert run(code) == [
        "False True 1", "False True 1", "True True 1",
        f"{{{plain}}}", f"{{{plain}, 'strides': None}}", "True CHW",
    ]  # fmt: skip


def test_functions_look_as_before(run):
    code = """
import inspect, lib
def look():
    for one in (lib.Image.__init__, lib.upload, lib.Image):
        print(one.__name__, one.__qualname__, one.__module__, one.__doc__, inspect.signature(one))
    print(lib.upload.__annotations__["copy"], inspect.getsource(lib.upload)[:10])
    print(inspect.isfunction(lib.Image.__init__), inspect.isfunction(lib.upload))
    export = lib.Array.__cuda_array_interface__
    print(type(export), export.__doc__, lib.Array.__doc__)
look()
install()
print(is_raw())
look()
"""
    lines = run(code)
    at = lines.index("none")
    assert lines[:at] == lines[at + 1 :]
    assert len(lines[:at]) == 6


# --- threads ------------------------------------------------------------------------------------


def test_arrays_on_their_way_while_the_guard_comes_and_goes(run):
    code = """
import threading
import lib
sys.setswitchinterval(1e-6)
wrong, stop = [], threading.Event()
def work():
    while not stop.is_set():
        for entry in (lib.Image, lib.upload):
            array = make(shape=[4])
            try:
                image = entry(array)
            except BaseException as error:
                wrong.append(repr(error))
                return
            if image.entries not in (interface(), interface(shape=[4])):
                wrong.append(image.entries)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(30):
    with cudaguard.guard(rules=[RULE]):
        pass
stop.set()
for thread in threads: thread.join(30)
print(wrong[:1], is_raw())
"""
    assert run(code) == [f"[] {ALL_RAW}"]


# --- rules that do not fit ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        {"normalize_argument": "Number.__init__", "parameter": "buffer"},
        {"fix_array_interface": "Image"},
    ],
    ids=str,
)
@pytest.mark.parametrize("order", ["install(); import lib", "import lib; install()"])
def test_rule_about_what_is_not_there_is_told_and_the_others_hold(run, action, order):
    run.child.write("lib.py", LIB + "\nNumber = int\n")
    code = f"""
RULE = RULE.replace(actions=({action!r}, {{"normalize_argument": "upload", "parameter": "buffer"}}))
{order}
print(is_raw(), found())
print(lib.upload(make(shape=[4])).entries["shape"])
print(cudaguard.status().findings[0].rule, cudaguard.status().findings[0].what)
cudaguard.uninstall()
print(is_raw())
"""
    place = next(iter(action.values()))
    assert run(code) == [
        "Image Array CG836:warning",
        "(4,)",
        f"LOCAL1 Rule LOCAL1 names lib.{place}, which does not exist here or cannot be replaced.",
        ALL_RAW,
    ]
    (warning,) = run.warnings
    assert "program.py" in warning
    assert "ArrayInterfaceWarning: [CG836]" in warning
    assert "CUDAGUARD_RULES=-LOCAL1" in run.err
