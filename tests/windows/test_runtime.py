"""torch after what has brought an older C++ runtime: without the guard, and with it."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.incidents]
FAULT = r"torch\lib\c10.dll"
GUARD = "import cudaguard; cudaguard.install()\n"
# pyarrow and PyQt6.QtCore need what wine lacks: numpy, and a library of Windows.
TRY = "try: import {}\nexcept ImportError: pass\n"
OLD = {
    "PyQt5": "import PyQt5\n",
    "PyQt5 ": "import PyQt5.QtCore, PyQt5.QtWidgets\n",
    "PyQt6": TRY.format("PyQt6.QtCore"),
    "PySide6-Essentials": "import PySide6.QtCore\n",
    "pyarrow": TRY.format("pyarrow"),
    "scikit-learn": TRY.format("sklearn"),
}
TORCH = "import torch; print(torch.ones(2).sum().item())"
BASE = "torch pytest"  # the latter with what torch needs


def quiet(done):
    """Return what was printed, if nothing was told."""
    assert "cudaguard" not in done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("site", OLD)
def test_torch_after_an_older_runtime(windows, site):
    plain = windows(f"{BASE} {site}", "-c", OLD[site] + TORCH, check=False)
    assert FAULT in plain.stderr
    assert quiet(windows(f"{BASE} {site}", "-c", GUARD + OLD[site] + TORCH)) == "2.0"


def test_optree_after_an_older_runtime(windows):
    """It is not even an error: the process ends."""
    code = "import PyQt5.QtCore, optree; print('there')"
    plain = windows(f"{BASE} PyQt5 optree", "-c", code, check=False)
    assert "Unhandled exception: page fault" in plain.stdout  # says wine's debugger
    assert quiet(windows(f"{BASE} PyQt5 optree", "-c", GUARD + code)) == "there"


def test_system_with_an_older_runtime(windows):
    """No order helps there: what an environment has is loaded, or what to install is told."""
    plain = windows(BASE, "-c", TORCH, has_old=True, check=False)
    assert FAULT in plain.stderr
    installed = f"{BASE} PyQt5 msvc-runtime/Lib/site-packages"
    done = windows(installed, "-c", f"{GUARD}import PyQt5.QtCore\n{TORCH}", has_old=True)
    assert quiet(done) == "2.0"
    told = windows(BASE, "-c", GUARD + TORCH, has_old=True, check=False).stderr
    assert "[CG071] torch needs the C++ runtime of Windows in version 14.40 or newer; the" in told
    assert told.index("run: winget install Microsoft.VCRedist") < told.index(FAULT + '" or one')


def test_too_late(windows):
    code = f"import PyQt5.QtCore\n{GUARD}{TORCH}"
    told = windows(f"{BASE} PyQt5", "-c", code, check=False).stderr
    first = (
        "[CG071] torch needs a newer C++ runtime than msvcp140.dll 14.26, which PyQt5 has loaded."
    )
    assert told.index(first) < told.index(FAULT + '" or one')
    assert "move `import torch` (<string>:3) above `import PyQt5`" in told
    # The package alone has bent the search path, and loaded nothing yet.
    assert quiet(windows(f"{BASE} PyQt5", "-c", f"import PyQt5\n{GUARD}{TORCH}")) == "2.0"


@pytest.mark.parametrize("first", ["torch", "PyQt5.QtWidgets", "PySide6.QtCore", "optree"])
def test_quiet_in_any_order(windows, first):
    rest = {"torch", "PyQt5.QtWidgets", "PySide6.QtCore", "optree", "shiboken6"} - {first}
    code = f"import {', '.join((first, *sorted(rest)))}; print('there')"
    assert quiet(windows(f"{BASE} PyQt5 PySide6-Essentials optree", "-c", GUARD + code)) == "there"
