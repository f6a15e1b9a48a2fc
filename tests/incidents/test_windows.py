"""PyQt5 beside OpenCV, whose import says where Qt is to look for plugins."""

from __future__ import annotations

import pytest

from .marks import ON_LINUX

pytestmark = ON_LINUX
OPENCV = ("opencv-python==4.10.0.84", "numpy==1.26.4", "packaging", "importlib-metadata")


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
