"""The table of hosts: one row per machine that a pilot ran on, kept after the pilot is gone.

A row holds what became of the tasks that ran there.  The table remembers the hosts that were seen last.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from windfall.core.state.columns import Hosts
from windfall.core.state.world import PilotState, State

MOST_HOSTS = 1 << 16  # hosts that are remembered
ENOUGH = 5  # attempts after which the reliability of a host is known
UNRELIABLE = 10  # percent of them that were lost or failed


def row_of(state: State, site: str, host: str, name: str) -> int:
    """Return the row of a host; a new one if the host was never seen."""
    row = state.host_rows.get((site, host), -1)
    if row < 0:
        if len(state.host_rows) >= MOST_HOSTS:
            _evict_some(state)
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
    """Register a pilot under its host."""
    pilot.row = row_of(state, pilot.site, pilot.host, pilot.host_name)
    state.pilots[pilot.number] = pilot
    state.on_host.setdefault(pilot.row, {})[pilot.number] = None


def unregister_pilot(state: State, pilot: PilotState) -> None:
    """Remove a pilot from its host."""
    of_host = state.on_host[pilot.row]
    del of_host[pilot.number]
    if not of_host:
        del state.on_host[pilot.row]


def _evict_some(state: State) -> None:
    """Forget the hosts that were seen longest ago, unless a pilot is there or a verdict stands against them.

    Only what facts say decides which: doubts are volatile, and a replay must give every host the same row."""
    order = np.argsort(state.hosts.np_seen[: state.hosts.rows], kind="stable").tolist()
    rows = [row for row in order if row not in state.on_host and not state.hosts.standing[row]][: MOST_HOSTS // 16]
    gone = {row: None for row in rows if state.host_names[row][:2] != ("", "")}
    for row in gone:
        site, host, _ = state.host_names[row]
        del state.host_rows[site, host]
        state.quarantined.pop(row, None)
        state.host_reasons.pop(row, None)
        state.host_doubts.pop(row, None)
        state.host_names[row] = ("", "", "")
        for name, _ in state.hosts.LAYOUT:
            getattr(state.hosts, name)[row] = 0
        state.hosts.dirty[row >> 16] = 1
        heappush(state.host_free, row)
    if gone:
        _forget_verdicts(state, gone)


def _forget_verdicts(state: State, gone: dict[int, None]) -> None:
    """The host that gets one of these rows next has run nothing of any bag."""
    for key in [key for key in state.guests_refused if key[0] in gone]:
        del state.guests_refused[key]
    for bag in state.bags.values():
        for row in [row for row in bag.last_outcome_by_host if row in gone]:
            del bag.last_outcome_by_host[row]


def why_waiting(state: State, row: int) -> str:
    """Return why a host is given nothing now, or one task at a time; "" where it is free."""
    return state.host_doubts.get(row) or state.host_reasons.get(row, "")


def restore_quarantined(state: State) -> None:
    """After a recovery, list the hosts that a verdict stands against."""
    rows = np.flatnonzero(state.hosts.np_standing[: state.hosts.rows]).tolist()
    state.quarantined = {row: state.hosts.until[row] for row in rows}


# --- reliability ------------------------------------------------------------------------------------------------------


def bad_hosts(table: Hosts, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these hosts lose or fail more than a tenth of their attempts?"""
    tried = table.np_attempts[rows].astype(np.int64)
    bad = table.np_failures[rows].astype(np.int64) + table.np_losses[rows]
    found: NDArray[np.bool_] = (tried >= ENOUGH) & (100 * bad > UNRELIABLE * tried)
    return found


def is_bad(table: Hosts, row: int) -> bool:
    tried = table.attempts[row]
    return bool(tried >= ENOUGH and 100 * (table.failures[row] + table.losses[row]) > UNRELIABLE * tried)
