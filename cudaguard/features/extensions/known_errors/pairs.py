"""Packages that must be of one release with torch, and say so in words of their own."""

from __future__ import annotations

from cudaguard.core.known_errors import LIKELY, KnownError

_NO_OPERATOR = (
    (
        "No operator of xformers takes these inputs: its compiled part was not loaded, or they are "
        "of a device, type or shape that it does not support"
    ),
    "read the reasons below the message; if xFormers was not built for CUDA, ",
)


def _not_loaded(package: str) -> str:
    return (
        f"The compiled part of {package} was not loaded, probably because it was built for "
        "another torch, or for CPUs"
    )


def _of_operator(vision: str | None, attention: str | None, formers: str | None) -> tuple[str, str]:
    if attention:
        return _NO_OPERATOR
    package = "torchvision" if vision else "xformers" if formers else "the package"
    return _not_loaded(package), ""


def _of_numpy(*, is_for_one: bool) -> tuple[str, str, str]:
    """Return for which NumPy an extension was built, what to install, and the command."""
    if is_for_one:
        return "NumPy 1", "NumPy 1: pip install 'numpy<2'", "pip install 'numpy<2'"
    return (
        "another release of NumPy",
        "the NumPy it was built for: pip install 'numpy<2' if that is NumPy 1",
        'python -c "import numpy; print(numpy.__version__, numpy.__file__)"',
    )


KNOWN = (
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
        any_order=True,
        examples=(
            (
                "RuntimeError: Detected that PyTorch and torch_scatter were compiled with "
                "different CUDA versions."
            ),
            ("WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:"),
        ),
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
        nouns=(_not_loaded("a package"), ""),
        words=lambda match: _of_operator(*match.groups()),
        examples=(
            "RuntimeError: operator torchvision::nms does not exist",
            "RuntimeError: Couldn't load custom C++ ops.",
            (
                "NotImplementedError: No operator found for `memory_efficient_attention_forward` "
                "with inputs:"
            ),
        ),
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
        examples=("RuntimeError: Could not load libtorchcodec. Likely causes:",),
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
        examples=(
            "RuntimeError: CUDA Setup failed despite GPU being available.",
            "The installed version of bitsandbytes was compiled without GPU support.",
        ),
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
        examples=("ModuleNotFoundError: No module named 'torch._C'",),
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
        any_order=True,
        examples=("AssertionError: Torch not compiled with CUDA enabled",),
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
        any_order=True,
        examples=(
            ("[TRT] [E] 6: The engine plan file is not compatible with this version of TensorRT"),
            "[TRT] [E] 6: The engine plan file is generated on an incompatible device",
            (
                "[TRT] [E] 1: [stdArchiveReader.cpp::StdArchiveReader::32] Error Code 1: "
                "Serialization (Serialization assertion stdVersionRead == serializationVersion "
                "failed.Version tag does not match."
            ),
        ),
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
        any_order=True,
        examples=(
            "ImportError: numpy.core.multiarray failed to import",
            (
                "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it "
                "may crash."
            ),
            (
                "ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
                "Expected 96 from C header, got 88 from PyObject"
            ),
        ),
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
        any_order=True,
        examples=(
            (
                "ImportError: DLL load failed while importing cublas: The specified procedure "
                "could not be found."
            ),
            (
                "OSError: [WinError 127] The specified procedure could not be found. Error "
                'loading "cudnn_adv64_9.dll" or one of its dependencies.'
            ),
        ),
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
        examples=("NameError: name 'ncclGetVersion' is not defined",),
    ),
)
