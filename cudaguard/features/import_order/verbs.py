"""The actions of rules about libraries that have to be loaded first."""

from __future__ import annotations

from cudaguard.core.verbs import FILE_PATTERN, LIBRARY_PATH, Verb

VERBS = (
    Verb(
        "provide_libraries",
        FILE_PATTERN,
        "libtorch*.so*",
        "Import the watched module before any extension that needs such a library.",
    ),
    Verb(
        "preload_library",
        LIBRARY_PATH,
        "nvidia/nccl/lib/libnccl.so.2",
        "Load an installed library before the watched module is imported.",
    ),
    Verb(
        "preload_dependencies",
        LIBRARY_PATH,
        "onnxruntime/capi/libonnxruntime_providers_cuda.so",
        "Load what a library needs and the loader would not find, before the import.",
    ),
)
