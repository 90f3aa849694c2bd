"""A graph as a picture: every task if there are few, else groups of tasks by component and section.

A picture holds nodes on rows and arrows between them; `dot` and `sheet.py` write it as DOT, SVG or PNG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from windfall.workflow.graphs.dag import reduction
from windfall.workflow.graphs.named_graph import NamedGraph
from windfall.workflow.yvetteml.program import Program
from windfall.workflow.yvetteml.unrolled import Call

MOST_TASKS = 2000  # tasks drawn one by one
MOST_GROUPS = 120
LONGEST = 200  # letters of a label


class PictureNode(NamedTuple):
    label: str
    component: str
    section: int  # -1: none
    row: int
    tasks: int


@dataclass(frozen=True)
class Picture:
    title: str
    nodes: list[PictureNode]
    arrows: list[tuple[int, int]]  # a node to itself: its tasks follow each other
    sections: dict[int, tuple[str, int]]  # section → its label, and the section around it, or -1
    summary: bool
    left_out: int = 0  # groups not drawn, the smallest ones

    def rows(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for number, node in enumerate(self.nodes):
            found.setdefault(node.row, []).append(number)
        return [found[row] for row in sorted(found)]


def picture(program: Program, fits: Callable[[Picture], bool] = lambda _: True) -> Picture:
    """Return the most detailed picture that fits, else the coarsest: a node for each component."""
    for candidate in _candidates(program):
        if fits(candidate):
            return candidate
    return candidate


def _candidates(program: Program) -> Iterator[Picture]:
    if program.tasks <= MOST_TASKS:
        yield _tasks(program)
    yield _groups(program, lambda call: (call.component.name, call.frame.source.file, call.at, call.frame.section))
    yield _groups(program, lambda call: (call.component.name, call.frame.section))
    yield _groups(program, lambda call: (call.component.name,))


def _sections(program: Program) -> dict[int, tuple[str, int]]:
    return {number: (f"par, line {section.frame.source.place(section.at)[0]}", section.parent)
            for number, section in enumerate(program.sections)}


def _tasks(program: Program) -> Picture:
    levels, nodes = program.levels.tolist(), []
    for task in program.stream():
        section = program.call_of(task.number).frame.section
        nodes.append(PictureNode(_short(str(task)), task.component, section, levels[task.number], 1))
    numbers = {node: number for number, node in enumerate(program.nodes.tolist())}
    pairs = reduction(program.dag, program.shape, pairs=True)[1]
    arrows = sorted((numbers[a], numbers[b]) for a, b in pairs)
    return Picture(program.application.name, nodes, arrows, _sections(program), False)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _groups(program: Program, key: Callable[[Call], tuple[object, ...]]) -> Picture:
    found: dict[tuple[object, ...], list[Call]] = {}
    for call in program.calls:
        found.setdefault(key(call), []).append(call)
    groups = sorted(found.values(), key=lambda calls: -sum(call.n for call in calls))[:MOST_GROUPS]
    groups.sort(key=lambda calls: calls[0].first)
    firsts = [min(int(program.levels[call.first : call.first + call.n].min()) for call in calls) for calls in groups]
    rows = {level: row for row, level in enumerate(sorted(set(firsts)))}
    arrows = _needed(_arrows(program, groups), [rows[level] for level in firsts])
    sections = _sections(program)
    nodes = [_group(calls, rows[level], (number, number) in arrows, sections)
             for number, (calls, level) in enumerate(zip(groups, firsts, strict=True))]
    left_out = len(found) - len(groups)
    return Picture(program.application.name, nodes, sorted(arrows), sections, summary=True, left_out=left_out)


def _group(calls: list[Call], row: int, chain: bool, sections: dict[int, tuple[str, int]]) -> PictureNode:
    name, count = calls[0].component.name, sum(call.n for call in calls)
    own = {call.frame.section for call in calls}
    section = own.pop() if len(own) == 1 else -1
    label = f"{name} ({count:,}{', in turn' if chain else ''})"
    return PictureNode(label if section < 0 else f"{label}, {sections[section][0]}", name, section, row, count)


def _arrows(program: Program, groups: list[list[Call]]) -> set[tuple[int, int]]:
    """Return the pairs of groups of which a task of the second directly follows a task of the first, gates aside."""
    group_of = _groups_of_nodes(groups)
    start, after = (each.tolist() for each in program.dag.rows())
    task, near, seen = program.dag.task.tolist(), [0] * program.dag.nodes, [0] * len(groups)
    for node in program.shape.order.tolist():
        mine = near[node]
        if task[node]:
            number = group_of.get(node, -1)
            if number >= 0:
                seen[number] |= mine
            mine = 1 << number if number >= 0 else 0
        for other in after[start[node] : start[node + 1]] if mine else ():
            near[other] |= mine
    return {(a, b) for b, before in enumerate(seen) for a in range(len(groups)) if before >> a & 1}


def _groups_of_nodes(groups: list[list[Call]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, calls in enumerate(groups):
        for call in calls:
            found.update(dict.fromkeys(range(call.node, call.node + call.n), number))
    return found


def _needed(arrows: set[tuple[int, int]], rows: list[int]) -> set[tuple[int, int]]:
    """Drop the downward arrows that a chain of other arrows replaces."""
    down = {(a, b) for a, b in arrows if rows[a] < rows[b]}
    below = [{b for a, b in down if a == number} for number in range(len(rows))]
    reach: list[set[int]] = [set() for _ in rows]
    for number in sorted(range(len(rows)), key=lambda each: -rows[each]):
        reach[number] = below[number].union(*(reach[other] for other in below[number]))
    return {(a, b) for a, b in arrows if (a, b) not in down or not any(b in reach[other] for other in below[a])}


# --- workflows of DAGMan and WfFormat --------------------------------------------------------------------------------


def workflow_picture(workflow: NamedGraph, fits: Callable[[Picture], bool] = lambda _: True) -> Picture:
    if workflow.tasks <= MOST_TASKS:
        levels = workflow.levels.tolist()
        nodes = [PictureNode(name, kind, -1, level, 1)
                 for name, kind, level in zip(workflow.names, workflow.kinds, levels, strict=True)]
        pairs = reduction(workflow.dag, workflow.shape, pairs=True)[1]
        drawn = Picture(workflow.title, nodes, sorted((a - 1, b - 1) for a, b in pairs), {}, False)
        if fits(drawn):
            return drawn
    return _kinds(workflow)


def _kinds(workflow: NamedGraph) -> Picture:
    counts = Counter(workflow.kinds)
    kinds = [kind for kind, _ in counts.most_common(MOST_GROUPS)]
    first: dict[str, int] = {}
    for kind, level in zip(workflow.kinds, workflow.levels.tolist(), strict=True):
        first[kind] = min(level, first.get(kind, level))
    rows = {level: row for row, level in enumerate(sorted({first[kind] for kind in kinds}))}
    numbers = {kind: number for number, kind in enumerate(kinds)}
    src, dst = ((each - 1).tolist() for each in (workflow.dag.src, workflow.dag.dst))
    arrows = {(numbers.get(workflow.kinds[a], -1), numbers.get(workflow.kinds[b], -1))
              for a, b in zip(src, dst, strict=True)}
    kept = _needed({pair for pair in arrows if min(pair) >= 0}, [rows[first[kind]] for kind in kinds])
    nodes = [PictureNode(f"{kind} ({counts[kind]:,})", kind, -1, rows[first[kind]], counts[kind]) for kind in kinds]
    return Picture(workflow.title, nodes, sorted(kept), {}, summary=True, left_out=len(counts) - len(kinds))


# --- DOT -------------------------------------------------------------------------------------------------------------


def dot(found: Picture) -> str:
    lines = [f"digraph {_quoted(found.title)} {{", "  rankdir=TB; node [shape=box, style=filled, fillcolor=white];"]
    inside: dict[int, list[int]] = {}
    parts: dict[int, dict[int, None]] = {}  # section → the sections inside it that hold nodes
    for number, node in enumerate(found.nodes):
        inside.setdefault(node.section, []).append(number)
        section = node.section
        while section >= 0:
            parts.setdefault(found.sections[section][1], {})[section] = None
            section = found.sections[section][1]
    lines += _clusters(found, -1, inside, parts, "  ")
    lines += [f"  n{a} -> n{b};" for a, b in found.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _clusters(
    found: Picture, section: int, inside: dict[int, list[int]], parts: dict[int, dict[int, None]], indent: str
) -> Iterator[str]:
    for number in inside.get(section, ()):
        yield f"{indent}n{number} [label={_quoted(found.nodes[number].label)}];"
    for part in parts.get(section, ()):
        yield f"{indent}subgraph cluster_{part} {{ label={_quoted(found.sections[part][0])}; style=dashed;"
        yield from _clusters(found, part, inside, parts, indent + "  ")
        yield f"{indent}}}"


def _quoted(text: str) -> str:
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
