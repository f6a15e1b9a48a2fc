"""Fail if a test was skipped in every run: then nobody has ever seen it pass.

Usage: skipped_everywhere.py RESULT.xml ...   (JUnit files of pytest)
"""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET


def main(paths: list[str]) -> int:
    """Compare the results of all runs."""
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
    never = sorted(skipped.keys() - ran)
    for name in never:
        print(f"skipped in every run: {name}: {skipped[name]}")
    print(f"{len(ran)} tests ran in at least one of {len(paths)} runs, {len(never)} in none")
    return 1 if never or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
