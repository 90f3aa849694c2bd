"""File contents over HTTP."""

import asyncio
import hashlib
import os
import threading
import time

import pytest
from server_tools import Client, Pilot, sweep, until

from windfall.server.calls import blobs


def sha(body):
    return hashlib.sha256(body).hexdigest()


def put(client, body, first=None, last=None, name=None, **headers):
    name = name or sha(body)
    if first is None:
        return client.call("PUT", f"/v1/blobs/{name}", raw=body, **headers)
    return client.call("PUT", f"/v1/blobs/{name}", raw=body[first:last + 1],
                       Content_Range=f"bytes {first}-{last}/{len(body)}", **headers)


BODY = os.urandom(3_000_000)


def test_blob_is_returned_as_it_was_sent(client):
    assert client.call("HEAD", f"/v1/blobs/{sha(BODY)}").status == 404
    assert put(client, BODY).status == 201
    reply = client.call("GET", f"/v1/blobs/{sha(BODY)}")
    assert reply.status == 200 and reply.raw == BODY
    head = client.call("HEAD", f"/v1/blobs/{sha(BODY)}")
    assert head.status == 200 and int(head.headers["Content-Length"]) == len(BODY)


@pytest.mark.parametrize("wanted, first, last", [
    ("bytes=0-9", 0, 9), ("bytes=2999990-", 2_999_990, 2_999_999), ("bytes=-5", 2_999_995, 2_999_999),
    ("bytes=1048570-1048590", 1_048_570, 1_048_590), ("bytes=10-99999999", 10, 2_999_999)])
def test_range_request_returns_its_part_of_a_blob(client, wanted, first, last):
    put(client, BODY)
    reply = client.call("GET", f"/v1/blobs/{sha(BODY)}", Range=wanted)
    assert reply.status == 206 and reply.raw == BODY[first:last + 1]
    assert reply.headers["Content-Range"] == f"bytes {first}-{last}/{len(BODY)}"


def test_an_upload_goes_on_where_it_stopped(client):
    name = sha(BODY)
    assert put(client, BODY, 0, 999_999).status == 200
    head = client.call("HEAD", f"/v1/blobs/{name}")
    assert head.status == 404 and head.headers["X-Received"] == "1000000"
    wrong = put(client, BODY, 5, 10)
    assert wrong.status == 409 and wrong.headers["X-Received"] == "1000000"
    assert put(client, BODY, 1_000_000, len(BODY) - 1).status == 201
    assert client.call("GET", f"/v1/blobs/{name}").raw == BODY


def test_a_broken_connection_keeps_what_arrived(client):
    name = sha(BODY)
    sender = Client(client.profile)
    sender.connection.putrequest("PUT", f"/v1/blobs/{name}")
    for key, value in (("Authorization", f"Bearer {client.token}"), ("Content-Length", str(len(BODY)))):
        sender.connection.putheader(key, value)
    sender.connection.endheaders()
    sender.connection.sock.sendall(BODY[:2_500_000])
    sender.connection.sock.close()
    sender.connection.close()
    def stands():
        return int(client.call("HEAD", f"/v1/blobs/{name}").headers["X-Received"])
    until(lambda: stands() == 2_500_000)
    assert put(client, BODY, 2_500_000, len(BODY) - 1).status == 201


def test_blob_that_does_not_match_its_hash_is_refused(client):
    assert put(client, b"abc", name="0" * 64).status == 400
    assert client.call("HEAD", "/v1/blobs/" + "0" * 64).status == 404
    assert client.call("GET", "/v1/blobs/..%2f..%2fserver.json").status in (400, 404)


@pytest.mark.parametrize("header", ["bytes 0-1/1", "bytes 5-1/10", "nonsense", "bytes 0-9/10"])
def test_a_range_that_lies(client, header):
    assert client.call("PUT", "/v1/blobs/" + "0" * 64, raw=b"abc", Content_Range=header).status == 400


def test_empty_blob_can_be_sent_and_read(client):
    assert put(client, b"").status == 201
    assert client.call("GET", f"/v1/blobs/{sha(b'')}").raw == b""


