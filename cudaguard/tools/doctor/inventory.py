"""What is installed here, for ``--bundle``, and how the bundles of several hosts differ.

Files tell it, and two compilers. NVML is not asked, no library is loaded, and nothing is imported.

Source: ``os-release(5)``, ``proc(5)``; the NVIDIA driver's README, "The /proc interface"; PEP 376
(INSTALLER), PEP 427 (WHEEL), PEP 610 (direct_url.json); conda's ``conda-meta``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
from glob import glob
from typing import NamedTuple

from cudaguard.core.checks import OK as FINE
from cudaguard.core.checks import SKIPPED
from cudaguard.core.findings import counted
from cudaguard.files import LARGEST, read_bytes, text_of
from cudaguard.files.layout import Page
from cudaguard.files.text import printable_data
from cudaguard.system.child import run_command
from cudaguard.system.machine import kinds_of_machine, library_file, look_at_driver
from cudaguard.system.packages import documents
from cudaguard.system.processes import cores
from cudaguard.system.torch_build import folder_of
from cudaguard.tools.common import FOUND, OK, SCHEMA, UsageError, json_text, show, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.system.packages import Distribution, Site

    Package = dict[str, str]
    Values = Mapping["Fact", str]

_TIME = 20.0  # seconds; compilers behind wrappers and network file systems start slowly
# Those of the system that count where a package has none of its own.
_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudnn.so.9", "libcudnn.so.8",
              "libnccl.so.2", "libnvinfer.so.10", "libstdc++.so.6")  # fmt: skip
# What a binary may need, and a program dies of SIGILL without; x86-64's, then ARM's.
_VECTOR = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"),
    *("asimd", "asimddp", "sve", "sve2", "bf16", "i8mm"),
)

# What is looked for in files of the system, in what nvcc says, and in metadata.
_FEATURES = re.compile(r"^(?:flags|Features)[ \t]*:[ \t]*(.+)$", re.MULTILINE)
_MEMORY = re.compile(r"^MemTotal:[ \t]*(\d+) kB$", re.MULTILINE)
_OS_NAME = re.compile(r'^PRETTY_NAME="?([^"\n]+)', re.MULTILINE)
_CPU = re.compile(r"^model name[ \t]*:[ \t]*(.+)$", re.MULTILINE)
_NVCC = re.compile(r"release (\d+\.\d+)")
_TAG = re.compile(r"^Tag:[ \t]*([^\s]+)", re.MULTILINE)


def inventory(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment."""
    compiled, others = packages(site.installed.found)
    others.update((os.path.basename(path), "unreadable") for path, _ in site.installed.unreadable)
    of_conda, other_conda = conda_packages()
    # What the loader would take from the system for CUDA's libraries, links resolved.
    files = {name: library_file(name) for name in _LIBRARIES}
    return {
        "system": system(),
        "python": python(),
        "gpu": gpus(),
        "torch": torch(site.version("torch") or ""),
        "tools": tools(site.environ),
        "libraries": {name: os.path.realpath(file) for name, file in files.items() if file},
        "variables": variables(site.environ),
        "packages": compiled,
        "other_packages": others,
        "conda": of_conda,
        "other_conda": other_conda,
    }


def system(root: str = "/") -> dict[str, str | int]:
    """Return what is below Python, in the file system that begins at root."""
    cpu = text_of(root, "proc/cpuinfo")
    has = _found(_FEATURES, cpu).split()
    memory = _found(_MEMORY, text_of(root, "proc/meminfo"))
    release = platform.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # musl
        libc = " ".join(platform.libc_ver()).strip()
    return {
        "os": _found(_OS_NAME, text_of(root, "etc/os-release")) or release.system,
        "kernel": release.release,
        "machine": release.machine,
        "libc": libc,
        "kind": ", ".join(kinds_of_machine(root)),
        "cpu": _found(_CPU, cpu).strip(),
        "instructions": " ".join(filter(has.__contains__, _VECTOR)),
        "cpus": cores(),
        "memory_bytes": int(memory or 0) * 1024,
    }


def python() -> dict[str, str]:
    """Return what interpreter this is."""
    kind = "venv" if sys.prefix != sys.base_prefix else "system"
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        kind = "conda"
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": ", ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "threads": "GIL" if getattr(sys, "_is_gil_enabled", lambda: True)() else "free-threaded",
        "kind": kind,
        "prefix": sys.prefix,
    }


