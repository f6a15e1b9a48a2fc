"""``pytest --cudaguard``: real runs of pytest, whose plug-ins and conftests import things."""

from __future__ import annotations

import re
import sys
import zipfile
from xml.etree import ElementTree as ET

import pytest

RULES = """
    [[rules]]
    id = "LOCAL1"
    watch = ["target"]
    needs = ["needed"]
    why = "target misses needed"

    [[rules]]
    id = "LOCAL2"
    watch = ["faulty"]
    grade = "report"
    title = "faulty has a fault"
    why = "it computes wrong numbers"
"""
SHOWS_ORDER = "import sys\ndef test_order(): assert 'needed' in sys.modules\n"
OURS_ARE_ERRORS = "[pytest]\nfilterwarnings = error::cudaguard.CudaGuardWarning\n"
IMPORTS_FAULTY = "import faulty\ndef test_it(): pass\n"
# Independent of whether the metadata of the environment already has the entry point.
PLUGIN = ("-p", "cudaguard.tools.pytest", "-p", "no:cacheprovider")


class Suite:
    """A folder with a test suite, and pytest run in it."""

    def __init__(self, child, python=sys.executable):
        self.child, self.python = child, python
        for module in ("target", "needed", "faulty"):
            child.write(f"{module}.py", "")
        child.write("rules.toml", RULES)
        child.write("pytest.ini", "[pytest]\n")
        self.env = {
            "CUDAGUARD_CONFIG": str(child.folder / "rules.toml"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }

    def run(self, *options, plugin=PLUGIN, **env):
        """Run pytest; return its status and all that it printed."""
        command = (self.python, "-m", "pytest", *plugin, *options)
        done = self.child.command(*command, env={**self.env, **env}, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def suite(child):
    return Suite(child)


def section(text):
    """Return what stands below the headline of ours in the summary."""
    found = re.search(r"^=+ cudaguard =+$\n(.*?)^=", text, re.DOTALL | re.MULTILINE)
    return found and found[1]


# --- no cost, no trace where nobody asks ---------------------------------------------------------


def test_loads_only_itself_unless_it_is_asked(suite):
    suite.child.write(
        "test_it.py", "import sys\ndef test(): print('loaded', *sorted(sys.modules))\n"
    )

    def loaded(*plugin):
        _, text = suite.run("-s", plugin=("-p", "no:cacheprovider", *plugin))
        (line,) = re.findall(r"^.*loaded (.*)$", text, re.MULTILINE)
        return set(line.split())

    without = loaded("-p", "no:cudaguard")
    assert loaded("-p", "cudaguard.tools.pytest") - without == {
        "cudaguard",
        "cudaguard.tools",
        "cudaguard.tools.pytest",
    }
    assert "cudaguard.api" in loaded("-p", "cudaguard.tools.pytest", "--cudaguard")


def test_says_nothing_and_does_nothing_unless_it_is_asked(suite):
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", SHOWS_ORDER)
    status, text = suite.run()
    assert status == 1
    assert "cudaguard" not in text


# --- the guard comes first -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "variable", "guarded"),
    [
        (("--cudaguard",), "", True),
        (("--cudaguard-mode=warn",), "", False),
        (("--cudaguard-mode=fix",), "warn", True),
        (("--cudaguard",), "off", False),  # the kill switch
    ],
)
def test_guard_is_up_before_the_first_conftest(suite, options, variable, guarded):
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", SHOWS_ORDER)
    # Without the .pth file at work: the variable alone is to switch nothing on here.
    status, text = suite.run(*options, CUDAGUARD=variable)
    assert (status == 0) is guarded, text
    assert ("run: pytest --cudaguard-mode fix" in text) is (options == ("--cudaguard-mode=warn",))


def test_what_another_plug_in_has_imported_is_told_as_too_late(suite):
    suite.child.write("other_plugin.py", "import target\n")
    suite.child.write("test_it.py", "def test(): pass\n")
    status, text = suite.run("-p", "other_plugin", "--cudaguard")
    assert status == 0
    told = section(text)
    assert first_seen(text) == {"CG802": []}
    assert "[CG802] target was imported before cudaguard could repair it (rule LOCAL1)." in told
    assert "fix: call cudaguard.install()" in told
    assert "run: export CUDAGUARD=fix" in told


def test_guard_is_up_before_what_other_plug_ins_do_at_the_start(suite):
    suite.child.write(
        "other_plugin.py", "def pytest_load_initial_conftests(early_config): import target\n"
    )
    suite.child.write("test_it.py", SHOWS_ORDER)
    others = ("-p", "other_plugin", *PLUGIN)
    assert suite.run(plugin=others)[0] == 1
    assert suite.run("--cudaguard", plugin=others)[0] == 0


def test_guard_is_taken_down_at_the_end(suite):
    suite.child.write("test_it.py", "import target\n" + SHOWS_ORDER)
    code = """
        import pytest, sys
        import cudaguard
        assert pytest.main(sys.argv[1:]) == 0
        print("mode", cudaguard.status().mode)
        """
    down = suite.child.python(code, *PLUGIN, "--cudaguard", env=suite.env).stdout
    assert down.endswith("mode off\n")
    mine = f"import cudaguard\ncudaguard.install('observe')\n{code.replace(' ' * 8, '')}"
    stays = suite.child.python(mine, *PLUGIN, "--cudaguard", env=suite.env).stdout
    assert stays.endswith("mode observe\n")


# --- findings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "expected"), [("fix", 0), ("strict", 1)])
def test_findings_stand_in_the_summary_and_fail_a_strict_run(suite, mode, expected):
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    status, text = suite.run(f"--cudaguard-mode={mode}")
    assert status == expected
    assert f"\ncudaguard: {mode}\n" in text
    assert "1 passed" in text
    lines = section(text).splitlines()
    assert lines[0] == "[LOCAL2] faulty has a fault."
    assert lines[1] == "  it computes wrong numbers"
    assert re.fullmatch(r"  because: imported at .*test_it.py:1", lines[2])
    assert lines[3].startswith(
        "  fix: silence this if it does not affect your program: CUDAGUARD_RULES=-LOCAL2"
    )
    assert ("strict: a run with findings fails" in text) is (mode == "strict")


def test_strict_leaves_other_statuses_alone_and_passes_without_findings(suite):
    assert suite.run("--cudaguard-mode=strict")[0] == 5  # no tests
    suite.child.write("test_it.py", "def test(): pass\n")
    status, text = suite.run("--cudaguard-mode=strict")
    assert (status, section(text)) == (0, None)


def test_strict_raises_from_an_import(suite):
    """Collection fails, as the import does; the finding is told all the same."""
    suite.child.write("needed.py", "raise OSError('no license')\n")
    suite.child.write("test_it.py", "import target\ndef test(): pass\n")
    assert suite.run("--cudaguard")[0] == 0
    status, text = suite.run("--cudaguard-mode=strict")
    assert status == 2
    assert "ImportOrderError" in text
    assert "[CG801] needed could not be imported before target" in section(text)


def test_mere_information_needs_verbose(suite):
    past = "import sys, cudaguard\nsys.modules['target'] = sys\n"
    past += "def test(): cudaguard.status()\n"  # CG811, info
    suite.child.write("test_it.py", past)
    assert section(suite.run("--cudaguard-mode=strict")[1]) is None
    status, text = suite.run("--cudaguard-mode=strict", "-v")
    assert (status, "[CG811]" in section(text)) == (0, True)


def test_filters_that_make_warnings_errors_do_not_break_imports(suite):
    suite.child.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
    suite.child.write("conftest.py", "import faulty\n")
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    status, text = suite.run("--cudaguard")
    assert (status, "[LOCAL2]" in section(text)) == (0, True)


def test_filters_that_name_our_category_do(suite):
    suite.child.write("pytest.ini", OURS_ARE_ERRORS)
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    assert suite.run()[0] == 0
    status, text = suite.run("--cudaguard")
    assert (status, "ImportOrderWarning" in text) == (2, True)


def test_a_guard_that_such_filters_do_not_let_come_up_is_one_plain_error(suite):
    suite.child.write("pytest.ini", OURS_ARE_ERRORS)
    suite.child.write("other_plugin.py", "import target\n")
    suite.child.write("test_it.py", "def test(): pass\n")
    status, text = suite.run("-p", "other_plugin", "--cudaguard")
    assert status == 4
    assert "ERROR: [CG802] target was imported before" in text
    assert "Traceback" not in text


def test_wrong_mode_is_a_usage_error(suite):
    status, text = suite.run("--cudaguard-mode=fast")
    assert status == 4
    assert "argument --cudaguard-mode: invalid choice: 'fast' (choose from" in text
    assert "line " not in text  # no traceback


# --- after what something was first there ---------------------------------------------------------


def first_seen(text):
    """Return id -> after what the summary says that it was first seen."""
    told = section(text) or ""
    parts = re.split(r"^\[(\w+)\]", told, flags=re.MULTILINE)[1:]
    after = (re.findall(r"first seen after: (.*)$", part, re.MULTILINE) for part in parts[1::2])
    return dict(zip(parts[::2], after))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"conftest.py": "import faulty\n"}, "the import of conftest.py"),
        ({"sub/test_b.py": IMPORTS_FAULTY}, "the collection of sub/test_b.py"),
        (
            {
                "sub/test_b.py": "import pytest\n"
                "@pytest.fixture\ndef late():\n    yield\n    import faulty\n"
                "class TestIt:\n    def test_0(self): pass\n"
                "    @pytest.mark.parametrize('x', [1, 2])\n    def test_1(self, late, x): pass\n"
            },
            "sub/test_b.py::TestIt::test_1[1]",
        ),
        (
            {"conftest.py": "def pytest_sessionfinish(): import faulty\n"},
            None,  # gathered by then: nobody can name what comes later
        ),
    ],
)
def test_first_place_is_named(suite, files, expected):
    suite.child.write("test_a.py", "def test_first(): pass\n")
    suite.child.write("test_z.py", "def test_last(): import faulty\n")
    for name, text in files.items():
        suite.child.write(name, text)
    folders = ["sub"] if "sub/" in str(files) else []
    last = [] if "def pytest_" in str(files) else ["test_z.py"]
    _, text = suite.run("--cudaguard", "test_a.py", *folders, *last)
    assert first_seen(text) == ({"LOCAL2": [expected]} if expected else {})


