"""Checks of the files that a report names against the outputs that the task declares.

A pilot runs on a machine that the server does not control.  Its output files end up in the user's directory and as
inputs of later tasks.  So the server drops every file that the task did not declare, and fails a success without all
declared outputs.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall.core.messages.events import Report
from windfall.core.state.world import BagState
from windfall.errors import BadInput
from windfall.model.calls import RESULT, STORED
from windfall.model.checks.bag import relative_path
from windfall.server.grants import Rendering
from windfall.wire.patterns import Pattern

MODE = 0o777


def keep_named(report: Report, rendering: Rendering, bag: BagState, task: int) -> list[str]:
    """Drop the files that the task did not declare; return the outputs that it did."""
    target, index = bag.locate(task)
    renderer = rendering.renderer(target)
    outputs = list(dict.fromkeys(renderer.outputs(index))) if renderer.target.outputs else []
    if renderer.target.kind == "call" and report.value == STORED:
        outputs.append(RESULT)
    named = _named(outputs) if report.o == "succeeded" else _none
    kept = {path: (path, sha, size, mode & MODE) for path, sha, size, mode in report.files if named(path)}
    report.files = list(kept.values())
    if not renderer.target.scratch:
        report.scratch = None
    return outputs


def _none(path: str) -> bool:
    return False


def _named(outputs: list[str]) -> Callable[[str], bool]:
    """Return a function that says whether the outputs name a file, or stand for it by a pattern or a directory."""
    exact = frozenset(outputs)
    patterns: list[Pattern] = []  # compiled for the first file that no output names: most outputs are names

    def stand_for(path: str) -> bool:
        if not patterns:
            patterns.extend(map(Pattern, outputs))
        return _harmless(path) and any(each.matches(path) for each in patterns)

    return lambda path: path in exact or stand_for(path)


def _harmless(path: str) -> bool:
    try:
        return path.isprintable() and relative_path(path, "the output") == path
    except BadInput:
        return False


def demand_all(report: Report, outputs: list[str]) -> None:
    """Turn a success into a failure if one of its outputs is missing."""
    there = {path for path, *_ in report.files}
    absent = next((path for path in outputs if path not in there and not any(map(Pattern(path).matches, there))), None)
    if report.o == "succeeded" and absent is not None:
        report.o, report.why, report.files = "failed", "output", []
        add_note(report, f"the output {absent[:200]} never arrived")


def add_note(report: Report, note: str) -> None:
    report.note = f"{report.note}; {note}" if report.note else note
