"""Windows' own Python, run by wine from the tree of ``.ci/windows``: the C++ runtime, and commands.

What wine lacks: numpy and pyarrow cannot be imported, and PyQt6's libraries do not find ICU.
"""

from __future__ import annotations

import os

import pytest

from ..kept import DONE, kept_by_user

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
TORCH = "import torch; print(torch.ones(2).sum().item())"


@pytest.fixture
def windows(child, root):
    tree = kept_by_user().home / "windows"
    if not ((tree / DONE).exists() and os.path.exists(WINE)):
        pytest.skip("Python for Windows is not here: .ci/windows --make makes a tree with it")
    home = tree / "python"

    def run(sites, *arguments, has_old=False, check=True, **env):
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
        return child.command(
            WINE, home / "DLLs" / "python.exe", *arguments, env=variables, check=check
        )

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
    assert "[CG071] torch needs the C++ runtime of Windows in version 14.40 or newer; the" in told
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
    done = windows("PyQt5", "-m", "cudaguard", "run", "app.py", check=False)
    assert (quiet(done), done.returncode) == ("2.0", 7)


def test_commands(windows):
    cudaguard = ("-m", "cudaguard")
    found = windows("PyQt5", *cudaguard, "doctor", check=False).stdout
    assert "PyQt5-Qt5 5.15.2 has msvcp140.dll 14.26, and torch 2.9.1 needs 14.40 or newer." in found
    checked = windows("PyQt6 optree", *cudaguard, "check-extension", "PyQt6", "optree", check=False)
    assert "QtCore.pyd needs icuuc.dll, which Windows would not find" in checked.stdout
    assert "_C.cp311-win_amd64.pyd" not in checked.stdout  # in order
    told = windows("", *cudaguard, "bisect", "--imports", "json", check=False).stderr
    assert told.startswith("cudaguard bisect: it is not done on Windows")
