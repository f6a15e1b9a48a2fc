"""Known errors of the loader: explained by who owns the library, and by the files that are here."""

from __future__ import annotations

import re
import shlex
import sys
from _imp import extension_suffixes  # what `importlib.machinery` has
from functools import partial
from glob import glob
from types import ModuleType

from cudaguard.core.known_errors import NUMBERS, Explainer, known_in
from cudaguard.elf.forecast import forecast
from cudaguard.elf.library_facts import distributions_of, in_short
from cudaguard.elf.process import mapped_files
from cudaguard.features.extensions import findings
from cudaguard.files import escape, os
from cudaguard.hooks.caller import entries_of
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import name_owners as owners
from cudaguard.system.extensions import built_for_python
from cudaguard.system.facts import Facts, numbers_of, required_name, requires_of, unmet_by
from cudaguard.system.packages import packages_distributions
from cudaguard.system.preload import CUDA_FOLDERS, below, installed_files
from cudaguard.system.torch_build import PYTHON_VERSION

if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.known_errors import KnownError
    from cudaguard.system.name_owners import NameOwner

# --- Libraries that are not found -----------------------------------------------------------------

_OWNERS = (
    ("CG867", re.compile(r"(?:lib)?(?:c10|torch(?:_cpu|_python|_global_deps)?|shm)\.(?:so|d[ly])")),
    ("CG882", re.compile(r"(?:lib)?(?:c10|torch)_(?:cuda|hip|xpu)\w{0,40}\.(?:so|dll)")),
    ("CG708", re.compile("libbitsandbytes")),
    # The driver's: see CG864. NCCL and musl's loader try others that need not be there.
    ("", re.compile(r"(?:lib)?(?:cuda|nvidia-\S{2,30}|nvcu\w{2,5}|nvml|nccl-\w{1,9})\.|ld-linux")),
)  # fmt: skip
# Into which torch 1.9 to 1.13 divided one of its own.
_SPLIT = re.compile(r"(?:lib)?torch_cuda_(?:cu|cpp)\.")


