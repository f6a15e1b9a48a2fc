"""Calls that belong before an import: told at the first call, which is made as ever.

The packages are stand-ins with the names and versions of the real ones.
"""

from __future__ import annotations

import textwrap

import pytest

ISAAC = """
class SimulationApp:
    def __init__(self, config=None):
        print("started", config)
"""
INSTALL = "import cudaguard; cudaguard.install()\n"
FOUND = "\nprint([f.id for f in cudaguard.status().findings])"


@pytest.fixture
def installed(child):
    """Makes a distribution of a name and a version."""

    def installed(name, version, **files):
        child.distribution(name, version)
        for path, source in files.items():
            child.write(f"{path.replace('__', '/')}.py", source)

    return installed


@pytest.fixture
def isaac(child, installed):
    installed("isaacsim", "5.0.0")
    child.write("isaacsim/__init__.py", ISAAC)
    child.write("pxr/__init__.py", "")
    child.write("pxr/Usd.py", "")
    child.write("scene.py", "from pxr import Usd\n")
    return child


def run(child, code, **how):
    return child.python(INSTALL + textwrap.dedent(code) + FOUND, **how)


def test_start_after_the_import_is_told_with_who_imported_it(isaac):
    done = run(isaac, "import scene\nfrom isaacsim import SimulationApp\nSimulationApp({1: 2})")
    assert done.stdout.splitlines() == ["started {1: 2}", "['CG061']"]
    assert "ImportOrderWarning: [CG061] isaacsim.SimulationApp() was called at " in done.stderr
    assert "<string>:4 after pxr was imported.\n" in done.stderr
    assert "pxr is used by scene\n" in done.stderr
    assert "might not be loaded correctly" in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "from isaacsim import SimulationApp\nSimulationApp()\nimport scene",
        "from isaacsim import SimulationApp\nSimulationApp()\nimport scene\nSimulationApp()",
        "import isaacsim, scene",
        "import torch\nfrom isaacsim import SimulationApp\nSimulationApp()",
    ],
)
def test_right_order_and_no_call_are_let_be(isaac, code):
    isaac.write("torch.py", "")
    done = run(isaac, code)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("[]", "")


def test_class_stays_the_class_that_it_is(isaac):
    done = run(
        isaac,
        """
        import inspect, pickle, isaacsim
        kind = isaacsim.SimulationApp
        print(isinstance(kind(), kind), inspect.signature(kind), pickle.loads(pickle.dumps(kind)))
        cudaguard.uninstall()
        print(kind.__init__.__code__.co_filename.endswith("isaacsim/__init__.py"))
        """,
    )
    assert done.stdout.splitlines()[1:3] == [
        "True (config=None) <class 'isaacsim.SimulationApp'>",
        "True",
    ]


@pytest.mark.parametrize(
    "env",
    [{"CUDAGUARD": "warn"}, {"CUDAGUARD": "strict"}, {"PYTHONWARNINGS": "error::UserWarning"}],
)
def test_call_is_made_in_every_mode(isaac, env):
    code = "import scene\nfrom isaacsim import SimulationApp\nSimulationApp()\nprint('goes on')"
    done = isaac.python(INSTALL + code, env=env)
    assert done.stdout.splitlines() == ["started None", "goes on"]
    assert done.stderr.count("[CG061]") == 1


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


def test_user_rule_of_a_call_that_is_not_there(child):
    child.write("scene.py", "import math\n")
    child.write(
        "rules.toml",
        """
        [[rules]]
        id = "MINE1"
        watch = ["scene"]
        actions = [{ check_call = "start", before = ["math"] }]
        grade = "report"
        why = "x"
        """,
    )
    done = child.python(
        f"import cudaguard; cudaguard.install(config='rules.toml')\nimport scene{FOUND}"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
