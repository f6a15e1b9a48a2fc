"""What a consumer refuses, or would take for something else: told before it gets it."""

from __future__ import annotations

from cudaguard.features.array_interface.consumers import DENSE, FORWARD, HEEDS, REFUSES
from cudaguard.features.array_interface.interface import in_c_order, item_size
from cudaguard.features.array_interface.policy.faults import refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer


def check_fit(cai: dict[str, Any], consumer: Consumer) -> None:
    """Look for what the consumer cannot be given.

    Args:
        cai: An interface that conforms to the specification.
        consumer: Who is to read it.

    Raises:
        RefusedError: There is something.
    """
    name, typestr, shape = consumer.name, cai["typestr"], cai["shape"]
    size = item_size(typestr)
    if typestr[0] == ">" and size > 1 and ">" in consumer.misreads:
        raise refused(
            "typestr", typestr, f"{name} does not read big-endian data",
            "convert it to the native byte order first",
        )  # fmt: skip
    if typestr[1] in consumer.misreads:
        rule = f"{name} does not know this type"
        raise refused("typestr", typestr, rule, "hand over a view of another type")
    if cai.get("mask") is not None and consumer.mask != HEEDS:
        how = "refuses masks" if consumer.mask == REFUSES else "takes masked elements for valid"
        raise refused("mask", cai["mask"], f"{name} {how}", "fill in the missing values first")
    if cai["data"][1] and consumer.read_only == REFUSES:
        raise refused(
            "data", cai["data"], f"{name} refuses read-only arrays", "hand over a copy",
            adjective="read-only",
        )  # fmt: skip
    if len(shape) < consumer.least_dimensions:
        least = consumer.least_dimensions
        rule = f"{name} takes arrays of at least {least} dimension{'s' * (least > 1)}"
        raise refused("shape", shape, rule, "reshape it")
    _check_strides(shape, cai.get("strides"), size, consumer)


def _check_strides(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int, consumer: Consumer
) -> None:
    if strides is None or 0 in shape:
        return
    if consumer.strides == DENSE and not in_c_order(shape, strides, size):
        rule = f"{consumer.name} takes arrays in C order without gaps only"
    elif consumer.strides == FORWARD and any(
        count > 1 and (step < 0 or step % size) for count, step in zip(shape, strides)
    ):
        rule = f"{consumer.name} takes multiples of the element's {size} bytes only, none negative"
    else:
        return
    raise refused("strides", strides, rule, "hand over a contiguous copy")
