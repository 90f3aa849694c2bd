"""Reruns: from the bag as its files say now to the event that starts the tasks which the difference concerns."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from windfall.core.decide.requests.intake import submission
from windfall.core.messages import events
from windfall.core.messages.facts import Runs
from windfall.core.messages.runs import runs_of
from windfall.core.state.classes import spans
from windfall.core.state.world import BagState
from windfall.model.checks import bag as check
from windfall.model.revision import Appended, Revision, TargetRevision, revise
from windfall.model.spec import Bag
from windfall.server.grants import decode_appended
from windfall.server.http import schema

NAMED = 100  # changes in an answer

_decode_rerun = msgspec.json.Decoder(schema.Rerun).decode
_unpack_bag = msgspec.msgpack.Decoder(Bag).decode


class Stored(NamedTuple):
    """A bag as the state held it at one moment, for a thread to read."""

    spec: bytes
    appended: list[bytes]
    reread: int
    seen: tuple[int, int]


class RequestedRerun(NamedTuple):
    event: events.Rerun
    revision: Revision | None
    dry: bool


def stored(bag: BagState) -> Stored:
    return Stored(bag.spec, list(bag.appended), bag.reread, (bag.revised, len(bag.appended)))


def read_rerun(body: bytes | bytearray, bag: BagState, had: Stored, owner: str) -> RequestedRerun:
    """Compare the bag of a request with the one that is there."""
    message = _decode_rerun(body or b"{}")
    event = events.Rerun(0, bag.number, message.which, by=owner)
    if message.bag is None:
        return RequestedRerun(event, None, message.dry)
    check.validate(message.bag)
    old = _unpack_bag(had.spec)
    revision = revise(old, _appended(had), message.bag)
    if revision.bag != old:
        check.validate(revision.bag)
        made = submission(0, owner, revision.bag)
        event = msgspec.structs.replace(event, spec=made.spec, targets=made.targets, seen=had.seen,
                                        concerned=_concerned(bag, revision.targets))
    return RequestedRerun(event, revision, message.dry)


def _appended(had: Stored) -> list[Appended]:
    found = map(decode_appended, had.appended)
    return [Appended(each.target, each.source, list(each.files) if place >= had.reread else [])
            for place, each in enumerate(found)]


def _concerned(bag: BagState, targets: list[TargetRevision]) -> Runs:
    """Return the bag's numbers of the tasks that changes concern, run by run."""
    import numpy as np

    found: Runs = []
    for (first, place, end), (_, _, local) in zip(spans(bag), bag.runs, strict=True):
        tasks = targets[place].tasks
        if tasks is None:
            found.append((first, end - first))
            continue
        numbers = np.array(tasks, dtype=np.int64) - local
        found += [(first + at, count) for at, count in runs_of(numbers[(numbers >= 0) & (numbers < end - first)])]
    return found


def answer(revision: Revision | None, count: int, outdated: int) -> schema.RerunDone:
    if revision is None:
        return schema.RerunDone(count, outdated)
    changes = [schema.ChangeView(*change) for target in revision.targets for change in target.changes]
    return schema.RerunDone(
        count, outdated, changes[:NAMED], changed=len(changes), new=sum(target.new for target in revision.targets),
        gone=sum(target.gone for target in revision.targets), kept=revision.kept)
