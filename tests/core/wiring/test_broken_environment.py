"""Environments we did not ask for: missing dependencies, other platforms, odd interpreters."""

from __future__ import annotations

import pytest

DEPENDENCIES = ("packaging", "importlib_metadata", "wrapt", "pynvml", "tomli")
NEEDS_A_VERSION = "rule(dist=('cudaguard',), when={'python': '>=3'})"


@pytest.mark.parametrize("missing", DEPENDENCIES)
@pytest.mark.parametrize("mode", ["observe", "warn", "fix", "strict"])
def test_import_goes_on_without_a_dependency(program, missing, mode):
    done = program.run(
        f"""
        ready = {NEEDS_A_VERSION}
        cudaguard.install({mode!r}, rules=[ready])
        for name in [m for m in sys.modules if m.partition(".")[0] == {missing!r}]:
            del sys.modules[name]
        sys.modules[{missing!r}] = None
        import target
        print("target" in sys.modules, "CG801" in found())
        """
    )
    assert done.stdout.splitlines() == ["True False"]
    assert done.stderr.count("[CG807]") <= 1


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


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_order_rules_work_where_there_are_no_symbol_scopes(child, platform):
    for name in ("target", "needed"):
        child.write(f"{name}.py", "")
    done = child.python(
        f"""
        import os, sys
        sys.platform = {platform!r}
        del os.RTLD_GLOBAL
        import cudaguard
        from importlib.machinery import ExtensionFileLoader
        cudaguard.install(rules=[
            cudaguard.Rule("MINE", ("target",), "why", needs=("needed",)),
            cudaguard.Rule("ELSE", ("target",), "why", needs=("json",),
                           when={{"platform": "linux"}}),
        ])
        import target
        print([m for m in sys.modules if m in ("target", "needed", "json")])
        import ctypes
        print(ctypes.CDLL.__init__.__qualname__, hasattr(ctypes.CDLL.__init__, "__wrapped__"))
        print([f.id for f in cudaguard.status().findings])
        cudaguard.uninstall()
        print(cudaguard.status().mode)
        """
    )
    assert done.stdout.splitlines() == [
        "['needed', 'target']",
        "CDLL.__init__ False",
        "[]",
        "off",
    ]
    assert done.stderr == ""


def test_rule_for_other_platforms_does_not_act_here(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule(when={"platform": ["darwin", "win32"]})])
        import target
        print(order())
        """
    ) == ["target"]


@pytest.mark.parametrize("flags", [("-O",), ("-OO",), ("-s",), ("-B",), ("-X", "importtime")])
def test_interpreter_options_do_not_matter(program, flags):
    done = program.run(
        "cudaguard.install(rules=[rule()]); import target; print(order(), found())", flags=flags
    )
    assert done.stdout.splitlines() == ["needed target "]


def test_interpreter_that_shuts_down_is_not_disturbed(program):
    assert program.output(
        """
        import atexit
        cudaguard.install(rules=[rule()])
        class Late:
            def __del__(self):
                try:
                    import target
                except ImportError:
                    pass
        keep = Late()
        atexit.register(lambda: __import__("target"))
        print("end")
        """
    ) == ["end"]


def test_argv_need_not_exist(program):
    done = program.run("del sys.argv; cudaguard.install('warn', rules=[rule()]); import target")
    assert "[ORDER1]" in done.stderr
