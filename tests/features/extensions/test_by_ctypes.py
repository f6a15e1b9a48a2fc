"""Libraries that are opened by ctypes, as ``torch.ops.load_library`` opens plug-ins for torch."""

from __future__ import annotations

import sys

import pytest

from ...processes import sabotaged

LOAD = """
import ctypes, sys, cudaguard
cudaguard.install({mode!r})
try:
    ctypes.CDLL({path!r})
    print("loaded")
except Exception as error:
    print(type(error).__name__, isinstance(error, OSError), type(error.__cause__).__name__)
    print(error)
for finding in cudaguard.status().findings:
    print("finding", finding.id)
"""
TOLD = "ExtensionWarning: [CG841] plugin.so was probably linked without its CUDA object file."
# As torch has it: the line that is told is the one that calls this.
TORCH = """
import contextlib, ctypes
class Ops:
    def load_library(self, path):
        with contextlib.nullcontext():
            try:
                ctypes.CDLL(path)
            except OSError as error:
                raise OSError(f"Could not load this library: {path}") from error
"""


@pytest.fixture
def load(child):
    def load(path, mode="fix", check=True):
        done = child.python(LOAD.format(path=str(path), mode=mode), check=check)
        return done.stdout.splitlines(), done

    return load


@pytest.fixture
def plugin(build):
    """A library that links libc10.so and calls what nobody has."""
    torch = build.library("libc10.so", "int c10(void) { return 1; }")
    source = "int c10(void); int frob_cuda(void); int call(void) { return c10() + frob_cuda(); }"
    return build("plugin.so", source, torch, "-Wl,-rpath,$ORIGIN")


@pytest.fixture
def torch(child):
    """A package of that name, which opens libraries as torch does."""
    child.write("torch/__init__.py", "from torch._ops import Ops\nops = Ops()\n")
    child.write("torch/_ops.py", TORCH)


@pytest.mark.parametrize("mode", ["fix", "strict", "off"])
def test_program_that_goes_on_hears_nothing(plugin, load, mode):
    lines, done = load(plugin, mode)
    assert lines == ["OSError True NoneType", f"{plugin}: undefined symbol: frob_cuda"]
    assert done.stderr == ""


# How a program may die of it; the line that is told is marked.
DEATHS = {
    "as it is": "torch.ops.load_library(path)  # here",
    "from it": """
try:
    torch.ops.load_library(path)  # here
except OSError as error:
    raise RuntimeError("x") from error""",
    "in its handler": """
try:
    torch.ops.load_library(path)  # here
except OSError:
    raise RuntimeError("x")""",
    "with its text": """
import traceback
try:
    torch.ops.load_library(path)  # here
except OSError:
    said = traceback.format_exc()
raise RuntimeError(said)""",
}


@pytest.mark.parametrize(
    ("death", "start"),
    [*((death, []) for death in DEATHS), ("as it is", ["-m", "cudaguard", "run"])],
)
def test_error_that_ends_the_program_is_explained_at_the_line_of_the_user(
    plugin, child, torch, death, start
):
    code = f"import cudaguard; cudaguard.install()\nimport ctypes, torch\npath = {str(plugin)!r}\n"
    code += DEATHS[death]
    program = child.write("program.py", code)
    done = child.command(sys.executable, *start, program, check=False)
    plain = child.command(sys.executable, program, env={"CUDAGUARD": "off"}, check=False)
    assert done.stderr.count("ExtensionWarning: [CG841]") == 1
    line = next(n for n, line in enumerate(code.splitlines(), 1) if line.endswith("# here"))
    traceback, _, told = done.stderr.partition(f"{program}:{line}: {TOLD}")
    if sys.version_info >= (3, 11):  # before, our frame around the load is seen
        assert traceback == plain.stderr
    assert traceback.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert told
    assert done.returncode == plain.returncode == 1


TRIES = """
import ctypes, cudaguard
cudaguard.install()
for path in {paths!r}:
    try:
        ctypes.CDLL(path)
    except OSError as error:
        globals()["said"] = globals().get("said", "") + str(error)
raise RuntimeError(said)
"""


def test_of_a_library_tried_in_several_versions_the_last_is_told(build, child):
    """As torchcodec tries one for each release of FFmpeg; another library is another matter."""
    paths = []
    for needed in ("libav.so.60", "libav.so.59", "libx.so"):
        library = build.library(needed, "int x;")
        paths.append(str(build(f"{needed}.so", "int y;", "-Wl,--no-as-needed", library)))
        library.unlink()
    said = child.python(TRIES.format(paths=paths), check=False).stderr
    told = [line.split()[3:6:2] for line in said.splitlines() if "[CG841]" in line]
    assert told == [["libav.so.59.so", "libav.so.59,"], ["libx.so.so", "libx.so,"]]


def test_error_that_has_nothing_to_do_with_it_is_printed_as_ever(plugin, child):
    code = f"""
        import cudaguard, ctypes
        cudaguard.install()
        try:
            ctypes.CDLL({str(plugin)!r})
        except OSError:
            pass
        raise ValueError("x")
        """
    done = child.python(code, check=False)
    assert done.stderr.startswith("Traceback")
    assert "CG841" not in done.stderr
    from_none = code.replace("pass", 'raise ValueError("y") from None')
    assert "CG841" not in child.python(from_none, check=False).stderr


