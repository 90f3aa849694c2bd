"""A sweep that ended is given more points: only those run that it has not had yet.

The bag keeps its command, its checks and all else it was submitted with; what is sent are points, and the files that
these need.  So a bag that differs in anything else is refused, with the name of what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..errors import BadInput
from ..model.extend import new_points
from ..model.spec import Bag, Source, Sweep, Target

if TYPE_CHECKING:
    Files = list[dict[str, tuple[str, int, int]]]


class Extension(NamedTuple):
    target: str
    source: Sweep
    files: Files  # of each family, those it had not


def extensions(had: Bag, appended: Iterable[tuple[str, Source]], wanted: Bag) -> Iterator[Extension]:
    """What `wanted` has beyond the bag as it stands: as submitted, and what was appended since."""
    known = {target.name: target for target in had.targets}
    later = list(appended)
    if [target.name for target in wanted.targets] != list(known):
        raise BadInput(f"bag '{had.name}' has the targets {', '.join(known)}", "a bag is extended by one like it")
    for target in wanted.targets:
        before = known[target.name]
        _same(before, target)
        points = _new(target, [before.source, *(source for name, source in later if name == target.name)])
        if points is not None:
            yield Extension(target.name, points, _files(before, target))


def _same(before: Target, target: Target) -> None:
    for field in Target.__struct_fields__:
        if field not in ("source", "families") and getattr(before, field) != getattr(target, field):
            raise BadInput(
                f"{field.replace('_', '-')} of the target '{target.name}' is not what the bag was submitted with",
                "only the sweep can be extended; submit a bag of its own",
            )
    if [(each.path, each.source) for each in before.families] != [(each.path, each.source) for each in target.families]:
        raise BadInput(f"inputs of the target '{target.name}' are not those the bag was submitted with")


def _new(target: Target, sources: list[Source]) -> Sweep | None:
    points: Sweep | None = target.source if isinstance(target.source, Sweep) else None
    for source in sources:
        if points is None or not isinstance(source, Sweep):
            break
        points = new_points(source, points)
    return points


def _files(before: Target, target: Target) -> Files:
    pairs = zip(before.families, target.families, strict=True)
    return [{name: blob for name, blob in new.files.items() if name not in had.files} for had, new in pairs]
