"""What was removed is forgotten, and nothing else."""

import time

import pytest

from windfall import Client
from windfall.core import facts as f
from windfall.model.spec import Bag, Range, Sweep, Target
from windfall.server import retention
from windfall.server.embedded import Embedded
from windfall.store import codec
from windfall.store.journal import Journal


def sweep(name):
    source = Sweep(axes=[Range(name="x", first=1, last=30)])
    return Bag(name=name, targets=[Target(command=f"echo {name} {{x}} > {name}-{{x}}", source=source,
                                          outputs=[f"{name}-{{x}}"])])


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_S", 0.05)
    monkeypatch.setattr(retention, "BLOB_AGE_S", 0.0)
    return tmp_path / "home"


def run_two_and_remove_one(home):
    server = Embedded(home)
    server.ensure_pilot(2)
    try:
        client = Client(server.start())
        gone, kept = client.submit(sweep("gone")), client.submit(sweep("kept"))
        for bag in (gone, kept):
            assert client.wait(bag)["state"] == "succeeded"
        client.remove(gone)
        wait_until(lambda: len(blobs(home)) == 30)
        time.sleep(0.3)
    finally:
        server.stop()
    return gone, kept


def wait_until(true):
    until = time.monotonic() + 10
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def blobs(home):
    return [path for path in (home / "blobs").rglob("*") if path.is_file()]


def facts_of(home):
    journal = Journal.open(home / "journal.db")
    try:
        return [fact for _, _, body in journal.read(0) for fact in codec.decode(body)]
    finally:
        journal.close()


def bags_in(facts):
    found = set()
    for fact in facts:
        if isinstance(fact, f.Granted):
            found |= {group.bag for group in fact.groups}
        elif isinstance(fact, f.Ended):
            found |= {end.bag for end in fact.ends}
        else:
            found |= {fact.bag} if hasattr(fact, "bag") else set()
    return found


def test_a_removed_bag_leaves_journal_and_disk(home):
    gone, kept = run_two_and_remove_one(home)
    assert bags_in(facts_of(home)) == {kept}


def test_the_other_bag_is_whole_even_from_new_views(home, tmp_path):
    _, kept = run_two_and_remove_one(home)
    for path in home.glob("views.db*"):
        path.unlink()
    server = Embedded(home)
    try:
        client = Client(server.start())
        assert [bag["bag"] for bag in client.bags()] == [kept]
        rows = list(client.results(kept))
        assert len(rows) == 30 and all(len(row["files"]) == 1 for row in rows)
        client.fetch(kept, tmp_path / "out")
        assert (tmp_path / "out" / "kept-7").read_text() == "kept 7\n"
    finally:
        server.stop()
