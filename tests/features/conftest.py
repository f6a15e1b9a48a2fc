"""The pairs of guarded and unguarded programs, with compiled libraries, for features as well."""

from __future__ import annotations

from ..hooks.conftest import compiler as compiler
from ..hooks.conftest import cxx as cxx
from ..hooks.conftest import native as native
from ..hooks.conftest import pair as pair
from ..hooks.conftest import phase as phase
from ..hooks.conftest import slots as slots
