"""Consumers of ``__cuda_array_interface__``, and the forms that each accepts.

Where a version is not known a profile is the careful one: what it asks for suits every version.
"measured" is the release that was tried, "read" the one whose source was read; neither on a GPU.
"""

from __future__ import annotations

from functools import cache

from cudaguard.files.text import close_match
from cudaguard.model import KW_ONLY, TYPE_CHECKING, Record
from cudaguard.system.facts import Facts, in_range

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

ANY, FORWARD, DENSE = "any", "forward", "dense"


class Consumer(Record):
    """A library that reads the interface."""

    name: str  # what people call it, and `cudaguard.normalize` takes
    packages: tuple[str, ...] = ()  # of its functions and classes; left out: the one of its name
    _: KW_ONLY
    heeds_stream: bool = True  # it waits for the stream that the array names
    takes_no_stream: bool = True  # `stream` may be there and None
    least_version: int = 0  # of the interface
    boolean: str = "|b1"  # how it wants the type of truth values spelled
    # What it refuses or misreads in `typestr`: > (big-endian) or the letter of a kind.
    misreads: str = ""
    # FORWARD: no negative ones, and multiples of the element's size; DENSE: C order without gaps.
    strides: str = ANY
    takes_mask: bool = False  # no library does
    takes_read_only: bool = True
    dists: tuple[str, ...] = ()  # that have it, where its version matters
    since: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # version range, fields that differ in it
    evidence: tuple[str, ...] = ()  # how all of this is known

    def owns(self, kind: type) -> bool:
        """Return True if a class, or a base of it, is one of the consumer's own."""
        own = tuple(f"{name}." for name in self.packages or (self.name,))
        return any(f"{base.__module__}.".startswith(own) for base in kind.__mro__)


# What is to be shown to all: nothing is left out that conforms.
AS_EXPORTED = Consumer("", takes_mask=True)
# Whoever it is: it heeds everything that the specification has, and is spared a None.
ANYONE = AS_EXPORTED.replace(takes_no_stream=False)

CONSUMERS: tuple[Consumer, ...] = (
    Consumer("dali", ("nvidia.dali",), takes_no_stream=False, boolean="|?", misreads=">c",
      strides=DENSE, dists=("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-dali-cuda110"),
      since=((">=1.37", {"takes_no_stream": True}),
      ("<1.32", {"takes_no_stream": True, "heeds_stream": False})),
      evidence=("measured 1.35.0, 2.4.0", "https://github.com/NVIDIA/DALI/issues/5423",
      "https://github.com/NVIDIA/DALI/pull/5425", "https://github.com/NVIDIA/DALI/pull/5125")),
    Consumer("torch", heeds_stream=False, misreads=">", strides=FORWARD, takes_read_only=False,
      evidence=("measured 2.13.0 up to the first CUDA call",
      "https://github.com/pytorch/pytorch/issues/98133",
      "https://github.com/pytorch/pytorch/issues/32868")),
    Consumer("cupy", misreads=">", evidence=("measured 14.2.0 up to the first CUDA call",
      "https://github.com/cupy/cupy/pull/4357", "https://github.com/cupy/cupy/issues/2616")),
    Consumer("numba", ("numba.cuda", "numba_cuda", "numba"), evidence=("measured 0.30.4",)),
    Consumer("cuda.core", least_version=3, evidence=("measured 1.2.2",
      "https://github.com/NVIDIA/cuda-python/issues/1396")),
    Consumer("cvcuda", ("nvcv", "cvcuda"), heeds_stream=False, least_version=2,
      evidence=("read, May 2025",)),
    Consumer("nvimgcodec", ("nvidia.nvimgcodec",), least_version=2, evidence=("read",)),
    Consumer("mpi4py", heeds_stream=False, evidence=("measured 4.1.2",)),
    Consumer("warp", heeds_stream=False, evidence=("read, August 2026",)),
    Consumer("jax", ("jax", "jaxlib"), least_version=2, evidence=("measured 0.10.2 (CPU), read",
      "https://github.com/jax-ml/jax/pull/19233")),
    Consumer("rmm", ("rmm", "pylibrmm"), heeds_stream=False, evidence=("read, July 2026",)),
    Consumer("ucxx", ("ucxx", "ucp"), heeds_stream=False, evidence=("read, August 2026",)),
    # By which cuVS and cuML read theirs too. Only strides[1] is looked at: rows with gaps are taken
    # for rows without.
    Consumer("pylibraft", ("pylibraft", "cuvs", "cuml"), heeds_stream=False, misreads=">",
      strides=DENSE, evidence=("measured 26.10.0 up to the first CUDA call",)),
    Consumer("pycuda", heeds_stream=False, evidence=("read 2026.1",)),
)  # fmt: skip

_BY_NAME = {consumer.name: consumer for consumer in CONSUMERS}
_NAMES = {module: known.name for known in CONSUMERS for module in known.packages or (known.name,)}


def consumer_for(asked: ModuleType | type | str) -> Consumer:
    """Return the profile of a consumer, by its name, or by a module or a class of it.

    Raises:
        ValueError: It is not known; the message has the nearest name and all names.
    """
    if isinstance(asked, str):
        name = asked
    else:
        module = getattr(asked, "__module__" if isinstance(asked, type) else "__name__", "")
        name = _name_at(module) if isinstance(module, str) else ""
    if name in _BY_NAME:
        return _as_installed(name)
    meant = (
        (_name_at(asked) or close_match(asked.lower(), _BY_NAME)) if isinstance(asked, str) else ""
    )
    hint = f"did you mean {meant!r}? Known" if meant else "known"
    raise ValueError(f"consumer {asked!r} is not known; {hint} are {', '.join(_BY_NAME)}")


def consumer_at(module: str) -> Consumer:
    """Return the profile of the consumer that a module is, or lies in; a new one if unknown."""
    name = _name_at(module)
    return _as_installed(name) if name else ANYONE.replace(name=module)


def _name_at(module: str) -> str:
    """Return the name of the consumer that a module is, or lies in; "" if there is none."""
    while module and module not in _NAMES:
        module = module.rpartition(".")[0]
    return _NAMES.get(module, "")


@cache
def _as_installed(name: str) -> Consumer:
    """Return a profile for the version that is installed."""
    found = _BY_NAME[name]
    installed = next(filter(None, map(Facts().version, found.dists)), "")
    for versions, changes in found.since:
        if installed and in_range(installed, versions):
            return found.replace(**changes)
    return found