def test_error_that_leaves_a_guarded_block_is_explained(plugin, child):
    code = f"""
        import cudaguard, ctypes, sys
        def attempt():
            with cudaguard.guard():
                ctypes.CDLL({str(plugin)!r})
        try:
            attempt()
        except OSError:
            print([finding.id for finding in cudaguard.status().findings])
        """
    done = child.python(code)
    assert done.stdout.splitlines() == ["['CG841']"]
    assert done.stderr.count(TOLD) == 1
    assert done.stderr.startswith("<string>:5: ")


@pytest.mark.parametrize("start", [[], ["-m", "cudaguard", "run"]])
def test_no_hook_is_replaced_and_the_program_s_own_is_called(plugin, child, start):
    """PyQt and others ask whether the hook is Python's own, and do something else if it is not."""
    code = f"""
        import cudaguard, ctypes, sys
        cudaguard.install()
        try:
            ctypes.CDLL({str(plugin)!r})
        except OSError:
            print(sys.excepthook is sys.__excepthook__)
        sys.excepthook = lambda kind, error, traceback: print("mine", kind.__name__)
        ctypes.CDLL({str(plugin)!r})
        """
    program = child.write("program.py", code)
    done = child.command(sys.executable, *start, program, check=False)
    assert done.stdout.splitlines() == ["True", "mine OSError"]
    assert TOLD in done.stderr


# As torchvision has it, and how a program hears of that or does not.
FALLBACK = """
import ctypes, warnings
try:
    ctypes.CDLL({path!r})
except OSError as error:
    {then}
"""
QUOTED = "warnings.warn(f'Failed to load image Python extension: {error}', stacklevel=2)"


@pytest.mark.parametrize("package", ["torchvision", "mine"])
def test_package_that_says_that_it_goes_on_without_a_library(plugin, child, package):
    """Told when its import has ended where that is watched, otherwise at the end."""
    child.write(f"{package}/__init__.py", FALLBACK.format(path=str(plugin), then=QUOTED))
    program = f"import sys, cudaguard\ncudaguard.install()\nimport {package}\n"
    done = child.python(program + "print('end', file=sys.stderr, flush=True)")
    order = [done.stderr.index(text) for text in ("Failed to load", "\nend\n", TOLD)]
    if package == "torchvision":
        order = [order[0], order[2], order[1]]
    assert order == sorted(order)
    assert done.stderr.count("CG841") == 1
    assert "\n  The package goes on without it.\n" in done.stderr


@pytest.mark.parametrize("then", ["pass", f"warnings.simplefilter('ignore'); {QUOTED}"])
def test_package_that_goes_on_without_a_word(plugin, child, then):
    child.write("torchvision.py", FALLBACK.format(path=str(plugin), then=then))
    program = "import cudaguard\ncudaguard.install()\nimport torchvision\n"
    assert child.python(program).stderr == ""


GOES_ON = {
    "console": "code.InteractiveInterpreter({'load': load}).runsource('load()')",
    "pytest": "def run():\n  try: load()\n  except OSError as e: sys.last_value = e\nrun()",
    "uninstalled": "cudaguard.uninstall()\nload()",
}


@pytest.mark.parametrize("program", GOES_ON.values(), ids=GOES_ON)
def test_last_error_of_a_program_that_goes_on_is_not_told(plugin, child, program):
    load = f"def load(): ctypes.CDLL({str(plugin)!r})\n"
    code = f"import code, ctypes, cudaguard, sys\ncudaguard.install()\n{load}"
    assert "CG841" not in child.python(code + program, check=False).stderr


def test_variables_of_the_program_die_as_ever(plugin, child):
    code = f"""
        import cudaguard, ctypes, weakref
        cudaguard.install()
        class Thing: pass
        def attempt():
            thing = Thing()
            try:
                ctypes.CDLL({str(plugin)!r})
            except OSError:
                return weakref.ref(thing)
        print(attempt()() is None)
        """
    assert child.python(code).stdout == "True\n"


def test_user_s_filters_and_failures_of_ours_leave_the_error_as_it_is(plugin, child):
    code = f"import cudaguard, ctypes\ncudaguard.install()\nctypes.CDLL({str(plugin)!r})\n"
    program = child.write("program.py", code)
    done = child.command(sys.executable, "-W", "error::UserWarning", program, check=False)
    assert (done.returncode, done.stderr.count("ExtensionWarning")) == (1, 1)
    assert "undefined symbol: frob_cuda\n" in done.stderr
    child.write("sitecustomize.py", sabotaged("cudaguard.core.known_errors", "shown_with"))
    env = {"PYTHONPATH": str(child.folder)}
    done = child.command(sys.executable, program, env=env, check=False)
    assert "undefined symbol: frob_cuda\n" in done.stderr
    assert "[CG807]" in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.fixture
def short(build):
    source = "static char data[90000] = {1}; int f(int i) { return data[i]++; }"
    path = build("short.so", source)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    return path


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_truncated_library_is_refused_by_the_error_that_ctypes_has(short, load, mode):
    lines, done = load(short, mode)
    assert lines[0] == "OSError True ExtensionError"
    assert lines[1].startswith("short.so is truncated")
    assert lines[-1] == "finding CG840"
    assert ("[CG840]" in done.stderr) is (mode == "strict")


@pytest.mark.parametrize("mode", ["observe", "warn", "off"])
def test_truncated_library_kills_the_process_where_nothing_is_repaired(short, load, mode):
    _, done = load(short, mode, check=False)
    assert done.returncode == -7
    assert ("[CG840]" in done.stderr) is (mode == "warn")
