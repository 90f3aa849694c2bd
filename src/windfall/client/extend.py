"""A sweep that ended is given more points: only those run that it has not had yet.

The bag keeps its command, its checks and all else it was submitted with; what is sent are points, and the files that
these need.  So a bag that differs in anything else is refused, with the name of what differs.
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
    files: list[Files]  # of each family, those it had not; or none
    edges: Sequence[tuple[int, int]] = ()  # with the first piece of a part, of all of it
    flows: Flows | None = None


def extensions(had: Bag, appended: Iterable[Extension], wanted: Bag) -> Iterator[Extension]:
    """What `wanted` has beyond the bag as it stands: as submitted, and what was appended since."""
    known = {target.name: target for target in had.targets}
    later = list(appended)
    if [target.name for target in wanted.targets] != list(known):
        raise BadInput(f"bag '{had.name}' has the targets {', '.join(known)}", "a bag is extended by one like it")
    for target in wanted.targets:
        before = known[target.name]
        _same(before, target)
        mine = [each for each in later if each.target == target.name]
        files = _new_files(before, target, mine)
        points = _new_points(target, [before.source, *(each.source for each in mine)])
        if points is not None:
            yield Extension(target.name, points, files)


def _same(before: Target, target: Target) -> None:
    for field in Target.__struct_fields__:
        if field not in ("source", "families") and getattr(before, field) != getattr(target, field):
            raise BadInput(
                f"{field.replace('_', '-')} of the target '{target.name}' is not what the bag was submitted with",
                "only the sweep can be extended; submit a bag of its own",
            )
    if [(each.path, each.source) for each in before.families] != [(each.path, each.source) for each in target.families]:
        raise BadInput(f"inputs of the target '{target.name}' are not those the bag was submitted with")


def _new_points(target: Target, sources: list[Source]) -> Sweep | None:
    points: Sweep | None = target.source if isinstance(target.source, Sweep) else None
    for source in sources:
        if points is None or not isinstance(source, Sweep):
            break
        points = new_points(source, points)
    return points


def _new_files(before: Target, target: Target, later: list[Extension]) -> list[Files]:
    had: list[Files] = [each.files for each in before.families]
    for each in later:
        had = all_files(had, each.files)
    now = [each.files for each in target.families]
    same_files(had, now)
    pairs = zip(had, now, strict=True)
    return [{name: file for name, file in files.items() if name not in known} for known, files in pairs]
