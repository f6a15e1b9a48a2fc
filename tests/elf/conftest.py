"""Where the libraries of these tests come from."""

from __future__ import annotations

from ..core.hook.conftest import compiler as compiler
