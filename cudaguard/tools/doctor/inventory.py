"""What is installed here, for ``--bundle``: system, Python, GPUs, driver, torch, tools, packages.

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
import subprocess
import sys
from glob import glob
from typing import NamedTuple

from cudaguard.core.checks import OK as FINE
from cudaguard.core.checks import SKIPPED
from cudaguard.files import LARGEST, read_bytes, read_start
from cudaguard.files.text import printable_data
from cudaguard.system.child import cores
from cudaguard.system.machine import kinds_of_machine, library_file, look_at_driver
from cudaguard.system.packages import documents, key_of
from cudaguard.system.shareable import variables
from cudaguard.system.torch_build import folder_of
from cudaguard.tools.common import FOUND, OK, SCHEMA, UsageError, json_text, show
from cudaguard.tools.layout import Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from cudaguard.system.packages import Distribution, Site

    Package = dict[str, str]
    Values = Mapping["Fact", str]

_TIME = 20.0  # seconds; compilers behind wrappers and network file systems start slowly
_LINES = 1 << 16  # bytes of a file of which the beginning tells
# Those of the system that count where a package has none of its own.
_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudnn.so.9", "libcudnn.so.8",
              "libnccl.so.2", "libnvinfer.so.10", "libstdc++.so.6")  # fmt: skip
# What a binary may need, and a program dies of SIGILL without; x86-64's, then ARM's.
_VECTOR = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"),
    *("asimd", "asimddp", "sve", "sve2", "bf16", "i8mm"),
)
_NAMED = {"git_version": "commit"}
_TORCH_SAYS = re.compile(
    r"^(cuda|hip|xpu|debug|git_version)\b[^=\n]*=\s*['\"]?([^'\"\n#]+)", re.MULTILINE
)
_TAG = re.compile(r"^Tag:\s*(\S+)\s*$", re.MULTILINE)
# The packages that matter where CUDA libraries meet, in the form of PEP 503: all is told of these.
# Conda's names are among them.
_FIELD = frozenset(
    (
        # torch and what is compiled against it
        *("torch", "pytorch", "pytorch-cuda", "pytorch-gpu", "libtorch", "torchvision"),
        *("torchaudio", "torchcodec", "torchtext", "torchao", "torch-tensorrt", "torch-geometric"),
        *("pytorch-triton", "triton", "xformers", "flash-attn", "apex", "transformer-engine"),
        *("deepspeed", "bitsandbytes", "vllm", "sglang", "pytorch3d", "nvdiffrast", "kaolin"),
        *("gsplat", "tinycudann", "pyg-lib", "dgl", "mmcv", "detectron2", "torch-scatter"),
        *("torch-sparse", "torch-cluster", "torch-spline-conv", "mamba-ssm", "causal-conv1d"),
        # that drive it
        *("lightning", "pytorch-lightning", "accelerate", "transformers", "peft", "diffusers"),
        *("unsloth", "horovod", "ray", "mpi4py"),
        # arrays and compilers
        *("numpy", "scipy", "pandas", "pyarrow", "numba", "numba-cuda", "llvmlite", "pycuda"),
        *("warp-lang", "cuda-python", "cuda-bindings", "cuda-core", "cuda-pathfinder"),
        *("cuda-toolkit", "cudatoolkit", "isaacsim", "isaaclab", "isaacgym"),
        # other frameworks
        *("tensorflow", "tf-nightly", "keras", "flax", "paddlepaddle-gpu", "paddlepaddle"),
        *("ctranslate2", "faster-whisper", "llama-cpp-python", "mxnet"),
        # data and pictures
        *("decord", "eva-decord", "decord2", "av", "imageio-ffmpeg", "pillow", "open3d"),
        *("pymeshlab", "faiss", "cudf", "cuml", "cugraph", "rmm", "pylibraft", "dask-cuda"),
        # what builds and installs
        *("setuptools", "ninja", "cmake", "pybind11", "nanobind", "wrapt", "cudaguard"),
        # conda's own: the runtimes that others load
        *("libgcc", "libgcc-ng", "libstdcxx", "libstdcxx-ng", "libgomp", "llvm-openmp", "openmp"),
        *("mkl", "libblas", "libopenblas", "cudnn", "nccl", "gcc-linux-64", "gxx-linux-64"),
    )
)
_BEGINNINGS = (
    *("nvidia-", "cupy", "onnxruntime", "tensorrt", "opencv", "jax", "tensorflow-", "spconv"),
    *("faiss-", "cuda-", "libcu", "libnv", "libnpp", "cudf-", "cuml-", "rmm-", "pylibraft-"),
    *("flash-attn-", "flashinfer", "intel-openmp", "libtorch", "transformer-engine-"),
)


def inventory(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment.

    Args:
        site: The environment.
    """
    of_field, others = packages(site.distributions)
    others.update((os.path.basename(path), "unreadable") for path, _ in site.unreadable)
    of_conda, other_conda = conda_packages()
    return {
        "system": system(),
        "python": python(),
        "gpu": gpus(),
        "torch": torch(site.version("torch") or ""),
        "tools": tools(site.environ),
        "libraries": libraries(),
        "variables": variables(site.environ),
        "packages": of_field,
        "other_packages": others,
        "conda": of_conda,
        "other_conda": other_conda,
    }


