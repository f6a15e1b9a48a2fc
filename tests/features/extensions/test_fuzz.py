"""Damaged files: an answer each time, soon, in little memory, and never a crash.

All of a run happens in one child process with a limit of memory and time, as a crash or a hang
would take the tests along.
"""

from __future__ import annotations

import json
import random
import struct

import pytest

from cudaguard.system.extensions import CAUSES

LIMITED = """
import json, resource, sys, time
import cudaguard
path, before = sys.argv[1], json.loads(sys.argv[2])
cudaguard.check_extension(path)
size = 1 << 20
resource.setrlimit(resource.RLIMIT_AS, (1200 * size, 1200 * size))
with open(path, "rb") as file:
    whole = file.read()
slowest = 0
told = set()
for changes in before:
    content = bytearray(whole)
    for place, value in changes["words"]:
        content[place:place + 8] = (value & (1 << 64) - 1).to_bytes(8, "little")
    with open(path, "wb") as file:
        file.write(content[:changes["length"]])
    start = time.perf_counter()
    check = cudaguard.check_extension(path)
    slowest = max(slowest, time.perf_counter() - start)
    told.add((check.ok, check.cause))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"slowest": slowest, "peak": peak, "told": sorted(map(str, told))}))
"""
ODD = (0, 1, 2, 24, 2**16, 2**20, 2**31, 2**32 - 1, 2**47, 2**63, 2**64 - 1)


@pytest.fixture
def extension(build):
    """An extension with versions, both hash tables, libraries and relocations."""
    return build.module(
        "fuzzed", "-Wl,--hash-style=both", "-lm", "-Wl,-rpath,$ORIGIN/x",
        body="#include <math.h>\nint absent_f(void); double f(double x) { return cos(x); }",
        call="absent_f();",
    )  # fmt: skip


def places(content: bytes) -> list[tuple[int, int]]:
    """Return where it hurts: headers, dynamic section, and what that points to."""
    table, count = struct.unpack_from("<Q", content, 32)[0], content[56]
    heads = [struct.unpack_from("<IIQQQQQQ", content, table + 56 * n) for n in range(count)]
    (dynamic, length) = next((h[2], h[5]) for h in heads if h[0] == 2)
    found = [(0, 64), (table, 56 * count), (dynamic, length)]
    end, known = len(content), (4, 5, 6, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE)
    for tag, value in struct.iter_unpack("<QQ", content[dynamic : dynamic + length]):
        if tag in known and value < end:
            found.append((value, 512))
    return found


def test_three_hundred_damaged_files(extension, child):
    whole = extension.read_bytes()
    chance = random.Random(20261120)
    hurting = places(whole)
    changes = []
    for _ in range(300):
        words = []
        for _ in range(chance.randint(1, 5)):
            start, length = chance.choice([*hurting, (0, len(whole) - 8)])
            place = min(start + chance.randrange(length), len(whole) - 8)
            value = chance.choice(ODD) if chance.random() < 0.6 else chance.getrandbits(64)
            words.append((place, value))
        length = chance.choice([len(whole)] * 4 + [chance.randrange(len(whole))])
        changes.append({"words": words, "length": length})
    found = json.loads(child.python(LIMITED, extension, json.dumps(changes), timeout=100).stdout)
    assert found["slowest"] < 5, found
    assert found["peak"] < 700_000, found  # kilobytes
    assert len(found["told"]) > 3  # the damage was of several kinds
    for pair in found["told"]:
        ok, cause = pair.strip("()").split(", ")
        assert ok in ("True", "False", "None")
        assert cause.strip("'") in (*CAUSES, "None")
