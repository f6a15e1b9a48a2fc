"""Findings about CUDA graphs: outputs that later calls overwrite."""

from __future__ import annotations

import re

from cudaguard.core.findings import Kind
from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.known_errors import KnownError

COPIED, WITHOUT_GRAPHS = "copied", "compiled without CUDA graphs"
_LINK = "https://github.com/pytorch/pytorch/issues/122192"
_SAM2 = "https://github.com/facebookresearch/sam2/issues/460"

OVERWRITTEN = Kind(
    "CG851",
    "the output of a CUDA graph was read after it was overwritten",
    "GraphWarning",
    severity="error",
    consequence="Torch notices this only in the first calls. Later the tensor silently holds "
    "the results of another call.",
    remedy="keep a copy: y = f(x).clone(), or f = cudaguard.graph_safe(f); or compile with "
    "mode='max-autotune-no-cudagraphs'. cudagraph_mark_step_begin() does not help",
    links=(_LINK,),
)


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\s.]+)')


def overwritten(_: KnownError, hit: re.Match[str]) -> Finding:
    """Torch knows that what was read is overwritten.

    Source: torch 2.5 to 2.15, ``torch/_inductor/cudagraph_trees.py`` (``format_dealloc_msg``).
    """
    frames = _FRAME.findall(hit.string, hit.end())
    file, line, function = frames[-1] if frames else ("", "", "")
    producer = f"{file}:{line}" if file else ""
    made = f" that {function or 'a function'} made at {producer}" if producer else ""
    what = "A later call with CUDA graphs overwrote a"
    if hit["gradient"]:
        return OVERWRITTEN.found(
            f"{what} gradient{made}.",
            consequence="The gradient holds the values of another call.",
            remedy="call optimizer.zero_grad(set_to_none=True) before each backward, or allocate "
            ".grad before the first compiled one",
        )
    if file.endswith("position_encoding.py"):
        return OVERWRITTEN.found(
            f"{what} tensor{made}.",
            remedy="enable rule CG028. In SAM2 it is the position-encoding cache, so copying "
            "outputs does not help",
            links=(_LINK, _SAM2),
        )
    return OVERWRITTEN.found(f"{what} tensor{made}.")


KNOWN = known_in(__file__, {"": OVERWRITTEN}, CG851=overwritten)
EXPLAINER = Explainer(KNOWN, ids=[OVERWRITTEN.id], is_found=True)
