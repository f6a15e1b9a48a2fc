"""The pairs of guarded and unguarded programs, with compiled libraries, for features as well."""

from __future__ import annotations

from ..core.hook.conftest import compiler as compiler
from ..core.hook.conftest import native as native
from ..core.hook.conftest import pair as pair
from ..core.hook.conftest import phase as phase
from ..core.hook.conftest import slots as slots
