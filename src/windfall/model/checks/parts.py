"""Validation of parts, which clients append to an open bag.  The server validates each, as it validates bags."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from windfall.errors import BadInput
from windfall.model.checks.bag import MAX_EDGES, check_blobs, relative_path, validate_source
from windfall.model.checks.bounds import at_most
from windfall.model.checks.cycles import refuse_circle_in
from windfall.model.checks.flows import Locate, check_later
from windfall.model.spec import MAX_TARGETS, MAX_TASKS, Part, Target
from windfall.model.templates.render import source_count


def check_part(part: Part, targets: list[Target], where: Locate) -> list[tuple[int, int]]:
    """Check a part against the bag's targets and tasks (`where`); return (index of target, tasks) of each piece."""
    if not 0 <= part.first <= MAX_TASKS:
        raise BadInput(f"first = {part.first}: a bag has at most {MAX_TASKS:,} tasks")
    names = {target.name: place for place, target in enumerate(targets)}
    at_most(len(part.pieces), MAX_TARGETS, "pieces of a part")
    pieces: list[tuple[int, int]] = []
    end = part.first
    for piece in part.pieces:
        if piece.target not in names:
            raise BadInput(f"there is no target '{piece.target[:80]}'", f"known: {', '.join(list(names)[:10])}")
        validate_source(targets[names[piece.target]], piece.source)
        pieces.append((names[piece.target], source_count(piece.source)))
        end += pieces[-1][1]
        at_most(end, MAX_TASKS, "tasks of a bag")
    tasks = range(part.first, end)
    _check_edges(part, tasks)
    _refuse_detour(part, targets, _where(part.first, pieces, where))
    if part.flows is not None:
        check_blobs(part.flows)
        check_later(part.flows, targets, _where(part.first, pieces, where), tasks, relative_path)
    return pieces


def _check_edges(part: Part, tasks: range) -> None:
    at_most(len(part.edges), MAX_EDGES, "prerequisites between tasks")
    for before, after in part.edges:
        if not (0 <= before < tasks.stop and after in tasks):
            raise BadInput(f"task {after} cannot wait for task {before}",
                           f"tasks {tasks.start} to {tasks.stop - 1} can wait for tasks 0 to {tasks.stop - 1}")
    flows = zip(part.flows.before, part.flows.after, strict=False) if part.flows is not None else ()
    inside = [pair for pair in (*part.edges, *flows) if pair[0] >= tasks.start]
    if not all(before < after for before, after in inside):
        refuse_circle_in(inside)


def _refuse_detour(part: Part, targets: list[Target], where: Locate) -> None:
    """Refuse a waiting task in a target that other targets wait for as a whole, since that could close a cycle."""
    awaited = {name for target in targets for name in (*target.after, *target.takes)}
    if not awaited:
        return
    waiting = {after for _, after in part.edges} | set(part.flows.after if part.flows is not None else ())
    for task in sorted(waiting):
        if (name := targets[where(task)[0]].name) in awaited:
            raise BadInput(f"task {task} waits for another task, and a target waits for the whole of '{name}'",
                           "append waiting tasks to a target that no other waits for")


def _where(first: int, pieces: list[tuple[int, int]], earlier: Locate) -> Locate:
    ends = list(accumulate((count for _, count in pieces), initial=first))

    def place(task: int) -> tuple[int, int]:
        if task < first:
            return earlier(task)
        at = bisect_right(ends, task) - 1
        return pieces[at][0], task - ends[at]

    return place
