"""The wording of what custom nodes of ComfyUI require."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NODES = "CG919"


class NodeWant(NamedTuple):
    """A requirement that what is installed does not meet.

    Args:
        node: The custom node, empty for ComfyUI itself.
        path: The list that has it.
        key: The name of what is required, as names are compared.
        wanted: The same with versions, as in ``numpy<2``.
        is_pin: True if it only names one release, as a habit.
    """

    node: str
    path: str
    key: str
    wanted: str
    is_pin: bool

    @property
    def by(self) -> str:
        """Who requires it, in words."""
        return f"The ComfyUI custom node {self.node}" if self.node else "ComfyUI"


def other_release(wants: Sequence[NodeWant], version: str) -> Finding:
    """A package of which nodes require other releases than the installed one.

    Args:
        wants: What they require of that package.
        version: What is installed.
    """
    first, *others = sorted(wants, key=lambda want: want.is_pin)
    listed = [f"{want.node or 'ComfyUI'}: {want.wanted}" for want in others]
    return Finding(
        NODES,
        f"{first.by} requires {first.wanted}, but {first.key} {version} is installed.",
        severity="info" if first.is_pin else "warning",
        evidence=(first.path, *listed),
        consequence=f"its import may fail. Installing this list replaces {first.key} for all "
        "nodes.",
        remedy="update the node, or disable it; check what pip would change before you install the "
        "list",
        command=f"pip install --dry-run -r {shlex.quote(first.path)}",
    )
