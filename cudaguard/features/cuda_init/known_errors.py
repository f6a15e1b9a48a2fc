"""What libraries say where a forked process uses the CUDA of its parent.

Source: torch ``torch/cuda/__init__.py``; numba-cuda ``cudadrv/driver.py``; CUDA driver and runtime
API, error 3; pytorch/pytorch#17357.
"""

from __future__ import annotations

from cudaguard.core.known_errors import LIKELY, Explainer, KnownError
from cudaguard.features.cuda_init import findings

# Nothing else makes a library say this.
_CERTAIN = ("re-initialize CUDA in forked subprocess", "CUDA initialized before forking")
_CUDA = r"[Cc][Uu][Dd][Aa]|\bcu[A-Z]"
# Error 3 under its names: said of a fork, and of a driver that nobody has initialized.
_ERROR_3 = (
    "CUDA error: initialization error",
    "CUDA_ERROR_NOT_INITIALIZED",
    "cudaErrorInitializationError",
    "cuInit failed: initialization error",
    "cuInit failed: not initialized",
    "CUDA driver error: initialization error",
    "CUDA driver error: not initialized",
)


def line_of_fork(text: str) -> str:
    """Return the line of an error's text that tells of CUDA after a fork, empty if none does.

    The last one: the text of an error of another process has its traceback in it.
    """
    parts = (*_CERTAIN, *_ERROR_3)
    at = max(map(text.rfind, parts))
    if at < 0:
        return ""
    end = text.find("\n", at)
    around = text[text.rfind("\n", 0, at) + 1 : len(text) if end < 0 else end]
    # Progress bars end their lines with other signs.
    return next(
        line.strip()
        for line in reversed(around.splitlines())
        if any(part in line for part in parts)
    )