def test_place_is_in_junit(suite):
    suite.child.write("test_it.py", "def test_one(): import faulty\n")
    suite.run("--cudaguard", "--junitxml=report.xml")
    (entry,) = ET.parse(suite.child.folder / "report.xml").getroot().iter("property")
    assert entry.get("name") == "cudaguard.LOCAL2"
    assert entry.get("value").endswith("first seen after: test_it.py::test_one")


def test_finding_that_is_an_error_for_the_user_ends_no_session(suite):
    """Raised where the plug-in looks, it would be an internal error of pytest's."""
    suite.child.write("pytest.ini", OURS_ARE_ERRORS)
    suite.child.write("test_it.py", "def test_one(): import faulty\ndef test_two(): pass\n")
    status, text = suite.run("--cudaguard-mode=strict")
    assert (status, "INTERNALERROR" in text) == (1, False)
    assert first_seen(text) == {"LOCAL2": ["test_it.py::test_one"]}


@pytest.fixture
def driven(suite, driver_stubs):
    """A suite on a machine with a driver (a stub), two of whose tests use it."""
    suite.env["LD_LIBRARY_PATH"] = str(driver_stubs.folder)
    suite.child.write(
        "test_cuda.py",
        "import ctypes\n"
        "def test_before(): ctypes.CDLL('libcuda.so.1')\n"
        "def test_initializes(): assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "def test_again(): assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n",
    )
    return suite


