"""Plug-in of pytest: writes into the log why a test failed that runs once more.

    python -m pytest -v --reruns 1 -p testing.support.repeated testing/integration

pytest-rerunfailures shows the word RERUN and drops the report of the failure, so that the reason
of a test that passes the second time is lost. This writes it below the line with that word, each
line of it behind `MARK`, at once: a run that is killed has it in its log, too.
"""

from __future__ import annotations

from typing import Final

import pytest

MARK: Final = "  | "


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin to write reasons, where there is a terminal.

    A worker of pytest-xdist has none: it sends its reports to the process that has.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):
        config.pluginmanager.register(Reasons(reporter), "reasons of repeated tests")


class Reasons:
    """Writes the reason of each first failure."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the reason after the line that the terminal has written."""
        if str(report.outcome) == "rerun":  # a word of pytest-rerunfailures
            for line in report.longreprtext.splitlines() or ["no reason is given"]:
                self._reporter.write_line(f"{MARK}{line}")
