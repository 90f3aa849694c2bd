"""Hosts that swallow tasks (black holes), and what the core does about them (G9).

A *black hole* fails every task that it is given, at once, and so is always free for more.  The same bag's tasks on
other hosts tell a black hole from a bad bag:

  * A strike is a grant of which a task failed, with no success since.  Tasks of one grant lie side by side in their bag
    and fail together where that is bad, so a grant is one strike however many of its tasks fail.  A failure by time or
    memory is no strike.
  * A strike weighs −ln p, where p is the share of other hosts whose last task of that bag failed, too.  It weighs
    nothing while no other host has succeeded with the bag: a bag that fails everywhere is no host's fault.
  * Strikes that weigh 14, one chance in a million, are proof: the host is *quarantined*, for longer each time.  Then it
    is on *probation*: one task at a time, until one succeeds, or fails.
  * Before there is proof there is *doubt*.  A host with five strikes that came fast waits before it gets one more task,
    longer after each, if other hosts can do the work and none of them is known to fare as badly.

The tasks of a guest must not tell the owner of a shared site which hosts are good: a guest's failures count for that
guest alone, and the host gets none of the guest's tasks for a while.

A doubted or quarantined host gives back the tasks that it has not started.  Statistics outlive a restart; strikes do
not.
"""

from __future__ import annotations

from math import log

from windfall.core.decide.hosts.session import Failure, Strikes
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FINE, HELD_BACK, LIVE, PROBATION
from windfall.core.state import host_table
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn

PROOF = 14.0  # weight of strikes
DOUBT, PAUSE, LONGEST = 5, 10_000, 600_000  # strikes; ms to wait, and at most
DAY = 86_400_000
FAST = 10  # a failure is fast that takes less than this part of a success's time,
QUICK = 10_000  # or less than so many ms, where no task has succeeded yet


# --- granting -------------------------------------------------------------------------------------------------------


def tasks_allowed(state: State, now: int, pilot: PilotState) -> int:
    """Count the tasks that a pilot on a quarantined host may be given: none before its pause is over, then one if the
    host holds none."""
    if now < state.quarantined[pilot.row]:
        return 0
    return int(not any(state.pilots[number].attempts_held for number in state.on_host[pilot.row]))


def refuses_guest(state: State, now: int, pilot: PilotState, cls: TaskClass) -> bool:
    """Does the pilot's host get none of the class's owner's tasks now?"""
    return state.guests_refused.get((pilot.row, state.bags[cls.bag].owner), 0) > now


def resume(turn: Turn) -> None:
    host_table.restore_quarantined(turn.state)
    for row, until in turn.state.quarantined.items():
        turn.timers.add(max(until, turn.now), "host", row)


def host_due(turn: Turn, row: int) -> None:
    """The host's pause is over: offer it one task."""
    state = turn.state
    for key in [key for key, until in state.guests_refused.items() if key[0] == row and until <= turn.now]:
        del state.guests_refused[key]
        state.version += 1
    until = state.quarantined.get(row)
    if until is None or until > turn.now:
        return
    state.version += 1
    if state.hosts.standing[row] == HELD_BACK:
        _emit_verdict(turn, row, PROBATION, "on probation: one task at a time")


# --- strikes ----------------------------------------------------------------------------------------------------------


def note_failures(turn: Turn, pilot: PilotState) -> None:
    """Count the failures of a report against the pilot's host."""
    failures, turn.hosts.failures_in_report = turn.hosts.failures_in_report, []
    state, row = turn.state, pilot.row
    if state.hosts.success[row] >= turn.now:
        clear_strikes(turn, pilot)
        return
    by_guest: dict[str, list[Failure]] = {}  # "": the pilot's owner
    for each in failures:
        owner = state.bags[each.cls.bag].owner
        by_guest.setdefault("" if owner == pilot.owner else owner, []).append(each)
    for guest, of_guest in by_guest.items():
        _strike(turn, pilot, guest, of_guest)


