"""The inventory in a bundle: real environments, and planted files that are hostile."""

from __future__ import annotations

import os
import platform
import sys

import pytest

from cudaguard.system.packages import Site
from cudaguard.tools.doctor.command import gpus_by_files, inventory_of

from .doctor import planted as planted

COMMIT = "ba56102387ef21a3b04b357e5b183d48f0afefc7"
VERSION = f"""from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '{COMMIT}'
hip: Optional[str] = None
"""
INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 201
GPU UUID: \t GPU-01234567-89ab-cdef-0123-456789abcdef
Bus Location: \t 0000:{bus}:00.0
"""


@pytest.fixture
def look(planted, monkeypatch):
    """Looks at this environment, with what is planted."""
    monkeypatch.syspath_prepend(str(planted.folder))
    return lambda: inventory_of(Site())


def test_system_and_python_are_these(look):
    found = look()
    assert found["python"]["version"] == platform.python_version()
    assert found["python"]["kind"] == ("venv" if sys.prefix != sys.base_prefix else "system")
    assert found["system"]["kernel"] == platform.uname().release
    assert found["system"]["libc"] == os.confstr("CS_GNU_LIBC_VERSION")


def test_packages_have_version_and_build(planted, look):
    tag = "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n"
    planted.distribution("torch", "2.13.0+cu130", INSTALLER="uv\n", WHEEL=tag)
    planted.distribution("nvidia-curand-cu12", "10.3.9.90", INSTALLER="pip\n")
    os.mkfifo(planted.distribution("apex", "0.1") / "WHEEL")
    planted.distribution("odd", "0.1", **{"direct_url.json": "{"})
    found = look()["packages"]
    assert found["torch"] == "2.13.0+cu130 cp311-cp311-linux_x86_64"
    assert (found["nvidia-curand-cu12"], found["apex"]) == ("10.3.9.90", "0.1")
    assert found["odd-0.1.dist-info"] == "unreadable"


def test_torch_is_read_and_not_imported(planted, look):
    planted.write("torch/__init__.py", "print('imported')\n")
    planted.write("torch/version.py", VERSION)
    planted.distribution("torch", "2.13.0+cu130")
    torch = look()["torch"]
    assert torch == {
        "version": "2.13.0+cu130", "folder": str(planted.folder / "torch"), "debug": "False",
        "cuda": "13.0", "git_version": COMMIT,
    }  # fmt: skip


def test_gpus_as_the_kernel_module_lists_them(tmp_path):
    for bus in ("1b", "43"):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(bus=bus))
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:11:47 UTC 2026\n"
    )
    found = gpus_by_files(str(tmp_path))
    assert found["driver"] == "580.65.06"
    assert found["models"] == ["NVIDIA H100 80GB HBM3"] * 2
