"""The packages that matter where CUDA libraries meet: of these the inventory tells everything."""

from __future__ import annotations

from cudaguard.system.distributions import key_of

# Compared in the form of PEP 503; conda's names are among them.
NAMES = frozenset(
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
BEGINNINGS = (
    *("nvidia-", "cupy", "onnxruntime", "tensorrt", "opencv", "jax", "tensorflow-", "spconv"),
    *("faiss-", "cuda-", "libcu", "libnv", "libnpp", "cudf-", "cuml-", "rmm-", "pylibraft-"),
    *("flash-attn-", "flashinfer", "intel-openmp", "libtorch", "transformer-engine-"),
)


def is_of_field(name: str) -> bool:
    """Return True if a package of pip's or conda's is one of the field's."""
    key = key_of(name)
    return key in NAMES or key.startswith(BEGINNINGS)
