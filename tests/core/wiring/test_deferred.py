"""`strict` where it cannot raise at once: the error waits for the first watched import."""

from __future__ import annotations

BAD = {"CUDAGUARD": "strict", "CUDAGUARD_RULES": "nonsense"}
CATCH = """
import warnings
try:
    import target
except cudaguard.ImportOrderError as error:
    print(type(error).__name__, error.name, "CUDAGUARD_RULES" in str(error))
"""


def test_bad_setting_at_boot_is_told_at_once_and_raised_once_at_the_first_watched_import(program):
    path = program.config("strict")
    done = program.run(
        "print(mode(), found())" + CATCH + "print(order()); import target; print(order())",
        env={**BAD, "CUDAGUARD_CONFIG": path},
    )
    assert done.stdout.splitlines() == [
        "strict CG806",
        "ImportOrderError target True",
        "",
        "needed target",
    ]
    assert done.stderr.count("[CG806]") == 1


def test_same_bad_setting_is_only_told_in_fix(program):
    path = program.config("fix")
    done = program.run(
        CATCH + "print(order(), found())",
        env={"CUDAGUARD": "fix", "CUDAGUARD_RULES": "nonsense", "CUDAGUARD_CONFIG": path},
    )
    assert done.stdout.splitlines() == ["needed target CG806"]


def test_unwatched_imports_are_not_disturbed_by_a_deferred_error(program):
    path = program.config("strict")
    done = program.run(
        "import other, colorsys; print(order())", env={**BAD, "CUDAGUARD_CONFIG": path}
    )
    assert done.stdout.splitlines() == ["other"]


def test_guard_that_came_too_late_in_strict_raises_at_the_next_watched_import(program):
    done = program.run(
        """
        import target
        two = rule("TWO", watch=("other",), needs=("needed",))
        cudaguard.install("strict", rules=[rule(), two])
        print(found())
        try:
            import other
        except cudaguard.ImportOrderError as error:
            print(error.name, "target was imported before cudaguard" in str(error))
        import other
        print(order())
        """
    )
    assert done.stdout.splitlines() == ["CG802", "other True", "target needed other"]
    assert done.stderr.count("[CG802]") == 1
