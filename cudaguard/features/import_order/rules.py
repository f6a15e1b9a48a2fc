"""Packages that need an order, and libraries that are found only once a module has loaded them."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import Parameter, Verb, github

# Libraries of NVIDIA's wheels.
_OF_NVIDIA = (
    *("cublas*", "cudart", "cudnn*", "cufft*", "curand", "cusolver*", "cusparse*", "nccl"),
    *("nvJitLink", "nvrtc", "nvshmem*"),
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG073",
        title="OpenCV's import sends PyQt5 to plugins that only OpenCV's own Qt can load",
        watch=("cv2",),
        when={"platform": "linux"},
        actions=({"set_for_windows": "QT_QPA_PLATFORM_PLUGIN_PATH"},),
        why="opencv-python sets QT_QPA_PLATFORM_PLUGIN_PATH to its own folder at import. PyQt5 and "
        "PySide2 read it as well, and the program aborts: 'Could not load the Qt platform plugin "
        '"xcb"\'. OpenCV needs it as it opens its first window.',
        links=github("opencv/opencv-python/issues/386 opencv/opencv-python/issues/736"),
        verified="2026-11-28: opencv-python 5.0.0 with PyQt5 5.15.11, on a virtual display",
    ),
    # Packages that ask for an order themselves.
    Rule(
        id="CG041",
        title="unsloth imported after transformers cannot patch it",
        watch=("transformers", "trl", "peft"),
        dist=("unsloth>=2025.3.1",),
        needs=("unsloth",),
        # Opt-in: unsloth replaces parts of all three, which a program without it must not see.
        grade="opt-in",
        why="unsloth patches transformers, trl and peft, and cannot patch what is already "
        "imported. Training may take more memory and time: 'Unsloth should be imported before "
        "trl, transformers, peft to ensure all optimizations are applied'.",
        links=github(
            "unslothai/unsloth/issues/2233 hiyouga/LlamaFactory/issues/7175 "
            "NVIDIA-NeMo/Safe-Synthesizer/issues/330 unslothai/unsloth/pull/1831"
        ),
        verified="2026-11-25: unsloth 2026.10.9 with transformers 5.24.0, torch 2.13.0 for CPU",
    ),
    # Libraries that are found only once a module has loaded them, and one name for two files.
    Rule(
        id="CG003",
        title="an extension that links libtorch is imported before torch",
        watch=("torch",),
        when={"platform": "linux"},
        # Exact names: a wheel that brings a libtorch of its own has it renamed, and is let be.
        actions=tuple(
            {"provide_libraries": f"lib{name}.so"}
            for name in ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python")
        ),
        why="Extensions built against torch need libc10.so and libtorch*.so from torch's folder. "
        "The loader finds them only after `import torch`. Before it, the import fails with "
        "'libc10.so: cannot open shared object file'.",
        links=github(
            "pytorch/extension-cpp/issues/50 pytorch/extension-cpp/pull/127 "
            "open-mmlab/mmcv/issues/660"
        ),
        verified="2026-11-20: an extension compiled against torch 2.13.0",
    ),
    Rule(
        id="CG046",
        title="a library cannot find another one that is installed, or finds an older one first",
        watch=("nvidia",),
        when={"platform": "linux"},
        # After the loader has refused it. Before, only where an installed library is seen to need
        # what an older copy lacks, which would serve it as well.
        actions=(
            {"fetch_installed": "lib*.so*"},
            *({"preload_needed": f"lib{name}.so*"} for name in _OF_NVIDIA),
        ),
        why="The loader searches neither site-packages/nvidia nor the folders of other packages, "
        "and LD_LIBRARY_PATH before a package's own. A package that needs libcudnn.so.9 or "
        "libnccl.so.2 fails with 'cannot open shared object file', or with 'undefined symbol' "
        "where it gets an older copy, or where another package has loaded one before.",
        links=github(
            "NVIDIA/TransformerEngine/issues/1853 pytorch/pytorch/issues/101314 "
            "huggingface/autotrain-advanced/issues/292"
        ),
        verified="2026-11-23: a library compiled against nvidia-cuda-runtime-cu12 12.4.127",
    ),
    Rule(
        id="CG047",
        title="an older libstdc++, libgomp or oneTBB comes before a newer one",
        watch=("torch", "tensorflow", "jaxlib", "nvidia.dali"),
        when={"platform": "linux"},
        # They keep the names of all their releases: the newest is right for everybody.
        actions=tuple(
            {"preload_newest": soname}
            for soname in ("libstdc++.so.6", "libgomp.so.1", "libtbb.so.12")
        ),
        why="The first libstdc++.so.6 in a process is used by all, and so are libgomp.so.1 and "
        "libtbb.so.12. If a package contains an older one, packages that need a newer one fail "
        'with "version `GLIBCXX_3.4.30\' not found" or an undefined symbol.',
        links=github(
            "NVIDIA/DALI/issues/4369 pytorch/pytorch/issues/115138 pytorch/pytorch/issues/157709 "
            "tesseract-robotics/tesseract_nanobind/pull/119"
        ),
        verified="2026-11-26: tesseract-robotics-nanobind 0.35.0.4 with numpy 2.4.6",
    ),
    Rule(
        id="CG007",
        title="onnxruntime-gpu does not find the CUDA and cuDNN libraries that pip installed",
        watch=("onnxruntime",),
        dist=("onnxruntime-gpu>=1.16",),
        when={"platform": "linux"},
        # Only with a driver: 1.19 to 1.22 crash where the provider loads and there is none.
        actions=(
            {
                "preload": "onnxruntime/capi/libonnxruntime_providers_cuda.so",
                "dependencies": True,
            },
        ),
        why="onnxruntime-gpu does not search the nvidia-* packages for cuBLAS and cuDNN. It logs "
        "one line, drops CUDAExecutionProvider and runs on the CPU. For 1.20 to 1.22, importing "
        "torch first is not enough.",
        links=github(
            "microsoft/onnxruntime/issues/21684 microsoft/onnxruntime/issues/23643 "
            "microsoft/onnxruntime/issues/24719 microsoft/onnxruntime/issues/25609 "
            "microsoft/onnxruntime/pull/23674"
        ),
        verified="2026-11-20: onnxruntime-gpu 1.19.2, 1.20.2, 1.22.0, 1.23.2 (loading, no GPU)",
    ),
    Rule(
        id="CG072",
        title="ctranslate2 finds neither cuBLAS nor the parts of cuDNN that pip installed",
        watch=("ctranslate2",),
        when={"platform": "linux"},
        actions=tuple(
            {"preload": f"lib{name}"}
            for name in (
                *("cublas.so.12", "cudnn_ops_infer.so.8", "cudnn_cnn_infer.so.8"),  # 4.0 to 4.4
                *("cudnn_graph.so.9", "cudnn_ops.so.9", "cudnn_cnn.so.9", "cudnn_adv.so.9"),
            )
        ),
        why="ctranslate2 searches no nvidia-* package for cuBLAS, nor for the parts of its cuDNN. "
        "On a GPU it fails with 'Library libcublas.so.12 is not found or cannot be loaded', or "
        "aborts with 'Unable to load any of {libcudnn_ops.so...}'. After `import torch` it works.",
        links=github(
            "OpenNMT/CTranslate2/issues/1315 SYSTRAN/faster-whisper/issues/1017 "
            "MahmoudAshraf97/whisper-diarization/issues/259"
        ),
        verified="2026-11-28: ctranslate2 4.5.0 with nvidia-cudnn-cu12 9.1.0.70 (no GPU)",
    ),
    Rule(
        id="CG035",
        title="torch takes parts of another cuDNN from LD_LIBRARY_PATH",
        watch=("torch",),
        when={"platform": "linux", "env": {"LD_LIBRARY_PATH": True}},
        # Nothing where cuDNN does not come from such a package, or where the other is newer.
        actions=({"preload_hidden": "nvidia/cudnn/lib/libcudnn*.so.[89]"},),
        why="torch uses parts of two cuDNN versions, because libcudnn searches LD_LIBRARY_PATH "
        "first. It fails with 'Could not load symbol cudnnGetLibConfig' or "
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH. Removing that folder from LD_LIBRARY_PATH is "
        "better.",
        links=github(
            "pytorch/pytorch/issues/119989 pytorch/pytorch/issues/188892 "
            "pytorch/pytorch/pull/189043"
        ),
        verified="2026-11-20: torch 2.6.0 with cuDNN 9.1.0.70, and 9.3.0.75 on the path (no GPU)",
    ),
    Rule(
        id="CG068",
        title="a bundled library is loaded after the room for thread-local variables is used up",
        watch=("torch", "tensorflow", "cv2", "mxnet", "sklearn", "xgboost", "lightgbm"),
        when={"platform": "linux"},
        # Only before what takes of the room, for packages that are, or may be, imported later.
        actions=({"preload_static_tls": "lib*.so*"},),
        why="The room for thread-local variables is small, and wheels have their own libgomp that "
        "needs some. On AArch64 nearly all libraries take of it. The package imported last fails "
        "with 'cannot allocate memory in static TLS block'.",
        links=github(
            "dmlc/xgboost/issues/8488 opencv/opencv/issues/14884 "
            "scikit-learn/scikit-learn/issues/17231"
        ),
        verified="2026-11-28: stand-ins, also on AArch64 (emulated); scikit-learn 1.5.2's libgomp",
    ),
)

VERBS = (
    Verb("provide_libraries", "file pattern", "libtorch*.so*",
      "Import the watched module before any extension that needs such a library.",
      {"needing": "repair:import_provider"}),
    Verb("preload", "library", "nvidia/nccl/lib/libnccl.so.2",
      "Load an installed library, or what it needs, before the watched module is imported.",
      {"before": "repair:preload", "late": "repair:check_already_loaded"},
      (Parameter("dependencies", "switch", True, False),)),
)  # fmt: skip
REPAIRS = {
    "set_for_windows": {"after": "qt_plugins:set_for_windows"},
    "preload_newest": {"before": "newest:preload_newest", "first": "newest:preload_newest"},
    "preload_hidden": {"before": "newest:preload_hidden"},
    "fetch_installed": {"lacking": "repair:load_installed"},
    "preload_needed": {"choosing": "newest:preload_needed"},
    "preload_static_tls": {"crowding": "newest:preload_static_tls"},
}
CATEGORY = "ImportOrderWarning"
DETECTORS = {"newest:SearchPathDetector": ()}
