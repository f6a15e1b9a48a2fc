"""What the readers of a ``__cuda_array_interface__`` accept, refuse, and do not look at.

Where a version is not known a profile is the careful one: what it asks for suits every version.
"measured" is the release that was tried, "read" the one whose source was read; neither on a GPU.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import NamedTuple

from cudaguard.features.array_interface.interface import LEGACY_STREAM, SPECIFICATION, refused
from cudaguard.system.facts import Facts, in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

# --- What the oddities of libraries that export a ``__cuda_array_interface__`` mean ---------------
# Only what decides something is used: the meaning of a stream 0, and what to advise. The rest is
# what is known of them, for readers and for the documentation.


class Producer(NamedTuple):
    """A library whose arrays have the interface.

    Args:
        name: What it is called, and its module.
        exports: What there is to know of its arrays, as a clause.
        also: Further modules that its classes may lie in.
        zero: What it means by stream 0, which the specification forbids; None if not known.
        none: What its stream None stands for, if somebody would rather wait; None if not known.
        zero_unless: Environment variable under which that is not established.
        stream: Expression for the stream that its work is on, for advice; may be empty.
        absent: Why an array of it has no interface, and what to do; may be empty.
        evidence: How all of this is known.
    """

    name: str
    exports: str
    also: tuple[str, ...] = ()
    zero: int | None = None
    none: int | None = None
    zero_unless: str = ""
    stream: str = ""
    absent: str = ""
    evidence: tuple[str, ...] = ()


PRODUCERS: tuple[Producer, ...] = (
    Producer(
        "pycuda",
        "version 3; stream None always, also while work on a stream is pending",
        none=LEGACY_STREAM,
        stream="1, or the handle of the stream that was used",
        evidence=("measured 2026.1", "https://github.com/inducer/pycuda/issues/226"),
    ),
    Producer(
        "numba.cuda",
        "version 3; stream 0 for arrays bound to the default stream",
        also=("numba_cuda", "numba"),
        zero=LEGACY_STREAM,
        zero_unless="NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM",
        stream="the stream that was used",
        evidence=("measured numba-cuda 0.30.4",),
    ),
    Producer(
        "cupy",
        "version 3; the stream that is current when the interface is read",
        zero=LEGACY_STREAM,
        stream="cupy.cuda.get_current_stream()",
        evidence=("read 14.2.0", "https://github.com/cupy/cupy/pull/4659"),
    ),
    Producer(
        "torch",
        "version 2, no stream; none for tensors on the CPU, RuntimeError for tensors that require "
        "grad, bfloat16 as '<V2'",
        zero=LEGACY_STREAM,
        stream="torch.cuda.current_stream()",
        absent="only dense tensors on a CUDA device have it: move it there with .cuda(), or make "
        "it dense with .to_dense()",
        evidence=("measured 2.13.0", "https://github.com/pytorch/pytorch/pull/143042"),
    ),
    Producer(
        "jax",
        "version 2, no stream; read-only always, ValueError for sharded arrays, none on the CPU",
        also=("jaxlib",),
        absent="only arrays on one CUDA device have it: move it there with jax.device_put",
        evidence=("read 0.10.2", "https://github.com/jax-ml/jax/issues/16440"),
    ),
    Producer(
        "nvidia.dali",
        "version 2, no stream; typestr as in '=f'; memory that is reused after release_outputs()",
        absent="only data on the GPU has it: have the pipeline return it there, with .gpu()",
        evidence=("measured 1.35.0, 2.4.0", "https://github.com/NVIDIA/DALI/pull/1857"),
    ),
    Producer(
        "cudf",
        "version 1, no stream; a mask where values are missing",
        evidence=("https://github.com/NVIDIA/cudf/issues/19122",),
    ),
    Producer(
        "rmm",
        "version 0, no stream; bytes",
        also=("pylibrmm",),
        evidence=("read, July 2026", "https://github.com/rapidsai/rmm"),
    ),
    Producer(
        "warp",
        "version 2, no stream; strides always",
        stream="warp.get_stream().cuda_stream",
        evidence=("read, August 2026", "https://github.com/NVIDIA/warp"),
    ),
    Producer(
        "nvidia.nvimgcodec",
        "version 3; a handle, or 1",
        evidence=("read", "https://github.com/NVIDIA/nvImageCodec"),
    ),
    Producer(
        "nvcv",
        "version 2, no stream; a shape of a class of its own",
        also=("cvcuda",),
        evidence=("read, May 2025", "https://github.com/CVCUDA/CV-CUDA"),
    ),
)

_PRODUCERS_BY_MODULE = {module: one for one in PRODUCERS for module in (one.name, *one.also)}
_FIRST_PARTS = frozenset(name.partition(".")[0] for name in _PRODUCERS_BY_MODULE)


def producer_of(kind: type) -> Producer | None:
    """Return what is known of a class whose instances have the interface, or of a base of it."""
    for base in kind.__mro__:
        module = base.__module__
        if isinstance(module, str) and module.partition(".")[0] in _FIRST_PARTS:
            while module and module not in _PRODUCERS_BY_MODULE:
                module = module.rpartition(".")[0]
            if module:
                return _PRODUCERS_BY_MODULE[module]
    return None


def zero_means(kind: type) -> int:
    """Return the stream that a producer of that class means by 0.

    Raises:
        RefusedError: That is not known.
    """
    producer, rule = producer_of(kind), SPECIFICATION["stream"]
    if producer is not None and producer.zero is not None:
        if os.environ.get(producer.zero_unless, "0").strip() in ("", "0"):
            return producer.zero
        variable = producer.zero_unless
        rule = f"what {producer.name} means by 0 is not established where {variable} is set"
    raise refused(
        "stream", 0, rule, "name the stream that is meant: normalize(..., stream=1) for the legacy "
        "default stream, 2 for the per-thread one, or a handle",
    )  # fmt: skip


# What a consumer does with an entry that it may not like.
HEEDS, REFUSES, IGNORES = "heeds", "refuses", "ignores"
ANY, FORWARD, DENSE = "any", "forward", "dense"


@dataclass(frozen=True)
class Consumer:
    """A library that reads the interface.

    Args:
        name: What people call it, and `cudaguard.normalize` takes.
        packages: Those that its functions and classes lie in; left out: the one of its name.
        dists: Distributions that have it, for its version.
        stream: ``heeds`` (waits for it) or ``ignores``.
        current_stream: Function of its own that tells on which stream it will read, where it is
            known; the host waits for others.
        takes_no_stream: True if ``stream`` may be there and None.
        least_version: Oldest version of the interface that it takes.
        boolean: How it wants the type of truth values spelled.
        misreads: What it takes for something else or refuses in ``typestr``: ``>`` (more than one
            byte, the first the highest) or the letter of a kind.
        strides: ``any``, ``forward`` (no negative ones, and multiples of the element's size) or
            ``dense`` (C order without gaps).
        least_dimensions: Fewest dimensions that it takes.
        mask: ``heeds``, ``refuses`` or ``ignores``.
        read_only: ``heeds``, ``refuses`` or ``ignores``.
        reads_nothing_else: True if it knows no other way, and hides errors of this one.
        since: Pairs of a version range and the fields that differ in it.
        evidence: How all of this is known.
    """

    name: str
    packages: tuple[str, ...] = ()
    dists: tuple[str, ...] = ()
    stream: str = HEEDS
    current_stream: str = ""
    takes_no_stream: bool = True
    least_version: int = 0
    boolean: str = "|b1"
    misreads: tuple[str, ...] = ()
    strides: str = ANY
    least_dimensions: int = 0
    mask: str = REFUSES
    read_only: str = HEEDS
    reads_nothing_else: bool = False
    since: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    evidence: tuple[str, ...] = ()

    def owns(self, kind: type) -> bool:
        """Return True if a class is one of the consumer's own."""
        module = f"{kind.__module__}."
        return any(module.startswith(f"{name}.") for name in self.modules())

    def modules(self) -> tuple[str, ...]:
        """Return the packages that its functions and classes lie in."""
        return self.packages or (self.name,)


# Whoever it is: it heeds everything that the specification has, and is spared a None.
ANYONE = Consumer("", takes_no_stream=False, mask=HEEDS)
# What is to be shown to all: nothing is left out that conforms.
AS_EXPORTED = Consumer("", mask=HEEDS)

CONSUMERS: tuple[Consumer, ...] = (
    Consumer(
        "dali",
        packages=("nvidia.dali",),
        dists=("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-dali-cuda110"),
        takes_no_stream=False,
        boolean="|?",
        misreads=(">", "c"),
        strides=DENSE,
        read_only=IGNORES,
        reads_nothing_else=True,
        since=(
            (">=1.37", {"takes_no_stream": True}),
            ("<1.32", {"takes_no_stream": True, "stream": IGNORES}),
        ),
        evidence=(
            "measured 1.35.0, 2.4.0",
            "https://github.com/NVIDIA/DALI/issues/5423",
            "https://github.com/NVIDIA/DALI/pull/5425",
            "https://github.com/NVIDIA/DALI/pull/5125",
        ),
    ),
    Consumer(
        "torch",
        dists=("torch",),
        stream=IGNORES,
        current_stream="torch.cuda.current_stream",
        misreads=(">",),
        strides=FORWARD,
        mask=IGNORES,
        read_only=REFUSES,
        evidence=(
            "measured 2.13.0 up to the first CUDA call",
            "https://github.com/pytorch/pytorch/issues/98133",
            "https://github.com/pytorch/pytorch/issues/32868",
        ),
    ),
    Consumer(
        "cupy",
        dists=("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
        misreads=(">",),
        read_only=IGNORES,
        evidence=(
            "measured 14.2.0 up to the first CUDA call",
            "https://github.com/cupy/cupy/pull/4357",
            "https://github.com/cupy/cupy/issues/2616",
        ),
    ),
    Consumer(
        "numba",
        packages=("numba.cuda", "numba_cuda", "numba"),
        dists=("numba-cuda",),
        read_only=IGNORES,
        evidence=("measured 0.30.4",),
    ),
    Consumer(
        "cuda.core",
        dists=("cuda-core",),
        least_version=3,
        evidence=("measured 1.2.2", "https://github.com/NVIDIA/cuda-python/issues/1396"),
    ),
    Consumer(
        "cvcuda",
        packages=("nvcv", "cvcuda"),
        dists=("cvcuda-cu13", "cvcuda-cu12", "cvcuda-cu11", "nvcv"),
        stream=IGNORES,
        least_version=2,
        least_dimensions=1,
        mask=IGNORES,
        read_only=IGNORES,
        evidence=("read, May 2025", "https://github.com/CVCUDA/CV-CUDA"),
    ),
    Consumer(
        "nvimgcodec",
        packages=("nvidia.nvimgcodec",),
        dists=("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu11"),
        least_version=2,
        evidence=("read", "https://github.com/NVIDIA/nvImageCodec"),
    ),
    Consumer(
        "mpi4py",
        dists=("mpi4py",),
        stream=IGNORES,
        evidence=("measured 4.1.2",),
    ),
    Consumer(
        "warp",
        dists=("warp-lang",),
        stream=IGNORES,
        mask=IGNORES,
        read_only=IGNORES,
        evidence=("read, August 2026", "https://github.com/NVIDIA/warp"),
    ),
    Consumer(
        "jax",
        packages=("jax", "jaxlib"),
        dists=("jax",),
        least_version=2,
        evidence=("measured 0.10.2 (CPU), read", "https://github.com/jax-ml/jax/pull/19233"),
    ),
    Consumer(
        "rmm",
        packages=("rmm", "pylibrmm"),
        dists=("rmm-cu13", "rmm-cu12", "rmm-cu11", "rmm"),
        stream=IGNORES,
        mask=IGNORES,
        evidence=("read, July 2026", "https://github.com/rapidsai/rmm"),
    ),
    Consumer(
        "ucxx",
        packages=("ucxx", "ucp"),
        dists=("ucxx-cu13", "ucxx-cu12", "ucxx-cu11", "ucxx"),
        stream=IGNORES,
        evidence=("read, August 2026", "https://github.com/rapidsai/ucxx"),
    ),
    Consumer(
        "pylibraft",  # by which cuVS and cuML read theirs too
        packages=("pylibraft", "cuvs", "cuml"),
        dists=("pylibraft-cu13", "pylibraft-cu12", "pylibraft"),
        stream=IGNORES,
        misreads=(">",),
        strides=DENSE,  # rows with gaps are taken for rows without: only strides[1] is looked at
        mask=IGNORES,
        read_only=IGNORES,
        evidence=(
            "measured 26.10.0 up to the first CUDA call",
            "https://github.com/rapidsai/raft",
        ),
    ),
    Consumer(
        "pycuda",
        dists=("pycuda",),
        stream=IGNORES,
        mask=IGNORES,
        read_only=IGNORES,
        evidence=("read 2026.1", "https://github.com/inducer/pycuda"),
    ),
)

_BY_MODULE = {module: one.name for one in CONSUMERS for module in one.modules()}
_BY_NAME = {one.name: one for one in CONSUMERS}
_installed: dict[str, Consumer] = {}


def consumer_for(asked: ModuleType | type | str) -> Consumer:
    """Return the profile of a consumer, by its name, or by a module or a class of it.

    Raises:
        ValueError: It is not known; the message has the nearest name and all names.
    """
    if isinstance(asked, str):
        name = asked
    else:
        module = getattr(asked, "__module__" if isinstance(asked, type) else "__name__", "")
        name = _name_of(module) if isinstance(module, str) else ""
    found = _installed.get(name)
    if found is None and name not in _BY_NAME:
        raise ValueError(_unknown(asked))
    return found or _as_installed(name)


def consumer_of(module: str) -> Consumer | None:
    """Return the profile of the consumer that a module is, or lies in; None for an unknown one."""
    name = _name_of(module)
    return _as_installed(name) if name else None


def _name_of(module: str) -> str:
    while module and module not in _BY_MODULE:
        module = module.rpartition(".")[0]
    return _BY_MODULE.get(module, "")


def _as_installed(name: str) -> Consumer:
    """Return a profile for the version that is installed; it is remembered."""
    found = _BY_NAME[name]
    dists = found.dists if found.since else ()
    installed = next(filter(None, map(Facts().version, dists)), "")
    for versions, changes in found.since:
        if installed and in_range(installed, versions):
            found = replace(found, **changes)
            break
    _installed[name] = found
    return found


def known_consumers() -> tuple[str, ...]:
    """Return the names of all consumers that are known."""
    return tuple(_BY_NAME)


def _unknown(asked: object) -> str:
    """Return what is said of a consumer that is not known: the nearest name, and all names."""
    meant = ""
    if isinstance(asked, str):
        from difflib import get_close_matches

        meant = _name_of(asked) or "".join(get_close_matches(asked.lower(), _BY_NAME, 1))
    hint = f"did you mean {meant!r}? Known" if meant else "known"
    return f"consumer {asked!r} is not known; {hint} are {', '.join(_BY_NAME)}"
