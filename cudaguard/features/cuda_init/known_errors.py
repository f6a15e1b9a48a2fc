"""What libraries say where a forked process uses the CUDA of its parent.

Source: torch ``torch/cuda/__init__.py``; numba-cuda ``cudadrv/driver.py``; CUDA driver and runtime
API, error 3; pytorch/pytorch#17357.
"""

from __future__ import annotations

from cudaguard.core.explainer import Explainer
from cudaguard.core.known_errors import KnownError
from cudaguard.core.known_messages import about_message, explained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

FORK = KnownError(
    "CG818",
    "",
    "A forked process uses CUDA, which its parent had initialized.",
    "start such workers by spawn or forkserver (multiprocessing.set_start_method('spawn'), "
    "DataLoader(multiprocessing_context='spawn')), or move what initializes CUDA after the fork; "
    "with cudaguard.install() you are told which line that was",
    links=("https://github.com/pytorch/pytorch/issues/17357",),
)
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


def is_certain(line: str) -> bool:
    """Return True if only CUDA after a fork says this, and not also an uninitialized driver."""
    return any(part in line for part in _CERTAIN)


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


def explain(text: str) -> Finding | None:
    """Return what a text means that nothing else says, None for another."""
    line = line_of_fork(text)
    return explained(FORK, (), line) if line and is_certain(line) else None


EXPLAINER = Explainer(
    explain,
    [FORK.id],
    lambda _: None,  # the detector has told of it
    lambda _: about_message(FORK),
)
