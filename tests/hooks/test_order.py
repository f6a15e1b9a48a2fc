"""What a rule with `needs` does to an import: the order, and what becomes of prerequisites that
are absent, half imported, broken or rude.
"""

from __future__ import annotations

import signal

import pytest


def test_prerequisites_run_before_the_target_in_the_order_of_the_rule(pair):
    pair.modules("target.py", "zulu.py", "alpha.py")
    ran = pair.guarded("import target", pair.NAMES, needs=("zulu", "alpha"))
    assert (ran.lines, ran.err) == (["zulu alpha target"], "")


def test_without_the_guard_nothing_is_imported_first(pair):
    pair.modules("target.py", "prereq.py")
    assert pair.bare("import target", pair.NAMES).lines == ["target"]


def test_unwatched_import_has_no_prerequisites(pair):
    pair.modules("bystander.py", "prereq.py")
    assert pair.guarded("import bystander", pair.NAMES, proof="").lines == ["bystander"]


def test_watch_on_a_package_comes_before_its_parts(pair):
    pair.module("target/__init__.py", "import target.part\n")
    pair.modules("target/part.py", "prereq.py")
    lines = pair.guarded("import target.part", pair.NAMES).lines
    assert lines == ["prereq target.part target"]


def test_prerequisite_may_be_a_submodule(pair):
    pair.modules("target.py", "box/__init__.py", "box/part.py")
    lines = pair.guarded("import target", pair.NAMES, needs=("box.part",)).lines
    assert lines == ["box box.part target"]


def test_prerequisites_have_prerequisites(pair):
    pair.modules("target.py", "prereq.py", "first.py")
    lines = pair.guarded(
        """
        cudaguard.add_rule(cudaguard.Rule("LOCAL2", ("prereq",), "test", needs=("first",)))
        import target, ran
        print(*ran.names)
        """
    ).lines
    assert lines == ["first prereq target"]


def test_prerequisite_that_is_there_is_not_imported_again(pair):
    pair.modules("target.py", "prereq.py")
    assert pair.guarded("import prereq, target", pair.NAMES).lines == ["prereq target"]


def test_prerequisite_blocked_with_none_is_silent(pair):
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        "sys.modules['prereq'] = None\nimport target\nprint(sys.modules['prereq'])", pair.FINDINGS
    )
    assert (ran.lines, ran.err) == (["None"], "")


BROKEN = {
    "raises": "raise RuntimeError('out of order')",
    "exits": "import sys; sys.exit(3)",
    "lacks-a-dependency": "import a_module_that_is_not_there",
    "is-no-python": "this is not Python",
}


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
def test_failing_prerequisite_is_reported_once_and_the_import_goes_on(pair, code):
    pair.module("target.py", after="value = 42\n")
    pair.child.write("prereq.py", "import ran; ran.names.append('attempt')\n" + code)
    ran = pair.guarded(
        """
        import importlib, target, ran
        print(target.value)
        importlib.reload(target)
        print(ran.names.count("target"), "prereq" in sys.modules)
        """,
        pair.FINDINGS,
    )
    assert ran.lines == ["42", "2 False", "CG801"]
    assert ran.err.count("prereq could not be imported before target") == 1
    assert "Traceback" not in ran.err


def test_failing_prerequisite_does_not_stop_its_siblings(pair):
    pair.modules("target.py", "sibling.py")
    pair.child.write("prereq.py", "1 / 0")
    lines = pair.guarded("import target", pair.NAMES, needs=("prereq", "sibling")).lines
    assert lines == ["sibling target"]


def test_target_blocked_with_none_fails_as_ever(pair):
    pair.modules("target.py", "prereq.py")
    lines = pair.same(
        """
        import sys
        sys.modules["target"] = None
        try:
            import target
        except ModuleNotFoundError as error:
            print(error, error.name, "prereq" in sys.modules)
        """,
        proof="",
    )
    assert lines == ["import of target halted; None in sys.modules target False"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize(
    ("kind", "handler"),
    [
        ("Exception", "Limit().ring"),
        ("SystemExit", "Limit().ring"),
        ("Exception", "Limit()"),
        ("Exception", "functools.partial(Limit.ring, None)"),
    ],
)
def test_time_limit_of_the_program_ends_a_prerequisite_as_well(pair, kind, handler):
    """What a handler of a signal raises is meant for the program, wherever it comes up."""
    pair.module(
        "prereq.py",
        "import time\nuntil = time.monotonic() + 20\n"
        "while time.monotonic() < until: time.sleep(0.01)\n",
    )
    pair.modules("target.py")
    done = pair.guarded(
        f"""
        import functools, signal
        class TooLate({kind}): pass
        class Limit:
            def ring(self, *_):
                raise TooLate
            __call__ = ring
        signal.signal(signal.SIGALRM, {handler})
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            import target
        except TooLate:
            print("in time", "target" in sys.modules)
        """,
        pair.FINDINGS,
    )
    assert (done.lines, done.err) == (["in time False"], "")
