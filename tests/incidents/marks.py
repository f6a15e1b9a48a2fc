"""Where the incidents with released packages can be shown."""

from __future__ import annotations

import platform
import shutil
import sysconfig
from pathlib import Path

import pytest

ON_LINUX = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the packages, and what stands in for some, are those of x86-64 Linux",
    ),
]
WITH_COMPILER = [
    *ON_LINUX,
    pytest.mark.skipif(
        not (shutil.which("g++") and Path(sysconfig.get_path("include"), "Python.h").exists()),
        reason="there is no C++ compiler, or this Python came without its C headers",
    ),
]
