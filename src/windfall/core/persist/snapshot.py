"""The state as bytes: rows of the records that are few, and chunks of columns that changed.

The rows of a record hold its durable fields, as `state/fields.py` reads them from its declaration.  Chunk names:
`b7/t3` is chunk 3 of bag 7's task columns, `b7/spec` its specification, `b7/costs1` the costs of its second target,
`b7/e0` its edges, `b7/a2` its third block of appended sources, `b7/c2` what the tasks of its third block have saved,
`b7/d0` what its tasks read and leave, `at0` the first chunk of the attempts, `ho0` of the hosts.  Chunks that are gone
are listed for dropping.

A new durable field, or a new last column of a table, needs nothing here: a snapshot without it is read with its
default.  Whatever else changes the format raises VERSION and adds a function to `upgrades.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from windfall.core.apply import intents, pilots
from windfall.core.messages.lifecycle import DROPPED, FREE, LOST, READY
from windfall.core.persist.rows import Fields, Reader, pack
from windfall.core.persist.upgrades import VERSION, upgrade
from windfall.core.state import accounts, chains, classes, load as rows
from windfall.core.state.bag_data import BagData, Columns, link_up
from windfall.core.state.columns import Attempts, Hosts, Table, Tasks
from windfall.core.state.fields import durable
from windfall.core.state.graph import Edges, graph_of
from windfall.core.state.host_table import register_pilot, restore_quarantined
from windfall.core.state.world import (
    BLOCK,
    BagState,
    IntentState,
    PilotState,
    SiteState,
    State,
    TargetState,
    TaskClass,
    TokenState,
    Waits,
)
from windfall.errors import StoreCorrupt

RECORDS = (State, BagState, BagData, TargetState, TaskClass, PilotState, SiteState, Waits, IntentState, TokenState)
TABLES: tuple[type[Table], ...] = (Tasks, Attempts, Hosts, Edges, Columns)


def dump_state(state: State) -> tuple[bytes, dict[str, bytes], list[str]]:
    """Return the rows, the chunks that changed since the last snapshot, and the names of those that are gone."""
    chunks: dict[str, bytes] = {f"at{n}": body for n, body in state.attempts.dump().items()}
    chunks.update((f"ho{n}", body) for n, body in state.hosts.dump().items())
    for bag in state.bags.values():
        chunks.update(_dump_bag(bag))
    meta = {
        "version": VERSION,
        "fields": {record.__name__: durable(record) for record in RECORDS},
        "layouts": {table.__name__: _columns(table) for table in TABLES},
        "state": pack(state),
        "bags": [_bag_meta(bag) for bag in state.bags.values()],
        "attempts": state.attempts.rows,
        "hosts": state.hosts.rows,
        "host_reasons": {row: says for row, says in state.host_reasons.items() if state.hosts.standing[row]},
    }
    return msgspec.msgpack.encode(meta), chunks, list(state.dropped_chunks)


def _columns(table: type[Table]) -> list[tuple[str, str]]:
    return [(name, np.dtype(kind).str) for name, kind in table.LAYOUT]


def _bag_meta(bag: BagState) -> dict[str, Any]:
    return {
        "record": pack(bag),
        "rows": bag.tasks.rows,
        "targets": [pack(target) for target in bag.targets],
        "classes": [(target, variant, pack(cls)) for (target, variant), cls in bag.classes.items()],
        "appended": len(bag.appended),
        "edges": 0 if bag.graph is None else bag.graph.edges.rows,
        "checkpoints": list(bag.checkpoint_blocks),
        "data": None if bag.data is None else pack(bag.data),
    }


def _dump_bag(bag: BagState) -> dict[str, bytes]:
    prefix = f"b{bag.number}/"
    chunks = {f"{prefix}t{n}": body for n, body in bag.tasks.dump().items()}
    if not bag.spec_saved:
        chunks[prefix + "spec"] = bag.spec
        chunks.update((f"{prefix}costs{t.index}", t.shape.costs) for t in bag.targets if t.shape.costs)
    if bag.data is not None:
        chunks.update((f"{prefix}d{n}", body) for n, body in bag.data.columns.dump().items())
    if bag.graph is not None:
        chunks.update((f"{prefix}e{n}", body) for n, body in bag.graph.edges.dump().items())
    for block in range(bag.saved_appends // BLOCK, (len(bag.appended) + BLOCK - 1) // BLOCK):
        part = bag.appended[block * BLOCK : (block + 1) * BLOCK]
        chunks[f"{prefix}a{block}"] = msgspec.msgpack.encode(part)
    return chunks | _dump_checkpoints(bag, prefix)


def _dump_checkpoints(bag: BagState, prefix: str) -> dict[str, bytes]:
    """Return the changed blocks of a bag's checkpoints."""
    chunks = {}
    for block in [block for block, changed in bag.checkpoint_blocks.items() if changed]:
        tasks = range(block * BLOCK, (block + 1) * BLOCK)
        kept = [(task, bag.checkpoints[task]) for task in tasks if task in bag.checkpoints]
        chunks[f"{prefix}c{block}"] = msgspec.msgpack.encode(kept)
    return chunks


