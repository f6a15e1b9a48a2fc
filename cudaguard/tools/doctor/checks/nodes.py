"""CG919: what custom nodes of ComfyUI require of the field's packages, and what is installed.

Each node has a ``requirements.txt``, which ComfyUI's manager hands to pip one after the other: the
last one wins, and nothing says which nodes no longer have what they asked for.
"""

from __future__ import annotations

import os
import re
import sys

from cudaguard.core.checks import Check
from cudaguard.files import read_bytes
from cudaguard.system.site import Skipped
from cudaguard.tools.doctor.checks import nodes_messages as wording
from cudaguard.tools.doctor.checks.nodes_messages import NodeWant
from cudaguard.tools.doctor.inventory.field import is_of_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.system.site import Result, Site

_NODES = "custom_nodes"
_LIST = "requirements.txt"
_LARGEST = 1 << 20  # bytes of such a list
_NAME = re.compile(r"\s*(\w[\w.-]*)")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def check(site: Site) -> Result:
    """Compare the lists of the nodes, and that of ComfyUI, with what is installed."""
    root = _root()
    if not root:
        raise Skipped("no ComfyUI is in this folder, nor beside this environment")
    unmet: dict[str, list[NodeWant]] = {}
    lists = list(_lists(root))
    for name, path in lists:
        for want in _wants(site, name, path):
            unmet.setdefault(want.key, []).append(want)
    findings = [
        wording.other_release(wants, site.version(key) or "") for key, wants in unmet.items()
    ]
    return findings, f"lists of requirements: {len(lists)}"


def _root() -> str:
    """Return the folder of a ComfyUI, empty if none is where one would look."""
    beside = os.path.dirname(sys.prefix)  # ComfyUI/venv, or python_embeded beside ComfyUI
    for folder in (os.curdir, beside):
        for place in (folder, os.path.join(folder, "ComfyUI")):
            is_there = os.path.isdir(os.path.join(place, _NODES))
            if is_there and os.path.isfile(os.path.join(place, "nodes.py")):
                return os.path.abspath(place)
    return ""


def _lists(root: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each node that is not switched off, "" for ComfyUI, and its list."""
    for name in ("", *sorted(os.listdir(os.path.join(root, _NODES)))):
        path = os.path.join(root, _NODES, name, _LIST) if name else os.path.join(root, _LIST)
        if not name.startswith(".") and not name.endswith(".disabled") and os.path.isfile(path):
            yield name, path


def _wants(site: Site, node: str, path: str) -> Iterator[NodeWant]:
    """Yield what a list requires in another release than is installed."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        lines = read_bytes(path, _LARGEST).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        name = _NAME.match(line)
        version = site.version(name[1]) if name and is_of_field(name[1]) else None
        if version is None:  # what is missing is told by ComfyUI itself
            continue
        try:
            wanted = Requirement(_COMMENT.sub("", line))
            is_asked = wanted.marker is None or wanted.marker.evaluate()
            failing = [
                one.operator
                for one in wanted.specifier
                if is_asked and not one.contains(version, prereleases=True)
            ]
        except (InvalidRequirement, ValueError):  # nor a version that it knows
            continue
        if failing:
            is_pin = all(operator.startswith("==") for operator in failing)
            key = canonicalize_name(wanted.name)
            yield NodeWant(node, path, key, f"{wanted.name}{wanted.specifier}", is_pin)


NODES = Check(
    "CG919",
    "requirements of ComfyUI's custom nodes",
    "The requirements.txt of ComfyUI and of each custom node, compared with what is installed: "
    "torch, NumPy, OpenCV and other packages of the field. Looked at where ComfyUI is the working "
    "directory, is in it, or is the folder of the environment.",
    check,
)