def test_owners_are_apart(client):
    put(client, b"mine")
    ann = client.token_for("user", user="ann")["token"]
    absent = client.call("GET", f"/v1/blobs/{'1' * 64}", token=ann)
    other = client.call("GET", f"/v1/blobs/{sha(b'mine')}", token=ann)
    assert other.status == absent.status == 404
    assert other.raw.replace(sha(b"mine").encode(), b"1" * 64) == absent.raw
    assert client.call("HEAD", f"/v1/blobs/{sha(b'mine')}", token=ann).headers["X-Received"] == "0"


def test_a_pilot_reaches_what_its_attempts_need_and_no_more(client):
    put(client, b"input")
    put(client, b"secret")
    client.submit(sweep(2, inputs=[{"path": "in", "blob": sha(b"input"), "size": 5}], outputs=["out.txt"]))
    one, two = Pilot(client, nonce="1"), Pilot(client, nonce="2")
    (attempt, _), = one.get()
    mark = str(attempt)
    def get(pilot, name, **headers):
        return pilot.client.call("GET", f"/v1/blobs/{name}", **headers).status
    assert get(one, sha(b"input"), X_Attempt=mark) == 200
    assert get(one, sha(b"secret"), X_Attempt=mark) == 404
    assert get(one, sha(b"input")) == 404
    assert get(two, sha(b"input"), X_Attempt=mark) == 404
    assert put(two.client, b"output", X_Attempt=mark).status == 404
    assert put(one.client, b"output", X_Attempt=mark).status == 201
    one.finish([attempt], files=[["out.txt", sha(b"output"), 6, 0o644]])
    assert put(one.client, b"more", X_Attempt=mark).status == 404
    assert get(one, sha(b"input"), X_Attempt=mark) == 404
    row = client.call("GET", "/v1/bags/1/results").body["rows"][0]
    assert row["files"] == [["out.txt", sha(b"output"), 6, 0o644]]
    assert client.call("GET", f"/v1/blobs/{row['files'][0][1]}").raw == b"output"


def test_a_pilot_that_enrolled_again_reaches_what_it_was_granted_before(client):
    """The same nonce at the same site: the same process, under a new number and token."""
    put(client, b"input")
    client.submit(sweep(2, inputs=[{"path": "in", "blob": sha(b"input"), "size": 5}]))
    before = Pilot(client, nonce="1")
    (attempt, _), = before.get()
    after, stranger = Pilot(client, nonce="1"), Pilot(client, nonce="2")
    assert after.me["pilot"] != before.me["pilot"]

    def get(pilot):
        return pilot.client.call("GET", f"/v1/blobs/{sha(b'input')}", X_Attempt=str(attempt)).status
    assert [get(pilot) for pilot in (before, after, stranger)] == [200, 200, 404]
    assert put(after.client, b"output", X_Attempt=str(attempt)).status == 201
    assert put(stranger.client, b"output", X_Attempt=str(attempt)).status == 404
    path = f"/v1/attempts/{attempt}/output"
    assert after.client.call("POST", path, raw=b"x").body == {"go": False}
    assert stranger.client.call("POST", path, raw=b"x").status == 404


def test_concurrent_first_calls_open_one_blob_store(tmp_path, monkeypatch):
    """Two would not know of each other's uploads."""
    made = []

    async def go():
        meet = threading.Barrier(2)

        class Slow:
            def __init__(self, root):
                made.append(root)
                time.sleep(0.05)  # the second one comes while the first is being made
        monkeypatch.setattr(blobs, "Blobs", Slow)
        calls = blobs.BlobCalls(tmp_path, None, None, None)

        def ask():
            meet.wait(10)
            return calls.store()
        one, two = await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(2)))
        assert one is two
        calls.close()
    asyncio.run(go())
    assert len(made) == 1


def report_of(client, bag):
    return client.call("GET", f"/v1/bags/{bag}/tasks/0").body["attempts"][0]


