"""What these tests share: programs of this folder run as they are, guarded and unguarded."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ..hooks.conftest import compiler as compiler
from ..hooks.conftest import native as native
from ..hooks.conftest import pair as pair
from .alarms import extension_of_python

HERE = Path(__file__).resolve().parent


class Programs:
    """Runs programs of this folder in the children's folder, which holds an extension module."""

    def __init__(self, child: Any) -> None:
        self.child = child
        self.extension = Path(shutil.copy(extension_of_python(), child.folder))

    def alarms(self, *arguments: object, mode: str, timeout: float = 120) -> dict[str, Any]:
        """Run `alarms.py`; return what became of the alarms."""
        env = {"CUDAGUARD_WAKE": "1"} if mode == "woken" else {}
        words = ("--mode", mode.replace("woken", "fix"), "--extension", self.extension, *arguments)
        command = (sys.executable, HERE / "alarms.py", *words)
        done = self.child.command(*command, env=env, timeout=timeout)
        ends: dict[str, Any] = json.loads(done.stdout)
        return ends

    def handlers(self, *arguments: object) -> list[str]:
        """Run `handlers.py`; return the words it printed."""
        words = (HERE / "handlers.py", *arguments, self.extension)
        done = self.child.command(sys.executable, *words)
        assert done.stderr == ""
        return done.stdout.split()


@pytest.fixture
def programs(child: Any) -> Programs:
    """Programs of this folder."""
    return Programs(child)
