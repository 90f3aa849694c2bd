"""Recovery: an unreadable journal or snapshot raises an error with a hint, and stays unchanged."""

import sqlite3

import msgspec
import pytest

from windfall.core.messages import events
from windfall.core.persist.upgrades import VERSION
from windfall.core.step import Core
from windfall.errors import StoreCorrupt, StoreTooNew
from windfall.server.recovery import recover
from windfall.store import codec, mark
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


def _home_with_views(path):
    """Make a journal of five commits, a mark and views that have them all, as a stopped server leaves them."""
    from windfall.store.views import Views

    journal = Journal.open(path)
    for at in range(1, 6):
        journal.append(at, msgspec.msgpack.encode([]))
    views = Views.open(path.with_name("views.db"), journal.identity, 5)
    views.project(5, [])
    views.close()
    journal.close()


@pytest.mark.parametrize("lose", ["all", "some"])
def test_views_tell_of_lost_commits_where_the_mark_is_lost_too(tmp_path, lose):
    path = tmp_path / "journal.db"
    _home_with_views(path)
    path.with_suffix(".mark").unlink()
    if lose == "all":
        path.unlink()
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("DELETE FROM journal WHERE seq > 3")
        connection.close()
    with pytest.raises(StoreCorrupt, match="the views beside it had reached commit 5"):
        recover(path)
    assert path.exists() == (lose == "some")


def test_mark_gets_the_numbers_of_the_core(tmp_path):
    core, journal, clock = recover(tmp_path / "journal.db")
    step = core.step(clock.now(), [events.AddSite(1, "local", "ann", "local")])
    core.state.next_bag = 12
    journal.append(clock.now(), codec.encode(step.facts))
    journal.close()
    reached = mark.read(tmp_path / "journal.mark")
    assert reached is not None and reached.numbers == (12, 1, 1)
