"""Tells words that nobody has chosen from names, versions, symbols and hashes."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z0-9]+")
_HEX = re.compile(r"[0-9a-f]*|[0-9A-F]*")
_LONG_LETTERS = re.compile(r"[a-z]{4,}|[A-Z]{4,}")
_NAMED_HASH = re.compile(
    r"(?:sha|md5|git|commit|rev|build|hash|digest|blob|tree|image|layer|cache|container|tmp|lib|id|"
    r"uuid|py|cp|torch|cu|g)\d{0,3}[-_]",
    re.IGNORECASE,
)


_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAME_OR_VERSION = re.compile(r"_Z|_R|v?\d{1,4}\.\d")


def looks_random(word: str, *, is_value: bool = False) -> bool:
    """Return True if a word has letters and digits without order, as names and versions never do.

    Plain hexadecimal numbers have not: they are build ids and hashes.

    Args:
        word: The word.
        is_value: True if it follows a name that does not say that it is a hash.
    """
    if len(word) < 16 or _NAME_OR_VERSION.match(word) or _UUID.search(word):
        return False
    pieces = list(_WORD.finditer(word))
    for piece in pieces:
        if len(piece[0]) < 16:
            continue
        prefix = word[: piece.start()] if piece.start() <= 12 else ""
        if _is_random(piece[0], prefix, is_value=is_value):
            return True
    together = "".join(piece[0] for piece in pieces)
    kinds, changes, ordered = _order(together)
    return kinds == 3 and len(together) >= 20 and changes > 0.36 and ordered < 0.25


def _is_random(piece: str, prefix: str, *, is_value: bool) -> bool:
    is_prefixed = len(prefix) > 1 and prefix[-1] in "-_."
    if _HEX.fullmatch(piece):
        is_hash = _NAMED_HASH.fullmatch(prefix) is not None
        return len(piece) >= 32 and (is_value or is_prefixed) and not is_hash
    kinds, changes, ordered = _order(piece)
    if kinds == 3 and changes > 0.33 and ordered < 0.4:
        return is_prefixed or len(piece) >= 18
    # Many names of kernels are shorter words like that; long ones of two kinds have no words.
    digits = sum(map(str.isdigit, piece))
    if kinds < 2 or changes < 0.2 or digits < 4:
        return False
    is_long = len(piece) >= (20 if is_prefixed or is_value else 24)
    return (is_long and ordered < 0.6) or len(piece) >= 32


def _order(word: str) -> tuple[int, float, float]:
    """Return how many kinds of sign a word has, how often they change, how much is in letters.

    No digits count as no kinds at all.
    """
    kinds = ["0" if sign.isdigit() else "A" if sign.isupper() else "a" for sign in word]
    changes = sum(map(str.__ne__, kinds, kinds[1:])) / max(1, len(kinds) - 1)
    ordered = sum(map(len, _LONG_LETTERS.findall(word))) / max(1, len(word))
    return (len(set(kinds)) if "0" in kinds else 0), changes, ordered
