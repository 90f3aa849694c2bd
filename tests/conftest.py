"""What needs root is left out without it; what was left out is said at the end, with the reason."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

# A shell ignores Ctrl-C for what it starts with `&`, and so would everybody that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[report.nodeid.partition("::")[0], reason.removeprefix("Skipped: ")] += 1
    if not reasons:
        terminalreporter.write_line("Nothing was left out.")
        return
    terminalreporter.section("left out")
    for (file, reason), count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count:>4}  {file}: {reason}")
