"""Who may raise, cell by cell: explicit calls always, the hook never but in `strict`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cudaguard

QUIET = ("observe", "warn", "fix")
IMPORT = """
import warnings
try:
    import target
except BaseException as error:
    print(type(error).__name__, isinstance(error, ImportError), getattr(error, "name", ""))
print(order(), found())
"""


# --- explicit calls: always (install and guard: see test_install.py) -------------------------


@pytest.mark.parametrize("mode", ["off", *QUIET, "strict"])
def test_add_rule_raises_in_every_mode(program, mode):
    assert (
        program.output(
            f"""
        cudaguard.install({mode!r})
        for bad in ("CG001", None, rule(""), rule(needs="needed"), rule("CG500")):
            try:
                cudaguard.add_rule(bad)
            except cudaguard.RuleError as error:
                print(str(error).startswith("add_rule()"), "ORDER1" in found())
        """
        )
        == ["True False"] * 5
    )


@pytest.mark.parametrize("mode", QUIET)
def test_explicit_install_raises_while_the_guard_is_up_and_leaves_it_up(program, mode):
    assert program.output(
        f"""
        cudaguard.install({mode!r})
        for arguments in (dict(mode="loud"), dict(config="/none"), dict(rules=[3])):
            try:
                cudaguard.install(**arguments)
            except ValueError as error:
                print(type(error).__module__, type(error).__name__, mode())
        """
    ) == [
        f"cudaguard ConfigError {mode}",
        f"cudaguard ConfigError {mode}",
        f"cudaguard RuleError {mode}",
    ]


# --- the hook: a prerequisite that fails ------------------------------------------------------

FAILURES = {
    "error": "raise RuntimeError('boom')",
    "exit": "import sys; sys.exit(3)",
    "missing dependency": "import not_there_at_all",
    "import error": "raise ImportError('boom')",
}
PASSING = {"interrupt": "raise KeyboardInterrupt", "generator exit": "raise GeneratorExit"}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_prerequisite_that_fails_is_an_import_error_in_strict(program, failure):
    program.write("needed.py", failure)
    done = program.run("cudaguard.install('strict', rules=[rule()])" + IMPORT)
    assert done.stdout.splitlines() == ["ImportOrderError True target", " CG801"]
    assert done.stderr.count("[CG801]") == 1


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING)
def test_interrupts_in_a_prerequisite_pass(program, failure, mode):
    program.write("needed.py", failure)
    done = program.run(f"cudaguard.install({mode!r}, rules=[rule()])" + IMPORT)
    assert done.stdout.splitlines()[0] in ("KeyboardInterrupt False ", "GeneratorExit False ")
    assert done.stderr == ""


def test_cause_of_the_strict_error_is_the_error_of_the_prerequisite(program):
    program.write("needed.py", FAILURES["error"])
    done = program.run(
        """
        cudaguard.install("strict", rules=[rule()])
        try:
            import target
        except cudaguard.ImportOrderError as error:
            print(repr(error.__cause__), error.path == __import__("os").path.abspath("target.py"))
        """
    )
    assert done.stdout.splitlines() == ["RuntimeError('boom') True"]


# --- the hook: a failure of the guard itself --------------------------------------------------

SABOTAGE = """
import cudaguard.core.decide
def plan(*arguments):
    raise ZeroDivisionError("a bug of ours")
cudaguard.core.decide.plan = as_ours(plan)
"""


@pytest.mark.parametrize("mode", [*QUIET, "strict"])
def test_bug_in_the_guard_is_reported_once_and_never_breaks_an_import(program, mode):
    done = program.run(
        f"cudaguard.install({mode!r}, rules=[rule(), rule('TWO', watch=('other',))])"
        + SABOTAGE
        + IMPORT
        + "import importlib; importlib.reload(target); print(found())"
    )
    assert done.stdout.splitlines() == ["target CG807", "CG807"]
    expected = 0 if mode == "observe" else 1
    assert done.stderr.count("[CG807]") == expected
    assert done.stderr.count("ZeroDivisionError: a bug of ours") == expected


def test_even_reporting_may_fail_without_breaking_the_import(program):
    done = program.run(
        "cudaguard.install(rules=[rule()])"
        + SABOTAGE
        + """
