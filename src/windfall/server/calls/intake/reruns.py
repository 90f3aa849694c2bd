"""From the bag as its files say now to the event that runs again what the difference concerns."""

from __future__ import annotations

import msgspec
import numpy as np

from windfall.core.decide.requests.intake import submission
from windfall.core.messages import events
from windfall.core.messages.facts import Runs
from windfall.core.messages.runs import runs_of
from windfall.core.state.world import BagState
from windfall.model.checks import bag as check
from windfall.model.revision import Appended, Revision, TargetRevision, revise
from windfall.model.spec import Bag
from windfall.server.calls.intake.readers import check_effort, inputs_of
from windfall.server.grants import decode_appended
from windfall.server.http import schema

NAMED = 100  # changes in an answer

_decode_rerun = msgspec.json.Decoder(schema.Rerun).decode
_unpack_bag = msgspec.msgpack.Decoder(Bag).decode


class StoredBag(msgspec.Struct):
    """A bag as the state holds it at one moment, for a thread or another process to read."""

    number: int
    owner: str
    size: int
    spec: bytes
    appended: list[bytes]
    reread: int
    seen: tuple[int, int]
    runs: list[tuple[int, int, int]]


class RequestedRerun(msgspec.Struct):
    event: events.Rerun
    answer: schema.RerunDone  # without counts of tasks, which the core knows
    inputs: dict[str, str]
    dry: bool


def stored(bag: BagState) -> StoredBag:
    return StoredBag(bag.number, bag.owner, bag.size, bag.spec, appended=list(bag.appended), reread=bag.reread,
                     seen=(bag.revised, len(bag.appended)), runs=list(bag.runs))


def read_rerun(body: bytes | bytearray, had: StoredBag, *, patient: bool) -> RequestedRerun:
    """Compare the bag of a request with the one that is there."""
    message = _decode_rerun(body or b"{}")
    event = events.Rerun(0, had.number, message.which, by=had.owner)
    if message.bag is None:
        return RequestedRerun(event, schema.RerunDone(0, 0), {}, message.dry)
    old = _unpack_bag(had.spec)
    if not patient:
        check_effort([*old.targets, *message.bag.targets])
    check.validate(message.bag)
    revision = revise(old, _appended(had), message.bag)
    if revision.bag == old:
        return RequestedRerun(event, _answer(revision), {}, message.dry)
    check.validate(revision.bag)
    made = submission(0, had.owner, revision.bag)
    event = msgspec.structs.replace(event, spec=made.spec, targets=made.targets, seen=had.seen,
                                    concerned=_concerned(had, revision.targets))
    return RequestedRerun(event, _answer(revision), inputs_of(revision.bag), message.dry)


def _appended(had: StoredBag) -> list[Appended]:
    found = map(decode_appended, had.appended)
    return [Appended(each.target, each.source, list(each.files) if place >= had.reread else [])
            for place, each in enumerate(found)]


def _concerned(had: StoredBag, targets: list[TargetRevision]) -> Runs:
    """Return the bag's numbers of the tasks that changes concern, run by run."""
    ends = [*(first for first, _, _ in had.runs[1:]), had.size]
    found: Runs = []
    for (first, place, local), end in zip(had.runs, ends, strict=True):
        tasks = targets[place].tasks
        if tasks is None:
            found.append((first, end - first))
            continue
        numbers = np.array(tasks, dtype=np.int64) - local
        found += [(first + at, count) for at, count in runs_of(numbers[(numbers >= 0) & (numbers < end - first)])]
    return found


def _answer(revision: Revision) -> schema.RerunDone:
    changes = [schema.ChangeView(*change) for target in revision.targets for change in target.changes]
    return schema.RerunDone(
        0, 0, changes[:NAMED], changed=len(changes), new=sum(target.new for target in revision.targets),
        gone=sum(target.gone for target in revision.targets), kept=revision.kept)
