"""What libraries say where a forked process uses the CUDA of its parent.

Source: torch ``torch/cuda/__init__.py``; numba-cuda ``cudadrv/driver.py``; CUDA driver and runtime
API, error 3; pytorch/pytorch#17357.
"""

from __future__ import annotations

from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.features.cuda_init import findings

# Nothing else makes a library say this.
_CERTAIN = ("re-initialize CUDA in forked subprocess", "CUDA initialized before forking")
# Error 3 under its names: said of a fork, and of a driver that nobody has initialized.
_ERROR_3 = (
    "CUDA error: initialization error",
    "CUDA_ERROR_NOT_INITIALIZED",
    "cudaErrorInitializationError",
    "cuInit failed: initialization error",
    "cuInit failed: not initialized",
    "CUDA driver error: initialization error",
    "CUDA driver error: not initialized",
)


def line_of_fork(text: str) -> str:
    """Return the line of an error's text that tells of CUDA after a fork, empty if none does.

    The last one: the text of an error of another process has its traceback in it.
    """
    parts = (*_CERTAIN, *_ERROR_3)
    at = max(map(text.rfind, parts))
    if at < 0:
        return ""
    end = text.find("\n", at)
    around = text[text.rfind("\n", 0, at) + 1 : len(text) if end < 0 else end]
    # Progress bars end their lines with other signs.
    return next(
        line.strip()
        for line in reversed(around.splitlines())
        if any(part in line for part in parts)
    )


# The detector tells of a fork.
EXPLAINER = Explainer(known_in(__file__, vars(findings)), lambda _: None, [findings.FORK.id])
