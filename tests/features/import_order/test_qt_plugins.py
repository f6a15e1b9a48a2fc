"""PyQt5 beside OpenCV, whose import says where Qt is to look for plugins; both are stand-ins."""

from __future__ import annotations

import sys
import textwrap

import pytest

INSTALL = "import cudaguard; cudaguard.install()\n"
FOUND = "\nprint([f.id for f in cudaguard.status().findings])"
QT = "QT_QPA_PLATFORM_PLUGIN_PATH"
SETS = f"""
import os, time
os.environ["{QT}"] = os.path.join(os.path.dirname(__file__), "qt", "plugins")
def imshow(*args):
    print(args, is_read())
    1 / len(args)
def is_read():  # as by the functions of C
    return os.system('test -n "$'"{QT}"'"') == 0
namedWindow = time.time  # a built-in
"""
ASK = f"""
import os
def ask(): print(cv2.is_read(), "{QT}" in os.environ)
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
    cudaguard.install(mode="observe")  # changes nothing of that
    cv2.imshow(1)
    ask()
    cv2.imshow(2)
    print(cv2.namedWindow.__class__.__name__)
    print(any("QT_QPA" in one.name for one in cudaguard.status().events))
    cudaguard.install(mode="fix")
    import importlib; importlib.reload(cv2)
    ask()
    cudaguard.uninstall()
    ask()
    """
    shown = run(plugins, ASK + textwrap.dedent(code)).stdout.splitlines()
    inner = "imshow" if sys.version_info >= (3, 11) else "call"  # before, we are seen
    assert shown[:5] == ["False True", "() True", inner, "(1,) True", "False True"]
    assert shown[5:] == [
        "(2,) False", "builtin_function_or_method", "True", "False True", "True True", "[]",
    ]  # fmt: skip


@pytest.mark.parametrize("window", ["", "cv2.imshow(1)\n"])
def test_what_the_program_does_with_the_variable_is_done_as_ever(plugins, window):
    code = f"import cv2\n{window}os.environ.pop('{QT}')\nask()\ncudaguard.uninstall()\nask()"
    shown = run(plugins, ASK + code).stdout.splitlines()
    assert shown[-3:] == ["False False", "False False", "[]"]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_opencv_keeps_its_plugins_where_nothing_is_repaired(plugins, mode):
    done = run(plugins, ASK + "import cv2\nask()", env={"CUDAGUARD": mode})
    assert (done.stdout, done.stderr) == ("True True\n[]\n", "")


def test_opencv_keeps_its_plugins_without_another_qt(plugins):
    (plugins.folder / "PyQt5").rename(plugins.folder / "PyQt6")
    assert run(plugins, ASK + "import cv2\nask()").stdout == "True True\n[]\n"


def test_opencv_that_is_executed_and_not_imported_is_let_be(plugins):
    code = "import importlib.util as u\ncv2 = u.module_from_spec(u.find_spec('cv2'))\n"
    done = run(plugins, f"{ASK}{code}cv2.__loader__.exec_module(cv2)\nask()")
    assert (done.stdout, done.stderr) == ("True True\n[]\n", "")


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
