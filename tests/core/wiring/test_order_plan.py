"""An opt-in order that nobody has enabled, in the shapes that programs have.

Red and green in one table, which `docs/explanation/import-order.md` shows: `first` ends the program
unless `second` was imported before.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from ...documents import toml

KEPT, TOLD, SILENT = "kept", "told", "silent"
SHAPES = toml(Path(__file__).with_name("order_shapes.toml"))
FIRST = """
import sys
print("second" in sys.modules)
if "second" not in sys.modules:
    print("first crashes")
"""
RULE = """
[[rules]]
id = "ORDER1"
watch = ["first"]
needs = ["second"]
grade = "opt-in"
why = "first crashes without second."
"""
PAGE = Path(__file__).parents[3] / "docs/explanation/import-order.md"


@pytest.fixture
def run(child):
    """Run a program whose modules are given, and return what became of the order."""

    def run(files, *command, mode="fix", more=(), **environ):
        files = {"site-packages/first": FIRST, "site-packages/second": "NAME = 1", **files}
        for name, text in files.items():
            child.write(f"{name}.py", text.replace("{first}", FIRST))
        env = {
            "CUDAGUARD": mode,
            "CUDAGUARD_CONFIG": str(child.write("rules.toml", RULE)),
            "PYTHONPATH": os.pathsep.join([str(child.folder / "site-packages"), *more]),
            **environ,
        }
        return child.command(sys.executable, *(command or ("main.py",)), env=env, check=False)

    return run


def answer(done):
    """Return what the guard made of the order of a program that has run."""
    if done.stdout.startswith("True\n"):
        return (KEPT, done.stderr)
    return (
        (TOLD, "")
        if "[ORDER1] first was imported before second." in done.stdout + done.stderr
        else (SILENT, "")
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_shape(run, shape):
    files = dict(SHAPES[shape])
    expected = files.pop("expected")
    red = run(files, mode="off")
    assert "first crashes" in red.stdout, red.stderr
    done = run(files)
    assert answer(done) == (expected, ""), done
    assert (expected == SILENT) == (done.stderr == "" and "first crashes" in done.stdout)


def test_page_has_these_shapes():
    text = PAGE.read_text()
    found = re.findall(r"^\| (.+) \| (kept|told|silent) \|$", text, re.MULTILINE)
    assert found == [(shape, files["expected"]) for shape, files in SHAPES.items()]


# As setuptools writes it, in short.
EDITABLE = """
import sys
from importlib.util import spec_from_file_location
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "app":
            return spec_from_file_location(fullname, "else/app/__init__.py")
sys.meta_path.append(_EditableFinder)
"""
BOTH = {"engine": "import first", "model": "import second"}
STARTS = {
    "-m": (("-m", "app"), {"app/__init__": "", "app/__main__": "from . import run",
                           "app/run": "import engine, model", **BOTH}, KEPT),
    "-c": (("-c", "import engine\nimport model"), BOTH, KEPT),
    "run": (("-m", "cudaguard", "run", "main.py"), {"main": "import engine, model", **BOTH}, KEPT),
    "run -c": (("-m", "cudaguard", "run", "-c", "import engine\nimport model"), BOTH, KEPT),
    "console script": (("bin/tool",), {"app": "import engine, model\ndef main(): return 0", **BOTH},
                       KEPT),
    "runpy": (("start.py",), {"start": "import runpy\nrunpy.run_path('main.py')",
                              "main": "import engine, model", **BOTH}, KEPT),
    "spawn": (("main.py",), {"main": "import multiprocessing\nif __name__ == '__main__':\n"
              "    work = multiprocessing.get_context('spawn').Process(target=print)\n"
              "    work.start()\n    work.join()\nelse:\n    import engine, model", **BOTH}, KEPT),
    "src layout": (("main.py",), {"main": "from app import engine, model", "src/app/__init__": "",
                   "src/app/engine": "import first", "src/app/model": "import second"}, KEPT),
    "editable installation": (("main.py",), {"main": "import __editable___app_finder\n"
                              "from app import engine, model", "else/app/__init__": "",
                              "else/app/engine": "import first", "else/app/model": "import second",
                              "site-packages/__editable___app_finder": EDITABLE}, KEPT),
    "thread": (("main.py",), {"main": "import threading\ndef work():\n    import engine\n"
               "    import model\nthread = threading.Thread(target=work)\nthread.start()\n"
               "thread.join()", **BOTH}, KEPT),
    "a thread of another module": (("main.py",), {
        "main": "import threading, work\nthread = threading.Thread(target=work.load)\n"
                "thread.start()\nthread.join()\ndef later(): import second",
        "work": "def load():\n    import first"}, TOLD),
    # What stands on the stack between `first` and the program.
    "the call that imports": (("main.py",), {
        "main": "import importlib\nimportlib.import_module('first')\nimport second"}, KEPT),
    "a function of a package": (("main.py",), {"main": "import third\nthird.load()\nimport second",
        "site-packages/third": "def load():\n    import first"}, TOLD),
    "a package": (("main.py",), {"site-packages/third": "import first",
        "main": "import importlib\nimportlib.import_module('third')\nimport second"}, TOLD),
    "a source that is not there": (("main.py",), {
        "main": "code = compile('import first', 'gone', 'exec')\nexec(code)\nimport second"}, TOLD),
    "fork": (("main.py",), {"main": "import os\nif os.fork(): os.wait()\nelse:\n"
             "    import engine, model", **BOTH}, KEPT),
    "reload": (("main.py",), {"main": "import engine, model\nimport importlib\n"
               "importlib.reload(engine)\nimportlib.reload(engine.first)", **BOTH}, KEPT),
    "sub-interpreter": (("start.py",), {"start": """
