"""Libraries that a program did without, as `cudaguard run` tells them when it dies later."""

from __future__ import annotations

import json
import sys

import pytest

# vLLM 0.4's, which logs that NCCL is not there and fails at its first use.
PROGRAM = """\
import ctypes

for name in ({names}):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
raise {error}
"""
KNOWN = "NameError(\"name 'ncclGetVersion' is not defined\")"


@pytest.fixture
def ended(child):
    """Run a program that tries libraries and ends with an error: what is said, and the document."""

    def run(*names: str, error: str = KNOWN, mode: str = "observe", env: dict | None = None):
        program = child.write("program.py", PROGRAM.format(names=repr(names)[1:-1], error=error))
        report = child.folder / "report.json"
        done = child.command(
            *(sys.executable, "-m", "cudaguard", "run", "--mode", mode, "--report", report),
            program, check=False, env=env,
        )  # fmt: skip
        assert done.returncode == 1
        said = done.stderr.rpartition("cudaguard run: ")[2]
        lost = json.loads(report.read_text())["not_found"]
        return said, [(one["name"], one["where"], one["installed"]) for one in lost], program

    return run


@pytest.mark.parametrize("mode", ["observe", "fix"])
def test_it_is_named_with_the_line_that_asked_for_it(ended, mode):
    said, lacking, program = ended("libnccl.so.9", "/nowhere/libcudart.so.12", mode=mode)
    line = f"{program}:5"
    assert lacking == [("libnccl.so.9", line, ""), ("/nowhere/libcudart.so.12", line, "")]
    assert f"  not found: libnccl.so.9, requested at {line}, /nowhere/libcudart.so.12" in said
    assert "[CG713]" in said


def test_copy_that_is_installed_is_named_for_an_error_that_says_nothing_of_it(ended, child):
    """As nutils of MKL, which pip puts where the loader does not look."""
    child.write("lib/own-1.0.dist-info/RECORD", "own/libown.so.2,,\n")
    copy, error = child.write("lib/own/libown.so.2", ""), "ValueError('no solver: own is missing')"
    said, _, program = ended("libown.so.2", error=error)
    assert "requested at" not in said  # `lib` is on nobody's path
    other = ended("libown.so.2", error="ValueError('abc')", env={"PYTHONPATH": "lib"})[0]
    assert "requested at" not in other  # an error of another kind
    said, lacking, _ = ended("libown.so.2", error=error, env={"PYTHONPATH": "lib"})
    assert lacking == [("libown.so.2", f"{program}:5", str(copy))]
    assert f"libown.so.2, requested at {program}:5, installed as {copy}" in said
    assert said.endswith(f"fix: load {copy} first, by ctypes.CDLL\n")  # and no search for an order


def test_what_came_in_another_version_is_not_lacking(ended):
    said, lacking, _ = ended("libm.so.99", "libm.so.6")
    assert lacking == []
    assert "requested at" not in said
    # Neither is what the error says itself; and of an unknown error there is no report.
    error = "OSError('libnccl.so.9: cannot open shared object file: No such file or directory')"
    said, lacking, _ = ended("libnccl.so.9", error=error)
    assert (lacking, "requested at" in said) == ([], False)
    said, lacking, _ = ended("libnccl.so.9", error="ValueError('wrong number of epochs')")
    assert (len(lacking), "requested at" in said) == (1, False)
    for text, id in (("CUDA out of memory", "CG745"), ("cudaErrorInsufficientDriver", "CG715")):
        said, lacking, _ = ended("libcutensor.so.9", error=f"RuntimeError('{text}')")
        assert (lacking, f"[{id}]" in said) == ([], True)