def system(root: str = "/") -> dict[str, str | int]:
    """Return what is below Python.

    Args:
        root: Where the file system begins.
    """
    cpu = _text(root, "proc/cpuinfo")
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', _text(root, "etc/os-release"), re.MULTILINE)
    model = re.search(r"^model name\s*:[ \t]*(.+)$", cpu, re.MULTILINE)
    has = re.search(r"^(?:flags|Features)\s*:[ \t]*(.+)$", cpu, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", _text(root, "proc/meminfo"), re.MULTILINE)
    release = platform.uname()
    return {
        "os": name[1] if name else release.system,
        "kernel": release.release,
        "machine": release.machine,
        "libc": _libc(),
        "kind": ", ".join(kinds_of_machine(root)),
        "cpu": model[1].strip() if model else "",
        "instructions": " ".join(filter(has[1].split().__contains__, _VECTOR)) if has else "",
        "cpus": cores(),
        "memory_bytes": int(memory[1]) * 1024 if memory else 0,
    }


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # musl
        return " ".join(platform.libc_ver()).strip()


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
    """Return the driver, and the GPUs that its kernel module lists.

    Args:
        root: Where the file system begins.
    """
    driver = look_at_driver(root)
    models = [
        match[1].strip()
        for file in sorted(glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
        for match in [re.search(r"^Model:\s*(.+)$", _text("", file), re.MULTILINE)]
        if match
    ]
    return {
        "driver": driver.kernel,
        "library": driver.library,
        "library_version": driver.library_version,
        "models": models,
        "pci_devices": driver.devices,
    }


def torch(version: str) -> dict[str, str]:
    """Return how torch was built, by its own file; nothing where there is none.

    Args:
        version: Of the distribution.
    """
    folder = folder_of("torch")
    if not version and not folder:
        return {}
    said: list[tuple[str, str]] = _TORCH_SAYS.findall(_text(folder, "version.py"))
    told = {_NAMED.get(k, k): v.strip() for k, v in said if v.strip() != "None"}
    return {"version": version, "folder": folder, **told}


def tools(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the tools that build extensions, and where they are."""
    import shutil

    words = (environ.get("CXX") or "c++").split()
    compiler = shutil.which(words[0]) if words else ""
    nvcc = shutil.which("nvcc")
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        nvcc = os.path.join(home, "bin", "nvcc")
    scripts = os.path.dirname(sys.executable)  # of an environment that may not be active
    return {
        "gcc": f"{gcc_version(compiler) or 'other'} ({compiler})" if compiler else "",
        "nvcc": f"{cuda_version(nvcc) or 'unknown'} ({nvcc})" if nvcc else "",
        "ninja": shutil.which("ninja") or shutil.which("ninja", path=scripts) or "",
    }


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_TIME, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def cuda_version(nvcc: str) -> str:
    """Return the CUDA version of an nvcc, as in ``13.0``; empty if unknown."""
    match = re.search(r"release (\d+\.\d+)", _said(nvcc, "--version"))
    return match[1] if match else ""


def gcc_version(compiler: str) -> str:
    """Return the version of a compiler that is GCC, as in ``12.2.0``; empty for any other."""
    if "Free Software Foundation" not in _said(compiler, "--version"):
        return ""
    return _said(compiler, "-dumpfullversion", "-dumpversion").strip()


def libraries() -> dict[str, str]:
    """Return what the loader would take from the system for CUDA's libraries, links resolved."""
    found = {name: library_file(name) for name in _LIBRARIES}
    return {name: os.path.realpath(file) for name, file in found.items() if file}


def packages(dists: Iterable[Distribution]) -> tuple[list[Package], dict[str, str]]:
    """Return the packages of the field with all that is known, and the versions of the others."""
    found, others = [], {}
    for dist in sorted(dists, key=lambda dist: dist.key):
        if is_of_field(dist.key):
            found.append({"name": dist.name, "version": dist.version, **_origin(dist)})
        else:
            others[dist.name] = dist.version
    return found, others


def _origin(dist: Distribution) -> dict[str, str]:
    tag = _TAG.search(_metadata(dist.metadata, "WHEEL"))
    direct = _metadata(dist.metadata, "direct_url.json")
    installer = _metadata(dist.metadata, "INSTALLER").strip().partition("\n")[0]
    return {"build": tag[1] if tag else "", "source": _direct(direct) or installer}


def _direct(text: str) -> str:
    """Return where a package came from that no index had, in a few words; else nothing."""
    try:
        said = json.loads(text)
        url = str(said["url"])
        version = said.get("vcs_info")
        if isinstance(version, dict):
            return f"{version.get('vcs')}+{url}@{version.get('commit_id')}"
        folder = said.get("dir_info")
        is_editable = isinstance(folder, dict) and folder.get("editable") is True
        return f"editable {url}" if is_editable else url
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # no such file, or nothing of use in it


def conda_packages(prefix: str = sys.prefix) -> tuple[list[Package], dict[str, str]]:
    """Return the same of conda's packages, Python's and others; nothing outside of conda.

    Args:
        prefix: The folder of the environment.
    """
    found, others = [], {}
    for name, version, build, document in documents(prefix):
        if is_of_field(name):
            channel = _channel(document)
            found.append({"name": name, "version": version, "build": build, "source": channel})
        else:
            others[name] = version
    return found, others


def _channel(path: str) -> str:
    """Return the channel of a package, without the folder of its platform."""
    try:
        said = json.loads(read_bytes(path, LARGEST))
        channel = str(said.get("channel") or said.get("schannel") or "conda")
    except (OSError, ValueError, AttributeError, RecursionError):
        return "conda"
    return re.sub(r"/(?:noarch|linux-\w+|osx-\w+|win-\w+)/?$", "", channel)


def is_of_field(name: str) -> bool:
    """Return True if a package of pip's or conda's is one of the field's."""
    key = key_of(name)
    return key in _FIELD or key.startswith(_BEGINNINGS)


def _text(root: str, path: str) -> str:
    try:
        return read_start(os.path.join(root, path), _LINES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _metadata(folder: str, name: str) -> str:
    try:
        return read_bytes(os.path.join(folder, name), LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


# --- ``doctor --diff``: what differs between the bundles of several hosts, and what of it matters.
# Hosts that are alike in what matters form a group; each group is compared to the largest.

# In the order in which they are told.
KINDS = ("check", "finding", "driver", "GPUs", "torch", "library", "system", "Python", "tool",
         "variable", "package", "conda", "cudaguard")  # fmt: skip
_SYSTEM = ("os", "machine", "libc", "kind", "cpu", "instructions")
_PYTHON = ("version", "implementation", "threads")
_TORCH = ("cuda", "hip", "xpu", "commit", "debug")
# Paths of an account, and what differs from one process of a job to the next.
_OF_ACCOUNT = ("PATH", "VIRTUAL_ENV", "CONDA_", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
               "TORCHELASTIC_")  # fmt: skip
_BEFORE_HOST = "doctor-"  # as in doctor-%h.md
_FENCE = "```"
_MOST = 4  # names of reports in a line
_WIDTH = 10
ABSENT = "absent"
_PRONOUN = ("it", "them")
_WRITE = "cudaguard doctor --bundle FILE.md"


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
    """Return the facts of the report in a bundle.

    Raises:
        UsageError: It cannot be read, or is none.
    """
    try:
        document = json.loads(_last_block(read_bytes(path, LARGEST).decode("utf-8")))
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror or error}."
        raise UsageError(told, command=f"ls -l {shlex.quote(path)}") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("tool") != "doctor":
        raise UsageError(f"{path} is no bundle of doctor. Write one there.", command=_WRITE)
    if document.get("schema") != SCHEMA:
        told = f"{path} was written by another release of cudaguard. Write it again."
        raise UsageError(told, command=_WRITE)
    if document.get("inventory") is None:
        told = f"{path} has no inventory: what is installed could not be read there."
        raise UsageError(told, command=_WRITE)
    try:
        return facts_of(document)
    except (AttributeError, KeyError, TypeError):  # it may have been edited
        raise UsageError(f"{path} is damaged. Write it again.", command=_WRITE) from None


def _last_block(bundle: str) -> str:
    """Return the block of JSON that a bundle ends with; its fence is longer than any within."""
    lines = bundle.rstrip().split("\n")
    fence = lines.pop()
    if not fence.startswith(_FENCE) or f"{fence}json" not in lines:
        return ""
    last = max(number for number, line in enumerate(lines) if line == f"{fence}json")
    return "\n".join(lines[last + 1 :])


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file, which no other has: that of the host, if it has one."""
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if all(name.startswith(_BEFORE_HOST) for name in names):
        names = [name[len(_BEFORE_HOST) :] or name for name in names]
    return names if len(set(names)) == len(names) else list(paths)


class Fact(NamedTuple):
    """What is compared.

    Args:
        kind: One of `KINDS`.
        name: Of what.
        matters: False for what seldom makes a program work on one host and crash on another.
    """

    kind: str
    name: str
    matters: bool


def facts_of(report: Mapping[str, Any]) -> dict[Fact, str]:
    """Return the facts of a report with their values, as texts."""
    return {fact: str(value) for fact, value in _facts(report)}


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[Fact, object]]:
    yield from _checks(report)
    found = report["inventory"]
    gpu = found["gpu"]
    yield Fact("driver", "kernel module", True), gpu["driver"]
    yield Fact("driver", "libcuda.so.1", True), gpu["library_version"]
    yield Fact("driver", "file", False), gpu["library"]
    yield Fact("GPUs", "", True), ", ".join(gpus_told(gpu))
    for kind, key, named in (
        ("torch", "torch", _TORCH),
        ("system", "system", _SYSTEM),
        ("Python", "python", _PYTHON),
    ):
        for name, value in found[key].items():
            if (kind, name) != ("torch", "version"):  # told with its build, below
                yield Fact(kind, name, name in named), value
    for kind, key in (("library", "libraries"), ("tool", "tools"), ("variable", "variables")):
        for name, value in found[key].items():
            yield Fact(kind, name, kind != "variable" or not name.startswith(_OF_ACCOUNT)), value
    for kind, key, others in (
        ("package", "packages", "other_packages"),
        ("conda", "conda", "other_conda"),
    ):
        for one in found[key]:
            parts = (one["version"], one["build"], one["source"])
            name = "torch" if one["name"] == "torch" else kind  # of which all is told together
            yield Fact(name, str(one["name"]), True), ", ".join(filter(None, parts))
        for name, value in found[others].items():
            yield Fact(kind, name, False), value
    yield Fact("cudaguard", "version", True), report["version"]


def _checks(report: Mapping[str, Any]) -> Iterator[tuple[Fact, object]]:
    for check in report["checks"]:
        title, status = f"{check['id']} {check['title']}", check["status"]
        # What is skipped here and fine there has nothing to look at: other facts say why.
        yield Fact("check", title, True), FINE if status == SKIPPED else status
        yield Fact("check", f"{title}, looked at", False), check["reason"]
        for finding in check["findings"]:
            matters = finding["severity"] != "info"
            yield Fact("finding", f"{check['id']}: {finding['what']}", matters), "found"


def gpus_told(gpu: Mapping[str, Any]) -> list[str]:
    """Return the GPUs, those of a kind together, as in ``8 x NVIDIA H100 80GB HBM3``."""
    models: list[str] = gpu["models"]
    if not models:
        count = gpu["pci_devices"]
        return [f"{count} on the PCI bus, models unknown" if count else "none"]
    return [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)]


def compare(values: Sequence[Values], labels: Sequence[str]) -> dict[str, Any]:
    """Return how reports differ, as plain data.

    Args:
        values: The facts of each report, as `facts_of` returns them.
        labels: Their names.

    Returns:
        ``reports``; ``groups``, the largest first, to which the others are compared;
        ``folded``, what differs and seldom matters.
    """
    known = sorted(
        {fact for one in values for fact in one},
        key=lambda fact: (KINDS.index(fact.kind), fact.name),
    )
    differing = [fact for fact in known if len({one.get(fact, "") for one in values}) > 1]
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, one in enumerate(values):
        told = tuple(one.get(fact, "") for fact in differing if fact.matters)
        alike.setdefault(told, []).append(number)
    groups = sorted(alike.values(), key=len, reverse=True)  # of equal ones the first
    reference = values[groups[0][0]]
    return {
        "reports": list(labels),
        "groups": [
            {
                "reports": [labels[number] for number in group],
                "differences": _differences(differing, reference, values[group[0]]),
            }
            for group in groups
        ],
        "folded": [
            {"kind": fact.kind, "name": fact.name, "values": _spread(fact, values, labels)}
            for fact in differing
            if not fact.matters
        ],
    }


def _differences(
    differing: Sequence[Fact], reference: Values, here: Values
) -> list[dict[str, str]]:
    return [
        {"kind": fact.kind, "name": fact.name, "reference": there, "here": own}
        for fact in differing
        if fact.matters
        for there, own in [(reference.get(fact, ""), here.get(fact, ""))]
        if there != own
    ]


def _spread(fact: Fact, values: Sequence[Values], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return which reports have which value, the most frequent one first."""
    found: dict[str, list[str]] = {}
    for one, label in zip(values, labels):
        found.setdefault(one.get(fact, ""), []).append(label)
    spread = sorted(found.items(), key=lambda item: len(item[1]), reverse=True)
    return [{"value": value, "reports": names} for value, names in spread]


def write(found: Mapping[str, Any], page: Page) -> None:
    """Write a comparison.

    Args:
        found: As `compare` returns it.
        page: Where to; a verbose one gets what seldom matters too.
    """
    first, *others = found["groups"]
    page.add(_summary(found, first, others), style="yellow" if others else "green")
    for group in others:
        count = len(group["differences"])
        told = f"{count} difference{'s' * (count != 1)}"
        page.blank()
        page.add(f"{_names(first, page)} -> {_names(group, page)}: {told}")
        for one in group["differences"]:
            page.add(_difference(one), 2, lead=f"{one['kind']:<{_WIDTH}}", hanging=_WIDTH)
    folded = found["folded"]
    if not folded:
        return
    page.blank()
    if page.verbose:
        page.add("differences that seldom matter:")
        _write_folded(folded, page)
    else:
        told = "difference seldom matters" if len(folded) == 1 else "differences seldom matter"
        page.add(f"{len(folded)} more {told}: --verbose lists {_PRONOUN[len(folded) > 1]}")


def _summary(found: Mapping[str, Any], first: Mapping[str, Any], others: Sequence[Any]) -> str:
    total, alike = len(found["reports"]), len(first["reports"])
    if not others:
        return f"{total} reports: alike in what matters"
    if total == 2:
        return "2 reports: they differ"
    if alike == 1:
        return f"{total} reports: no two are alike"
    return f"{total} reports: {alike} are alike, the others ({total - alike}) differ from them"


def _names(group: Mapping[str, Any], page: Page) -> str:
    return page.listed(group["reports"], _MOST)


def _difference(one: Mapping[str, str]) -> str:
    kind, name, there, here = (one[key] for key in ("kind", "name", "reference", "here"))
    if kind == "finding":
        return f"{'only there' if here else 'not there'}: {name}"
    if kind in ("package", "conda", "torch"):
        there, here = _telling(there, here)
    subject = f"{name}: " if name else ""
    return f"{subject}{there or ABSENT} -> {here or ABSENT}"


def _telling(there: str, here: str) -> tuple[str, str]:
    """Return the versions alone where they differ, else all that is known of both."""
    versions = there.partition(", ")[0], here.partition(", ")[0]
    return versions if versions[0] != versions[1] else (there, here)


def _write_folded(folded: Sequence[Mapping[str, Any]], page: Page) -> None:
    for one in folded:
        page.add(one["name"], 2, lead=f"{one['kind']:<{_WIDTH}}", hanging=_WIDTH)
        for part in one["values"]:
            page.add(f"{_names(part, page)}: {part['value'] or ABSENT}", 4 + _WIDTH)
