"""Arrays with ``__cuda_array_interface__`` that one library does not take from another."""

from __future__ import annotations

from cudaguard.model import Rule

_INTERFACE = "https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html"

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG019",
        title="DALI refuses or misreads arrays of other libraries",
        watch=("nvidia.dali.backend",),
        dist=("nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130"),
        actions=(
            {"normalize_argument": "TensorGPU.__init__", "parameter": "object"},
            {"normalize_argument": "TensorListGPU.__init__", "parameter": "object"},
        ),
        why=(
            "DALI 1.32 to 1.36 refuses arrays whose stream is None, as PyCUDA's always is. "
            "DALI also refuses NumPy integers and lists that others accept, and misreads "
            "booleans. cudaguard passes the same bytes in a form DALI reads."
        ),
        links=(
            "https://github.com/NVIDIA/DALI/issues/5423",
            "https://github.com/NVIDIA/DALI/pull/5425",
        ),
        verified="2026-11-20: nvidia-dali-cuda120 1.35.0 and 2.4.0, without a GPU",
    ),
    Rule(
        id="CG020",
        title="numba exports the stream 0, which the array interface forbids",
        watch=("numba.cuda.cudadrv.devicearray",),
        dist=("numba-cuda", "numba"),
        actions=({"fix_array_interface": "DeviceNDArrayBase"},),
        why=(
            "Arrays on numba's default stream export stream 0. DALI, JAX, nvImageCodec and "
            "cuda.core refuse it, some with a bare AssertionError. numba means the legacy "
            "default stream, which is 1."
        ),
        links=(_INTERFACE, "https://github.com/NVIDIA/DALI/pull/5425"),
        verified="2026-11-20: numba-cuda 0.30.4 with cuda.core 1.2.2, on a stand-in for the driver",
    ),
    Rule(
        id="CG021",
        title="DALI's own arrays have types that are not legal in the array interface",
        watch=("nvidia.dali.backend",),
        dist=("nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130"),
        actions=({"fix_array_interface": "TensorGPU"},),
        why=(
            "TensorGPU exports types such as '=f' and '=?', which mpi4py refuses with "
            "'invalid literal for int()'. The array interface calls them '<f4' and '|b1'."
        ),
        links=(_INTERFACE, "https://github.com/NVIDIA/DALI/pull/1857"),
        verified="2026-11-20: nvidia-dali-cuda120 1.35.0 with mpi4py 4.1.2",
    ),
    # Opt-in: functions that every program calls, wrapped for the few arrays that need it.
    Rule(
        id="CG022",
        title="torch reads arrays before the work that fills them is done",
        watch=("torch",),
        actions=(
            {"normalize_argument": "as_tensor", "parameter": "data"},
            {"normalize_argument": "asarray", "parameter": "obj"},
        ),
        # TorchScript knows torch's functions by identity; torch.tensor, which scripted code has
        # most of, is therefore left out.
        grade="opt-in",
        why=(
            "torch.as_tensor and torch.asarray ignore the stream of an array, and read it "
            "while another stream still writes. They also ignore its mask and byte order. "
            "With the rule torch's current stream waits first."
        ),
        links=("https://github.com/pytorch/pytorch/issues/98133",),
    ),
    Rule(
        id="CG023",
        title="CuPy refuses arrays that other readers of the array interface take",
        watch=("cupy",),
        actions=(
            {"normalize_argument": "asarray", "parameter": "a"},
            {"normalize_argument": "array", "parameter": "obj"},
        ),
        grade="opt-in",
        why=(
            "cupy.asarray and cupy.array refuse a list as shape, a NumPy integer as address, "
            "and mappings that are not a dict."
        ),
        links=(_INTERFACE,),
    ),
    Rule(
        id="CG024",
        title="numba refuses arrays that other readers of the array interface take",
        watch=("numba.cuda",),
        dist=("numba-cuda",),
        actions=({"normalize_argument": "as_cuda_array", "parameter": "obj"},),
        grade="opt-in",
        why=(
            "numba.cuda.as_cuda_array refuses arrays without a version, and writes to "
            "read-only ones."
        ),
        links=(_INTERFACE,),
    ),
    Rule(
        id="CG025",
        title="CV-CUDA does not look at the stream of an array",
        watch=("nvcv",),
        actions=(
            {"normalize_argument": "as_tensor", "parameter": "buffer"},
            {"normalize_argument": "as_image", "parameter": "buffer"},
        ),
        grade="opt-in",
        why=(
            "nvcv.as_tensor and nvcv.as_image ignore stream and mask and refuse versions "
            "below 2. They write out of bounds for an array without dimensions. With the rule"
            " the host waits for the producer's stream first."
        ),
        links=("https://github.com/CVCUDA/CV-CUDA",),
    ),
    Rule(
        id="CG026",
        title="PyCUDA's arrays claim that no work is pending",
        watch=("pycuda.gpuarray",),
        dist=("pycuda",),
        actions=({"fix_array_interface": "GPUArray"},),
        # Opt-in: readers that heed it wait for the legacy default stream then.
        grade="opt-in",
        why=(
            "GPUArray exports stream None while a kernel or copy is still running, so readers"
            " do not wait. With the rule it exports the legacy default stream. Work on "
            "non-blocking streams is not covered."
        ),
        links=("https://github.com/inducer/pycuda/issues/226", _INTERFACE),
    ),
    Rule(
        id="CG029",
        title="nvImageCodec refuses arrays of version 0 and 1",
        watch=("nvidia.nvimgcodec",),
        actions=({"normalize_argument": "as_image", "parameter": "source"},),
        grade="opt-in",
        why=(
            "nvimgcodec.as_image refuses stream 0 and interfaces of version 0 and 1, as rmm "
            "exports them."
        ),
        links=("https://github.com/NVIDIA/nvImageCodec",),
        verified="2026-11-20: nvidia-nvimgcodec-cu12 0.9.0, up to its look at the memory",
    ),
    Rule(
        id="CG030",
        title="Warp does not look at the stream of an array",
        watch=("warp",),
        actions=({"normalize_argument": "array.__init__", "parameter": "data"},),
        grade="opt-in",
        why=(
            "warp.array ignores the stream and the mask of another library's array. With the "
            "rule the host waits for the producer's stream first."
        ),
        links=("https://github.com/NVIDIA/warp",),
    ),
)
