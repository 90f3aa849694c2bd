"""Work stealing: a pilot with a free slot gets tasks that another pilot holds and has not started.

The donor returns them (`pilot/agenda/agenda.py`), or holds them no more (`exchange/reconcile.py`); then they are ready.

A pilot asks for work, nothing is ready, and it has room: the core asks one pilot that holds more than it can run (a
*donor*) to return half of its surplus, newest first.  A task is stolen only for a pilot that would be granted it: the
clauses of `eligibility.py` are asked as if the donor had given it back already.  Otherwise it would go there and back
as long as both pilots live.  A batch comes back whole or not at all: its tasks belong together, and a batch that has
begun takes one slot however many tasks it has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import numpy as np

from windfall.core.decide.exchange.reply import answer_waiting
from windfall.core.decide.grant.amount import FULL, NONE, units_for
from windfall.core.decide.grant.draft import GrantDraft, Recipient, recipient_of
from windfall.core.decide.grant.eligibility import first_failing
from windfall.core.messages.lifecycle import GRANTED, LIVE, LOST
from windfall.core.state.chains import chain_key
from windfall.core.state.world import PilotState, TaskClass
from windfall.core.turn import Turn

MOST_DONORS = 64  # pilots that are asked one by one to give something back


def steal_for(turn: Turn, pilot: PilotState, want: int) -> None:
    """Ask one donor to return tasks that this pilot would be granted at once."""
    state = turn.state
    is_idle = pilot.state == LIVE and pilot.load < pilot.cores * 1000
    if not state.overloaded_pilots or not is_idle or pilot.row in state.quarantined:
        return
    first = list(islice(state.overloaded_pilots, MOST_DONORS))
    numbers = first if len(state.overloaded_pilots) <= MOST_DONORS else chain(first, _donors(turn, pilot))
    for number in numbers:
        donor = state.pilots[number]
        if donor is not pilot and donor.state == LIVE and not donor.recalling:
            _recall(turn, donor, _draft_for(turn, pilot, want))
            if donor.recalling:
                answer_waiting(turn, donor)
                return


def _draft_for(turn: Turn, thief: PilotState, want: int) -> GrantDraft:
    """Return the grant that the thief would get: a pilot that waits beside others, or serves several owners, gets no
    more than it can run."""
    pc = turn.state.pilot_classes[thief.cls]
    return GrantDraft(
        recipient=recipient_of(turn, thief, _time_left(turn, thief)), want=want, load=thief.load,
        bytes_left=turn.config.message, prefetch_allowed=len(pc.waiting) < 2 and len(pc.owners) < 2,
    )


def _time_left(turn: Turn, pilot: PilotState) -> int | None:
    if pilot.waiting_request is not None:
        return pilot.waiting_request.time_left(turn.now)
    return pilot.ends - turn.now if pilot.ends else None


def _donors(turn: Turn, thief: PilotState) -> Iterator[int]:
    """Yield the donors that hold an unstarted task which the thief could be granted: one pass over the attempts serves
    thousands of donors."""
    state, attempts = turn.state, turn.state.attempts
    rows = np.flatnonzero(attempts.np_state[: attempts.rows] == GRANTED)
    classes = attempts.np_cls[rows]
    suitable = []
    for number in np.flatnonzero(np.bincount(classes)).tolist():
        to = recipient_of(turn, thief, _time_left(turn, thief))
        if _would_get(to, state.classes[number], [int(rows[classes == number][0])]):
            suitable.append(number)
    held = np.bincount(attempts.np_pilot[rows[np.isin(classes, suitable)]])
    yield from [number for number in state.overloaded_pilots if number < len(held) and held[number]]


def _would_get(to: Recipient, cls: TaskClass, rows: list[int]) -> bool:
    """Would the recipient be granted tasks of the class, once their donor has given these attempts back?"""
    if not cls.is_accounted:
        return not first_failing(to, cls)
    for row in rows:
        to.accounts().give_back(row)
    if not first_failing(to, cls):
        return True
    for row in rows:
        to.accounts().give_back(row, -1)
    return False


def _recall(turn: Turn, donor: PilotState, draft: GrantDraft) -> None:
    """Recall half of the donor's surplus, newest first: tasks that the draft's pilot would be granted, and no more of
    them than it would get in one answer."""
    state, attempts, to = turn.state, turn.state.attempts, draft.recipient
    of_donor, of_thief = state.pilot_classes[donor.cls], state.pilot_classes[to.pilot.cls]
    surplus = donor.load - donor.cores * 1000
    for rows in _unstarted(turn, donor):
        if surplus <= 0 or draft.want <= 0:
            return
        cls = state.classes[attempts.cls[rows[0]]]
        if not _would_get(to, cls, rows):
            continue
        cost = state.cost_on(of_thief, cls)
        units = units_for(turn.config, draft, cls, cost)
        if units == NONE:
            continue
        if units == FULL or (donor.recalling and len(rows) > draft.want):
            return
        donor.recalling.update((attempts.number[row], False) for row in rows)
        surplus -= 2 * state.cost_on(of_donor, cls)
        draft.load, draft.want = draft.load + cost, draft.want - len(rows)
        for row in rows:
            to.move_here(state.classes[attempts.cls[row]].group([attempts.task_of(row)], []))


def recall_from_host(turn: Turn, row: int) -> None:
    """Take back everything that the pilots of a host hold and have not started."""
    attempts = turn.state.attempts
    pilots = [turn.state.pilots[number] for number in turn.state.on_host.get(row, ())]
    for pilot in [pilot for pilot in pilots if pilot.state == LIVE]:
        for rows in _unstarted(turn, pilot):
            pilot.recalling.update((attempts.number[each], False) for each in rows)
        if pilot.recalling:
            answer_waiting(turn, pilot)


def _unstarted(turn: Turn, pilot: PilotState) -> list[list[int]]:
    """Return the rows that a pilot holds and has not started, newest first; the rows of one batch together."""
    attempts = turn.state.attempts
    chains: dict[tuple[int, int], list[int]] = {}
    for row in attempts.of_pilot(pilot.number).tolist()[::-1]:
        if attempts.state[row] != LOST:
            chains.setdefault(chain_key(turn.state, row), []).append(row)
    return [rows for rows in chains.values() if all(attempts.state[row] == GRANTED for row in rows)]
