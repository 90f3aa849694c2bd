"""Replies to pilots: what a pilot is told, and requests that wait until there is something to say.

A reply repeats grants until the pilot acknowledges them; the pilot takes each once, by number (deduplication)."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.decide.exchange.predecessors import sought
from windfall.core.decide.grant import nearest_data
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import DRAINING, GRANTED, LIVE, STARTED
from windfall.core.state.chains import previous_attempt_on, row_chain
from windfall.core.state.world import PilotState, WaitingRequest
from windfall.core.turn import Turn

EARLY = 256  # part of its waiting time by which a request may be answered early
LEAST_SPREAD = 200  # ms
MAX_GRANTS = 64  # unacknowledged grants that one reply repeats


def reconnect_spread(turn: Turn) -> int:
    """Return the ms over which pilots that have lost the server come back: a handshake costs a fraction of one."""
    alive = turn.exchange.pilots_alive
    return alive if alive > LEAST_SPREAD else LEAST_SPREAD


def reply(turn: Turn, pilot: PilotState, event: e.Exchange, want: int, granted: bool) -> None:
    """Answer a request now, or let it wait for news and for tasks."""
    at_once = event.wait <= 0 or bool(event.bye)
    if want > 0 or not at_once:
        news = granted or event.ack < pilot.granted or has_news(pilot)
        if not news and want > 0:
            turn.grants.starved_pilots[pilot.number] = want
        if not (news or at_once):
            _let_wait(turn, pilot, event)
            return
    turn.effects.append(make_reply(turn, pilot, event.key, event.seq, event.ack))


def has_news(pilot: PilotState) -> bool:
    """Is there anything the pilot has not been told?  A repeated order answers no waiting request."""
    return bool(
        pilot.unknown_attempts or pilot.census or _stop_reason(pilot) != pilot.stop_sent
        or (pilot.cancelling and not all(pilot.cancelling.values()))
        or (pilot.recalling and not all(pilot.recalling.values()))
    )


# --- waiting requests (long polling) --------------------------------------------------------------------------------


def _let_wait(turn: Turn, pilot: PilotState, event: e.Exchange) -> None:
    answer_waiting(turn, pilot)
    wait = min(event.wait, turn.config.park)
    until = _wait_until(turn.now, wait)
    ends = None if event.left is None else turn.now + event.left
    pilot.waiting_request = WaitingRequest(
        event.key, event.seq, event.ack, event.want, ends, wait=wait, until=until, arrived=turn.now
    )
    if event.want > 0 and pilot.load < pilot.cores * 1000:  # a full pilot joins the queue when it has room
        turn.state.pilot_classes[pilot.cls].waiting[pilot.number] = pilot.row
    if not pilot.request_timer or until < pilot.request_timer:
        pilot.request_timer = until
        turn.timers.add(until, "park", pilot.number)


def _wait_until(now: int, wait: int) -> int:
    """Round the end of a wait down to 1/256 of it, so that one step answers many requests."""
    return now + wait - (now + wait) % (wait // EARLY or 1)


def renew_waiting(waiting: WaitingRequest, now: int, event: e.Exchange) -> None:
    """Update a pilot's waiting request by another request of that pilot.

    The newer one says what is acknowledged and how much time is left.  Its reply renews the lease, so the waiting
    request may wait for as long again."""
    waiting.ack = event.ack if event.ack > waiting.ack else waiting.ack
    waiting.until = _wait_until(now, waiting.wait)
    if waiting.ends is not None and event.left is not None:
        waiting.ends = min(waiting.ends, now + event.left)


def answer_waiting(turn: Turn, pilot: PilotState) -> None:
    """Answer the pilot's waiting request, if it has one, with whatever there is to say now."""
    waiting = pilot.waiting_request
    if waiting is not None:
        _stop_waiting(turn, pilot)
        turn.effects.append(make_reply(turn, pilot, waiting.key, waiting.seq, waiting.ack))


def _stop_waiting(turn: Turn, pilot: PilotState) -> None:
    pilot.waiting_request = None
    turn.state.pilot_classes[pilot.cls].waiting.pop(pilot.number, None)
    nearest_data.recheck_withheld(turn)  # the pilot cannot be granted anything at once any more


def drop_connection(turn: Turn, event: e.DropRequest) -> None:
    """Forget a waiting request whose connection is closed: nobody would hear the answer."""
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is not None and pilot.waiting_request is not None and pilot.waiting_request.key == event.parked:
        _stop_waiting(turn, pilot)