def test_a_report_names_only_what_its_attempt_sent_or_may_read(client):
    put(client, b"secret")
    put(client, b"input")
    bag = client.submit(sweep(
        1, retries=0, checkpoint=["state"], inputs=[{"path": "in", "blob": sha(b"input"), "size": 5}],
        outputs=["mine", "input", "secret"], scratch="failed"))
    pilot = Pilot(client)
    (attempt, *_), = pilot.get()
    mark = {"X_Attempt": str(attempt)}
    assert put(pilot.client, b"mine", **mark).status == 201
    assert pilot.client.call("GET", f"/v1/blobs/{sha(b'mine')}", **mark).raw == b"mine"
    named = [[body.decode(), sha(body), len(body), 0o644] for body in (b"mine", b"input", b"secret")]
    pilot.finish([attempt], files=named, scratch=[sha(b"secret"), 6])
    row = client.call("GET", f"/v1/bags/{bag}/results").body["rows"][0]
    assert (row["state"], row["why"], row["files"], row["scratch"]) == ("failed", "output", named[:2], None)
    assert row["note"] == "not taken, since this attempt did not send it: secret, its directory"


def test_a_checkpoint_that_was_not_sent_is_not_given_to_the_next_attempt(client):
    put(client, b"secret")
    bag = client.submit(sweep(1, checkpoint=["state"]))
    pilot = Pilot(client)
    (attempt, *_), = pilot.get()
    pilot.finish([attempt], o="returned", why="stop", saved=[["state", sha(b"secret"), 6, 0o600]])
    assert "state" in report_of(client, bag)["note"]
    (again, *extra), = pilot.get()
    assert extra[1:] == []
    assert pilot.client.call("GET", f"/v1/blobs/{sha(b'secret')}", X_Attempt=str(again)).status == 404


def two_pilots_with_a_task_each(client):
    client.submit(sweep(2, outputs=["o"]))
    pilots = [Pilot(client, nonce=nonce) for nonce in "12"]
    return [(pilot.client, {"X_Attempt": str(pilot.get()[0][0])}) for pilot in pilots]


def test_pilot_does_not_spoil_an_upload_of_another_or_of_the_owner(client):
    (honest, mine), (hostile, its) = two_pilots_with_a_task_each(client)
    name, wrong = sha(BODY), bytes(len(BODY))

    def received(who, **headers):
        return who.call("HEAD", f"/v1/blobs/{name}", **headers).headers["X-Received"]
    assert put(hostile, wrong, 0, 999_999, name=name, **its).status == 200
    assert [received(hostile, **its), received(honest, **mine), received(client)] == ["1000000", "0", "0"]
    assert put(honest, BODY, 0, 1_999_999, **mine).status == 200
    assert put(client, BODY, 0, 9, name=name).status == 200
    assert put(hostile, wrong, 1_000_000, len(BODY) - 1, name=name, **its).status == 400
    assert [received(hostile, **its), received(honest, **mine), received(client)] == ["0", "2000000", "10"]
    assert put(honest, BODY, 2_000_000, len(BODY) - 1, **mine).status == 201
    assert client.call("GET", f"/v1/blobs/{name}").raw == BODY


def test_unfinished_uploads_of_all_pilots_count_together_and_go_when_abandoned(tmp_path):
    from windfall.data.blobs import Blobs, Span

    store = Blobs(tmp_path)
    for by in ("", "1", "2"):
        assert not store.append("me", sha(BODY), Span(0, len(BODY), by), [BODY[:8192]])
    assert sum(store.begun("me").values()) == 3 * 8192
    assert store.append("me", sha(BODY), Span(8192, len(BODY), "1"), [BODY[8192:]])
    assert store.append("me", sha(BODY), Span(8192, len(BODY), "2"), [BODY[8192:]])
    assert store.used("me") == len(BODY)
    assert store.delete_stale_uploads(-10) == 8192 and store.begun("me") == {}


