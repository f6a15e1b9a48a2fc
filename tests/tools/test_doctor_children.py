"""``cudaguard doctor --deep``: real imports in children, some of which die."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from cudaguard.system.child import WITHOUT_FOLDER

from ..decord_fault import needs_decord
from .doctor import DOCTOR
from .doctor import planted as planted
from .test_doctor_checks import decord

ALONE = ", even alone and without cudaguard"
ENDS = {
    "while True: pass": "hangs (still running after 4 s)",
    "raise ImportError('not today')": "fails with ImportError: not today",
    "import os; os._exit(7)": "exits with status 7",
    "import atexit, ctypes; atexit.register(ctypes.string_at, 0)": "crashes (SIGSEGV) when the "
    "process ends",
    "print('cudaguard-doctor: import nonsense')\nprint('x' * 100000)": "",
    "import wave": "",  # not that of the working directory
    "import sys; assert sys.executable == {python!r}": "",
    "import sys; assert 'cudaguard' not in sys.modules": "",
}


@pytest.mark.parametrize("source", ENDS)
def test_each_way_to_end(planted, child, source):
    child.write("wave.py", "raise SystemExit('not for doctor')")
    planted.write("torch/__init__.py", source.replace("{python!r}", repr(sys.executable)))
    env = {"CUDAGUARD": "fix"}
    status, findings = planted.one("CG912", "--deep", "--timeout", "4", env=env)
    assert [one["what"] for one in findings] == (
        [f"`import torch` {ENDS[source]}{ALONE}."] if ENDS[source] else []
    )
    assert status == ("fail" if findings else "ok")


@needs_decord
@pytest.mark.parametrize("command", [("doctor", "--deep"), ("demo",)])
def test_children_import_nothing_from_the_working_directory(child, command):
    names = "argparse json subprocess typing sitecustomize cudaguard decord pynvml wave"
    for name in names.split():
        child.write(f"{name}.py", f"open({str(child.folder / 'planted')!r}, 'a').write('{name} ')")
    program = "from cudaguard.tools.main import main\nsys.exit(main(sys.argv[1:]))"
    done = child.python(WITHOUT_FOLDER + program, *command, check=False)
    assert "CG901" in done.stdout or "CG001" in done.stdout
    assert not (child.folder / "planted").exists()


@pytest.mark.incidents
def test_nothing_is_imported_in_children_unless_asked(planted):
    _, checks = planted.checks()
    assert not {"CG912", "CG913"} & set(checks)


def test_deep_tells_of_a_package_that_cannot_be_imported(planted):
    decord(planted)
    planted.write("decord/__init__.py", "import ctypes; ctypes.string_at(0)\n")
    status, checks = planted.checks("--deep", "--skip", "CG913")
    (found,) = checks["CG912"]["findings"]
    assert (status, checks["CG912"]["status"]) == (1, "fail")
    assert found["what"] == ("`import decord` crashes (SIGSEGV), even alone and without cudaguard.")
    assert "cudaguard explain -" in found["command"]


def test_deep_tells_who_initializes_cuda(planted, driver_stubs):
    decord(planted)
    planted.write("decord/__init__.py", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
    status, findings = planted.one("CG912", "--deep", env=driver_stubs.environment())
    assert status == "warning"
    assert findings[0]["what"] == "`import decord` initializes CUDA."


def test_deep_asks_nvml(planted, driver_stubs):
    _, checks = planted.checks("--only", "CG913", "--deep", env=driver_stubs.environment())
    check = checks["CG913"]
    assert check["status"] in ("ok", "warning")
    assert driver_stubs.devices[0].name in check["reason"]


def test_what_nvml_does_not_find_is_told(planted, driver_stubs):
    environment = driver_stubs.environment(0)
    status, findings = planted.one("CG913", "--deep", env=environment)
    assert (status, findings[0]["what"]) == ("warning", "The NVIDIA driver works but lists no GPU.")


def test_nvml_that_hangs_makes_the_check_broken(planted, child):
    """A probe that does not answer is no fault of the environment, and never passed over."""
    planted.write("pynvml.py", "while True: pass\n")
    status, checks = planted.checks("--only", "CG913", "--deep", "--timeout", "2")
    assert (status, checks["CG913"]["status"]) == (3, "broken")
    assert "hangs (still running after 2 s)" in checks["CG913"]["reason"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_no_child_behind(planted, child, number, status):
    planted.write(
        "torch/__init__.py", "open('pid', 'w').write(str(__import__('os').getpid()))\nwhile 1: pass"
    )
    file = child.folder / "pid"
    done = child.signaled(
        *DOCTOR, "--only", "CG912", "--deep", number=number,
        env={"PYTHONPATH": str(planted.folder)}, once=lambda _: file.exists() and file.read_text(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (status, "")
    assert "Traceback" not in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
