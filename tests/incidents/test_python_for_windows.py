"""Windows' own Python, run by wine from the tree of ``.ci/windows``: the C++ runtime, and commands.

What wine lacks: numpy and pyarrow cannot be imported, and PyQt6's libraries do not find ICU.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import partial

import pytest

from ..kept import DONE, kept_by_user
from ..terminals import Terminal

pytestmark = [pytest.mark.incidents]
WINE = "/usr/lib/wine/wine64"
NATIVE = "msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait,vcruntime140,vcruntime140_1,concrt140"
FAULT = r"torch\lib\c10.dll"
GUARD = "import cudaguard; cudaguard.install()\n"
OLD = {
    "PyQt5": "PyQt5",
    "PyQt5 ": "PyQt5.QtCore, PyQt5.QtWidgets",
    "PyQt6": "PyQt6.QtCore",
    "PySide6-Essentials": "PySide6.QtCore",
    "pyarrow": "pyarrow",
    "scikit-learn": "sklearn",
}
# The debugger of wine prints pages of what crashed.
ALONE = {"WINEDLLOVERRIDES": f"{NATIVE}=n,b;winedbg.exe=d", "check": False}
TORCH = "import torch; print(torch.ones(2).sum().item())"


@pytest.fixture
def windows(child, root):
    tree = kept_by_user().home / "windows"
    if not ((tree / DONE).exists() and os.path.exists(WINE)):
        pytest.skip("Python for Windows is not here: .ci/windows --make makes a tree with it")
    home = tree / "python"

    def run(sites, *arguments, has_old=False, check=True, on_terminal=False, **env):
        sites = (tree / "sites" / site for site in ("torch", "pytest", *sites.split()))
        folders = (home / "Lib", home / "DLLs", root, *sites)
        variables = {
            "WINEPREFIX": str(tree / ("prefix-old" if has_old else "prefix")),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": f"{NATIVE}=n,b",
            "PYTHONHOME": f"Z:{home}",
            "PYTHONPATH": ";".join(f"Z:{folder}" for folder in folders),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore:Failed to initialize NumPy",
            "KMP_AFFINITY": "disabled",
            **env,
        }
        command = (WINE, home / "DLLs" / "python.exe", *map(str, arguments))
        if on_terminal:
            settings = (f"{name}={value}" for name, value in variables.items())
            words, start = map(str, ("env", *settings, *command)), subprocess.Popen
            return Terminal(lambda *all, **how: start(all, cwd=child.folder, **how), *words)
        command = partial(child.command, *command, env=variables, check=check, timeout=300)
        done = command()
        # Seen on a busy machine: wine ends like that before Python has begun.
        return command() if done.returncode == 1 and not done.stdout + done.stderr else done

    return run


def quiet(done):
    """Return what was printed, if nothing was told."""
    assert "cudaguard" not in done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("site", OLD)
def test_torch_after_an_older_runtime(windows, site):
    code = f"try: import {OLD[site]}\nexcept ImportError: pass\n{TORCH}"
    assert FAULT in windows(site, "-c", code, check=False).stderr
    assert quiet(windows(site, "-c", GUARD + code)) == "2.0"


def test_optree_after_an_older_runtime(windows):
    """It is not even an error: the process ends."""
    code = "import PyQt5.QtCore, optree; print('there')"
    plain = windows("PyQt5 optree", "-c", code, check=False)
    assert "Unhandled exception: page fault" in plain.stdout  # says wine's debugger
    assert quiet(windows("PyQt5 optree", "-c", GUARD + code)) == "there"


def test_system_with_an_older_runtime(windows):
    """No order helps there: what an environment has is loaded, or what to install is told."""
    assert FAULT in windows("", "-c", TORCH, has_old=True, check=False).stderr
    installed, code = "PyQt5 msvc-runtime/Lib/site-packages", f"import PyQt5.QtCore\n{TORCH}"
    assert quiet(windows(installed, "-c", GUARD + code, has_old=True)) == "2.0"
    told = windows("", "-c", GUARD + TORCH, has_old=True, check=False).stderr
    assert "[CG071] torch needs the C++ runtime of Windows in version 14.40 or newer." in told
    assert told.index("run: winget install Microsoft.VCRedist") < told.index(FAULT + '" or one')


def test_too_late(windows):
    code = f"import PyQt5.QtCore\n{GUARD}{TORCH}"
    told = windows("PyQt5", "-c", code, check=False).stderr
    first = (
        "[CG071] torch needs a newer C++ runtime than msvcp140.dll 14.26, which PyQt5 has loaded."
    )
    assert told.index(first) < told.index(FAULT + '" or one')
    assert "move `import torch` (<string>:3) above `import PyQt5`" in told
    assert quiet(windows("PyQt5", "-c", f"import PyQt5\n{GUARD}{TORCH}")) == "2.0"


def test_extensions_that_no_rule_names(windows, child):
    """Also one that has an old copy beside it, which Windows prefers to its own."""
    sites = kept_by_user().home / "windows" / "sites"
    shutil.copy(sites / "PyQt5/PyQt5/Qt5/bin/msvcp140.dll", child.folder)
    shutil.copy(sites / "optree/optree/_C.cp311-win_amd64.pyd", child.folder)
    code = "import _C; print('there')"
    assert "there" not in windows("optree", "-c", code, **ALONE).stdout
    assert quiet(windows("optree", "-c", GUARD + code)) == "there"
    late = f"import ctypes; ctypes.WinDLL('./msvcp140.dll')\n{GUARD}{code}"
    told = windows("optree", "-c", late, **ALONE).stderr
    assert "[CG071] _C needs a newer C++ runtime than msvcp140.dll 14.26, which is loaded." in told


@pytest.mark.parametrize("first", ["torch", "PyQt5.QtWidgets", "PySide6.QtCore", "optree"])
def test_quiet_in_any_order(windows, first):
    rest = {"torch", "PyQt5.QtWidgets", "PySide6.QtCore", "optree", "shiboken6"} - {first}
    code = f"import {', '.join((first, *sorted(rest)))}; print('there')"
    assert quiet(windows("PyQt5 PySide6-Essentials optree", "-c", GUARD + code)) == "there"


def test_started_by_the_environment(windows, child, root):
    """By the line of the .pth file, and by ``run``, whose status is the program's."""
    pth = (root / "cudaguard.pth").read_text(encoding="utf-8")
    child.write("user/Python311/site-packages/cudaguard.pth", pth)
    env, code = {"PYTHONUSERBASE": f"Z:{child.folder}/user"}, f"import PyQt5.QtCore\n{TORCH}"
    assert quiet(windows("PyQt5", "-c", code, CUDAGUARD="fix", **env)) == "2.0"
    child.write("app.py", f"{code}\nraise SystemExit(7)")
    done = windows("PyQt5", *RUN, "app.py", check=False)
    assert (done.stdout.strip(), done.returncode) == ("2.0", 7)
    assert r"run: repaired 1 fault: C:\windows\System32\msvcp140.dll: loaded" in done.stderr