def request_due(turn: Turn, number: int) -> None:
    """Answer a waiting request whose time is up; set the timer again if a newer request made it later."""
    pilot = turn.state.pilots.get(number)
    if pilot is None or not pilot.request_timer or turn.now < pilot.request_timer:
        return  # an earlier timer took the place of this one
    pilot.request_timer = 0
    if pilot.waiting_request is None:
        return
    if pilot.waiting_request.until <= turn.now:
        answer_waiting(turn, pilot)
    else:
        pilot.request_timer = pilot.waiting_request.until
        turn.timers.add(pilot.request_timer, "park", number)


# --- the contents of a reply ----------------------------------------------------------------------------------------


def make_reply(turn: Turn, pilot: PilotState, key: int, seq: int, ack: int) -> x.ExchangeReply:
    """Return the reply to a request: grants beyond `ack`, and all orders that the pilot has not carried out."""
    answer = x.ExchangeReply(key, pilot.number, pilot.epoch, seq, turn.config.lease, spread=reconnect_spread(turn))
    fresh = turn.grants.grants_this_step.pop(pilot.number, None)
    if ack < pilot.granted - (1 if fresh else 0):
        answer.grants = _unacknowledged(turn, pilot, ack)
    elif fresh:
        answer.grants = [fresh]
    if pilot.cancelling or pilot.unknown_attempts:
        answer.cancel = [*pilot.cancelling, *pilot.unknown_attempts]
        pilot.cancelling = dict.fromkeys(pilot.cancelling, True)
        pilot.unknown_attempts = []
    if pilot.recalling:
        answer.recall = list(pilot.recalling)
        pilot.recalling = dict.fromkeys(pilot.recalling, True)
    if answer.grants and turn.state.transfers_of:
        answer.transfers = _transfers(turn, answer.grants)
    if turn.exchange.in_doubt:
        answer.look = sought(turn, pilot)
    answer.census = pilot.census
    answer.stop = pilot.stop_sent = "" if pilot.state == LIVE else _stop_reason(pilot)
    return answer


def _transfers(turn: Turn, grants: list[tuple[int, list[f.Group]]]) -> list[f.Transfer]:
    """Return the transfers of the attempts in these grants."""
    transfers_of = turn.state.transfers_of
    attempts = [attempt for _, groups in grants for group in groups for attempt in group.attempts]
    return [transfer for attempt in attempts for transfer in transfers_of.get(attempt, ())]


def _stop_reason(pilot: PilotState) -> str:
    if pilot.state == LIVE:
        return ""
    return "drain" if pilot.state == DRAINING else "superseded"


def _unacknowledged(turn: Turn, pilot: PilotState, ack: int) -> list[tuple[int, list[f.Group]]]:
    """Return the grants beyond `ack`, rebuilt from the attempts that are still in play.

    A pilot that acknowledges nothing gets some of them now, and the rest when it has acknowledged these."""
    state, attempts = turn.state, turn.state.attempts
    last = min(pilot.granted, ack + MAX_GRANTS)
    grants: dict[int, dict[tuple[int, int, int], f.Group]] = {number: {} for number in range(ack + 1, last + 1)}
    message_bytes = dict.fromkeys(grants, 0)
    for row in attempts.of_pilot(pilot.number).tolist():
        number = attempts.grant[row]
        if number in grants and attempts.state[row] in (GRANTED, STARTED):
            cls = state.classes[attempts.cls[row]]
            task, chain = attempts.task_of(row), row_chain(state, row)
            group = grants[number].setdefault((cls.bag, cls.number, chain), cls.group([], [], chain))
            group.tasks.append(task)
            group.attempts.append(attempts.number[row])
            if cls.in_chain and (previous := previous_attempt_on(state, pilot, cls.bag, task)):
                padding = [0] * (len(group.tasks) - len(group.prerequisites) - 1)
                group.prerequisites = [*group.prerequisites, *padding, previous]
            message_bytes[number] += cls.message_bytes
    return [(number, list(grants[number].values())) for number in _numbers_that_fit(message_bytes, turn.config.message)]


def _numbers_that_fit(message_bytes: dict[int, int], bytes_left: int) -> Iterator[int]:
    """Yield the numbers of the first grants that fill one message; at least one."""
    for number, size in message_bytes.items():
        yield number
        bytes_left -= size
        if bytes_left <= 0:
            return
