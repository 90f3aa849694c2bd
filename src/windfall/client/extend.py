"""Extend a sweep: run only the points that the bag has not had yet.

The bag keeps its command, its checks and all else it was submitted with.  Only points are sent, and the files that
these need; a bag that differs in anything else is refused, with the name of the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model.extend import new_points, same_files
from windfall.model.spec import Bag, Flows, Source, Sweep, Target
from windfall.model.templates.render import Files, all_files


class Extension(NamedTuple):
    target: str
    source: Source
    files: list[Files]  # of each family, the files it lacked; or none
    edges: Sequence[tuple[int, int]] = ()  # of a whole part, with its first piece
    flows: Flows | None = None


def extensions(submitted: Bag, appended: Iterable[Extension], wanted: Bag) -> Iterator[Extension]:
    """Yield the points of `wanted` that neither the submitted bag nor an appended extension has."""
    known = {target.name: target for target in submitted.targets}
    earlier = list(appended)
    if [target.name for target in wanted.targets] != list(known):
        raise BadInput(f"bag '{submitted.name}' has other targets: {', '.join(known)}",
                       "extend it with a file that has the same targets")
    for target in wanted.targets:
        before = known[target.name]
        _refuse_changes(before, target)
        of_target = [each for each in earlier if each.target == target.name]
        files = _new_files(before, target, of_target)
        points = _new_points(target, [before.source, *(each.source for each in of_target)])
        if points is not None:
            yield Extension(target.name, points, files)


def _refuse_changes(before: Target, target: Target) -> None:
    for field in Target.__struct_fields__:
        if field not in ("source", "families") and getattr(before, field) != getattr(target, field):
            raise BadInput(
                f"target '{target.name}': {field.replace('_', '-')} differs from the submitted bag",
                "only the sweep can be extended; submit a new bag",
            )
    if [(each.path, each.source) for each in before.families] != [(each.path, each.source) for each in target.families]:
        raise BadInput(f"target '{target.name}': inputs differ from the submitted bag",
                       "only the sweep can be extended; submit a new bag")


def _new_points(target: Target, sources: list[Source]) -> Sweep | None:
    points: Sweep | None = target.source if isinstance(target.source, Sweep) else None
    for source in sources:
        if points is None or not isinstance(source, Sweep):
            break
        points = new_points(source, points)
    return points


def _new_files(before: Target, target: Target, earlier: list[Extension]) -> list[Files]:
    sent: list[Files] = [each.files for each in before.families]
    for each in earlier:
        sent = all_files(sent, each.files)
    now = [each.files for each in target.families]
    same_files(sent, now)
    pairs = zip(sent, now, strict=True)
    return [{name: file for name, file in files.items() if name not in known} for known, files in pairs]
