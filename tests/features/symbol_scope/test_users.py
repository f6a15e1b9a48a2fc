"""Who is bound to hidden names, by every way in which a library can refer to a name.

The package `taker` loads its library with RTLD_GLOBAL. A library that comes later defines the same
names, refers to one of them, and is given the taker's.
"""

from __future__ import annotations

import platform
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() not in ("x86_64", "aarch64")
    or not platform.libc_ver()[0].startswith("glibc"),
    reason="hiding is supported on x86-64 and AArch64 with glibc only",
)

NAMES = """
int plain(void) { return OWNER; }
int variable = OWNER;
int spare = OWNER;
static int choice(void) { return OWNER; }
static void *choose(void) { return choice; }
int chosen(void) __attribute__((ifunc("choose")));
"""
PACKAGE = """
import ctypes, os
library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libtaker.so"), ctypes.RTLD_GLOBAL)
"""
LOAD = """
import ctypes
user = ctypes.CDLL("./libuser.so")
print(user.ask())
"""
HIDE = """
import cudaguard
action = {"hide_symbols": "libtaker.so", "names": NAMES}
cudaguard.install("fix", rules=[cudaguard.Rule("L1", ("taker",), "Taken.", actions=(action,))])
print(user.ask())
for found in cudaguard.status().findings:
    print(*found.evidence)
"""
EVERYTHING = ["plain", "variable", "chosen"]
TAKEN, OWN = "1", "2"

WAYS = {
    "call": ("return plain();", ()),
    "call-now": ("return plain();", ("-Wl,-z,now",)),
    "variable": ("return variable;", ()),
    "address": ("int (*volatile it)(void) = plain; return it();", ()),
    "table": ("return table[0]();", ()),
    "constant-table": ("return constant[0]();", ()),
    "chosen": ("return chosen();", ("-Wl,-z,now",)),
    "chosen-address": ("int (*volatile it)(void) = chosen; return it();", ()),
}


@pytest.fixture
def lines(pair, compiler):
    """Returns what is printed where the two are run in an order, and names of the taker hidden."""
    pair.child.write("taker/__init__.py", PACKAGE)

    def lines(way: str, first: str, names: list[str]) -> list[str]:
        body, flags = WAYS[way]
        tables = {
            "table": "int (*table[])(void) = {plain};\n",
            "constant-table": "int (*const constant[])(void) = {plain};\n",
        }
        source = f"{NAMES}{tables.get(way, '')}int ask(void) {{ {body} }}\n"
        for file, text, *how in (
            ("taker/libtaker.so", NAMES, "-DOWNER=1"),
            ("libuser.so", source, "-DOWNER=2", *flags),
        ):
            built = compiler.library(file.rpartition("/")[2], text, *how)
            (pair.child.folder / file).write_bytes(built.read_bytes())
        return pair.bare(first, LOAD, "import taker", f"NAMES = {names!r}", HIDE).lines

    return lines


@pytest.mark.parametrize("way", WAYS)
def test_user_is_named_by_whichever_way_it_refers(lines, way):
    before, after, evidence = lines(way, "import taker", EVERYTHING)
    assert (before, after) == (TAKEN, TAKEN)
    assert evidence.endswith("; still bound to them: libuser.so (1 reference)")


@pytest.mark.parametrize("way", WAYS)
def test_who_came_first_or_is_bound_to_other_names_is_not(lines, way):
    assert lines(way, "", EVERYTHING) == [OWN, OWN]
    assert lines(way, "import taker", ["spare"]) == [TAKEN, TAKEN]
