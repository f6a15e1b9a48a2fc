"""PyQt5 beside OpenCV, whose import says where Qt is to look for plugins; both are stand-ins."""

from __future__ import annotations

import textwrap

import pytest

INSTALL = "import cudaguard; cudaguard.install()\n"
FOUND = "\nprint([f.id for f in cudaguard.status().findings])"
QT = "QT_QPA_PLATFORM_PLUGIN_PATH"
SETS = f"""
import os, time
os.environ["{QT}"] = os.path.join(os.path.dirname(__file__), "qt", "plugins")
def imshow(*args):
    print(args, "{QT}" in os.environ)
    1 / len(args)
namedWindow = time.time  # a built-in
"""
ASK = f"""
import os
def ask(): print("{QT}" in os.environ)
"""


def run(child, code, **how):
    return child.python(INSTALL + textwrap.dedent(code) + FOUND, **how)


@pytest.fixture
def plugins(child):
    """OpenCV, which sets where Qt looks for plugins; and PyQt5 as is installed beside it."""
    child.write("cv2/__init__.py", SETS)
    child.write("PyQt5/__init__.py", "")
    return child


def test_opencv_has_its_plugins_for_its_first_window_and_nobody_else(plugins):
    code = """
    import cv2
    ask()
    try: cv2.imshow()  # opens none
    except ZeroDivisionError as error: print(error.__traceback__.tb_next.tb_frame.f_code.co_name)
    ask()
    cv2.imshow(1)
    ask()
    cv2.imshow(2)
    print(cv2.namedWindow.__class__.__name__)
    print(any("QT_QPA" in one.name for one in cudaguard.status().events))
    import importlib; importlib.reload(cv2)
    ask()
    cudaguard.uninstall()
    ask()
    """
    done = run(plugins, ASK + textwrap.dedent(code))
    shown = done.stdout.splitlines()
    assert shown[:6] == ["False", "() True", "imshow", "False", "(1,) True", "False"]
    assert shown[6:] == ["(2,) False", "builtin_function_or_method", "True", "False", "True", "[]"]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_opencv_keeps_its_plugins_where_nothing_is_repaired(plugins, mode):
    done = run(plugins, ASK + "import cv2\nask()", env={"CUDAGUARD": mode})
    assert (done.stdout, done.stderr) == ("True\n[]\n", "")


def test_opencv_keeps_its_plugins_without_another_qt_and_where_the_program_says_so(plugins):
    code = f"import cv2\nask()\nos.environ['{QT}'] = '/qt'\ncudaguard.uninstall()\nask()"
    (plugins.folder / "PyQt5").rename(plugins.folder / "PyQt6")
    assert run(plugins, ASK + code).stdout == "True\nTrue\n[]\n"


def test_built_in_function_stays_one(plugins):
    done = run(
        plugins,
        """
        import copy, cv2, pickle
        class Viewer:
            clock = cv2.namedWindow
        print(Viewer().clock() > 0, copy.copy(cv2.namedWindow) is cv2.namedWindow)
        print(repr(cv2.namedWindow), cv2.namedWindow.__name__, callable(cv2.namedWindow))
        """,
    )
    assert done.stdout.splitlines()[0].startswith("True ")
    assert done.stdout.splitlines()[1] == "<built-in function time> time True"
