"""Functions that are called where CUDA should not have been used yet.

Each is the place where a library starts processes that are to use CUDA themselves, or where it
finds out that it is too late, or sets up what CUDA in use has fixed. None of them can say who it
was that used CUDA first.

Sources: accelerate's ``launchers.py``; Lightning's ``strategies/launchers/multiprocessing.py``;
distributed's ``comm/ucx.py`` and dask-cuda's ``initialize.py``; torch's ``cuda/memory.py``.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Arguments = tuple[Any, ...]
    Keywords = dict[str, Any]


class Expectation(NamedTuple):
    """One such function.

    Args:
        module: Where it is.
        function: Its name there.
        does: What the library does or finds there, after its name.
        consequence: What follows where CUDA has been used.
        links: Reports of programs that broke there.
        is_meant: Returns False for calls of it to which CUDA does not matter.
        remedy: What to do.
    """

    module: str
    function: str
    does: str
    consequence: str
    links: tuple[str, ...]
    is_meant: Callable[[Arguments, Keywords], bool] = lambda *_: True
    remedy: str = (
        "move that into the function that the workers run, or below `if __name__ == '__main__':`; "
        "in a notebook restart the kernel first"
    )


def _are_several(arguments: Arguments, keywords: Keywords) -> bool:
    """Return True if accelerate is asked for more than one process, which it forks."""
    number = keywords.get("num_processes", arguments[2] if len(arguments) > 2 else None)
    return isinstance(number, int) and number > 1


def _is_torch_up(*_: object) -> bool:
    """Return True if torch has initialized CUDA, and its allocator with it."""
    return peek(sys.modules.get("torch.cuda"), "_initialized") is True


_FORKED = (
    "forks workers that use CUDA",
    "it refuses, or all CUDA calls in them fail: 'Cannot re-initialize CUDA in forked subprocess'.",
)
_FOUND = (
    "found a CUDA context that it had not created",
    "the worker keeps memory on that device, and may compute there instead of on its own.",
)
_LIGHTNING = (
    "https://github.com/Lightning-AI/pytorch-lightning/issues/21389",
    "https://github.com/Lightning-AI/pytorch-lightning/issues/18728",
)
_DASK = (
    "https://github.com/rapidsai/dask-cuda/issues/719",
    "https://github.com/rapidsai/dask-cuda/issues/867",
)
EXPECTATIONS = (
    Expectation(
        "accelerate.launchers",
        "notebook_launcher",
        *_FORKED,
        (
            "https://github.com/huggingface/accelerate/issues/1293",
            "https://github.com/huggingface/accelerate/issues/1807",
        ),
        _are_several,
    ),
    *(
        Expectation(
            f"{package}.strategies.launchers.multiprocessing",
            "_check_bad_cuda_fork",
            *_FORKED,
            _LIGHTNING,
        )
        for package in ("lightning.fabric", "lightning_fabric")
    ),
    *(
        Expectation(module, function, *_FOUND, _DASK)
        for module in ("distributed.comm.ucx", "distributed_ucxx.ucxx")
        for function in ("_warn_existing_cuda_context", "_warn_cuda_context_wrong_device")
    ),
    Expectation(
        "torch.cuda.memory",
        "change_current_allocator",
        "is asked for another allocator",
        "torch refuses it: 'Cannot swap an already initialized allocator'.",
        (
            "https://github.com/openvdb/fvdb-core/issues/105",
            "https://github.com/pytorch/pytorch/issues/140687",
        ),
        _is_torch_up,
        "call change_current_allocator() before that, right after `import torch`",
    ),
)
