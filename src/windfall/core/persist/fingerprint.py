"""A state as plain values: two states are the same if these are equal.

For tests and for doubt: what was recovered from snapshot and journal must equal what was lost with the process.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np

from windfall.core.messages.lifecycle import LEAVING
from windfall.core.state.columns import Table
from windfall.core.state.copies import BagData
from windfall.core.state.world import BagState, IntentState, PilotState, SiteState, State

_BAG = ("owner", "name", "key", "spec", "external", "select", "open", "submitted", "runs", "counts", "appended",
        "paused", "ended", "touched", "worked", "began", "provision", "options", "budget", "spent", "pledged",
        "replicate", "replicas", "doubled", "fail_over")
_PILOT = ("nonce", "epoch", "site", "owner", "host", "host_name", "cores", "memory", "gpus", "disk", "enrolled", "ends",
          "token", "detail", "state", "granted", "held", "load", "ended", "why")
_INTENT = ("number", "nonce", "site", "shape", "reserved", "bag", "task", "made", "state", "changed", "began",
           "outside", "pilot")
_CLASS = ("number", "limit", "need", "memory", "key", "ready", "listed", "mean", "done")


def fingerprint(state: State) -> dict[str, Any]:
    return {
        "bags": {number: _bag(bag) for number, bag in state.bags.items()},
        "pilots": {number: _pilot(state, pilot) for number, pilot in state.pilots.items()},
        "attempts": _rows(state.attempts, np.flatnonzero(state.attempts.np_state[: state.attempts.rows])),
        "numbers": state.attempts.np_number[state.attempts.np_number > 0].tolist(),  # none is given out twice
        "nonces": dict(state.nonces),
        "nodes": {number: (p.nodes, p.whole) for number, p in state.pilots.items() if p.nodes > 1 or not p.whole},
        "sites": {name: (s.owner, s.kind, list(s.shared), s.added) for name, s in state.sites.items()},
        "tokens": {h: (t.id, t.scope, t.owner, t.site, t.pilot, t.expires, t.issued) for h, t in state.tokens.items()},
        "token ids": dict(state.token_ids),
        "keys": dict(state.keys),
        "intents": {number: _intent(intent) for number, intent in state.intents.items()},
        "provisioned": {name: _provisioned(site) for name, site in state.sites.items()},
        "leaving": {name: sorted(site.intents[LEAVING]) for name, site in state.sites.items()},
        "watched": {name: _watched(site) for name, site in state.sites.items()},
        "hosts": {" ".join(name[:2]): [getattr(state.hosts, column)[row] for column, _ in state.hosts.LAYOUT[:10]]
                  for row, name in enumerate(state.host_names)},
        "hosts today": {" ".join(name[:2]): (state.hosts.day[row], state.hosts.today[row])
                        for row, name in enumerate(state.host_names) if state.hosts.day[row]},
        "host speeds": {" ".join(name[:2]): state.hosts.speed[row]
                        for row, name in enumerate(state.host_names) if state.hosts.speed[row]},
        "named": {ref: sorted(of) for ref, of in sorted(state.named.items())},
        "next intent": state.next_intent,
        "next": (state.next_bag, state.next_pilot, state.next_class),
        "ready": list(state.ready),
        "surplus": sorted(state.surplus),
        "drained": [name for name, s in state.sites.items() if s.drained],
        "removed": [name for name, s in state.sites.items() if s.removed],
        "disks": [name for name, s in state.sites.items() if s.disk],
        "places": list(state.place_names),
        "links": dict(state.links),
        "served": {number: (bag.served, bag.lifted > 0) for number, bag in state.bags.items() if not bag.ended},
        "lifted": {number: bag.lifted for number, bag in state.bags.items() if bag.lifted},
        "weights": dict(state.weights),
        "use": {name: {owner: used for owner, used in site.use.items() if used} for name, site in state.sites.items()},
        "moving": {attempt: [msgspec.structs.astuple(move) for move in made] for attempt, made in state.moving.items()},
        "reading": dict(state.reading),
        "allowances": (dict(state.allowances), state.allowed, dict(state.usage)),
        "pledged": {owner: used for owner, used in state.pledged.items() if used},
        "policies": {number: (bag.policy, bag.tail) for number, bag in state.bags.items() if bag.policy or bag.tail},
        "ruled": state.ruled,
        "filled": {name: site.filled for name, site in state.sites.items()},
    }


def _bag(bag: BagState) -> dict[str, Any]:
    made = {name: getattr(bag, name) for name in _BAG}
    made["tasks"] = _rows(bag.tasks, np.arange(bag.size))
    made["targets"] = [(t.count, t.pending, t.left, t.unfinished, t.dependents) for t in bag.targets]
    made["held"] = [t.index for t in bag.targets if t.held]
    made["released"] = [(t.released, t.since) for t in bag.targets]
    made["classes"] = {key: [getattr(cls, name) for name in _CLASS] for key, cls in bag.classes.items()}
    made["checkpoints"] = {task: [tuple(file) for file in files] for task, files in bag.checkpoints.items()}
    made["conscious"] = None if bag.conscious is None else msgspec.structs.astuple(bag.conscious)
    made["data"] = None if bag.data is None else _data(bag.data, bag.size)
    made["edges"] = bag.pairs.tobytes()
    made["pending"] = None if bag.graph is None else bag.graph.np_pending.tolist()
    return made


def _data(data: BagData, tasks: int) -> dict[str, Any]:
    made: dict[str, Any] = _rows(data.columns, np.arange(tasks))
    made["rest"] = (data.staged, data.stays, data.keeps, data.more, data.released)
    return made


def _pilot(state: State, pilot: PilotState) -> list[Any]:
    cls = state.pilot_classes[pilot.cls]
    return [getattr(pilot, name) for name in _PILOT] + [cls.owners, cls.memory]


def _provisioned(site: SiteState) -> tuple[Any, ...]:
    pool = sorted((_early(shape, 5), n) for shape, n in site.pool.items())
    limits = [[_early(shape, 5) for shape in site.limits.shapes], *_early(site.limits, 7)[1:]]
    return limits, site.used, site.tender, [sorted(of) for of in site.intents[:LEAVING]], pool, site.reserved


def _watched(site: SiteState) -> tuple[Any, ...]:
    waits = sorted((tuple(_early(shape, 5)), dataclasses.astuple(of)) for shape, of in site.waits.items())
    return site.suspect, list(site.history), waits


def _intent(intent: IntentState) -> list[Any]:
    return [_early(intent.shape, 5) if name == "shape" else getattr(intent, name) for name in _INTENT]


def _early(record: msgspec.Struct, fields: int) -> list[Any]:
    """So many fields, and those that came later as far as they say anything."""
    values = list(msgspec.structs.astuple(record))
    usual = msgspec.structs.astuple(type(record)())
    while len(values) > fields and values[-1] == usual[len(values) - 1]:
        values.pop()
    return values


def _rows(table: Table, rows: Any) -> dict[str, list[int]]:
    return {name: getattr(table, "np_" + name)[rows].tolist() for name, _ in table.LAYOUT}
