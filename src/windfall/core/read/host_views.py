"""Hosts as expressions see them, for people: the ad of each, and what a bag's policies make of it."""

from __future__ import annotations

from typing import Any

from windfall.core.decide.grant import per_host
from windfall.core.decide.grant.order import ranked, reasons
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state.world import BagState, PilotState, State, TaskClass

NO_WISHES = {"match": True, "why": "", "rank": None, "per_host": None}  # of a bag that has no task yet


def hosts(state: State, now: int, owner: str, bag: BagState | None, after: int, most: int) -> list[dict[str, Any]]:
    """List the hosts that serve an owner now: up to `most`, of pilots numbered above `after`.  With a bag, say of each
    whether the bag's expressions match it, and its rank."""
    found: list[dict[str, Any]] = []
    cls = None if bag is None else min(bag.classes.values(), key=lambda cls: (not cls.ready, cls.number), default=None)
    for pilot in state.pilots.values():
        if len(found) >= most:
            break
        if pilot.number > after and pilot.state == LIVE and owner in state.pilot_classes[pilot.cls].owners:  # P3
            made = {} if bag is None else NO_WISHES if cls is None else _made_of(state, now, pilot, cls)
            found.append({"pilot": pilot.number, "silent": pilot.lease_expired, "ad": _ad(state, now, pilot), **made})
    return found


def _ad(state: State, now: int, pilot: PilotState) -> dict[str, dict[str, Value]]:
    """By entity and attribute; null: undefined."""
    found: dict[str, dict[str, Value]] = {}
    for path, value in attributes.current_ad(state, pilot, now).items():
        scope, _, name = path.partition(".")
        found.setdefault(scope, {})[name] = value
    return found


def _made_of(state: State, now: int, pilot: PilotState, cls: TaskClass) -> dict[str, Any]:
    """By the first of its classes with something to do: policies may speak of tasks, which are not all alike."""
    bag, site = state.bags[cls.bag], state.sites[pilot.site]
    wanting = [f"{key}: {said}" for key, said in reasons(state, now, cls, site, pilot) if said]
    if said := per_host.why_none(state, now, pilot, cls):
        wanting.append(f"per-host: {said}")
    rank, why = ranked(state, now, cls, pilot) if "rank" in bag.policy else (None, "")
    most = per_host.NO_LIMIT
    if cls.has_per_host:
        most = per_host.limit(state, now, pilot, cls, attributes.host_ad(state, pilot, now))
    notes = [f"rank counts as 0: {why}"] if why else []
    if cls.has_per_host and (said := per_host.why_no_limit(state, now, pilot, cls)):
        notes.append(f"per-host is no limit: {said}")
    return {"match": not wanting, "why": "; ".join(wanting or notes), "rank": 0 if why else rank,
            "per_host": most if most < per_host.NO_LIMIT else None}
