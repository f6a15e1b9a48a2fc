"""The wording of a library that is older than a package was built for."""

from __future__ import annotations

import os
import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.duplicate_libraries.policy.duplicates import Copy
    from cudaguard.features.duplicate_libraries.policy.wanted import Want

OLDER = "CG823"
_OF_XLA = ("jax", "tensorflow")  # which compares the releases, and says so
_LINKS = (
    "https://github.com/jax-ml/jax/issues/15268",
    "https://github.com/jax-ml/jax/issues/19004",
    "https://github.com/conda-forge/jaxlib-feedstock/issues/329",
)


def older_than_wanted(
    want: Want, release: tuple[int, ...], serving: Copy | None, *, conda: bool = False
) -> Finding:
    """The cuDNN of this process is older than the one that a package was built for.

    Args:
        want: What it was built for.
        release: What there is.
        serving: The file that is in the process, None if none is yet.
        conda: True in an environment of conda's.
    """
    version, least = ".".join(map(str, release)), ".".join(map(str, want.least))
    how = "is installed" if serving is None else "is loaded"
    built = "requires" if want.wheel else "was built for"
    evidence = [f"{want.by} requires {want.said}" if want.wheel else f"{want.by} reports it"]
    if serving is not None:
        evidence.insert(0, f"{serving.path} ({version}) {serving.how}")
    other = serving.by.partition(".")[0] if serving is not None else ""
    remedy = "install the required release"
    folder = os.path.dirname(serving.path) if serving is not None else ""
    if folder and want.wheel and f"{os.sep}nvidia{os.sep}" not in folder:
        remedy += f", and keep {folder} out of LD_LIBRARY_PATH"
    remedy += "; packages built for an earlier one usually work with it"
    if other and other != want.package:
        remedy += f"; or import {want.package} and use it once before `import {other}`"
    return Finding(
        OLDER,
        f"{want.package} {built} cuDNN {least} or later, but {version} {how}.",
        evidence=tuple(evidence),
        consequence=f"{want.package} runs on the CPU, or fails with 'Loaded runtime CuDNN library: "
        f"{version} but source was compiled with'."
        if want.package in _OF_XLA
        else f"{want.package} may fail on the GPU, or run on the CPU.",
        remedy=remedy,
        command=f"pip install {shlex.quote(want.said)}"
        if want.wheel
        else f"conda install {shlex.quote(f'cudnn>={least}')}"
        if conda
        else "cudaguard doctor",
        links=_LINKS,
    )
