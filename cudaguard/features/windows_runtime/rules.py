"""The C++ runtime of Windows: all libraries of a process use the first copy."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import github

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG071",
        title="torch fails with WinError 1114 on Windows after an older C++ runtime",
        watch=(
            *("torch", "optree", "onnxruntime"),  # need a new one; the others have had an old one
            *("PyQt5", "PyQt6", "PySide2", "PySide6", "shiboken2", "shiboken6"),
            *("pyarrow", "sklearn", "wx"),
        ),
        when={"platform": "win32"},
        actions=({"load_newest_runtime": "msvcp140.dll"},),
        why="torch 2.9 and newer crash, or fail with 'OSError: [WinError 1114]' and "
        "c10.dll, if the process uses an msvcp140.dll older than 14.40.",
        links=github(
            "pytorch/pytorch/issues/166628 pytorch/pytorch/issues/169429 "
            "microsoft/STL/issues/4730 metaopt/optree/issues/278"
        ),
        verified="2026-11-25: torch 2.9.1 after PyQt5 5.15.11, PySide6 6.6.3.1 (by wine)",
    ),
)

REPAIRS = {"load_newest_runtime": dict.fromkeys(("before", "first", "late"), "repair:load_newest")}
CATEGORY = "ImportOrderWarning"
