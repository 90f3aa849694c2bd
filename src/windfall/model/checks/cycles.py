"""Cycles among prerequisites: between targets, by their names, and between tasks, by their numbers.

Most graphs are numbered along their edges, which one comparison per edge shows.  The others are walked once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from windfall.errors import BadInput
from windfall.model.spec import Bag
from windfall.model.templates.render import source_count

Edge = tuple[int, int]


def find_circle(after: dict[str, list[str]]) -> list[str]:
    """Return the names along a cycle of prerequisites, the first one repeated at the end; empty if there is none."""
    stuck = _never_ready(after)
    if not stuck:
        return []
    path: dict[str, None] = {}
    at = next(name for name in after if name in stuck)
    while at not in path:
        path[at] = None
        at = next(each for each in after[at] if each in stuck)
    walked = list(path)
    return [*walked[walked.index(at) :], at]


def _never_ready(after: dict[str, list[str]]) -> set[str]:
    """Return the targets on a cycle, and those that wait for them."""
    pending = {name: len(before) for name, before in after.items()}
    followers: dict[str, list[str]] = {name: [] for name in after}
    for name, before in after.items():
        for each in before:
            followers[each].append(name)
    ready = [name for name, count in pending.items() if count == 0]
    while ready:
        for name in followers[ready.pop()]:
            pending[name] -= 1
            if pending[name] == 0:
                ready.append(name)
    return {name for name, count in pending.items() if count}


def _pairs(bag: Bag) -> Iterator[Edge]:
    yield from bag.edges
    if bag.flows is not None:
        for before, after in zip(bag.flows.before, bag.flows.after, strict=True):
            if before >= 0:
                yield before, after


def refuse_circle(bag: Bag) -> None:
    """Refuse a cycle in the graph of the tasks that have prerequisites and the two ends of every target."""
    if _is_in_order(bag):
        return
    ends = _Ends(bag) if any(target.after for target in bag.targets) else None
    stuck = _stuck(_pairs(bag) if ends is None else ends.edges(_pairs(bag)))
    if stuck:
        shown = " → ".join(ends.shown(each) if ends else str(each) for each in stuck[:10])
        raise BadInput(f"tasks wait for one another in a circle: {shown}")


def _is_in_order(bag: Bag) -> bool:
    """Do numbers grow along every edge, and positions along every prerequisite of a target?"""
    place = {target.name: at for at, target in enumerate(bag.targets)}
    in_order = all(place[each] < at for at, target in enumerate(bag.targets) for each in target.after)
    return in_order and all(before < after for before, after in _pairs(bag))


def refuse_circle_in(pairs: Iterable[Edge]) -> None:
    """Refuse a cycle among appended tasks; edges from earlier tasks, which cannot close one, are left out."""
    if stuck := _stuck(pairs):
        raise BadInput(f"tasks wait for one another in a circle: {' → '.join(map(str, stuck[:10]))}")


def _stuck(edges: Iterable[Edge]) -> list[int]:
    """Return the nodes along a cycle, the first one repeated at the end; empty if there is none."""
    following: dict[int, list[int]] = {}
    pending: dict[int, int] = {}
    for before, after in edges:
        following.setdefault(before, []).append(after)
        pending[after] = pending.get(after, 0) + 1
    ready = [node for node in following if node not in pending]
    while ready:
        for node in following.pop(ready.pop(), ()):
            pending[node] -= 1
            if not pending[node]:
                del pending[node]
                ready.append(node)
    return _walk(following, pending) if pending else []


def _walk(following: dict[int, list[int]], pending: dict[int, int]) -> list[int]:
    """Return a cycle by walking against the edges from a stuck node: each stuck node waits for a stuck one."""
    held_by = {after: before for before, several in following.items() for after in several if after in pending}
    path: dict[int, None] = {}
    at = min(pending)
    while at not in path:
        path[at] = None
        at = held_by[at]
    walked = list(path)
    return [at, *reversed(walked[walked.index(at) :])]


class _Ends:
    """Nodes for the start and the end of each target: negative numbers, so that tasks keep theirs."""

    def __init__(self, bag: Bag) -> None:
        self._bag = bag
        self._starts = [0]
        for target in bag.targets:
            self._starts.append(self._starts[-1] + source_count(target.source))

    def edges(self, pairs: Iterable[Edge]) -> Iterator[Edge]:
        place = {target.name: at for at, target in enumerate(self._bag.targets)}
        for at, target in enumerate(self._bag.targets):
            yield _start(at), _end(at)
            yield from ((_end(place[each]), _start(at)) for each in target.after)
        seen: set[int] = set()
        for edge in pairs:
            yield edge
            for task in edge:
                if task not in seen:
                    seen.add(task)
                    at = bisect_right(self._starts, task) - 1
                    yield _start(at), task
                    yield task, _end(at)

    def shown(self, node: int) -> str:
        if node >= 0:
            return str(node)
        at, side = divmod(-1 - node, 2)
        return f"{'end' if side else 'start'} of {self._bag.targets[at].name}"


def _start(target: int) -> int:
    return -1 - 2 * target


def _end(target: int) -> int:
    return -2 - 2 * target
