"""``pytest --cudaguard``: real runs of pytest, whose plug-ins and conftests import things."""

from __future__ import annotations

import re
import shutil
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


def test_can_be_blocked(suite):
    suite.child.write("test_it.py", "def test(): pass\n")
    blocked = ("-p", "no:cudaguard", "-p", "no:cacheprovider")
    assert suite.run(plugin=blocked)[0] == 0
    status, text = suite.run("--cudaguard", plugin=blocked)
    assert (status, "unrecognized arguments: --cudaguard" in text) == (4, True)


# --- the guard comes first -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ini", "variable", "guarded"),
    [
        (("--cudaguard",), "", "", True),
        (("--cudaguard-mode=strict",), "", "", True),
        (("--cudaguard-mode=warn",), "", "", False),
        (("--cudaguard-mode=off",), "fix", "", False),
        (("--cudaguard", "--cudaguard-mode=off"), "fix", "", False),
        (("--cudaguard", "--cudaguard-mode=fix"), "warn", "", True),
        (("--cudaguard",), "warn", "", False),
        (("--cudaguard",), "off", "", True),
        ((), "fix", "", True),
        ((), "true", "", True),
        ((), "off", "", False),
        ((), "fix", "warn", False),  # the variable is stronger than configuration
        ((), "warn", "fix", True),
        (("--cudaguard",), "", "warn", False),
        (("--cudaguard",), "off", "warn", False),
        (("--cudaguard-mode=fix",), "", "warn", True),
        (("--cudaguard",), "fix", "off", False),  # the kill switch
        (("--cudaguard", "--cudaguard-disable=LOCAL1"), "", "", False),
    ],
)
def test_guard_is_up_before_the_first_conftest(suite, options, ini, variable, guarded):
    suite.child.write("pytest.ini", f"[pytest]\ncudaguard = {ini}\n")
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", SHOWS_ORDER)
    # Without the .pth file at work: the variable alone is to switch nothing on here.
    status, text = suite.run(*options, CUDAGUARD=variable)
    assert (status == 0) is guarded, text


def test_opt_in_rule_is_enabled_by_id(suite):
    suite.child.write("rules.toml", RULES.replace('needs = ["n', 'grade = "opt-in"\nneeds = ["n'))
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", SHOWS_ORDER)
    assert suite.run("--cudaguard")[0] == 1
    assert suite.run("--cudaguard", "--cudaguard-enable", "LOCAL1")[0] == 0


def test_header_names_the_mode(suite):
    suite.child.write("test_it.py", "def test(): pass\n")
    assert "\ncudaguard: fix\n" in suite.run("--cudaguard")[1]
    off = "\ncudaguard: off (by CUDAGUARD in the environment)\n"
    assert off in suite.run("--cudaguard", CUDAGUARD="off")[1]


def test_what_another_plug_in_has_imported_is_told_as_too_late(suite):
    suite.child.write("other_plugin.py", "import target\n")
    suite.child.write("test_it.py", "def test(): pass\n")
    status, text = suite.run("-p", "other_plugin", "--cudaguard")
    assert status == 0
    told = section(text)
    assert "[CG802] target was imported before cudaguard could repair it (rule LOCAL1)." in told
    assert "remedy: call cudaguard.install()" in told
    if sys.version_info >= (3, 10):  # before, nobody knows how the process was started
        assert re.search(r"run: CUDAGUARD=fix .*pytest", told)


def test_guard_is_up_before_what_other_plug_ins_do_at_the_start(suite):
    suite.child.write(
        "other_plugin.py", "def pytest_load_initial_conftests(early_config): import target\n"
    )
    suite.child.write("test_it.py", SHOWS_ORDER)
    for others in (("-p", "other_plugin", *PLUGIN), (*PLUGIN, "-p", "other_plugin")):
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


