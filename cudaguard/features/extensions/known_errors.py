"""All messages of this feature, and what the files of this environment add to them."""

from __future__ import annotations

import re
import shlex

from cudaguard.core.known_errors import LIKELY, Explainer, KnownError
from cudaguard.elf.process import mapped_files
from cudaguard.features.extensions import known_symbols
from cudaguard.features.extensions.findings import NO_ROOM
from cudaguard.files import os
from cudaguard.system.name_owners import (
    FFMPEG,
    cuda_of,
    debian_package_of,
    requirement_of,
    wheel_of,
)
from cudaguard.system.preload import CUDA_FOLDERS, installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

# --- ``cannot open shared object file``, versions that are not found, modules that are none -------
# Source: glibc, ``elf/dl-load.c`` and ``elf/dl-version.c``; CPython, ``Python/importdl.c``; the
# reports linked.

_NOT_FOUND = ": cannot open shared object file"
_LIBRARY = r"((?:lib|ld-)[\w.+-]{1,80}\.so[\d.]{0,20})" + _NOT_FOUND
_TORCHS = re.compile(r"lib(?:c10|torch|torch_cpu|torch_python|shm|torch_global_deps)\.so")
_TORCHS_CUDA = re.compile(r"lib(?:c10|torch)_(?:cuda|hip|xpu)\w*\.so")
_DRIVERS = re.compile(r"lib(?:cuda|nvidia-ml|nvcuvid|nvidia-encode)\.so")


# --- torch's own --------------------------------------------------------------------------------

TORCH_FIRST = KnownError(
    "CG867",
    "an extension was imported before torch",
    (_NOT_FOUND,),
    _LIBRARY,
    "The extension links {0}, which is in torch's own folder. torch was not imported before it, or "
    "is not installed.",
    "import torch first",
    unguarded="cudaguard.install() on the first line does that",
    links=("https://github.com/pytorch/extension-cpp/issues/50",),
    nouns=("a library of torch",),
    words=lambda match: (match[1],) if _TORCHS.match(match[1]) else None,
)
TORCH_FOR_CUDA = KnownError(
    "CG882",
    "an extension needs a torch with CUDA",
    (_NOT_FOUND,),
    _LIBRARY,
    "The extension links {0}: it was built for a torch with GPU support. The installed torch is a "
    "build for CPUs, or it is not imported yet.",
    "install a torch with CUDA if torch.version.cuda is None, or build the extension for CPUs; "
    "else import torch first",
    command='python -c "import torch; print(torch.__version__, torch.version.cuda)"',
    links=("https://github.com/pytorch/extension-cpp/issues/127",),
    nouns=("a library of torch for GPUs",),
    words=lambda match: (match[1],) if _TORCHS_CUDA.match(match[1]) else None,
)

# --- NVIDIA's -----------------------------------------------------------------------------------


def _of_nvidia(match: re.Match[str]) -> Finding | None:
    library = match[1]
    wheel = wheel_of(library)
    if not wheel:
        return None
    cuda = cuda_of(library)
    stem, _, number = library.partition(".so.")
    if cuda:
        why = f"what needs it was built for CUDA {cuda}"
    elif number and number[0] not in "01":
        why = f"what needs it was built for release {number.partition('.')[0]} of {stem}"
    else:
        why = "what needs it has no copy of its own"
    wanted = requirement_of(library)
    if not wanted:
        return MISSING_CUDA.with_words(library, why, "", "").replace(
            remedy="install a build for the CUDA that torch.version.cuda names: for this one there "
            "is no package",
            command="",
        )
    other = "" if cuda or "-cu12" not in wanted else " (-cu13 or -cu11 for another CUDA)"
    return MISSING_CUDA.with_words(library, why, shlex.quote(wanted), other)


MISSING_CUDA = KnownError(
    "CG868",
    "a library of CUDA is not found",
    (_NOT_FOUND,),
    _LIBRARY,
    "{0} is not found: {1}, and no folder that the loader searches has it.",
    "import torch first if it was built for that CUDA; else install the package that has it: "
    "{2}{3}; or install a build for the CUDA that torch.version.cuda names",
    command="pip install {2}",
    links=(
        "https://github.com/microsoft/onnxruntime/issues/21684",
        "https://github.com/NVIDIA/TransformerEngine/issues/1853",
    ),
    unguarded="under cudaguard.install() the loader finds what is installed as a wheel (rule "
    "CG046)",
    nouns=("A library of CUDA", "what needs it was built for another release", "nvidia-*", ""),
    tell=_of_nvidia,
)


