"""The requirements of an application before it runs: tasks, depth, width, the longest chain, bytes, sections."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import numpy as np

from windfall.workflow.graphs.dag import chain, reduction
from windfall.workflow.yvetteml.calls import value_of
from windfall.workflow.yvetteml.frame import Column
from windfall.workflow.yvetteml.program import Program
from windfall.workflow.yvetteml.unrolled import Call

MAX_REDUCED = 100_000  # tasks; the edges of a larger graph are not counted


def requirements(program: Program) -> dict[str, Any]:
    levels = program.levels
    return {
        "application": program.application.name,
        "tasks": program.tasks,
        "edges": reduction(program.dag, program.shape)[0] if program.tasks <= MAX_REDUCED else None,
        "depth": int(levels.max()) + 1 if program.tasks else 0,
        "width": int(np.bincount(levels).max()) if program.tasks else 0,
        "critical_path": _critical(program),
        "components": _components(program),
        "sections": _sections(program),
        "units": _units(program),
        "parameters": [{"name": each.name, "type": each.type, "mode": each.mode, "collection": each.collection}
                       for each in program.application.params],
        "doubts": program.doubts,
    }


def _critical(program: Program) -> dict[str, Any]:
    """Describe one longest chain: its number of tasks, and their components in order."""
    if not program.tasks:
        return {"tasks": 0, "components": []}
    last = int(program.nodes[int(np.argmax(program.levels))])
    nodes = np.array([node for node in chain(program.shape, last) if program.dag.task[node]])
    firsts = np.array([call.node for call in program.calls])
    by_node = np.argsort(firsts)
    which = by_node[np.searchsorted(firsts[by_node], nodes, side="right") - 1]
    names = [program.calls[number].component.name for number in which.tolist()]
    return {"tasks": len(names), "components": runs_of(names)}


def runs_of(names: list[str]) -> list[dict[str, Any]]:
    """Count equal names in a row; return at most a hundred such runs."""
    runs = [{"component": name, "tasks": sum(1 for _ in same)} for name, same in groupby(names)]
    return runs[:100]


def _components(program: Program) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for call in program.calls:
        new = {"component": call.component.name, "tasks": 0, "bytes_in": 0, "bytes_out": 0}
        entry = found.setdefault(call.component.name, new)
        entry["tasks"] += call.n
        for key, modes in (("bytes_in", ("in", "inout")), ("bytes_out", ("out", "inout"))):
            size = _bytes(call, modes)
            entry[key] = None if size is None or entry[key] is None else entry[key] + size
    return list(found.values())


def _bytes(call: Call, modes: tuple[str, ...]) -> int | None:
    """Return the bytes of all tasks of a call together; None if the size of a type is not declared."""
    total = 0
    for number, parameter in enumerate(call.component.params):
        if parameter.mode not in modes:
            continue
        size = parameter.size * call.n if parameter.size is not None else _letters(call, number)
        if size is None or parameter.collection:
            return None
        total += size
    return total


def _letters(call: Call, number: int) -> int | None:
    """Return the bytes of a text parameter given as a value, over all tasks of a call; None if its size is unknown."""
    argument, parameter = call.arguments[number], call.component.params[number]
    if parameter.type != "string":
        return None
    bound = value_of(call.component.name, parameter, argument, call.frame)
    if not isinstance(bound, Column):
        return None
    if isinstance(bound.data, str):
        return len(bound.data.encode()) * call.n
    return sum(len(str(text).encode()) * count for text, count in Counter(bound.data.tolist()).items())


def _sections(program: Program) -> list[dict[str, Any]]:
    """Describe every `par`; its tasks include those of the sections inside it."""
    tasks = [0] * len(program.sections)
    for call in program.calls:
        number = call.frame.section
        while number >= 0:
            tasks[number] += call.n
            number = program.sections[number].parent
    found = []
    for number, section in enumerate(program.sections):
        line, column = section.frame.source.place(section.at)
        found.append({
            "section": number, "parent": section.parent if section.parent >= 0 else None,
            "file": section.frame.source.file, "line": line, "column": column,
            "kind": "loop" if section.loop else "branches", "branches": section.branches,
            "instances": section.instances, "tasks": tasks[number],
        })  # fmt: skip
    return found


def _units(program: Program) -> list[dict[str, Any]]:
    """Count the calls of each graph component."""
    found: dict[str, int] = {}
    for unit in program.units:
        found[unit.component] = found.get(unit.component, 0) + unit.frame.n
    return [{"component": name, "instances": count} for name, count in found.items()]
