"""Journals that earlier versions left behind: opened, folded, shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from windfall.core.messages.facts import (
    FACTS,
    BagSubmitted,
    Ended,
    Granted,
    PartAppended,
    TasksAppended,
    TasksCancelled,
)
from windfall.core.persist.fingerprint import differences, fingerprint
from windfall.core.persist.snapshot import dump_state, load_state, rebuild
from windfall.errors import StoreCorrupt
from windfall.store import codec
from windfall.store.journal import Journal

from .golden.make_facts import plain, recovered, shown

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted((path.stem for path in GOLDEN.glob("facts-*.db")), key=lambda name: int(name.partition("-")[2]))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def journal(name: str, tmp_path: Path) -> Any:
    shutil.copy(GOLDEN / f"{name}.db", tmp_path / "journal.db")
    journal = Journal.open(tmp_path / "journal.db")
    yield journal
    journal.close()


@pytest.fixture
def newest(tmp_path: Path) -> Any:
    shutil.copy(GOLDEN / f"{NAMES[-1]}.db", tmp_path / "newest.db")
    journal = Journal.open(tmp_path / "newest.db")
    yield journal
    journal.close()


@pytest.fixture
def expected(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def contains(now: Any, then: Any, key: str = "") -> bool:
    """A later version may know more of something, never something else."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(each in now and contains(now[each], then[each], each) for each in then)
    if key == "shape":  # a record, as the list of its fields
        return bool(now[: len(then)] == then)
    if isinstance(then, list) and len(now) == len(then):
        return all(map(contains, now, then))
    return bool(now == then)


def test_the_newest_holds_every_kind_of_fact(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / f"{NAMES[-1]}.db", tmp_path / "journal.db")
    journal = Journal.open(tmp_path / "journal.db")
    kinds = {type(fact) for _, _, body in journal.read(0) for fact in codec.decode(body)}
    journal.close()
    assert kinds == set(FACTS)


def test_state_folded_from_the_first_row_is_as_it_was(journal: Journal, expected: Any) -> None:
    now = plain(fingerprint(recovered(journal, snapshot=False).state))
    assert contains(now, expected["fingerprint"])


def test_state_from_snapshot_and_later_rows_is_as_it_was(newest: Journal) -> None:
    found = newest.load_snapshot()
    assert found is not None and 0 < found.position < newest.position
    now, then = plain(fingerprint(recovered(newest).state)), json.loads((GOLDEN / f"{NAMES[-1]}.json").read_text())
    assert contains(now, then["fingerprint"])


def test_snapshot_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "facts-10.db", tmp_path / "journal.db")
    journal = Journal.open(tmp_path / "journal.db")
    with pytest.raises(StoreCorrupt, match="version 6"):
        recovered(journal)
    journal.close()


def test_snapshot_of_a_restored_state_brings_the_same_state(newest: Journal) -> None:
    found = newest.load_snapshot()
    assert found is not None
    chunks = dict(found.chunks)
    old = load_state(found.meta, chunks)
    rebuild(old)
    meta, fresh, gone = dump_state(old)
    now = load_state(meta, {name: body for name, body in chunks.items() if name not in gone} | fresh)
    rebuild(now)
    assert differences(fingerprint(old), fingerprint(now)) == []


def test_the_results_are_shown(journal: Journal, expected: Any, tmp_path: Path) -> None:
    now = shown(journal, tmp_path / "views.db")
    assert now.keys() == expected["results"].keys()
    for bag, rows in expected["results"].items():
        assert len(now[bag]) == len(rows)
        assert all(contains(*pair) for pair in zip(now[bag], rows, strict=True))


def test_golden_journal_holds_all_kinds_of_ends(expected: Any) -> None:
    """Check the golden file itself: one with few kinds of ends would prove little."""
    rows = [row for rows in expected["results"].values() for row in rows]
    assert {row["state"] for row in rows} == {"succeeded", "failed", "cancelled"} and any(row["files"] for row in rows)


def test_the_newest_has_every_field_that_layout_2_brought(tmp_path: Path) -> None:
    """The fields are those that an older Windfall would drop; one is a checkpoint that only the snapshot holds."""
    shutil.copy(GOLDEN / f"{NAMES[-1]}.db", tmp_path / "journal.db")
    journal = Journal.open(tmp_path / "journal.db")
    facts = [fact for _, _, body in journal.read(0) for fact in codec.decode(body)]
    found = journal.load_snapshot()
    journal.close()
    shapes = [shape for fact in facts if isinstance(fact, BagSubmitted) for shape in fact.targets]
    details = [end.detail for fact in facts if isinstance(fact, Ended) for end in fact.ends if end.detail]
    assert any(shape.gathers for shape in shapes) and any(shape.whole for shape in shapes)
    assert all(any(getattr(detail, name) for detail in details) for name in ("values", "saved", "scratch"))
    assert any(fact.extends for fact in facts if isinstance(fact, TasksAppended))
    assert any(fact.note for fact in facts if isinstance(fact, TasksCancelled))
    assert found is not None and [name for name in found.chunks if "/c" in name and "costs" not in name]


def test_the_newest_has_graphs_that_grow(tmp_path: Path) -> None:
    """With edges in the snapshot, and some that came after it."""
    shutil.copy(GOLDEN / f"{NAMES[-1]}.db", tmp_path / "journal.db")
    journal = Journal.open(tmp_path / "journal.db")
    facts = [fact for _, _, body in journal.read(0) for fact in codec.decode(body)]
    found = journal.load_snapshot()
    journal.close()
    assert sum(bool(fact.edges) for fact in facts if isinstance(fact, PartAppended)) == 2
    assert found is not None and [name for name in found.chunks if name.endswith("/e0")]


def test_the_newest_has_tasks_that_go_to_a_fail_over_site(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / f"{NAMES[-1]}.db", tmp_path / "journal.db")
    journal = Journal.open(tmp_path / "journal.db")
    facts = [fact for _, _, body in journal.read(0) for fact in codec.decode(body)]
    journal.close()
    assert any(fact.fail_over for fact in facts if isinstance(fact, BagSubmitted))
    assert any(end.to_fail_over_site for fact in facts if isinstance(fact, Ended) for end in fact.ends)
    assert any(group.to_fail_over_site for fact in facts if isinstance(fact, Granted) for group in fact.groups)
