"""Where the libraries of these tests come from."""

from __future__ import annotations

from ..hooks.conftest import compiler as compiler
from ..hooks.conftest import cxx as cxx
