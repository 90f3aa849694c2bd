"""Snapshots follow from the declarations of the records; older and newer ones are read, upgraded or refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e
from windfall.core.persist.fingerprint import fingerprint
from windfall.core.persist.snapshot import RECORDS, load_state
from windfall.core.persist.upgrades import FIRST, VERSION, upgrade
from windfall.core.state.columns import CHUNK
from windfall.core.state.fields import hints, kind
from windfall.core.step import Core
from windfall.errors import StoreCorrupt, StoreTooNew

Rows = dict[str, Any]


def lived(bench: Bench) -> tuple[Rows, dict[str, bytes]]:
    """Return the snapshot of a state with a bag, a pilot and an attempt that has ended."""
    bench.submit(shape(2))
    pilot = bench.pilot()
    bench.report(pilot, bench.take(pilot, 1)[0][0])
    meta, chunks, _ = bench.core.snapshot()
    return msgspec.msgpack.decode(meta), chunks


def without(rows: Rows, record: str, row: list[Any], name: str) -> None:
    """Remove a field from the row of a record and from the list of its fields, as if the field had not been added
    yet."""
    place = rows["fields"][record].index(name)
    del row[place], rows["fields"][record][place]


def test_snapshot_holds_every_durable_field_and_no_other() -> None:
    rows = msgspec.msgpack.decode(Core().snapshot()[0])
    for record in RECORDS:
        assert rows["fields"][record.__name__] == [each.name for each in fields(record) if kind(each) == "durable"]
        assert list(hints(record)) == rows["fields"][record.__name__]


def test_snapshot_without_a_field_is_read_with_its_default(bench: Bench) -> None:
    rows, chunks = lived(bench)
    bench.core.state.bags[1].paused = True
    without(rows, "BagState", rows["bags"][0]["record"], "paused")
    without(rows, "State", rows["state"], "weights")
    state = load_state(msgspec.msgpack.encode(rows), chunks)
    assert (state.bags[1].paused, state.weights, state.bags[1].name) == (False, {}, bench.core.state.bags[1].name)


def test_snapshot_with_an_unknown_field_names_it(bench: Bench) -> None:
    rows, chunks = lived(bench)
    rows["fields"]["PilotState"].append("mood")
    with pytest.raises(StoreTooNew, match="PilotState.mood"):
        load_state(msgspec.msgpack.encode(rows), chunks)


@pytest.mark.parametrize(("table", "chunk", "new", "width"), [("Hosts", "ho0", 3, 12), ("Tasks", "b1/t0", 1, 2)])
def test_table_with_fewer_columns_is_read_and_written_anew(
    bench: Bench, table: str, chunk: str, new: int, width: int
) -> None:
    rows, chunks = lived(bench)
    rows["layouts"][table] = rows["layouts"][table][:-new]
    many = bench.core.state.hosts.rows if table == "Hosts" else 2
    core = Core()
    core.restore(msgspec.msgpack.encode(rows), {**chunks, chunk: chunks[chunk][: -width * many]})
    state = core.state
    assert (state.hosts.attempts[0], state.bags[1].tasks.state[0]) == (1, bench.core.state.bags[1].tasks.state[0])
    assert (state.hosts.today[0], state.bags[1].tasks.tries[0]) == ((0, 1) if table == "Hosts" else (1, 0))
    _, again, _ = core.snapshot()
    assert list(again) == [chunk] and len(again[chunk]) == len(chunks[chunk])


def test_table_with_other_columns_is_refused(bench: Bench) -> None:
    rows, chunks = lived(bench)
    rows["layouts"]["Attempts"][0][0] = "else"
    with pytest.raises(StoreCorrupt, match="other columns"):
        load_state(msgspec.msgpack.encode(rows), chunks)


def test_upgrades_run_in_order_from_the_version_of_the_snapshot(bench: Bench) -> None:
    rows, chunks = lived(bench)

    def note(name: str) -> Any:
        return lambda rows, chunks: ({**rows, "names": [*rows.get("names", ()), name]}, {**chunks, name: b""})

    two = (note("first"), note("second"))
    made, kept = upgrade({**rows, "version": FIRST}, chunks, two)
    assert made["names"] == ["first", "second"] and set(kept) - set(chunks) == {"first", "second"}
    assert upgrade({**rows, "version": FIRST + 1}, chunks, two)[0]["names"] == ["second"]
    assert upgrade({**rows, "version": FIRST + 2}, chunks, two) == ({**rows, "version": FIRST + 2}, chunks)


@pytest.mark.parametrize(("version", "error"), [(FIRST - 1, StoreCorrupt), (VERSION + 1, StoreTooNew)])
def test_snapshot_of_another_version_is_refused_with_a_hint(bench: Bench, version: int, error: type) -> None:
    rows, chunks = lived(bench)
    with pytest.raises(error, match=f"version {version}") as caught:
        load_state(msgspec.msgpack.encode({**rows, "version": version}), chunks)
    assert caught.value.hint


def test_snapshot_of_a_restored_state_has_the_same_rows(bench: Bench) -> None:
    rows, chunks = lived(bench)
    core = Core()
    core.restore(msgspec.msgpack.encode(rows), chunks)
    meta, changed, _ = core.snapshot()
    assert msgspec.msgpack.decode(meta) == rows and changed == {}
    core.resume(bench.now)
    bench.step(e.Pause(0, 1, True))
    assert fingerprint(core.state) != fingerprint(bench.core.state)


def test_snapshot_saves_only_new_edges_of_a_graph(bench: Bench) -> None:
    bag = bench.submit(shape(1), open=True)
    bench.part(bag, (0, CHUNK), edges=[(0, task) for task in range(1, CHUNK + 1)])
    _, chunks, _ = bench.core.snapshot()
    bench.core.saved()
    assert f"b{bag}/e0" in chunks and f"b{bag}/e1" not in chunks
    bench.part(bag, (0, 1), edges=[(1, CHUNK + 1)])
    _, chunks, _ = bench.core.snapshot()
    assert [name for name in chunks if "/e" in name] == [f"b{bag}/e1"]
    bench.core.saved()
    bench.do(e.Cancel(0, bag, None))
    bench.do(e.Remove(0, bag))
    assert {f"b{bag}/e0", f"b{bag}/e1"} <= set(bench.core.snapshot()[2])
