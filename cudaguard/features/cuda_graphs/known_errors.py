"""What torch says where the output of a CUDA graph is read after it was overwritten.

Source: torch 2.5 to 2.15, ``torch/_inductor/cudagraph_trees.py`` (``format_dealloc_msg``).
"""

from __future__ import annotations

import re

from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.features.cuda_graphs import findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.known_errors import KnownError
    from cudaguard.model import Finding

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\s.]+)')


def overwritten(_: KnownError, hit: re.Match[str]) -> Finding:
    """Return what an error's text tells."""
    frames = _FRAME.findall(hit.string, hit.end())
    file, line, function = frames[-1] if frames else ("", "", "")
    return findings.overwritten(
        f"{file}:{line}" if file else "", function, is_gradient=bool(hit["gradient"])
    )


KNOWN = known_in(__file__, vars(findings), CG851=overwritten)
EXPLAINER = Explainer(KNOWN, adds=[findings.OVERWRITTEN.id], is_found=True)
