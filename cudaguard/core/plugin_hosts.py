"""Which plug-in of a host program a line is part of: a custom node of ComfyUI, an extension of Kit.

A host imports what its users have put into a folder, and what breaks there is the host's error. Who
has to act is the user of one plug-in, so it is named.

Sources: ComfyUI's ``nodes.py`` and its manager, which installs ``requirements.txt``; Omniverse Kit
(Isaac Sim), whose extensions have a ``config/extension.toml``.
"""

from __future__ import annotations

import re
import sys

from cudaguard.files import LARGEST, os, ours, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from cudaguard.model import Finding

_NODES = "custom_nodes"
_KIT = os.path.join("config", "extension.toml")
_DEEPEST = 8  # folders of an extension above its module
_WORD = re.compile(r"\w[\w.-]*")
_FIRST = re.compile(r"(?m)^[ \t]*(\w[\w.-]*)")  # the name in each line of a requirements.txt


def with_plugin(finding: Finding) -> Finding:
    """Return a finding whose evidence names the plug-in that led there, if one did."""
    place = _innermost()
    if not place:
        return finding
    told, folder = place
    listed = _required(folder) & set(map(_normal, _WORD.findall(finding.what)))
    if listed:
        told += f"; its requirements.txt lists {', '.join(sorted(listed))}"
    first, rest = finding.evidence[:1], finding.evidence[1:]
    return finding.replace(evidence=(*first, told, *rest))


def _innermost() -> tuple[str, str] | None:
    """Return what the innermost frame of a plug-in is part of, in words, and its folder."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[str] = set()
    while frame is not None:
        file = frame.f_code.co_filename
        found = plugin_of(file) if file not in seen else None
        if found is not None:
            return found
        seen.add(file)
        frame = frame.f_back
    return None


def plugin_of(file: str) -> tuple[str, str] | None:
    """Return what a file is part of, in words, and the folder of that; None if of no plug-in."""
    before, separator, after = file.rpartition(f"{os.sep}{_NODES}{os.sep}")
    if separator:
        name = after.partition(os.sep)[0]
        return f"part of the ComfyUI custom node {name}", os.path.join(before, _NODES, name)
    folder = os.path.dirname(file) if os.path.isabs(file) else ""
    for _ in range(_DEEPEST):
        if len(folder) < 2 or "-packages" in os.path.basename(folder):
            break
        if os.path.isfile(os.path.join(folder, _KIT)):
            return f"part of the Kit extension {os.path.basename(folder)}", folder
        folder = os.path.dirname(folder)
    return None


def _required(folder: str) -> set[str]:
    try:
        text = read_bytes(os.path.join(folder, "requirements.txt"), LARGEST)
    except ours(OSError, ValueError):
        return set()
    return {_normal(name) for name in _FIRST.findall(text.decode("utf-8", "replace"))}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()