@pytest.mark.parametrize(("mode", "expected"), [("warn", 0), ("fix", 0), ("strict", 1)])
def test_findings_stand_in_the_summary_and_fail_a_strict_run(suite, mode, expected):
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    status, text = suite.run(f"--cudaguard-mode={mode}")
    assert status == expected
    assert "1 passed" in text
    lines = section(text).splitlines()
    assert lines[0] == "[LOCAL2] faulty has a fault"
    assert re.fullmatch(r"  evidence: imported at .*test_it.py:1", lines[1])
    assert lines[2] == "  consequence: it computes wrong numbers"
    assert lines[3].startswith(
        "  remedy: silence this if it does not affect your program: CUDAGUARD_RULES=-LOCAL2"
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
    suite.child.write("needed.py", "import target\n")  # LOCAL1 cannot be kept: CG810, info
    suite.child.write("test_it.py", "import target\ndef test(): pass\n")
    assert section(suite.run("--cudaguard-mode=strict")[1]) is None
    status, text = suite.run("--cudaguard-mode=strict", "-v")
    assert (status, "[CG810]" in section(text)) == (0, True)


def test_findings_are_properties_in_junit(suite):
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    suite.run("--cudaguard", "--junitxml=report.xml")
    root = ET.parse(suite.child.folder / "report.xml").getroot()
    (entry,) = root.iter("property")
    assert entry.get("name") == "cudaguard.LOCAL2"
    assert "faulty has a fault" in entry.get("value")


@pytest.mark.parametrize("error", ["error", "error::UserWarning"])
def test_filters_that_make_warnings_errors_do_not_break_imports(suite, error):
    suite.child.write("pytest.ini", f"[pytest]\nfilterwarnings = {error}\n")
    suite.child.write("conftest.py", "import faulty\n")
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    status, text = suite.run("--cudaguard")
    assert (status, "[LOCAL2]" in section(text)) == (0, True)


def test_filters_that_name_our_category_do(suite):
    suite.child.write(
        "pytest.ini", "[pytest]\nfilterwarnings = error::cudaguard.CudaGuardWarning\n"
    )
    suite.child.write("test_it.py", IMPORTS_FAULTY)
    assert suite.run()[0] == 0
    status, text = suite.run("--cudaguard")
    assert (status, "ImportOrderWarning" in text) == (2, True)


def test_a_guard_that_such_filters_do_not_let_come_up_is_one_plain_error(suite):
    suite.child.write(
        "pytest.ini", "[pytest]\nfilterwarnings = error::cudaguard.CudaGuardWarning\n"
    )
    suite.child.write("other_plugin.py", "import target\n")
    suite.child.write("test_it.py", "def test(): pass\n")
    status, text = suite.run("-p", "other_plugin", "--cudaguard")
    assert status == 4
    assert "ERROR: [CG802] target was imported before" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("options", "ini", "said"),
    [
        (
            ("--cudaguard-mode=fast",),
            "",
            "argument --cudaguard-mode: unknown mode 'fast'; expected one of",
        ),
        (("--cudaguard=strict",), "", "argument --cudaguard: ignored explicit argument 'strict'"),
        ((), "fast", "pytest.ini: cudaguard: unknown mode 'fast'; expected one of"),
        (("--cudaguard", "--cudaguard-enable=CG700"), "", "rule 'CG700' is not known"),
    ],
)
def test_wrong_settings_are_usage_errors(suite, options, ini, said):
    suite.child.write("pytest.ini", f"[pytest]\ncudaguard = {ini}\n")
    suite.child.write("test_it.py", "def test(): pass\n")
    status, text = suite.run(*options)
    assert status == 4
    assert said in text
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
        ({"sub/conftest.py": "import faulty\n"}, "the import of sub/conftest.py"),
        ({"sub/test_b.py": IMPORTS_FAULTY}, "the collection of sub/test_b.py"),
        ({"sub/test_b.py": "def test_it(): import faulty\n"}, "sub/test_b.py::test_it"),
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
        (
            {"conftest.py": "def pytest_runtestloop(): import faulty\n"},
            "the collection of test_a.py",
        ),
        (
            {"conftest.py": "def pytest_runtest_logfinish(): import faulty\n"},
            "test_a.py::test_first",
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


def test_what_came_before_the_guard_names_no_test(suite):
    suite.child.write("other_plugin.py", "import target\n")
    suite.child.write("test_it.py", "def test(): pass\n")
    _, text = suite.run("-p", "other_plugin", "--cudaguard")
    assert first_seen(text) == {"CG802": []}


def test_place_is_in_junit(suite):
    suite.child.write("test_it.py", "def test_one(): import faulty\n")
    suite.run("--cudaguard", "--junitxml=report.xml")
    (entry,) = ET.parse(suite.child.folder / "report.xml").getroot().iter("property")
    assert entry.get("value").endswith("first seen after: test_it.py::test_one")


def test_finding_that_is_an_error_for_the_user_ends_no_session(suite):
    """Raised where the plug-in looks, it would be an internal error of pytest's."""
    suite.child.write(
        "pytest.ini", "[pytest]\nfilterwarnings = error::cudaguard.CudaGuardWarning\n"
    )
    suite.child.write("test_it.py", "def test_one(): import faulty\ndef test_two(): pass\n")
    for mode in ("warn", "fix", "strict"):
        status, text = suite.run(f"--cudaguard-mode={mode}")
        assert status == 1
        assert "INTERNALERROR" not in text
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
    status, text = driven.run("--cudaguard")
    assert status == 0
    assert first_seen(text) == {"CG814": ["test_cuda.py::test_initializes"]}
    assert "initialized CUDA" in section(text)
    assert driven.run("--cudaguard-mode=strict")[0] == 0  # it is no fault
    assert first_seen(driven.run("--cudaguard", "--cudaguard-disable=CG814")[1]) == {}


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


LIBRARY = "int {name}(void) {{ return {value}; }}\n"


@pytest.fixture
def compiled(suite):
    """Compiles a library of the suite's."""
    if not sys.platform.startswith("linux") or not shutil.which("gcc"):
        pytest.skip("compiled with gcc, for the loader of Linux")

    def compiled(path, *options, name="release", value=1):
        file = suite.child.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        suite.child.write("lib.c", LIBRARY.format(name=name, value=value))
        suite.child.command("gcc", "-shared", "-fPIC", "-o", file, "lib.c", *options)
        return file

    return compiled


def test_first_test_after_which_a_library_came_twice(suite, compiled):
    for folder, version, value in (("one", "1.105", 1), ("two", "8.90", 2)):
        soname = "-Wl,-soname,libcudart.so.12"
        file = compiled(f"{folder}/libcudart.so.12.{version}", soname, value=value)
        (file.parent / "libcudart.so.12").symlink_to(file.name)
    suite.child.write(
        "test_it.py",
        "import ctypes\n"
        "def test_one(): ctypes.CDLL('one/libcudart.so.12')\n"
        "def test_other(): pass\n"
        "def test_two(): ctypes.CDLL('two/libcudart.so.12')\n",
    )
    _, text = suite.run("--cudaguard")
    assert first_seen(text) == {"CG842": ["test_it.py::test_two"]}
    assert section(suite.run("--cudaguard", "-k", "not two")[1]) is None


def test_first_test_after_which_symbols_moved(suite):
    pytest.importorskip("decord", reason="decord has wheels for x86-64 Linux only")
    suite.child.write(
        "test_it.py",
        "def test_numbers(): import numpy\n"
        "def test_video(): import decord\n"
        "def test_picture(): import cv2\n",
    )
    _, text = suite.run("--cudaguard-mode=warn", "-v")
    seen = first_seen(text)
    assert seen["CG001"] == ["test_it.py::test_video"]
    assert section(suite.run("--cudaguard-mode=warn", "-k", "numbers")[1]) is None


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
