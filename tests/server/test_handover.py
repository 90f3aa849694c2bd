"""Files from task to task: `Bag.flows`."""

import hashlib

import pytest
from server_tools import Client, Pilot, until

from windfall.server.dataflow import handover


def sha(text):
    return hashlib.sha256(text).hexdigest()


def graph(names, flows, **more):
    """Return a bag with one target, a task per name, each with the output `out`; flows are (before, after, place)."""
    source = {"type": "lines", "text": "\n".join(names), "count": len(names)}
    places = ["out", *dict.fromkeys(place for _, _, place in flows)]
    columns = {"names": places, "before": [f[0] for f in flows], "after": [f[1] for f in flows],
               "name": [0] * len(flows), "place": [places.index(f[2]) for f in flows], **more}
    return {"name": "g", "targets": [{"source": source, "outputs": ["out"], "retries": 0}], "flows": columns}


def take(pilot):
    """[(attempt, command, {path: blob})] of what is granted."""
    answer = until(lambda: [group for grant in pilot.exchange(want=9, wait=200).get("grants", ())
                            for group in grant["groups"]])
    return [(task[0], task[1], {path: blob for path, blob, _, _ in (task[2] if task[2:] else {}).get("inputs", ())})
            for group in answer for task in group["tasks"]]


def make(pilot, attempt, body):
    assert pilot.client.call("PUT", f"/v1/blobs/{sha(body)}", raw=body, X_Attempt=str(attempt)).status == 201
    return pilot.finish([attempt], files=[["out", sha(body), len(body), 0o755]])


DIAMOND = [(0, 1, "in/a"), (0, 2, "in/a"), (1, 3, "left"), (2, 3, "right")]


def test_a_task_is_handed_what_those_before_it_made(client):
    bag, pilot = client.submit(graph(["top", "l", "r", "end"], DIAMOND)), Pilot(client)
    ((first, command, none),) = take(pilot)
    assert command == ["top"] and none == {}
    make(pilot, first, b"one")
    both = take(pilot)
    assert [inputs for _, _, inputs in both] == [{"in/a": sha(b"one")}] * 2
    for number, (attempt, _, _) in enumerate(both):
        assert pilot.client.call("GET", f"/v1/blobs/{sha(b'one')}", X_Attempt=str(attempt)).raw == b"one"
        make(pilot, attempt, b"%d" % number)
    ((last, command, inputs),) = take(pilot)
    assert command == ["end"] and inputs == {"left": sha(b"0"), "right": sha(b"1")}
    told = client.call("GET", f"/v1/bags/{bag}/tasks/3/spec").body
    assert {path: blob for path, blob, _, _ in told["inputs"]} == inputs


def test_attempt_cannot_read_outputs_that_no_flow_hands_it(client):
    client.submit(graph(["a", "b", "c"], [(0, 1, "in")]))
    pilot = Pilot(client)
    granted = {command[0]: attempt for attempt, command, _ in take(pilot)}
    make(pilot, granted["a"], b"secret")
    assert pilot.client.call("GET", f"/v1/blobs/{sha(b'secret')}", X_Attempt=str(granted["c"])).status == 404


def test_blob_of_a_flow_is_an_input_of_its_task(client):
    body = b"from elsewhere"
    assert client.call("PUT", f"/v1/blobs/{sha(body)}", raw=body).status == 201
    flows = [(-1, 0, "in/x"), (0, 1, "in/x")]
    bag = graph(["a", "b"], flows, blobs=[[sha(body), len(body), 0o600]])
    client.submit(bag)
    ((_, _, inputs),) = take(Pilot(client))
    assert inputs == {"in/x": sha(body)}
    bag["flows"]["blobs"] = [["0" * 64, 5, 0o600]]
    assert client.call("POST", "/v1/bags", bag).status == 400


def test_after_a_restart_the_files_are_looked_up(start):
    server = start()
    client = Client(server.profile)
    client.submit(graph(["a", "b"], [(0, 1, "in")]))
    pilot = Pilot(client)
    ((attempt, _, _),) = take(pilot)
    make(pilot, attempt, b"kept")
    server.kill()
    ((_, command, inputs),) = take(Pilot(Client(start().profile), nonce="m"))
    assert command == ["b"] and inputs == {"in": sha(b"kept")}


def test_handed_files_are_looked_up_again_when_the_cache_is_full(client, monkeypatch):
    monkeypatch.setattr(handover, "KEPT", 1)
    client.submit(graph(["a", "b", "c", "d"], [(0, 2, "in"), (1, 3, "in")]))
    pilot = Pilot(client)
    for number, (attempt, _, _) in enumerate(take(pilot)):
        make(pilot, attempt, b"%d" % number)
    found = {}
    while len(found) < 2:
        found.update((command[0], inputs["in"]) for _, command, inputs in take(pilot))
    assert found == {"c": sha(b"0"), "d": sha(b"1")}


def test_a_failure_cancels_only_what_comes_after_it(client):
    bag, pilot = client.submit(graph(["a", "b", "c", "d"], [(0, 2, "in"), (1, 3, "in")])), Pilot(client)
    granted = {command[0]: attempt for attempt, command, _ in take(pilot)}
    pilot.exchange(reports=[{"a": granted["a"], "o": "failed", "why": "exit", "exit": 1}])
    make(pilot, granted["b"], b"x")
    ((last, command, _),) = take(pilot)
    assert command == ["d"]
    make(pilot, last, b"y")
    counts = until(lambda: (now := client.call("GET", f"/v1/bags/{bag}").body)["state"] == "failed" and now["counts"])
    assert (counts["failed"], counts["cancelled"], counts["succeeded"]) == (1, 1, 2)


@pytest.mark.parametrize("change, says", [
    ({"before": [5]}, "before"), ({"before": [-1]}, "before"), ({"after": [2]}, "after"), ({"name": [9]}, "name"),
    ({"names": ["out", "../up"]}, "inside"), ({"names": ["in", "other"]}, "has no output"),
    ({"before": [0, 0]}, "equally long"), ({"after": [0]}, "circle"),
    ({"before": [0, 0], "after": [1, 1], "name": [0, 0], "place": [1, 1]}, "same path"),
    ({"blobs": [["x", 1, 1]]}, "SHA-256"),
])  # fmt: skip
def test_flows_that_lead_nowhere_are_refused(client, change, says):
    bag = graph(["a", "b"], [(0, 1, "in")])
    bag["flows"].update(change)
    reply = client.call("POST", "/v1/bags", bag)
    assert reply.status == 400 and says in reply.body["error"]["message"], reply.raw
