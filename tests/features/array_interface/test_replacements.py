"""Entry points of every kind, modules that are loaded anew, and what others hold when we leave."""

from __future__ import annotations

import pytest

from .scene import run as run

MORE = """
class Kinds:
    @classmethod
    def made(cls, buffer, more=0): return cls, buffer, more
    @staticmethod
    def loaded(buffer, more=0): return buffer, more
    def put(self, buffer, more=0): return self, buffer, more

nothing = None
number = 3
"""
DALI = """
class TensorGPU:
    def __init__(self, object): self.got = object
    @property
    def __cuda_array_interface__(self): return {}
TensorListGPU = TensorGPU
"""
START = """
import importlib
def with_rule(*actions, **more):
    rule = cudaguard.Rule(id="LOCAL2", watch=("more", "lib"), actions=actions, why="test", **more)
    cudaguard.install(rules=[rule])
def kind(value): return type(value).__name__
"""


@pytest.fixture
def more(run, child):
    """Runs code beside a further library."""
    child.write("more.py", MORE)
    return lambda code, **how: run(START + code, **how)


def test_methods_of_every_kind_by_class_and_by_instance(more):
    out = more(
        """
names = ("made", "loaded", "put")
with_rule(*({"normalize_argument": f"Kinds.{name}", "parameter": "buffer"} for name in names))
import more
array, one = make(stream=None), more.Kinds()
for call in (more.Kinds.made, one.made):
    cls, given, last = call(array, 5)
    print(cls is more.Kinds, kind(given), last, kind(call(buffer=array)[1]))
for call in (more.Kinds.loaded, one.loaded):
    print(kind(call(array, 5)[0]), kind(call(buffer=array)[0]))
print(one.put(array)[0] is one, kind(one.put(array)[1]))
cudaguard.uninstall()
kinds = [kind(vars(more.Kinds)[name]) for name in ("made", "loaded", "put")]
print(*kinds, more.Kinds.made(array)[1] is array)
"""
    )
    assert out == ["True View 5 View"] * 2 + ["View View"] * 2 + ["True View"] + [
        "classmethod staticmethod function True"
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("Kinds", "Kinds is a class: name its constructor, Kinds.__init__"),
        ("nothing", "nothing is no function, but None"),
        ("number", "number is no function, but 3"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_what_is_no_entry_point_is_left_alone(more, path, said):
    out = more(
        f"""
before = vars(importlib.import_module("more")).copy()
with_rule({{"normalize_argument": {path!r}, "parameter": "buffer"}})
(finding,) = [f for f in cudaguard.status().findings if "more" in f.what]
print(finding.id, finding.evidence[0])
cudaguard.uninstall()
print(vars(sys.modules["more"]) == before)
"""
    )
    assert out[0].startswith("CG836 ")
    assert said in out[0]
    assert out[1] == "True"


def test_wrapped_function_is_pickled_and_copied_as_a_function_is(run):
    out = run(
        """
import copy, inspect, pickle
install()
import lib
print(pickle.loads(pickle.dumps(lib.upload)) is lib.upload)
print(copy.copy(lib.upload) is lib.upload, copy.deepcopy([lib.upload])[0] is lib.upload)
print(inspect.signature(lib.upload), lib.upload.__name__, lib.upload.__module__)
"""
    )
    signature = "(buffer, layout='HW', *, copy: bool = False) -> lib.Image"
    assert out == ["True", "True True", f"{signature} upload lib"]


@pytest.mark.parametrize("anew", ["importlib.reload(lib)", "del sys.modules['lib']; import lib"])
def test_module_that_is_loaded_anew_is_taken_care_of_anew(more, anew):
    out = more(
        f"""
install()
import lib
{anew}
array = make(stream=None)
print(kind(lib.Image(array).buffer), kind(lib.upload(array).buffer))
print("stream" in lib.Array({{**interface(), "shape": [4]}}).__cuda_array_interface__, is_raw())
cudaguard.uninstall()
print(is_raw(), [item for item in cudaguard.status().changes if "lib" in item])
"""
    )
    assert out == ["View View", "False none", "Image upload Array []"]


def test_rule_that_is_switched_off_is_off_for_those_who_hold_the_function(more):
    out = more(
        """
install()
from lib import Image, upload
make_image = Image.__init__
array = make(stream=None)
print(kind(upload(array).buffer))
cudaguard.install(disable=["LOCAL1"])
image = Image.__new__(Image)
make_image(image, array)
print(upload(array).buffer is array, image.buffer is array)
cudaguard.install(enable=["LOCAL1"])
import lib
print(kind(lib.upload(array).buffer))
"""
    )
    assert out == ["View", "True True", "View"]


def test_later_patch_is_told_of_while_it_is_there(more):
    out = more(
        """
install()
import lib
ours = lib.upload
lib.upload = lambda *a, **k: ours(*a, **k)
cudaguard.uninstall()
print([item for item in cudaguard.status().changes if "lib.upload" in item])
lib.upload = ours.__wrapped__
install()
print([item for item in cudaguard.status().changes if "lib.upload" in item])
"""
    )
    assert out == ["['lib.upload: passes through, under a later patch (stays)']", "['lib.upload']"]


@pytest.mark.parametrize(
    "entries",
    [
        {"typestr": "|b1"},
        {"typestr": "<c8"},
        {"typestr": ">f4"},
        {"shape": (0,), "data": (0, False)},
        {"data": (1 << 60, False)},
        {"descr": [("", "<f4")]},
    ],
)
def test_export_that_conforms_is_read_once_and_shown_as_it_is(run, entries):
    out = run(
        f"""
install()
import lib
given = interface(**{entries!r})
array = lib.Array(given)
print(array.__cuda_array_interface__ is given, array.reads, found())
"""
    )
    assert out == ["True 1 nothing"]
    assert run.err == ""


def test_loop_over_arrays_says_the_same_once(run):
    out = run(
        """
class Number:
    def __init__(self, value): self.value = value
    def __index__(self): return self.value
install()
import lib
for step in range(200):
    lib.Image(make(data=(Number(0x1000 + step), False)))
    try: lib.Image(make(stream=0, shape=(step + 1,)))
    except ValueError: pass
print(found())
"""
    )
    assert out == ["CG834:info CG835:warning"]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_nothing_is_changed_where_nothing_may_be(child, run, mode):
    """DALI is given views of what it reads rightly as well, where that is allowed."""
    child.write("nvidia/dali/__init__.py", "")
    child.write("nvidia/dali/backend.py", DALI)
    out = run(
        f"""
action = {{"normalize_argument": "TensorGPU.__init__", "parameter": "object"}}
rule = cudaguard.Rule(id="LOCAL2", watch=("nvidia.dali.backend",), why="test", actions=(action,))
cudaguard.install({mode!r}, rules=[rule])
from nvidia.dali.backend import TensorGPU
array = make()
print(TensorGPU(array).got is array)
cudaguard.install("fix")
print(type(TensorGPU(array).got).__name__)
"""
    )
    assert out == ["True", "View"]


def test_correction_is_told_once_and_leaves_other_uses_of_the_property(run):
    out = run(
        """
import lib
class Settable(lib.Array):
    pass
def put(self, value): self.interface = value
lib.Array.__cuda_array_interface__ = lib.Array.__cuda_array_interface__.setter(put)
install()
array = lib.Array(None)
print(array.__cuda_array_interface__)
array.__cuda_array_interface__ = interface(shape=[4])
print(array.__cuda_array_interface__["shape"], array.__cuda_array_interface__["shape"])
for finding in cudaguard.status().findings:
    print(finding.id, finding.what)
"""
    )
    said = "CG834 cudaguard corrected the array interface of lib.Array: shape [4] as (4,)."
    assert out == ["None", "(4,) (4,)", said]
    assert run.err == ""