def test_commands(windows):
    cudaguard = ("-m", "cudaguard")
    found = windows("PyQt5", *cudaguard, "doctor", check=False).stdout
    assert "PyQt5-Qt5 5.15.2 has msvcp140.dll 14.26, and torch 2.9.1 needs 14.40 or newer." in found
    checked = windows("PyQt6 optree", *cudaguard, "check-extension", "PyQt6", "optree", check=False)
    assert "QtCore.pyd needs icuuc.dll, which Windows would not find" in checked.stdout
    assert "_C.cp311-win_amd64.pyd" not in checked.stdout  # in order
    refused = windows("PyQt6", "-c", f"{GUARD}import PyQt6.QtCore", check=False).stderr
    assert "[CG841] QtCore.pyd needs icuuc.dll, which Windows would not find." in refused


# --- Programs that end badly, and the commands that say how ---------------------------------------

RUN, TRACE, BISECT = (("-m", "cudaguard", command) for command in ("run", "trace", "bisect"))
CRASH = "import faulthandler; faulthandler._read_null()"
BEAT = """
    import os, time
    while not os.path.exists("stop"):
        with open("beat", "a") as file:
            file.write(".")
        time.sleep(0.1)
"""
PARENT = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "beat.py"])
    child.wait()
"""
KILLED = """
    import os, subprocess, sys, time
    def size(): return os.path.getsize("beat") if os.path.exists("beat") else 0
    before = size()
    parent = subprocess.Popen([sys.executable, *sys.argv[1:], "app.py"])
    while size() < before + 3:
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    time.sleep(1)
    before = size()
    time.sleep(1.5)
    print(size() > before)
    open("stop", "w").close()