KNOWN = (
    KnownError(
        findings.FORK.id,
        findings.FORK.title,
        _CERTAIN,
        "|".join(_CERTAIN),
        "A forked process uses CUDA, which its parent had initialized.",
        findings.FORK.remedy,
        command="cudaguard trace SCRIPT",
        unguarded="under cudaguard.install() you are told which line that was",
        links=findings.FORK.links,
    ),
    KnownError(
        findings.NOT_UNTOUCHED.id,
        findings.NOT_UNTOUCHED.title,
        (
            "CUDA has been initialized before",
            "create new processes if CUDA is already",
            "A CUDA context for device",
            "should have a CUDA context assigned",
        ),
        r"CUDA has been initialized before the `notebook_launcher`|can't create new processes if "
        r"CUDA is already initialized|A CUDA context for device \d+ already exists|should have a "
        r"CUDA context assigned to device \d+, but instead",
        "Something initialized CUDA before this launcher made its workers, or before a worker "
        "chose its device.",
        "import that package, and touch the GPU, inside the function that the workers run; restart "
        "a notebook's kernel first; cudaguard trace names the import that initializes CUDA",
        command="cudaguard trace SCRIPT",
        links=findings.NOT_UNTOUCHED.links,
    ),
    KnownError(
        "CG717",
        "CUDA_VISIBLE_DEVICES was changed after CUDA had read it",
        ("CUDA unknown error", "changing env variable CUDA_VISIBLE_DEVICES"),
        r"CUDA unknown error - this may be due to an incorrectly set up environment|changing env "
        r"variable CUDA_VISIBLE_DEVICES after program start",
        "CUDA could not start: a variable such as CUDA_VISIBLE_DEVICES was changed after it had "
        "been read, or the driver does not work (device files, a suspended machine).",
        "set such variables before Python starts; if nothing sets one: nvidia-smi shows whether "
        "the "
        "driver works, and sudo modprobe nvidia_uvm makes missing device files",
        command="nvidia-smi",
        links=("https://github.com/pytorch/pytorch/issues/49081",),
        certainty=LIKELY,
    ),
    KnownError(
        "CG718",
        "no CUDA context is current in a thread",
        ("invalid device context", "no currently active context", "NO_ACTIVE_CONTEXT"),
        r"invalid device context(?: - no currently active context\?)?|no currently active context",
        "No CUDA context is current in the thread that makes this call: each thread, and each "
        "library that calls the driver directly, needs one.",
        "make a context current there first: torch.cuda.set_device(0) and a first use of the "
        "GPU, or with PyCUDA import pycuda.autoprimaryctx (context.push() in each further thread); "
        "cudaguard.create_context() creates the one that torch uses",
        links=(
            "https://github.com/pytorch/pytorch/issues/51105",
            "https://github.com/openucx/ucx/issues/4707",
            "https://github.com/NVIDIA/TransformerEngine/issues/734",
        ),
    ),
    KnownError(
        findings.FOREIGN.id,
        findings.FOREIGN.title,
        ("invalid resource handle", "context is destroyed", "non-primary CUDA context"),
        rf"(?:{_CUDA})(?:(?!{_CUDA})[^\n]){{0,200}}(?:invalid resource handle|context is "
        r"destroyed)|cannot operate on non-primary CUDA context",
        "A stream, event or memory of one CUDA context is used in another, or after its context "
        "was destroyed.",
        "let all libraries share the primary context: with PyCUDA import pycuda.autoprimaryctx in "
        "place of autoinit (rule CG013); otherwise make the context of the object current before "
        "the call",
        unguarded="under cudaguard.install() you are told which import left a context of its own",
        links=(
            "https://github.com/NVIDIA/TensorRT/issues/4335",
            "https://github.com/taichi-dev/taichi/issues/5502",
        ),
        certainty=LIKELY,
    ),
    KnownError(
        "CG719",
        "a PyCUDA context was left on the stack",
        ("The context stack was not empty",),
        r"PyCUDA ERROR: The context stack was not empty upon module cleanup",
        "A PyCUDA context was still pushed when Python ended.",
        "call context.pop() for each make_context() and push(), or import pycuda.autoprimaryctx in "
        "place of autoinit, which cleans up at exit",
        links=("https://github.com/NVIDIA/TensorRT/issues/1133",),
    ),
    KnownError(
        "CG720",
        "TensorRT failed in a kernel of its own",
        ("Error Code 1: Cask",),
        r"Error Code 1: Cask",
        "TensorRT could not run a kernel. Often torch and it use two CUDA contexts, or the engine "
        "was built in another context.",
        "initialize torch's context before TensorRT is used (torch.zeros(1, device='cuda') first), "
        "and use the primary context with PyCUDA (rule CG013)",
        links=("https://github.com/NVIDIA/TensorRT/issues/4335",),
        certainty=LIKELY,
    ),
    KnownError(
        "CG721",
        "the allocator was chosen too late",
        ("Allocator backend parsed at runtime", "already initialized allocator"),
        r"Allocator backend parsed at runtime != allocator backend parsed at load time|swap an "
        r"already initialized allocator",
        "torch's CUDA allocator had been set up before this setting was made.",
        "set PYTORCH_CUDA_ALLOC_CONF before torch is imported; swap the allocator before anything "
        "that uses the GPU is imported",
        links=(
            "https://github.com/pytorch/pytorch/issues/104801",
            "https://github.com/openvdb/fvdb-core/issues/105",
        ),
    ),
    KnownError(
        "CG722",
        "EGL has its own numbers for devices",
        ("MUJOCO_EGL_DEVICE_ID",),
        r"MUJOCO_EGL_DEVICE_ID environment variable must be an integer between",
        "EGL has fewer devices than that, numbered from 0 in an order of its own. Without NVIDIA's "
        "EGL library, as in many containers, it may have only Mesa's. robosuite takes CUDA's "
        "number if MUJOCO_EGL_DEVICE_ID is not set.",
        "unset MUJOCO_EGL_DEVICE_ID; with robosuite set os.environ['MUJOCO_EGL_DEVICE_ID'] = '0' "
        "after importing it; start a container with NVIDIA_DRIVER_CAPABILITIES=all",
        command="unset MUJOCO_EGL_DEVICE_ID",
        links=(
            "https://github.com/starVLA/starVLA/issues/390",
            "https://github.com/google-deepmind/mujoco/issues/3245",
        ),
    ),
)
# The detector tells of a fork.
EXPLAINER = Explainer(KNOWN, lambda _: None, [findings.FORK.id])
