"""Fail if a test was skipped in every run: then nobody has ever seen it pass.

Usage: skipped_everywhere.py [--allow=REASON] RESULT.xml ...   (JUnit files of pytest)

REASON is the beginning of a reason that is no failure, as what it takes cannot be installed here.
"""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET


def main(arguments: list[str]) -> int:
    """Compare the results of all runs."""
    allowed = tuple(a.partition("=")[2] for a in arguments if a.startswith("--allow="))
    paths = [argument for argument in arguments if not argument.startswith("--")]
    skipped: dict[str, str] = {}
    ran: set[str] = set()
    for path in paths:
        for case in ET.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            reason = case.find("skipped")
            if reason is None:
                ran.add(name)
            else:
                skipped[name] = reason.get("message") or ""
    skipped_always = sorted(skipped.keys() - ran)
    for name in skipped_always:
        print(f"skipped in every run: {name}: {skipped[name]}")
    never = [name for name in skipped_always if not skipped[name].startswith(allowed or "\0")]
    print(f"{len(ran)} tests ran in at least one of {len(paths)} runs, {len(never)} in none")
    return 1 if never or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
