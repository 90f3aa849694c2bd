"""Checks of the files that a report names against the outputs that the task declares.

A pilot runs on a machine that the server does not control.  Its output files end up in the user's directory and as
inputs of later tasks.  So the server drops every file that the task did not declare, and fails a success without all
declared outputs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from windfall.core.messages.events import Report
from windfall.core.state.world import BagState
from windfall.errors import BadInput, TooLarge
from windfall.model.calls import RESULT, STORED
from windfall.model.checks.bag import relative_path
from windfall.server.grants import Rendering
from windfall.wire.patterns import MAX_PARTS, MAX_TEXT, Pattern, is_pattern, split

MODE = 0o777
MOST_S = 5.0  # of a processor, to compare the files of one report with patterns
_ENTRY = 50  # characters whose comparison takes as long as the rest of what a pattern or a file costs
_COMPILING = 5_000  # characters of files whose comparison takes as long as compiling

Found = dict[str, list[str]]  # the files that the outputs name, each with these outputs


def declared(report: Report, rendering: Rendering, bag: BagState, task: int) -> list[str]:
    """Return the outputs of a report's task; drop the report's directory if the bag keeps none."""
    target, index = bag.locate(task)
    renderer = rendering.renderer(target)
    outputs = list(dict.fromkeys(renderer.outputs(index))) if renderer.target.outputs else []
    if renderer.target.kind == "call" and report.value == STORED:
        outputs.append(RESULT)
    if not renderer.target.scratch:
        report.scratch = None
    return outputs


def paths_of(report: Report) -> list[str]:
    """Return the files that may be outputs: a failure brings none."""
    return [file[0] for file in report.files] if report.o == "succeeded" else []


def effort(paths: Iterable[str], outputs: Iterable[str]) -> int:
    """Estimate how many nanoseconds comparing files with the patterns among the outputs takes."""
    if cost := sum(len(each) + _ENTRY for each in outputs if is_pattern(each)):
        return cost * (sum(len(path) + _ENTRY for path in paths) + _COMPILING)
    return 0


def compare(paths: Iterable[str], outputs: list[str]) -> Found:
    """Find the files that an output names or stands for; raise TooLarge if that takes too long."""
    until = time.thread_time() + MOST_S
    places: Found = {}
    for output in outputs:
        for place in {output, "/".join(split(output))}:
            places.setdefault(place, []).append(output)
    patterns = list(_compiled(outputs, until))
    found: Found = {}
    for path in paths:
        known = [output for place in _places_above(path) for output in places.get(place, ())]
        known += [output for output, pattern in patterns if pattern.matches(path)]
        if known and (path in places or _harmless(path)):
            found[path] = known
        _check_time(until)
    return found


def _compiled(outputs: Iterable[str], until: float) -> Iterator[tuple[str, Pattern]]:
    for output in outputs:
        if is_pattern(output) and len(output) <= MAX_TEXT:
            yield output, Pattern(output)
            _check_time(until)


def _check_time(until: float) -> None:
    if time.thread_time() > until:
        raise TooLarge("comparing the task's files with its outputs takes too long", "name fewer patterns")


def _places_above(path: str) -> list[str]:
    """Return a path and the directories above it, which an output may name."""
    if path.count("/") >= MAX_PARTS:
        return [path]
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _harmless(path: str) -> bool:
    try:
        return path.isprintable() and relative_path(path, "the output") == path
    except BadInput:
        return False


def keep_found(report: Report, found: Found) -> None:
    """Drop the files that the task did not declare."""
    kept = {path: (path, sha, size, mode & MODE) for path, sha, size, mode in report.files if path in found}
    report.files = list(kept.values())


def demand_all(report: Report, outputs: list[str], found: Found) -> None:
    """Turn a success into a failure if one of its outputs is missing."""
    there = {output for path, *_ in report.files for output in found[path]}
    absent = next((output for output in outputs if output not in there), None)
    if report.o == "succeeded" and absent is not None:
        report.o, report.why, report.files = "failed", "output", []
        add_note(report, f"the output {absent[:200]} never arrived")


def add_note(report: Report, note: str) -> None:
    report.note = f"{report.note}; {note}" if report.note else note
