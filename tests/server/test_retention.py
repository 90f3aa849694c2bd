"""Retention deletes the rows and blobs of removed bags, and no others."""

import asyncio
import hashlib
import os
import time

import pytest
from server_tools import Client as Plain, Pilot, sweep as small, until

from windfall import Client
from windfall.core.decide.requests.intake import submission
from windfall.core.messages import facts as f
from windfall.errors import StoreError
from windfall.model.spec import Bag, Input, Items, Range, Sweep, Target
from windfall.server import retention
from windfall.server.embedded import Embedded
from windfall.server.files import named_blobs
from windfall.store import codec
from windfall.store.journal import Budget, Journal


def sweep(name):
    source = Sweep(axes=[Range(name="x", first=1, last=30)])
    return Bag(name=name, targets=[Target(command=f"echo {name} {{x}} > {name}-{{x}}", source=source,
                                          outputs=[f"{name}-{{x}}"])])


@pytest.fixture(autouse=True)
def no_pass_of_its_own(monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_S", 1_000.0)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_S", 0.05)
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
        wait_until(lambda: passed(server))
    finally:
        server.stop()
    return gone, kept


def wait_until(true):
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def passed(server):
    """A pass over the journal has come to its end, and no other is wanted."""
    keeper = server._runtime.keeper
    return not keeper._unfinished() and keeper._task is not None and keeper._task.done()


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


def remove_one(home):
    """A bag that started, ended, and is removed: on a server without a pilot of its own."""
    server = Embedded(home)
    client = Plain(server.start())
    gone, kept = client.submit(small(3, retries=0)), client.submit(small(3))
    pilot = Pilot(client, cores=8)
    granted = [a for a, _ in pilot.get(want=6)]
    pilot.exchange(started=granted)
    for attempt in granted:
        pilot.finish([attempt])
    assert client.call("POST", f"/v1/bags/{gone}/remove").status == 200
    return server, gone, kept, granted


def test_retention_drops_facts_that_name_only_attempts_with_their_bag(home):
    server, gone, kept, granted = remove_one(home)
    until(lambda: passed(server))
    server.stop()
    facts = facts_of(home)
    assert bags_in(facts) == {kept}
    assert [a for fact in facts if isinstance(fact, f.Started) for a in fact.attempts] == granted[3:]


def test_a_pass_that_was_broken_off_goes_on_after_a_restart(home, monkeypatch):
    monkeypatch.setattr(retention, "STEP", Budget(2))
    monkeypatch.setattr(retention, "START_S", 0.0)
    monkeypatch.setattr(Journal, "rewrite", stop_after(3, Journal.rewrite))
    server, gone, kept, _ = remove_one(home)
    until(lambda: server._runtime.keeper._task and server._runtime.keeper._task.done())
    assert server._runtime.keeper._unfinished()
    server.stop()
    monkeypatch.undo()
    monkeypatch.setattr(retention, "START_S", 0.0)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    first, rewrite = [], Journal.rewrite

    def note(self, *arguments):
        first.append(self._bookmark(arguments[3]))
        return rewrite(self, *arguments)
    monkeypatch.setattr(Journal, "rewrite", note)
    server = Embedded(home)
    server.start()
    until(lambda: passed(server))
    server.stop()
    assert first[0] > 0  # from where it stood
    assert bags_in(facts_of(home)) == {kept}


def stop_after(steps, rewrite):
    def limited(self, *arguments):
        nonlocal steps
        steps -= 1
        if steps < 0:
            raise StoreError("as if it had been killed")
        return rewrite(self, *arguments)
    return limited


