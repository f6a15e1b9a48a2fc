"""Windows' own Python, run by wine: from the tree that ``.ci/windows`` makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..kept import DONE, kept_by_user

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from ..processes import Child

WINE = "/usr/lib/wine/wine64"
# Real copies of these go before wine's own.
NATIVE = "msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait,vcruntime140,vcruntime140_1,concrt140"


def of_windows(path: Path) -> str:
    """Return the path as wine has it."""
    return "Z:" + str(path).replace("/", "\\")


@pytest.fixture(scope="session")
def tree() -> Path:
    """The tree."""
    home = kept_by_user().home / "windows"
    if not (home / DONE).exists():
        pytest.skip("Python for Windows is not here: .ci/windows --make makes a tree with it")
    return home


@pytest.fixture
def windows(
    child: Child, root: Path, tree: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python for Windows with folders of the tree on its path; `has_old` is System32's."""

    def run(
        sites: str, *arguments: object, has_old: bool = False, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        home = tree / "python"
        folders = (home / "Lib", home / "DLLs", root, *(tree / "sites" / s for s in sites.split()))
        variables = {
            "WINEPREFIX": str(tree / ("prefix-old" if has_old else "prefix")),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": f"{NATIVE}=n,b",
            "PYTHONHOME": of_windows(home),
            "PYTHONPATH": ";".join(map(of_windows, folders)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore:Failed to initialize NumPy",
            "KMP_AFFINITY": "disabled",
            **env,
        }
        command = (WINE, home / "DLLs" / "python.exe", *arguments)
        return child.command(*command, env=variables, check=check)

    return run
