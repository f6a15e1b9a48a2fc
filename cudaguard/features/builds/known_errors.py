"""What is said where an extension is built, and what it means."""

from __future__ import annotations

from cudaguard.core.known_errors import Explainer, KnownError

KNOWN = (
    KnownError(
        "CG872",
        "ninja is not found",
        ("Ninja is required to load",),
        r"Ninja is required to load C\+\+ extensions",
        "ninja is not installed, or not on PATH, as with a virtual environment that is not active.",
        "activate the environment, or put its bin folder into PATH; pip install ninja if it is not "
        "there",
        command="pip install ninja",
    ),
    KnownError(
        "CG873",
        "CUDA_HOME is not set",
        ("CUDA_HOME environment variable is not set", "CUDA_HOME does not exist"),
        r"CUDA_HOME environment variable is not set|CUDA_HOME does not exist",
        "torch finds no CUDA toolkit, or is a build without CUDA, for which it looks for none.",
        "install a torch with CUDA if torch.version.cuda is None; else install the toolkit of that "
        "version and set CUDA_HOME to its folder",
        command='python -c "import torch; print(torch.version.cuda)"; which nvcc',
    ),
    KnownError(
        "CG874",
        "torch does not know for which GPU to build",
        ("IndexError: list index out of range",),
        r"(?s)(?:arch_list\[-1\]|_get_cuda_arch_flags).{0,600}IndexError: list index out of range",
        "No GPU is visible where the extension is built, so torch does not know what to build for.",
        "set TORCH_CUDA_ARCH_LIST, for instance to '8.0;8.6;9.0+PTX', and build again",
        command="export TORCH_CUDA_ARCH_LIST='8.0;8.6;9.0+PTX'",
        unguarded="under cudaguard.install() rule CG031 builds for all that torch and nvcc support",
    ),
    KnownError(
        "CG875",
        "nvcc is of another CUDA than torch",
        (
            "mismatches the version that was used",
            "does not match the version torch",
            "being compiled with a version of Cuda",
        ),
        r"detected CUDA version.{0,200}mismatches the version that was used to compile|"
        r"Installed CUDA version [\d.]+ does not match the version torch was compiled with|"
        r"Cuda extensions are being compiled with a version of Cuda that does not match",
        "nvcc is of another version of CUDA than torch was built with.",
        "install the toolkit of torch.version.cuda and set CUDA_HOME to it, or a torch for the "
        "CUDA of this nvcc",
        command='nvcc --version; python -c "import torch; print(torch.version.cuda)"',
        links=(
            "https://github.com/nerfstudio-project/gsplat/issues/215",
            "https://github.com/deepspeedai/DeepSpeed/issues/3223",
        ),
    ),
    KnownError(
        "CG876",
        "sources are older than torch 1.11",
        ("THC/THC",),
        r"THC/THC\w*\.h",
        "The sources are older than torch 1.11, which has no THC headers.",
        "use a newer release of the project, or torch 1.10",
        command='python -c "import torch; print(torch.__version__)"',
    ),
    KnownError(
        "CG886",
        "a build waits for a lock",
        ("torch/utils/file_baton.py",),
        r"torch/utils/file_baton\.py(?:\", line |:)\d{1,5},? in wait|"
        r"wait \(torch/utils/file_baton\.py:\d{1,5}\)",
        "torch waited for another build of this extension to remove its lock. A build that was "
        "killed leaves its lock, and torch before 2.14 waits for it without a limit.",
        "delete the file named lock in the folder of this extension, unless a build is still "
        "running; torch 2.14 and later has no such lock",
        command="find ~/.cache/torch_extensions $TORCH_EXTENSIONS_DIR -name lock",
        links=("https://github.com/pytorch/pytorch/pull/190543",),
    ),
    KnownError(
        "CG725",
        "Python's headers are not installed",
        ("Python.h",),
        r"(?:fatal error: |: )Python\.h: No such file or directory",
        "The compiler does not find Python's headers.",
        "install them for this very Python (apt-get install python3-dev; conda has them)",
        command="apt-get install python3-dev",
    ),
    KnownError(
        "CG727",
        "CUDA's headers are not found",
        ("cuda_runtime", "cuda.h", "cublas_v2.h", "cusparse.h", "cudnn.h", "nccl.h", "cuda_fp16.h"),
        r"fatal error: ((?:cuda\w*|cublas\w*|cusparse|cusolver\w*|cudnn|nccl|curand\w*|nvToolsExt)"
        r"\.h): No such file or directory",
        "The compiler does not find CUDA's {0}.",
        "set CUDA_HOME to the folder of a whole toolkit (nvcc alone has no headers of the "
        "libraries), of the version that torch.version.cuda names",
        command='ls "$CUDA_HOME/include/cuda_runtime.h"; which nvcc',
        nouns=("headers",),
    ),
    KnownError(
        "CG726",
        "the linker does not find a library",
        ("cannot find -l",),
        r"cannot find -l(cuda\w*|nvidia\w*|cudart|cublas\w*|cudnn\w*|nvrtc|torch\w*|c10\w*)\b",
        "The linker does not find lib{0}.so.",
        "add the toolkit's stub for -lcuda: export LIBRARY_PATH=$CUDA_HOME/lib64/stubs; for others "
        "add their folder to LIBRARY_PATH",
        command="export LIBRARY_PATH=$CUDA_HOME/lib64:$CUDA_HOME/lib64/stubs",
        nouns=("cuda",),
    ),
)
EXPLAINER = Explainer(KNOWN)
