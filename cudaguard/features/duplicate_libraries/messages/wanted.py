"""The wording of a library that is older than a package was built for."""

from __future__ import annotations

import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.duplicate_libraries.policy.duplicates import Copy
    from cudaguard.features.duplicate_libraries.policy.wanted import Want

OLDER = "CG823"
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
    evidence = [f"{want.by} requires {want.said}" if want.wheel else f"{want.by} reports it"]
    if serving is not None:
        evidence.insert(0, f"{serving.path} ({version}) {serving.how}")
    other = serving.by.partition(".")[0] if serving is not None else ""
    remedy = "install the required release; packages built for an earlier one work with it"
    if other and other != want.package:
        remedy += f"; or import {want.package} and use it once before `import {other}`"
    return Finding(
        OLDER,
        f"{want.package} was built for cuDNN {least} or later, but {version} {how}.",
        evidence=tuple(evidence),
        consequence=f"{want.package} runs on the CPU, or fails with 'Loaded runtime CuDNN library: "
        f"{version} but source was compiled with: {least}'.",
        remedy=remedy,
        command=f"pip install {shlex.quote(want.said)}"
        if want.wheel
        else f"conda install {shlex.quote(f'cudnn>={least}')}"
        if conda
        else "cudaguard doctor",
        links=_LINKS,
    )
