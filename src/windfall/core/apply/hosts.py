"""Fold into the state what becomes of tasks on a host, and the verdicts on hosts."""

from __future__ import annotations

from collections.abc import Sequence

from windfall.core.apply.sites import note_on_site
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FINE
from windfall.core.state.columns import Hosts
from windfall.core.state.world import BagState, State

KEPT = 64  # hosts whose last outcome a bag remembers
DAY = 86_400_000
MEAN_WEIGHT = 0.2
MOST_COUNTED = 1 << 31  # attempts of a host, beyond which all its counts are halved: columns have 32 bits
FASTEST = 100.0  # times the average: a task that is faster had nothing to do


def learn_successes(
    state: State, bag: BagState, row: int, n: int, samples: Sequence[float], at: int, usual: float = 0.0
) -> None:
    """Learn from `n` successes on a host, of which `samples` are the wall times: one each, or the average of many.

    `usual`: ms that such a task takes on average, wherever it runs; 0 if unknown.
    """
    h = state.hosts
    if h.attempts[row] >= MOST_COUNTED:
        _halve_counts(h, row)
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
    if h.day[row] != day:
        h.day[row], h.today[row] = day, n
    elif h.today[row] < MOST_COUNTED:
        h.today[row] += n
    h.dirty[row >> 16] = 1
    if not bag.last_outcome_by_host.get(row):
        _remember(bag, row, True)


def _halve_counts(h: Hosts, row: int) -> None:
    """Halve the counts of a host together, so that the shares of failures and losses stay."""
    for column in (h.attempts, h.failures, h.losses):
        column[row] >>= 1


def _count_attempt(h: Hosts, row: int) -> None:
    if h.attempts[row] >= MOST_COUNTED:
        _halve_counts(h, row)
    h.attempts[row] += 1


def learn_failure(state: State, bag: BagState, row: int, at: int) -> None:
    h = state.hosts
    _count_attempt(h, row)
    h.failures[row] += 1
    h.streak[row] = min(h.streak[row] + 1, 0xFFFF)
    h.seen[row] = at
    h.dirty[row >> 16] = 1
    _remember(bag, row, False)


def learn_loss(state: State, row: int, at: int) -> None:
    h = state.hosts
    _count_attempt(h, row)
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
    state.host_doubts.pop(row, None)
    if fact.standing == FINE:
        state.quarantined.pop(row, None)
        state.host_reasons.pop(row, None)
    else:
        state.quarantined[row] = fact.until
        state.host_reasons[row] = fact.says
    state.version += 1
    note_on_site(state.sites[fact.site], fact.at, "host", f"{state.host_names[row][2]}: {fact.says}")
