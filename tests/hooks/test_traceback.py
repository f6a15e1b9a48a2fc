"""A failing import shows the lines it shows without a guard, and none of ours.

On 3.9 and 3.10 the frames of importlib cannot be hidden where the guard has something to do
after the import, or stands between importlib and a failing extension; ours must not be there
even so.
"""

from __future__ import annotations

import sys

import pytest

FRAMES = """
import sys, traceback, os
def frames(error):
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            print(os.path.basename(frame.f_code.co_filename), frame.f_code.co_name, line)
        error = error.__cause__ or error.__context__
def failing(name):
    try:
        __import__(name)
    except BaseException as error:
        print(type(error).__name__)
        frames(error)
"""
FAILURES = {
    "raises": "def work():\n    1 / 0\nwork()\n",
    "syntax-error": "this is not Python\n",
    "exits": "import sys\nsys.exit(3)\n",
    "import-error": "import a_module_that_is_not_there\n",
    "import-from": "from os import a_name_that_is_not_there\n",
    "chained": "try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError from e\n",
}
after_slots = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="importlib's own frames cannot be hidden before 3.11"
)


@pytest.mark.parametrize("code", FAILURES.values(), ids=FAILURES)
def test_frames_of_a_failing_module(pair, code):
    pair.modules("prereq.py")
    pair.child.write("target.py", code)
    lines = pair.same(FRAMES, "failing('target')")
    assert len(lines) > 1


def test_frames_of_a_failing_module_inside_others(pair):
    pair.modules("prereq.py")
    pair.child.write("outer.py", "import target\n")
    pair.child.write("target/__init__.py", "from target import part\n")
    pair.child.write("target/part.py", "1 / 0\n")
    lines = pair.same(FRAMES, "failing('outer')", watch=("target", "target.part"))
    assert [line.split()[0] for line in lines[1:]] == [
        "<string>",
        "outer.py",
        "__init__.py",
        "part.py",
    ]


@after_slots
def test_frames_with_a_journal_which_watches_the_end_of_each_import(pair):
    pair.child.write("target.py", FAILURES["raises"])
    environment = {"CUDAGUARD_JOURNAL": "journal.jsonl"}
    pair.same(FRAMES, "failing('target')", env=environment)
    assert '"failed", "name": "target"' in (pair.child.folder / "journal.jsonl").read_text()


def test_exception_is_the_very_object(pair):
    pair.child.write("ours.py", "error = ValueError('the one')\n")
    pair.child.write("target.py", "import ours\nraise ours.error\n")
    lines = pair.guarded("""
        import ours
        try:
            import target
        except ValueError as error:
            print(error is ours.error, error.__context__, error.__cause__)
    """).lines
    assert lines == ["True None None"]


WARNED = """
import sys, warnings
warnings.simplefilter("default")
def shown(message, category, file, line, *_):
    print(message, category.__name__, file.rpartition("/")[2], line)
warnings.showwarning = shown
import outer
"""


@pytest.mark.parametrize("level", [1, 2, 3])
def test_line_that_a_module_warns_of_while_it_is_imported(pair, level):
    """With ``stacklevel=2`` it is that of who imports it, not one of ours."""
    pair.modules("prereq.py")
    pair.child.write("outer.py", "\nimport target\n")
    pair.child.write(
        "target.py",
        f"import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel={level})\n",
    )
    lines = pair.same(WARNED)
    assert lines == [
        f"old DeprecationWarning {('target.py 2', 'outer.py 2', '<string> 10')[level - 1]}"
    ]


@pytest.mark.parametrize("watch", ["target", "elsewhere"])
def test_line_that_a_module_warns_of_which_native_code_imports(native, phase, watch):
    native.child.write("prereq.py", "")
    native.child.write("outer.py", "\nimport target\n")
    native.child.write(
        "ran.py", "import warnings\nwarnings.warn('old', stacklevel=2)\nnames = []\n"
    )
    native.extension("target", *phase)
    lines = native.same(WARNED, watch=(watch,), proof="")
    assert lines == ["old UserWarning outer.py 2"]


def test_line_that_a_finder_warns_of(pair):
    pair.modules("prereq.py", "target.py")
    pair.child.write("outer.py", "\nimport target\n")
    lines = pair.same(
        """
        import sys, warnings
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "target":
                    warnings.warn("found", UserWarning, stacklevel=2)
        sys.meta_path.insert(1, Finder())
        """,
        WARNED,
    )
    assert lines == ["found UserWarning outer.py 2"]


def test_who_imports_a_module_is_found_on_the_stack_by_the_module(pair):
    pair.modules("prereq.py")
    pair.child.write("outer.py", "\nimport target\n")
    pair.child.write(
        "target.py",
        """
        import sys
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            frame = frame.f_back
        print(frame.f_globals["__name__"], frame.f_lineno)
        """,
    )
    assert pair.same("import outer") == ["outer 2"]
