"""The pytest plug-in: ``pytest --cudaguard``. PYTEST_DONT_REWRITE.

Every pytest run of every user loads this module, so it imports pytest, which is there, and nothing
else; what a guarded run needs is imported when one is asked for.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cudaguard.config import Mode
    from cudaguard.core.findings import Finding

NAME = "cudaguard"  # of the section, and the first part of the names of properties


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("cudaguard", "import-order guard for CUDA libraries")
    group.addoption(
        "--cudaguard",
        action="store_true",
        help="install the guard before any conftest is imported, and name the first test after "
        "which symbols moved, CUDA was initialized or a library came twice",
    )
    group.addoption(
        "--cudaguard-mode",
        metavar="MODE",
        choices=("off", "observe", "warn", "fix", "strict"),
        help="the same in this mode: off, observe, warn, fix (default) or strict (what it finds "
        "fails the run)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the guard before any conftest is imported, if it is asked for."""
    asked = early_config.known_args_namespace
    mode: Mode | None = asked.cudaguard_mode
    if not (asked.cudaguard or mode):
        return
    import os

    if mode is None and not os.environ.get("CUDAGUARD"):
        mode = "fix"
    if mode == "off":
        return
    run = GuardedRun(mode, str(early_config.rootpath))
    early_config.pluginmanager.register(run, "cudaguard-run")
    early_config.add_cleanup(run.end)


class GuardedRun:
    """A run under the guard: installs it, reports the findings, uninstalls it.

    pytest's UsageError says why settings or the user's warning filters forbid the guard.
    """

    def __init__(self, mode: Mode | None, root: str) -> None:
        from cudaguard.api import guard
        from cudaguard.core.lifecycle import activation
        from cudaguard.core.rule import Permit
        from cudaguard.errors import ConfigError, CudaGuardWarning

        # By id and words: a finding, and after what it was first there (in each worker of xdist).
        self._found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
        self._core, self._root = activation.core, root
        self._seen = 0  # findings of this process that are in these
        self._last = ""  # what has ended last
        try:
            Permit.asks_again = "pytest --cudaguard-mode fix"
            self._block = guard(mode)
            in_force = self._block.__enter__().mode
        except (ConfigError, CudaGuardWarning) as error:
            raise pytest.UsageError(str(error)) from None
        by = "" if activation.core.is_installed else " (by CUDAGUARD in the environment)"
        self._header = f"cudaguard: {in_force}{by}"
        self._is_strict = in_force == "strict"
        self._collect("")  # came before the guard: nothing of the run is named

    def end(self) -> None:
        """Uninstall the guard, as far as this run has installed it."""
        self._block.__exit__(None, None, None)

    def pytest_report_header(self) -> str:
        """Say that the run is guarded."""
        return self._header

    # --- after what something was there for the first time ------------------------------------

    def _collect(self, after: str) -> None:
        """Look what has changed, and name what has just ended beside what was found."""
        from cudaguard.errors import CudaGuardError, CudaGuardWarning

        try:
            self._core.scan_missed_loads()  # asks a driver that is there
        except (CudaGuardError, CudaGuardWarning):  # strict, or the user's filters: it is kept
            pass
        findings = self._core.reporter.channel.findings
        for finding in findings[self._seen :]:
            self._add(finding, after)
        self._seen, self._last = len(findings), after

    def pytest_plugin_registered(self, plugin: object) -> None:
        """Look after a conftest or a plug-in was imported."""
        import os

        file = getattr(plugin, "__file__", None)  # also called for those that came before us
        if isinstance(file, str):
            inner = os.path.relpath(file, self._root)
            is_inside = not inner.startswith(os.pardir)
            self._collect(f"the import of {inner if is_inside else file}")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None]:
        """Look after a file or folder was collected."""
        yield
        self._collect(f"the collection of {collector.nodeid or 'the session'}")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        """Look after a test, and what its fixtures do after it."""
        self._collect(self._last)  # what was done in between is not its doing
        yield
        self._collect(item.nodeid)

    # --- the end ------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker of pytest-xdist has found."""
        from cudaguard.core.findings import Finding

        for entry in getattr(node, "workeroutput", {}).get("cudaguard", ()):
            after = entry["after"] or "the start"
            self._add(Finding(**entry["finding"]), f"{after} ({node.gateway.id})")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Gather the findings, hand them on, and fail a strict run that has some."""
        self._collect(self._last)
        if hasattr(session.config, "workeroutput"):  # a worker: the controller tells of them
            session.config.workeroutput["cudaguard"] = [
                {"finding": finding.to_dict(), "after": "".join(places[:1])}
                for finding, places in self._found.values()
            ]
            return
        faults = self._faults()
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "add_global_property"):  # that of --junitxml
                for finding, places in faults:
                    plugin.add_global_property(f"{NAME}.{finding.id}", _text(finding, places))
        if self._is_strict and faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell of the findings; of mere information, but that about CUDA, only with ``-v``."""
        from cudaguard.features.cuda_init.findings import INITIALIZED

        is_verbose = terminalreporter.config.getoption("verbose") > 0
        texts = [
            _text(finding, places)
            for _, (finding, places) in sorted(self._found.items(), key=lambda item: item[0])
            if is_verbose or finding.severity != "info" or finding.id == INITIALIZED.id
        ]
        if texts:
            terminalreporter.section(NAME)
        for text in texts:
            terminalreporter.write_line(text)
        if self._is_strict and self._faults():
            terminalreporter.write_line("strict: a run with findings fails")

    def _add(self, finding: Finding, after: str) -> None:
        _, places = self._found.setdefault((finding.id, finding.what), (finding, []))
        if after and after not in places:
            places.append(after)

    def _faults(self) -> list[tuple[Finding, list[str]]]:
        return [entry for entry in self._found.values() if entry[0].severity != "info"]


def _text(finding: Finding, places: list[str]) -> str:
    """Return a finding, and after what it was first there."""
    return "\n".join([str(finding), *(f"  first seen after: {place}" for place in places)])
