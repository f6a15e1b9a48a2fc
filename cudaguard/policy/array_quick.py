"""The fast path: array interfaces as nearly all are, told by a few looks at types."""

from __future__ import annotations

from cudaguard.array_interface import ADDRESS_SPACE, NEWEST, in_c_order
from cudaguard.policy.array_fields import MOST_DIMENSIONS
from cudaguard.rules.consumers import ANY, HEEDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.rules.consumers import Consumer

# Types that every consumer knows by that name, and their sizes; others take the long way.
_PLAIN = {
    **{f"<{kind}{size}": size for kind in "fiu" for size in (2, 4, 8)},
    **{f"{order}{kind}1": 1 for order in "|<" for kind in "iu"},
}
_USUAL = 1 << 47  # what addresses and sizes stay below; others are looked at closely


def in_good_form(cai: Any, consumer: Consumer) -> dict[str, Any] | None:
    """Return the interface as it can be handed over, with nothing else to do or to say.

    The fast path for the most usual ones: the interface itself, or a copy without a stream None
    for a consumer that is to be spared that. None where it cannot be told so quickly.
    """
    if not is_plain(cai):
        return None
    version, stream, strides = cai["version"], cai.get("stream"), cai.get("strides")
    if (
        (stream is not None and (version != 3 or not stream or consumer.stream != HEEDS))
        or version < consumer.least_version
        or len(cai["shape"]) < consumer.least_dimensions
        or (consumer.read_only != HEEDS and cai["data"][1])
    ):
        return None
    if strides is not None and consumer.strides != ANY:
        shape = cai["shape"]
        if not in_c_order(shape, strides, _PLAIN[cai["typestr"]]):
            return None
    if stream is None and not consumer.takes_no_stream and "stream" in cai:
        spared: dict[str, Any] = cai.copy()
        del spared["stream"]
        return spared
    return cai  # type: ignore[no-any-return]  # a dict, or it were not plain


def is_plain(cai: Any) -> bool:
    """Does it conform in the most usual way? A few looks at types, no more.

    Only the stream may be 0, or be there in a version that has none.
    """
    if type(cai) is not dict or "mask" in cai:
        return False
    try:
        shape, data, typestr, version = cai["shape"], cai["data"], cai["typestr"], cai["version"]
    except KeyError:
        return False
    if (
        type(shape) is not tuple
        or len(shape) > MOST_DIMENSIONS
        or type(data) is not tuple
        or len(data) != 2
        or type(typestr) is not str
        or typestr not in _PLAIN
        or type(version) is not int
        or not 0 <= version <= NEWEST
    ):
        return False
    pointer, is_read_only = data
    if type(pointer) is not int or type(is_read_only) is not bool or not 0 < pointer < _USUAL:
        return False
    size = 1
    for count in shape:
        if type(count) is not int or count <= 0:
            return False
        size *= count
    if size > _USUAL:
        return False
    stream, strides, descr = cai.get("stream"), cai.get("strides"), cai.get("descr")
    if stream is not None and (type(stream) is not int or not 0 <= stream < ADDRESS_SPACE):
        return False
    if strides is not None and not _are_plain(strides, shape):
        return False
    if descr is not None:
        if type(descr) is not list:
            return False
        for item in descr:
            if type(item) is not tuple:
                return False
    return True


def _are_plain(strides: Any, shape: tuple[int, ...]) -> bool:
    if type(strides) is not tuple or len(strides) != len(shape):
        return False
    end = 0
    for count, step in zip(shape, strides):
        if type(step) is not int or step < 0:
            return False
        end += (count - 1) * step
    return end < _USUAL
