"""Build a bag of stand-ins from a recorded workflow: each task sleeps as long as it once ran, times a scale.

Tasks of one kind make a target.  The edges are the file's parents and children.
"""

from __future__ import annotations

import math
import re

from windfall.errors import BadInput
from windfall.model.spec import Bag, Sweep, Table, Target
from windfall.model.templates.table import format_row
from windfall.workflow.wfformat.instance import RecordedWorkflow

MOST_TARGETS = 200  # kinds of tasks; with more, all tasks are in one target
COLUMNS = ["id", "name", "seconds"]


def stand_ins(workflow: RecordedWorkflow, scale: float = 1.0) -> Bag:
    if not (math.isfinite(scale) and scale >= 0):
        raise BadInput(f"a scale of {scale} gives no times", "0 or more; 0.01 is a hundred times as fast")
    return timed(workflow, [seconds * scale for seconds in workflow.seconds])


def timed(workflow: RecordedWorkflow, seconds: list[float]) -> Bag:
    """Build a bag of sleeping tasks; `seconds` are theirs, in the order of the file."""
    groups = grouped(workflow.kinds)
    rows = [[spec.id, spec.name, f"{max(0.0, each):.3f}"]
            for spec, each in zip(workflow.specs, seconds, strict=True)]
    targets = [_target(name, [rows[task] for task in tasks]) for name, tasks in groups.items()]
    return Bag(name=bag_name(workflow.instance.name), targets=targets, edges=edges(workflow, groups))


def _target(name: str, rows: list[list[str]]) -> Target:
    table = Table(columns=COLUMNS, text="\n".join(map(format_row, rows)), count=len(rows))
    return Target(name=name, command=["sleep", "{seconds}"], source=Sweep(axes=[table]), cost="{seconds}")


def grouped(kinds: list[str]) -> dict[str, list[int]]:
    """Group tasks by kind into targets: name of a target → its tasks."""
    if len(set(kinds)) > MOST_TARGETS:
        return {"main": list(range(len(kinds)))}
    names: dict[str, str] = {}
    for kind in dict.fromkeys(kinds):
        names[kind] = _free(target_name(kind), set(names.values()))
    groups: dict[str, list[int]] = {}
    for task, kind in enumerate(kinds):
        groups.setdefault(names[kind], []).append(task)
    return groups


def target_name(text: str) -> str:
    """Turn a text into a target's name: letters, digits, - and _, beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:100].strip("_-") or "tasks"
    return name if name[0].isalpha() else f"t{name}"


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def bag_name(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:100].strip() or "workflow"


def edges(workflow: RecordedWorkflow, groups: dict[str, list[int]]) -> list[tuple[int, int]]:
    """Renumber the workflow's edges for the bag, where one target's tasks follow another's."""
    places = [0] * workflow.tasks
    for place, task in enumerate(task for tasks in groups.values() for task in tasks):
        places[task] = place
    pairs = zip(workflow.dag.src.tolist(), workflow.dag.dst.tolist(), strict=True)
    return [(places[before - 1], places[after - 1]) for before, after in pairs]
