"""OpenCV's windows beside PyAV and PyQt5: which files they get, and what is told of it."""

from __future__ import annotations

import pytest

from .marks import ON_LINUX

pytestmark = ON_LINUX
OPENCV = ("opencv-python==4.10.0.84", "numpy==1.26.4", "packaging", "importlib-metadata")
# What a window would load, without a display: the files that its plug-in gets.
FILES = """
import ctypes, os
plugin = os.path.join(os.path.dirname(cv2.__file__), "qt", "plugins", "platforms", "libqxcb.so")
try:
    ctypes.CDLL(plugin)
except OSError:  # a library of the machine's is not here
    pass
with open("/proc/self/maps") as maps:
    files = {line.split("/site-packages/")[1].strip() for line in maps if "/libxcb" in line
             and "/site-packages/" in line}
print(any("av.libs/libxcb-shape" in file for file in files),
      any("opencv_python.libs/libxcb-shape" in file for file in files))
"""


@pytest.fixture
def run(child, cached_environment, root):
    """Runs code beside one release of PyAV, with this checkout on the path."""

    def run(av, code):
        python = cached_environment(f"av=={av}", *OPENCV)
        return child.python(code, python=str(python), env={"PYTHONPATH": str(root)}, check=False)

    return run


def test_files_that_a_window_gets(run):
    """The plug-in's own are not even loaded where PyAV has files of the same names."""
    assert run("14.0.1", f"import cv2{FILES}").stdout == "False True\n"
    assert run("14.0.1", f"import cv2, av{FILES}").stdout == "True False\n"
    assert run("18.1.0", f"import cv2, av{FILES}").stdout == "True True\n"


@pytest.mark.parametrize(("release", "is_told"), [("14.0.1", True), ("18.1.0", False)])
def test_window_is_told_of(run, release, is_told):
    """The call ends the process, for want of a display; what is told comes before."""
    code = "import cudaguard; cudaguard.install()\nimport cv2, av\ncv2.namedWindow('frame')\n"
    said = run(release, code).stderr
    assert ("[CG062] cv2.namedWindow() was called at <string>:3 after av" in said) is is_told
    assert ("av.libs/libxcb-" in said) is is_told


@pytest.mark.parametrize("first", ["cv2", "PyQt5.QtWidgets"])
def test_pyqt5_does_not_look_for_plugins_of_opencv(child, cached_environment, root, first):
    """It ends all the same, for want of a display; unguarded it would with one as well."""
    python = cached_environment("PyQt5==5.15.11", *OPENCV)
    code = f"import cudaguard; cudaguard.install()\nimport {first}, cv2\n"
    code += "from PyQt5.QtWidgets import QApplication\nQApplication([])"
    said = [
        child.python(
            code,
            python=str(python),
            env={"PYTHONPATH": str(root), "CUDAGUARD": mode, "QT_QPA_PLATFORM": "xcb"},
            check=False,
        ).stderr
        for mode in ("off", "fix")
    ]
    assert ['platform plugin "xcb" in "/' in one for one in said] == [True, False]
    assert all("no Qt platform plugin could be initialized" in one for one in said)
