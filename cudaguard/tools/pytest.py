"""The pytest plug-in: ``pytest --cudaguard``. PYTEST_DONT_REWRITE.

Every pytest run of every user loads this module, so it imports pytest, which is there, and nothing
else; what a guarded run needs is imported when one is asked for.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.config import Mode
    from cudaguard.model import Finding


NAME = "cudaguard"  # of the section, and the first part of the names of properties


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("cudaguard", "import-order guard for CUDA libraries")
    group.addoption(
        "--cudaguard",
        metavar="MODE",
        nargs="?",
        const="fix",
        type=_mode,
        help="put the guard up before any conftest is imported: off, observe, warn, fix (meant by "
        "a bare --cudaguard) or strict (whatever it finds fails the run)",
    )
    for name, what in (("enable", "an opt-in rule"), ("disable", "a rule or a detector")):
        group.addoption(
            f"--cudaguard-{name}",
            metavar="ID",
            action="append",
            default=[],
            help=f"{name} {what} in a guarded run, as in CG017; may be given several times",
        )
    parser.addini(
        "cudaguard", "mode of the guard where --cudaguard is not given", type="string", default=""
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the guard up before any conftest is imported, if it is asked for."""
    asked = early_config.known_args_namespace
    mode: Mode | None = asked.cudaguard or _configured(early_config)
    if mode is None:
        return
    import os

    from cudaguard.core.modes import is_on

    if not is_on(mode):
        return

    if os.environ.get("CUDAGUARD") and not asked.cudaguard:
        mode = None  # the variable, which is stronger than configuration
    run = GuardedRun(mode, asked.cudaguard_enable, asked.cudaguard_disable)
    early_config.pluginmanager.register(run, "cudaguard-run")
    early_config.add_cleanup(run.end)


def _mode(word: str) -> Mode:
    from argparse import ArgumentTypeError

    from cudaguard.config import parse_mode
    from cudaguard.errors import ConfigError

    try:
        return parse_mode(word, "--cudaguard")
    except ConfigError as error:
        what = str(error).partition(": ")[2]  # argparse names the option itself
        raise ArgumentTypeError(
            f"{what}. A bare --cudaguard takes what follows for its mode: before a path write "
            "--cudaguard=fix"
        ) from None


def _configured(config: pytest.Config) -> Mode | None:
    """Return the mode that the ini file asks for, None if it asks for none."""
    word: str = config.getini("cudaguard")
    if not word:
        return None
    from cudaguard.config import parse_mode
    from cudaguard.errors import ConfigError

    try:
        return parse_mode(word, f"{config.inipath}: cudaguard")
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


class GuardedRun:
    """A run under the guard: puts it up, tells of the findings, takes it down.

    Args:
        mode: The mode asked for; None, as the environment says.
        enable: Ids of rules to switch on.
        disable: Ids of rules and detectors to switch off.

    Raises:
        UsageError: An unknown id, or a guard that the user's warning filters do not let come up.
    """

    def __init__(self, mode: Mode | None, enable: list[str], disable: list[str]) -> None:
        from cudaguard.api import guard
        from cudaguard.core.lifecycle import activation
        from cudaguard.core.modes import is_strict
        from cudaguard.errors import ConfigError, CudaGuardWarning

        self._found: dict[tuple[str, str], Finding] = {}
        self._finders: dict[tuple[str, str], list[str]] = {}  # ids of the workers under xdist
        try:
            self._block = guard(mode, enable=enable, disable=disable)
            in_force = self._block.__enter__().mode
        except (ConfigError, CudaGuardWarning) as error:
            raise pytest.UsageError(str(error)) from None
        by = "" if activation.is_up else " (by CUDAGUARD in the environment)"
        self._header = f"cudaguard: {in_force}{by}"
        self._is_strict = is_strict(in_force)

    def end(self) -> None:
        """Take the guard down, as far as this run has put it up."""
        self._block.__exit__(None, None, None)

    def pytest_report_header(self) -> str:
        """Say that the run is guarded."""
        return self._header

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker of pytest-xdist has found."""
        from cudaguard.model import Finding

        for fields in getattr(node, "workeroutput", {}).get("cudaguard", ()):
            self._add(Finding(**fields), node.gateway.id)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Gather the findings, hand them on, and fail a strict run that has some."""
        from cudaguard.api import status

        findings = status().findings
        if hasattr(session.config, "workeroutput"):  # a worker: the controller tells of them
            output = [finding.to_dict() for finding in findings]
            session.config.workeroutput["cudaguard"] = output
            return
        for finding in findings:
            self._add(finding, "")
        faults = [finding for finding in self._found.values() if finding.severity != "info"]
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "add_global_property"):  # that of --junitxml
                for finding in faults:
                    plugin.add_global_property(f"{NAME}.{finding.id}", str(finding))
        if self._is_strict and faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell of the findings; of mere information only with ``-v``."""
        is_verbose = terminalreporter.config.getoption("verbose") > 0
        keys = [key for key, f in self._found.items() if is_verbose or f.severity != "info"]
        if not keys:
            return
        terminalreporter.section(NAME)
        for key in sorted(keys):
            terminalreporter.write_line(str(self._found[key]))
            finders = self._finders[key]
            if any(finders):
                names = (finder or "the controller" for finder in finders)
                terminalreporter.write_line(f"  found by: {', '.join(names)}")
        if self._is_strict:
            terminalreporter.write_line("strict: a run with findings fails")

    def _add(self, finding: Finding, finder: str) -> None:
        key = (finding.id, finding.what)
        self._found.setdefault(key, finding)
        self._finders.setdefault(key, []).append(finder)
