"""Appending tasks to a bag: to one target from one source, or a part with its prerequisites to several targets."""

from __future__ import annotations

import numpy as np

from windfall.core.decide.exchange.stranded import cancel_stranded
from windfall.core.decide.grant import batches
from windfall.core.decide.requests.attendance import note_attended
from windfall.core.decide.requests.request import check_size, earlier_answer, refusing, the_bag
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.core.state.classes import append_key, target_done
from windfall.core.state.graph import as_pairs
from windfall.core.state.world import BagState
from windfall.core.turn import Turn
from windfall.errors import BadInput, Conflict


@refusing
def append(turn: Turn, event: e.Append) -> None:
    """Append tasks to one target of a bag that is open, or that the event opens again."""
    bag = the_bag(turn, event.bag)
    if event.idempotency and (known := earlier_answer(turn, append_key(bag, event.idempotency), event.source)):
        turn.done(event, known[1], known[2])
        return
    if not event.extends:
        _check_open(bag)
    if event.seen is not None and event.seen != len(bag.appended):
        raise Conflict(f"bag {bag.number} has been given more tasks meanwhile", "look again, then ask again")
    _check_room(turn, bag, [(event.target, event.count)])
    note_attended(turn, bag)
    first = bag.size
    turn.emit(f.TasksAppended(
        turn.now, bag.number, event.target, first, event.count, key=event.idempotency, source=event.source,
        extends=event.extends and not bag.open,
    ))
    batches.set_batch_timer(turn, bag)
    if len(bag.targets) > 1:
        cancel_stranded(turn, bag, [])  # a target it waits for may have ended without success
    turn.done(event, first, event.count)


@refusing
def append_part(turn: Turn, event: e.AppendPart) -> None:
    """Append tasks to several targets of an open bag, with prerequisites, some of which may have ended by now.

    A prerequisite that has succeeded does not count; a task behind one that has not succeeded is cancelled."""
    bag = the_bag(turn, event.bag)
    key = append_key(bag, event.idempotency)
    if event.idempotency and (known := earlier_answer(turn, key, *event.sources, event.edges)):
        turn.done(event, known[1], known[2])
        return
    _check_open(bag)
    if event.first != bag.size:
        raise Conflict(f"bag {bag.number} has {bag.size:,} tasks by now, not {event.first:,}",
                       "somebody else appends to it, too: number the tasks afresh")
    if not event.pieces or len(event.pieces) != len(event.sources):
        raise BadInput("nothing was appended, or not one source for each target")
    _check_room(turn, bag, event.pieces)
    note_attended(turn, bag)
    count = sum(n for _, n in event.pieces)
    _check_edges(event.edges, bag.size, bag.size + count)
    turn.emit(f.PartAppended(
        turn.now, bag.number, bag.size, count, event.idempotency, pieces=event.pieces, sources=event.sources,
        edges=event.edges,
    ))
    batches.set_batch_timer(turn, bag)
    cancel_stranded(turn, bag, _failed_prerequisites(bag, event.edges))
    turn.done(event, event.first, count)


def _check_open(bag: BagState) -> None:
    if not bag.open:
        raise Conflict(f"bag {bag.number} is closed", "submit a new bag, or open it with open = true")


def _check_room(turn: Turn, bag: BagState, pieces: f.Runs) -> None:
    """Refuse more tasks, given as (target, count), where the targets or their owner cannot have them."""
    if any(not 0 <= place < len(bag.targets) or count <= 0 for place, count in pieces):
        raise BadInput(f"bag {bag.number} has no such target, or nothing was appended")
    for place, _ in pieces:
        _check_target(bag, place)
    check_size(turn, bag.owner, sum(count for _, count in pieces), bag.size)


def _check_target(bag: BagState, place: int) -> None:
    """Refuse tasks for a stage of a pipeline, and for a target whose dependents may run already."""
    target = bag.targets[place]
    if target.shape.previous_stage >= 0 or target.next_stage >= 0:
        raise BadInput("stages of a pipeline have equally many tasks", "submit a bag of its own")
    if target.dependents and (target_done(bag, target) or (not bag.open and target.not_ended == 0)):
        raise Conflict(
            f"target {target.shape.name!r} is done, and the targets that wait for it may run",
            "append before its last task is done; or submit the new tasks as a bag of their own",
        )


def _check_edges(edges: bytes, first: int, end: int) -> None:
    """Refuse prerequisites of other tasks than those appended, `first` to `end`, or on tasks that do not exist."""
    if len(edges) % 8:
        raise BadInput("prerequisites are pairs of numbers")
    pairs = as_pairs(edges)
    if not len(pairs):
        return
    before, after = pairs[:, 0], pairs[:, 1]
    if int(before.min()) < 0 or int(before.max()) >= end or int(after.min()) < first or int(after.max()) >= end:
        raise BadInput(f"tasks {first} to {end - 1} can wait for tasks 0 to {end - 1}, and for nothing else")
    if (before == after).any():
        raise BadInput("a task waits for itself")


def _failed_prerequisites(bag: BagState, edges: bytes) -> list[int]:
    """Return the prerequisites that have ended without success."""
    before = np.unique(as_pairs(edges)[:, 0])
    failed: list[int] = before[bag.tasks.np_state[before] > SUCCEEDED].tolist()
    return failed