def test_a_removal_just_before_the_end_is_not_forgotten(home, monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_S", 60.0)
    server, gone, kept, _ = remove_one(home)
    server.stop()
    assert bags_in(facts_of(home)) == {gone, kept}
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    monkeypatch.setattr(retention, "START_S", 0.0)
    server = Embedded(home)
    server.start()
    until(lambda: passed(server))
    server.stop()
    assert bags_in(facts_of(home)) == {kept}


def test_a_step_waits_for_a_quiet_moment(monkeypatch):
    monkeypatch.setattr(retention, "LOOK_S", 0.0)

    async def looks(groups):
        class Writer:
            @property
            def groups(self):
                return groups.pop(0)
        await retention.Retention(Writer(), None, None)._wait_until_idle()
        return len(groups)
    busy = list(range(1000))
    assert asyncio.run(looks([1, 2, 2, 3, 3, 3, 9])) == 1  # 1→2 and 2→3 were busy, 3→3 was quiet
    assert asyncio.run(looks(busy)) == 1000 - 2 * retention.PATIENCE  # never quiet: a step all the same


def put(client, body, **headers):
    sha = hashlib.sha256(body).hexdigest()
    assert client.call("PUT", f"/v1/blobs/{sha}", raw=body, **headers).status == 201
    return sha


def holds(client, sha):
    return client.call("HEAD", f"/v1/blobs/{sha}").status == 200


def free(client):
    return client.call("POST", "/v1/usage/free", {}).body["freed"]


def reading(sha):
    return small(1, inputs=[{"path": "in", "blob": sha, "size": 9}])


def remove(client, bag):
    client.call("POST", f"/v1/bags/{bag}/cancel", {})
    assert client.call("POST", f"/v1/bags/{bag}/remove").status == 200


def test_input_is_freed_with_the_last_bag_that_names_it(server, client):
    sha = put(client, b"an input!")
    first, second = client.submit(reading(sha)), client.submit(reading(sha))
    remove(client, first)
    assert free(client) == 0 and holds(client, sha)
    client.submit(reading(sha))  # which takes back the time that `holds` asked for
    for bag in (second, second + 1):
        remove(client, bag)
    assert free(client) == 9 and not holds(client, sha)


def test_bytes_that_a_pass_has_freed_before_are_told(server, client, monkeypatch):
    monkeypatch.setattr(retention, "PAUSE_S", 0.05)
    sha = put(client, b"an input!")
    bag = client.submit(reading(sha))
    (blob,) = server._runtime.home.path.rglob(sha[2:])
    remove(client, bag)
    until(lambda: not blob.exists())
    assert free(client) == 9 and free(client) == 0


def test_file_that_no_bag_has_named_yet_is_not_freed(server, client):
    sha = put(client, b"an input!")
    assert free(client) == 0 and holds(client, sha)
    client.submit(reading(sha))


def test_file_found_for_the_next_bag_is_not_freed_with_the_last_one(server, client):
    sha = put(client, b"an input!")
    bag = client.submit(reading(sha))
    assert holds(client, sha)  # a client is about to submit another bag
    remove(client, bag)
    assert free(client) == 0
    client.submit(reading(sha))


def test_output_is_kept_between_upload_and_report_and_freed_with_its_bag(server, client):
    bag, pilot = client.submit(small(1, outputs=["out"])), Pilot(client)
    ((attempt, *_),) = pilot.get()
    sha = put(pilot.client, b"result", X_Attempt=str(attempt))
    assert free(client) == 0
    pilot.finish([attempt], files=[["out", sha, 6, 0o644]])
    assert free(client) == 0
    assert client.call("GET", f"/v1/blobs/{sha}").status == 200
    remove(client, bag)
    assert free(client) == 6


def test_free_leaves_files_of_other_users(server, client):
    bob = Plain(client.profile, client.token_for("user", user="bob")["token"])
    sha = put(bob, b"an input!")
    remove(bob, bob.submit(reading(sha)))
    assert free(client) == 0
    assert free(bob) == 9


def test_next_server_frees_what_an_earlier_one_left(home, monkeypatch):
    server = Embedded(home)
    client = Plain(server.start())
    remove(client, client.submit(reading(put(client, b"an input!"))))
    server.stop()
    assert len(blobs(home)) == 1
    monkeypatch.setattr(retention, "START_S", 0.0)
    server = Embedded(home)
    server.start()
    until(lambda: not blobs(home))
    server.stop()


def test_abandoned_uploads_go_within_the_hour(home, monkeypatch):
    assert retention.UPLOAD_AGE_S + retention.UPLOADS_S < retention.HOUR_S
    monkeypatch.setattr(retention, "START_S", 0.0)
    folder = home / "uploads" / "ann"
    folder.mkdir(parents=True)
    for name, age in (("a" * 64, 3_600), ("b" * 64, 1_800)):
        (folder / name).write_bytes(b"piece")
        os.utime(folder / name, (time.time() - age,) * 2)
    server = Embedded(home)
    server.start()
    until(lambda: [path.name for path in folder.iterdir()] == ["b" * 64])
    server.stop()


def test_inputs_are_found_in_packed_specifications():
    files = [Input(path=name, blob=name * 64, size=1) for name in "ab"]
    bag = Bag(name="x", targets=[Target(name="one", command="true", inputs=files[:1]),
                                 Target(name="two", command="true", inputs=files)])
    assert named_blobs.inputs_of(submission(0, "ann", bag).spec) == {"a" * 64, "b" * 64}
    calls = Bag(name="x", targets=[Target(kind="call", source=Items(items=["Zg== MQ==", f"Zg== @{'c' * 64}:9"]))])
    assert named_blobs.inputs_of(submission(0, "ann", calls).spec) == {"c" * 64}
