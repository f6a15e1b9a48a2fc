"""``CUDAGUARD=fix python program.py``: the files in the wheel that make it work, and stay dead."""

from __future__ import annotations

import sys

import pytest

from ..processes import CHILDREN

TELL = "import sys; w = sys.modules.get('cudaguard'); print(w and w.status().mode)"
LOADED = "import sys; print([n for n in sys.modules if 'cudaguard' in n])"
FIX = {"CUDAGUARD": "fix"}


@pytest.fixture(params=["wheel", "editable"])
def python(request):
    """The interpreter of an environment with the package installed one way or the other."""
    return request.getfixturevalue(f"{request.param}_python")


@pytest.mark.parametrize(
    ("word", "mode"),
    [("fix", "fix"), ("1", "fix"), ("ON", "fix"), ("warn", "warn"), ("observe", "observe")],
)
def test_the_variable_alone_activates(child, python, word, mode):
    assert child.python(TELL, python=str(python), env={"CUDAGUARD": word}).stdout == f"{mode}\n"


@pytest.mark.parametrize("word", [None, "", "off", "0", "false", "No"])
def test_without_it_not_one_module_is_loaded(child, python, word):
    env = {} if word is None else {"CUDAGUARD": word}
    expected = "[]\n" if word in (None, "") else "['_cudaguard_boot']\n"
    assert child.python(LOADED, python=str(python), env=env).stdout == expected


@pytest.mark.parametrize("flag", ["-I", "-E", "-S", "-IS"])
def test_dead_where_the_environment_does_not_count(child, python, flag):
    done = child.python(TELL, python=str(python), flags=(flag,), env=FIX)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_pth_line_runs_twice_and_installs_once(child, python):
    code = """
        import sys, site
        site.addsitedir([p for p in sys.path if p.endswith("site-packages")][0])
        import _cudaguard_boot, cudaguard
        _cudaguard_boot.start()
        print([type(f).__name__ for f in sys.meta_path].count("GuardFinder"))
        print([event.kind for event in cudaguard.status().events].count("install"))
        """
    assert child.python(code, python=str(python), env=FIX).stdout == "1\n1\n"


def test_function_of_the_line_fits_a_start_file(child, python):
    """PEP 829's, for when Python executes `.pth` lines no more: no argument, and no result."""
    code = """
        import _cudaguard_boot
        assert _cudaguard_boot.start() is _cudaguard_boot.start() is None
        import cudaguard
        print(cudaguard.status().mode)
        """
    assert child.python(code, python=str(python), env=FIX).stdout == "fix\n"


def test_a_broken_package_is_one_line_and_no_traceback(child, python):
    """A .pth line that raised would print a traceback at every start of the interpreter."""
    code = """
        import sys
        sys.modules["cudaguard"] = None  # as if the package had been deleted by hand
        for name in [n for n in sys.modules if n.startswith("cudaguard.")]:
            del sys.modules[name]
        import _cudaguard_boot
        _cudaguard_boot.start()
        """
    done = child.python(code, python=str(python), env=FIX)
    assert done.stderr.startswith("cudaguard: start-up failed: ModuleNotFoundError")
    assert len(done.stderr.splitlines()) == 1


def test_children_of_every_start_method_are_guarded(child, python):
    child.write("parent.py", CHILDREN)
    done = child.command(python, "-u", "parent.py", env={"CUDAGUARD": "observe"})
    guarded = [f"{how} observe" for how in ("fork", "forkserver", "spawn", "subprocess")]
    assert sorted(done.stdout.splitlines()) == sorted([*guarded, "isolated off"])


@pytest.mark.incidents
def test_uninstalling_leaves_nothing(child, wheel, tmp_path):
    environment = tmp_path / "venv"
    child.command(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    packages = next(environment.glob("lib/python*/site-packages"))
    before = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    child.command(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    assert (packages / "cudaguard.pth").exists()
    assert child.python(TELL, python=str(python), env=FIX).stdout == "fix\n"
    child.command(python, "-m", "pip", "uninstall", "--quiet", "--yes", "cudaguard")
    after = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    assert after == before
    done = child.python(LOADED, python=str(python), env=FIX)
    assert (done.stdout, done.stderr) == ("[]\n", "")
