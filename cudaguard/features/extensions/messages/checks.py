"""The wording of installed extensions that would not load."""

from __future__ import annotations

import os
import shlex
import sys

from cudaguard.core.messages import and_more, listed
from cudaguard.model import Finding
from cudaguard.system.extensions.causes import built_for_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.elf.extension_check import ExtensionCheck

EXTENSIONS = "CG902"
_SHOWN = 3


def would_not_load(
    checks: Sequence[ExtensionCheck], dist: str, version: str, *, is_certain: bool
) -> Finding:
    """Extensions of a distribution that the loader would refuse, for one cause.

    Args:
        checks: What is wrong with each.
        dist: The distribution.
        version: Its version.
        is_certain: False if something may load what they lack first.
    """
    first, more = checks[0], len(checks) - 1
    libraries = dict.fromkeys(one for check in checks for one in check.missing_libraries)
    # Those of missing libraries are but a consequence.
    found = () if libraries else checks
    symbols = dict.fromkeys(name for check in found for _, name in check.missing_symbols)
    others = f" (and {more} more)" if more else ""
    return Finding(
        EXTENSIONS,
        f"{os.path.basename(first.path)}{others} of {dist} {version} would not load: "
        f"{first.message.rstrip('.')}.",
        severity="error" if is_certain else "warning",
        evidence=(
            *(check.path for check in checks[:_SHOWN]),
            *and_more(len(checks) - _SHOWN, "files"),
            *(f"not found: {library}" for library in libraries),
            *(f"no library defines {name}" for name in list(symbols)[:_SHOWN]),
            *and_more(len(symbols) - _SHOWN, "symbols"),
        ),
        consequence=f"importing it fails, or {dist} silently goes on without it.",
        remedy=first.remedy.replace("PACKAGE", dist),
        command=f"cudaguard check-extension {shlex.quote(first.path)}",
    )


def beside_torch(found: Finding, path: str) -> Finding:
    """Extensions that load only as long as torch is not imported.

    Args:
        found: As from `would_not_load`.
        path: The first of them.
    """
    call = f"cudaguard.check_extension({path!r}, assume_imported=('torch',))"
    return found.replace(
        what=found.what.replace(" would not load: ", " would not load after `import torch`: ", 1),
        consequence="importing it after torch fails. Imported before torch, it may break torch.",
        remedy="install builds of both for the same release of CUDA",
        command=f"python -c {shlex.quote(f'import cudaguard; print({call}.message)')}",
    )


def for_other_python(paths: Sequence[str], dist: str, version: str) -> Finding:
    """A distribution that has extensions, and none that this Python would import.

    Args:
        paths: The extensions.
        dist: The distribution.
        version: Its version.
    """
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    pythons = listed(sorted({built_for_python(path) for path in paths}))
    folder = os.path.dirname(os.path.dirname(paths[0]))
    return Finding(
        EXTENSIONS,
        f"{dist} {version} was built for Python {pythons}, but this is Python {here}.",
        severity="error",
        evidence=(*paths[:_SHOWN], *and_more(len(paths) - _SHOWN, "files")),
        consequence="importing it fails with 'No module named ...'.",
        remedy=f"install {dist} for this Python and remove {folder} from PYTHONPATH, or start the "
        f"program with Python {pythons}",
        command=f"cudaguard check-extension {shlex.quote(paths[0])}",
    )


def torch_would_not_load(check: ExtensionCheck, version: str) -> Finding:
    """A torch that cannot be imported."""
    found = would_not_load((check,), "torch", version, is_certain=True)
    return found.replace(
        what=f"torch {version} would not load: {check.message.rstrip('.')}.",
        consequence="`import torch` fails.",
    )


def need_the_driver(dists: Sequence[str]) -> Finding:
    """Extensions that lack nothing but what comes with the driver."""
    return Finding(
        EXTENSIONS,
        f"{listed(dists)} need{'s' * (len(dists) == 1)} the NVIDIA driver, which is not installed.",
        severity="info",
        evidence=("not found: libcuda.so.1",),
        consequence="importing it fails on machines without the driver.",
        remedy="start a container with --gpus all; on a machine without a GPU do nothing",
        command="cudaguard doctor --only CG904",
    )
