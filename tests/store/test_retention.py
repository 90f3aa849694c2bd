"""Retention removes all rows of removed bags from the journal and the views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import O_LOST, READY
from windfall.store import codec
from windfall.store.journal import Budget, Journal
from windfall.store.retention import DropRemovedBags
from windfall.store.views import Views

KEPT, GONE = 1, 2


def granted(*groups: tuple[int, list[int]]) -> f.Granted:
    made = [f.Group(bag, 0, 0, 0, list(range(len(attempts))), attempts) for bag, attempts in groups]
    return f.Granted(1, 1, 1, made)


def finished(bag: int, attempts: list[int]) -> f.Finished:
    n = len(attempts)
    return f.Finished(9, 1, bag, attempts, list(range(n)), [1] * n, [1] * n, [1] * n, [1] * n)


def lost(bag: int, attempt: int) -> f.Ended:
    return f.Ended(5, 1, [f.End(attempt, bag, 0, 0, O_LOST, "lease", READY, True, 0, 0, 0, 0, 1, 0, 0, 0)])


def edited(edit: DropRemovedBags, *facts: f.Fact) -> list[Any]:
    body = edit(codec.encode(facts))
    return [] if body is None else codec.decode(body)


def test_starts_go_with_their_bag() -> None:
    edit = DropRemovedBags({KEPT})
    assert edited(edit, granted((KEPT, [1, 2]), (GONE, [3, 4]))) == [granted((KEPT, [1, 2]))]
    assert edited(edit, f.Started(2, 1, [1, 3])) == [f.Started(2, 1, [1])]
    assert edited(edit, f.Started(3, 1, [4]), f.Adopted(3, 1, [3])) == []
    assert edited(edit, finished(GONE, [3, 4]), finished(KEPT, [1])) == [finished(KEPT, [1])]
    assert edit._doomed == set()
    assert edited(edit, f.Started(4, 1, [2])) == [f.Started(4, 1, [2])]


def test_transfers_and_lost_copies_go_with_their_bag() -> None:
    edit = DropRemovedBags({KEPT})
    both, mine = granted((KEPT, [1]), (GONE, [3])), granted((KEPT, [1]))
    both.transfers = [f.Transfer(1, "home", -1, 9, 1), f.Transfer(3, "host here a", 0, 9, 1)]
    mine.transfers = both.transfers[:1]
    assert edited(edit, both) == [mine]
    there = f.CopiesLost(2, "host here a", [(KEPT, [(0, 2)])], "gone")
    assert edited(edit, f.CopiesLost(2, "host here a", [(GONE, [(0, 1)]), (KEPT, [(0, 2)])], "gone")) == [there]
    assert edited(edit, f.CopiesLost(3, "host here a", [(GONE, [(0, 1)])], "gone"), there) == [there]


def test_retention_keeps_facts_whose_bag_it_cannot_tell() -> None:
    """A pass that goes on in the middle has not seen the grant."""
    assert edited(DropRemovedBags({KEPT}), f.Started(2, 1, [7])) == [f.Started(2, 1, [7])]


def test_a_lost_one_that_runs_again_is_still_its_bags() -> None:
    edit = DropRemovedBags({KEPT})
    edited(edit, granted((GONE, [3])), lost(GONE, 3))
    assert edited(edit, f.Started(6, 1, [3])) == []


def test_the_views_forget_starts_too(tmp_path: Path) -> None:
    shape = f.TargetShape("main", 1, [], 1, 0, 0, 0, 0, 0, 0, False, 3, 0, 0)
    views = Views.open(tmp_path / "views.db")
    for seq, facts in enumerate((
        [f.BagSubmitted(1, GONE, "ann", "x", "", b"", [shape], False, "fcfs", True), f.Started(2, 1, [1, 3])],
        [lost(GONE, 3)], [f.BagRemoved(6, GONE)],
    ), 1):
        views.project(seq, facts)
    while views.forget(GONE, 2):
        pass
    assert views._connection.execute("SELECT attempt FROM started").fetchall() == [(1,)]
    assert views._projection._started == {1: 2}
    views.close()


def test_files_of_a_removed_bag_count_no_more(tmp_path: Path) -> None:
    shape = f.TargetShape("main", 1, [], 1, 0, 0, 0, 0, 0, 0, False, 3, 0, 0)
    views = Views.open(tmp_path / "views.db")
    for bag in (KEPT, GONE):
        ended = finished(bag, [bag])
        ended.details = {0: f.Detail(files=[("out", str(bag) * 64, 1, 0o644)])}
        views.project(bag, [f.BagSubmitted(1, bag, "ann", "x", "", b"", [shape], False, "fcfs", True), ended])
    views.flush()
    assert views.blobs() == {"1" * 64, "2" * 64}
    views.project(3, [f.BagRemoved(6, GONE)])
    views.flush()
    assert views.blobs() == {"1" * 64}
    views.close()


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    journal = Journal.open(tmp_path / "journal.db")
    for number in range(10):
        journal.append(number, bytes([number]) * 1000)
    journal.save_snapshot(10, b"", {})
    yield journal
    journal.close()


def test_a_step_is_bounded_in_bytes(journal: Journal) -> None:
    steps = []
    while count := journal.rewrite(10, lambda body: body, Budget(50, 2500), "p"):
        steps.append(count)
    assert steps == [3, 3, 3, 1]
    assert journal.rewrite(10, lambda body: body, Budget(50, 1), "q") == 1  # a large row is a step of its own


def test_the_journal_knows_its_last_pass(journal: Journal, tmp_path: Path) -> None:
    assert journal.last_pass() == ("", True)
    journal.rewrite(10, lambda body: body, Budget(4), "removed 10 1")
    journal.close()
    again = Journal.open(tmp_path / "journal.db")
    assert again.last_pass() == ("removed 10 1", False)
    looked: list[int] = []
    while again.rewrite(10, lambda body: looked.append(body[0]) or body, Budget(4), "removed 10 1"):  # type: ignore[func-returns-value]
        pass
    assert looked == [4, 5, 6, 7, 8, 9] and again.last_pass() == ("removed 10 1", True)
    again.close()
