"""The built-in knowledge, ordered by incident family.

Data only. Every rule carries its evidence; `verified` is None where the fault has not been
reproduced for this project. ``tests/unit/test_catalog.py`` checks each entry.
"""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    # --- symbol scope: one library's names taken for another's --------------------------
    Rule(
        id="CG001",
        title="decord puts its bundled libraries into the global symbol scope",
        watch=("decord",),
        dist=("decord<=0.6.0", "eva-decord"),
        when={"platform": "linux"},
        actions=(
            "local_scope:libdecord.so*",
            "demote:libdecord.so*",
            "hide:*",
            "keep:DECORD*",
        ),
        why=(
            "decord loads libdecord.so with RTLD_GLOBAL, so its old copies of zlib, FFmpeg and "
            "the C++ runtime serve every library that is loaded later: OpenCV reads a PNG as "
            "None, torch extensions crash or compute wrong numbers, torch itself crashes or reads "
            "stdin when it draws a seed. Importing torch first cures the last of these only; "
            "local scope cures them all."
        ),
        links=(
            "https://github.com/dmlc/decord/issues/293",
            "https://github.com/dmlc/decord/issues/324",
            "https://github.com/dmlc/decord/issues/329",
            "https://github.com/NVlabs/nvdiffrast/issues/216",
            "https://github.com/huggingface/transformers/issues/36676",
            "https://github.com/vllm-project/vllm/issues/9993",
        ),
        verified="2026-11-20: decord 0.6.0, eva-decord 0.6.1; opencv-python-headless 4.10.0.84",
    ),
    Rule(
        id="CG002",
        title="tensorflow puts its LLVM into the global symbol scope, and triton aborts",
        watch=("tensorflow",),
        dist=("tensorflow>=2.20", "tensorflow-cpu>=2.20"),
        when={"platform": "linux", "dists": {"triton": ">=3.7"}},
        actions=("local_scope:libtensorflow_*.so*",),
        why=(
            "tensorflow has its libraries loaded with RTLD_GLOBAL, and its LLVM serves triton's "
            "libtriton, which aborts with 'registered more than once' or 'inconsistency in "
            "registered CommandLine options'. torch imports triton late, so importing torch "
            "first does not help; local scope does."
        ),
        links=(
            "https://github.com/tensorflow/tensorflow/issues/124205",
            "https://github.com/tensorflow/tensorflow/pull/124230",
            "https://github.com/PythonOT/POT/issues/839",
        ),
        verified="2026-11-20: tensorflow-cpu 2.20.0 with triton 3.9.0",
    ),
    Rule(
        id="CG004",
        title="tensorflow was imported before the guard, and triton comes later",
        watch=("tensorflow",),
        dist=("tensorflow>=2.20", "tensorflow-cpu>=2.20"),
        when={"platform": "linux", "machine": "x86_64", "dists": {"triton": ">=3.7"}},
        actions=("demote:libtensorflow_*.so*", "hide:llvm"),
        # It takes a good part of a second, and tensorflow's own StableHLO converter (an extension
        # that nothing imports by itself) links two of the hidden names.
        grade="opt-in",
        why=(
            "tensorflow's LLVM is in the global symbol scope, and triton aborts at its import. "
            "Its names can be hidden afterwards; better is to have the guard before tensorflow."
        ),
        links=("https://github.com/tensorflow/tensorflow/issues/124205",),
        verified="2026-11-20: tensorflow-cpu 2.20.0 with triton 3.9.0",
    ),
    # --- libraries that are found only once a module has loaded them --------------------
    Rule(
        id="CG003",
        title="an extension that links libtorch is imported before torch",
        watch=("torch",),
        when={"platform": "linux"},
        # Exact names: a wheel that brings a libtorch of its own has it renamed, and is let be.
        actions=(
            "provides:libc10.so",
            "provides:libc10_cuda.so",
            "provides:libtorch.so",
            "provides:libtorch_cpu.so",
            "provides:libtorch_cuda.so",
            "provides:libtorch_python.so",
        ),
        why=(
            "Extensions built against torch name libc10.so and libtorch*.so, which lie inside "
            "torch's own folder: the loader finds them only once torch is imported. Before that "
            "the import fails with 'libc10.so: cannot open shared object file'."
        ),
        links=(
            "https://github.com/pytorch/extension-cpp/issues/50",
            "https://github.com/pytorch/extension-cpp/pull/127",
            "https://github.com/open-mmlab/mmcv/issues/660",
        ),
        verified="2026-11-20: an extension compiled against torch 2.13.0",
    ),
    # --- one name, two files: whose library is mapped first ------------------------------
    # All opt-in: the module that is watched works; it is another one that fails afterwards.
    Rule(
        id="CG005",
        title="cupy loads an older NCCL at its import, and torch then fails to import",
        watch=("cupy",),
        dist=(
            "cupy-cuda12x<13.2",
            "cupy-cuda11x<13.2",
            "cupy-cuda111<13.2",
            "cupy-cuda110<13.2",
            "cupy-cuda102<13.2",
        ),
        when={"platform": "linux", "machine": "x86_64", "dists": {"torch": ">=2.2"}},
        actions=("preload:nvidia/nccl/lib/libnccl.so.2",),
        grade="opt-in",
        why=(
            "cupy wheels before 13.2 load the libnccl.so.2.16.2 of the machine at their import, if "
            "it has one; torch 2.2 and later then fail with 'undefined symbol: ncclCommRegister'. "
            "With torch's own NCCL loaded first both work. Better is cupy 13.2."
        ),
        links=(
            "https://github.com/rapidsai/cugraph/issues/4465",
            "https://github.com/cupy/cupy/issues/8354",
            "https://github.com/cupy/cupy/pull/8360",
        ),
        fixed_in="cupy 13.2.0",
        verified="2026-11-20: cupy-cuda12x 13.1.0, torch 2.2.2, NCCL 2.16.2 on the loader's path",
    ),
    Rule(
        id="CG006",
        title="cupy 12 and older loads the toolkit's libcudart, and torch then fails to import",
        watch=("cupy",),
        dist=("cupy-cuda11x<13", "cupy-cuda111<13", "cupy-cuda110<13"),
        when={"platform": "linux", "dists": {"torch": ">=2.0,<2.1"}},
        needs=("torch",),
        grade="opt-in",
        why=(
            "cupy before 13 links libcudart.so.11.0 and takes that of the installed CUDA toolkit; "
            "if it is older than torch's, 'import torch' fails with 'undefined symbol: "
            "cudaGraphInstantiateWithFlags'. Import torch first, or upgrade cupy to 13."
        ),
        links=("https://github.com/cupy/cupy/issues/7506",),
        fixed_in="cupy 13.0.0",
    ),
    Rule(
        id="CG007",
        title="onnxruntime-gpu does not find the CUDA and cuDNN libraries that pip installed",
        watch=("onnxruntime",),
        dist=("onnxruntime-gpu>=1.16",),
        when={"platform": "linux"},
        # Opt-in, as it moves sessions from the CPU to the GPU: other rounding, memory, time. Only
        # with a driver: 1.19 to 1.22 crash where the provider loads and there is none.
        actions=("preload_needs:onnxruntime/capi/libonnxruntime_providers_cuda.so",),
        grade="opt-in",
        why=(
            "onnxruntime-gpu needs libcublas, libcudnn and others and does not look into the "
            "nvidia-* packages: CUDAExecutionProvider is dropped with a line in the log, and "
            "sessions run on the CPU. Importing torch (2.5.1) first is not enough for 1.20 to 1.22."
        ),
        links=(
            "https://github.com/microsoft/onnxruntime/issues/21684",
            "https://github.com/microsoft/onnxruntime/issues/23643",
            "https://github.com/microsoft/onnxruntime/issues/24719",
            "https://github.com/microsoft/onnxruntime/issues/25609",
            "https://github.com/microsoft/onnxruntime/pull/23674",
        ),
        verified="2026-11-20: onnxruntime-gpu 1.19.2, 1.20.2, 1.22.0, 1.23.2 (loading, no GPU)",
    ),
    Rule(
        id="CG008",
        title="tensorrt 8.6 imported before torch 2.0.1: the first convolution crashes",
        watch=("tensorrt",),
        dist=("tensorrt>=8.6,<8.7", "tensorrt-bindings>=8.6,<8.7"),
        when={"platform": "linux", "dists": {"torch": ">=2.0.1,<2.1"}},
        needs=("torch",),
        grade="opt-in",
        why=(
            "With tensorrt 8.6 imported before torch 2.0.1 the first convolution on the GPU was "
            "reported to end in a segmentation fault; with torch first it does not."
        ),
        links=(
            "https://github.com/pytorch/pytorch/issues/103852",
            "https://github.com/pytorch/TensorRT/pull/2020",
            "https://github.com/pytorch/pytorch/issues/104808",
        ),
    ),
    Rule(
        id="CG009",
        title="open3d 0.14 and 0.15 imported before torch: matrix products on the GPU crash",
        watch=("open3d",),
        dist=("open3d>=0.14,<0.16",),
        when={"platform": "linux", "dists": {"torch": ">=1.10,<1.12"}},
        needs=("torch",),
        grade="opt-in",
        why=(
            "With open3d 0.14 or 0.15 imported before torch 1.10 or 1.11, matrix products on the "
            "GPU were reported to end in a segmentation fault; with torch first they do not."
        ),
        links=(
            "https://github.com/isl-org/Open3D/issues/4877",
            "https://github.com/isl-org/Open3D/issues/5597",
            "https://github.com/pytorch/pytorch/issues/74547",
        ),
    ),
    Rule(
        id="CG010",
        title="open3d 0.6 to 0.9 imported after torch: 'free(): invalid pointer'",
        watch=("torch",),
        dist=("open3d>=0.6,<0.10",),
        when={"platform": "linux"},
        needs=("open3d",),
        grade="opt-in",
        why=(
            "open3d 0.6 to 0.9 aborts with 'free(): invalid pointer' when it is imported after "
            "torch; the other way round both work. Better is open3d 0.10."
        ),
        links=(
            "https://github.com/isl-org/Open3D/issues/922",
            "https://github.com/isl-org/Open3D/issues/1207",
            "https://github.com/isl-org/Open3D/pull/1262",
        ),
        fixed_in="open3d 0.10.0",
    ),
    # --- CUDA contexts and memory ---------------------------------------------------------
    Rule(
        id="CG013",
        title="pycuda.autoinit pushes a context of its own",
        watch=("pycuda.autoinit",),
        dist=("pycuda",),
        actions=("substitute:pycuda.autoprimaryctx",),
        # Opt-in: code that relies on a private context, or detaches it, would notice.
        grade="opt-in",
        why=(
            "pycuda.autoinit creates a context of its own and makes it current; torch, CuPy and "
            "all that use the CUDA runtime work in the primary one; streams, events and memory of "
            "one are invalid in the other. pycuda.autoprimaryctx offers the same names and shares."
        ),
        links=(
            "https://github.com/NVIDIA/TensorRT/issues/4335",
            "https://github.com/inducer/pycuda/issues/285",
            "https://github.com/ultralytics/ultralytics/issues/9092",
        ),
        verified="2026-11-20: PyCUDA 2026.1 on a stand-in for the driver, no GPU",
    ),
    Rule(
        id="CG014",
        title="JAX takes most of the device's memory at its first computation",
        watch=("jax",),
        dist=("jax",),
        when={"dists": {"torch": ""}},
        actions=("env:XLA_PYTHON_CLIENT_PREALLOCATE=false",),
        grade="opt-in",
        why=(
            "JAX allocates most of the device's memory in advance when it first computes, some "
            "packages do so while they are imported; torch in the same process then runs out of "
            "memory. With the variable JAX allocates as it needs, somewhat slower."
        ),
        links=(
            "https://github.com/lucidrains/jax2torch/issues/2",
            "https://github.com/PythonOT/POT/issues/516",
        ),
    ),
    Rule(
        id="CG015",
        title="TensorFlow takes the memory of all devices at its first use",
        watch=("tensorflow",),
        dist=("tensorflow", "tensorflow-gpu"),
        when={"dists": {"torch": ""}},
        actions=("env:TF_FORCE_GPU_ALLOW_GROWTH=true",),
        grade="opt-in",
        why=(
            "TensorFlow allocates nearly all memory of every visible device when it first uses "
            "one; torch in the same process then runs out of memory. With the variable it "
            "allocates as it needs."
        ),
        links=(
            "https://github.com/PythonOT/POT/issues/516",
            "https://github.com/google/flax/issues/445",
        ),
    ),
    # --- packages that ask for an order themselves ---------------------------------------
    Rule(
        id="CG011",
        title="isaacgym refuses to be imported after torch",
        watch=("torch",),
        dist=("isaacgym",),
        needs=("isaacgym",),
        grade="opt-in",
        why=(
            "isaacgym raises 'PyTorch was imported before isaacgym modules' once torch is there. "
            "Import isaacgym before torch and before every package that imports torch."
        ),
        links=(
            "https://github.com/PKU-MARL/DexterousHands/issues/1",
            "https://github.com/isaac-sim/IsaacGymEnvs/issues/175",
        ),
    ),
    Rule(
        id="CG012",
        title="isaacgym imported before pinocchio breaks pinocchio's lists of strings",
        watch=("isaacgym",),
        dist=("isaacgym",),
        when={"dists": {"pin": ""}},
        needs=("pinocchio",),
        grade="opt-in",
        why=(
            "isaacgym replaces the conversion of C++ lists of strings that pinocchio uses, and "
            "pinocchio fails if it comes second: pinocchio, then isaacgym, then torch."
        ),
        links=("https://github.com/dexsuite/dex-retargeting/issues/23",),
    ),
)

DETECTORS: dict[str, str] = {
    "CG801": "a module that a rule needs first could not be imported",
    "CG802": "the guard came too late for a module",
    "CG803": "another import finder stands in front of the guard",
    "CG804": "rules contradict one another",
    "CG805": "a rule plug-in could not be used",
    "CG806": "a setting could not be used",
    "CG807": "the guard itself failed",
    "CG808": "lazy imports are switched on",
    "CG809": "a repair is not supported on this platform",
    "CG810": "a prerequisite imports the module that it should precede",
    "CG811": "a watched module was imported past the guard",
    "CG812": "a library has put copies of other people's symbols into the global symbol scope",
    "CG813": "an extension exports a C++ runtime of its own",
    "CG814": "CUDA was initialised",
    "CG815": "a CUDA context was created",
    "CG816": "an import left a CUDA context of its own current",
    "CG817": "a CUDA context could not be created",
    "CG818": "a forked process uses CUDA, which its parent had initialised",
    "CG819": "an environment variable was set after it had been read for good",
    "CG820": "a library was not found as LD_LIBRARY_PATH was changed in the running process",
}
