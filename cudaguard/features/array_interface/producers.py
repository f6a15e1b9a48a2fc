"""What the oddities of libraries that export a ``__cuda_array_interface__`` mean.

Only what decides something is used: the meaning of a stream 0, and what to advise. The rest is
what is known of them, for readers and for the documentation.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from cudaguard.features.array_interface.interface import LEGACY_STREAM, SPECIFICATION, refused


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

_BY_MODULE = {module: one for one in PRODUCERS for module in (one.name, *one.also)}
_FIRST_PARTS = frozenset(name.partition(".")[0] for name in _BY_MODULE)


def producer_of(kind: type) -> Producer | None:
    """Return what is known of a class whose instances have the interface, or of a base of it."""
    for base in kind.__mro__:
        module = base.__module__
        if isinstance(module, str) and module.partition(".")[0] in _FIRST_PARTS:
            while module and module not in _BY_MODULE:
                module = module.rpartition(".")[0]
            if module:
                return _BY_MODULE[module]
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