def test_first_test_after_which_cuda_was_initialized(driven):
    """No import and no load is there to be seen: the driver is asked between the tests."""
    status, text = driven.run("--cudaguard-mode=strict")  # it is no fault
    assert status == 0
    assert first_seen(text) == {"CG814": ["test_cuda.py::test_initializes"]}
    assert "initialized CUDA" in section(text)


def test_looking_initializes_nothing(driven):
    status, text = driven.run("--cudaguard", "-k", "before")
    assert (status, section(text)) == (0, None)
    driven.child.write(
        "test_it.py",
        "import ctypes\n"
        "def test_1(): ctypes.CDLL('libcuda.so.1')\n"
        "def test_2():\n"
        "    count = ctypes.byref(ctypes.c_int())\n"
        "    assert ctypes.CDLL('libcuda.so.1').cuDeviceGetCount(count) == 3\n",
    )
    assert driven.run("--cudaguard", "test_it.py")[0] == 0


# --- as it is installed --------------------------------------------------------------------------


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory):
    """A folder with what the wheel installs, its metadata included."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_entry_point_of_the_wheel(suite, unpacked):
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", SHOWS_ORDER)
    env = {"PYTHONPATH": str(unpacked), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    assert suite.run(plugin=(), **env)[0] == 1
    assert suite.run("--cudaguard", plugin=(), **env)[0] == 0
    # Early, which loads it before other plug-ins.
    assert suite.run("--cudaguard", plugin=("-p", "cudaguard"), **env)[0] == 0
    status, text = suite.run("--cudaguard", plugin=("-p", "no:cudaguard"), **env)
    assert (status, "unrecognized arguments" in text) == (4, True)


def test_guard_that_was_up_before_pytest_costs_no_warning(suite, unpacked):
    """pytest warns of modules of plug-ins that it can rewrite no more, and ``-W error`` raises."""
    suite.child.write("test_it.py", "def test(): pass\n")
    done = suite.child.python(
        "import _cudaguard_boot, pytest, sys; _cudaguard_boot.start();"
        "sys.exit(pytest.main(['-W', 'error', '-p', 'no:cacheprovider']))",
        env={"PYTHONPATH": str(unpacked), "CUDAGUARD": "fix"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
