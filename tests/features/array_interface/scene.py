"""Stand-ins for libraries whose arrays and readers rules name, and the children that use them.

`lib` is a consumer that nothing is known of: it is spared a stream None, and everything that does
not conform.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

LIB = '''
class Image:
    """An image."""

    def __init__(self, buffer, layout="HW", *, copy=False):
        """Takes a buffer."""
        self.buffer, self.layout, self.copy = buffer, layout, copy
        self.entries = buffer.__cuda_array_interface__


def upload(buffer, layout="HW", *, copy: bool = False) -> Image:
    """Makes an image."""
    image = Image.__new__(Image)
    image.buffer, image.layout, image.copy = buffer, layout, copy
    image.entries = buffer.__cuda_array_interface__
    return image


class Array:
    """An array."""

    def __init__(self, interface):
        self.interface, self.reads = interface, 0

    @property
    def __cuda_array_interface__(self):
        """What it exports."""
        self.reads += 1
        return self.interface


raw_init, raw_upload, raw_export = Image.__init__, upload, Array.__cuda_array_interface__
'''
SCENE = """
import os, sys
import cudaguard
from arrays import Producer, interface, make

RULE = cudaguard.Rule(
    id="LOCAL1", watch=("lib",), why="test",
    actions=(
        {"normalize_argument": "Image.__init__", "parameter": "buffer"},
        {"normalize_argument": "upload", "parameter": "buffer"},
        {"fix_array_interface": "Array"},
    ),
)

def found():
    return " ".join(f"{f.id}:{f.severity}" for f in cudaguard.status().findings) or "nothing"

def install(mode="fix", **more):
    return cudaguard.install(mode, rules=[RULE], **more)

def is_raw():
    import lib
    parts = (("Image", lib.Image.__init__ is lib.raw_init),
             ("upload", lib.upload is lib.raw_upload),
             ("Array", vars(lib.Array)["__cuda_array_interface__"] is lib.raw_export))
    return " ".join(name for name, is_raw in parts if is_raw) or "none"

class Failing:
    def __init__(self, error):
        self.error, self.reads = error, 0

    @property
    def __cuda_array_interface__(self):
        self.reads += 1
        raise self.error
"""
ENTRIES = ("lib.Image", "lib.upload")
ALL_RAW = "Image upload Array"


@pytest.fixture
def run(child):
    """Runs code behind `SCENE`, returns what it printed."""
    child.write("lib.py", LIB)
    producers = Path(__file__).with_name("producers.py").read_text(encoding="utf-8")
    child.write("arrays.py", producers)

    def run(code, *, before="", **how):
        # The warnings that were printed, for those who look.
        path = child.write("program.py", f"{before}\n{SCENE}\n")
        with open(path, "a", encoding="utf-8") as file:
            file.write(code)
        done = child.command(sys.executable, path, timeout=60, **how)
        run.err = done.stderr
        run.warnings = [line for line in done.stderr.splitlines() if "Warning: [CG" in line]
        return done.stdout.splitlines()

    run.child = child
    return run
