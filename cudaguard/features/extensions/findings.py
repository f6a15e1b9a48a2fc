"""Findings about extensions: refused by the loader, truncated, not loadable."""

from __future__ import annotations

import os
import shlex

from cudaguard.core.findings import SHOWN, Kind, first_few, listed
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.extensions import built_for_python
from cudaguard.system.torch_build import PYTHON_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.core.findings import Finding
    from cudaguard.elf.forecast import ExtensionCheck

_LEAST = 4096  # bytes, so that the next library finds room as well

UNLOADABLE = Kind("CG902", "compiled extensions")
TRUNCATED = Kind(
    "CG840",
    "an extension file is truncated",
    "ExtensionWarning",
    severity="error",
    consequence="Loading it would probably end the process with SIGBUS. Mode 'fix' refuses it.",
    remedy="delete the file, and build or install it again",
    page="howto/extensions.md",
)
REFUSED = Kind(
    "CG841",
    "the dynamic loader refused an extension",
    "ExtensionWarning",
    severity="error",
    consequence="The extension is not loaded.",
    remedy="run cudaguard check-extension on the file, and follow its remedy",
    page="howto/extensions.md",
)
NO_ROOM = Kind(
    "CG821",
    "the dynamic loader had no room for thread-local variables",
    "ExtensionWarning",
    severity="error",
    consequence="Packages that need it cannot be imported in this process.",
    remedy="import what needs it first, before torch, TensorFlow and other large libraries; or set "
    "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 before Python starts (glibc 2.32 and "
    "later)",
    command="export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384",
    links=("https://github.com/dmlc/xgboost/issues/8488",),
)

THREAD = Kind(
    "CG827",
    "an import changes its thread, or takes a signal",
    "ExtensionWarning",
    page="howto/extensions.md",
)
# How: headline, what follows, what to do, and evidence.
_CHANGES = {
    "flushes": (
        "{} switches this thread to flush subnormal numbers to zero.",
        (
            "Numbers below 1.2e-38 (float32) or 2.2e-308 (float64) are zero now in all that this "
            "thread and those it starts compute. Results depend on the order of imports."
        ),
        (
            "call torch.set_flush_denormal(False) after that import, or "
            "ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1)) without torch; or update the "
            "package, which was linked with -ffast-math or -Ofast by a GCC before 13"
        ),
        "https://github.com/OpenNMT/CTranslate2/issues/1018",
    ),
    "handles": (
        "{} takes {about} from the handler that this program has set.",
        "That handler is not called any more, by which a program may save a checkpoint.",
        "import it before the program calls signal.signal, or call that again after the import",
        "https://github.com/PaddlePaddle/Paddle/issues/57534",
    ),
    "pins": (
        "{} pins this thread to fewer CPU cores.",
        "What it starts from now on shares them: DataLoader workers, other processes, threads.",
        (
            "unset OMP_PROC_BIND, KMP_AFFINITY and GOMP_CPU_AFFINITY before Python starts; else "
            "keep os.sched_getaffinity(0) before that import, and give it to "
            "os.sched_setaffinity(0, ...) after it"
        ),
        "https://github.com/pytorch/pytorch/issues/101850",
    ),
}
AGAIN = Kind(
    "CG824",
    "a package is imported a second time in one process",
    "ImportOrderWarning",
    severity="error",
    consequence="Its native code cannot be initialized twice in one process.",
    remedy="keep it in sys.modules: do not delete or reload it, switch off Spyder's User Module "
    "Reloader, import ddtrace.auto before it",
    links=("https://github.com/DataDog/dd-trace-py/issues/18276",),
    page="howto/extensions.md",
)


def imported_again(name: str, first: str, where: str, error: str, cure: str) -> Finding:
    """The import of a module has failed that was imported before.

    What the `first` error said, `where` that import was asked for; empty where it went well; what
    the `error` says now, and how to `cure` the first one, if that is known.
    """
    if not first:
        what = f"{name} is imported a second time: something has taken it out of sys.modules."
        return AGAIN.found(what, error)
    return AGAIN.found(
        f"{name} is imported a second time, after its first import failed.",
        f"first imported at {where}" if where else "",
        f"the first error: {_in_short(first)}",
        _in_short(error),
        remedy=f"{cure or 'fix the first error'}; then start a new Python (in a notebook, restart "
        "the kernel)",
        command=f'python -c "import {name}"',
    )


def _in_short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalpha, line))]
    return " ".join([*lines[:2], "...", lines[-1]] if len(lines) > 3 else lines)


def changed_thread(name: str, how: str, where: str, about: str = "") -> Finding:
    """An import has changed its thread, or the process: `how`, and where it was asked for.

    `about` is the signal that it handles now.
    """
    what, consequence, remedy, link = _CHANGES[how]
    place = f"{'imported' if about else 'loaded'} at {where}" if where else ""
    return THREAD.found(
        what.format(name, about=about), place, consequence=consequence, remedy=remedy, links=(link,)
    )


def truncated(check: ExtensionCheck, where: str) -> Finding:
    """A file ends too early; where: ``file:line`` that asked for it, may be empty."""
    return TRUNCATED.found(
        f"{check.message}.",
        f"loaded at {where}" if where else "",
        check.path,
        remedy=check.remedy,
        command=f"cudaguard check-extension {shlex.quote(check.path)}",
    )


