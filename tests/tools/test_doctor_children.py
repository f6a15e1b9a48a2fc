"""``cudaguard doctor --deep`` and ``--orders``: real imports in children, some of which die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ..conftest import clean_environment
from .doctor import DOCTOR
from .doctor import planted as planted
from .test_doctor_checks import decord

SEGFAULT = "import sys, ctypes\nif {before!r} in sys.modules: ctypes.string_at(0)\n"


@pytest.fixture
def modules(planted):
    """Three modules on the path: the third crashes if the first came before."""
    planted.write("first.py", "")
    planted.write("second.py", "")
    planted.write("third.py", SEGFAULT.format(before="first"))


def orders(planted, names, *arguments, **options):
    return planted.one("CG911", "--orders", names, *arguments, **options)


def test_order_that_crashes(planted, modules):
    """Of all orders that contain the pair only the pair itself is told."""
    status, findings = orders(planted, "first,second,third")
    (found,) = findings
    assert (status, found["severity"]) == ("fail", "error")
    assert found["what"] == ("`import first, third` is ended by SIGSEGV in the import of third.")
    assert "import third, first, in this order" in found["remedy"]
    assert any("Fatal Python error: Segmentation fault" in line for line in found["evidence"])
    assert any("third.py" in line for line in found["evidence"])
    assert found["command"] == "cudaguard bisect --imports first,third"


def test_orders_that_work(planted, modules):
    assert orders(planted, "second,third") == ("ok", [])
    _, checks = planted.checks("--only", "CG911", "--orders", "second,third")
    assert checks["CG911"]["reason"] == "imports succeed; use was not tested; tried: 4"
    _, checks = planted.checks("--only", "CG911", "--orders", "first,third")
    assert checks["CG911"]["reason"] == "tried: 4, of which fail: 1; use was not tested"


def test_orders_that_work_name_the_rule_that_knows_a_fault_in_use(planted):
    decord(planted)
    planted.write("cv2.py")
    status, findings = orders(planted, "decord,cv2")
    (found,) = findings
    assert (status, found["severity"], found["rule"]) == ("ok", "info", "CG001")
    assert found["what"].startswith(
        "The import of decord succeeds, but may not show the fault of rule CG001: decord puts"
    )
    assert found["command"] == "cudaguard rules show CG001"
    env = {"CUDAGUARD_RULES": "-CG001"}
    assert orders(planted, "decord,cv2", env=env) == ("ok", [])
    assert orders(planted, "cv2,json") == ("ok", [])


def test_what_lies_in_the_working_folder_is_not_imported(planted, child):
    """Its `wave.py` would be taken for Python's, and a module of its own for an installed one."""
    child.write("wave.py", "raise SystemExit('not for doctor')")
    child.write("mine.py", "")
    assert orders(planted, "wave,json") == ("ok", [])
    status, findings = orders(planted, "mine")
    assert status == "fail"
    assert findings[0]["what"] == (
        "The module mine is not installed. mine.py in the working directory is not tried."
    )
    assert findings[0]["command"] == "PYTHONPATH=. cudaguard doctor --orders mine"
    (child.folder / "data").mkdir()
    assert orders(planted, "data")[1][0]["what"] == "The module data is not installed."
    assert orders(planted, "mine", env={"PYTHONPATH": "."}) == ("ok", [])


def test_nor_by_the_child_that_asks_nvml(planted, child):
    child.write("pynvml.py", "raise SystemExit('not for doctor')")
    _, checks = planted.checks("--deep", "--only", "CG913")
    assert checks["CG913"]["status"] in ("ok", "warning", "skipped", "fail")


def test_order_that_the_guard_repairs_is_a_warning(planted, modules, child):
    child.write(
        "mine.toml",
        """
        [[rules]]
        id = "LOCAL1"
        watch = ["first"]
        needs = ["third"]
        why = "third crashes after first"
        """,
    )
    env = {"CUDAGUARD_CONFIG": str(child.folder / "mine.toml")}
    status, findings = orders(planted, "first,third", env=env)
    (found,) = findings
    assert status == "warning"
    assert "under the guard it works" in found["evidence"]
    assert found["command"] == "export CUDAGUARD=fix"


