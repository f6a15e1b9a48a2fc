"""Messages about architectures of GPUs, by NVRTC, ptxas, nvcc, torch, CuPy and numba."""

from __future__ import annotations

from cudaguard.core.known_errors import KnownError

KNOWN = (
    KnownError(
        "CG897",
        "CuPy cannot compile for a GPU",
        ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CompileException: nvrtc"),
        r"CUDA_ERROR_NO_BINARY_FOR_GPU(?:: no kernel image is available for execution)?|"
        r"CompileException: nvrtc: error: invalid value for --gpu-architecture",
        "There is no code for this GPU. With CuPy, its NVRTC is too old for the GPU, or, from CUDA "
        "13 on, too new.",
        "install an NVRTC that knows it (12.8 or 12.9 for Blackwell: pip install -U "
        "'nvidia-cuda-nvrtc-cu12==12.9.*'; CuPy for CUDA 12 for GPUs before Turing); where it is "
        "too old, CUPY_COMPILE_WITH_PTX=1 before CuPy is imported helps as well",
        "nothing that CuPy compiles runs on this GPU.",
        links=(
            "https://github.com/cupy/cupy/issues/9121",
            "https://github.com/cupy/cupy/issues/9475",
        ),
        examples=(
            (
                "CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for "
                "execution on the device"
            ),
            (
                "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for "
                "--gpu-architecture (-arch)"
            ),
        ),
    ),
    KnownError(
        "CG899",
        "the driver is too old for the code",
        (
            "UNSUPPORTED_PTX_VERSION",
            "UnsupportedPtxVersion",
            "an unsupported toolchain",
            "Unsupported .version",
        ),
        r"(?:CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion)?(?:: the "
        r"provided )?"
        r"PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION|"
        r"cudaErrorUnsupportedPtxVersion|fatal\s{0,9}: Unsupported \.version [\d.]+; current "
        r"version is",
        "The code was compiled by a release of CUDA that is newer than the one that is to assemble "
        "it: this driver, or an older nvJitLink.",
        "install packages for the CUDA of the driver, which nvidia-smi shows (cupy-cuda12x for 12, "
        "cupy-cuda13x for 13; compilers: pip install 'nvidia-cuda-nvcc-cu12==12.4.*' "
        "'nvidia-cuda-nvrtc-cu12==12.4.*' for 12.4), or update the driver; numba-cuda makes "
        "machine "
        "code with an nvJitLink of the release of its compilers (pip install -U "
        "'numba-cuda[cu12]'), "
        "CuPy unless CUPY_COMPILE_WITH_PTX is set",
        command="nvidia-smi",
        links=(
            "https://github.com/NVIDIA/numba-cuda/issues/163",
            "https://github.com/cupy/cupy/issues/9827",
        ),
        examples=(
            (
                "CUDARuntimeError: cudaErrorUnsupportedPtxVersion: the provided PTX was compiled "
                "with an unsupported toolchain."
            ),
            (
                "numba.cuda.cudadrv.driver.LinkerError: [222] Call to cuLinkAddData results in "
                "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
            ),
            (
                "ptxas application ptx input, line 9; fatal   : Unsupported .version 8.7; "
                "current version is '8.4'"
            ),
        ),
    ),
    KnownError(
        "CG898",
        "numba-cuda cannot compile for a GPU",
        (
            "nvJitLink",
            "NVJITLINK_ERROR",
            "Can't use arch-specific",
            "GPU compute capability",
            "No supported GPU compute",
            "libNVVM cannot be found",
        ),
        r"nvJitLink[^']{0,300}'sm_\w{1,9}' is not defined|"
        r"'sm_\w{1,9}' is not defined[\s\S]{0,100}NVJITLINK_ERROR|"
        r"Can't use arch-specific compute_\w{1,9} with closest found compute capability|"
        r"GPU compute capability \d{1,2}\.\d is not supported ?\(requires|"
        r"No supported GPU compute capabilities found|libNVVM cannot be found",
        "The compilers of numba.cuda (NVRTC, NVVM, nvJitLink) do not support this GPU, do not fit "
        "this numba, or are not installed.",
        "install those of one release that supports the GPU: pip install -U 'numba-cuda[cu12]' (or "
        "cu13, for GPUs from Turing on); with a toolkit of your own set CUDA_HOME to it",
        command="pip install -U 'numba-cuda[cu12]'",
        links=(
            "https://github.com/NVIDIA/numba-cuda/issues/163",
            "https://github.com/numba/numba/pull/6227",
        ),
        examples=(
            (
                "numba.cuda.cudadrv.error.NvvmSupportError: No supported GPU compute "
                "capabilities found. Please check your cudatoolkit version matches your CUDA "
                "version."
            ),
            (
                "ValueError: Can't use arch-specific compute_120a with closest found compute "
                "capability compute_90"
            ),
            "CCSupportError: GPU compute capability 3.5 is not supported(requires >=5.0)",
            "numba.cuda.cudadrv.error.NvvmSupportError: libNVVM cannot be found.",
        ),
    ),
    KnownError(
        "CG861",
        "NVRTC does not know a GPU",
        ("invalid value for --gpu-architecture",),
        r"invalid value for --gpu-architecture",
        "The NVRTC in this process does not know the architecture of this GPU: it is too old for "
        "it, or, from CUDA 13 on, too new.",
        "install a torch that was built for this GPU; or an NVRTC of the same major version that "
        "knows it, beside torch's own: pip install --no-deps --target DIR "
        "'nvidia-cuda-nvrtc-cu12==12.9.*', with DIR on PYTHONPATH",
        "ordinary kernels may run; those compiled at run time (TorchScript fusers, jiterator "
        "operators such as torch.prod) fail. LD_LIBRARY_PATH does not help with wheels from pip.",
        command="cudaguard doctor --deep --only CG913",
        links=("https://github.com/pytorch/pytorch/issues/87595",),
        unguarded="cudaguard.install() before import torch has it loaded first (rule CG033)",
        examples=("RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)",),
    ),
    KnownError(
        "CG862",
        "a library has no code for a GPU",
        ("no kernel image is available", "is not compatible with the current PyTorch"),
        r"no kernel image is available for execution|with CUDA capability (?:sm_\w{1,8}) is not "
        r"compatible with the current PyTorch",
        "This library has no code for the architecture of this GPU.",
        "install a build for it (Blackwell needs torch 2.7 or later for CUDA 12.8), or build the "
        "extension with TORCH_CUDA_ARCH_LIST set to the GPU's compute capability; "
        "torch.cuda.get_arch_list() shows what torch supports",
        command="cudaguard doctor --deep --only CG913 --only CG918",
        links=("https://github.com/pytorch/pytorch/issues/150733",),
        any_order=True,
        examples=(
            "CUDA error: no kernel image is available for execution on the device",
            (
                "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the "
                "current PyTorch installation."
            ),
        ),
    ),
    KnownError(
        "CG863",
        "Triton's ptxas does not know a GPU",
        ("ptxas fatal",),
        r"ptxas fatal[^'\n]{0,200}'(sm_\w{1,20})' is not defined",
        "The ptxas that was called, mostly by Triton, does not know {0}.",
        "set TRITON_PTXAS_PATH to the ptxas of a newer CUDA toolkit, or update triton",
        command="pip install -U triton",
        links=("https://github.com/triton-lang/triton/issues/8539",),
        nouns=("this GPU",),
        examples=("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",),
    ),
    KnownError(
        "CG714",
        "nvcc does not know an architecture",
        ("nvcc fatal", "Unknown CUDA arch"),
        r"nvcc fatal\s{0,9}: Unsupported gpu architecture '(\w{1,20})'|Unknown CUDA arch "
        r"\(([\w.+]{1,20})\)",
        "The CUDA toolkit is too old, or too new, to compile for {0}.",
        "use the toolkit of torch.version.cuda (12.8 or later for compute_100 and compute_120), or "
        "set TORCH_CUDA_ARCH_LIST to what it knows (nvcc --list-gpu-arch)",
        command="nvcc --list-gpu-arch",
        nouns=("a GPU",),
        words=lambda match: (match[1] or match[2],),
        any_order=True,
        examples=(
            "nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
            "ValueError: Unknown CUDA arch (12.0a) or GPU not supported",
        ),
    ),
)
