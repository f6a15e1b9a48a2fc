"""What each mode does about one order rule, and about rules that contradict one another."""

from __future__ import annotations

import pytest

from cudaguard.model import MODES


def test_off_lets_the_program_be(program):
    assert program.output(
        "cudaguard.install('off', rules=[rule()]); import target; print(order(), found())"
    ) == ["target "]


def test_observe_records_and_changes_and_says_nothing(program):
    assert program.output(
        """
        cudaguard.install("observe", rules=[rule()])
        import target
        print(order(), found(), cudaguard.status().changes[3:])
        """
    ) == ["target ORDER1 ()"]


def test_warn_warns_and_changes_nothing(program):
    done = program.run(
        "cudaguard.install('warn', rules=[rule()]); import target; print(order(), found())"
    )
    assert done.stdout.splitlines() == ["target ORDER1"]
    assert "ImportOrderWarning: [ORDER1] target was imported before needed." in done.stderr
    assert "  target needs needed." in done.stderr


ABSENT = 'needs=("absent_everywhere", "absent.part")'
QUIET = {
    "it is repaired": (["fix", "strict"], "", "target", "needed target "),
    "the order is right": (MODES[1:], "", "needed, target", "needed target "),
    "what comes first is not installed": (MODES[1:], ABSENT, "target", "target "),
}


@pytest.mark.parametrize(("why", "mode"), [(why, mode) for why in QUIET for mode in QUIET[why][0]])
def test_nothing_is_said_where(program, why, mode):
    _, needs, modules, order = QUIET[why]
    code = f"cudaguard.install({mode!r}, rules=[rule({needs})])\nimport {modules}\n"
    assert program.output(f"{code}print(order(), found())") == [order]


def test_rule_graded_warn_is_told_and_never_repaired(program):
    done = program.run(
        "cudaguard.install(rules=[rule(grade='report')]); import target; print(order(), found())"
    )
    assert done.stdout.splitlines() == ["target ORDER1"]
    assert "[ORDER1] target was imported before needed." in done.stderr


def test_rule_graded_warn_without_an_order_tells_of_a_known_fault(program):
    done = program.run(
        """
        cudaguard.install(rules=[rule(grade="report", needs=(), title="target is broken")])
        import target
        print(found())
        """
    )
    assert done.stdout.splitlines() == ["ORDER1"]
    assert "[ORDER1] target is broken" in done.stderr
    assert "CUDAGUARD_RULES=-ORDER1" in done.stderr


def test_rule_that_does_not_apply_here_is_silent(program):
    assert program.output(
        """
        off = {"platform": "plan9"}
        cudaguard.install("warn", rules=[rule(when=off), rule("TWO", grade="report", when=off)])
        import target
        print(order(), found())
        """
    ) == ["target "]


def test_import_that_fails_fails_as_it_would_without_the_guard(program):
    program.write("target.py", "raise LookupError('own')\n")
    assert (
        program.output(
            """
        cudaguard.install("strict", rules=[rule()])
        for _ in range(2):
            try:
                import target
            except LookupError as error:
                print(error, "target" in sys.modules, error.__traceback__.tb_next.tb_lineno)
        """
        )
        == ["own False 1"] * 2
    )


# --- the guard came too late ---------------------------------------------------------------


def test_module_imported_before_the_guard_is_reported_as_too_late(program):
    done = program.run("import target; cudaguard.install(rules=[rule()]); print(found())")
    assert done.stdout.splitlines() == ["CG802"]
    assert "target was imported before cudaguard could repair it (rule ORDER1)" in done.stderr
    assert "  run: export CUDAGUARD=fix\n" in done.stderr


def test_too_late_is_recorded_only_in_observe(program):
    assert program.output(
        "import target; cudaguard.install('observe', rules=[rule()]); print(found())"
    ) == ["CG802"]


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("import needed, target", ""),
        ("import target, needed", "CG802"),
        ("import target", "CG802"),
        ("import needed", ""),
    ],
)
def test_order_of_imports_before_the_guard_is_respected(program, imports, expected):
    done = program.run(f"{imports}; cudaguard.install(rules=[rule()]); print(found())")
    assert done.stdout.splitlines() == [expected]
    assert bool(done.stderr) == bool(expected)


def test_too_late_for_a_prerequisite_that_is_not_installed_is_no_fault(program):
    assert program.output(
        "import target; cudaguard.install(rules=[rule(needs=('absent_one',))]); print(found())"
    ) == [""]


def test_module_that_came_through_the_guard_is_not_late_for_a_second_install(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        import target
        cudaguard.uninstall()
        cudaguard.install(rules=[rule()])
        cudaguard.install()
        print(found())
        """
    ) == [""]


# --- contradictions -----------------------------------------------------------------------

CYCLE = """
cudaguard.install({mode!r}, rules=[
    rule("ONE"),
    rule("TWO", watch=("needed",), needs=("other",)),
    rule("THREE", watch=("other",), needs=("target",)),
])
"""


@pytest.mark.parametrize("mode", ["fix", "warn"])
def test_cycle_is_spelled_out_and_none_of_its_orders_is_enforced(program, mode):
    done = program.run(CYCLE.format(mode=mode) + "import target; print(order(), found())")
    assert done.stdout.splitlines() == ["target CG804"]
    for words in (
        "ONE wants needed before target",
        "TWO wants other before needed",
        "THREE wants target before other",
        "this cannot be done",
        "for example CUDAGUARD_RULES=-ONE or install(disable=['ONE'])",
    ):
        assert done.stderr.count(words) == 1


def test_cycle_is_an_error_in_strict(program):
    done = program.run(
        CYCLE.format(mode="strict")
        + """
try:
    import target
except cudaguard.ImportOrderError as error:
    print(error.name, "THREE wants target before other" in str(error), found())
print("target" in sys.modules)
"""
    )
    assert done.stdout.splitlines() == ["target True CG804", "False"]
    assert "[CG804]" in done.stderr


def test_contradiction_is_told_once_from_whichever_side_it_is_met(program):
    done = program.run(
        CYCLE.format(mode="fix") + "import other, needed, target; print(order(), found())"
    )
    order, _, found = done.stdout.strip().rpartition(" ")
    assert order == "other needed target"
    assert found == "CG804"
    assert done.stderr.count("[CG804]") == 1


def test_of_two_opposite_rules_the_one_with_more_conditions_wins_in_silence(program):
    assert program.output(
        """
        cudaguard.install(rules=[
            rule("WIDE", watch=("needed",), needs=("target",)),
            rule("NARROW", when={"platform": sys.platform}),
        ])
        import target
        print(order(), found())
        """
    ) == ["needed target "]


def test_rule_that_asks_for_a_part_of_what_it_watches_does_not_recurse(program):
    program.write("pack/__init__.py", "print('pack runs')\n")
    program.write("pack/part.py", "print('part runs')\n")
    done = program.run(
        """
        cudaguard.install(rules=[
            rule("ONE", watch=("pack",), needs=("needed",)),
            rule("TWO", watch=("needed",), needs=("pack.part",)),
        ])
        import pack
        print("done")
        """,
        timeout=30,
    )
    assert done.stdout.splitlines()[-1] == "done"
    assert done.stdout.count("pack runs") == 1
    assert "RecursionError" not in done.stderr
