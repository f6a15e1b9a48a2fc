"""Known errors of libraries in a forked process that uses the CUDA of its parent.

Source: torch ``torch/cuda/__init__.py``; numba-cuda ``cudadrv/driver.py``; CUDA driver and runtime
API, error 3; pytorch/pytorch#17357.
"""

from __future__ import annotations

import re

from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.features.cuda_init import findings

# The first two are said of a fork; error 3, under its names, also where CUDA was not initialized.
_SAID = re.compile(
    "re-initialize CUDA in forked subprocess|CUDA initialized before forking|"
    "CUDA error: initialization error|CUDA_ERROR_NOT_INITIALIZED|cudaErrorInitializationError|"
    "(?:cuInit failed|CUDA driver error): (?:not initialized|initialization error)"
)


def line_of_fork(text: str) -> str:
    """Return the line of an error's text that tells of CUDA after a fork, empty if none does.

    The last one: the text of an error of another process has its traceback in it.
    """
    found = [line.strip() for line in text.splitlines() if _SAID.search(line)]
    return found[-1] if found else ""


# The detector tells of a fork.
EXPLAINER = Explainer(known_in(__file__, vars(findings)), lambda _: None, [findings.FORK.id])
