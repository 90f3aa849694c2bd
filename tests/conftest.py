"""Tests that lack root or a tool are left out.  The last lines say how many, why, and how to run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

# A shell ignores Ctrl-C for what it starts with `&`, and so would everybody that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# scripts/test runs pytest twice.  Each run adds what it left out to this file, and scripts/test prints both together.
LIST = "WINDFALL_TESTS_LEFT_OUT"

TOOLS = {
    "compilers": ("needs compilers for C and C++ (Debian: apt install gcc g++)",
                  lambda: bool(shutil.which("cc") and shutil.which("c++"))),
    "pip": ("needs pip in .venv (Debian: apt install python3-venv, then remove .venv)",
            lambda: importlib.util.find_spec("pip") is not None),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {tool: reason for tool, (reason, is_here) in TOOLS.items() if not is_here()}
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))
        for mark in item.iter_markers("needs"):
            if mark.args[0] in missing:
                item.add_marker(pytest.mark.skip(reason=missing[mark.args[0]]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found[reason.removeprefix("Skipped: "), str(Path(report.nodeid.partition("::")[0]).parent)] += 1
    if LIST in os.environ:
        with open(os.environ[LIST], "a") as file:
            file.writelines(f"{count}\t{folder}\t{' '.join(reason.split())}\n"
                            for (reason, folder), count in found.items())
    elif found:
        terminalreporter.section("left out")
        terminalreporter.write_line("\n".join(left_out(found)))
    else:
        terminalreporter.write_line("Nothing was left out.")


def left_out(found: Counter[tuple[str, str]]) -> list[str]:
    """Return a line for each reason: how many tests, why, and in which folders."""
    lines = []
    for reason in sorted({reason for reason, _ in found}):
        folders = {folder: count for (why, folder), count in sorted(found.items()) if why == reason}
        where = ", ".join(f"{folder}: {count}" for folder, count in folders.items())
        lines.append(f"{sum(folders.values()):>4}  {reason}  [{where}]")
    return lines


def main() -> None:
    """Print what all runs left out, from the file."""
    found: Counter[tuple[str, str]] = Counter()
    for line in Path(sys.argv[1]).read_text().splitlines():
        count, folder, reason = line.split("\t", 2)
        found[reason, folder] += int(count)
    print("\n".join(left_out(found)) if found else "Nothing was left out.")


if __name__ == "__main__":
    main()
