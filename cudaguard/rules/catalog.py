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
            "None, torch extensions crash or compute wrong numbers. Importing torch first does "
            "not cure it; local scope does."
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
}
