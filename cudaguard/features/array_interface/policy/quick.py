"""The fast path: array interfaces as nearly all are, told by a few looks at types."""

from __future__ import annotations

from cudaguard.features.array_interface.consumers import ANY, HEEDS
from cudaguard.features.array_interface.interface import ADDRESS_SPACE, NEWEST
from cudaguard.features.array_interface.policy.fields import MOST_DIMENSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer

# Types that every consumer knows by that name, and their sizes; others take the long way.
_PLAIN = {
    **{f"<{kind}{size}": size for kind in "fiu" for size in (2, 4, 8)},
    **{f"{order}{kind}1": 1 for order in "|<" for kind in "iu"},
}
_USUAL = 1 << 47  # what addresses and sizes stay below; others are looked at closely


def in_good_form(cai: Any, consumer: Consumer) -> dict[str, Any] | None:
    """Return the interface as it can be handed over, with nothing else to do or to say.

    That is the interface itself, or a copy without a stream None for a consumer that is to be
    spared that. None where it cannot be told so quickly. This is run for every array that is
    handed over: it is one function, and looks at each entry once.
    """
    if type(cai) is not dict or "mask" in cai:
        return None
    try:
        shape, data, typestr, version = cai["shape"], cai["data"], cai["typestr"], cai["version"]
    except KeyError:
        return None
    if (
        type(shape) is not tuple
        or type(data) is not tuple
        or len(data) != 2
        or type(typestr) is not str
        or type(version) is not int
    ):
        return None
    size, (pointer, is_read_only) = _PLAIN.get(typestr), data
    if (
        size is None
        or type(pointer) is not int
        or type(is_read_only) is not bool
        or not 0 < pointer < _USUAL
        or (is_read_only and consumer.read_only != HEEDS)
        or not consumer.least_version <= version <= NEWEST
        or not consumer.least_dimensions <= len(shape) <= MOST_DIMENSIONS
    ):
        return None
    bytes_ = size
    for count in shape:
        if type(count) is not int or count <= 0:
            return None
        bytes_ *= count
    if bytes_ > _USUAL:
        return None
    strides, stream = cai.get("strides"), cai.get("stream")
    if strides is not None and not _step_forward(shape, strides, size, consumer.strides == ANY):
        return None
    if stream is not None:
        if type(stream) is not int or not 0 < stream < ADDRESS_SPACE or version != NEWEST:
            return None
        if consumer.stream != HEEDS:
            return None
    if "descr" in cai and not _is_plain_description(cai["descr"]):
        return None
    if stream is None and not consumer.takes_no_stream and "stream" in cai:
        spared: dict[str, Any] = cai.copy()
        del spared["stream"]
        return spared
    return cai


def _step_forward(shape: tuple[int, ...], strides: Any, size: int, may_have_gaps: bool) -> bool:
    """Return True if strides lead forward, within reach, and without gaps where that is asked."""
    if type(strides) is not tuple or len(strides) != len(shape):
        return False
    end, dense = 0, size
    for at in range(len(shape) - 1, -1, -1):
        count, step = shape[at], strides[at]
        if type(step) is not int or step < 0:
            return False
        if not may_have_gaps and count != 1 and step != dense:
            return False
        end += (count - 1) * step
        dense *= count
    return end < _USUAL


def _is_plain_description(descr: Any) -> bool:
    return type(descr) is list and all(type(item) is tuple for item in descr)
