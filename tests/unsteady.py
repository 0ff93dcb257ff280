"""A plugin of pytest: failed tests of the kind `process` are run once more, each alone, at the end.

    python -m pytest -p tests.unsteady ...

A test that passes then is unsteady: it is listed with its first failure, and does not fail the run unless more than
`UNSTEADY_MAX` tests are unsteady. Tests of other kinds, tests during which a worker crashed and tests that fail both
times fail the run.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

__all__ = ["UNSTEADY_MAX", "Unsteady"]

UNSTEADY_MAX: Final = 3
# With more failures the run fails whatever the second runs say; they still tell which tests are unsteady.
_SECOND_RUNS_MAX: Final = 10
_SECOND_RUN_S_MAX: Final = 1_800
_KIND: Final = "process"
_CATEGORY: Final = "unsteady"
_FAILED: Final = ("failed", "error")


def pytest_configure(config: pytest.Config) -> None:
    # Workers of pytest-xdist report to the process that has them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Unsteady(config), "bmqctl-unsteady")


class Unsteady:
    """The reports of tests that failed first, and passed alone."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: dict[str, list[pytest.TestReport]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Run failed tests again; once the workers of pytest-xdist have ended."""
        # A run that was cut short says nothing about the tests that are left.
        if exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldfail or session.shouldstop:
            return
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        failed = _failed_processes(reporter.stats)
        for nodeid in list(failed)[:_SECOND_RUNS_MAX]:
            reporter.write_line("")
            reporter.write_line(f"once more, alone: {nodeid}")
            if self._passes(nodeid):
                self._reports[nodeid] = failed[nodeid]
        for category in _FAILED:
            left = [each for each in reporter.stats.pop(category, []) if each.nodeid not in self._reports]
            if left:
                reporter.stats[category] = left
        if self._reports:
            # One for each test, as the closing line counts them.
            reporter.stats[_CATEGORY] = [reports[0] for reports in self._reports.values()]
        if not any(category in reporter.stats for category in _FAILED) and len(self._reports) <= UNSTEADY_MAX:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the first failures of unsteady tests."""
        if not self._reports:
            return
        writer = self._config.get_terminal_writer()
        terminalreporter.write_sep("=", "UNSTEADY: failed, and passed alone")
        for nodeid, reports in self._reports.items():
            for report in reports:
                terminalreporter.write_sep("_", f"{report.when} of {nodeid}")
                report.toterminal(writer)
                for title, text in report.sections:
                    terminalreporter.write_sep("-", title)
                    terminalreporter.write_line(text.rstrip("\n"))
        for nodeid in self._reports:
            terminalreporter.write_line(f"UNSTEADY {nodeid}")
        if len(self._reports) > UNSTEADY_MAX:
            text = f"{len(self._reports)} tests are unsteady, more than {UNSTEADY_MAX}: the run fails"
            terminalreporter.write_line(text, red=True)

    def _passes(self, nodeid: str) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", nodeid]
        try:
            done = subprocess.run(
                command, cwd=self._config.rootpath, capture_output=True, timeout=_SECOND_RUN_S_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def _failed_processes(stats: dict[str, list[pytest.TestReport]]) -> dict[str, list[pytest.TestReport]]:
    """Return the reports of failed tests of the kind by their names; a test may fail in more than one phase."""
    found: dict[str, list[pytest.TestReport]] = {}
    for category in _FAILED:
        for report in stats.get(category, []):
            # A file that cannot be collected, or a crash of a worker, has no kind.
            if isinstance(report, pytest.TestReport) and _KIND in report.keywords:
                found.setdefault(report.nodeid, []).append(report)
    return found
