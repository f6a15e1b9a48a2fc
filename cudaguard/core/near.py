"""What was probably meant by a word or an id that is not known."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LIKENESS = 0.7  # of 1: "demolish" is not meant to be a verb of ours
_LOOKS_LIKE = str.maketrans("OQIL", "0011")  # letters that are taken for digits


def closest(word: object, names: Iterable[str]) -> str:
    """Return the name that is most like a word; empty if none is like it."""
    from difflib import get_close_matches

    if not isinstance(word, str):
        return ""
    return next(iter(get_close_matches(word, names, 1, _LIKENESS)), "")


def same_id(id: str, known: Iterable[str]) -> str:
    """Return a known id as it is spelled, given in upper or lower case; empty if there is none."""
    known = tuple(known)
    if id in known:
        return id
    return next((one for one in known if one.casefold() == id.casefold()), "")


def closest_id(id: str, known: Iterable[str]) -> str:
    """Return the known id that was probably meant, as in CG001 for ``cg0O1`` or ``CG1``."""
    known = tuple(known)
    spelled = {one.upper(): one for one in known}
    word = id.strip().upper()
    letters = word.rstrip("0123456789OQIL")
    number = word[len(letters) :].translate(_LOOKS_LIKE)
    padded = f"{letters.rstrip('-_ ')}{number.zfill(3)}" if number else ""
    if len(number) == 3 and word not in spelled:  # any other id is as near
        return spelled.get(padded, "")
    return spelled.get(padded) or spelled.get(closest(word, spelled), "")
