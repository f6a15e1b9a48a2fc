"""``cannot open shared object file``, versions that are not found, modules that are none.

Source: glibc, ``elf/dl-load.c`` and ``elf/dl-version.c``; CPython, ``Python/importdl.c``; the
reports linked.
"""

from __future__ import annotations

import os
import re
import shlex

from cudaguard.core.known_errors import KnownError
from cudaguard.system.name_owners import cuda_of, requirement_of, wheel_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

_NOT_FOUND = ": cannot open shared object file"
_LIBRARY = r"((?:lib|ld-)[\w.+-]{1,80}\.so[\d.]{0,20})" + _NOT_FOUND
_TORCHS = re.compile(r"lib(?:c10|torch|torch_cpu|torch_python|shm|torch_global_deps)\.so")
_TORCHS_CUDA = re.compile(r"lib(?:c10|torch)_(?:cuda|hip|xpu)\w*\.so")
_DRIVERS = re.compile(r"lib(?:cuda|nvidia-ml|nvcuvid|nvidia-encode)\.so")
# Libraries of the system: how each name begins, and the package of Debian and Ubuntu.
_SYSTEM = {
    "libGL.so": "libgl1", "libglib-2.0.so": "libglib2.0-0", "libgthread-2.0.so": "libglib2.0-0",
    "libSM.so": "libsm6", "libXext.so": "libxext6", "libXrender.so": "libxrender1",
    "libEGL.so": "libegl1", "libOpenGL.so": "libopengl0", "libgomp.so": "libgomp1",
    "libstdc++.so": "libstdc++6", "libsndfile.so": "libsndfile1", "libmpi.so": "libopenmpi3",
    "libnuma.so": "libnuma1", "libibverbs.so": "libibverbs1", "libsox.so": "libsox3",
    "libavcodec.so": "ffmpeg", "libavutil.so": "ffmpeg", "libavformat.so": "ffmpeg",
    "libavfilter.so": "ffmpeg", "libavdevice.so": "ffmpeg", "libswscale.so": "ffmpeg",
    "libaio.so": "libaio1", "libtbb.so": "libtbb12", "libz.so": "zlib1g",
}  # fmt: skip


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
    examples=(
        ("ImportError: libc10.so: cannot open shared object file: No such file or directory"),
        ("ImportError: libtorch_cpu.so: cannot open shared object file: No such file or directory"),
    ),
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
    examples=(
        ("ImportError: libc10_cuda.so: cannot open shared object file: No such file or directory"),
        (
            "ImportError: libtorch_cuda.so: cannot open shared object file: No such file or "
            "directory"
        ),
    ),
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
    any_order=True,
    examples=(
        (
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or "
            "directory"
        ),
        ("OSError: libcublas.so.13: cannot open shared object file: No such file or directory"),
        ("ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory"),
    ),
)


# --- others -------------------------------------------------------------------------------------


def _of_others(match: re.Match[str]) -> Finding | None:
    library = match[1]
    ours = (_TORCHS, _TORCHS_CUDA, _DRIVERS)
    if any(one.match(library) for one in ours) or wheel_of(library):
        return None
    start = library[: library.index(".so") + 3]
    package = _SYSTEM.get(start, "")
    if start.startswith("libpython"):
        return OTHER_PYTHON_LIBRARY.with_words(library)
    if package:
        wanted = f"the FFmpeg that has {library}" if package == "ffmpeg" else "it"
        return MISSING.with_words(
            library, f"install {wanted} (Debian, Ubuntu: apt-get install {package})"
        )
    return MISSING.with_words(
        library, "install the package that has it (apt-file search, conda search), or a build of "
        "the program that brings it"
    )  # fmt: skip


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
    any_order=True,
    examples=(
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
        ("OSError: libsndfile.so.1: cannot open shared object file: No such file or directory"),
    ),
)
OTHER_PYTHON_LIBRARY = KnownError(
    "CG703",
    "an extension needs the library of another Python",
    ("libpython",),
    r"(libpython\d[\w.]{0,20}\.so[\d.]{0,8})" + _NOT_FOUND,
    "The extension needs {0}: it was built for another release of Python, or for one with a shared "
    "library.",
    "build it again with this interpreter: python -m pip install --no-cache-dir --force-reinstall "
    "--no-deps PACKAGE",
    nouns=("a library of Python",),
    command="cudaguard check-extension FILE",
    any_order=True,
    examples=(
        (
            "ImportError: libpython3.8.so.1.0: cannot open shared object file: No such file "
            "or directory"
        ),
    ),
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
    examples=(
        (
            "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' "
            "not found (required by libtorch_cpu.so)"
        ),
        "ImportError: /lib64/libstdc++.so.6: version `CXXABI_1.3.15' not found",
    ),
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
    any_order=True,
    examples=(
        (
            "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found "
            "(required by libfoo.so)"
        ),
    ),
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
    any_order=True,
    examples=(
        "ImportError: dynamic module does not define module export function (PyInit_ops)",
        "dynamic module does not define module export function (PyModExport_ops or PyInit_ops)",
    ),
)
STATIC_TLS = KnownError(
    "CG821",
    "the dynamic loader had no room for thread-local variables",
    ("in static TLS block", "object with static TLS"),
    r"(?:(?<![^\s'\"])([^\s:'\"]{1,400}): )?cannot (?:allocate memory in static TLS block|load any "
    r"more object with static TLS)",
    "The loader has no room left for the thread-local variables of {0}, which must be loaded "
    "early.",
    "import what needs it first, before torch, TensorFlow and other large libraries; or set "
    "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 before Python starts (glibc 2.32 and "
    "later)",
    command="export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384",
    links=("https://github.com/opencv/opencv/issues/14884",),
    nouns=("a library",),
    words=lambda match: (
        "a library" if match[1] in (None, "dlopen") else match[1].rpartition("/")[2],
    ),
    examples=(
        (
            "ImportError: /usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in "
            "static TLS block"
        ),
        "dlopen: cannot load any more object with static TLS",
    ),
)

KNOWN = (
    TORCH_FIRST, TORCH_FOR_CUDA, MISSING_CUDA, MISSING, OTHER_PYTHON_LIBRARY, OLD_STDCXX,
    OLD_GLIBC, NO_MODULE, STATIC_TLS,
)  # fmt: skip
