"""Sessions: enrolment, and the exchange with its acknowledgements, parking, and answers.

Rules
  * A request may come twice, late, or on another connection: reports are recognised by their attempt, grants are sent
    again until acknowledged, so answering the same request twice does no harm.
  * An exchange with nothing to say is parked until there is something, or its time is up.  A newer poll of the same
    pilot replaces an older one, which is answered empty.
  * A pilot whose lease ran out must say what it holds before it is granted anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from windfall.core.decide.data.lost_copies import doubt_sources
from windfall.core.decide.exchange.verdicts import lose, not_fetched, settle, take_reports
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.grant.grant import grant
from windfall.core.decide.hosts import quarantine
from windfall.core.decide.provision.intents import pilot_asked, pilot_came, pilot_left
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import (
    ACTIVE,
    DRAINING,
    DROPPED,
    GONE,
    GRANTED,
    LIVE,
    LOST,
    O_LOST,
    O_RETURNED,
    READY,
    STARTED,
    WAITING,
)
from windfall.core.state.accounts import left_of_group
from windfall.core.state.chains import chain_key, is_blocked, previous_attempt_on, row_chain
from windfall.core.state.columns import ROW_MASK
from windfall.core.state.world import PilotState, WaitingRequest
from windfall.core.turn import Turn

BLAMELESS = ("silent", "requeued", "stopped")  # ends of pilots that say nothing about what they ran
TOGETHER = 256  # part of its time by which a poll may be answered early, and a lease run out late
MOST_LIVE = 200  # attempts of one task; the column holds a byte


def enrol(turn: Turn, event: e.Enrol) -> None:
    state = turn.state
    site = state.sites.get(event.site)
    if site is None:
        turn.refuse(event, "not-found", f"there is no site called {event.site!r}")
        return
    older = state.pilots.get(state.nonces.get((event.site, event.nonce), 0))
    epoch = 1 if older is None else older.epoch + 1
    number = state.next_pilot
    ends = 0 if event.left is None else turn.now + max(event.left, 0)
    intent = state.intents.get(state.intent_nonces.get((event.site, event.nonce), 0))
    turn.emit(
        f.PilotEnrolled(
            turn.now, number, event.nonce, epoch, event.site, site.owner, event.host, event.host_name,
            max(event.cores, 1), event.memory, event.gpus, event.disk, ends, event.token,
            (ends or turn.now) + turn.config.token, event.detail, max(event.nodes, 1),
            intent is None or intent.shape.whole,
        )
    )
    if older is not None:
        nudge(turn, older)
        nearest_data.stir(turn)
    pilot_came(turn, state.pilots[number])
    turn.exchange.pilots_alive += 1
    watch_lease(turn, state.pilots[number])
    turn.effects.append(
        x.Enrolled(event.key, number, epoch, turn.config.lease, turn.config.idle, spread(turn), turn.config.park)
    )


def watch_lease(turn: Turn, pilot: PilotState) -> None:
    """Set the timer of a pilot's lease, a little late: leases that expire at about the same time are looked at in one
    step."""
    patience = turn.config.lease + turn.config.margin
    at = pilot.heard + patience
    turn.timers.add(at + -at % (patience // TOGETHER or 1), "lease", pilot.number)


def resume(turn: Turn) -> None:
    """After a recovery every lease starts again."""
    alive = 0
    for pilot in turn.state.pilots.values():
        if pilot.state == GONE:
            turn.timers.add(pilot.ended + turn.config.forget, "forget", pilot.number)
            continue
        pilot.heard = turn.now
        alive += 1
        watch_lease(turn, pilot)
    turn.exchange.pilots_alive = alive


def spread(turn: Turn) -> int:
    """Ms over which pilots that have lost the server come back: a handshake costs a fraction of one."""
    return max(turn.exchange.pilots_alive, 200)


def exchange(turn: Turn, event: e.Exchange) -> None:
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is None:
        turn.refuse(event, "unauthorised", "this pilot is not known any more", "enrol again")
        return
    _hear(turn, pilot)
    if pilot.epoch > 1 and (event.reports or event.started or event.held):
        _adopt(turn, pilot, event)
    if event.reports:
        doubtful = not_fetched(turn, pilot, event.reports) if turn.state.transfers_of else []
        take_reports(turn, pilot, event.reports)
        if doubtful:
            doubt_sources(turn, doubtful)
        if turn.hosts.failures_in_report:
            quarantine.note_failures(turn, pilot)
        elif turn.state.quarantined and turn.state.hosts.success[pilot.row] == turn.now:
            quarantine.clear_strikes(turn, pilot)
    if event.started:
        _note_started(turn, pilot, event.started)
    if event.held is not None:
        _reconcile(turn, pilot, event)
    if event.bye:
        _leave(turn, pilot, event.bye)
    if pilot.waiting_request is not None:
        _refresh(pilot.waiting_request, turn.now, event)
    want = _wanted(pilot, event)
    if want > 0 and event.reports and _steps_back(turn, pilot, event):
        want, turn.grants.recheck_waiting = 0, True  # pilots that wait come first; then this one, if it waits, too
    if turn.state.bags_by_data and want > 0 and pilot.load < pilot.cores * 1000:
        nearest_data.note_arrival(turn, pilot)
    granted = want > 0 and grant(turn, pilot, want, event.left, not (event.reports and _gives_back(event)))
    if event.want > 0 and pilot.intent:
        pilot_asked(turn, pilot)
    _reply(turn, pilot, event, want, granted)


def _gives_back(event: e.Exchange) -> bool:
    """What was recalled is for those who wait; whoever gave it back would only hold it again."""
    return "recall" in [report.why for report in event.reports]


def _steps_back(turn: Turn, pilot: PilotState, event: e.Exchange) -> bool:
    """Who has just failed a task is the last to try it again: those who wait come first."""
    for report in event.reports:
        if report.o == "failed":
            classes = turn.state.pilot_classes.values()
            return any(number != pilot.number for pc in classes for number in islice(pc.waiting, 2))
    return False


def _refresh(park: WaitingRequest, now: int, event: e.Exchange) -> None:
    """A request beside a parked one is newer: what it acknowledges need not be sent again, nor its time be guessed.

    Its answer says that all is well, so the parked one may wait for as long again."""
    park.ack = event.ack if event.ack > park.ack else park.ack
    park.until = _until(now, park.wait)
    if park.ends is not None and event.left is not None:
        park.ends = min(park.ends, now + event.left)


def _wanted(pilot: PilotState, event: e.Exchange) -> int:
    """What a parked poll of the same pilot asks for stands: these reports may have made room for it."""
    if event.want > 0 or pilot.waiting_request is None or not event.reports:
        return event.want
    return pilot.waiting_request.want


def _adopt(turn: Turn, pilot: PilotState, event: e.Exchange) -> None:
    """An older epoch was granted what this one now speaks of: the same process, under a new name."""
    attempts = turn.state.attempts
    numbers = [report.a for report in event.reports]
    if pilot.state != GONE and (event.started or event.held):
        numbers += [*event.started, *(event.held or ())]
    of, mine = attempts.pilot, pilot.number  # mostly they are its own
    others = [n for n in numbers if (n & ROW_MASK) < attempts.rows and of[n & ROW_MASK] != mine]
    if others:
        found = [n for n in dict.fromkeys(others) if attempts.row(n) >= 0 and _follows(turn, pilot, of[n & ROW_MASK])]
        if found:
            turn.emit(f.Adopted(turn.now, mine, found))


def _follows(turn: Turn, pilot: PilotState, number: int) -> bool:
    older = turn.state.pilots[number]
    lineage = (older.site, older.nonce, older.owner) == (pilot.site, pilot.nonce, pilot.owner)
    return lineage and older.epoch < pilot.epoch


def _hear(turn: Turn, pilot: PilotState) -> None:
    pilot.heard = turn.now
    if pilot.lease_expired and not pilot.census:
        pilot.census = True
    if not pilot.cancelling:
        pilot.cancel_unacknowledged_since = 0
    elif not pilot.cancel_unacknowledged_since:
        pilot.cancel_unacknowledged_since = turn.now
    # it may never have heard of them: their grant was lost
    elif turn.now - pilot.cancel_unacknowledged_since >= turn.config.lease:
        pilot.census, pilot.cancel_unacknowledged_since = True, turn.now


def _note_started(turn: Turn, pilot: PilotState, numbers: list[int]) -> None:
    """Believe a pilot that says what runs, unless the task has ended otherwise."""
    attempts = turn.state.attempts
    running = []
    for number in numbers:
        row = attempts.row(number)
        if row < 0 or attempts.pilot[row] != pilot.number:
            continue
        if attempts.state[row] == GRANTED:
            running.append(number)
        elif attempts.state[row] == LOST and _may_go_on(turn, pilot, row):
            turn.emit(f.Started(turn.now, pilot.number, [number]))  # the next one may find no room
    if running:
        turn.emit(f.Started(turn.now, pilot.number, running))


def _may_go_on(turn: Turn, pilot: PilotState, row: int) -> bool:
    """A lost attempt is taken up again if its task still wants a result of that generation."""
    if pilot.state == GONE:
        return False
    attempts = turn.state.attempts
    bag, cls = turn.state.bags[attempts.task[row] >> 32], turn.state.classes[attempts.cls[row]]
    tasks, task = bag.tasks, attempts.task[row] & 0xFFFFFFFF
    fits = tasks.live[task] < MOST_LIVE and left_of_group(bag, cls) > 0
    wanted = tasks.generation[task] == attempts.generation[row] and tasks.state[task] in (READY, ACTIVE, WAITING)
    return bool(fits and wanted)


def _reconcile(turn: Turn, pilot: PilotState, event: e.Exchange) -> None:
    """The pilot has listed all it holds: take back what it does not, drop what it should not."""
    held = dict.fromkeys(event.held or ())
    pilot.lease_expired = pilot.census = False
    settle(turn, pilot.number, _not_held(turn, pilot, held, event.ack))
    _sort_held(turn, pilot, list(held))


def _not_held(turn: Turn, pilot: PilotState, held: dict[int, None], ack: int) -> Iterator[f.End]:
    """A report that travels beside this request may still come, so what the task can use of it is kept."""
    attempts = turn.state.attempts
    for row in attempts.of_pilot(pilot.number).tolist():
        state = attempts.state[row]
        if state in (GRANTED, STARTED, DROPPED) and attempts.number[row] not in held and attempts.grant[row] <= ack:
            yield lose(turn, row, "gone", present=False, stays=state != DROPPED, outcome=O_RETURNED)


def _sort_held(turn: Turn, pilot: PilotState, held: list[int]) -> None:
    """What it holds and was given up: what runs goes on while its task wants it, the rest it is to drop."""
    attempts = turn.state.attempts
    for number in held:
        row = attempts.row(number)
        if row < 0 or attempts.pilot[row] != pilot.number:
            pilot.unknown_attempts.append(number)
        elif attempts.state[row] == LOST and attempts.started[row] and _may_go_on(turn, pilot, row):
            turn.emit(f.Started(turn.now, pilot.number, [number]))
        elif attempts.state[row] == DROPPED or (attempts.state[row] == LOST and pilot.state != GONE):
            pilot.cancelling.setdefault(number, False)


def _leave(turn: Turn, pilot: PilotState, why: str) -> None:
    """Last words.  What it has not reported it has not done."""
    end_pilot(turn, pilot, why, clean=True)


def end_pilot(turn: Turn, pilot: PilotState, why: str, *, clean: bool) -> None:
    if pilot.state == GONE:
        return
    settle(turn, pilot.number, _left_behind(turn, pilot, why, clean))
    turn.emit(f.PilotEnded(turn.now, pilot.number, why, clean))
    pilot_left(turn, pilot, why)
    if not clean:
        nearest_data.not_expected(turn, pilot)
    turn.grants.orders.forget(pilot.number)
    turn.exchange.pilots_alive -= 1
    turn.timers.add(turn.now + turn.config.forget, "forget", pilot.number)
    nudge(turn, pilot)


def _left_behind(turn: Turn, pilot: PilotState, why: str, clean: bool) -> Iterator[f.End]:
    """A pilot starts what it is granted in order, so the first ones may have been running when it died.

    How far it had come with a batch nobody knows: all of it are suspects, and go alone from now on (`batching.py`).
    """
    attempts = turn.state.attempts
    outcome = O_RETURNED if clean else O_LOST
    places: dict[tuple[int, int], int] = {}
    for row in attempts.of_pilot(pilot.number).tolist():
        state = attempts.state[row]
        place = places.setdefault(chain_key(turn.state, row), len(places))
        # Silence is no death: a closed lid must not put anybody under suspicion, nor a site that takes its hosts back.
        present = not clean and why not in BLAMELESS and (state == STARTED or place < pilot.cores)
        present = present and not is_blocked(turn.state, row)
        if state in (GRANTED, STARTED):
            yield lose(turn, row, why, present=present, stays=not clean, outcome=outcome)
        elif state == LOST and present:
            yield lose(turn, row, why, present=True, stays=True)


def _reply(turn: Turn, pilot: PilotState, event: e.Exchange, want: int, granted: bool) -> None:
    at_once = event.wait <= 0 or bool(event.bye)
    if at_once and want <= 0:  # whatever there is to say
        turn.effects.append(compose(turn, pilot, event.key, event.seq, event.ack))
        return
    news = granted or event.ack < pilot.granted or has_news(pilot)
    if not news and want > 0:
        turn.grants.starved_pilots[pilot.number] = want
    if news or at_once:
        turn.effects.append(compose(turn, pilot, event.key, event.seq, event.ack))
    else:
        _park(turn, pilot, event)


def has_news(pilot: PilotState) -> bool:
    """Is there anything the pilot has not been told?  Told orders are repeated, but nobody is woken for them."""
    return bool(
        pilot.unknown_attempts or pilot.census or _stop(pilot) != pilot.stop_sent
        or (pilot.cancelling and not all(pilot.cancelling.values()))
        or (pilot.recalling and not all(pilot.recalling.values()))
    )


def _park(turn: Turn, pilot: PilotState, event: e.Exchange) -> None:
    if pilot.waiting_request is not None:
        answer_parked(turn, pilot)
    wait = min(event.wait, turn.config.park)
    until = _until(turn.now, wait)
    ends = None if event.left is None else turn.now + event.left
    pilot.waiting_request = WaitingRequest(event.key, event.seq, event.ack, event.want, ends, wait, until, turn.now)
    if event.want > 0 and pilot.load < pilot.cores * 1000:  # a full one joins the line when it has room
        turn.state.pilot_classes[pilot.cls].waiting[pilot.number] = pilot.row
    if not pilot.request_timer or until < pilot.request_timer:
        pilot.request_timer = until
        turn.timers.add(until, "park", pilot.number)


def _until(now: int, wait: int) -> int:
    """A little early, so that those whose time is up at about the same time are answered in one step."""
    return now + wait - (now + wait) % (wait // TOGETHER or 1)


def unpark(turn: Turn, pilot: PilotState) -> WaitingRequest | None:
    park, pilot.waiting_request = pilot.waiting_request, None
    turn.state.pilot_classes[pilot.cls].waiting.pop(pilot.number, None)
    nearest_data.stir(turn)  # it is not there at once any more
    return park


def answer_parked(turn: Turn, pilot: PilotState) -> None:
    """Answer the waiting request with whatever there is to say now."""
    park = unpark(turn, pilot)
    if park is not None:
        turn.effects.append(compose(turn, pilot, park.key, park.seq, park.ack))


def nudge(turn: Turn, pilot: PilotState) -> None:
    """Something must reach the pilot soon."""
    if pilot.waiting_request is not None:
        answer_parked(turn, pilot)


def compose(turn: Turn, pilot: PilotState, key: int, seq: int, ack: int) -> x.ExchangeReply:
    answer = x.ExchangeReply(key, pilot.number, pilot.epoch, seq, turn.config.lease, spread(turn))
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
        answer.transfers = _moves(turn, answer.grants)
    answer.census = pilot.census
    answer.stop = pilot.stop_sent = "" if pilot.state == LIVE else _stop(pilot)
    return answer


def _moves(turn: Turn, grants: list[tuple[int, list[f.Group]]]) -> list[f.Transfer]:
    """What the attempts of these grants are to fetch."""
    moving = turn.state.transfers_of
    attempts = [attempt for _, groups in grants for group in groups for attempt in group.attempts]
    return [move for attempt in attempts for move in moving.get(attempt, ())]


def _stop(pilot: PilotState) -> str:
    if pilot.state == LIVE:
        return ""
    return "drain" if pilot.state == DRAINING else "superseded"


def _unacknowledged(turn: Turn, pilot: PilotState, ack: int) -> list[tuple[int, list[f.Group]]]:
    """Grants beyond `ack`, rebuilt from the attempts that are still only granted."""
    attempts = turn.state.attempts
    grants: dict[int, dict[tuple[int, int, int], f.Group]] = {n: {} for n in range(ack + 1, pilot.granted + 1)}
    if len(grants) > 64:  # a pilot that acknowledges nothing gets the rest later
        grants = {n: {} for n in range(ack + 1, ack + 65)}
    weights = dict.fromkeys(grants, 0)
    for row in attempts.of_pilot(pilot.number).tolist():
        number = attempts.grant[row]
        if number in grants and attempts.state[row] in (GRANTED, STARTED):
            cls = turn.state.classes[attempts.cls[row]]
            task = attempts.task[row] & 0xFFFFFFFF
            chain = row_chain(turn.state, row)
            group = grants[number].setdefault(
                (cls.bag, cls.number, chain),
                f.Group(
                    cls.bag,
                    cls.target,
                    cls.time_retries,
                    cls.memory_retries,
                    [],
                    [],
                    chain,
                    to_fail_over_site=cls.to_fail_over_site,
                ),
            )
            group.tasks.append(task)
            group.attempts.append(attempts.number[row])
            if cls.in_chain and (behind := previous_attempt_on(turn.state, pilot, cls.bag, task)):
                group.prerequisites = [
                    *group.prerequisites,
                    *[0] * (len(group.tasks) - len(group.prerequisites) - 1),
                    behind,
                ]
            weights[number] += cls.message_bytes
    return [(n, list(grants[n].values())) for n in _first_of(weights, turn.config.message)]


def _first_of(weights: dict[int, int], budget: int) -> Iterator[int]:
    """As many grants as one message should carry, at least one; the rest follows when these are acknowledged."""
    for number, weight in weights.items():
        yield number
        budget -= weight
        if budget <= 0:
            return


def gone(turn: Turn, event: e.Gone) -> None:
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is not None:
        end_pilot(turn, pilot, event.why, clean=False)
    turn.done(event)


def drain(turn: Turn, event: e.Drain) -> None:
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is not None and pilot.state == LIVE:
        turn.emit(f.PilotDraining(turn.now, pilot.number))
        nearest_data.stir(turn)
        nudge(turn, pilot)
    turn.done(event)


def drop_connection(turn: Turn, event: e.DropRequest) -> None:
    """The connection behind a parked request is closed: nobody would hear an answer."""
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is not None and pilot.waiting_request is not None and pilot.waiting_request.key == event.parked:
        unpark(turn, pilot)