def not_loaded(check: ExtensionCheck, said: str, where: str, *, is_import: bool) -> Finding:
    """The loader has refused an extension or library."""
    return REFUSED.found(
        f"{check.message}.",
        f"{'imported' if is_import else 'loaded'} at {where}" if where else "",
        f"the loader: {said}",
        check.path,
        consequence="The import fails." if is_import else "The library is not loaded.",
        remedy=check.remedy,
        command=f"cudaguard check-extension {shlex.quote(check.path)}",
    )


def error_text(check: ExtensionCheck, said: str) -> str:
    """Return what the error says: the cause, the message of the loader, and what to do."""
    because, fix = said and f"because: {said}", check.remedy and f"fix: {check.remedy}"
    return "\n  ".join(filter(None, (f"{check.message}.", because, fix)))


def no_room(library: str, wanted: int, users: Sequence[tuple[int, str]], where: str) -> Finding:
    """A library was refused, since others had taken all static TLS.

    `wanted` is 0 if that is not known; `users` are pairs of bytes and file, the largest first.
    """
    name = os.path.basename(library)
    largest = listed([os.path.basename(file) for _, file in users[:SHOWN]]) if users else "others"
    return NO_ROOM.found(
        f"{name} was not loaded: {largest} used up the room for thread-local variables.",
        f"loaded at {where}" if where else "",
        f"{library}: needs {wanted} bytes of static TLS" if wanted else "",
        *first_few([f"{file}: {size} bytes of static TLS" for size, file in users], "libraries"),
        remedy=f"import the package that contains {name} first, or start Python with more room "
        "(glibc 2.32 or later)",
        command="GLIBC_TUNABLES=glibc.rtld.optional_static_tls="
        f"{max(_LEAST, 2 * wanted)} python ...",
    )


def would_not_load(
    checks: Sequence[ExtensionCheck],
    dist: str,
    version: str,
    *,
    is_certain: bool,
    beside_torch: bool = False,
) -> Finding:
    """Extensions of a distribution that the loader would refuse, for one cause.

    Not certain where something may load first what they lack. `beside_torch` are those that load as
    long as torch is not imported.
    """
    first, more = checks[0], len(checks) - 1
    libraries = dict.fromkeys(library for check in checks for library in check.missing_libraries)
    # Those of missing libraries are but a consequence.
    found = () if libraries else checks
    symbols = dict.fromkeys(name for check in found for _, name in check.missing_symbols)
    others = f" (and {more} more)" if more else ""
    would = "would not load" if is_certain else "would probably not load"
    consequence = f"Importing it fails, or {dist} silently goes on without it."
    remedy = first.remedy.replace("PACKAGE", dist)
    if more and libraries:  # one for each FFmpeg names another
        remedy = remedy.replace(f" with {next(iter(libraries))}", "")
    command = f"cudaguard check-extension {shlex.quote(first.path)}"
    if beside_torch:
        would = "would not load after `import torch`"
        consequence = "Importing it after torch fails. Imported before torch, it may break torch."
        remedy = "install builds of both for the same version of CUDA"
        call = f"cudaguard.check_extension({first.path!r}, assume_imported=('torch',))"
        command = f"python -c {shlex.quote(f'import cudaguard; print({call}.message)')}"
    return UNLOADABLE.found(
        f"{os.path.basename(first.path)}{others} of {dist} {version} {would}: "
        f"{first.message.rstrip('.')}.",
        *first_few([check.path for check in checks], "files"),
        *(f"not found: {library}" for library in libraries),
        *first_few([f"no library defines {name}" for name in symbols], "symbols"),
        severity="error" if is_certain else "warning",
        consequence=consequence,
        remedy=remedy,
        command=command,
    )


def torch_would_not_load(check: ExtensionCheck, version: str) -> Finding:
    """A torch that cannot be imported."""
    found = would_not_load((check,), "torch", version, is_certain=True)
    why, remedy = check.message.rstrip("."), found.remedy
    if check.cause in ("torch-not-imported", "torch-flavor"):  # said of others, about torch
        libraries = list(dict.fromkeys(check.missing_libraries))
        is_not = f"which {'are' if libraries[1:] else 'is'} not found"
        why = f"{os.path.basename(check.path)} needs {listed(libraries)}, {is_not}"
        remedy = "install torch again: a part of it is missing"
    return found.replace(
        what=f"torch {version} would not load: {why}.",
        consequence="`import torch` fails.",
        remedy=remedy,
    )


def for_other_python(paths: Sequence[str], dist: str, version: str) -> Finding:
    """A distribution that has extensions, and none that this Python would import."""
    versions = sorted({built_for_python(path) for path in paths})
    folder = os.path.dirname(os.path.dirname(paths[0]))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    is_named = os.path.realpath(folder) in map(os.path.realpath, filter(None, named))
    leave = f" and remove {folder} from PYTHONPATH" if is_named else ""
    return UNLOADABLE.found(
        f"{dist} {version} was built for Python {listed(versions)}, "
        f"but this is Python {PYTHON_VERSION}.",
        *first_few(paths, "files"),
        severity="error",
        consequence="Importing its compiled part fails with 'No module named ...'.",
        remedy=f"install {dist} for this Python{leave}, or start the program with Python "
        f"{' or '.join(versions)}",
        command=f"cudaguard check-extension {shlex.quote(paths[0])}",
    )