import cudaguard.core.findings
def guard_failed(*arguments):
    raise MemoryError
cudaguard.core.findings.guard_failed = as_ours(guard_failed)
"""
        + IMPORT
    )
    assert done.stdout.splitlines() == ["target "]
    assert "a bug of ours" in done.stderr
    assert "MemoryError" in done.stderr


def test_package_that_is_removed_under_a_running_program_breaks_no_import(program):
    copy = program.folder / "site" / "cudaguard"
    shutil.copytree(Path(cudaguard.__file__).parent, copy, ignore=shutil.ignore_patterns("*.pyc"))
    done = program.run(
        f"""
        import shutil
        assert cudaguard.__file__.startswith({str(copy)!r})
        cudaguard.install(rules=[rule()])
        shutil.rmtree({str(copy)!r})
        import target, ctypes
        print(order())
        """,
        env={"PYTHONPATH": str(copy.parent)},
    )
    assert done.stdout.splitlines() == ["target"]
    assert "No module named 'cudaguard." in done.stderr
    assert "was cudaguard updated or removed meanwhile? Then start the program anew" in done.stderr


# --- environment variables ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", [*QUIET, "strict"])
@pytest.mark.parametrize(
    "env",
    [
        {"CUDAGUARD_RULES": "what"},
        {"CUDAGUARD_CONFIG": "/no/such/file"},
        {"CUDAGUARD_CONFIG": "/dev/null/x"},
        {"CUDAGUARD_JOURNAL": "/no/such/folder/journal"},
    ],
    ids=lambda env: "=".join(*env.items()),
)
def test_bad_variable_never_raises_from_install(program, mode, env):
    done = program.run(f"cudaguard.install({mode!r}); print(mode())", env=env)
    assert done.stdout.splitlines() == [mode]
    if "CUDAGUARD_JOURNAL" not in env:
        assert done.stderr.count("[CG806]") == 1


@pytest.mark.parametrize(
    ("env", "status"),
    [
        ({"CUDAGUARD": "fix", "CUDAGUARD_CONFIG": "/no/such/file"}, 0),
        ({"CUDAGUARD": "strict", "CUDAGUARD_CONFIG": "/no/such/file"}, 0),
        ({"CUDAGUARD": "strict", "CUDAGUARD_RULES": "?", "CUDAGUARD_JOURNAL": "/x/y"}, 0),
        ({"CUDAGUARD": "loud"}, 0),
    ],
)
def test_boot_never_keeps_the_interpreter_from_starting(child, env, status):
    done = child.python("print('alive')", env=env)
    assert done.stdout == "alive\n"
    assert done.stderr.count("[CG806]") == sum(map(bool, (set(env) - {"CUDAGUARD"}) or {1}))


# --- plug-ins ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", QUIET)
def test_plugin_that_fails_never_raises(program, mode):
    program.write("plug-1.dist-info/entry_points.txt", "[cudaguard.rules]\ntarget = bad_plug:x\n")
    program.write("bad_plug.py", "raise RuntimeError('plug-in')\n")
    done = program.run(f"cudaguard.install({mode!r})" + IMPORT)
    assert done.stdout.splitlines() == ["target CG805"]


# --- a load with ctypes ------------------------------------------------------------------------

LIBRARY = """
import ctypes, ctypes.util
cudaguard.install({mode!r}, rules=[
    rule(needs=(), actions=({{"load_local": "libresolv.so*"}},)),
])
{sabotage}
try:
    lib = ctypes.CDLL("libresolv.so.2", mode=ctypes.RTLD_GLOBAL)
    print(float(lib.abs(-1)), found())  # of libc, which comes with it
except Exception as error:
    print(type(error).__name__, error)
"""
BROKEN_SCOPE = """
import cudaguard.features.symbol_scope.repair
def keep_local(*arguments):
    raise ZeroDivisionError("a bug of ours")
cudaguard.features.symbol_scope.repair.keep_local = as_ours(keep_local)
"""


@pytest.mark.parametrize("mode", [*QUIET, "strict"])
def test_bug_in_the_guard_never_breaks_a_load(program, mode):
    done = program.run(LIBRARY.format(mode=mode, sabotage=BROKEN_SCOPE))
    assert done.stdout.splitlines() == ["1.0 CG807"]
