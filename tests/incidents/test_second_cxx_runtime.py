"""A package that opens the libstdc++ that it brings, after NumPy has had the system's mapped.

Where the system's is older, its extensions are refused; where it is newer, two of them share their
locales, and it crashes. In any case there is one under the guard, the newest.
"""

from __future__ import annotations

from .marks import ON_LINUX
from .pins import OURS

pytestmark = ON_LINUX
PINS = ("tesseract-robotics-nanobind==0.35.0.4", "numpy==2.4.6")
USE = """
import numpy
from tesseract_robotics.tesseract_common import GeneralResourceLocator
GeneralResourceLocator()
print(len({line.split()[-1] for line in open("/proc/self/maps") if "libstdc++" in line}))
"""


def test_there_is_one(child, root, cached_environment):
    def run(mode):
        code = f"import cudaguard\ncudaguard.install({mode!r})\n{USE}"
        python, env = cached_environment(*PINS, *OURS), {"PYTHONPATH": str(root)}
        return child.command(python, "-c", code, env=env, check=False)

    assert run("off").stdout != "1\n"
    green = run("fix")
    assert (green.stdout, green.stderr) == ("1\n", "")