# --- others -------------------------------------------------------------------------------------


def _of_others(match: re.Match[str]) -> Finding | None:
    library = match[1]
    ours = (_TORCHS, _TORCHS_CUDA, _DRIVERS)
    if any(one.match(library) for one in ours) or wheel_of(library):
        return None
    package = debian_package_of(library)
    remedy = (
        "install the package that has it (apt-file search, conda search), or a build of the "
        "program that includes it"
    )
    if library.startswith("libpython"):
        remedy = (
            "build what needs it again with this interpreter: python -m pip install "
            "--no-cache-dir --force-reinstall --no-deps PACKAGE"
        )
    elif package:
        wanted = f"the FFmpeg that has {library}" if package == FFMPEG else "it"
        remedy = f"install {wanted} (Debian, Ubuntu: apt-get install {package})"
    return MISSING.with_words(library, remedy)


MISSING = KnownError(
    "CG702",
    "a library is not found",
    (_NOT_FOUND,),
    _LIBRARY,
    "{0} is in no folder that the loader searches.",
    "{1}",
    command="cudaguard check-extension FILE",
    nouns=("A library", "install the package that has it"),
    tell=_of_others,
)

# --- versions -----------------------------------------------------------------------------------

_VERSION = (
    r"version [`'\u2018]({})_([\w.]{{1,20}})['\u2019] not found"
    r"(?: \(required by ([^)\s]{{1,300}})\))?"
)
OLD_STDCXX = KnownError(
    "CG870",
    "an older libstdc++ is used",
    ("GLIBCXX_", "CXXABI_"),
    _VERSION.format("GLIBCXX|CXXABI"),
    "{2} needs libstdc++ with {0}_{1}, and an older libstdc++ was found or loaded first.",
    "import the package with the newer libstdc++ first; in conda: conda install -c conda-forge "
    "libstdcxx-ng, and start without LD_LIBRARY_PATH; else install a build for this system",
    command="cudaguard doctor --only CG903",
    links=("https://github.com/pytorch/pytorch/issues/115138",),
    nouns=("a", "newer version", "A library"),
    words=lambda match: (match[1], match[2], os.path.basename(match[3] or "") or "A library"),
)
OLD_GLIBC = KnownError(
    "CG704",
    "the system's C library is too old",
    ("GLIBC_",),
    _VERSION.format("GLIBC"),
    "{2} was built on a newer system: it needs glibc {1}, and this system's is older.",
    "install a build for an older system (a manylinux wheel), or use a newer system or container",
    command="ldd --version",
    nouns=("", "of a later version", "A library"),
    words=lambda match: (match[1], match[2], os.path.basename(match[3] or "") or "A library"),
)

# --- modules that are none ----------------------------------------------------------------------

NO_MODULE = KnownError(
    "CG884",
    "a file is no extension module of that name",
    ("dynamic module does not define",),
    r"dynamic module does not define module export function "
    r"\((?:PyModExport_\w{1,200} or )?PyInit_(\w{1,200})\)",
    "The file was loaded, and it is not an extension module called {0}: it was renamed after "
    "it was built, built under another name (TORCH_EXTENSION_NAME, the name of the Extension "
    "in setup.py), or is a plain library.",
    "build it under the name that it is imported by; load a library of operators with "
    "torch.ops.load_library(path)",
    nouns=("by that name",),
    command="nm -D --defined-only FILE | grep PyInit_",
)
STATIC_TLS = KnownError(
    NO_ROOM.id,
    NO_ROOM.title,
    ("in static TLS block", "object with static TLS"),
    r"(?:(?<![^\s'\"])([^\s:'\"]{1,400}): )?cannot (?:allocate memory in static TLS block|load any "
    r"more object with static TLS)",
    "The loader has no room left for the thread-local variables of {0}, which must be loaded "
    "early.",
    NO_ROOM.remedy,
    command=NO_ROOM.command,
    links=("https://github.com/opencv/opencv/issues/14884",),
    nouns=("a library",),
    words=lambda match: (
        "a library" if match[1] in (None, "dlopen") else match[1].rpartition("/")[2],
    ),
)

OF_LIBRARIES = (
    TORCH_FIRST, TORCH_FOR_CUDA, MISSING_CUDA, MISSING, OLD_STDCXX, OLD_GLIBC,
    NO_MODULE, STATIC_TLS,
)  # fmt: skip

# --- Packages that must be of one release with torch, and say so in words of their own ------------