def mark_saved(state: State) -> None:
    for bag in state.bags.values():
        bag.tasks.saved()
        bag.spec_saved = True
        bag.saved_appends = len(bag.appended)
        if bag.data is not None:
            bag.data.columns.saved()
        if bag.graph is not None:
            bag.graph.edges.saved()
        bag.checkpoint_blocks = dict.fromkeys(bag.checkpoint_blocks, False)
    state.attempts.saved()
    state.hosts.saved()
    state.dropped_chunks.clear()


# --- back ----------------------------------------------------------------------------------------------------------


def load_state(meta: bytes, chunks: dict[str, bytes]) -> State:
    m, chunks = upgrade(msgspec.msgpack.decode(meta), chunks)
    loader = _Loader(m, chunks)
    state = loader.state()
    for bag in m["bags"]:
        loader.bag(state, bag)
    for key in [key for key in state.keys if key[1].startswith("append ")]:
        state.bags[state.keys[key][0]].recent_keys.append(key)
    mark_saved(state)
    loader.mark_narrow(state)
    intents.recount(state)  # facts that follow move what is counted
    return state


class _Loader:
    """Reads one snapshot."""

    def __init__(self, meta: dict[str, Any], chunks: dict[str, bytes]) -> None:
        fields: Fields = meta["fields"]
        self._meta, self._chunks, self._reader = meta, chunks, Reader(fields, RECORDS)
        self._widths = {table: _width(table, meta["layouts"][table.__name__]) for table in TABLES}

    def _table(self, table: Table, prefix: str) -> None:
        """Load the chunks of a table that are there; a chunk that is not is all zeros."""
        for chunk in range(len(table.dirty)):
            body = self._chunks.get(f"{prefix}{chunk}")
            if body is not None:
                table.load(chunk, body, self._widths[type(table)])

    def mark_narrow(self, state: State) -> None:
        """Have the next snapshot write the tables anew that have got columns since this one was written."""
        tables: list[Table] = [state.attempts, state.hosts]
        for bag in state.bags.values():
            tables += [bag.tasks, *([bag.data.columns] if bag.data else []), *([bag.graph.edges] if bag.graph else [])]
        for table in tables:
            if table.rows and self._widths[type(table)] < len(table.LAYOUT):
                table.mark(0, table.rows - 1)

    def state(self) -> State:
        m = self._meta
        state: State = self._reader.read(State, m["state"])
        state.token_ids = {token.id: h for h, token in state.tokens.items()}
        state.places = {name: number for number, name in enumerate(state.place_names) if name}
        for move in [move for made in state.transfers_of.values() for move in made]:
            state.readers_of[move.place] = state.readers_of.get(move.place, 0) + 1
        state.attempts = Attempts(m["attempts"])
        self._table(state.attempts, "at")
        state.attempts.base = state.attempt_base
        state.attempts.reindex()  # facts that follow look for what was lost
        self._hosts(state)
        for pilot in state.pilots.values():
            pilots.join_class(state, pilot)
            register_pilot(state, pilot)
        return state

    def _hosts(self, state: State) -> None:
        state.host_rows = {(site, host): row for row, (site, host, _) in enumerate(state.host_names) if site}
        state.host_free = [row for row, (site, _, _) in enumerate(state.host_names) if not site]
        state.hosts = Hosts(self._meta["hosts"])
        self._table(state.hosts, "ho")
        state.host_reasons = dict(self._meta["host_reasons"])
        restore_quarantined(state)

    def bag(self, state: State, m: dict[str, Any]) -> None:
        record = self._reader.values(BagState, m["record"])
        prefix = f"b{record['number']}/"
        bag = BagState(tasks=Tasks(m["rows"]), targets=[], spec=self._chunks[prefix + "spec"], **record)
        state.bags[bag.number] = bag
        state.count_owned(bag.owner, bag.size)
        self._table(bag.tasks, prefix + "t")
        for row in m["targets"]:
            target: TargetState = self._reader.read(TargetState, row)
            target.shape.costs = self._chunks.get(f"{prefix}costs{target.index}", b"")
            bag.targets.append(target)
        chains.link_stages(bag)
        for block in range((m["appended"] + BLOCK - 1) // BLOCK):
            bag.appended += msgspec.msgpack.decode(self._chunks[f"{prefix}a{block}"])
        if m["edges"]:
            edges = Edges(m["edges"])
            self._table(edges, prefix + "e")
            bag.graph = graph_of(edges.pairs(), bag.tasks.np_state[: bag.size])
        for block in m["checkpoints"]:
            bag.checkpoint_blocks[block] = False
            for task, files in msgspec.msgpack.decode(self._chunks[f"{prefix}c{block}"]):
                bag.checkpoints[task] = [tuple(file) for file in files]
        state.note_replication(bag)
        state.bags_by_data += bag.data_selection is not None
        if m["data"] is not None:
            bag.data = BagData(Columns(bag.size), **self._reader.values(BagData, m["data"]))
            self._table(bag.data.columns, prefix + "d")
            link_up(bag.data, bag.pairs, bag.size)
        self._classes(state, bag, m["classes"])

    def _classes(self, state: State, bag: BagState, found: list[Any]) -> None:
        for target, variant, row in found:
            values = self._reader.values(TaskClass, row)
            cls = classes.new_class(state, bag, target, variant, values["number"])
            for name, value in values.items():
                setattr(cls, name, value)
        for first, target, stop in classes.spans(bag):
            bag.classes[target, 0].backlog.add_run(first, stop - first)


def _width(table: type[Table], layout: list[list[str]]) -> int:
    """Return how many of a table's columns the snapshot has; columns are added at the end."""
    if _columns(table)[: len(layout)] != [tuple(column) for column in layout]:
        raise StoreCorrupt("the snapshot has other columns than this Windfall", "use the Windfall that wrote it")
    return len(layout)


# --- what is derived -------------------------------------------------------------------------------------------------


def rebuild(state: State) -> None:
    """Work out afresh everything that is not journaled: ready list, backlogs, who holds what, free rows."""
    state.ready.clear()
    state.ready_with_expressions = 0
    state.unended = {bag.number: None for bag in state.bags.values() if not bag.ended}
    accounts.recount(state)
    for bag in state.bags.values():
        for cls in bag.classes.values():
            cls.on_ready_list = False
            cls.backlog.rewind()
        state.put_first(bag, bag.aged_since)
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
    state.overloaded_pilots.clear()
    state.pilots_with_news.clear()
    state.hosts_below_per_host.clear()
    for site in state.sites.values():
        site.cores_in_use.clear()
    for pilot in state.pilots.values():
        pilot.attempts_held = pilot.load = 0
        pilot.chains.clear()
        pilot.cancelling, pilot.recalling, pilot.unknown_attempts = {}, {}, []
    states = attempts.np_state[: attempts.rows]
    for row in np.flatnonzero(states != FREE).tolist():
        if states[row] != LOST:
            rows.add_row_load(state, row, 1)
        if states[row] == DROPPED or (states[row] == LOST and not attempts.started[row]):
            rows.cancel_on_return(state, row)
