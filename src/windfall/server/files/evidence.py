"""Files that a report names: only those that the task was asked for.

A pilot is another's machine.  What it calls an output ends up in the user's directory and as input of later tasks, so a
name that nobody asked for is dropped, and a success without all its outputs is none.
"""

from __future__ import annotations

from typing import Any

from windfall.core.messages.events import Report
from windfall.server.grants import Rendering

MODE = 0o777


def keep_named(report: Report, rendering: Rendering, bag: Any, task: int) -> list[str]:
    """Drop files that nobody asked for; returns the outputs that the task names."""
    target, index = bag.locate(task)
    renderer = rendering.renderer(target)
    outputs = list(dict.fromkeys(renderer.outputs(index))) if renderer.target.outputs else []
    named = frozenset(outputs) if report.o == "succeeded" else frozenset[str]()
    kept = {path: (path, sha, size, mode & MODE) for path, sha, size, mode in report.files if path in named}
    report.files = list(kept.values())
    if not renderer.target.scratch:
        report.scratch = None
    return outputs


def demand_all(report: Report, outputs: list[str]) -> None:
    """A success whose outputs are not all there is a failure."""
    there = {path for path, *_ in report.files}
    absent = next((path for path in outputs if path not in there), None)
    if report.o == "succeeded" and absent is not None:
        report.o, report.why, report.files = "failed", "output", []
        report.note = "; ".join(filter(None, [report.note, f"the output {absent[:200]} never arrived"]))
