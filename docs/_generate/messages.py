"""docs/reference/messages.md: the approved texts of the gallery (see ``tests/gallery.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _generate import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ROOT / "tests" / "words"
SECTIONS = {
    "symbol_scope": "Symbol scope",
    "import_order": "Import order and preloaded libraries",
    "duplicate_libraries": "Libraries loaded twice",
    "extensions": "Extensions that do not load",
    "cuda_init": "CUDA contexts, forks and environment variables",
    "array_interface": "Arrays",
    "gpu_architectures": "GPUs that compilers do not support",
    "cuda_graphs": "CUDA graphs",
    "builds": "Builds",
    "windows_runtime": "Windows",
    "doctor": "The environment",
    "core": "The guard itself",
}
HOW = {"stub": ", with a stub of the CUDA driver", "sample": ", from sample facts"}


def messages() -> str:
    """Return all messages, by what they are about."""
    lines: list[str] = []
    for feature, title in SECTIONS.items():
        lines += [f"## {title}", ""]
        for path in sorted((WORDS / feature).glob("*.txt"), key=_approved):
            text, severity, how = _approved(path)
            lines += [
                f"{severity.capitalize()}{HOW.get(how, '')}:",
                "```text",
                text,
                "```",
                "",
            ]
    return "\n".join(lines)


def _approved(path: Path) -> tuple[str, str, str]:
    head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return text.strip("\n"), fields["severity"], fields["how"]
