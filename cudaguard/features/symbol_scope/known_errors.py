"""What is said where a library has got symbols of another one; what it means."""

from __future__ import annotations

from cudaguard.core.known_errors import VAGUE, Explainer, KnownError

KNOWN = (
    KnownError(
        "CG877",
        "two copies of LLVM share their symbols",
        ("registered more than once", "registered CommandLine options"),
        r"CommandLine Error: Option .{1,200} registered more than once|"
        r"inconsistency in registered CommandLine options",
        "Two copies of LLVM share their symbols, such as those of tensorflow and triton.",
        "import what aborts before the other one; cudaguard trace shows which two they are",
        command="cudaguard run SCRIPT",
        links=(
            "https://github.com/tensorflow/tensorflow/issues/124205",
            "https://github.com/pytorch/pytorch/issues/90166",
        ),
        unguarded="cudaguard.install() before the first of them is imported keeps those of "
        "tensorflow and triton apart (rule CG002)",
    ),
    KnownError(
        "CG878",
        "libpng calls another zlib",
        ("libpng error",),
        r"libpng error: bad parameters to zlib",
        "libpng probably calls another library's copy of zlib, such as the one in decord.",
        "import what reads images before the library with that zlib, or use another decoder",
        command="cudaguard run SCRIPT",
        links=("https://github.com/dmlc/decord/issues/293",),
        unguarded="cudaguard.install() before decord is imported keeps its zlib to itself (rule "
        "CG001)",
        leads=True,
    ),
    KnownError(
        "CG738",
        "the C library found its heap damaged",
        (
            "free(): invalid",
            "double free or corruption",
            "munmap_chunk(): invalid",
            "corrupted size vs",
            "corrupted double-linked",
        ),
        r"free\(\): invalid (?:pointer|size)|double free or corruption|munmap_chunk\(\): invalid "
        r"pointer|corrupted (?:size vs|double-linked)",
        "The C library found its heap damaged. Where nothing but imports ran, two packages often "
        "bring C++ runtimes of their own, or share symbols.",
        "let cudaguard run say which import it was, and cudaguard bisect which order works; often "
        "import torch first cures it, or a newer build of the other package",
        command="cudaguard run SCRIPT",
        links=(
            "https://github.com/pytorch/pytorch/issues/109923",
            "https://github.com/isl-org/Open3D/issues/922",
        ),
        certainty=VAGUE,
    ),
)
EXPLAINER = Explainer(KNOWN)
