"""Quotas of file contents, and bags that are removed when they are old."""

import hashlib

import pytest
from server_tools import Client, Pilot, sweep, until

from windfall.server.files import quota
from windfall.server.files.quota import Quota


def put(client, body, **headers):
    return client.call("PUT", f"/v1/blobs/{hashlib.sha256(body).hexdigest()}", raw=body, **headers)


def limit(runtime, size):
    bags = runtime.writer.state.bags
    runtime.bags.quota = runtime.blobs.quota = Quota(size, runtime.blobs.store, runtime.projector, bags)


@pytest.fixture
def runtime(server, client):
    return server._runtime


@pytest.fixture
def small(runtime):
    limit(runtime, 1_000)


def test_upload_of_a_user_is_refused_beyond_the_quota(client, small):
    assert put(client, b"a" * 600).status == 201
    assert put(client, b"b" * 400).status == 201
    refused = put(client, b"c" * 50)
    assert refused.status == 507 and refused.code == "over-quota"
    assert put(client, b"a" * 600).status == 507, "asking whether it is there costs nothing, sending it does"
    assert client.call("HEAD", f"/v1/blobs/{hashlib.sha256(b'a' * 600).hexdigest()}").status == 200
    assert client.call("POST", "/v1/bags", sweep(1)).status == 201, "full is not yet over"


def test_results_come_home_all_the_same_and_then_no_new_bag_is_taken(client, small):
    bag, pilot = client.submit(sweep(1, name="greedy", outputs=["out"])), Pilot(client)
    ((attempt, *_),) = pilot.get()
    body = b"r" * 1_900
    assert put(pilot.client, body, X_Attempt=str(attempt)).status == 201
    assert put(pilot.client, body, X_Attempt=str(attempt)).status == 201, "what is here costs nothing"
    pilot.finish([attempt], files=[["out", hashlib.sha256(body).hexdigest(), 1_900, 0o644]])
    refused = client.call("POST", "/v1/bags", sweep(1))
    assert refused.status == 507
    assert f"windfall rm {bag} ('greedy'" in refused.body["error"]["hint"]


def test_results_beyond_twice_the_quota_are_refused(client, small):
    bag, pilot = client.submit(sweep(1, outputs=["out"])), Pilot(client)
    ((attempt, *_),) = pilot.get()
    refused = pilot.client.call("PUT", f"/v1/blobs/{'a' * 64}", raw=bytes(10), X_Attempt=str(attempt),
                                Content_Range="bytes 0-9/50000000000")
    assert refused.status == 507 and refused.code == "over-quota" and bag
    says = refused.body["error"]["message"]
    assert says.startswith("your quota is used up; windfall rm BAG makes room: "), "a failed task has no more"


def test_quota_counts_a_result_that_its_owner_has_already_as_any_other(client, runtime, small):
    """Otherwise a pilot learns from a refusal whether the owner has a file of that hash."""
    there, absent = b"t" * 900, b"a" * 900
    assert put(client, there).status == 201
    client.submit(sweep(1, outputs=["out"]))
    pilot = Pilot(client)
    ((attempt, *_),) = pilot.get()
    limit(runtime, 800)
    refused = [put(pilot.client, body, X_Attempt=str(attempt)) for body in (there, absent)]
    assert [each.status for each in refused] == [507, 507] and refused[0].raw == refused[1].raw


def test_usage_lists_bytes_by_user_and_bag(client, runtime, small):
    bag, pilot = client.submit(sweep(1, outputs=["out"])), Pilot(client)
    ((attempt, *_),) = pilot.get()
    body = b"r" * 500
    assert put(pilot.client, body, X_Attempt=str(attempt)).status == 201
    pilot.finish([attempt], files=[["out", hashlib.sha256(body).hexdigest(), 500, 0o644]])
    owner = client.call("GET", f"/v1/bags/{bag}").body["owner"]
    bob = Client(client.profile, client.token_for("user", user="bob")["token"])
    put(bob, b"b" * 7)
    found = client.call("GET", "/v1/usage").body
    assert found == {"quota": 1_000, "used": 500, "users": {owner: 500, "bob": 7}, "bags": {str(bag): 500}}
    assert client.call("GET", f"/v1/bags/{bag}/statistics").body["stored"] == 500
    assert bob.call("GET", "/v1/usage").body == {"quota": 1_000, "used": 7, "users": {"bob": 7}, "bags": {}}
    runtime.bags.quota = None
    assert client.call("GET", "/v1/usage?bags=0").body == {"quota": 0, "used": 0, "users": {}, "bags": {}}


