"""Exchanges: a pilot's request, which tells what became of its tasks and asks for more.

Rules
  * A request may come twice, late, or on another connection.  The core recognises a report by its attempt and sends a
    grant again until the pilot has acknowledged it, so answering the same request twice does no harm.
  * A request with nothing to say in reply waits until there is something, or its time is up.  A newer request of the
    same pilot replaces an older one that waits, which is answered empty.
  * A pilot whose lease ran out must list what it holds before it is granted anything.
"""

from __future__ import annotations

from itertools import islice

from windfall.core.decide.exchange.pilot_end import end_pilot, end_predecessors
from windfall.core.decide.exchange.reconcile import note_started, reconcile
from windfall.core.decide.exchange.reply import renew_waiting, reply
from windfall.core.decide.exchange.reports import take_reports
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.grant.grant import grant
from windfall.core.decide.provision.intents import pilot_asked
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.bounds import MOST_GRANTS
from windfall.core.messages.lifecycle import GONE, LIVE
from windfall.core.state.columns import ROW_MASK
from windfall.core.state.world import PilotState
from windfall.core.turn import Turn


def exchange(turn: Turn, event: e.Exchange) -> None:
    """Take what the pilot tells, grant it what it asks for if that is possible, and reply."""
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is None:
        turn.refuse(event, "unauthorised", "this pilot is not known any more", "enrol again")
        return
    _note_heard(turn, pilot)
    special = _take_news(turn, pilot, event)
    if pilot.granted >= MOST_GRANTS and pilot.state == LIVE:
        nearest_data.drain_pilot(turn, pilot)  # there is no number for its next grant: another pilot goes on
    want = event.want
    if event.reports:
        want = _wanted(turn, pilot, event, special)
    if turn.state.bags_by_data and want > 0 and pilot.load < pilot.cores * 1000:
        nearest_data.note_arrival(turn, pilot)
    granted = want > 0 and grant(turn, pilot, want, event.left, not (special and _returns_recalled(special)))
    if event.want > 0 and pilot.intent:
        pilot_asked(turn, pilot)
    reply(turn, pilot, event, want, granted)


def _note_heard(turn: Turn, pilot: PilotState) -> None:
    """Renew the pilot's lease, and ask for a list of all it holds where it has lost touch.

    A pilot that has not acknowledged a cancellation for a lease may never have received that task's grant."""
    pilot.heard, pilot.doubt = turn.now, ""
    if pilot.lease_expired and not pilot.census:
        pilot.census = True
    if not pilot.cancelling:
        pilot.cancel_unacknowledged_since = 0
    elif not pilot.cancel_unacknowledged_since:
        pilot.cancel_unacknowledged_since = turn.now
    elif turn.now - pilot.cancel_unacknowledged_since >= turn.config.lease:
        pilot.census, pilot.cancel_unacknowledged_since = True, turn.now


def _take_news(turn: Turn, pilot: PilotState, event: e.Exchange) -> list[e.Report]:
    """Take what the pilot tells of its attempts and of itself.  Return the reports of other than plain successes."""
    special: list[e.Report] = []
    if pilot.epoch > 1 and (event.reports or event.started or event.held):
        _adopt(turn, pilot, event)
    if event.reports:
        special = take_reports(turn, pilot, event.reports)
    if event.started:
        note_started(turn, pilot, event.started)
    if event.held is not None:
        reconcile(turn, pilot, event.held, event.ack)
    if event.trouble != pilot.trouble:
        pilot.trouble = event.trouble
        turn.state.version += 1  # its waiting request may be granted something again
    end_predecessors(turn, pilot, event)
    if event.bye:
        end_pilot(turn, pilot, event.bye, proven=True, clean=True)  # a task that it has not reported it has not done
    if pilot.waiting_request is not None:
        renew_waiting(pilot.waiting_request, turn.now, event)
    return special


def _adopt(turn: Turn, pilot: PilotState, event: e.Exchange) -> None:
    """Move the attempts that the pilot speaks of from its older epochs: the same process, enrolled anew."""
    attempts = turn.state.attempts
    numbers = [report.a for report in event.reports]
    if pilot.state != GONE and (event.started or event.held):
        numbers += [*event.started, *(event.held or ())]
    pilots, mine = attempts.pilot, pilot.number
    others = [n for n in numbers if (n & ROW_MASK) < attempts.rows and pilots[n & ROW_MASK] != mine]
    adopted = [number for number in dict.fromkeys(others) if _belongs_to_older_epoch(turn, number, pilot)]
    if adopted:
        turn.emit(f.Adopted(turn.now, mine, adopted))


def _belongs_to_older_epoch(turn: Turn, attempt: int, pilot: PilotState) -> bool:
    """Is the attempt in play, and was it granted to an older epoch of this pilot?"""
    row = turn.state.attempts.row(attempt)
    if row < 0:
        return False
    older = turn.state.pilots[turn.state.attempts.pilot[row]]
    lineage = (older.site, older.nonce, older.owner) == (pilot.site, pilot.nonce, pilot.owner)
    return lineage and older.epoch < pilot.epoch


def _wanted(turn: Turn, pilot: PilotState, event: e.Exchange, special: list[e.Report]) -> int:
    """Return how many tasks a pilot that reports may be granted now.

    Reports may have made room for what its waiting request asks for.  Where one of them is a failure, the waiting
    pilots are served first, then this one, if it waits, too: it is the last to try that task again."""
    want = event.want
    if want <= 0 and pilot.waiting_request is not None:
        want = pilot.waiting_request.want
    if want > 0 and special and "failed" in [report.o for report in special] and _others_wait(turn, pilot):
        turn.grants.recheck_waiting = True
        return 0
    return want


def _others_wait(turn: Turn, pilot: PilotState) -> bool:
    classes = turn.state.pilot_classes.values()
    return any(number != pilot.number for pc in classes for number in islice(pc.waiting, 2))


def _returns_recalled(reports: list[e.Report]) -> bool:
    """Does the pilot return recalled tasks?  They are for pilots that wait: a prefetch would take them back."""
    return "recall" in [report.why for report in reports]
