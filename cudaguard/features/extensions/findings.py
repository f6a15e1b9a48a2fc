"""The wording of extensions: refused by the loader, kept from it, installed and not loadable."""

from __future__ import annotations

import os
import re
import shlex
import sys

from cudaguard.core.findings import and_more, listed
from cudaguard.model import Finding
from cudaguard.system.extensions import built_for_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.elf.forecast import ExtensionCheck

REFUSED, FAILED = "CG840", "CG841"
NO_ROOM = "CG821"
EXTENSIONS = "CG902"
_SHOWN = 3  # files, symbols or libraries
_TUNABLE = "GLIBC_TUNABLES=glibc.rtld.optional_static_tls"
_LEAST = 4096  # bytes, so that the next library finds room as well


def not_loaded(check: ExtensionCheck, said: str, where: str, *, is_import: bool = True) -> Finding:
    """An extension or library that the loader has refused, or that was kept from it."""
    evidence = [f"{'imported' if is_import else 'loaded'} at {where}"] if where else []
    fails = "the import fails." if is_import else "the library is not loaded."
    evidence += [f"the loader: {said}"] if said else []
    evidence.append(check.path)
    return Finding(
        FAILED if said else REFUSED,
        f"{check.message}.",
        severity="error",
        evidence=evidence,
        consequence=fails if said else "loading it would probably end the process (SIGBUS).",
        remedy=check.remedy,
        command=f"cudaguard check-extension {shlex.quote(check.path)}",
    )


def error_text(check: ExtensionCheck, said: str) -> str:
    """Return what the error says: the cause, what to do, and the loader's own words."""
    lines = [f"{check.message}."]
    if check.remedy:
        lines.append(f"  remedy: {check.remedy}")
    if said:
        lines.append(f"  the loader: {said}")
    return "\n".join(lines)


def no_room(victim: str, wanted: int, users: Sequence[tuple[int, str]], where: str) -> Finding:
    """A library was refused, since others had taken all static TLS.

    Args:
        victim: Its file, or its name.
        wanted: Bytes that it wants; 0 if that is not known.
        users: Pairs of (bytes, file) of those that have some, the largest first.
        where: ``file:line`` that asked for it; may be empty.
    """
    name = os.path.basename(victim)
    taken = [f"{file}: {size} bytes of static TLS" for size, file in users[:_SHOWN]]
    largest = listed([os.path.basename(file) for _, file in users[:_SHOWN]]) if users else "others"
    return Finding(
        NO_ROOM,
        f"{name} was not loaded: {largest} took the room for thread-local variables.",
        severity="error",
        evidence=(
            *((f"loaded at {where}",) if where else ()),
            *((f"{victim}: needs {wanted} bytes of static TLS",) if wanted else ()),
            *taken,
            *and_more(len(users) - _SHOWN, "libraries"),
        ),
        consequence="packages that need it cannot be imported in this process.",
        remedy=f"import the package that contains {name} first, or start Python with more room "
        "(glibc 2.32 or later)",
        command=f"{_TUNABLE}={max(_LEAST, 2 * wanted)} python ...",
        links=("https://github.com/dmlc/xgboost/issues/8488",),
    )


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
    would = "would not" if is_certain else "would probably not"
    return Finding(
        EXTENSIONS,
        f"{os.path.basename(first.path)}{others} of {dist} {version} {would} load: "
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
        what=re.sub(
            r" would (?:probably )?not load: ",
            " would not load after `import torch`: ",
            found.what,
            count=1,
        ),
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
    versions = sorted({built_for_python(path) for path in paths})
    pythons = listed(versions)
    folder = os.path.dirname(os.path.dirname(paths[0]))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    is_named = os.path.realpath(folder) in map(os.path.realpath, filter(None, named))
    leave = f" and remove {folder} from PYTHONPATH" if is_named else ""
    return Finding(
        EXTENSIONS,
        f"{dist} {version} was built for Python {pythons}, but this is Python {here}.",
        severity="error",
        evidence=(*paths[:_SHOWN], *and_more(len(paths) - _SHOWN, "files")),
        consequence="importing its compiled part fails with 'No module named ...'.",
        remedy=f"install {dist} for this Python{leave}, or start the program with Python "
        f"{' or '.join(versions)}",
        command=f"cudaguard check-extension {shlex.quote(paths[0])}",
    )


def torch_would_not_load(check: ExtensionCheck, version: str) -> Finding:
    """A torch that cannot be imported."""
    found = would_not_load((check,), "torch", version, is_certain=True).replace(
        what=f"torch {version} would not load: {check.message.rstrip('.')}.",
        consequence="`import torch` fails.",
    )
    if check.cause not in ("torch-not-imported", "torch-flavor"):
        return found
    libraries = list(dict.fromkeys(check.missing_libraries))
    return found.replace(
        what=f"torch {version} would not load: {os.path.basename(check.path)} needs "
        f"{listed(libraries)}, which {'are' if libraries[1:] else 'is'} not found.",
        remedy="install torch again: a part of it is missing",
    )


def need_the_driver(dists: Sequence[str], libraries: Sequence[str]) -> Finding:
    """Extensions that lack nothing but what comes with the driver.

    Args:
        dists: Their distributions.
        libraries: What they lack.
    """
    is_one = len(dists) == 1
    return Finding(
        EXTENSIONS,
        f"{listed(dists)} need{'s' * is_one} the NVIDIA driver, whose {listed(libraries)} "
        f"{'is' if len(libraries) == 1 else 'are'} not found.",
        severity="info",
        evidence=tuple(f"not found: {library}" for library in libraries),
        consequence=f"importing {'it' if is_one else 'them'} fails where the driver is missing.",
        remedy="start a container with --gpus all; on a machine without a GPU do nothing",
        command="cudaguard doctor --deep --only CG913",
    )
