"""Environments we did not ask for: missing dependencies, other platforms, odd interpreters."""

from __future__ import annotations

import pytest

DEPENDENCIES = ("packaging", "importlib_metadata", "wrapt", "pynvml", "tomli")
NEEDS_A_VERSION = "rule(dist=('cudaguard',), when={'python': '~=3.0'})"


@pytest.mark.parametrize("name", ["importlib_metadata", "wrapt", "pynvml", "tomli"])
def test_order_rule_with_versions_works_without_what_it_does_not_need(program, name):
    assert program.output(
        f"""
        sys.modules[{name!r}] = None
        cudaguard.install(rules=[{NEEDS_A_VERSION}])
        import target
        print(order())
        """
    ) == ["needed target"]


def test_missing_packaging_is_reported_once_and_says_what_is_missing(program):
    done = program.run(
        f"""
        cudaguard.install(rules=[{NEEDS_A_VERSION}, rule("PLAIN", watch=("other",))])
        sys.modules["packaging"] = None
        for name in [m for m in sys.modules if m.startswith("packaging.")]:
            sys.modules[name] = None
        import target
        import importlib
        importlib.reload(target)
        import other
        print(order())
        """
    )
    # The rule that can be decided without versions is followed all the same.
    assert done.stdout.splitlines() == ["target needed other"]
    assert done.stderr.count("[CG807]") == 1
    assert "packaging" in done.stderr


def test_bare_core_guards_order_rules_without_any_dependency(program):
    assert program.output(
        f"""
        for name in {DEPENDENCIES}:
            sys.modules[name] = None
        cudaguard.install(rules=[rule()])
        import target
        print(order(), found())
        """
    ) == ["needed target "]


def test_configuration_by_variable_that_cannot_be_read_here_is_reported_and_not_raised(program):
    path = program.write(
        "c.toml",
        "[[rules]]\nid = 'F1'\nwatch = ['target']\nwhy = 'w'\nneeds = ['needed']\ndist = ['pip']\n",
    )
    done = program.run(
        """
        sys.modules["packaging"] = None
        for name in [m for m in sys.modules if m.startswith("packaging.")]:
            sys.modules[name] = None
        cudaguard.install()
        print(mode(), found())
        """,
        env={"CUDAGUARD_CONFIG": str(path)},
    )
    assert done.stdout.splitlines() == ["fix CG806"]
    assert "packaging" in done.stderr


@pytest.mark.parametrize("flags", [("-O",), ("-OO",), ("-s",), ("-B",), ("-X", "importtime")])
def test_interpreter_options_do_not_matter(program, flags):
    done = program.run(
        "cudaguard.install(rules=[rule()]); import target; print(order(), found())", flags=flags
    )
    assert done.stdout.splitlines() == ["needed target "]


def test_argv_need_not_exist(program):
    done = program.run("del sys.argv; cudaguard.install('warn', rules=[rule()]); import target")
    assert "[ORDER1]" in done.stderr
