"""All messages of this feature."""

from __future__ import annotations

from cudaguard.core.explainer import Explainer
from cudaguard.features.extensions.known_errors import libraries, pairs, symbols

EXPLAINER = Explainer((*symbols.KNOWN, *libraries.KNOWN, *pairs.KNOWN))