def test_pilot_must_send_a_blob_that_the_server_already_has(client):
    """A pilot must prove that it has the contents: the hash alone is not enough."""
    put(client, BODY)
    client.submit(sweep(1))
    pilot = Pilot(client)
    (attempt, *_), = pilot.get()
    mark = {"X_Attempt": str(attempt)}
    wrong = bytes(len(BODY))
    assert put(pilot.client, wrong, name=sha(BODY), **mark).status == 400
    assert put(pilot.client, BODY, 2_000_000, 2_999_999, **mark).status == 409
    assert put(pilot.client, BODY[:-1], name=sha(BODY), **mark).status == 400
    assert pilot.client.call("HEAD", f"/v1/blobs/{sha(BODY)}", **mark).status == 404
    assert put(pilot.client, BODY, 0, 999_999, **mark).status == 200
    head = pilot.client.call("HEAD", f"/v1/blobs/{sha(BODY)}", **mark)
    assert (head.status, head.headers["X-Received"]) == (404, "1000000")
    assert put(pilot.client, BODY, 1_000_000, len(BODY) - 1, **mark).status == 201
    assert pilot.client.call("HEAD", f"/v1/blobs/{sha(BODY)}", **mark).status == 200
    pilot.finish([attempt], files=[["o", sha(BODY), len(BODY), 0o644]])
    row = client.call("GET", "/v1/bags/1/results").body["rows"][0]
    assert (row["state"], row["note"] or "") == ("succeeded", "")


def test_pilot_does_not_learn_whether_its_owner_has_a_blob(client):
    """Every answer to a pilot is the same for a blob that the owner has and for one that nobody has."""
    there, absent = BODY, os.urandom(len(BODY))
    put(client, there)
    (pilot, mark), _ = two_pilots_with_a_task_each(client)
    end = len(BODY) - 1

    def answers(body):
        name, zeros = sha(body), bytes(len(body))
        steps = [
            ("HEAD", None), ("GET", None), ("HEAD", None), (body, 1, 2), (zeros, 0, 0), ("HEAD", None), (zeros, 1, end),
            ("HEAD", None), (body[:9], 0, 8), (body, 0, 999_999), ("HEAD", None), (body, 5, 9),
            (body[:-1], 1_000_000, end - 1), (body, 0, 999_999), (body, 1_000_000, end), ("HEAD", None)]
        for what, *span in steps:
            if isinstance(what, str):
                reply = pilot.call(what, f"/v1/blobs/{name}", **mark)
            else:
                reply = put(pilot, what, *span, name=name, **mark)
            shown = {key: value for key, value in reply.headers.items() if key != "Date"}
            yield what if isinstance(what, str) else span, reply.status, str((shown, reply.raw)).replace(name, "NAME")
    known, unknown = list(answers(there)), list(answers(absent))
    assert known == unknown
    assert [status for _, status, _ in known[-3:]] == [200, 201, 200]
    assert [status for _, status, _ in known[:4]] == [404, 404, 404, 409]


def test_sent_blobs_are_known_after_a_restart_until_their_attempt_ends(tmp_path):
    from windfall.server.files.sent import SentBlobs

    ended = set()
    first = SentBlobs(tmp_path / "sent", lambda attempt: attempt not in ended)
    for attempt in (1, 2):
        first.add(attempt, sha(b"a"))
        first.add(attempt, sha(b"b"))
    first.add(1, sha(b"a"))
    ended.add(1)
    (tmp_path / "sent").open("a").write("3 half-written")
    second = SentBlobs(tmp_path / "sent", lambda attempt: attempt not in ended)
    assert (set(second.by(1)), set(second.by(2)), set(second.by(3))) == (set(), {sha(b"a"), sha(b"b")}, set())
    assert len((tmp_path / "sent").read_text().splitlines()) == 2
    second.add(4, sha(b"a"))
    assert second.ended() is None
    second.forget([2])
    assert set(second.by(4)) == {sha(b"a")} and (tmp_path / "sent").read_text() == f"4 {sha(b'a')}\n"


def test_arguments_of_calls_must_be_there_when_they_are_submitted(client):
    body = b"arguments"
    sha = hashlib.sha256(body).hexdigest()
    items = {"type": "items", "items": [f"Zg== @{sha}:{len(body)}"]}
    bag = {"name": "calls", "open": True, "targets": [{"kind": "call", "source": items}]}
    refused = client.call("POST", "/v1/bags", bag)
    assert refused.status == 400 and "part of a call" in refused.body["error"]["message"]
    assert client.call("PUT", f"/v1/blobs/{sha}", raw=body).status == 201
    number = client.submit(bag)
    other = {"type": "items", "items": [f"Zg== @{'ab' * 32}:9"]}
    assert client.call("POST", f"/v1/bags/{number}/tasks", {"source": other}).status == 400
    assert client.call("POST", f"/v1/bags/{number}/tasks", {"source": items}).status == 200
