"""The views follow the journal, whatever fails on the way."""

import asyncio
import sqlite3
import threading
from contextlib import asynccontextmanager

import pytest

from windfall.core.messages import facts as f
from windfall.errors import StoreError, Unavailable
from windfall.server.views import projector as project
from windfall.server.views.projector import Projector
from windfall.store import codec
from windfall.store.journal import Budget, Journal


def finished(task, bag=1, **details):
    return f.Finished(1000 + task, 1, bag, [(1 << 24) | task], [task], [1], [1], [1], [1], **details)


class Bench:
    def __init__(self, home):
        self.journal = Journal.open(home / "journal.db")
        self.projector = Projector(home / "views.db", self.journal)

    def commit(self, *facts, told=True):
        position = self.journal.append(1000, codec.encode(list(facts)))
        if told:
            self.projector.commit(position, 0, list(facts))

    async def tasks(self, bag=1):
        return [row.task for row in await self.projector.ask(lambda views: views.results(bag, limit=100_000))]


@asynccontextmanager
async def bench(home):
    made = Bench(home)
    try:
        yield made
    finally:
        await made.projector.close()
        made.journal.close()


def fail_once(projector, error=None):
    """The next write of the views fails, as a full disk makes it."""
    def full():
        raise error or sqlite3.OperationalError("database or disk is full")
    projector._views._projection.write = full


@pytest.mark.parametrize("error", [None, OverflowError("too large"), KeyError("a mistake of ours")])
def test_a_failed_write_loses_nothing(tmp_path, error):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            assert await b.tasks() == [0]
            fail_once(b.projector, error)
            b.commit(finished(1))
            b.commit(finished(2))
            with pytest.raises((StoreError, KeyError)):
                await b.tasks()
            b.commit(finished(3))
            assert await b.tasks() == [0, 1, 2, 3]
        async with bench(tmp_path) as b:
            assert await b.tasks() == [0, 1, 2, 3]
    asyncio.run(go())


def test_views_recover_after_a_failed_fold_without_a_new_commit(tmp_path):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            await b.tasks()
            fail_once(b.projector)
            b.commit(finished(1))
            with pytest.raises(StoreError):
                await b.tasks()
            assert await b.tasks() == [0, 1]
    asyncio.run(go())


def test_a_failure_in_the_background_is_made_good(tmp_path, monkeypatch):
    monkeypatch.setattr(project, "MAX_COMMITS", 0)  # every commit is folded at once

    async def go():
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            await b.tasks()
            fail_once(b.projector)
            b.commit(finished(1))
            b.commit(finished(2))
            assert await b.tasks() == [0, 1, 2]
    asyncio.run(go())


def test_a_restart_after_a_failure_finds_everything(tmp_path):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            await b.tasks()
            fail_once(b.projector)
            b.commit(finished(1))
            with pytest.raises(StoreError):
                await b.tasks()
            b.commit(finished(2))
        async with bench(tmp_path) as b:
            b.commit(finished(3))
            assert await b.tasks() == [0, 1, 2, 3]
    asyncio.run(go())


def test_commits_that_nobody_told_are_read_from_the_journal(tmp_path):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            b.commit(finished(1), told=False)
            b.commit(finished(2))
            b.commit(finished(3), told=False)
            assert await b.tasks() == [0, 1, 2, 3]
    asyncio.run(go())


def test_gaps_that_retention_made_are_passed(tmp_path):
    async def go():
        async with bench(tmp_path) as b:
            for task in range(4):
                b.commit(finished(task), told=False)
            b.journal.save_snapshot(4, b"", {})
            gone = codec.encode([finished(1)]), codec.encode([finished(3)])
            assert b.journal.rewrite(4, lambda body: None if body in gone else body, Budget(10))
            assert await b.tasks() == [0, 2]
            assert b.projector._views.position == 4
            b.commit(finished(9))
            assert await b.tasks() == [0, 2, 9]
    asyncio.run(go())


def test_the_backlog_is_bounded_by_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(project, "MAX_BYTES", 100_000)

    async def go():
        async with bench(tmp_path) as b:
            monkeypatch.setattr(b.projector, "_begin", lambda: None)  # the thread is busy with something else
            for task in range(50):
                b.commit(finished(task, details={0: f.Detail(out=b"x" * 16_384)}))
                assert b.projector.backlog <= 6
            assert await b.tasks() == list(range(50))
    asyncio.run(go())


def test_a_long_question_keeps_no_other_waiting(tmp_path):
    """Each begins while the other is under way; neither could end alone."""
    async def go():
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            meet = threading.Barrier(2)
            await asyncio.gather(*(b.projector.ask(lambda views: meet.wait(10)) for _ in range(2)))
            held, go_on = threading.Event(), threading.Event()
            long = asyncio.ensure_future(b.projector.ask(lambda views: (held.set(), go_on.wait(10))))
            await asyncio.get_running_loop().run_in_executor(None, held.wait, 10)
            b.commit(finished(1))
            assert await b.tasks() == [0, 1]  # folded and read beside it
            assert not long.done()
            go_on.set()
            assert (await long)[1]
    asyncio.run(go())


