"""The state as bytes: a small record of everything that is few, and chunks of columns that changed.

Chunk names: `b7/t3` is chunk 3 of bag 7's task columns, `b7/spec` its specification, `b7/e0` its edges, `b7/a2` its
third block of appended sources, `b7/c2` what the tasks of its third block have saved, `b7/d0` what its tasks read and
leave, `at0` the first chunk of the attempts.  Names that are gone are listed for dropping.

    1   checkpoints in the record of their bag; what was gathered, and when bags had work, not kept
    2   no intents, no limits of sites, no provisioning of bags; no incomplete batches; nothing of copies, links and
        transfers
    3   no budgets and allowances, no nodes of pilots
    4   no fail-over sites
    5   edges in one chunk, `b7/edges`: they could not grow
    6   as above
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from windfall.core.apply import intents, pilots
from windfall.core.decide.hosts.quarantine import restand, settle
from windfall.core.decide.replicas.by_deadline import note_repeats
from windfall.core.messages.facts import Conscious, Limits, Move, Shape, TargetShape
from windfall.core.messages.lifecycle import DROPPED, FIRST_FINAL, FREE, LOST, READY
from windfall.core.state import accounts, chains, classes, load as rows
from windfall.core.state.columns import CHUNK, Attempts, Hosts, Table, Tasks
from windfall.core.state.copies import BagData, Columns, link_up, note_moves
from windfall.core.state.graph import Edges, Pairs, as_pairs, graph_of
from windfall.core.state.world import (
    BLOCK,
    BagState,
    IntentState,
    PilotState,
    SiteState,
    State,
    TargetState,
    TokenState,
    Waits,
)
from windfall.errors import StoreCorrupt, StoreTooNew

VERSION = 6

_PILOT = ("number", "nonce", "epoch", "site", "owner", "host", "host_name", "cores", "memory", "gpus", "disk",
          "enrolled", "ends", "token", "detail", "state", "granted", "ended", "why", "nodes", "whole")
_BAG = ("number", "owner", "name", "key", "external", "select", "open", "submitted", "runs", "counts", "paused",
        "ended", "touched", "worked", "began", "provision", "options", "budget", "spent",
        "fail_over")
_TOKEN = ("id", "scope", "owner", "site", "pilot", "expires", "issued")
_SITE = ("name", "owner", "kind", "shared", "added", "limits", "used", "tender", "disk")
_INTENT = ("number", "nonce", "site", "shape", "reserved", "bag", "task", "made", "state", "changed", "began",
           "outside", "pilot")


_WAITS = ("count", "total", "recent", "starts", "start_total", "start_recent")


def dump_state(state: State) -> tuple[bytes, dict[str, bytes], list[str]]:
    chunks: dict[str, bytes] = {f"at{n}": body for n, body in state.attempts.dump().items()}
    chunks.update((f"ho{n}", body) for n, body in state.hosts.dump().items())
    for bag in state.bags.values():
        chunks.update(_dump_bag(bag))
    meta = {
        "version": VERSION,
        "now": state.now, "next_bag": state.next_bag, "next_pilot": state.next_pilot, "next_class": state.next_class,
        "attempts": state.attempts.rows,
        "layout": _layout(),
        "bags": [_bag_meta(bag) for bag in state.bags.values()],
        "pilots": [_pick(p, _PILOT) for p in state.pilots.values()],
        "nonces": [(site, nonce, pilot) for (site, nonce), pilot in state.nonces.items()],
        "sites": [_pick(s, _SITE) for s in state.sites.values()],
        "intents": [_pick(i, _INTENT) for i in state.intents.values()], "next_intent": state.next_intent,
        "tokens": [(h, *_pick(t, _TOKEN)) for h, t in state.tokens.items()],
        "keys": [(owner, key, *value) for (owner, key), value in state.keys.items()],
        "drained": [s.name for s in state.sites.values() if s.drained],
        "removed": [s.name for s in state.sites.values() if s.removed],
        "places": state.place_names,
        "hosts": state.host_names, "host_layout": _columns(Hosts),
        "host_says": [(row, says) for row, says in state.host_says.items() if state.hosts.standing[row]],
        "suspects": {name: s.suspect for name, s in state.sites.items() if s.suspect},
        "history": {name: s.history for name, s in state.sites.items() if s.history},
        "waits": [(name, shape, _pick(waits, _WAITS)) for name, s in state.sites.items()
                  for shape, waits in s.waits.items()],
        "policies": {bag.number: (bag.policy, bag.tail) for bag in state.bags.values() if bag.policy or bag.tail},
        "served": [(bag.number, bag.served, bag.lifted) for bag in state.bags.values() if not bag.ended or bag.lifted],
        "weights": state.weights,
        "links": [(a, b, *link) for (a, b), link in state.links.items()],
        "allowances": state.allowances, "allowed": state.allowed,
        "usage": [(owner, month, used) for (owner, month), used in state.usage.items()],
        "moving": [move for made in state.moving.values() for move in made],
    }
    return msgspec.msgpack.encode(meta), chunks, list(state.dropped)


def _layout() -> dict[str, list[tuple[str, str]]]:
    """What the chunks hold: read with other columns they would be nonsense."""
    return {table.__name__: _columns(table) for table in (Tasks, Attempts)}


def _columns(table: type[Table]) -> list[tuple[str, str]]:
    return [(name, np.dtype(kind).str) for name, kind in table.LAYOUT]


def _check(meta: dict[str, Any]) -> None:
    if meta["version"] > VERSION:
        raise StoreTooNew(f"the snapshot is of version {meta['version']}, this is {VERSION}", "use a newer Windfall")
    layout = {name: [tuple(column) for column in columns] for name, columns in meta.get("layout", {}).items()}
    if meta["version"] < 1 or layout != _layout():
        raise StoreCorrupt("the snapshot has other columns than this Windfall", "use the Windfall that wrote it")


def _lean(shape: TargetShape) -> TargetShape:
    """Costs may be many; they have a chunk of their own, which never changes."""
    return msgspec.structs.replace(shape, costs=b"") if shape.costs else shape


def _pick(record: object, names: tuple[str, ...]) -> list[Any]:
    return [getattr(record, name) for name in names]


def _bag_meta(bag: BagState) -> dict[str, Any]:
    return {
        "record": _pick(bag, _BAG),
        "rows": bag.tasks.rows,
        "targets": [(_lean(t.shape), t.count, t.pending, t.left, t.unfinished, t.dependents, t.held, t.released,
                     t.since)
                    for t in bag.targets],
        "classes": [(t, v, c.number, c.mean, c.done, c.weight) for (t, v), c in bag.classes.items()],
        "appended": len(bag.appended),
        "edges": 0 if bag.graph is None else bag.graph.edges.rows,
        "checkpoints": list(bag.checkpoint_blocks),
        "data": None if bag.data is None else _data_meta(bag.data),
        "conscious": bag.conscious,
        "replicate": (bag.replicate, bag.replicas, bag.doubled),
    }


def _data_meta(data: BagData) -> dict[str, Any]:
    return {
        "staged": data.staged, "stays": data.stays, "keeps": data.keeps, "more": list(data.more.items()),
        "released": list(data.released.items()), "layout": _data_layout(),
    }


def _data_layout() -> list[tuple[str, str]]:
    return [(name, np.dtype(kind).str) for name, kind in Columns.LAYOUT]


def _dump_bag(bag: BagState) -> dict[str, bytes]:
    prefix = f"b{bag.number}/"
    chunks = {f"{prefix}t{n}": body for n, body in bag.tasks.dump().items()}
    if not bag.saved:
        chunks[prefix + "spec"] = bag.spec
        chunks.update((f"{prefix}costs{t.index}", t.shape.costs) for t in bag.targets if t.shape.costs)
    if bag.data is not None:
        chunks.update((f"{prefix}d{n}", body) for n, body in bag.data.columns.dump().items())
    if bag.graph is not None:
        chunks.update((f"{prefix}e{n}", body) for n, body in bag.graph.edges.dump().items())
    for block in range(bag.saved_appends // BLOCK, (len(bag.appended) + BLOCK - 1) // BLOCK):
        part = bag.appended[block * BLOCK : (block + 1) * BLOCK]
        chunks[f"{prefix}a{block}"] = msgspec.msgpack.encode(part)
    for block in [block for block, changed in bag.checkpoint_blocks.items() if changed]:
        tasks = range(block * BLOCK, (block + 1) * BLOCK)
        chunks[f"{prefix}c{block}"] = msgspec.msgpack.encode(
            [(task, bag.checkpoints[task]) for task in tasks if task in bag.checkpoints])
    return chunks


def mark_saved(state: State) -> None:
    for bag in state.bags.values():
        bag.tasks.saved()
        bag.saved = True
        bag.saved_appends = len(bag.appended)
        if bag.data is not None:
            bag.data.columns.saved()
        if bag.graph is not None:
            bag.graph.edges.saved()
        bag.checkpoint_blocks = dict.fromkeys(bag.checkpoint_blocks, False)
    state.attempts.saved()
    state.hosts.saved()
    state.dropped.clear()


# --- back ----------------------------------------------------------------------------------------------------------


def load_state(meta: bytes, chunks: dict[str, bytes]) -> State:
    m = msgspec.msgpack.decode(meta)
    _check(m)
    _upgrade(m)
    state = State(now=m["now"], next_bag=m["next_bag"], next_pilot=m["next_pilot"], next_class=m["next_class"],
                  next_intent=m["next_intent"])
    _load_places(state, m)
    _load_sites(state, m)
    for h, *row in m["tokens"]:
        state.tokens[h] = TokenState(*row)
        state.token_ids[row[0]] = h
    _load_hosts(state, m, chunks)
    for row in m["pilots"]:
        _load_pilot(state, dict(zip(_PILOT, row, strict=True)))
    state.nonces = {(site, nonce): pilot for site, nonce, pilot in m["nonces"]}
    _load_bags(state, m, chunks)
    _load_attempts(state, m, chunks)
    mark_saved(state)
    _mark_unsaved(state, m)
    intents.recount(state)  # facts that follow move what is counted
    return state


def _load_places(state: State, m: dict[str, Any]) -> None:
    """Where data may lie, how far that is, what is on the way; and who has used how much."""
    state.place_names = m.get("places", state.place_names)
    state.places = {name: number for number, name in enumerate(state.place_names) if name}
    state.links = {(a, b): (latency, rate) for a, b, latency, rate in m.get("links", ())}
    state.allowances, state.allowed = m["allowances"], m["allowed"]
    state.usage = {(owner, month): used for owner, month, used in m["usage"]}
    note_moves(state, msgspec.convert(m.get("moving", []), list[Move]))


def _load_sites(state: State, m: dict[str, Any]) -> None:
    for row in m["sites"]:
        record = dict(zip(_SITE, row, strict=True))
        record["limits"] = msgspec.convert(record["limits"], Limits)
        state.sites[row[0]] = SiteState(**record)
    for name in m.get("drained", ()):
        state.sites[name].drained = True
    for name in m.get("removed", ()):
        state.sites[name].removed = True
    _load_watched(state, m)
    for row in m["intents"]:
        record = dict(zip(_INTENT, row, strict=True))
        record["shape"] = msgspec.convert(record["shape"], Shape)
        state.intents[row[0]] = IntentState(**record)


def _load_bags(state: State, m: dict[str, Any], chunks: dict[str, bytes]) -> None:
    policies = m.get("policies", {})
    for bag in m["bags"]:
        _load_bag(state, bag, chunks, *policies.get(bag["record"][0], ({}, 0)))
    state.weights = dict(m.get("weights", {}))
    for number, *waits in m.get("served", ()):
        state.bags[number].served, state.bags[number].lifted = map(int, waits)
    for owner, key, *value in m["keys"]:
        _load_key(state, (owner, key), value)


def _load_attempts(state: State, m: dict[str, Any], chunks: dict[str, bytes]) -> None:
    state.attempts = Attempts(m["attempts"])
    for name, body in chunks.items():
        if name.startswith("at"):
            state.attempts.load(int(name[2:]), body)
    state.attempts.reindex()  # facts that follow look for what was lost


def _mark_unsaved(state: State, m: dict[str, Any]) -> None:
    """What an older version kept in another way is written anew with the next snapshot."""
    if len(m.get("host_layout", ())) != len(Hosts.LAYOUT):
        state.hosts.mark(0, max(state.hosts.rows - 1, 0))  # what is saved has other columns
    if m["version"] < 6:
        _save_edges_anew(state)
    for bag in m["bags"]:
        for task, files in bag.get("unsaved", ()):
            state.bags[bag["record"][0]].keep_checkpoint(task, [tuple(file) for file in files])


def _upgrade(m: dict[str, Any]) -> None:
    if m["version"] < 2:
        for bag in m["bags"]:
            _upgrade_bag(bag)
    if m["version"] < 3:
        _upgrade_provisioning(m)
    if m["version"] < 4:
        _upgrade_means(m)
    if m["version"] < 5:
        for bag in m["bags"]:
            bag["record"] += [""]


def _save_edges_anew(state: State) -> None:
    """From version 5: they have other chunks now."""
    for bag in state.bags.values():
        if bag.graph is not None:
            bag.graph.edges.mark(0, bag.graph.edges.rows - 1)
            state.dropped.append(f"b{bag.number}/edges")


def _upgrade_bag(m: dict[str, Any]) -> None:
    """From version 1.  Its checkpoints are in no chunk yet, so the next snapshot must write them."""
    old = dict(zip(_BAG, m["record"], strict=False))
    idle = sum(old["counts"][:FIRST_FINAL]) == 0
    m["record"] += [max((old["ended"] or old["touched"]) - old["submitted"], 0), 0] if idle else [0, old["submitted"]]
    m["targets"] = [(shape, *numbers, msgspec.convert(shape, TargetShape).gathers) for shape, *numbers in m["targets"]]
    m["unsaved"], m["checkpoints"] = m.get("checkpoints", []), []


def _upgrade_provisioning(m: dict[str, Any]) -> None:
    """From version 2."""
    m["intents"], m["next_intent"] = [], 1
    for row in m["sites"]:
        row += [Limits(), 0, "", False]
    for bag in m["bags"]:
        bag["record"] += ["swarm", {}]


def _load_hosts(state: State, m: dict[str, Any], chunks: dict[str, bytes]) -> None:
    """Columns may have been added since; statistics in others are of no use any more: hosts begin anew."""
    layout = [tuple(column) for column in m.get("host_layout", ())]
    if not layout or layout != _columns(Hosts)[: len(layout)]:
        return
    state.host_names = [(site, host, name) for site, host, name in m["hosts"]]
    state.host_rows = {(site, host): row for row, (site, host, _) in enumerate(state.host_names) if site}
    state.host_free = [row for row, (site, _, _) in enumerate(state.host_names) if not site]
    state.hosts = Hosts(len(state.host_names))
    for name, body in chunks.items():
        if name.startswith("ho"):
            state.hosts.load(int(name[2:]), body, len(layout))
    state.host_says = dict(m["host_says"])
    restand(state)


def _load_watched(state: State, m: dict[str, Any]) -> None:
    for name, since in m.get("suspects", {}).items():
        state.sites[name].suspect = since
    for name, lines in m.get("history", {}).items():
        state.sites[name].history = [(at, kind, says) for at, kind, says in lines]
    for name, shape, row in m.get("waits", ()):
        state.sites[name].waits[msgspec.convert(shape, Shape)] = Waits(*row)


def _upgrade_means(m: dict[str, Any]) -> None:
    """From version 3."""
    for row in m["pilots"]:
        row += [1, True]
    for bag in m["bags"]:
        bag["record"] += [0, 0]
    m["allowances"], m["usage"] = {}, []
    m["allowed"] = max((site[_SITE.index("added")] for site in m["sites"]), default=0)


def _load_key(state: State, key: tuple[str, str], value: list[int]) -> None:
    bag, first, count, digest = value
    state.keys[key] = (bag, first, count, digest)
    if key[1].startswith("append "):
        state.bags[bag].recent.append(key)


def _load_pilot(state: State, row: dict[str, Any]) -> None:
    pilot = PilotState(cls=0, **row)
    pilots.join_class(state, pilot)
    settle(state, pilot)


def _load_bag(state: State, m: dict[str, Any], chunks: dict[str, bytes], policy: dict[str, str], tail: int) -> None:
    record = dict(zip(_BAG, m["record"], strict=True))
    prefix = f"b{record['number']}/"
    record["runs"] = [tuple(run) for run in record["runs"]]
    bag = BagState(tasks=Tasks(m["rows"]), targets=[], spec=chunks[prefix + "spec"], policy=policy, tail=tail, **record)
    state.bags[bag.number] = bag
    state.own(bag.owner, bag.size)
    for name, body in chunks.items():
        if name.startswith(prefix + "t"):
            bag.tasks.load(int(name[len(prefix) + 1 :]), body)
    for index, (shape, *numbers) in enumerate(m["targets"]):
        whole = msgspec.convert(shape, TargetShape)
        whole.costs = chunks.get(f"{prefix}costs{index}", b"")
        bag.targets.append(TargetState(index, whole, *numbers))
    chains.link_stages(bag)
    for block in range((m["appended"] + BLOCK - 1) // BLOCK):
        bag.appended += msgspec.msgpack.decode(chunks[f"{prefix}a{block}"])
    if len(pairs := _load_edges(m, chunks, prefix)):
        bag.graph = graph_of(pairs, bag.tasks.np_state[: bag.size])
    for block in m["checkpoints"]:
        bag.checkpoint_blocks[block] = False
        for task, files in msgspec.msgpack.decode(chunks[f"{prefix}c{block}"]):
            bag.checkpoints[task] = [tuple(file) for file in files]
    bag.replicate, bag.replicas, bag.doubled = (*m.get("replicate", ("none", 0)), 0)[:3]
    note_repeats(state, bag)
    if m.get("conscious") is not None:
        bag.conscious = msgspec.convert(m["conscious"], Conscious)
        state.conscious += 1
    if m.get("data") is not None:
        _load_data(bag, m["data"], chunks, prefix)
    _load_classes(state, bag, m["classes"])


def _load_edges(m: dict[str, Any], chunks: dict[str, bytes], prefix: str) -> Pairs:
    if "edges" not in m:  # before version 6
        return as_pairs(chunks[prefix + "edges"] if m["graph"] else b"")
    edges = Edges(m["edges"])
    for chunk in range(-(-edges.rows // CHUNK)):
        edges.load(chunk, chunks[f"{prefix}e{chunk}"])
    return edges.pairs()


def _load_data(bag: BagState, m: dict[str, Any], chunks: dict[str, bytes], prefix: str) -> None:
    if [tuple(column) for column in m["layout"]] != _data_layout():
        raise StoreCorrupt("the snapshot has other columns than this Windfall", "use the Windfall that wrote it")
    data = bag.data = BagData(Columns(bag.size), m["staged"], m["stays"], m["keeps"])
    data.more, data.released = dict(m["more"]), dict(m["released"])
    for name, body in chunks.items():
        if name.startswith(prefix + "d"):
            data.columns.load(int(name[len(prefix) + 1 :]), body)
    link_up(data, bag.pairs, bag.size)


def _load_classes(state: State, bag: BagState, rows: list[Any]) -> None:
    for target, variant, number, mean, done, weight in rows:
        cls = classes.new_class(state, bag, target, variant, number)
        cls.mean, cls.done, cls.weight = mean, done, weight
    for first, target, stop in classes.spans(bag):
        bag.classes[target, 0].backlog.add_run(first, stop - first)


# --- what is derived -------------------------------------------------------------------------------------------------


def rebuild(state: State) -> None:
    """Work out afresh everything that is not journaled: ready list, backlogs, who holds what, free rows."""
    state.ready.clear()
    state.ruled = 0
    state.unended = {bag.number: None for bag in state.bags.values() if not bag.ended}
    accounts.recount(state)
    for bag in state.bags.values():
        for cls in bag.classes.values():
            cls.listed = False
            cls.backlog.rewind()
        state.lift(bag, bag.lifted)
        classes.recount(bag)
        classes.relist_all(state, bag)
        _refill_variants(bag)
    state.attempts.reindex()
    _recount_pilots(state)
    intents.recount(state)


def _refill_variants(bag: BagState) -> None:
    t = bag.tasks
    n = bag.size
    if len(bag.classes) == len(bag.targets):
        return
    for task in np.flatnonzero((t.np_state[:n] == READY) & (t.np_variant[:n] != 0)).tolist():
        bag.classes[bag.target_of(task), t.variant[task]].backlog.put(task)


def _recount_pilots(state: State) -> None:
    attempts = state.attempts
    state.surplus.clear()
    state.orders.clear()
    state.roomier.clear()
    for site in state.sites.values():
        site.use.clear()
    for pilot in state.pilots.values():
        pilot.held = pilot.load = 0
        pilot.chains.clear()
        pilot.cancelling, pilot.recalling, pilot.strays = {}, {}, []
    states = attempts.np_state[: attempts.rows]
    for row in np.flatnonzero(states != FREE).tolist():
        if states[row] != LOST:
            rows.carry(state, row, 1)
        if states[row] == DROPPED or (states[row] == LOST and not attempts.started[row]):
            rows.recall_lost(state, row)
