"""What torch says where the output of a CUDA graph is read after it was overwritten.

Source: torch 2.5 to 2.15, ``torch/_inductor/cudagraph_trees.py`` (``format_dealloc_msg``).
"""

from __future__ import annotations

import re

from cudaguard.core.explainer import Explainer
from cudaguard.core.known_errors import KnownError
from cudaguard.features.cuda_graphs import messages as wording
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

# The tail of the text differs by version, this part does not.
_HIT = re.compile(r"accessing (gradient )?tensor output of CUDAGraphs that has been overwritten")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\s.]+)')


class Overwritten(Record):
    """What such an error tells.

    Args:
        is_gradient: True if it is a gradient.
        producer: ``file:line`` of the code that made the tensor; may be empty.
        function: The function that this line is in; may be empty.
    """

    __slots__ = ("function", "is_gradient", "producer")
    is_gradient: bool
    producer: str
    function: str

    def __init__(self, is_gradient: bool, producer: str, function: str) -> None:
        self._fill(is_gradient=is_gradient, producer=producer, function=function)


def overwritten(text: str) -> Overwritten | None:
    """Return what an error's text tells, None if it is another error."""
    hit = _HIT.search(text)
    if hit is None:
        return None
    frames = _FRAME.findall(text, hit.end())
    file, line, function = frames[-1] if frames else ("", "", "")
    return Overwritten(bool(hit[1]), f"{file}:{line}" if file else "", function)


def _tell(match: re.Match[str]) -> Finding | None:
    graph = overwritten(match.string[match.start() :])
    if graph is None:
        return None
    return wording.overwritten(graph.producer, graph.function, is_gradient=graph.is_gradient)


_ABOUT = wording.overwritten("", "", is_gradient=False)
KNOWN = (
    KnownError(
        wording.OVERWRITTEN,
        "the output of a CUDA graph was read after it was overwritten",
        ("output of CUDAGraphs that has been overwritten",),
        _HIT.pattern,
        _ABOUT.what,
        _ABOUT.remedy,
        _ABOUT.consequence,
        links=_ABOUT.links,
        tell=_tell,
        any_order=True,
        examples=(
            (
                "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been "
                "overwritten by a subsequent run."
            ),
        ),
    ),
)
EXPLAINER = Explainer(KNOWN, adds=[wording.OVERWRITTEN], is_found=True)
