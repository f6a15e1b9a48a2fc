"""The logger ``cudaguard``: what it gets, and that it costs a program nothing."""

from __future__ import annotations

LISTEN = """
import logging
class Keep(logging.Handler):
    def emit(self, record):
        print(record.name, record.levelname, record.getMessage().splitlines()[0])
logging.getLogger("cudaguard").addHandler(Keep())
logging.getLogger("cudaguard").setLevel(logging.DEBUG)
"""
SWITCH_OFF = "to switch this off: CUDAGUARD_RULES=-ORDER1 or install(disable=['ORDER1'])"


def test_repair_is_logged_as_info_with_the_way_to_switch_it_off(program):
    assert program.output(
        LISTEN + "cudaguard.install(rules=[rule()])\nimport target\nprint(found())"
    ) == [f"cudaguard INFO ORDER1: needed: imported before target at <string>:10; {SWITCH_OFF}", ""]


def test_observe_logs_nothing_and_finds(program):
    assert program.output(
        LISTEN + "cudaguard.install('observe', rules=[rule()])\nimport target\nprint(found())"
    ) == ["ORDER1"]


def test_program_with_logging_and_without_a_handler_sees_nothing(program):
    # The handler of last resort of `logging` would print warnings to stderr.
    assert program.output(
        "import logging\ncudaguard.install(rules=[rule()])\nimport target\nprint(order())",
        env={"LOCAL_RANK": "3"},
    ) == ["needed target"]
    assert program.output(
        "import logging\ncudaguard.install('warn', rules=[rule()])\nimport target\nprint(found())",
        env={"LOCAL_RANK": "3"},
    ) == ["ORDER1"]


def test_level_of_the_logger_is_the_programs_business(program):
    assert program.output(
        """
        import logging
        cudaguard.install(rules=[rule()])
        import target
        logger = logging.getLogger("cudaguard")
        print(logger.level, logger.propagate, logger.disabled, logging.root.handlers)
        """
    ) == ["0 True False []"]


def test_logging_is_not_imported_for_the_guards_own_sake(program):
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        import target
        print(order(), "logging" in sys.modules)
        """
    ) == ["needed target False"]


def test_handler_that_raises_does_not_break_the_import(program):
    done = program.run(
        LISTEN
        + """
class Broken(logging.Handler):
    def handle(self, record):
        raise RuntimeError("their handler")
logging.getLogger("cudaguard").addHandler(Broken())
cudaguard.install(rules=[rule()])
import target
print(order())
"""
    )
    assert done.stdout.splitlines()[-1] == "needed target"
