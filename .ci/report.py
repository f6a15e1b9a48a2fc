"""Tell what took long, and fail if a test was skipped in every run: nobody has seen it pass.

Usage: report.py [--allow=REASON] [--stages=FILE] RESULT.xml ...   (JUnit files of pytest)

REASON is the beginning of a reason that is no failure, as what it takes cannot be installed here.
FILE has a line per stage, seconds and name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from xml.etree import ElementTree as ET

SLOWEST = 20


def main() -> int:
    """Compare the results of all runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("--stages", type=Path)
    parser.add_argument("results", nargs="+", type=Path)
    options = parser.parse_args()
    skipped: dict[str, str] = {}
    ran: set[str] = set()
    times: list[tuple[float, str, str]] = []
    for path in options.results:
        for case in ET.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            times.append((float(case.get("time") or 0), path.stem, name))
            reason = case.find("skipped")
            if reason is None or reason.get("type") == "pytest.xfail":
                ran.add(name)
            else:
                skipped[name] = reason.get("message") or ""
    print(f"-- slowest {SLOWEST} tests, with what they prepare")
    for seconds, run, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"{seconds:7.1f} s  {run}: {name}")
    print("-- stages")
    for line in options.stages.read_text().splitlines() if options.stages else ():
        seconds, _, name = line.partition(" ")
        print(f"{int(seconds) // 60:4d} min {int(seconds) % 60:02d} s  {name}")
    print("-- skipped")
    skipped_always = sorted(skipped.keys() - ran)
    for name in skipped_always:
        print(f"skipped in every run: {name}: {skipped[name]}")
    allowed = (*options.allow, "\0")
    never = [name for name in skipped_always if not skipped[name].startswith(allowed)]
    runs = len(options.results)
    print(f"{len(ran)} tests ran in at least one of {runs} runs, {len(never)} in none")
    return 1 if never or not ran else 0


if __name__ == "__main__":
    raise SystemExit(main())