def test_quotas_of_two_users_are_separate(client, small):
    assert put(client, b"a" * 900).status == 201
    other = Client(client.profile, client.token_for("user", user="bob")["token"])
    assert put(other, b"b" * 900).status == 201
    assert put(client, b"c" * 900).status == 507


def test_used_bytes_follow_uploads_and_deletions(runtime, client):
    put(client, b"a" * 600)
    store, owner = runtime.blobs.store(), client.call("GET", "/v1/sites").body["sites"][0]["owner"]
    assert store.used(owner) == 600
    put(client, b"b" * 100)
    assert store.used(owner) == 700
    store.delete_unreferenced(lambda owner, sha: False, older_than=-1)
    assert store.used(owner) == 0


def test_a_bag_older_than_what_is_kept_is_removed(runtime, client):
    old, pilot = client.submit(sweep(1)), Pilot(client)
    pilot.finish([pilot.get()[0][0]])
    running = client.submit(sweep(1))
    keeper = runtime.keeper
    keeper.keep = 3_600_000
    keeper._loop.call_soon_threadsafe(keeper._hourly)
    assert client.call("GET", f"/v1/bags/{old}").status == 200
    keeper.keep = -1_000
    keeper._loop.call_soon_threadsafe(keeper._hourly)
    until(lambda: client.call("GET", f"/v1/bags/{old}").status == 404)
    assert client.call("GET", f"/v1/bags/{running}").status == 200


def test_more_tasks_are_refused_beyond_it_too(client, runtime):
    closed, opened = client.submit(sweep(1)), client.submit({**sweep(1), "name": "open", "open": True})
    put(client, b"a" * 600)
    limit(runtime, 500)
    more = {"type": "sweep", "axes": [{"type": "range", "name": "x", "first": 2, "last": 2}]}
    assert client.call("POST", f"/v1/bags/{closed}/extend", {"source": more}).status == 507
    lines = {"type": "lines", "text": "true", "count": 1}
    assert client.call("POST", f"/v1/bags/{opened}/tasks", {"source": lines}).status == 507


@pytest.fixture
def limited(runtime):
    limit(runtime, 20_000)


def piece(client, sha, first, body, total):
    said = f"bytes {first}-{first + len(body) - 1}/{total}"
    return client.call("PUT", f"/v1/blobs/{sha}", raw=body, Content_Range=said)


def test_an_upload_does_not_outgrow_the_quota_piece_by_piece(client, limited):
    sha = hashlib.sha256(b"a" * 50_000).hexdigest()
    assert piece(client, sha, 0, b"a", 2).status == 200
    refused = piece(client, sha, 1, b"a" * 49_999, 50_000)
    assert refused.status == 507 and refused.code == "over-quota"


def test_uploads_that_are_not_finished_count(client, limited):
    names = [hashlib.sha256(bytes([n])).hexdigest() for n in range(3)]
    assert [piece(client, sha, 0, b"a" * 9_000, 9_500).status for sha in names] == [200, 200, 507]
    assert piece(client, names[0], 9_000, b"a" * 500, 9_500).status == 400, "it is the hash that does not fit"
    assert piece(client, names[2], 0, b"a" * 9_000, 9_500).status == 200, "what was dropped counts no more"


def test_long_descriptions_of_bags_count(client, limited, monkeypatch):
    monkeypatch.setattr(quota, "FREE", 10_000)
    lines = {"type": "lines", "text": "echo " + "x" * 9_000, "count": 1}
    bag = client.submit({"name": "b", "open": True, "targets": [{"source": lines}]})
    statuses = [client.call("POST", f"/v1/bags/{bag}/tasks", {"source": lines}).status for _ in range(4)]
    assert statuses == [200, 200, 200, 507]
    assert client.call("POST", "/v1/bags", sweep(1)).status == 507
