"""Hosts: what became of the tasks that ran there, and which of them swallow tasks (G9).

A *black hole* fails whatever it is given, at once, and so is always free for more.  One is told from a bad bag by what
the same bag's tasks did elsewhere:

  * A strike is a grant of which a task failed, with no success since.  Tasks of one grant lie side by side in their bag
    and fail together where that is bad, so a grant is one strike however many fail.  Time and memory are no host's
    fault.
  * A strike weighs −ln p, where p is the share of other hosts whose last task of that bag failed, too.  Where no other
    host has succeeded with it a strike weighs nothing: a bag that fails everywhere is no host's fault.
  * Strikes that weigh 14, one chance in a million, are proof: the host is *quarantined*, for longer each time.  Then it
    is on *probation*: one task at a time, until one succeeds, or fails.
  * Before there is proof there is *doubt*: after five strikes that came fast, with others there to do the work and none
    of them known to fare as badly, a host waits before it is given one more task; longer after each.

Who lends a site to others is not told by their tasks which of the hosts are good: what tasks of a guest say counts for
that guest alone, who is given nothing there for a while (*shunned*).

What doubted or quarantined hosts hold and have not started is taken back.  Statistics are kept under the host's lasting
id, those of the hosts that were seen last, and survive a restart; strikes do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import log

import numpy as np

from windfall.core.decide.hosts.session import Blamed, Strikes
from windfall.core.decide.provision.site_watch import note
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FINE, HELD_BACK, LIVE, PROBATION
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn

MOST_HOSTS = 1 << 16  # hosts that are remembered
KEPT = 64  # hosts whose last task of a bag is
PROOF = 14.0  # weight of strikes
DOUBT, PAUSE, LONGEST = 5, 10_000, 600_000  # strikes; ms to wait, and at most
DAY = 86_400_000
FAST = 10  # a failure is fast that takes less than this part of what a success takes
QUICK = 10_000  # ms; where nobody knows that yet
MEAN_WEIGHT = 0.2
FASTEST = 100.0  # times the average: more is a task that had nothing to do


# --- what is folded from facts --------------------------------------------------------------------------------------


def row_of(state: State, site: str, host: str, name: str) -> int:
    """Its row; a new one if it was never seen."""
    row = state.host_rows.get((site, host), -1)
    if row < 0:
        if len(state.host_rows) >= MOST_HOSTS:
            _forget_some(state)
        if state.host_free:
            row = heappop(state.host_free)
            state.host_names[row] = (site, host, name)
        else:
            row = len(state.host_names)
            state.host_names.append((site, host, name))
            state.hosts.grow(row + 1 - state.hosts.rows)
        state.host_rows[site, host] = row
        state.hosts.dirty[row >> 16] = 1
    return row


def register_pilot(state: State, pilot: PilotState) -> None:
    """A pilot is there."""
    pilot.row = row_of(state, pilot.site, pilot.host, pilot.host_name)
    state.pilots[pilot.number] = pilot
    state.on_host.setdefault(pilot.row, {})[pilot.number] = None


def unregister_pilot(state: State, pilot: PilotState) -> None:
    """It is forgotten."""
    of_host = state.on_host[pilot.row]
    del of_host[pilot.number]
    if not of_host:
        del state.on_host[pilot.row]


def _forget_some(state: State) -> None:
    """Those that were seen longest ago, but for those that are there or must wait.  Only what is folded from facts says
    which: doubts are not, and rows must be the same after a restart."""
    order = np.argsort(state.hosts.np_seen[: state.hosts.rows], kind="stable").tolist()
    rows = [row for row in order if row not in state.on_host and not state.hosts.standing[row]][: MOST_HOSTS // 16]
    gone = {row: None for row in rows if state.host_names[row][:2] != ("", "")}
    for row in gone:
        site, host, _ = state.host_names[row]
        del state.host_rows[site, host]
        state.quarantined.pop(row, None)
        state.host_reasons.pop(row, None)
        state.host_names[row] = ("", "", "")
        for name, _ in state.hosts.LAYOUT:
            getattr(state.hosts, name)[row] = 0
        state.hosts.dirty[row >> 16] = 1
        heappush(state.host_free, row)
    if not gone:
        return
    for key in [key for key in state.guests_refused if key[0] in gone]:
        del state.guests_refused[key]
    for bag in state.bags.values():  # whoever gets the row has run nothing of it
        for row in [row for row in bag.last_outcome_by_host if row in gone]:
            del bag.last_outcome_by_host[row]


def learn_successes(
    state: State, bag: BagState, row: int, n: int, samples: Sequence[float], at: int, usual: float = 0.0
) -> None:
    """Learn from `n` successes on a host, of which `samples` are the wall times: one each, or the average of many.

    `usual`: ms that such a task takes on average, wherever it runs; 0 if unknown.
    """
    h = state.hosts
    h.attempts[row] += n
    h.success[row] = h.seen[row] = at
    mean, speed = h.mean[row], h.speed[row]
    for wall in samples:
        mean = mean + MEAN_WEIGHT * (wall - mean) if mean else wall
        if usual:
            ratio = usual / (wall if wall > 0.5 else 0.5)
            ratio = ratio if ratio < FASTEST else FASTEST
            speed = speed + MEAN_WEIGHT * (ratio - speed) if speed else ratio
    h.mean[row], h.speed[row] = mean, speed
    h.streak[row] = 0
    day = at // DAY
    h.today[row] = h.today[row] + n if h.day[row] == day else n
    h.day[row] = day
    h.dirty[row >> 16] = 1
    if not bag.last_outcome_by_host.get(row):
        _remember(bag, row, True)


def learn_failure(state: State, bag: BagState, row: int, at: int) -> None:
    h = state.hosts
    h.attempts[row] += 1
    h.failures[row] += 1
    h.streak[row] = min(h.streak[row] + 1, 0xFFFF)
    h.seen[row] = at
    h.dirty[row >> 16] = 1
    _remember(bag, row, False)


def learn_loss(state: State, row: int, at: int) -> None:
    h = state.hosts
    h.attempts[row] += 1
    h.losses[row] += 1
    h.seen[row] = at
    h.dirty[row >> 16] = 1


def _remember(bag: BagState, row: int, good: bool) -> None:
    bag.last_outcome_by_host.pop(row, None)
    bag.last_outcome_by_host[row] = good
    if len(bag.last_outcome_by_host) > KEPT:
        del bag.last_outcome_by_host[next(iter(bag.last_outcome_by_host))]


def host_judged(state: State, fact: f.HostJudged) -> None:
    row = state.host_rows[fact.site, fact.host]
    h = state.hosts
    h.standing[row], h.until[row], h.times[row] = fact.standing, fact.until, fact.times
    h.dirty[row >> 16] = 1
    if fact.standing == FINE:
        state.quarantined.pop(row, None)
        state.host_reasons.pop(row, None)
    else:
        state.quarantined[row] = fact.until
        state.host_reasons[row] = fact.says
    state.version += 1
    note(state.sites[fact.site], fact.at, "host", f"{state.host_names[row][2]}: {fact.says}")


def restore_barred(state: State) -> None:
    """After a recovery: who must wait."""
    rows = np.flatnonzero(state.hosts.np_standing[: state.hosts.rows]).tolist()
    state.quarantined = {row: state.hosts.until[row] for row in rows}


# --- granting -------------------------------------------------------------------------------------------------------


def tasks_allowed(state: State, now: int, pilot: PilotState) -> int:
    """Tasks that a pilot on a host that is barred may be given: none yet, or one if the host has none."""
    if now < state.quarantined[pilot.row]:
        return 0
    return int(not any(state.pilots[number].attempts_held for number in state.on_host[pilot.row]))


def refuses_guest(state: State, now: int, pilot: PilotState, cls: TaskClass) -> bool:
    """Is nothing of this class's owner given to the pilot's host now?"""
    return state.guests_refused.get((pilot.row, state.bags[cls.bag].owner), 0) > now


def resume(turn: Turn) -> None:
    restore_barred(turn.state)
    for row, until in turn.state.quarantined.items():
        turn.timers.add(max(until, turn.now), "host", row)


def host_due(turn: Turn, row: int) -> None:
    """It has waited."""
    for key in [key for key, until in turn.state.guests_refused.items() if key[0] == row and until <= turn.now]:
        del turn.state.guests_refused[key]
        turn.state.version += 1
    until = turn.state.quarantined.get(row)
    if until is None or until > turn.now:
        return
    turn.state.version += 1  # it may have one task now
    if turn.state.hosts.standing[row] == HELD_BACK:
        _judge(turn, row, PROBATION, 0, turn.state.hosts.times[row], "on probation: one task at a time")


# --- judging --------------------------------------------------------------------------------------------------------


def note_failures(turn: Turn, pilot: PilotState) -> None:
    """Tasks that it ran have failed."""
    blamed, turn.hosts.failures_in_report = turn.hosts.failures_in_report, []
    state, row = turn.state, pilot.row
    if state.hosts.success[row] >= turn.now:
        clear_strikes(turn, pilot)
        return
    by: dict[str, list[Blamed]] = {}  # guest, or nobody → failures
    for each in blamed:
        owner = state.bags[each[0].bag].owner
        by.setdefault("" if owner == pilot.owner else owner, []).append(each)
    for guest, failures in by.items():
        _strike(turn, pilot, guest, failures)


def _strike(turn: Turn, pilot: PilotState, guest: str, blamed: list[Blamed]) -> None:
    state, row = turn.state, pilot.row
    if len(turn.hosts.strikes) > 2 * MOST_HOSTS:  # hosts have been forgotten since
        turn.hosts.strikes = {key: said for key, said in turn.hosts.strikes.items() if key in state.host_rows}
    of_host = turn.hosts.strikes.setdefault(state.host_names[row][:2], {})
    said = of_host.get(guest)
    if said is None or said.at <= state.hosts.success[row]:
        said = of_host[guest] = Strikes()
    fast, good, bad = True, 0, 0
    for cls, grant, wall in blamed:
        if (pilot.number, grant) != said.last:
            good, bad = _elsewhere(state.bags[cls.bag], row)
            said.count, said.last, said.at = said.count + 1, (pilot.number, grant), turn.now
            said.weight -= log((bad + 0.5) / (good + bad + 1)) if good else 0.0
        fast = fast and wall < _quick(state, cls)
    if said.at == turn.now:
        _weigh(turn, pilot, guest, said, fast, good >= bad)


def _weigh(turn: Turn, pilot: PilotState, guest: str, said: Strikes, fast: bool, alone: bool) -> None:
    """`alone`: others do not fare as badly, as far as is known."""
    state, row = turn.state, pilot.row
    proven = said.weight >= PROOF or (not guest and state.hosts.standing[row] == PROBATION)
    doubted = said.count >= DOUBT and fast
    if not alone or not (proven or doubted) or not _others(state, pilot, guest):
        return
    times = min(state.hosts.times[row] + 1, 16)
    pause = turn.config.quarantine << times - 1 if proven else min(PAUSE << min(said.count - DOUBT, 10), LONGEST)
    until = turn.now + min(pause, DAY)
    said.weight = 0.0 if proven else said.weight
    if guest:
        state.guests_refused[row, guest] = until
    elif proven:
        says = f"quarantined: its last {state.hosts.streak[row]} tasks failed, and those of others did not"
        _judge(turn, row, HELD_BACK, until, times, says)
        turn.hosts.to_empty.append(row)
    else:
        state.quarantined[row] = until
        state.host_reasons[row] = f"in doubt: its last {state.hosts.streak[row]} tasks failed at once"
        turn.hosts.to_empty.append(row)
    turn.timers.add(until, "host", row)


def _others(state: State, pilot: PilotState, guest: str) -> bool:
    """Is there another host for its tasks?  They could go to no host of somebody else's."""
    whose = (pilot.owner, guest) if guest else (pilot.owner,)
    return any(p.state == LIVE and not p.lease_expired and p.row != pilot.row and p.owner in whose
               for p in state.pilots.values())


def clear_strikes(turn: Turn, pilot: PilotState) -> None:
    """A success: whatever was held against its host is over."""
    state, row = turn.state, pilot.row
    turn.hosts.strikes.pop(state.host_names[row][:2], None)
    if row not in state.quarantined:
        return
    if state.hosts.standing[row] != FINE:
        _judge(turn, row, FINE, 0, state.hosts.times[row], "it works again")
    else:
        del state.quarantined[row]
        state.host_reasons.pop(row, None)
        state.version += 1


def _judge(turn: Turn, row: int, standing: int, until: int, times: int, says: str) -> None:
    site, host, _ = turn.state.host_names[row]
    turn.emit(f.HostJudged(turn.now, site, host, standing, until, times, says))


def _elsewhere(bag: BagState, row: int) -> tuple[int, int]:
    """Other hosts whose last task of this bag succeeded, and whose failed."""
    others = [good for host, good in bag.last_outcome_by_host.items() if host != row]
    return sum(others), len(others) - sum(others)


def _quick(state: State, cls: TaskClass) -> float:
    usual = cls.mean or state.bags[cls.bag].targets[cls.target].shape.expect
    return usual / FAST if usual else QUICK