"""
WORKERS = """
    import multiprocessing, sys, time
    def crash(): import crashy
    def fail(): raise KeyError("lost")
    if __name__ == "__main__":
        for work in crash, fail:
            worker = multiprocessing.Process(target=work)
            worker.start()
            worker.join()
        time.sleep(12)  # until it is told
        sys.exit(4)
"""
WAITING = """
    import time
    try:
        print("began", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("heard", flush=True)
        raise
"""


def test_run_reports_a_crash(windows, child):
    child.write("crashy.py", CRASH)
    child.write("app.py", "import crashy")
    assert "cudaguard" not in windows("", "app.py", **ALONE).stderr
    done = windows("", *RUN, "--report", "r.json", "app.py", **ALONE)
    head = "cudaguard run: app.py crashed (access violation, 0xC0000005) while importing crashy, at"
    assert f"{head} crashy.py:1.\n" in done.stderr
    assert done.returncode == 0xC0000005 & 0xFF  # as much as wine lets out
    report = json.loads((child.folder / "r.json").read_text())
    assert (report["ended"]["status"], report["platform"]) == (0xC0000005, "win32 AMD64")


def test_run_names_workers_that_die(windows, child):
    child.write("crashy.py", CRASH)
    child.write("app.py", WORKERS)
    done = windows("", *RUN, "app.py", **ALONE)
    crashed = "crashed (access violation, 0xC0000005) while importing crashy, at crashy."
    assert done.stderr.count(crashed) == 2  # in a line, and as what the program has ended of
    assert done.stderr.count("ended with KeyError in fail, at app.py:4.") == 1
    assert done.returncode == 4


def test_run_is_quiet_of_a_fault_that_the_program_handles(windows, child):
    """Python writes its stack down before the program gets to see the fault."""
    child.write("app.py", "try: import PyQt5.QtCore, torch\nexcept OSError: print('went on')")
    assert quiet(windows("PyQt5", *RUN, "--mode", "observe", "app.py")) == "went on"


def test_run_ends_what_the_program_has_started(windows, child):
    """At its time limit, and where it is killed itself, which children else outlive."""
    child.write("beat.py", BEAT)
    child.write("app.py", PARENT)
    child.write("killed.py", KILLED)
    assert windows("", "killed.py").stdout.strip() == "True"
    (child.folder / "stop").unlink()
    assert windows("", "killed.py", *RUN).stdout.strip() == "False"
    (child.folder / "stop").unlink()
    done = windows("", *RUN, "--timeout", "4", "app.py", check=False)
    assert "cudaguard run: app.py timed out after 4 s at app.py:4." in done.stderr
    assert done.returncode == 124


def test_trace_and_bisect(windows, child):
    child.write("late.py", f"import sys\nif 'early' not in sys.modules: {CRASH}")
    child.write("early.py", "")
    child.write("app.py", "import _decimal, late\nimport early")
    traced = windows("", *TRACE, "app.py", **ALONE).stderr
    assert re.search(r"at start \+ .*\.dll.*\n.* _decimal \(app.py:1\)\n", traced)
    assert "crashed (access violation, 0xC0000005) in late" in traced
    found = windows("", *BISECT, "app.py", **ALONE).stdout
    assert "access violation, 0xC0000005 unless early is imported before late." in found
    assert "The rule below cures it" in found


@pytest.mark.parametrize("command", [(), RUN], ids=["plain", "run"])
def test_console_interrupts_the_program(windows, child, command):
    """Ctrl-C is the program's; its status says so, and nothing is reported."""
    child.write("app.py", WAITING)
    terminal = windows("", *command, "app.py", on_terminal=True)
    try:
        terminal.expect("began", 60)
        terminal.type("\x03")
        said = terminal.whole()
    finally:
        terminal.process.kill()
    assert "heard" in said
    assert "cudaguard" not in said
    assert terminal.process.wait() == 0xC000013A & 0xFF
