"""Packages that must be of one release with torch, and say so in words of their own."""

from __future__ import annotations

from cudaguard.core.known_errors import LIKELY, KnownError

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
        "The compiled part of {0} was not loaded: it was built for another torch, or for CPUs.",
        "install the pair of releases that belong together (torchvision 0.x for torch 2.x: see its "
        "README), all from one index: pip install --force-reinstall --no-deps PACKAGE",
        command="pip list | grep -i torch",
        links=("https://github.com/pytorch/vision/issues/8461",),
        nouns=("the package",),
        words=lambda match: (
            "torchvision" if match[1] else "xformers" if match[2] or match[3] else "the package",
        ),
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
        "bitsandbytes finds no library for the CUDA of this torch.",
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
        "Python finds a folder named torch that has no compiled part for this interpreter: another "
        "folder of that name comes first, or that torch was installed for another Python.",
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
        "The installed torch is a build for CPUs.",
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
        r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed",
        "An extension was built for another major version of NumPy.",
        "update the package that the traceback names, or install NumPy 1: pip install 'numpy<2'",
        command="pip install 'numpy<2'",
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
        "vLLM did not find libnccl.so.2, or not the one that torch uses.",
        "install the NCCL that torch pins, or name it: VLLM_NCCL_SO_PATH=/path/to/libnccl.so.2",
        command="pip list | grep -i nccl",
        links=("https://github.com/vllm-project/vllm/issues/4257",),
        examples=("NameError: name 'ncclGetVersion' is not defined",),
    ),
)
