"""Random programs: each order that may be kept is kept, and nothing else is changed.

What may be is read off the program as it runs without the guard: which of the two came first, and
whether anything was done in between that the second may depend on.
"""

from __future__ import annotations

import json
import random
import sys

import pytest

PACKAGES = ("alpha", "beta", "gamma", "delta")
PLAIN = (
    "X = 1",
    "'text'",
    "def f(x=1): return x",
    "import json",
    "class A:\n    x: int = 1",
    "print()",
)
EFFECTS = ("note()", "os.environ['X'] = note()", "x = [note()]", "if note(): pass")
# `seen`: what had been imported when something was done.
HELPERS = f"""
import atexit, os, sys
names = {PACKAGES}
seen = []
def order():
    return [name for name in sys.modules if name in names or name.startswith(("own", "pack"))]
def note():
    seen.append([name for name in order() if name in names])
    return "1"
def tell():
    import json
    with open("told.json", "w") as file:
        json.dump([order(), seen], file)
atexit.register(tell)
"""


def program(seed):
    """Return the files of a program, and its rules: pairs of (module, what it needs)."""
    choose = random.Random(seed)
    modules = [f"own{n}" for n in range(choose.randrange(1, 6))]
    modules += [f"pack.part{n}" for n in range(choose.randrange(1, 6))]
    choose.shuffle(modules)
    files = {"helpers.py": HELPERS, "pack/__init__.py": "", "main.py": ""}

    def spelled(inside, name):
        top, _, part = name.rpartition(".")
        ways = [f"import {name}"]
        if top:
            ways.append(f"from {top} import {part}")
        if top and inside.startswith("pack."):
            ways.append(f"from . import {part}")
        if not top:
            ways.append(f"from {name} import NAME")
        return choose.choice(ways)

    def body(inside, later):
        lines = []
        for _ in range(choose.randrange(1, 6)):
            kind = choose.random()
            if kind < 0.35 and later:
                lines.append(spelled(inside, choose.choice(later)))
            elif kind < 0.65:
                lines.append(spelled(inside, choose.choice(PACKAGES)))
            else:
                lines.append(choose.choice(PLAIN if choose.random() < 0.6 else EFFECTS))
        return "\n".join(["import os", "from helpers import note", "NAME = 1", *lines, ""])

    for number, name in enumerate(modules):
        files[f"{name.replace('.', '/')}.py"] = body(name, modules[number + 1 :])
    files["main.py"] = body("main", modules) + body("main", modules)
    for package in PACKAGES:
        files[f"site-packages/{package}.py"] = "NAME = 1\n"
    ordered = list(PACKAGES)
    choose.shuffle(ordered)
    pairs = [(b, a) for n, a in enumerate(ordered) for b in ordered[n + 1 :]]
    return files, choose.sample(pairs, choose.randrange(1, 4))


def run(child, seed, pairs, mode):
    rules = "".join(
        f'[[rules]]\nid = "ORDER{n}"\nwatch = ["{watched}"]\nneeds = ["{need}"]\ngrade = "opt-in"\n'
        'why = "why"\n'
        for n, (watched, need) in enumerate(pairs)
    )
    folder = child.folder / str(seed)
    env = {
        "CUDAGUARD": mode,
        "CUDAGUARD_CONFIG": str(child.write(f"{seed}/rules.toml", rules)),
        "PYTHONPATH": str(folder / "site-packages"),
    }
    done = child.command(sys.executable, f"{seed}/main.py", env=env)
    order, seen = json.loads((child.folder / "told.json").read_text())
    return order, seen, done


def judge(child, seeds):
    kept = told = 0
    for seed in seeds:
        files, pairs = program(seed)
        for path, text in files.items():
            child.write(f"{seed}/{path}", text)
        order, seen, plain = run(child, seed, pairs, "off")
        after, _, guarded = run(child, seed, pairs, "fix")
        assert sorted(after) == sorted(order), seed
        own = [name for name in order if name not in PACKAGES]
        assert [name for name in after if name not in PACKAGES] == own, seed
        assert guarded.stdout == plain.stdout, seed
        for watched, need in pairs:
            if watched not in order or need not in order:
                assert f"{watched} was imported before {need}" not in guarded.stderr, seed
                continue
            if order.index(need) < order.index(watched):
                assert after.index(need) < after.index(watched), seed
                continue
            is_clean = not any(watched in names and need not in names for names in seen)
            is_kept = after.index(need) < after.index(watched)
            assert is_kept is is_clean, (seed, watched, need)
            is_told = f"{watched} was imported before {need}" in guarded.stderr
            assert is_told is not is_clean, (seed, watched, need)
            kept += is_kept
            told += is_told
    return kept, told


def test_random_programs(child):
    kept, told = judge(child, range(25))
    assert min(kept, told) > 3, (kept, told)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(5))
def test_more_random_programs(child, group):
    judge(child, range(1000 + 50 * group, 1050 + 50 * group))
