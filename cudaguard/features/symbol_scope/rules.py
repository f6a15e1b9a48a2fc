"""Symbol scope: one library's names taken for another's."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import Verb, github

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG001",
        title="decord exposes its old zlib and FFmpeg to every library loaded after it",
        watch=("decord",),
        dist=("decord<=0.6.0", "eva-decord"),
        when={"platform": "linux"},
        actions=({"load_local": "libdecord.so*"},),
        why="decord loads libdecord.so with RTLD_GLOBAL. Libraries loaded later can use its old "
        "zlib, FFmpeg and C++ runtime. OpenCV then reads a PNG as None, and torch extensions "
        "crash or compute wrong numbers. Importing torch first is not enough.",
        links=github(
            "dmlc/decord/issues/293 dmlc/decord/issues/324 dmlc/decord/issues/329 "
            "NVlabs/nvdiffrast/issues/216 huggingface/transformers/issues/36676 "
            "vllm-project/vllm/issues/9993"
        ),
        verified="2026-11-20: decord 0.6.0, eva-decord 0.6.1; opencv-python-headless 4.10.0.84",
    ),
    Rule(
        id="CG002",
        title="tensorflow exposes its LLVM to every library loaded after it, and triton aborts",
        watch=("tensorflow",),
        dist=("tensorflow>=2.20", "tensorflow-cpu>=2.20"),
        when={"platform": "linux", "dists": {"triton": ">=3.7"}},
        actions=({"load_local": "libtensorflow_*.so*"},),
        why="tensorflow loads its libraries with RTLD_GLOBAL. libtriton then resolves LLVM "
        "symbols to tensorflow's copy. It aborts with 'registered more than once' or "
        "'inconsistency in registered CommandLine options'. Importing torch first does "
        "not help.",
        links=github(
            "tensorflow/tensorflow/issues/124205 tensorflow/tensorflow/pull/124230 "
            "PythonOT/POT/issues/839"
        ),
        verified="2026-11-20: tensorflow-cpu 2.20.0 with triton 3.9.0",
    ),
)

VERBS = (
    Verb(
        "load_local",
        "scoped pattern",
        "libdecord.so*",
        "Load matching libraries with local symbol scope, even where RTLD_GLOBAL is asked for.",
        {
            "opening": "repair:keep_local",
            "masking": "repair:leave_global",
            "late": "repair:check_libraries_before",
        },
    ),
)
CATEGORY = "SymbolScopeWarning"
DETECTORS = {"detector:ScopeDetector": (), "cxx_runtimes:RuntimeDetector": ()}