try: import _interpreters as them
except ImportError: import _xxsubinterpreters as them
them.run_string(them.create(), "import runpy; runpy.run_path('main.py')")
""", "main": "import engine, model", **BOTH}, KEPT),
    "unittest": (("-m", "unittest", "-v", "test_a", "test_b"),
                 {"test_a": "import first", "test_b": "import second"}, SILENT),
    "pytest": (("-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "tests"),
               {"tests/test_a": "import first\ndef test(): pass",
                "tests/test_b": "import second\ndef test(): pass"}, TOLD),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_start_of_the_program(run, child, start):
    command, files, expected = STARTS[start]
    child.write("bin/tool", "import sys\nfrom app import main\nsys.exit(main())\n")
    # As an editable installation has it: a folder that a .pth file names.
    done = run(files, *command, more=[str(child.folder / "src"), str(child.folder)])
    assert answer(done)[0] == expected, done


def test_zip_application(run, child):
    import zipfile

    with zipfile.ZipFile(child.folder / "app.pyz", "w") as archive:
        for name, text in {"__main__": "import engine\nimport model\n", **BOTH}.items():
            archive.writestr(f"{name}.py", text)
    assert answer(run({}, "app.pyz")) == (KEPT, "")


def test_told_are_both_lines_and_what_to_move(run, child):
    files = {"main": "import engine\nimport model", "engine": "import first",
             "model": "import os\nos.environ['X'] = '1'\nfrom second import NAME"}  # fmt: skip
    done = run(files)
    said = done.stderr.replace(f"{child.folder}/", "")
    assert "[ORDER1] first was imported before second.\n" in said
    assert "  because: imported at engine.py:1\n" in said
    assert "           second is imported at model.py:3\n" in said
    assert "fix: import second before first" in said
    assert "run: export CUDAGUARD_RULES=+ORDER1" in said
    assert said.count("[ORDER1]") == 1
    done = run(files, CUDAGUARD_RULES="+ORDER1")
    assert answer(done) == (KEPT, "")


def test_trace_shows_a_kept_order(run):
    done = run(BOTH, "-m", "cudaguard", "trace", "--mode", "fix", "-c", "import engine, model")
    assert "second: imported before first by ORDER1" in done.stderr
    assert "cudaguard itself" not in done.stderr


ENDS = {"crash": "import os; os.abort()", "error": "raise ImportError('too late')"}


@pytest.mark.parametrize("mode", ["fix", "observe"])
@pytest.mark.parametrize("end", ENDS)
def test_death_by_an_order_says_which_statement_to_move(run, child, end, mode):
    """In the first line: the answer was unheeded, or nobody was there to give it."""
    child.write("site-packages/unsloth-2026.1.dist-info/METADATA", "Name: unsloth\nVersion: 2026.1")
    early = f"import sys\nif 'unsloth' not in sys.modules: {ENDS[end]}\n"
    files = {"main": "import engine, model", "engine": "import transformers",
             "model": "import os\nos.environ['X'] = '1'\nimport unsloth",
             "site-packages/unsloth": "", "site-packages/transformers": early}  # fmt: skip
    done = run(files, "-m", "cudaguard", "run", "--mode", mode, "main.py")
    said = done.stderr.replace(f"{child.folder}/", "")
    first = "transformers must be imported after unsloth: move the import at model.py:3 above "
    assert f"cudaguard run: {first}engine.py:1; main.py " in said
    assert "\n  run: export CUDAGUARD_RULES=+CG041\n" in said
    del files["model"]
    files["main"] = "import engine"
    assert "must be imported after" not in run(files, "-m", "cudaguard", "run", "main.py").stderr


INSTALL = "cudaguard.install({mode!r}, rules=[rule(grade='opt-in', **{more!r})])\n"


@pytest.fixture
def order(program):
    """Run a file of the program's under the rule, and return the order of the modules."""

    def run(source, mode="fix", **more):
        program.write("main.py", "from scene import *\nimport main_part\nprint(order())\n")
        install = INSTALL.format(mode=mode, more=more)
        program.write("main_part.py", f"from scene import *\n{install}{source}\n")
        done = program.child.command(sys.executable, "main.py")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    return run


