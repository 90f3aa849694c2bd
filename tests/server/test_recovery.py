"""Recovery: an unreadable journal or snapshot raises an error with a hint, and stays unchanged."""

import msgspec
import pytest

from windfall.core.persist.upgrades import VERSION
from windfall.core.step import Core
from windfall.errors import StoreCorrupt, StoreTooNew
from windfall.server.recovery import recover
from windfall.store.journal import Journal


def written(path, change):
    meta, chunks, _ = Core().snapshot()
    fields = msgspec.msgpack.decode(meta)
    change(fields)
    journal = Journal.open(path)
    journal.append(1, msgspec.msgpack.encode([]))
    journal.save_snapshot(1, msgspec.msgpack.encode(fields), chunks)
    journal.close()


@pytest.mark.parametrize("change, error", [
    (lambda m: m.update(version=VERSION + 1), StoreTooNew),
    (lambda m: m.update(version=0), StoreCorrupt),
    (lambda m: m.update(version="soon"), StoreCorrupt),
    (lambda m: m.pop("version"), StoreCorrupt),
    (lambda m: m.pop("bags"), StoreCorrupt),
    (lambda m: m["state"].pop(), StoreCorrupt),
    (lambda m: m["layouts"]["Tasks"].pop(0), StoreCorrupt),
    (lambda m: m["fields"]["SiteState"].append("mood"), StoreTooNew),
])
def test_a_strange_snapshot_is_named_and_left_alone(tmp_path, change, error):
    path = tmp_path / "journal.db"
    written(path, change)
    before = path.read_bytes()
    for _ in range(2):  # the lock is given back
        with pytest.raises(error, match="snapshot") as caught:
            recover(path)
        assert caught.value.hint
    assert path.read_bytes() == before


def test_a_snapshot_that_is_no_snapshot(tmp_path):
    journal = Journal.open(tmp_path / "journal.db")
    journal.save_snapshot(0, b"\xc1 nonsense", {})
    journal.close()
    with pytest.raises(StoreCorrupt, match="snapshot"):
        recover(tmp_path / "journal.db")
