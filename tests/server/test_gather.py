"""Output files of one target as inputs of another."""

import hashlib

import pytest
from server_tools import Client, Pilot, sweep, tasks, until

from windfall.errors import BadInput
from windfall.server.dataflow import gather

BLOB = hashlib.sha256(b"part").hexdigest()


def two(n, command="merge {main.outputs}", **more):
    bag = sweep(n, outputs=["out-{x}.txt"])
    bag["targets"].append({"name": "merge", "after": ["main"], "takes": ["main"], "command": command, **more})
    return bag


def run_main(pilot, path="out-{}.txt"):
    """In the order in which they came, so that results come in another than the tasks' own."""
    granted = pilot.get(want=100)
    for number, (attempt, *_) in reversed(list(enumerate(granted, 1))):
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
    assert row["why"] == "gather" and says in row["note"]


def test_a_path_that_leads_elsewhere_is_not_brought(client):
    whole = two(1)
    whole["targets"][0]["retries"] = 0
    bag, pilot = client.submit(whole), Pilot(client)
    run_main(pilot, "../../escape-{}")
    until(lambda: client.call("GET", f"/v1/bags/{bag}").body["state"] == "failed")
    row = client.call("GET", f"/v1/bags/{bag}/results?state=failed").body["rows"][0]
    assert row["note"] == "the output out-1.txt never arrived"
    with pytest.raises(BadInput, match="escape"):
        gather._place(gather.TargetOutputs({}, [], set()), "main", [(0, [("../../escape", BLOB, 4, 0o644)])])


def test_task_shows_that_its_command_has_files_of_another_target(client):
    """Without them `show` would print a `merge` of nothing."""
    bag = client.submit(two(1, command="merge {main.outputs} > all"))
    assert client.call("GET", f"/v1/bags/{bag}/tasks/1").body["command"] == "merge main/... > all"


def test_task_waits_until_the_target_it_takes_files_from_is_done(client):
    bag = client.submit(two(1))
    said = client.call("GET", f"/v1/bags/{bag}/explain?task=1").body
    assert said["state"] == "waiting" and "main" in said["summary"]


class Faulty:
    """A disk that fails so many times."""

    def __init__(self, monkeypatch, times):
        self.left, self.store = times, gather._store
        monkeypatch.setattr(gather, "_store", self)
        monkeypatch.setattr(gather, "AGAIN_S", 0.05)

    def __call__(self, *arguments):
        self.left -= 1
        if self.left >= 0:
            raise OSError(5, "Input/output error")
        return self.store(*arguments)


def test_a_disk_that_fails_is_tried_again(client, monkeypatch):
    faulty = Faulty(monkeypatch, 3)
    client.submit(two(2))
    pilot = Pilot(client)
    run_main(pilot)
    assert merge(pilot)["tasks"][0][1] == ["merge", "main/0/out-1.txt", "main/1/out-2.txt"]
    assert faulty.left == -1


def test_while_it_cannot_be_gathered_everything_else_goes_on(server, client, monkeypatch):
    client.submit(two(1))
    pilot = Pilot(client)
    run_main(pilot)
    acknowledged, attempt = pilot.ack, merge(pilot)["tasks"][0][0]

    def exchange(**more):
        pilot.ack = acknowledged  # what came after a grant that is missing does not make up for it
        return pilot.exchange(**more)

    server._runtime.gatherer._forget(1)
    faulty = Faulty(monkeypatch, 1 << 30)
    until(lambda: exchange() and faulty.left < (1 << 30), 20)
    other = client.submit(sweep(1))
    answer = exchange(want=9)
    assert [g["spec"]["bag"] for grant in answer["grants"] for g in grant["groups"]] == [other]
    assert answer["again"] > 0, "it does not ask without a pause"
    client.call("POST", f"/v1/bags/{other}/cancel", {})
    assert exchange()["cancel"]
    faulty.left = 0
    granted = until(lambda: [task for task in tasks(exchange()) if task[0] == attempt])
    assert granted[0][1] == ["merge", "main/0/out-1.txt"]


def test_a_bag_that_is_removed_meanwhile_is_let_go(server, client, monkeypatch):
    faulty = Faulty(monkeypatch, 1 << 30)
    bag, pilot = client.submit(two(1)), Pilot(client)
    run_main(pilot)
    until(lambda: faulty.left < (1 << 30))
    client.call("POST", f"/v1/bags/{bag}/cancel", {})
    assert client.call("POST", f"/v1/bags/{bag}/remove").status == 200
    until(lambda: not server._runtime.gatherer._busy)
