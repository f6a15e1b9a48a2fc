"""`guard`: up inside the block, as before outside it, however blocks are opened and left."""

from __future__ import annotations

import pytest


def test_guard_is_up_inside_the_block_and_down_outside(program):
    assert program.output(
        """
        before = list(sys.meta_path)
        with cudaguard.guard(rules=[rule()]) as handle:
            print(mode(), handle.mode)
            import target
        print(mode(), sys.meta_path == before, order())
        """
    ) == ["fix fix", "off True needed target"]


def test_rules_and_switches_of_a_block_end_with_it(program):
    assert program.output(
        """
        cudaguard.install()
        ids = lambda: {r.id for r in cudaguard.active_rules()}
        before = ids()
        with cudaguard.guard(rules=[rule()], disable=["CG001"]):
            print("CG001" in ids(), "ORDER1" in ids())
        print(ids() == before)
        import target
        print(order())
        """
    ) == ["False True", "True", "target"]


def test_making_a_block_does_nothing_until_it_is_entered(program):
    assert program.output("b = cudaguard.guard(); print(mode())") == ["off"]


def test_blocks_nest_and_the_innermost_mode_holds(program):
    assert program.output(
        """
        with cudaguard.guard("observe"):
            with cudaguard.guard("strict"):
                with cudaguard.guard():
                    print(mode())
                print(mode())
            print(mode())
        print(mode())
        """
    ) == ["strict", "strict", "observe", "off"]


def test_block_over_an_installed_guard_gives_its_mode_back(program):
    assert program.output(
        """
        cudaguard.install("warn")
        with cudaguard.guard("strict"):
            print(mode())
        print(mode())
        with cudaguard.guard("off"):
            print(mode(), any(type(f).__module__.startswith("cudaguard") for f in sys.meta_path))
        print(mode())
        """
    ) == ["strict", "warn", "off False", "warn"]


@pytest.mark.parametrize("sequence", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_blocks_may_be_left_in_any_order(program, sequence):
    # The mode in force is always that of the newest block which is still open.
    modes = {"a": "observe", "b": "warn", "c": "strict"}
    expected = []
    still = "abc"
    for left in sequence:
        still = still.replace(left, "")
        expected.append(modes[still[-1]] if still else "off")
    assert (
        program.output(
            """
            before = list(sys.meta_path)
            blocks = {n: cudaguard.guard(m) for n, m in
                      (("a", "observe"), ("b", "warn"), ("c", "strict"))}
            for block in blocks.values():
                block.__enter__()
            for name in sys.argv[1]:
                blocks[name].__exit__(None, None, None)
                print(mode())
            assert sys.meta_path == before
            """,
            sequence,
        )
        == expected
    )


def test_error_inside_the_block_passes_and_the_guard_goes_down(program):
    assert (
        program.output(
            """
        for error in (KeyError("mine"), KeyboardInterrupt(), SystemExit(3)):
            try:
                with cudaguard.guard():
                    raise error
            except BaseException as caught:
                print(caught is error, mode())
        """
        )
        == ["True off"] * 3
    )


def test_one_block_object_may_be_entered_again_and_inside_itself(program):
    lines = program.output(
        """
        block = cudaguard.guard("warn")
        for _ in range(2):
            with block:
                with block:
                    print(mode())
                print(mode())
            print(mode())
        """
    )
    assert lines == ["warn", "warn", "off"] * 2


def test_install_inside_a_block_survives_it(program):
    assert program.output(
        """
        with cudaguard.guard("strict"):
            cudaguard.install("warn", rules=[rule("ONE")])
            print(mode())
        print(mode(), "ONE" in {r.id for r in cudaguard.active_rules()})
        cudaguard.uninstall()
        print(mode())
        """
    ) == ["strict", "warn True", "off"]


def test_uninstall_inside_a_block_takes_the_guard_down_at_once(program):
    assert program.output(
        """
        before = list(sys.meta_path)
        cudaguard.install("warn")
        with cudaguard.guard("strict"):
            cudaguard.uninstall()
            print(mode(), sys.meta_path == before)
        print(mode(), sys.meta_path == before)
        """
    ) == ["off True", "off True"]


def test_install_after_uninstall_inside_a_block_survives_the_block(program):
    assert program.output(
        """
        with cudaguard.guard("strict"):
            cudaguard.uninstall()
            cudaguard.install("warn")
        print(mode())
        """
    ) == ["warn"]


def test_rule_added_inside_a_block_stays(program):
    assert program.output(
        """
        with cudaguard.guard():
            cudaguard.add_rule(rule())
        with cudaguard.guard():
            import target
        print(order())
        """
    ) == ["needed target"]


def test_one_block_object_shared_by_many_threads_ends_as_it_began(program):
    assert program.output(
        """
        import threading
        sys.setswitchinterval(1e-5)
        before = list(sys.meta_path)
        block = cudaguard.guard("strict", rules=[rule()])
        down = []
        def work():
            for _ in range(40):
                with block:
                    if mode() != "strict":
                        down.append(mode())
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        try:
            import nothing_of_that_name  # a place is kept as long as another thread may search
        except ImportError:
            print(down, mode(), sys.meta_path == before)
        """
    ) == ["[] off True"]


def test_block_that_could_not_be_entered_is_not_open(program):
    # The user's own filter makes the report of a bad setting an error of the call.
    done = program.run(
        """
        import warnings
        warnings.simplefilter("error", cudaguard.CudaGuardWarning)
        before = list(sys.meta_path)
        try:
            with cudaguard.guard("fix"):
                print("inside")
        except cudaguard.CudaGuardWarning:
            print("refused")
        print(mode(), sys.meta_path == before)
        """,
        env={"CUDAGUARD_RULES": "nonsense"},
    )
    assert done.stdout.splitlines() == ["refused", "off True"]
