"""Symbol scope: keep libraries that a rule names out of the global scope.

Prevention only: the mode of a load is changed before it happens, so nothing has to be put back.
"""

from __future__ import annotations

from cudaguard.core.patterns import matches, values_of
from cudaguard.files import os
from cudaguard.system.symbol_families import FAMILIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from cudaguard.model import Rule


def names_library(rule: Rule, library: str) -> bool:
    """Return True if the rule names this library as one to keep out of the global scope."""
    return matches(os.path.basename(library), values_of(rule, "load_local", "hide_symbols"))


def packages_of(rule: Rule) -> frozenset[str]:
    """Return the top-level packages that a rule is about, in lower case.

    Folders are named after modules (``decord``), what wheels bundle after the distribution
    (``eva_decord.libs``).
    """
    from cudaguard.system.versions import required_name

    names = (
        *(name.partition(".")[0] for name in rule.watch),
        *(required_name(item).replace("-", "_") for item in rule.dist),
    )
    return frozenset(name.lower() for name in names)


def pattern_of_names(words: tuple[str, ...]) -> re.Pattern[bytes]:
    """Return what matches a name, its zero byte included, in a string table of an ELF file."""
    import re

    names = [n for word in words for n in (FAMILIES[word].names if word in FAMILIES else (word,))]
    # Nothing runs past the zero byte, so that names need not be cut out one by one.
    bodies, stars = list[str](), 0
    for name in names:
        body, *rest = (r"[^\0]".join(map(re.escape, part.split("?"))) for part in name.split("*"))
        for part in rest[:-1]:  # an inner star takes the least, and never more: one pass is all
            stars += 1
            body += rf"(?=(?P<s{stars}>[^\0]*?{part}))(?P=s{stars})"
        bodies.append(body + "".join(rf"[^\0]*{part}" for part in rest[-1:]))
    return re.compile(rf"(?:{'|'.join(bodies) or '(?!)'})\0".encode())
