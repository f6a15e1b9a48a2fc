"""Builds of extensions: what follows from what is there. Pure: nothing is read or changed here."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GIB = 1 << 30
# What one compiler takes with torch's headers: 1.5 GiB was measured for g++, 3.0 for nvcc with one
# architecture; 3 to 5 are reported for nvcc (Dao-AILab/flash-attention#2079).
PER_COMPILER = {"c++": 2 * GIB, "cuda": 5 * GIB}
_SPARE = 0.85  # of the memory may be used
YOUNG = 3.0  # seconds: a lock is made a moment before anything else shows who works there

# Causes for which a cached extension was made for something else than this process, and those for
# which it is no extension at all.
_FOR_ANOTHER = ("cxx11-abi", "cuda-major", "other-torch", "python-abi", "symbol-version",
                "torch-flavor")  # fmt: skip
_BROKEN = ("not-elf", "truncated", "wrong-machine")
# Causes that nothing can cure which is put in place after the build.
_FINAL = ("cuda-not-linked", "cxx11-abi", "other-torch", "own-source-missing", *_BROKEN)


def state_of(
    *,
    age: float,
    is_ours: bool = True,
    elsewhere: str = "",
    holders: tuple[int, ...] = (),
    workers: tuple[int, ...] = (),
    hidden: tuple[int, ...] = (),
) -> str:
    """Return ``stale``, ``held``, ``in-use``, or why that cannot be said.

    A lock is stale only if that is certain: nobody holds it, and nobody who could was overlooked.
    The arguments are those of `cudaguard.features.builds.locks.LockFacts`.

    Returns:
        One of ``stale``, ``held``, ``in-use``, ``young``, ``elsewhere``, ``foreign``, ``hidden``.
    """
    if holders:
        return "held"
    if workers:  # ninja and its compilers outlive a builder that was killed
        return "in-use"
    if elsewhere:
        return "elsewhere"
    if not is_ours:
        return "foreign"
    if hidden:
        return "hidden"
    return "stale" if age > YOUNG else "young"


def jobs(memory: int | None, cores: int, sources: int, *, with_cuda: bool) -> int | None:
    """Return how many compilers may run at once; None where ninja may do as it likes.

    Args:
        memory: Bytes that can be had, None if unknown.
        cores: Processors of this process.
        sources: Files to compile.
        with_cuda: True if nvcc is among the compilers.
    """
    usual = min(sources, cores + 2 if cores > 2 else cores + 1)  # as ninja has it
    if memory is None:
        return None
    fitting = max(1, int(_SPARE * memory / PER_COMPILER["cuda" if with_cuda else "c++"]))
    return min(fitting, cores) if fitting < usual else None


def architectures(capabilities: Iterable[tuple[int, int]], flags: Iterable[str]) -> str:
    """Return ``TORCH_CUDA_ARCH_LIST`` for devices, letter by letter as torch would find it itself.

    Args:
        capabilities: Of the devices, as in (9, 0).
        flags: What torch is built for, as in ``sm_90``.
    """
    newest = max((_digits(flag) for flag in flags if flag.startswith("sm_")), default=(0, 0))
    found = sorted({"{}.{}".format(*min(newest, one)) for one in capabilities if any(newest)})
    return ";".join(found) + "+PTX" if found else ""


def every_architecture(flags: Iterable[str], known: Iterable[str]) -> str:
    """Return ``TORCH_CUDA_ARCH_LIST`` for whatever torch runs on, where no device is visible.

    Args:
        flags: What torch is built for, as in ``sm_90``.
        known: What the compiler can build for, as in ``compute_90``.
    """
    can = {_digits(one) for one in known}
    both = {_digits(flag) for flag in flags if re.fullmatch(r"sm_\d+", flag)} & can
    return ";".join(f"{major}.{minor}" for major, minor in sorted(both)) + "+PTX" if both else ""


def _digits(flag: str) -> tuple[int, int]:
    number = int("".join(re.findall(r"\d", flag)) or 0)
    return divmod(number, 10)


def is_other_major(nvcc: str, torch: str) -> bool:
    """Return True if two CUDA versions, as in ``12.4``, are of different majors."""
    return bool(nvcc and torch) and nvcc.partition(".")[0] != torch.partition(".")[0]


def differences(made_for: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Return in words where the stamp of a build differs from this process."""
    return [
        f"{key} {made_for[key] or 'none'}, here {value or 'none'}"
        for key, value in here.items()
        if key in made_for and made_for[key] != value
    ]


def is_to_be_rebuilt(cause: str | None, *, is_stamped: bool) -> bool:
    """Return True if compiling once more would help an extension that cannot be loaded.

    Args:
        cause: Why it cannot, see `cudaguard.elf.extension_check.CAUSES`.
        is_stamped: True if it is known to be built for what is here.
    """
    return cause in _BROKEN or (cause in _FOR_ANOTHER and not is_stamped)


def is_final(cause: str | None) -> bool:
    """Return True if an extension that was just built will not load wherever it is put."""
    return cause in _FINAL
