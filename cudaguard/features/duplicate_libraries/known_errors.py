"""What is said where two copies of a library, or parts of two releases, meet; what it means."""

from __future__ import annotations

from cudaguard.core.known_errors import LIKELY, Explainer, KnownError
from cudaguard.features.duplicate_libraries.findings import ANOTHER_FILE

_ONE_CUDNN = (
    "keep only the copy of cuDNN that this package pins; others may come from a second "
    "nvidia-cudnn-* wheel, LD_LIBRARY_PATH or conda"
)

KNOWN = (
    KnownError(
        "CG730",
        "cuDNN is of another release than a package was built for",
        (
            "Loaded runtime CuDNN library",
            "Found cuDNN version",
            "cuDNN version mismatch",
            "cuDNN version incompatibility",
        ),
        r"Loaded runtime CuDNN library: ([\d.]*\d) but source was compiled with: ([\d.]*\d)|"
        r"Found cuDNN version (\d+), but JAX was built against version (\d+)|"
        r"cuDNN version mismatch: PyTorch was compiled against (\d+) but linked against (\d+)|"
        r"cuDNN version incompatibility: PyTorch was compiled\s+against \(([\d, ]+)\) but found "
        r"runtime version \(([\d, ]+)\)",
        "Another cuDNN was loaded ({0}) than the one that this package was built for ({1}): the "
        "first that is loaded is used by all.",
        f"{_ONE_CUDNN}; if two packages pin different ones, import the one with the newer pin "
        "first (with JAX, call jax.devices() then)",
        command="pip list | grep -i cudnn; cudaguard doctor --only CG903",
        links=(
            "https://github.com/jax-ml/jax/issues/15268",
            "https://github.com/jax-ml/jax/issues/19004",
        ),
        nouns=("an older one", "a newer one"),
        leads=True,
        words=lambda match: _two_versions(match.groups()),
    ),
    KnownError(
        "CG731",
        "parts of two releases of cuDNN meet",
        (
            "CUDNN_STATUS_SUBLIBRARY",
            "libcudnn",
            "CUDNN_STATUS_VERSION_MISMATCH",
            "Cannot load symbol cudnn",
        ),
        r"CUDNN_STATUS_SUBLIBRARY_(?:VERSION_MISMATCH|LOADING_FAILED)|"
        r"CUDNN_STATUS_VERSION_MISMATCH|"
        r"Could not load library libcudnn_\w{1,40}\.so\.\d(?:\. Error: "
        r"\S{0,200}libcudnn[^\n]{0,300})?|"
        r"Unable to load any of \{libcudnn_[^}\n]{1,300}\}|Cannot load symbol cudnn\w{1,60}",
        "cuDNN consists of several libraries, which must be of one release: one of them is "
        "probably missing, or comes from another copy.",
        f"{_ONE_CUDNN}; then install it again, for CUDA 12: pip install --force-reinstall "
        "--no-deps nvidia-cudnn-cu12==RELEASE",
        command="pip list | grep -i cudnn; cudaguard doctor --only CG903",
        links=(
            "https://github.com/pytorch/pytorch/issues/119989",
            "https://github.com/pytorch/pytorch/issues/188892",
        ),
        leads=True,
    ),
    KnownError(
        "CG732",
        "two OpenMP runtimes are in the process",
        ("OMP: Error #15",),
        r"OMP: Error #15: Initializing (\S{1,80}), but found (\S{1,80}) already initialized",
        "Two OpenMP runtimes of Intel or LLVM are in one process: {0} came when {1} was there.",
        "install the packages from one source (all from conda, or all from pip), so that they "
        "share one; KMP_DUPLICATE_LIB_OK=TRUE only hides it, and may give wrong results",
        command="cudaguard trace SCRIPT",
        links=("https://github.com/pytorch/pytorch/issues/44282",),
        nouns=("one", "another"),
    ),
    KnownError(
        "CG733",
        "an OpenMP runtime could not start",
        ("OMP: Error #179",),
        r"OMP: Error #179",
        "An OpenMP runtime could not make its locks, probably because a second one is in the "
        "process.",
        "install the packages from one source, or import the other one first (cudaguard bisect "
        "finds the order)",
        command="cudaguard bisect SCRIPT",
        links=("https://github.com/isl-org/Open3D/issues/6757",),
        certainty=LIKELY,
    ),
    KnownError(
        "CG734",
        "two copies of a protobuf message are registered",
        ("libprotobuf ERROR", "File already exists in database", "duplicate file name"),
        r"File already exists in database: (\S{1,200})|duplicate file name \(?([^\s)]{1,200})",
        "The same protobuf file ({0}) was registered twice with one copy of protobuf, probably by "
        "two packages.",
        "import first what has its own protobuf (tensorflow before torchvision), or update both: "
        "newer releases mostly keep theirs to themselves",
        command="cudaguard bisect SCRIPT",
        links=("https://github.com/tensorflow/tensorflow/issues/48797",),
        nouns=("a file",),
        words=lambda match: (match[1] or match[2],),
    ),
    KnownError(
        "CG736",
        "two copies of USD are in the process",
        ("already has an associated C++ type",),
        r"TfType \w{1,120} already has an associated C\+\+ type",
        "Two copies of USD (pxr) are in one process, such as usd-core from pip beside Omniverse's.",
        "uninstall those from pip where Omniverse or Isaac Sim has its own: pip uninstall -y "
        "usd-core usd-exchange",
        command="pip uninstall -y usd-core usd-exchange",
        links=("https://github.com/isaac-sim/IsaacLab/issues/5025",),
    ),
    KnownError(
        ANOTHER_FILE.id,
        ANOTHER_FILE.title,
        ("was loaded from a system path",),
        r"CUDA runtime library [`'](\S{1,80})[`'] was loaded from a system path",
        "{0} was loaded from a folder of the system, and not the copy in the package.",
        "remove CUDA's folders from LD_LIBRARY_PATH (unset LD_LIBRARY_PATH) and start again",
        command="unset LD_LIBRARY_PATH",
        links=("https://github.com/JuliaGPU/CUDA.jl/issues/2530",),
        nouns=("A library of CUDA",),
    ),
)


def _two_versions(groups: tuple[str | None, ...]) -> tuple[str, str]:
    """Return what was loaded, and what was wanted: torch names them the other way round."""
    first = next(at for at, group in enumerate(groups) if group)
    one, other = groups[first] or "", groups[first + 1] or ""
    one, other = (".".join(text.replace(",", " ").split()) for text in (one, other))
    return (one, other) if first < 4 else (other, one)


EXPLAINER = Explainer(KNOWN)
