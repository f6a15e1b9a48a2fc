"""Programs that show the fault of a rule, with the releases that have it, for a fresh environment.

Data only. A program ends with status 0 where all is well, with 125 where it cannot tell, and
otherwise the fault is there.
"""

from __future__ import annotations

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.model import Rule


class Reproducer(Record):
    """A program, and what it needs.

    Args:
        script: The program, its path below the package.
        pins: What pip is to install for the releases that have the fault.
        newest: What pip is to install for the newest releases.
        more: What pip is to install besides; it does not matter which release.
        only: Further rules to switch off, as they would cure it by themselves.
        is_late: The program knows cudaguard and installs it itself, where it is late.
    """

    __slots__ = ("is_late", "more", "newest", "only", "pins", "script")
    script: str
    pins: tuple[str, ...]
    newest: tuple[str, ...]
    more: tuple[str, ...]
    only: tuple[str, ...]
    is_late: bool

    def __init__(
        self,
        script: str,
        pins: Iterable[str],
        newest: Iterable[str],
        *,
        more: Iterable[str] = (),
        only: Iterable[str] = (),
        is_late: bool = False,
    ) -> None:
        self._fill(
            script=script,
            pins=tuple(pins),
            newest=tuple(newest),
            more=tuple(more),
            only=tuple(only),
            is_late=is_late,
        )


_TENSORFLOW = ("tensorflow-cpu==2.20.0", "triton==3.9.0")
# Without the hundreds of megabytes that its releases ask for and that are not imported here.
_DALI = (
    *("--no-deps", "six", "packaging", "gast", "wrapt", "astunparse", "dm-tree", "absl-py"),
    *("attrs", "numpy", "optree", "nvtx", "typing-extensions"),
)

REPRODUCERS: dict[str, Reproducer] = {
    "CG001": Reproducer(
        "tools/_demo/decord_then_opencv.py",
        ("decord==0.6.0", "opencv-python-headless==4.10.0.84"),
        ("decord", "opencv-python-headless"),
        more=("numpy",),
    ),
    "CG002": Reproducer(
        "tools/rules/_reproducers/tensorflow_then_triton.py",
        _TENSORFLOW,
        ("tensorflow-cpu", "triton"),
    ),
    "CG003": Reproducer(
        "tools/rules/_reproducers/extension_before_torch.py", ("torch==2.13.0",), ("torch",)
    ),
    "CG004": Reproducer(
        "tools/rules/_reproducers/guard_after_tensorflow.py",
        _TENSORFLOW,
        ("tensorflow-cpu", "triton"),
        only=("CG002",),
        is_late=True,
    ),
    "CG019": Reproducer(
        "tools/rules/_reproducers/arrays_for_dali.py",
        ("nvidia-dali-cuda120==1.35.0",),
        ("nvidia-dali-cuda120",),
        more=_DALI,
    ),
    "CG021": Reproducer(
        "tools/rules/_reproducers/arrays_of_dali.py",
        ("nvidia-dali-cuda120==1.35.0",),
        ("nvidia-dali-cuda120",),
        more=_DALI,
    ),
}

_NO_PROGRAM: dict[str, str] = {
    "CG005": "it takes an old NCCL of the machine itself, which pip cannot install",
    "CG007": "it takes an NVIDIA driver: without one the rule does nothing",
    "CG013": "it takes an NVIDIA driver",
    "CG020": "it takes an NVIDIA driver",
    "CG029": "it takes an NVIDIA GPU to see that the array is read",
}


def why_not(rule: Rule) -> str:
    """Return why there is no program for a rule."""
    if rule.id in _NO_PROGRAM:
        return _NO_PROGRAM[rule.id]
    if not rule.id.startswith("CG"):
        return "there are programs for the built-in rules only"
    if rule.verified is None:
        return "its fault was not reproduced: it rests on the reports that it links"
    return f"no program for a fresh environment has been written; it was seen on {rule.verified}"