def test_source_that_was_edited_under_the_running_program_is_not_believed(order, program):
    program.write("worker.py", "def work():\n    import target\n")
    edit = "open('worker.py', 'w').write('def work():\\n    import target\\n    import needed\\n')"
    assert order(f"import worker\n{edit}\nworker.work()") == ("target", "")


@pytest.mark.parametrize("where", ["itself", "another"])
def test_large_source_is_not_parsed(order, program, where):
    large = f"#{'x' * 200_000}\nimport needed"
    program.write("large.py", large)
    said, warned = order(f"import target\n{large if where == 'itself' else 'import large'}")
    assert said == "target needed"
    assert ("needed is imported at" in warned) is (where == "another")


def test_state_of_warnings_is_not_touched(order):
    """Parsing warns of some sources; other threads set filters meanwhile."""
    source = """
import warnings
class Watched(list):
    def __setitem__(self, *_): raise AssertionError
    insert = __setitem__
warnings.catch_warnings = None
warnings.filters = Watched(warnings.filters)
import target
'\\d \\N{BULLET}'
import needed"""
    said, warned = order(source)
    assert said == "needed target"
    assert warned.count("invalid escape") <= 1  # Python's own


def test_mode_warn_tells_and_changes_nothing(order):
    said, warned = order("import target\nimport needed", mode="warn")
    assert said == "target needed"
    assert "[ORDER1] target was imported before needed." in warned


def test_a_disabled_rule_is_off(order):
    source = "cudaguard.install(disable=['ORDER1'])\nimport target\nimport needed"
    assert order(source) == ("target needed", "")


def test_all_that_a_rule_needs_must_come(order, program):
    both = {"needs": ("other", "needed")}
    assert order("import target\nimport needed", **both) == ("target needed", "")
    source = "import target\nimport needed\nimport other"
    assert order(source, **both) == ("other needed target", "")
    source = "import other\nimport target\nimport needed\n"  # no longer: byte code has the size
    assert order(source, **both) == ("other needed target", "")


def test_conditions_hold_here_too(order):
    source = "import target\nimport needed"
    assert order(source, dist=("not-installed",)) == ("target needed", "")


def test_it_is_told_as_any_repair(order):
    source = "import target\nimport needed\nprint(cudaguard.status().changes[-1])"
    said, _ = order(source)
    assert said.splitlines()[0] == "needed: imported before target by ORDER1 (stays)"


def test_a_source_that_cannot_be_read_tells_nothing(program):
    code = """
        cudaguard.install(rules=[rule(grade="opt-in")])
        exec(compile("import target\\nimport needed", "gone.py", "exec"))
        print(order())
    """
    assert program.output(code) == ["target needed"]


def test_a_cell_of_a_notebook_is_read(program):
    code = """
        import linecache
        cell = "import target\\nimport needed\\n"
        linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(True), "<cell 1>")
        cudaguard.install(rules=[rule(grade="opt-in")])
        exec(compile(cell, "<cell 1>", "exec"))
        print(order())
    """
    assert program.output(code) == ["needed target"]
