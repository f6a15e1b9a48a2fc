"""Errors that are kept for later, and modules that were there before their rule."""

from __future__ import annotations

import pytest

PLUGIN = """
import cudaguard
RULE = cudaguard.Rule(id="PLUG1", watch=("target",), needs=("needed",), why="Says the plug-in.")
"""


@pytest.fixture
def plugged(program):
    """The program with a plug-in for `target` on its path."""
    program.write("plug-1.0.dist-info/entry_points.txt", "[cudaguard.rules]\ntarget = plug:RULE\n")
    program.write("plug.py", PLUGIN)
    return program


# --- strict: what could not be raised where it was found --------------------------------------


def test_kept_error_is_not_raised_at_ctypes_where_others_would_swallow_it(program):
    done = program.run(
        """
        cudaguard.install("strict", rules=[rule()])
        try:
            import ctypes
        except ImportError:
            ctypes = None
        print(ctypes is not None)
        try:
            import target
        except cudaguard.ImportOrderError as error:
            print("oops" in str(error))
        import target
        """,
        env={"CUDAGUARD_RULES": "oops"},
    )
    assert done.stdout.split() == ["True", "True"]
    assert done.stderr.count("[CG806]") == 1


@pytest.mark.parametrize("end", ["block", "uninstall", "weaker"])
def test_kept_error_goes_with_the_guard_that_kept_it(program, end):
    done = program.run(
        f"""
        import target
        if {end!r} == "block":
            with cudaguard.guard("strict", rules=[rule()]):
                pass
        else:
            cudaguard.install("strict", rules=[rule()])
            cudaguard.uninstall() if {end!r} == "uninstall" else cudaguard.install("fix")
        with cudaguard.guard("strict", rules=[rule("TWO", watch=("other",), needs=())]):
            import other
        print(found())
        """
    )
    assert done.stdout.split() == ["CG802"]


# --- too late ---------------------------------------------------------------------------------


def test_plugin_of_a_module_that_is_there_already_is_told_to_be_late(plugged):
    done = plugged.run("import target; cudaguard.install(); print(order(), found())")
    assert done.stdout.split() == ["target", "CG802"]
    assert "target was imported before cudaguard could repair it (rule PLUG1)" in done.stderr


def test_module_that_only_a_plugin_watches_is_told_when_the_variable_came_too_late(plugged):
    """A .pth line cannot know the plug-ins: they are looked for at the first watched import."""
    done = plugged.run("import target, ctypes; print(order(), found())", env={"CUDAGUARD": "fix"})
    assert done.stdout.split() == ["target", "CG802"]


def test_rule_that_only_warns_is_told_of_a_module_that_is_there_already(program):
    done = program.run(
        """
        import target
        cudaguard.install(rules=[rule(needs=(), grade="report", title="target is known to leak")])
        print(found())
        """
    )
    assert done.stdout.split() == ["ORDER1"]
    assert "target is known to leak" in done.stderr


# --- the rest ---------------------------------------------------------------------------------


def test_children_follow_a_mode_that_is_changed_later(program):
    assert program.output(
        """
        cudaguard.install("warn", children=True)
        print(os.environ["CUDAGUARD"])
        cudaguard.install("strict")
        print(os.environ["CUDAGUARD"])
        with cudaguard.guard("observe"):
            print(os.environ["CUDAGUARD"])
        print(os.environ["CUDAGUARD"], mode())
        cudaguard.uninstall()
        print(os.environ.get("CUDAGUARD"))
        """
    ) == ["warn", "strict", "observe", "strict strict", "None"]


def test_exported_mode_is_not_taken_for_the_users_word(program):
    """Without a mode of its own, the guard would otherwise stay in the mode of the block."""
    assert program.output(
        """
        cudaguard.install(children=True)
        with cudaguard.guard("warn"):
            pass
        print(os.environ["CUDAGUARD"], mode())
        """
    ) == ["fix fix"]


def test_repair_that_a_platform_has_no_means_for_is_told_once(program):
    """A Python without RTLD_GLOBAL, as on Windows; the order rules work on."""
    done = program.run(
        """
        import os, posix
        del os.RTLD_GLOBAL, posix.RTLD_GLOBAL
        scoped = rule("SCOPE1", actions=({"load_local": "libx.so*"},))
        cudaguard.install(rules=[scoped])
        import target, importlib
        importlib.reload(target)
        print(order(), found())
        """
    )
    assert done.stdout.split() == ["needed", "target", "CG809"]
    assert 'cannot apply { load_local = "libx.so*" } of rule' in done.stderr