_NOT_LOADED = (
    "The compiled part of {} was not loaded, probably because it was built for another torch, or "
    "for CPUs"
)


def _of_operator(vision: str | None, attention: str | None, formers: str | None) -> tuple[str, str]:
    """Return what is wrong, and what to do first."""
    if attention:
        what = (
            "No operator of xformers takes these inputs: its compiled part was not loaded, or they "
            "are of a device, type or shape that it does not support"
        )
        return what, "read the reasons below the message; if xFormers was not built for CUDA, "
    return _NOT_LOADED.format(vision or formers or "the package"), ""


def _of_numpy(*, is_for_one: bool) -> tuple[str, str, str]:
    """Return for which NumPy an extension was built, what to install, and the command."""
    if is_for_one:
        return "NumPy 1", "NumPy 1: pip install 'numpy<2'", "pip install 'numpy<2'"
    return (
        "another release of NumPy",
        "the NumPy it was built for: pip install 'numpy<2' if that is NumPy 1",
        'python -c "import numpy; print(numpy.__version__, numpy.__file__)"',
    )


OF_PAIRS = (
    KnownError(
        "CG705",
        "a package was built for another torch",
        ("xFormers was built for", "compiled with different CUDA versions"),
        r"(xFormers) was built for:|PyTorch and (\w{1,60}) were compiled with different CUDA "
        r"versions",
        "{0} was built for another torch than the one that is installed.",
        "install the release of {0} that was built for this torch (its project lists the pairs): "
        "pip install --no-deps --force-reinstall, with the index of that torch and CUDA",
        command='python -c "import torch; print(torch.__version__, torch.version.cuda)"',
        links=(
            "https://github.com/facebookresearch/xformers/issues/971",
            "https://github.com/rusty1s/pytorch_scatter/issues/237",
        ),
        nouns=("The package",),
        words=lambda match: (match[1] or match[2],),
    ),
    KnownError(
        "CG706",
        "operators of a package are not registered",
        (
            "torchvision::nms",
            "xformers::",
            "No operator found for",
            "Couldn't load custom C++ ops",
        ),
        r"operator (torchvision)::nms does not exist|Couldn't load custom C\+\+ ops|"
        r"No operator found for [`'](memory_efficient_attention)|(xformers)::\w{1,60} is not",
        "{0}.",
        "{1}install the pair of releases that belong together (torchvision 0.x for torch 2.x: see "
        "its README), all from one index: pip install --force-reinstall --no-deps PACKAGE",
        command="pip list | grep -i torch",
        links=("https://github.com/pytorch/vision/issues/8461",),
        nouns=(_NOT_LOADED.format("a package"), ""),
        words=lambda match: _of_operator(*match.groups()),
    ),
    KnownError(
        "CG707",
        "TorchCodec was not loaded",
        ("Could not load libtorchcodec",),
        r"Could not load libtorchcodec",
        "TorchCodec tried its libraries for each release of FFmpeg, and none was loaded; the "
        "errors "
        "below say why each one was not.",
        "install FFmpeg with shared libraries if they name libavutil (conda install -c conda-forge "
        "ffmpeg); install the TorchCodec for this torch if they name a symbol of torch",
        command='python -c "import torch; print(torch.__version__)"; pip show torchcodec',
        links=("https://github.com/meta-pytorch/torchcodec/issues/1131",),
        certainty=LIKELY,
    ),
    KnownError(
        "CG708",
        "a CUDA build of a package is not found",
        ("CUDA Setup failed despite GPU being available", "bitsandbytes was compiled without GPU"),
        r"CUDA Setup failed despite (?:CUDA|GPU) being available|"
        r"bitsandbytes was compiled without GPU support",
        "bitsandbytes did not load a library for CUDA.",
        "update it (pip install -U bitsandbytes): newer releases take CUDA's libraries from torch; "
        "with torch imported first",
        command="python -m bitsandbytes",
        links=("https://github.com/bitsandbytes-foundation/bitsandbytes/issues/778",),
    ),
    KnownError(
        "CG709",
        "torch itself is incomplete",
        ("torch._C",),
        r"No module named ['\"]torch\._C['\"]|cannot import name '\w{1,60}' from 'torch\._C'",
        "Python finds a torch whose compiled part is missing or does not fit its other files: "
        "another folder named torch comes first, or torch is installed in part or for another "
        "Python.",
        "find the folder and remove it from the path; then install torch for this interpreter",
        command="python -c \"import importlib.util as u; print(u.find_spec('torch').origin)\"",
        links=("https://github.com/btx0424/OmniDrones/issues/53",),
    ),
    KnownError(
        "CG724",
        "torch is a build without CUDA",
        ("Torch not compiled with CUDA",),
        r"Torch not compiled with CUDA enabled",
        "The installed torch is a build without CUDA.",
        "install a CUDA build of torch (https://pytorch.org/get-started/locally); conda and pip "
        "may "
        "have put a second torch in the environment",
        command='python -c "import torch; print(torch.__version__, torch.__file__)"',
    ),
    KnownError(
        "CG710",
        "a TensorRT engine is of another release",
        ("incompatible version of", "Version tag does not match", "engine plan file"),
        r"engine plan file is (?:not compatible|generated on an incompatible device)|"
        r"Version tag does not match|incompatible version of TensorRT|"
        r"Serialization assertion .{0,80}failed\.?Version",
        "The TensorRT engine was built by another release of TensorRT, or for another GPU.",
        "build the engine again on this machine, with this release (trtexec --onnx=MODEL "
        "--saveEngine=FILE)",
        command='python -c "import tensorrt; print(tensorrt.__version__)"',
    ),
    KnownError(
        "CG711",
        "an extension was built for NumPy 1",
        ("compiled using NumPy 1.x", "numpy.core.multiarray failed", "numpy.dtype size changed"),
        r"A module that was compiled using NumPy 1\.x cannot be run in|"
        r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed(?:[^\n]{0,80}"
        r"Expected 96 from C header, got 88)?",
        "An extension was built for {0}.",
        "update the package that the traceback names, or install {1}",
        command="{2}",
        nouns=_of_numpy(is_for_one=False),
        # The size of a dtype in NumPy 1, and in NumPy 2.
        words=lambda match: _of_numpy(is_for_one="1.x" in match[0] or match[0].endswith("88")),
    ),
    KnownError(
        "CG712",
        "a library of Windows does not fit",
        ("DLL load failed while importing", "[WinError 1"),
        r"DLL load failed while importing (\w{1,80})|\[WinError 12[67]\][^\n]{0,120}Error loading "
        r"\"[^\"\n]{0,300}?([\w.-]{1,80}\.dll)\"",
        "{0} was not loaded: a DLL that it needs is missing, or another copy of it was loaded "
        "first. (cudaguard acts on Linux only.)",
        "keep one CUDA on PATH; import torch before the other package; install releases for the "
        "same minor version of CUDA",
        links=("https://github.com/cupy/cupy/issues/5736",),
        certainty=LIKELY,
        nouns=("An extension",),
        words=lambda match: (match[1] or match[2],),
    ),
    KnownError(
        "CG713",
        "NCCL was not loaded",
        ("ncclGetVersion",),
        r"name 'ncclGetVersion' is not defined|Failed to load NCCL library",
        "vLLM did not find libnccl.so.2, or could not load it.",
        "install the NCCL that torch pins, or name it: VLLM_NCCL_SO_PATH=/path/to/libnccl.so.2",
        command="pip list | grep -i nccl",
        links=("https://github.com/vllm-project/vllm/issues/4257",),
    ),
)

_OLDER = known_symbols.OLDER_COPY.id
_SONAME = re.compile(r"\blib[\w+-]{1,60}\.so(?:\.\d+)*")


def with_files(finding: Finding) -> Finding:
    """Return what a message means, with the files here that it is about."""
    sonames = _SONAME.findall(finding.what)
    if not sonames:
        return finding
    soname = sonames[-1]
    folders = (CUDA_FOLDERS, os.path.join("torch", "lib"))
    found = [file for folder in folders for file in installed(os.path.join(folder, soname))]
    mapped: list[str] = []
    if finding.id == _OLDER:
        stem = f"{soname.partition('.so')[0]}.so"
        mapped = sorted(file for file in mapped_files() if os.path.basename(file).startswith(stem))
        found = [file for file in found if os.path.realpath(file) not in mapped]
    elif found:  # then nothing is to be installed
        finding = finding.replace(
            remedy=f"load the installed {soname} by its path: import torch first if it uses this "
            "release, or have a rule open it (preload)",
            command="",
        )
    more = (*(f"in this process: {file}" for file in mapped), *(f"installed: {f}" for f in found))
    return finding.replace(evidence=(*finding.evidence, *more))


EXPLAINER = Explainer(
    (*known_symbols.KNOWN, *OF_LIBRARIES, *OF_PAIRS), with_files, (MISSING_CUDA.id, _OLDER)
)
