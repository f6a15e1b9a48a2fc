"""``cudaguard bisect`` stops early where no order of imports is to blame, and only there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ..documents import valid

BISECT = (sys.executable, "-m", "cudaguard", "bisect")
HANG = ("--timeout", "3")
MISSING = 'raise ImportError("libnothere.so.3: cannot open shared object file: No such file")'
DEADLOCK = """
import threading
a, b = threading.Lock(), threading.Lock()
is_held = threading.Event()

def take_both():
    with b:
        is_held.set()
        with a:
            pass

with a:
    threading.Thread(target=take_both, daemon=True).start()
    is_held.wait()
    b.acquire()
"""


@pytest.fixture
def bisect(child):
    """Runs the command on a program; returns exit status and the JSON document."""
    for name in ("one", "two", "three"):
        child.write(f"{name}.py", "")

    def bisect(*arguments, code="", env=None):
        given = arguments
        if code:
            child.write("train.py", code)
            given = (*arguments, "train.py")
        done = child.command(*BISECT, "--format", "json", *given, env=env, check=False)
        assert done.stdout, done.stderr
        return done.returncode, valid("bisect", done.stdout)

    return bisect


@pytest.fixture
def text(child):
    def text(*arguments):
        return child.command(*BISECT, *arguments, check=False).stdout

    return text


# --- it stops -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "id", "what", "command"),
    [
        (MISSING, "CG702", "libnothere.so.3 is in no folder", "cudaguard doctor --only CG902"),
        (
            "raise RuntimeError('CUDA driver version is insufficient for CUDA runtime version')",
            "CG715", "The NVIDIA driver is older", "nvidia-smi",
        ),
        ("import no_such_thing.inner", "", "a module called no_such_thing.", "-m pip list"),
        ("open('/dev/full', 'w').write('x' * 9999999)", "", "No space left on device", "df -h"),
        (
            "from resource import *; setrlimit(RLIMIT_AS, (1 << 30, 1 << 30)); bytearray(1 << 31)",
            "", "more memory than it may have", "free -h",
        ),
        (
            ("from argparse import *\np = ArgumentParser()\np.add_argument('--n', required=True)\n"
            "p.parse_args()"),
            "", "the following arguments are required: --n", "train.py --help",
        ),
        ("import ctypes\ndef boom():\n    ctypes.string_at(0)\nboom()", "",
         "SIGSEGV comes from a call that the program itself makes, at train.py:4 in boom", "gdb"),
        ("import os\nos.abort()", "", "at train.py:3 in <module>", "gdb"),
    ],
    ids=["library", "driver", "module", "disk", "memory", "arguments", "segfault", "abort"],
)  # fmt: skip
def test_cause_that_no_order_changes_is_named_after_two_runs(bisect, code, id, what, command):
    status, found = bisect(code=f"import one, two, three\n{code}\n")
    assert (status, found["verdict"], found["runs"]) == (125, "other-cause", 2)
    assert found["cause"]["id"] == id
    assert what in found["cause"]["what"]
    assert command in found["cause"]["command"]
    assert found["rule"] is found["reproducer"] is None


def test_module_that_is_missing_takes_one_run_without_others(bisect, text):
    status, found = bisect(code="import json, no_such_thing\n")
    assert (status, found["verdict"], found["runs"]) == (125, "other-cause", 1)
    said = text("train.py")
    assert "'no_such_thing'). The order of imports is not the cause.\n" in said
    assert "\nrun: python" in said


def test_module_in_a_folder_that_is_not_searched_is_named(bisect, child):
    child.write("src/hidden_part/__init__.py", "")
    _, found = bisect(code="import one, hidden_part\n")
    folder = str(child.folder / "src")
    assert folder in found["cause"]["remedy"]
    child.command("/bin/sh", "-c", found["cause"]["command"])


def test_misspelled_module_gets_the_right_name(bisect):
    _, found = bisect(code="import pakaging\n", env={"PYTHONPATH": os.pathsep.join(sys.path[1:])})
    assert "did you mean packaging?" in found["cause"]["remedy"]


def test_crash_in_a_library_of_the_program_itself(bisect, child):
    child.write("boom.c", "int boom(void) { int *nothing = 0; return *nothing; }\n")
    built = ("gcc", "-O0", "-shared", "-fPIC", "-o", "libboom.so", "boom.c")
    subprocess.run(built, cwd=child.folder, check=True)
    code = (
        "import one, two\nfrom ctypes import CDLL\nlib = CDLL('./libboom.so')\n"
        "def work():\n    lib.boom()\nwork()\n"
    )
    _, found = bisect(code=code)
    assert (found["verdict"], found["runs"]) == ("other-cause", 2)
    assert found["cause"]["evidence"] == ["train.py:5 in work: lib.boom()"]


@pytest.mark.parametrize(
    "code",
    [DEADLOCK, "import queue\ndef take(jobs):\n    return jobs.get()\ntake(queue.Queue())\n"],
    ids=["two locks", "empty queue"],
)
def test_wait_for_a_lock_of_the_program_itself(bisect, code):
    status, found = bisect(*HANG, code=f"import one, two, three\n{code}")
    assert (status, found["verdict"], found["runs"]) == (125, "other-cause", 2)
    assert "train.py" in found["cause"]["what"]
    assert found["cause"]["command"] == "cudaguard run --timeout 3 train.py"


def test_list_of_imports_and_module_as_program(bisect, child):
    child.write("broken.py", MISSING)
    status, found = bisect("--imports", "one,broken,two")
    assert (status, found["cause"]["id"], found["runs"]) == (125, "CG702", 2)
    child.write("pkg/__init__.py", "")
    child.write("pkg/train.py", "import one, broken\n")
    status, found = bisect("-m", "pkg.train", "--n", "1")
    assert (status, found["cause"]["id"], found["runs"]) == (125, "CG702", 2)


# --- it goes on, as an order may be the cause -----------------------------------------------------


def goes_on(found):
    return found["cause"] is None and found["runs"] > 2


@pytest.mark.parametrize(
    "code",
    [
        # It adds the folder, and stands too far below.
        "import one, hidden_part, adds_folder\n",
        # One that is there lacks a part, which another may add.
        "import one, two, json.no_such_part\n",
    ],
)
def test_missing_module_that_another_may_provide(bisect, child, code):
    child.write("elsewhere/hidden_part.py", "")
    child.write("adds_folder.py", "import sys\nsys.path.append('elsewhere')\n")
    _, found = bisect(code=code)
    assert goes_on(found)
    if "adds_folder" in code:
        assert (found["first"], found["then"]) == (["adds_folder"], ["hidden_part"])


def test_missing_library_that_another_provides_through_a_third(bisect, child):
    """`middle` needs `last`, and `user` needs `middle`: no single order of two shows it."""
    lost = "raise ImportError('libx.so.1: cannot open shared object file: No such file')"
    for name, need in (("user", "middle"), ("middle", "last"), ("last", "sys")):
        child.write(f"{name}.py", f"import sys\nif {need!r} not in sys.modules:\n    {lost}\n")
    _, found = bisect(code="import one, user, last, middle\n")
    assert goes_on(found)


BEFORE = "list(sys.modules).index('one') < list(sys.modules).index('two')"


@pytest.mark.parametrize(
    ("code", "more"),
    [
        (f"import sys, ctypes\nif {BEFORE}: ctypes.string_at(0)\n", ()),
        (f"import sys, os\nif {BEFORE}: os.abort()\n", ()),
        (f"import sys\nif {BEFORE}: raise ImportError('libx.so: cannot open shared object file')\n",
         ()),
        (f"import sys\nif {BEFORE}: {{}}['CUDA out of memory']\n", ()),
        ((f"import sys, threading\nif {BEFORE}: threading.Lock().acquire() and threading.Event()"
         ".wait()\n"), HANG),
    ],
    ids=["segfault", "abort", "library", "memory", "lock"],
)  # fmt: skip
def test_order_that_matters_is_found_whatever_it_looks_like(bisect, code, more):
    _, found = bisect(*more, code=f"import one, two\n{code}")
    assert goes_on(found)
    assert found["verdict"] == "order"
    assert found["working"] == ["two", "one"] or found["first"] == ["two"]


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("import foreign\nforeign.ctypes.string_at(0)\n", ()),  # whose that is cannot be told
        (("import ctypes\nforeign = ctypes.CDLL('libc.so.6')\ndef f(foreign):\n"
         "    foreign.abort()\nf(foreign)\n"), ()),
        ("raise ImportError('x.so: undefined symbol: _ZN2at4_ops5zeros')\n", ()),
        ("import foreign\nforeign.wait()\n", HANG),
        ("import time\ntime.sleep(60)\n", HANG),
        (("import threading, queue\njobs = queue.Queue()\n"
         "threading.Thread(target=lambda: 1 / 0).start()\njobs.get()\n"), HANG),
    ],
    ids=["package", "parameter", "symbol", "wait in a package", "sleep", "thread that failed"],
)  # fmt: skip
def test_what_may_depend_on_an_order_is_searched(bisect, child, code, more):
    child.write(
        "site-packages/foreign.py",
        "import ctypes, threading\ndef wait():\n    threading.Event().wait()\n",
    )
    env = {"PYTHONPATH": str(child.folder / "site-packages")}
    _, found = bisect(*more, code=f"import one, two\n{code}", env=env)
    assert goes_on(found)


def test_program_that_tells_its_stacks_and_then_works(bisect):
    """It takes nine tenths of the limit: its stacks are written, and change nothing."""
    status, found = bisect("--timeout", "4", code="import one, time\ntime.sleep(3.7)\n")
    assert (status, found["verdict"]) == (0, "works")


# --- from another folder --------------------------------------------------------------------------


def test_program_elsewhere_gets_its_own_modules(child):
    """Also where imports are made alone; modules of the current folder are no part of it."""
    child.write("program/early.py", "")
    child.write("program/late.py", "import sys\nif 'early' in sys.modules: sys.exit(3)\n")
    child.write("program/train.py", "import early, late\n")
    child.write("late.py", "raise SystemExit('of the wrong folder')\n")
    (child.folder / "link.py").symlink_to("program/train.py")
    for program in ("program/train.py", "link.py"):
        done = child.command(*BISECT, "--format", "json", program, check=False)
        found = valid("bisect", done.stdout)
        assert (found["failing"], found["with_program"]) == (["early", "late"], False)
        assert found["program_works"] is True
        assert found["reproducer"]["fails"] is True


# --- a command that is none -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said", "run"),
    [
        ("pyhton3 try.py", "there is no command called 'pyhton3'; did you mean 'python3'?",
         "cudaguard bisect -n 2 --cmd 'python3 try.py' --imports a,b"),
        ("VARIABLE=1 try.py", "did you mean 'python try.py'?",
         "cudaguard bisect -n 2 --cmd 'VARIABLE=1 python try.py' --imports a,b"),
        ("zzqqxx --now", "there is no command called 'zzqqxx'", "command -v zzqqxx"),
        ("true && zzqqxx", "ended with status 127", "/bin/sh -c 'true && zzqqxx'"),
        ("if true", "the shell does not take it", "/bin/sh -n -c 'if true'"),
    ],
)  # fmt: skip
def test_command_that_is_none_is_refused(child, command, said, run):
    child.write("try.py", "")
    arguments = ("-n", "2", "--cmd", command, "--imports", "a,b")
    done = child.command(*BISECT, *arguments, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert f"\n  run: {run}\n" in done.stderr
    assert done.stderr.count("run 2") == 0


@pytest.mark.parametrize(
    "command", ["exit 0", "X=1 true", "'true' now", ": nothing", "zzqqxx || true", "{ true; }"]
)
def test_command_of_the_shell_is_taken(child, command):
    done = child.command(*BISECT, "--cmd", command, "--imports", "a,b", check=False)
    assert done.returncode == 0, done.stderr
