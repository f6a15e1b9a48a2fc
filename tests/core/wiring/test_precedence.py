"""Which mode is in force when argument, environment and configuration disagree, row by row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("call", ["install", "guard"])
def test_under_the_kill_switch_nothing_in_the_process_changes(program, call):
    assert program.output(
        f"""
        from importlib.machinery import ExtensionFileLoader
        import ctypes
        before = list(sys.meta_path), ExtensionFileLoader.create_module, ctypes.CDLL.__init__
        with cudaguard.{call}("strict", rules=[rule()]):
            import target
            after = list(sys.meta_path), ExtensionFileLoader.create_module, ctypes.CDLL.__init__
            print(before == after, mode(), order(), cudaguard.status().changes)
        """,
        env={"CUDAGUARD": "off"},
    ) == ["True off target ()"]


def test_who_has_switched_the_guard_off_hears_nothing_of_its_other_settings(program):
    wrong = {"CUDAGUARD_CONFIG": "/no/such.toml", "CUDAGUARD_RULES": "bogus"}
    code = "cudaguard.install('strict'); import target; print(mode(), found())"
    assert program.output(code, env={"CUDAGUARD": "off", **wrong}) == ["off "]
    assert program.run(code, env=wrong).stderr.count("[CG806]") == 2


def test_kill_switch_set_while_the_guard_is_up_takes_it_down_at_the_next_call(program):
    assert program.output(
        """
        cudaguard.install("strict")
        os.environ["CUDAGUARD"] = "off"
        cudaguard.install("strict")
        print(mode())
        del os.environ["CUDAGUARD"]
        cudaguard.install()
        print(mode())
        """
    ) == ["off", "strict"]


# --- a value that is none ---------------------------------------------------------------


def test_unknown_value_alone_means_one_report_and_no_guard(program):
    done = program.run("print(mode(), found()); import target; print(order())", env=NONSENSE)
    assert done.stdout.splitlines() == ["off CG806", "target"]
    assert done.stderr.count("unknown mode 'nonsense'") == 1
    assert done.stderr.count("[CG806]") == 1
    assert "off, observe, warn, fix, strict" in done.stderr
    assert "  The guard stays off unless the program calls install()" in done.stderr


def test_unknown_value_does_not_keep_a_block_from_working(program):
    done = program.run(
        """
        with cudaguard.guard("fix", rules=[rule()]):
            import target
        print(mode(), order())
        """,
        env=NONSENSE,
    )
    assert done.stdout.splitlines() == ["off needed target"]


NONSENSE = {"CUDAGUARD": "nonsense"}


# --- activation by the variable alone ----------------------------------------------------


def test_install_after_activation_by_variable_applies_its_own_mode(program):
    assert program.output(
        "print(mode()); cudaguard.install('warn'); print(mode())", env={"CUDAGUARD": "strict"}
    ) == ["strict", "warn"]


def test_late_activation_does_not_undo_what_the_program_has_asked_for(program):
    assert program.output(
        """
        cudaguard.install("warn", rules=[rule("MINE")])
        os.environ["CUDAGUARD"] = "strict"
        import _cudaguard_boot
        _cudaguard_boot.start()
        print(mode(), [r.id for r in cudaguard.active_rules()][-1])
        """
    ) == ["warn MINE"]


def test_the_interpreter_of_these_tests_has_the_activation_file():
    # Without it the tests of this section could not fail for the right reason.
    import sysconfig

    folder = Path(sysconfig.get_path("purelib"))
    assert (folder / "cudaguard.pth").is_file(), f"install the checkout into {sys.prefix}"