def test_switched_on_by_the_environment_the_first_try_is_still_without_it(planted, modules):
    """Else the fault would not be seen where the guard cures it."""
    status, _ = orders(planted, "first,third", env={"CUDAGUARD": "fix"})
    assert status == "fail"


def test_guard_that_is_put_up_at_start_is_kept_out_of_the_first_try(planted, child):
    """A sitecustomize does it here, as the documents recommend."""
    planted.write("first.py", "")
    planted.write("third.py", SEGFAULT.format(before="first"))
    rule = "cudaguard.Rule(id='LOCAL1', watch=('first',), needs=('third',), why='order')"
    planted.write("sitecustomize.py", f"import cudaguard\ncudaguard.install(rules=[{rule}])\n")
    status, findings = orders(planted, "first,third")
    assert (status, len(findings)) == ("warning", 1)
    assert "under the guard it works" in findings[0]["evidence"]


@pytest.mark.incidents
def test_each_way_to_fail(planted, child):
    planted.write("hangs.py", "while True: pass")
    planted.write("raises.py", "raise ImportError('not today')")
    planted.write("leaves.py", "import os; os._exit(7)")
    planted.write("late.py", "import atexit, ctypes; atexit.register(ctypes.string_at, 0)")
    planted.write("noisy.py", "print('cudaguard-doctor: import nonsense')\nprint('x' * 100000)")
    names = "hangs,raises,leaves,late,noisy,absent"
    _, findings = orders(planted, names, "--timeout", "4")
    told = {one["what"] for one in findings}
    assert told == {
        "`import hangs` does not end within 4 s in the import of hangs.",
        "`import raises` fails with ImportError: not today in the import of raises.",
        "`import leaves` ends with status 7 in the import of leaves.",
        "`import late` is ended by SIGSEGV when the process ends.",
        "The module absent is not installed.",
    }


def test_too_many_are_refused(planted):
    _, checks = planted.checks("--only", "CG911", "--orders", ",".join("abcdefghi"))
    assert checks["CG911"]["status"] == "skipped"
    assert "at most 8" in checks["CG911"]["reason"]


def test_nothing_is_imported_in_children_unless_asked(planted):
    _, checks = planted.checks()
    assert not {"CG911", "CG912", "CG913"} & set(checks)


def test_deep_tells_of_a_package_that_cannot_be_imported(planted):
    decord(planted)
    planted.write("decord/__init__.py", "import ctypes; ctypes.string_at(0)\n")
    status, checks = planted.checks("--deep", "--skip", "CG913")
    (found,) = checks["CG912"]["findings"]
    assert (status, checks["CG912"]["status"]) == (1, "fail")
    assert found["what"] == (
        "`import decord`, alone and without the guard, is ended by SIGSEGV in the import of decord."
    )
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
    assert (status, findings[0]["what"]) == ("warning", "The driver works and lists no GPU.")


def test_nvml_that_hangs_makes_the_check_broken(planted, child):
    """A probe that does not answer is no fault of the environment, and never passed over."""
    planted.write("pynvml.py", "while True: pass\n")
    status, checks = planted.checks("--only", "CG913", "--deep", "--timeout", "2")
    assert (status, checks["CG913"]["status"]) == (3, "broken")
    assert "does not end within 2 s" in checks["CG913"]["reason"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_no_child_behind(planted, child, number, status):
    planted.write(
        "hangs.py", "open('pid', 'w').write(str(__import__('os').getpid()))\nwhile 1: pass"
    )
    doctor = subprocess.Popen(
        [*DOCTOR, "--only", "CG911", "--orders", "hangs"], cwd=child.folder,
        env={**clean_environment(), "PYTHONPATH": str(planted.folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        file = child.folder / "pid"
        deadline = time.monotonic() + 60
        while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        pid = int(file.read_text())
        doctor.send_signal(number)
        out, err = doctor.communicate(timeout=60)
    finally:
        doctor.kill()
        doctor.wait()
    assert (doctor.returncode, out) == (status, "")
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_interpreter_of_the_children_is_this_one(planted, child):
    planted.write("who.py", f"import sys\nassert sys.executable == {sys.executable!r}\n")
    assert orders(planted, "who") == ("ok", [])
