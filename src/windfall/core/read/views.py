"""Views of the state for people and pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from windfall.core.decide.replicas.tail import count_late, expected_end, expected_last_end
from windfall.core.messages.bounds import MOST_CORE_MS
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import (
    ACTIVE,
    ATTEMPT_STATES,
    CANCELLED,
    FAILED,
    HOST_STANDINGS,
    INTENDED,
    INTENT_STATES,
    PILOT_STATES,
    QUARANTINED,
    QUEUED,
    READY,
    RUNNING,
    STARTED,
    TASK_STATES,
    VALIDATING,
    WAITING,
)
from windfall.core.state.classes import spans
from windfall.core.state.host_table import why_waiting
from windfall.core.state.world import BagState, PilotState, SiteState, State, Waits


def bag_state(bag: BagState) -> str:
    if bag.ended:
        if bag.counts[FAILED] or bag.counts[QUARANTINED]:
            return "failed"
        return "cancelled" if bag.counts[CANCELLED] else "succeeded"
    if bag.paused:
        return "paused"
    if bag.open and not bag.not_ended():
        return "open"
    return "running" if bag.counts[ACTIVE] or bag.counts[VALIDATING] else "waiting"


def counts(bag: BagState) -> dict[str, int]:
    """Tasks by state; those whose target waits are shown as waiting."""
    numbers = list(bag.counts)
    for (target, _), cls in bag.classes.items():
        if bag.targets[target].waits:
            numbers[READY] -= cls.ready
            numbers[WAITING] += cls.ready
    return dict(zip(TASK_STATES, numbers, strict=True))


def bag_view(state: State, now: int, number: int) -> dict[str, Any]:
    bag = state.bags[number]
    view = summary(bag)
    view["targets"] = [_target_view(bag, index) for index in range(len(bag.targets))]
    view["tail"] = not bag.ended and bag.in_tail
    view["expected"] = expected_last_end(state, now, bag) or None
    view["late"] = count_late(state, now, bag)
    view["problem"] = "" if bag.ended else state.disk_problem
    view["revised"] = bag.revised or None
    return view


def summary(bag: BagState) -> dict[str, Any]:
    return {
        "bag": bag.number, "name": bag.name, "owner": bag.owner, "state": bag_state(bag), "tasks": bag.size,
        "counts": counts(bag), "submitted": bag.submitted, "ended": bag.ended or None,
        "used": bag.spent, "reserved": min(bag.pledged, MOST_CORE_MS), "budget": bag.budget or None,
    }


def _target_view(bag: BagState, index: int) -> dict[str, Any]:
    target = bag.targets[index]
    first, numbers = (0, list(bag.counts)) if len(bag.targets) == 1 else _tally(bag, index)
    if target.waits:
        numbers[WAITING] += numbers[READY]
        numbers[READY] = 0
    return {
        "name": target.shape.name, "first": max(first, 0), "count": target.count,
        "after": [bag.targets[i].shape.name for i in target.shape.after],
        "counts": dict(zip(TASK_STATES, numbers, strict=True)),
    }


def _tally(bag: BagState, index: int) -> tuple[int, list[int]]:
    """First task of a target, and how many of its tasks are in each state."""
    tally = np.zeros(len(TASK_STATES), dtype=np.int64)
    first = -1
    for lo, of, hi in spans(bag):
        if of == index:
            first = lo if first < 0 else first
            tally += np.bincount(bag.tasks.np_state[lo:hi], minlength=len(TASK_STATES))
    return first, tally.tolist()


def task_state(bag: BagState, task: int) -> str:
    state = bag.tasks.state[task]
    if state == READY and bag.targets[bag.target_of(task)].waits:
        return TASK_STATES[WAITING]
    return TASK_STATES[state]


def running(state: State, bag: int, most: int) -> list[int]:
    """Tasks of a bag that have been started, longest first."""
    attempts, used = state.attempts, state.attempts.rows
    rows = np.flatnonzero((attempts.np_task[:used] >> 32 == bag) & (attempts.np_state[:used] == STARTED))
    rows = rows[np.lexsort((attempts.np_task[rows], attempts.np_started[rows]))]
    found = (attempts.np_task[rows] & 0xFFFFFFFF).tolist()
    return list(dict.fromkeys(found))[:most]


def in_play(state: State, now: int, bag: int, task: int) -> list[dict[str, Any]]:
    """Attempts of a task that have not ended, oldest first."""
    attempts, found = state.attempts, []
    for row in attempts.of_task(bag << 32 | task):
        pilot, at = state.pilots[attempts.pilot[row]], expected_end(state, now, row)
        found.append({
            "attempt": attempts.number[row], "state": ATTEMPT_STATES[attempts.state[row]], "site": pilot.site,
            "host": pilot.host_name, "granted": attempts.granted[row], "started": attempts.started[row] or None,
            "expected": at if at and attempts.started[row] else None,
        })
    return sorted(found, key=lambda each: (each["granted"], each["attempt"]))


def pilot_view(pilot: PilotState) -> dict[str, Any]:
    return {
        "pilot": pilot.number, "site": pilot.site, "owner": pilot.owner, "host": pilot.host_name, "host_id": pilot.host,
        "nonce": pilot.nonce, "state": PILOT_STATES[pilot.state], "silent": pilot.lease_expired, "epoch": pilot.epoch,
        "cores": pilot.cores, "memory": pilot.memory, "gpus": pilot.gpus, "held": pilot.attempts_held,
        "enrolled": pilot.enrolled, "heard": pilot.heard, "ends": pilot.ends or None, "ended": pilot.ended or None,
        "why": pilot.why, "detail": pilot.detail, "trouble": pilot.trouble,
    }


def site_view(state: State, site: SiteState) -> dict[str, Any]:
    pilots = [p for p in state.pilots.values() if p.site == site.name and not p.ended]
    return {
        "site": site.name, "owner": site.owner, "kind": site.kind, "shared": site.shared,
        "pilots": len(pilots), "cores": sum(p.cores for p in pilots), "held": sum(p.attempts_held for p in pilots),
        "queued": len(site.intents[INTENDED]) + len(site.intents[QUEUED]), "running": len(site.intents[RUNNING]),
        "open": site.open, "drained": site.drained, "used": site.core_ms_used,
        "reserved": min(site.core_ms_reserved, MOST_CORE_MS),
        "limits": {name: getattr(site.limits, name) for name in ("pilots", "queued", "budget", "delay", "share")},
        "suspect": site.suspect_since or None, "wait": _mean_wait(site),
    }


def _mean_wait(site: SiteState) -> int | None:
    """Ms in the batch queue, over all shapes; nothing where no pilot has run."""
    count = sum(waits.count for waits in site.waits.values())
    return sum(waits.total for waits in site.waits.values()) // count if count else None


def site_detail(state: State, site: SiteState) -> dict[str, Any]:
    """With what is known of it beside that: how long pilots wait there, and what was decided about it."""
    view = site_view(state, site)
    view["intents"] = {name: len(of) for name, of in zip(INTENT_STATES, site.intents, strict=False)}
    view["waits"] = [_waits(shape, waits) for shape, waits in site.waits.items()]
    view["hosts"] = [_host(state, row) for row in state.quarantined if state.host_names[row][0] == site.name]
    view["history"] = [{"at": at, "kind": kind, "says": says} for at, kind, says in site.history]
    return view


def _host(state: State, row: int) -> dict[str, Any]:
    """Show a host that is quarantined, on probation or in doubt."""
    h, (_, host, name) = state.hosts, state.host_names[row]
    return {
        "host": name,
        "host_id": host,
        "standing": HOST_STANDINGS[h.standing[row]] if h.standing[row] else "in doubt",
        "until": state.quarantined[row],
        "attempts": h.attempts[row],
        "failures": h.failures[row],
        "losses": h.losses[row],
        "mean": round(h.mean[row]),
        "success": h.success[row] or None,
        "says": why_waiting(state, row),
    }


def _waits(shape: Shape, waits: Waits) -> dict[str, Any]:
    """In ms; what was never seen is null."""
    return {
        "shape": {"cores": shape.cores, "memory": shape.memory, "gpus": shape.gpus, "wall": shape.wall},
        "pilots": waits.count, "wait": waits.total // waits.count if waits.count else None,
        "wait_recent": round(waits.recent) if waits.count else None,
        "start": waits.start_total // waits.starts if waits.starts else None,
        "start_recent": round(waits.start_recent) if waits.starts else None,
    }
