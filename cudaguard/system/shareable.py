"""Documents without user names, passwords and arguments, to be passed on.

Nothing here guesses what a secret looks like. Of variables those of one list are shown, of a
command line the program alone; URLs lose what may carry a password, paths the names of users.
Nothing else is looked at: the error that ended a program is shown in its own words.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

# What the guard, the loader and CUDA libraries read. Whole names: a beginning such as NVIDIA_ would
# let NVIDIA_API_KEY through. None holds a command line, as CXX and NVCC_APPEND_FLAGS do.
_VARIABLES = """
CUDAGUARD CUDAGUARD_CONFIG CUDAGUARD_CONTEXT CUDAGUARD_JOURNAL CUDAGUARD_PLUGINS CUDAGUARD_RULES
CUDAGUARD_WATCH

CONDA_DEFAULT_ENV CONDA_PREFIX GLIBC_TUNABLES LD_AUDIT LD_BIND_NOW LD_DEBUG LD_LIBRARY_PATH
LD_PRELOAD PATH PYTHONFAULTHANDLER PYTHONHOME PYTHONMALLOC PYTHONNOUSERSITE PYTHONPATH
PYTHONSAFEPATH VIRTUAL_ENV

CUBLAS_WORKSPACE_CONFIG CUDA_AUTO_BOOST CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE CUDA_CACHE_PATH
CUDA_COREDUMP_FILE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_DISABLE_JIT
CUDA_DISABLE_PTX_JIT CUDA_ENABLE_COREDUMP_ON_EXCEPTION CUDA_FORCE_JIT
CUDA_FORCE_PRELOAD_LIBRARIES CUDA_FORCE_PTX_JIT CUDA_HOME CUDA_INJECTION64_PATH
CUDA_LAUNCH_BLOCKING CUDA_LOG_FILE CUDA_MANAGED_FORCE_DEVICE_ALLOC CUDA_MODULE_DATA_LOADING
CUDA_MODULE_LOADING CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_LOG_DIRECTORY
CUDA_MPS_PINNED_DEVICE_MEM_LIMIT CUDA_MPS_PIPE_DIRECTORY CUDA_PATH CUDA_ROOT
CUDA_SCALE_LAUNCH_QUEUES CUDA_VISIBLE_DEVICES NVIDIA_DISABLE_REQUIRE NVIDIA_DRIVER_CAPABILITIES
NVIDIA_REQUIRE_CUDA NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES

NCCL_ALGO NCCL_CUMEM_ENABLE NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_IB_DISABLE NCCL_IB_HCA
NCCL_LAUNCH_MODE NCCL_NET NCCL_NET_PLUGIN NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL
NCCL_PROTO NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME TORCH_NCCL_ASYNC_ERROR_HANDLING
TORCH_NCCL_BLOCKING_WAIT

MAX_JOBS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVCC
PYTORCH_NVML_BASED_CUDA_CHECK TORCHDYNAMO_DISABLE TORCHINDUCTOR_CACHE_DIR
TORCHINDUCTOR_CUDAGRAPHS TORCH_CUDA_ARCH_LIST TORCH_EXTENSIONS_DIR TORCH_LOGS TORCH_USE_CUDA_DSA
TRITON_CACHE_DIR TRITON_PTXAS_BLACKWELL_PATH TRITON_PTXAS_PATH

CUPY_CACHE_DIR CUPY_CUDA_ARRAY_INTERFACE_SYNC JAX_ENABLE_X64 JAX_PLATFORMS MUJOCO_GL
NUMBA_CUDA_DRIVER NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM NUMBA_CUDA_USE_NVIDIA_BINDING
NUMBA_DISABLE_CUDA NUMBA_FORCE_CUDA_CC TF_CPP_MIN_LOG_LEVEL TF_ENABLE_ONEDNN_OPTS
TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_ALLOCATOR TF_XLA_FLAGS XLA_FLAGS XLA_PYTHON_CLIENT_ALLOCATOR
XLA_PYTHON_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_PREALLOCATE

KMP_AFFINITY KMP_DUPLICATE_LIB_OK KMP_INIT_AT_FORK MKL_NUM_THREADS MKL_SERVICE_FORCE_INTEL
MKL_THREADING_LAYER OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OPENBLAS_NUM_THREADS
"""
VARIABLES = frozenset(_VARIABLES.split())
USER, LEFT_OUT = "USER", "..."
_LONGEST = 1 << 16  # characters of one text: a file of somebody's may have a line of millions
_URL = re.compile(r"://(\S*)")
_HOST = re.compile(r"(?:[\w.-]*|\[[\da-fA-F:.]*\])(?::\d{1,5})?")
_SIGNS = ")}>'\",;:."  # of the sentence around it
_TOKEN_OF_CONDA = re.compile(r"/t/[^/]+")
_HOME_OF_OTHERS = re.compile(r"(/(?:homes?|[Uu]sers)/+)(?!\.)[^/\s:;,'\"]+")
_WORD = re.compile(r"\S+")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those environment variables that others may read, sorted."""
    return {name: environ[name] for name in sorted(VARIABLES.intersection(environ))}


def program_alone(words: Sequence[str]) -> list[str]:
    """Return the program of a command line, and in one word how many arguments it has.

    It may be a script or command, ``-m MODULE``, or ``-c CODE``.
    """
    program = list(words[: 2 if words[:1] in (["-m"], ("-m",)) else 1])
    count = len(words) - len(program)
    return [*program, f"<{count} argument{'s' * (count > 1)}>"] if count else program


def shareable(document: Any) -> Any:
    """Return lists and tables of texts as others may read them; the keys are words of ours."""
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")} - {"", "root"}
    # HOME may be set to another folder than that of the account, as in jobs and containers.
    given = {os.path.expanduser(f"~{user}") for user in ("", *users)}
    folders = {folder.rstrip("/") for home in given for folder in (home, os.path.realpath(home))}
    homes = _any_of(filter(os.path.isabs, folders), r"(?<![\w.~-])", r"(?![\w-]|\.\w)")
    names = _any_of(users, r"(?<![^\W_])", r"(?![^\W_])")

    def of_path(word: re.Match[str]) -> str:
        return names.sub(USER, word[0]) if "/" in word[0] else word[0]

    def shared(value: Any) -> Any:
        if isinstance(value, str):
            if len(value) > _LONGEST:
                value = value[:_LONGEST] + LEFT_OUT
            text = homes.sub("~", _URL.sub(_without_user, value))
            return _WORD.sub(of_path, _HOME_OF_OTHERS.sub(rf"\1{USER}", text))
        if isinstance(value, (list, tuple)):
            return [shared(item) for item in value]
        if isinstance(value, dict):
            return {key: shared(item) for key, item in value.items()}
        return value

    return shared(document)


def _without_user(url: re.Match[str]) -> str:
    """Return what follows a scheme without user, query and fragment; there may be a URL in it."""
    parts = re.split("[?#]", url[1], maxsplit=1)[0].split("://")
    return "://" + "://".join(map(_host_and_path, parts))


def _host_and_path(text: str) -> str:
    authority, slash, path = text.partition("/")
    host = authority.rpartition("@")[2]
    if not _HOST.fullmatch(host.rstrip(_SIGNS)):  # a password with a slash, perhaps
        return LEFT_OUT
    return host + _TOKEN_OF_CONDA.sub(f"/t/{LEFT_OUT}", slash + path)


def _any_of(texts: Iterable[str], before: str, behind: str) -> re.Pattern[str]:
    """Return a pattern of any of these texts, the longest first; of none, one that never fits."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'}){behind}")