def of_library(id: str, known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return what the absence of a library means, None if another id is for it."""
    if _is_here(match, "library"):
        return None
    library = match["library"].rstrip(".")
    soname = owners.linux_name(library)
    usual = "CG868" if owners.wheel_of(soname) else "CG702"
    if next((owner for owner, names in _OWNERS if names.match(library)), usual) != id:
        return None
    stem, _, number = soname.partition(".so.")
    cuda, package = owners.cuda_of(soname), owners.requirement_of(soname)
    debian = owners.debian_package_of(library)
    # Where a program says it in words, as jax does, the library may also be there and too old.
    said = "dll" if library.endswith(".dll") else "file" if library == soname else "spoken"
    words = {
        "cuda": cuda,
        "newest": cuda if cuda == "13" and package else "",  # mostly the driver is not so new
        "apart": (cuda and known.facts.get("torch_cuda", "")).replace(cuda, ""),  # torch's CUDA
        "major": "" if cuda or number[:1] in ("", "0", "1") else number.partition(".")[0],
        "package": package and shlex.quote(package),
        said if package else "none": library,
        "other": " (-cu13 or -cu11 for another CUDA)" if not cuda and "-cu12" in package else "",
        "gone": library if _SPLIT.match(library) else "",
        "python": library.partition(".so")[0] if library.startswith("libpython") else "",
        "mpi": library if library.startswith("libmpi.so") else "",
        "ffmpeg" if debian == owners.FFMPEG else "debian": debian,
    }
    words = {name: word for name, word in words.items() if word}
    return known.with_words(library=library, stem=stem, **words)


def of_machine(known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return what it means: glibc and Python call a file for another machine absent, too."""
    if match.groupdict().get("module"):
        return of_passed_over("CG753", known, match)
    is_other = "no such" in match[0].lower() and not _is_here(match, "file")
    return None if is_other else known.with_words(file=match.groupdict().get("file") or "A library")


def of_version(known: KnownError, match: re.Match[str]) -> Finding:
    """Return which version a file lacks, and the last one of glibc: the loader names one alone."""
    said = {name: word for name, word in match.groupdict().items() if word}
    lacks = forecast(said["file"]).versions if os.path.isabs(said.get("file", "")) else ()
    of_glibc = [lack.name for lack in lacks if lack.name.startswith("GLIBC_")]
    last = max(of_glibc, key=lambda name: [*map(int, NUMBERS.findall(name))], default="")
    return known.with_words(**said, **({"glibc": last} if last else {}))


def of_passed_over(id: str, known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return which file of a module is not looked at: it is for another machine, or Python."""
    said, module = match.groupdict(), match["module"].replace(".", os.sep)
    part = f"{os.path.dirname(said['place'])}/{said['name']}" if said.get("place") else module
    files = [file for end in ("so", "pyd") for file in installed_files(f"{part}.*{end}")]
    foreign = {forecast(file).problem in ("wrong-machine", "not-elf") for file in files}
    others = {built_for_python(file) not in ("", PYTHON_VERSION) for file in files}
    is_meant = foreign == {True} if id == "CG753" else (foreign, others) == ({False}, {True})
    if not is_meant:
        return None
    name, owners_of = os.path.basename(files[0]), distributions_of(files[:1]).get(files[0], ())
    words = {"module": name, "file": name, "needer": name, "path": shlex.quote(files[0])}
    system = next((title for word, title in _SYSTEMS.items() if word in name), "")
    words.update({} if not owners_of else {"package": f" {owners_of[0].partition(' ')[0]}"})
    words.update({"system": system} if system else {"why": "is not looked at"} if others else {})
    return known.with_words(**words)


_SYSTEMS = {"darwin": "macOS", ".pyd": "Windows"}  # in names of extensions


def of_hidden(known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return which folder hides a package: it lacks a module that one found later has."""
    said = match.groupdict()
    if not said.get("module"):
        return known.with_words(**{name: word for name, word in said.items() if word})
    parent, _, child = said["module"].rpartition(".")
    parent, child = (said["module"], said["name"]) if said.get("place") else (parent, child)
    path, top = parent.replace(".", os.sep), parent.partition(".")[0]
    folders = [folder for folder in below(path) if os.path.isdir(folder)] if parent else []
    packages = [
        one for one in folders if os.path.exists(f"{one[: -len(path) - 1]}/{top}/__init__.py")
    ]
    folders = packages or folders  # before others, wherever they are
    ends = (*extension_suffixes(), ".py", os.sep)
    has = [any(os.path.exists(f"{folder}/{child}{end}") for end in ends) for folder in folders]
    if not any(has) or has[0]:
        return None
    hiding, beside = (f[: -len(path) - 1] for f in (folders[0], folders[has.index(True)]))
    return known.with_words(name=top, hiding=f"{hiding}{os.sep}{top}", beside=beside, child=child)


def _is_here(match: re.Match[str], group: str) -> bool:
    """Return True if the file that a message names by its path is on this machine."""
    text = match.string[max(0, match.start(group) - 400) : match.end(group)]
    path = re.split(r"[\s'\"(]", text)[-1]
    return "/" in path and os.path.isfile(path)


_VERSIONED = re.compile(r"(?<![^\s'\"])(/[^\s'\"]{1,300}?)[\d.]{1,20}\.so\b")  # that is not there
_SONAME = re.compile(r"\blib[\w+-]{1,60}\.so(?:\.\d+)*")


def with_files(finding: Finding) -> Finding:
    """Return what a message means, with the files here that it is about."""
    there: tuple[str, ...] = ()
    if finding.id == "CG706" and (path := _VERSIONED.search("".join(finding.evidence[:1]))):
        beside = [os.path.basename(file) for file in sorted(glob(f"{escape(path[1])}*.so"))]
        there = (f"in that folder: {', '.join(beside)}",) if beside else ()
    elif finding.command.startswith("pip show "):
        has = ((name, Facts().version(name)) for name in finding.command.split()[2:])
        there = tuple(f"installed: {name} {version}" for name, version in has if version)
    if there:
        return finding.replace(evidence=(*finding.evidence, *there))
    if not (sonames := _SONAME.findall(finding.what)):
        return finding
    soname = sonames[-1]
    folders = (CUDA_FOLDERS, os.path.join("torch", "lib"))
    found = [file for folder in folders for file in installed_files(os.path.join(folder, soname))]
    mapped: list[str] = []
    if finding.id == OLDER_COPY:
        stem = f"{soname.partition('.so')[0]}.so"
        mapped = sorted(file for file in mapped_files() if os.path.basename(file).startswith(stem))
        found = [file for file in found if os.path.realpath(file) not in mapped]
    elif found:  # then nothing is to be installed
        first = f"load the installed {soname} by its path: import torch first if it uses this one"
        finding = finding.replace(remedy=f"{first}, or have a rule open it (preload)", command="")
    more = (*(f"in this process: {file}" for file in mapped), *(f"installed: {f}" for f in found))
    return finding.replace(evidence=(*finding.evidence, *more))


# --- Symbols that nobody defines ------------------------------------------------------------------

OLDER_COPY, OTHER_CUDA, OTHER_TORCH, OTHER_PYTHON, NO_OWNER, NOT_LINKED = IDS = (
    "CG842", "CG701", "CG869", "CG883", "CG871", "CG758",
)  # fmt: skip
_EXTENSION = re.compile(r"\.cpython-|\.abi3\.so$|\.pypy|(?:^|/)_[A-Za-z]\w*\.so$|\.pyd$")
_PACKAGE = re.compile(r"-packages/([A-Za-z]\w*?)(?:(?:_\d)?_(?:cuda|C)\b[^/]*$|/)")
_OF_WHEELS = re.compile(r"lib(?:cu|nv|nccl|torch|c10|caffe2)")
_TYPES = re.compile(r"^_ZT[VISC]")
# Why torch lacks a name, as the texts call it.
_OF_TORCH = {
    "stable": re.compile(r"^(?:aoti_)?torch_"), "type": _TYPES, "cuda": re.compile("(?i)cuda"),
    "old": re.compile(r"(?<![a-z])S[as][a-z]{0,3}$"),  # std::string as one of its last arguments
}  # fmt: skip
_DEVICE_CODE = ("__cudaRegisterLinkedBinary_", "__fatbinwrap_")
# Of glibc, in a message of musl: see CG759.
_OF_GLIBC = re.compile(r"__\w+_chk$|__cxa_|gnu_get_libc_version|backtrace$|mallinfo")


def of_symbol(id: str, known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return what a message means, None if another id is for it."""
    if match.string.endswith("AttributeError: ", 0, match.start()):  # asked for by way of ctypes
        return None
    said = match.groupdict()
    if said.get("module"):
        return of_passed_over(id, known, match)
    if said.get("built"):
        why = f"was compiled for Python {said['built']}, and this is Python {said['python']}"
        return known.with_words(needer="The extension", why=why)
    needer, name = said.get("needer") or "", said["symbol"]
    version = (said.get("version") or "").rstrip(".")
    needer = needer if "." in needer or "/" in needer else ""
    owner = owners.owner_of(name)
    if said.get("lazy") and owner.library:  # a library that opens its parts by their names
        version = f"{owner.library}.so"
    if owner.library == "libittnotify" or (_OF_GLIBC.match(name) and "relocating" in match[0]):
        return None  # see CG723, CG759
    wanted, words = _judged(needer, name, version, owner)
    if wanted != id:
        return None
    package = _PACKAGE.search(needer)
    built_by = package and owners.distribution_with(package[1])
    words["package"] = f" {built_by}" if built_by else ", with its name"
    words["user"] = package[1] if package else "what needs it"
    words["path"] = shlex.quote(needer) if needer else "FILE"
    return known.with_words(**words)


def _judged(needer: str, name: str, version: str, owner: NameOwner) -> tuple[str, dict[str, str]]:
    """Return the id that a name which nobody defines belongs to, and the words for it."""
    words = {"needer": os.path.basename(needer) or "A library", "symbol": _short(name)}
    is_nvidias = owner.kind == owners.NVIDIA
    if name.startswith(_DEVICE_CODE):
        return NOT_LINKED, words
    if owner.kind == owners.PYTHON:
        return OTHER_PYTHON, {**words, "why": f"calls {name}, which this Python does not have"}
    if owner.kind == owners.TORCH:
        group = next((group for group, names in _OF_TORCH.items() if names.search(name)), "abi")
        return OTHER_TORCH, {**words, group: name}
    if owner.library == "libcuda":
        group = "triton" if "/.triton/" in needer else "driver"
        return OTHER_CUDA, {**words, "symbol": name, "owner": owner.title, group: name}
    if version or (owner != owners.NOBODY and not _is_extension(needer)):
        # An extension may not be linked to that library at all, unless it names the version.
        title, wheel = owner.title or version, owners.requirement_of(version)
        file = version or (f"{owner.library}.so" if is_nvidias else f"copy of {title}")
        # With a version the loader asked for that file.
        words.update(owner=title, file=file, gets="gets" if version else "probably gets")
        if owner.library == "libnccl":
            words["nccl"] = title
        if not is_nvidias:
            words["fs" if "St10filesystem" in name else "foreign"] = title
        elif wheel and not _OF_WHEELS.match(os.path.basename(needer)):  # it may want a newer one
            words["wheel"] = wheel
        return OLDER_COPY, words
    if is_nvidias:
        return OTHER_CUDA, {**words, "symbol": name, "owner": owner.title, "link": owner.library}
    package, (space, colons, _) = _PACKAGE.search(needer), words["symbol"].partition("::")
    if package and f"{len(package[1])}{package[1]}" in name:
        words["itself"] = package[1]
    elif owner != owners.NOBODY:
        words["title"] = owner.title
    elif package and (unmet := unmet_by(package[1]))[0]:
        words["unmet"], words["has"] = unmet
    elif needer and (_is_extension(needer) or "cuda" in name):
        words["object"] = name
    elif "cuda" not in name:
        is_others = colons and space not in ("std", "boost") and space not in needer
        words["space" if is_others else "unknown"] = space
    if "torch_extensions" in needer:  # built when it was first used
        words["cached"] = shlex.quote(os.path.dirname(needer))
    return NO_OWNER, words


def _is_extension(path: str) -> bool:
    """Return True for an extension module: a library has a name that begins with ``lib``."""
    return bool(_EXTENSION.search(path)) or not os.path.basename(path).startswith("lib")


def _short(name: str) -> str:
    """Return a name as in the source, without its arguments."""
    if _TYPES.match(name):
        return f"the type {in_short(f'_Z{name[4:]}').partition('(')[0]}"
    return in_short(name)


# --- Errors in the code of one package about another ----------------------------------------------

_OF_CALLS = re.compile(r"\btakes [a-z ]{0,16}\d{0,3} ?arguments? \(\d")  # of functions in C


def of_misfit(error: BaseException) -> Finding | None:
    """Return which two packages do not fit: one fails in its own code, by what another one is.

    That is the one that it requires, and names no highest version of.
    """
    frames = [entry.tb_frame for entry in entries_of(error)]
    caller = str(frames[-1].f_globals.get("__name__")).partition(".")[0] if frames else ""
    owner = _owner_of_error(error).partition(".")[0]
    tops = packages_distributions([caller, owner])
    if caller not in tops or owner in (caller, "builtins") or (owner and owner not in tops):
        return None
    package, version = tops[caller]
    required = [text for text in requires_of(package) if "extra ==" not in text]
    named = [text for text in required if owner and required_name(text) == tops[owner][0]]
    wanted = named or required  # else what has the object may be a part of what is required
    library = required_name(wanted[0]) if len(wanted) == 1 else ""
    has = Facts().version(library) if library else None
    if not has or not {*"<=~"}.isdisjoint(wanted[0].replace(">=", "")):
        return None
    first, second = (*numbers_of(has), 0, 0)[:2]
    older = f"{first or f'0.{second}'}"
    words = {"misfit": has, "library": library, "has": has, "caller": package, "older": older}
    known = next(one for one in KNOWN if one.id == "CG781")
    finding = known.with_words(**words, version=version, shown=f"{package} {library}")
    return finding.replace(consequence="This is likely, not certain.")


def _owner_of_error(error: BaseException) -> str:
    """Return the module that an error speaks of; empty if it has no name, "builtins" for others."""
    if isinstance(error, TypeError) and _OF_CALLS.search(str(error)):
        return ""
    if isinstance(error, ImportError) and error.name:
        return error.name
    if not isinstance(error, AttributeError) or not hasattr(error, "obj"):  # Python 3.10 and later
        return "builtins"
    if isinstance(error.obj, ModuleType):
        return error.obj.__name__ if error.obj.__name__ in sys.modules else ""
    return error.obj.__module__ if isinstance(error.obj, type) else "builtins"  # may be given to it


KNOWN = known_in(
    __file__,
    vars(findings),
    **{id: partial(of_library, id) for id in ("CG867", "CG882", "CG868", "CG702")},
    **{id: partial(of_symbol, id) for id in IDS},
    CG753=of_machine,
    CG788=of_hidden,
    CG870=of_version,
)
EXPLAINER = Explainer(
    KNOWN, with_files, ("CG706", "CG781", "CG868", OLDER_COPY), of_error=of_misfit
)
