"""Counts in one line at the end of every run, and ``REQUIRE_TOOLS=1``: a skipped test is a failed one.

A developer without etcd or a prepared model may skip what needs them. CI has everything, so there a skip
means that a check quietly stopped running. Expected failures (``xfail``) stay what they are. Two kinds of
skip are allowed everywhere, and still counted: what is not part of this repository and cannot be fetched by
it, and what only root may do.
"""

import os
from collections.abc import Generator

import pytest

COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")

MAY_BE_ABSENT = "the definitions of Dynamo's resources are not part of this repository, and absent here"
# A reason follows.
MAY_BE_FORBIDDEN = "no service manager can be run here"


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn the report of a skip into a failure that says what was skipped and why."""
    if not report.skipped or hasattr(report, "wasxfail") or os.environ.get("REQUIRE_TOOLS") != "1":
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if reason == f"Skipped: {MAY_BE_ABSENT}" or reason.startswith(f"Skipped: {MAY_BE_FORBIDDEN}: "):
        return
    report.outcome = "failed"
    report.longrepr = f"REQUIRE_TOOLS=1, and {report.nodeid} would be skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at every phase of every test."""
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Look at every module: a skip at module level hides all its tests."""
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the counts, below pytest's own closing line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.option.collectonly or hasattr(config, "workerinput"):
        return
    counts = ", ".join(f"{len(reporter.stats.get(outcome, []))} {outcome}" for outcome in COUNTED)
    print(f"counts: {counts}")
