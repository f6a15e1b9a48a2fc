"""Every shared object of this environment: what is foretold against what the loader does.

The truth is ``dlopen(RTLD_NOW)`` in a forked process, each file in one of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import LOADER

# Run in a child process: prints one line for each file that was judged wrongly, and the counts.
JUDGE = """
import os, signal, sys
for name in sys.argv[2:]:
    __import__(name)
from cudaguard.elf.forecast import forecast

LOADER
def truth(path):
    reads, writes = os.pipe()
    if not (child := os.fork()):
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        signal.alarm(60)
        found = load(os.fsencode(path), os.RTLD_NOW)
        os.write(writes, b"" if found else said() or b"?")
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        words = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return words or (f"ended with status {status}" if status else "")

def files(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if ".so" in name and not os.path.islink(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\\x7fELF":
                        yield path

counts = dict.fromkeys(("TP", "TN", "FP", "FN", "unknown"), 0)
for path in sorted(files(sys.argv[1])):
    found, words = forecast(path), truth(path)
    if found.problem == "unknown":
        kind = "unknown"
    elif found.is_fine:
        kind = "FN" if words else "TN"
    else:
        kind = "TP" if words else "FP"
    counts[kind] += 1
    if kind in ("FP", "FN", "unknown"):
        print(kind, path, found._replace(symbols=found.symbols[:5]), words)
print(*counts.values())
""".replace("LOADER", LOADER)


def judged_rightly(lines, place, capsys):
    """Show the counts, and that no file was judged wrongly; returns of how many that is known."""
    *wrong, counts = lines
    hits, right, alarms, missed, unknown = map(int, counts.split())
    with capsys.disabled():
        print(f"\n{place}: {hits} TP, {right} TN, {alarms} FP, {missed} FN, {unknown} unknown")
    assert (alarms, missed, unknown) == (0, 0, 0), "\n".join(wrong)
    return hits + right


@pytest.mark.parametrize("folder", ["site-packages", "lib-dynload"])
def test_no_false_alarm_and_no_miss_in_this_environment(child, capsys, folder):
    import sysconfig

    place = Path(sysconfig.get_path("platlib"))
    if folder == "lib-dynload":
        place = Path(sysconfig.get_path("stdlib")) / folder  # of the base installation
    lines = child.python(JUDGE, place, timeout=600).stdout.splitlines()
    assert judged_rightly(lines, place, capsys) > 5 or not list(place.rglob("*.so"))


def test_the_truth_can_say_no(build, child):
    """Two that fail, one that loads: the judge counts them."""
    build("one.so", "int absent_f(void); int call(void) { return absent_f(); }")
    path = build("two.so", "int fine(void) { return 1; }")
    path.with_name("three.so").write_bytes(path.read_bytes()[:900])
    line = child.python(JUDGE, build.folder).stdout.splitlines()[-1]
    assert line == "2 1 0 0 0", sys.version