def _strike(turn: Turn, pilot: PilotState, guest: str, failures: list[Failure]) -> None:
    state, row = turn.state, pilot.row
    strikes = _strikes_of(turn, row, guest)
    is_fast, good, bad = True, 0, 0
    for failure in failures:
        if (pilot.number, failure.grant) != strikes.last:
            good, bad = _outcomes_elsewhere(state.bags[failure.cls.bag], row)
            strikes.count, strikes.last, strikes.at = strikes.count + 1, (pilot.number, failure.grant), turn.now
            strikes.weight -= log((bad + 0.5) / (good + bad + 1)) if good else 0.0
        is_fast = is_fast and failure.wall < _fast_failure(state, failure.cls)
    if strikes.at == turn.now and good >= bad and _has_other_host(state, pilot, guest):
        _judge(turn, pilot, guest, strikes, is_fast)


def _strikes_of(turn: Turn, row: int, guest: str) -> Strikes:
    """Return the strikes since the host's last success."""
    state, session = turn.state, turn.hosts
    if len(session.strikes) > 2 * host_table.MOST_HOSTS:  # the table has evicted hosts since
        session.strikes = {host: strikes for host, strikes in session.strikes.items() if host in state.host_rows}
    of_host = session.strikes.setdefault(state.host_names[row][:2], {})
    strikes = of_host.get(guest)
    if strikes is None or strikes.at <= state.hosts.success[row]:
        strikes = of_host[guest] = Strikes()
    return strikes


def clear_strikes(turn: Turn, pilot: PilotState) -> None:
    """A task succeeded: drop everything that was held against the pilot's host."""
    state, row = turn.state, pilot.row
    turn.hosts.strikes.pop(state.host_names[row][:2], None)
    if row not in state.quarantined:
        return
    if state.hosts.standing[row] != FINE:
        _emit_verdict(turn, row, FINE, "it works again")
    else:
        del state.quarantined[row]
        state.host_doubts.pop(row, None)
        state.version += 1


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _judge(turn: Turn, pilot: PilotState, guest: str, strikes: Strikes, is_fast: bool) -> None:
    """Quarantine the host if the strikes are proof, or let it pause if they raise doubt."""
    state, row = turn.state, pilot.row
    is_proof = strikes.weight >= PROOF or (not guest and state.hosts.standing[row] == PROBATION)
    if not is_proof and not (strikes.count >= DOUBT and is_fast):
        return
    times = min(state.hosts.times[row] + 1, 16)
    pause = turn.config.quarantine << times - 1 if is_proof else min(PAUSE << min(strikes.count - DOUBT, 10), LONGEST)
    until = turn.now + min(pause, DAY)
    if is_proof:
        strikes.weight = 0.0
    failed = f"its last {state.hosts.streak[row]} tasks failed"
    if guest:
        state.guests_refused[row, guest] = until
    else:
        turn.hosts.to_empty.append(row)
        if is_proof:
            _emit_verdict(turn, row, HELD_BACK, f"quarantined: {failed}, and those of others did not", until)
        else:
            state.quarantined[row] = until
            state.host_doubts[row] = f"in doubt: {failed} at once"
    turn.timers.add(until, "host", row)


def _emit_verdict(turn: Turn, row: int, standing: int, says: str, until: int = 0) -> None:
    site, host, _ = turn.state.host_names[row]
    times = min(turn.state.hosts.times[row] + 1, 16) if standing == HELD_BACK else turn.state.hosts.times[row]
    turn.emit(f.HostJudged(turn.now, site, host, standing=standing, until=until, times=times, says=says))


def _has_other_host(state: State, pilot: PilotState, guest: str) -> bool:
    """Is there another host for the tasks of the pilot's owner, or of the guest?"""
    owners = (pilot.owner, guest) if guest else (pilot.owner,)
    return any(p.state == LIVE and not p.lease_expired and not p.trouble and p.row != pilot.row and p.owner in owners
               for p in state.pilots.values())


def _outcomes_elsewhere(bag: BagState, row: int) -> tuple[int, int]:
    """Count the other hosts whose last task of the bag succeeded, and those whose last task failed."""
    others = [good for host, good in bag.last_outcome_by_host.items() if host != row]
    return sum(others), len(others) - sum(others)


def _fast_failure(state: State, cls: TaskClass) -> float:
    """Return the ms below which a failure of the class is fast."""
    usual = cls.mean or state.bags[cls.bag].targets[cls.target].shape.expect
    return usual / FAST if usual else QUICK
