"""An extension that fails to load under the guard: what is raised, told and recorded."""

from __future__ import annotations

import sys

import pytest

from ...processes import sabotaged
from .conftest import TO_THE_END

CALL = {"body": "int frobnicate_cuda(int);", "call": "frobnicate_cuda(1);"}
TRY = """
import sys, cudaguard
cudaguard.install({mode!r})
try:
    import {name}
    print("imported")
except ImportError as error:
    for step in (error.__traceback__.tb_next, error.__cause__ and error.__cause__.__traceback__):
        while step:  # of the guard there is nothing to be seen
            assert "cudaguard" not in step.tb_frame.f_code.co_filename or sys.version_info < (3, 11)
            step = step.tb_next
    print(type(error).__name__, "|", error.name, "|", error.path)
    print(repr(error.__cause__))
    print(error)
for finding in cudaguard.status().findings:
    print("finding", finding.id, finding.severity)
"""


@pytest.fixture
def attempt(child):
    """Imports a module under the guard in some mode; returns what is printed and warned."""

    def attempt(name, mode="fix", **options):
        done = child.python(TRY.format(name=name, mode=mode), **options)
        return done.stdout.splitlines(), done.stderr

    return attempt


def test_error_of_strict_says_why_and_keeps_the_words_of_the_loader(build, attempt):
    path = build.module("half", **CALL)
    lines, told = attempt("half", "strict")
    assert lines[0] == f"ExtensionError | half | {path}"
    assert lines[1].startswith("ImportError(")
    assert "undefined symbol: frobnicate_cuda" in lines[1]
    assert lines[2].startswith(f"{path.name} was probably linked without its CUDA object file: ")
    assert lines[3] == f"  because: {path}: undefined symbol: frobnicate_cuda"
    assert lines[4].startswith("  fix: rebuild it with nvcc on PATH")
    assert lines[5:] == []
    assert told == ""


@pytest.mark.parametrize("mode", ["fix", "warn", "off"])
def test_error_of_the_loader_passes_as_it_is(build, attempt, mode):
    path = build.module("half", **CALL)
    lines, told = attempt("half", mode)
    assert lines[0] == f"ImportError | half | {path}"
    assert lines[1] == "None"
    assert lines[2] == f"{path}: undefined symbol: frobnicate_cuda"
    assert lines[3:] == []
    assert told == ""


TOLD = "ExtensionWarning: [CG841] half.cpython-"
ENDS = """import cudaguard, sys; cudaguard.install({mode!r})
{code}import half"""


@pytest.mark.parametrize("mode", ["fix", "strict", "warn", "observe"])
def test_error_that_ends_the_program_is_told_of_where_it_does_not_say_it_itself(build, child, mode):
    build.module("half", **CALL)
    program = child.write("program.py", ENDS.format(mode=mode, code=""))
    done = child.command(sys.executable, program, check=False)
    assert done.returncode == 1
    assert (f"{program}:2: {TOLD}" in done.stderr) is (mode != "observe")
    assert ("cudaguard.ExtensionError: half.cpython-" in done.stderr) is (mode == "strict")


@TO_THE_END
@pytest.mark.parametrize(
    ("who_catches", "lacks_driver", "is_told"),
    [
        (("program",), False, True),
        (("packed", "program"), False, False),  # the package does without
        (("program",), True, False),  # as one that can use CUDA does where there is no driver
        ((), True, True),
    ],
)
def test_watched_package_whose_native_part_fails(build, child, who_catches, lacks_driver, is_told):
    driver = build.library("libcuda.so.1")
    of_driver = {"body": "int absent_f(void);", "call": "absent_f();"}
    part = build.module("half", *[driver] * lacks_driver, **(of_driver if lacks_driver else CALL))
    driver.unlink()
    (child.folder / "packed").mkdir()
    part.rename(child.folder / "packed" / part.name)
    rule = 'rules=[cudaguard.Rule("LOCAL1", ("packed",), "Test.")]'
    child.write("start.py", f'import cudaguard\ncudaguard.install("warn", {rule})\n')
    for name, code in {"packed": "from packed import half", "program": "import packed"}.items():
        if name in who_catches:
            code = f"try: {code}\nexcept ImportError: print('caught')"
        child.write(f"{name}/__init__.py", code)
    done = child.python("import start, program", check=False)
    assert ("caught\n" in done.stdout, done.returncode) == (bool(who_catches), not who_catches)
    assert (TOLD in done.stderr) is is_told


TRUNCATED = {"body": "static char data[90000] = {1};", "call": "data[80000]++; data[5000]++;"}


def cut(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])


def test_truncated_file_kills_an_unguarded_process(build, child):
    cut(build.module("short", **TRUNCATED))
    assert child.python("import short", check=False).returncode == -7  # SIGBUS


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_truncated_file_is_refused(build, attempt, mode):
    path = build.module("short", **TRUNCATED)
    cut(path)
    lines, told = attempt("short", mode)
    assert lines[:2] == [f"ExtensionError | short | {path}", "None"]
    assert lines[2].startswith(f"{path.name} is truncated")
    assert lines[-1] == "finding CG840 error"
    assert ("[CG840]" in told) is (mode == "strict")


@pytest.mark.parametrize(
    "call",
    [
        'PyErr_SetString(PyExc_ImportError, "undefined symbol: of mine"); return 0;',
        'return PyImport_ImportModule("nothing_of_that_name");',
    ],
)
def test_error_of_the_extension_itself_passes(build, attempt, call):
    """It has been mapped by then, and what it says is its own business."""
    build.module("own", call=call)
    lines, told = attempt("own")
    assert lines[0].startswith(("ImportError | ", "ModuleNotFoundError | "))
    assert lines[1] == "None"
    assert not [line for line in lines if line.startswith("finding")]
    assert told == ""


def test_failure_of_ours_leaves_the_error_as_it_is(build, child):
    build.module("half", **CALL)
    child.write("sitecustomize.py", sabotaged("cudaguard.features.extensions.refusals", "forecast"))
    done = child.python(
        ENDS.format(mode="fix", code=""), env={"PYTHONPATH": str(child.folder)}, check=False
    )
    assert "undefined symbol: frobnicate_cuda" in done.stderr
    assert "[CG807]" in done.stderr
    assert "ZeroDivisionError" in done.stderr
