"""Output files of one target as inputs of another."""

import hashlib

import pytest
from server_tools import Client, Pilot, sweep, until

from windfall.server import gather

BLOB = hashlib.sha256(b"part").hexdigest()


def two(n, command="merge {main.outputs}", **more):
    bag = sweep(n, outputs=["out-{x}.txt"])
    bag["targets"].append({"name": "merge", "after": ["main"], "takes": ["main"], "command": command, **more})
    return bag


def run_main(pilot, path="out-{}.txt"):
    """In the order in which they came, so that results come in another than the tasks' own."""
    tasks = pilot.get(want=100)
    for number, (attempt, *_) in reversed(list(enumerate(tasks, 1))):
        body = b"part"
        reply = pilot.client.call("PUT", f"/v1/blobs/{BLOB}", raw=body, X_Attempt=str(attempt))
        assert reply.status == 201
        pilot.finish([attempt], files=[[path.format(number), BLOB, 4, 0o644]])


def merge(pilot):
    return until(lambda: [group for grant in pilot.exchange(want=9, wait=200).get("grants", ())
                          for group in grant["groups"]])[0]


def test_the_files_are_there_in_the_order_of_tasks(client):
    client.submit(two(3))
    pilot = Pilot(client)
    run_main(pilot)
    group = merge(pilot)
    ((attempt, command),) = group["tasks"]
    paths = [f"main/{i}/out-{i + 1}.txt" for i in range(3)]
    assert command == ["merge", *paths]
    inputs = {path: sha for path, sha, _, _ in group["spec"]["inputs"]}
    assert [inputs[path] for path in paths] == [BLOB] * 3
    assert list(inputs)[-1] == "main.outputs"
    listed = pilot.client.call("GET", f"/v1/blobs/{inputs['main.outputs']}", X_Attempt=str(attempt))
    assert listed.raw.decode().split("\n") == [*paths, ""]
    assert pilot.client.call("GET", f"/v1/blobs/{BLOB}", X_Attempt=str(attempt)).raw == b"part"


def test_after_a_restart_they_are_gathered_again(start):
    server = start()
    client = Client(server.profile)
    bag, pilot = client.submit(two(2)), Pilot(client)
    run_main(pilot)
    until(lambda: client.call("GET", f"/v1/bags/{bag}").body["counts"]["ready"] == 1)
    server.kill()
    group = merge(Pilot(Client(start().profile), nonce="m"))
    assert group["tasks"][0][1] == ["merge", "main/0/out-1.txt", "main/1/out-2.txt"]


@pytest.mark.parametrize("limit, value, says", [
    ("MAX_FILES", 2, "more than 2 output files"), ("MAX_COMMAND", 20, "main.outputs")])
def test_too_much_ends_the_tasks_with_a_word(client, monkeypatch, limit, value, says):
    monkeypatch.setattr(gather, limit, value)
    bag, pilot = client.submit(two(3)), Pilot(client)
    run_main(pilot)
    until(lambda: client.call("GET", f"/v1/bags/{bag}").body["state"] == "cancelled")
    row = client.call("GET", f"/v1/bags/{bag}/results?state=cancelled").body["rows"][0]
    assert says in row["why"]


def test_a_path_that_leads_elsewhere_is_not_brought(client):
    bag, pilot = client.submit(two(1)), Pilot(client)
    run_main(pilot, "../../escape-{}")
    until(lambda: client.call("GET", f"/v1/bags/{bag}").body["state"] == "cancelled")
    row = client.call("GET", f"/v1/bags/{bag}/results?state=cancelled").body["rows"][0]
    assert "escape" in row["why"]


def test_it_waits_until_then(client):
    bag = client.submit(two(1))
    said = client.call("GET", f"/v1/bags/{bag}/explain?task=1").body
    assert said["state"] == "waiting" and "main" in said["summary"]