def gpus(root: str = "/") -> dict[str, str | int | list[str]]:
    """Return the driver, and the GPUs that its kernel module lists."""
    driver = look_at_driver(root)
    files = sorted(glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
    texts = "\n".join(text_of(file) for file in files)
    return {
        "driver": driver.kernel,
        "library": driver.library,
        "library_version": driver.library_version,
        "models": [
            line.partition(":")[2].strip() for line in texts.splitlines() if "Model:" in line[:6]
        ],
        "pci_devices": driver.devices,
    }


def torch(version: str) -> dict[str, str]:
    """Return how torch was built, by its own file; nothing where there is none."""
    folder = folder_of("torch")
    if not version and not folder:
        return {}
    said = re.findall(
        r"^(cuda|hip|xpu|debug|git_version)\b[^=\n]*=\s*['\"]?([^'\"\n#]+)",
        text_of(folder, "version.py"),
        re.MULTILINE,
    )
    built = {key: value.strip() for key, value in said if value.strip() != "None"}
    return {"version": version, "folder": folder, **built}


def tools(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the tools that build extensions, and where they are."""
    words = (environ.get("CXX") or "c++").split()
    compiler = (words and shutil.which(words[0])) or ""
    is_gcc = compiler and "Free Software Foundation" in _said(compiler, "--version")
    gcc = _said(compiler, "-dumpfullversion", "-dumpversion").strip() if is_gcc else ""
    nvcc = shutil.which("nvcc") or ""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        nvcc = os.path.join(home, "bin", "nvcc")
    cuda = _found(_NVCC, _said(nvcc, "--version")) if nvcc else ""
    scripts = os.path.dirname(sys.executable)  # of an environment that may not be active
    return {
        "gcc": f"{gcc or 'other'} ({compiler})" if compiler else "",
        "nvcc": f"{cuda or 'unknown'} ({nvcc})" if nvcc else "",
        "ninja": shutil.which("ninja") or shutil.which("ninja", path=scripts) or "",
    }


def _said(*command: str) -> str:
    try:
        ended = run_command(command, {**os.environ, "LC_ALL": "C"}, _TIME)
    except OSError:
        return ""
    return f"{ended.output}{ended.errors}" if ended.status == 0 else ""


def packages(dists: Iterable[Distribution]) -> tuple[list[Package], dict[str, str]]:
    """Return packages with compiled code, all that is known of each; and the others' versions.

    What does not say what it is (installed by a system's package manager) counts as compiled.
    """
    compiled: list[Package] = []
    others = {}
    for dist in sorted(dists, key=lambda dist: dist.key):
        build = _found(_TAG, text_of(dist.metadata, "WHEEL"))
        if build.endswith("-none-any"):
            others[dist.name] = dist.version
        else:
            installer = text_of(dist.metadata, "INSTALLER").strip().partition("\n")[0]
            known = {"name": dist.name, "version": dist.version, "build": build}
            compiled.append({**known, "source": _address(dist) or installer})
    return compiled, others


def _address(dist: Distribution) -> str:
    """Return where a package came from that no index had; else nothing."""
    try:
        said = json.loads(text_of(dist.metadata, "direct_url.json"))
        url, commit = str(said["url"]), said.get("vcs_info", {}).get("commit_id")
        is_editable = said.get("dir_info", {}).get("editable")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # no such file, or nothing of use in it
    return f"{url}@{commit}" if commit else f"editable {url}" if is_editable else url


def conda_packages(prefix: str = sys.prefix) -> tuple[list[Package], dict[str, str]]:
    """Return the same of conda's packages, Python's and others; nothing outside of conda."""
    compiled: list[Package] = []
    others = {}
    for name, version, build, document in documents(prefix):
        try:
            said = json.loads(read_bytes(document, LARGEST))
            channel = str(said.get("channel") or "conda").rstrip("/")
        except (OSError, ValueError, AttributeError, RecursionError):
            channel = "conda"
        if channel.endswith("/noarch"):
            others[name] = version
        else:
            compiled.append({"name": name, "version": version, "build": build, "source": channel})
    return compiled, others


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


# --- ``doctor --diff``: what differs between the bundles of several hosts, and what of it matters.
# Hosts that are alike in what matters form a group; each group is compared to the largest.

# In the order in which they are told.
KINDS = ("check", "finding", "driver", "GPUs", "torch", "library", "system", "Python", "tool",
         "variable", "package", "conda", "cudaguard")  # fmt: skip
# Kind -> key of the inventory, and the names that matter (empty: all).
_PARTS = {
    "torch": ("torch", ("cuda", "hip", "xpu", "git_version", "debug")),
    "system": ("system", ("os", "machine", "libc", "kind", "cpu", "instructions")),
    "Python": ("python", ("version", "implementation", "threads")),
    "library": ("libraries", ()),
    "tool": ("tools", ()),
    "variable": ("variables", ()),
}
# Paths of an account, and what differs from one process of a job to the next.
_OF_ACCOUNT = ("PATH", "VIRTUAL_ENV", "CONDA_", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
               "TORCHELASTIC_")  # fmt: skip
_BEFORE_HOST = "doctor-"  # as in doctor-%h.md
_MOST = 4  # names of reports in a line
_WIDTH = 10
_ABSENT = "absent"
_WRITE = "cudaguard doctor --bundle FILE.md"


class Fact(NamedTuple):
    """What is compared."""

    kind: str  # one of `KINDS`
    name: str
    matters: bool  # False for what seldom makes a program work on one host and crash on another


def execute(args: Namespace) -> int:
    """Compare the files of ``--diff``: 0 if they are alike in what matters, 1 if not."""
    if len(args.diff) < 2:
        raise UsageError("--diff: got 1 file, expected two or more, as in --diff a.md b.md")
    found = compare([read_facts(path) for path in args.diff], labels(args.diff))
    if args.format == "json":
        show(json_text({"tool": "doctor --diff", **found}))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        write(printable_data(found), page)
        show(str(page))
    return FOUND if len(found["groups"]) > 1 else OK


def read_facts(path: str) -> dict[Fact, str]:
    """Return the facts of the report in a bundle; a `UsageError` if it is none."""
    report = None
    try:
        # The block of JSON that a bundle ends with: its fence is longer than any within.
        whole, _, fence = read_bytes(path, LARGEST).decode("utf-8").rstrip().rpartition("\n")
        if fence.startswith("```"):
            report = json.loads(whole.rpartition(f"\n{fence}json\n")[2])
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}."
        raise UsageError(what, command=f"ls -l {shlex.quote(path)}") from None
    except (ValueError, RecursionError):
        pass
    if not isinstance(report, dict) or report.get("tool") != "doctor":
        problem = "is no bundle of doctor. Write one there."
    elif report.get("schema") != SCHEMA:
        problem = "was written by another version of cudaguard. Write it again."
    elif report.get("inventory") is None:
        problem = "has no inventory: what is installed could not be read there."
    else:
        try:
            return facts_of(report)
        except (AttributeError, KeyError, TypeError):  # it may have been edited
            problem = "is damaged. Write it again."
    raise UsageError(f"{path} {problem}", command=_WRITE)


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file, which no other has: that of the host, if it has one."""
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if all(name.startswith(_BEFORE_HOST) for name in names):
        names = [name[len(_BEFORE_HOST) :] or name for name in names]
    return names if len(set(names)) == len(names) else list(paths)


def facts_of(report: Mapping[str, Any]) -> dict[Fact, str]:
    """Return the facts of a report with their values, as texts."""
    facts: dict[Fact, object] = {}
    for check in report["checks"]:
        title, status = f"{check['id']} {check['title']}", check["status"]
        # What is skipped here and fine there has nothing to look at: other facts say why.
        facts[Fact("check", title, True)] = FINE if status == SKIPPED else status
        facts[Fact("check", f"{title}, looked at", False)] = check["reason"]
        for finding in check["findings"]:
            matters = finding["severity"] != "info"
            facts[Fact("finding", f"{check['id']}: {finding['what']}", matters)] = "found"
    found = report["inventory"]
    gpu = found["gpu"]
    facts[Fact("driver", "kernel module", True)] = gpu["driver"]
    facts[Fact("driver", "libcuda.so.1", True)] = gpu["library_version"]
    facts[Fact("driver", "file", False)] = gpu["library"]
    models, devices = gpu["models"], gpu["pci_devices"]
    unknown = f"{devices} on the PCI bus, models unknown" if devices else "none"
    counts = (f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    facts[Fact("GPUs", "", True)] = ", ".join(counts) or unknown
    for kind, (key, names) in _PARTS.items():
        for name, value in found[key].items():
            if (kind, name) != ("torch", "version"):  # told with its build, below
                matters = name in names or not (names or name.startswith(_OF_ACCOUNT))
                facts[Fact(kind, name, matters)] = value
    for kind, key in (("package", "packages"), ("conda", "conda")):
        for package in found[key]:
            parts = (package["version"], package["build"], package["source"])
            name = "torch" if package["name"] == "torch" else kind  # of which all is told together
            facts[Fact(name, str(package["name"]), True)] = ", ".join(filter(None, parts))
        for name, value in found[f"other_{key}"].items():
            facts[Fact(kind, name, False)] = value
    facts[Fact("cudaguard", "version", True)] = report["version"]
    return {fact: str(value) for fact, value in facts.items()}


def compare(reports: Sequence[Values], labels: Sequence[str]) -> dict[str, Any]:
    """Return how reports differ, as plain data.

    Its groups, the largest first, have what they differ in from that one; ``folded`` is what seldom
    matters.
    """
    known = sorted(
        {fact for report in reports for fact in report},
        key=lambda fact: (KINDS.index(fact.kind), fact.name),
    )
    differing = [fact for fact in known if len({report.get(fact, "") for report in reports}) > 1]
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, report in enumerate(reports):
        values = tuple(report.get(fact, "") for fact in differing if fact.matters)
        alike.setdefault(values, []).append(number)
    groups = sorted(alike.values(), key=len, reverse=True)  # of equal ones the first
    reference = reports[groups[0][0]]
    parts = []
    for group in groups:
        here = reports[group[0]]
        pairs = ((fact, reference.get(fact, ""), here.get(fact, "")) for fact in differing)
        differences = [
            {"kind": fact.kind, "name": fact.name, "reference": there, "here": value}
            for fact, there, value in pairs
            if fact.matters and there != value
        ]
        parts.append({"reports": [labels[number] for number in group], "differences": differences})
    folded = []
    for fact in (fact for fact in differing if not fact.matters):
        spread: dict[str, list[str]] = {}  # which reports have which value
        for report, label in zip(reports, labels):
            spread.setdefault(report.get(fact, ""), []).append(label)
        most = sorted(spread.items(), key=lambda item: len(item[1]), reverse=True)
        which = [{"value": value, "reports": names} for value, names in most]
        folded.append({"kind": fact.kind, "name": fact.name, "values": which})
    return {"reports": list(labels), "groups": parts, "folded": folded}


def write(found: Mapping[str, Any], page: Page) -> None:
    """Write a comparison."""
    first, *others = found["groups"]
    total, alike = len(found["reports"]), len(first["reports"])
    if not others:
        summary = "alike in what matters"
    elif alike == 1:
        summary = "they differ"
    else:
        summary = f"{alike} are alike, the others ({total - alike}) differ from them"
    page.add(f"{total} reports: {summary}", style="yellow" if others else "green")
    for group in others:
        names = (page.listed(side["reports"], _MOST) for side in (first, group))
        page.blank()
        page.add(f"{' -> '.join(names)}: {counted(len(group['differences']), 'differences')}")
        for change in group["differences"]:
            page.add(_difference(change), 2, lead=f"{change['kind']:<{_WIDTH}}", hanging=_WIDTH)
    folded = found["folded"]
    if folded:
        page.blank()
    if folded and not page.verbose:
        page.add(f"{counted(len(folded), 'minor differences')} (--verbose)")
    elif folded:
        page.add("minor differences:")
        for entry in folded:
            page.add(entry["name"], 2, lead=f"{entry['kind']:<{_WIDTH}}", hanging=_WIDTH)
            for part in entry["values"]:
                where = page.listed(part["reports"])
                page.add(f"{where}: {part['value'] or _ABSENT}", 4 + _WIDTH)


def _difference(difference: Mapping[str, str]) -> str:
    kind, name, there, here = (difference[key] for key in ("kind", "name", "reference", "here"))
    if kind == "finding":
        return f"{'only there' if here else 'not there'}: {name}"
    if kind in ("package", "conda", "torch"):
        versions = [value.partition(", ")[0] for value in (there, here)]
        if versions[0] != versions[1]:  # else what differs is the build, or the source
            there, here = versions
    return f"{f'{name}: ' if name else ''}{there or _ABSENT} -> {here or _ABSENT}"
