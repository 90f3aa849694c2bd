"""Large submissions: worker processes read them, so that other clients do not wait."""

import json
import threading

import pytest
from server_tools import Client, sweep, until

from windfall.server.calls import bags
from windfall.server.calls.intake import process, workers

LINES = 30_000


def lines(count=LINES, name="b", **more):
    text = "\n".join(f"echo {n:010d}" for n in range(count))
    return {"name": name, "targets": [{"source": {"type": "lines", "text": text, "count": count}}], **more}


def slow(last):
    """A bag whose many prerequisites take a while to check; `last` is the last of them."""
    edges = b",".join(b"[%d,%d]" % (n, n + 1) for n in range(400_000))
    source = b'{"type":"sweep","axes":[{"type":"range","name":"x","first":1,"last":400001}]}'
    return b'{"name":"b","targets":[{"command":"p {x}","source":%b}],"edges":[%b,%b]}' % (source, edges, last)


def asking(client, replies):
    """Submit, in a thread, a bag that is refused after seconds."""
    def ask():
        replies.append(Client(client.profile).call("POST", "/v1/bags", raw=slow(b"[1,0]")))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.fixture
def pool(server):
    return server._runtime.bags._workers


def test_large_bag_is_read_in_a_worker_and_kept_as_submitted(client, pool, monkeypatch):
    monkeypatch.setattr(bags.check, "validate", None)  # in this process
    bag = client.submit(lines())
    (worker,) = pool._alive
    assert worker.process.poll() is None
    assert client.call("GET", f"/v1/bags/{bag}").body["tasks"] == LINES
    assert client.call("GET", f"/v1/bags/{bag}/spec").body["targets"] == lines()["targets"]
    assert pool._alive == {worker}, "the next job finds the same worker"


def test_large_appends_and_extensions_are_read_in_a_worker(client, pool):
    bag = client.submit(lines(2, open=True))
    source = lines()["targets"][0]["source"]
    assert client.call("POST", f"/v1/bags/{bag}/tasks", {"source": source}).body == {"first": 2, "count": LINES}
    part = {"first": LINES + 2, "pieces": [{"target": "main", "source": source}], "edges": [[0, LINES + 5]]}
    assert client.call("POST", f"/v1/bags/{bag}/parts", part).body == {"first": LINES + 2, "count": LINES}
    client.call("POST", f"/v1/bags/{bag}/close", {})
    more = client.call("POST", f"/v1/bags/{bag}/extend", {"source": source})
    assert more.body == {"first": 2 * LINES + 2, "count": LINES} and len(pool._alive) == 1


def test_mistake_in_a_large_bag_is_told_as_in_a_small_one(client):
    small, large = lines(5), lines()
    for bag in (small, large):
        bag["targets"][0]["check"] = {"match": "("}
    one, other = client.call("POST", "/v1/bags", small), client.call("POST", "/v1/bags", large)
    assert one.status == other.status == 400 and one.body == other.body
    assert client.call("POST", "/v1/bags", raw=json.dumps(large).encode()[:-5]).status == 400
    bag = client.submit(lines(1))
    refused = client.call("POST", f"/v1/bags/{bag}/tasks", {"source": lines()["targets"][0]["source"]})
    assert refused.status == 409 and "closed" in refused.body["error"]["message"]


def test_prerequisites_that_are_equal_are_kept_once(client):
    bag = {**sweep(10), "edges": [[0, 1], [3, 4]] * 50_000 + [[0, 2]]}
    number = client.submit(bag)
    assert client.call("GET", f"/v1/bags/{number}/spec").body["edges"] == [[0, 1], [0, 2], [3, 4]]
    assert client.call("GET", f"/v1/bags/{number}").body["counts"]["waiting"] == 3


def test_large_submissions_of_one_user_leave_workers_to_others(client, pool):
    bob = Client(client.profile, client.token_for("user", user="bob")["token"])
    ended = []
    threads = [asking(client, ended) for _ in range(3)]
    until(lambda: pool._alive)
    bob.submit(lines())
    assert len(ended) < len(threads), "bob did not wait for the others"
    for thread in threads:
        thread.join()
    assert {reply.status for reply in ended} == {400} and len(pool._alive) <= 2


def test_user_with_too_many_large_submissions_is_told_to_wait(client, pool, monkeypatch):
    monkeypatch.setattr(workers, "WAITING", 0)
    thread = asking(client, [])
    until(lambda: pool._owners)
    refused = client.call("POST", "/v1/bags", lines())
    assert refused.status == 429 and refused.headers["Retry-After"]
    thread.join()
    client.submit(lines())


def test_submission_that_takes_too_long_is_refused(client, pool, monkeypatch):
    monkeypatch.setattr(process, "TIME_S", 0.2)
    refused = client.call("POST", "/v1/bags", raw=slow(b"[1,0]"))
    assert refused.status == 413 and "takes more than" in refused.body["error"]["message"] and not pool._alive
    monkeypatch.setattr(process, "TIME_S", 60)
    client.submit(lines())


def test_death_of_a_worker_refuses_its_submission_alone(client, pool):
    refused = []
    thread = asking(client, refused)
    (worker,) = until(lambda: set(pool._alive))
    worker.process.kill()
    thread.join()
    assert refused[0].status == 413 and "memory" in refused[0].body["error"]["message"]
    client.submit(lines())
    (idle,) = pool._alive
    idle.process.kill()
    idle.process.wait()
    client.submit(lines())


def test_workers_end_with_their_server(server, client, pool):
    client.submit(lines())
    (worker,) = pool._alive
    server.stop()
    assert worker.process.poll() is not None