def test_closing_waits_for_those_who_read(tmp_path):
    async def go():
        order = []
        async with bench(tmp_path) as b:
            b.commit(finished(0))
            held, go_on = threading.Event(), threading.Event()

            def question(views):
                held.set()
                go_on.wait(10)
                order.append(len(views.results(1)))
            long = asyncio.ensure_future(b.projector.ask(question))
            await asyncio.get_running_loop().run_in_executor(None, held.wait, 10)
            views = b.projector._views
            closing = asyncio.ensure_future(b.projector.close())
            closing.add_done_callback(lambda _: order.append("closed"))
            while not views._closed:
                await asyncio.sleep(0)
            assert not closing.done()
            go_on.set()
            await asyncio.gather(long, closing)
            assert order == [1, "closed"]
            with pytest.raises(Unavailable), views.reading():
                pass
            b.projector.close = _nothing
    asyncio.run(go())


async def _nothing():
    pass


def test_a_removed_bag_goes_in_slices_between_folds(tmp_path, monkeypatch):
    monkeypatch.setattr(project, "SLICE_ROWS", 10)
    shape = f.TargetShape("main", 100, [], 1, 0, 0, 0, 0, 0, 0, False, 3, 0, 0)

    async def go():
        async with bench(tmp_path) as b:
            b.commit(f.BagSubmitted(1, 1, "ann", "x", "", b"", [shape], False, "fcfs", True))
            for task in range(100):
                b.commit(finished(task))
            await b.tasks()
            slices, turns, forget = [], threading.Semaphore(0), b.projector._forget_slice

            def count():
                turns.acquire(timeout=30)
                slices.append(b.projector._views.position)
                return forget()
            b.projector._forget_slice = count
            b.commit(f.BagRemoved(1, 1))
            assert await b.tasks() == []
            other, more = 0, True
            while more:
                b.commit(finished(other, bag=2))
                other += 1
                turns.release()  # for one slice, behind which the fold of that waits at most
                more, seen = await b.projector.ask(lambda views: (views.removed(), views.results(2, limit=1000)))
                assert len(seen) == other
            turns.release(100)
            assert len(slices) > 10 and len(set(slices)) > 5  # folds went on between slices
            left = b.projector._views._connection.execute("SELECT count(*) FROM attempt WHERE bag = 1").fetchone()
            assert left == (0,)
    asyncio.run(go())


def _overwrite_pages(path):
    """Overwrite all pages but the first: what is open finds it at the next question, and a new start at once."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    body = path.read_bytes()
    path.write_bytes(body[:4096] + b"\x5a" * (len(body) - 4096))


@pytest.mark.parametrize("damage", [
    _overwrite_pages, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"no views" * 999),
    lambda path: path.write_bytes(path.read_bytes()[:9000]),
])
def test_damaged_views_are_made_again_at_the_next_start(tmp_path, damage):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(*[finished(n) for n in range(30)])
            assert await b.tasks() == list(range(30))
        damage(tmp_path / "views.db")
        again = Projector(tmp_path / "views.db", b.journal)
        b.journal, b.projector = Journal.open(tmp_path / "journal.db"), again
        again._journal = b.journal
        assert await b.tasks() == list(range(30))
        await again.close()
        b.journal.close()
    asyncio.run(go())


def test_views_damaged_under_a_running_server_are_made_again(tmp_path):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(*[finished(n) for n in range(30)])
            assert await b.tasks() == list(range(30))
            _overwrite_pages(tmp_path / "views.db")
            b.projector._views._connection.execute("PRAGMA shrink_memory")
            assert await b.tasks() == list(range(30))
            b.commit(finished(30))
            assert await b.tasks() == list(range(31))
    asyncio.run(go())


@pytest.mark.parametrize("statement", [
    "UPDATE attempt SET outcome = 99", "UPDATE detail SET files = x'ff'", "UPDATE attempt SET verdict = 'x'",
    "DROP TABLE attempt",
])
def test_values_of_other_kinds_in_the_views_lead_to_new_views(tmp_path, statement):
    async def go():
        async with bench(tmp_path) as b:
            b.commit(*[finished(n, details={0: f.Detail(files=[("a", "0" * 64, 1, 0)])}) for n in range(3)])
            assert await b.tasks() == [0, 1, 2]
            other = sqlite3.connect(tmp_path / "views.db", isolation_level=None)
            other.execute(statement)
            other.close()
            rows = await b.projector.ask(lambda views: views.results(1))
            assert [(row.task, row.state, row.files) for row in rows] == [
                (n, "succeeded", [("a", "0" * 64, 1, 0)]) for n in range(3)]
    asyncio.run(go())
