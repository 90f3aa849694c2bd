"""Tasks that are appended to an open bag with what they wait for, and with the files they are handed."""

import hashlib
import json
import time

import msgspec
import pytest
from server_tools import Client, Pilot

from windfall.model.spec import Flows, Sweep, Table
from windfall.server.files import named_blobs


def table(*values, name="x"):
    return {"type": "sweep", "axes": [{"type": "table", "columns": [name], "text": "\n".join(map(str, values)),
                                       "count": len(values)}]}


def graph(**more):
    """Return an open bag with one task of `make` and none of `use`."""
    targets = [{"name": "make", "command": ["make", "{x}"], "source": table(1), "outputs": ["out/y"]},
               {"name": "use", "command": ["use", "{x}"], "source": table()}]
    return {"name": "graph", "targets": targets, "open": True, "flows": {}, **more}


def part(first, *pieces, edges=(), flows=None):
    made = {"first": first, "pieces": [{"target": target, "source": source} for target, source in pieces],
            "edges": list(edges)}
    return {**made, "flows": flows} if flows else made


def append(client, bag, body, **headers):
    return client.call("POST", f"/v1/bags/{bag}/parts", body, **headers)


def put(client, data, **headers):
    sha = hashlib.sha256(data).hexdigest()
    reply = client.call("PUT", f"/v1/blobs/{sha}", raw=data, **headers)
    assert reply.status in (200, 201), reply.raw
    return sha


def shown(client, bag):
    return client.call("GET", f"/v1/bags/{bag}").body


def flows(sha):
    """Task 1 takes what task 0 has made, task 2 what comes from outside, and what task 1 has made."""
    return {"names": ["out/y", "in/y", "in/z"], "before": [0, -1, 1], "name": [0, 2, 0], "after": [1, 2, 2],
            "place": [1, 2, 1], "blobs": [[sha, 4, 0o644]]}


def test_files_reach_tasks_that_came_later(start):
    """Also those of tasks that had ended before anybody was there to read them, and after a restart."""
    server = start()
    client = Client(server.profile)
    bag, pilot = client.submit(graph()), Pilot(client)
    (first,) = pilot.get()
    made = put(pilot.client, b"made", X_Attempt=str(first[0]))
    pilot.finish([first[0]], files=[["out/y", made, 4, 0o644]])
    reply = append(client, bag, part(1, ("make", table(7)), ("use", table(8)), flows=flows(put(client, b"more"))))
    assert reply.body == {"first": 1, "count": 2}
    assert shown(client, bag)["counts"]["waiting"] == 1
    server.kill()
    client = Client(start().profile)
    pilot = Pilot(client, nonce="m")
    (second,) = until_granted(pilot)
    assert second[1] == ["make", "7"] and [file[:2] for file in second[2]["inputs"]] == [["in/y", made]]
    assert pilot.client.call("GET", f"/v1/blobs/{made}", X_Attempt=str(second[0])).raw == b"made"
    again = put(pilot.client, b"again", X_Attempt=str(second[0]))
    pilot.finish([second[0]], files=[["out/y", again, 5, 0o644]])
    (third,) = until_granted(pilot)
    assert third[1] == ["use", "8"]
    assert sorted(file[0] for file in third[2]["inputs"]) == ["in/y", "in/z"]
    pilot.finish([third[0]])
    client.call("POST", f"/v1/bags/{bag}/close", {})
    assert shown(client, bag)["state"] == "succeeded"
    rows = client.call("GET", f"/v1/bags/{bag}/results").body["rows"]
    assert [(row["target"], row["params"]["x"]) for row in rows] == [("make", "1"), ("make", "7"), ("use", "8")]


def until_granted(pilot):
    """Poll until a grant arrives: after a restart, grants wait for the look-up of earlier tasks' files."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := pilot.get(wait=100):
            return found
        time.sleep(0.01)  # an answer without it may come at once
    raise AssertionError("nothing was granted")


def test_the_same_key_appends_once(client):
    bag, body = client.submit(graph()), part(1, ("use", table(1, 2)), edges=[[0, 1], [1, 2]])
    reply = append(client, bag, body, Idempotency_Key="k")
    assert append(client, bag, body, Idempotency_Key="k").body == reply.body == {"first": 1, "count": 2}
    assert shown(client, bag)["tasks"] == 3
    assert append(client, bag, body).code == "conflict", "the numbers have gone on"


def test_appended_part_is_returned_by_target_with_edges_and_flows(client):
    bag = client.submit(graph())
    wanted = part(1, ("make", table(7)), ("use", table(8)), edges=[[0, 2]], flows=flows(put(client, b"more")))
    append(client, bag, wanted)
    rows = client.call("GET", f"/v1/bags/{bag}/appended").body["appended"]
    assert [row["target"] for row in rows] == ["make", "use"]
    assert rows[0]["edges"] == [[0, 2]] and rows[1]["edges"] == [] and rows[1]["flows"] is None
    assert rows[0]["flows"]["before"] == [0, -1, 1]


def test_blobs_that_only_a_part_names_are_kept():
    source = Sweep(axes=[Table(columns=["x"], text="1", count=1)])
    entry = (0, source, [{"a": ("f" * 64, 1, 2)}], b"", Flows(blobs=[("b" * 64, 4, 0o644)]), (1, 2))
    assert named_blobs.appended_blobs(msgspec.msgpack.encode(entry)) == {"f" * 64, "b" * 64}


@pytest.mark.parametrize("body, says", [
    (part(1, ("none", table(1))), "no target"),
    (part(1, ("use", table(1)), edges=[[1, 0]]), "cannot wait for"),
    (part(1, ("use", table(1)), edges=[[0, 2]]), "cannot wait for"),
    (part(1, ("use", table(1, 2)), edges=[[1, 2], [2, 1]]), "circle"),
    (part(1, ("use", table(1, name="y"))), "parameter"),
    (part(1, ("use", table(1)), flows={"names": ["no"], "before": [0], "name": [0], "after": [1], "place": [0]}),
     "not an output"),
    (part(1, ("use", table(1)), flows={"names": ["out/y"], "before": [0], "name": [0], "after": [0], "place": [0]}),
     "allowed are 1"),
    (part(1, ("use", table(1)), flows={"names": ["/x"], "before": [0], "name": [0], "after": [1], "place": [0]}),
     "flows"),
    (part(1, ("use", table(1)), flows={"names": ["out/y"], "before": [-1], "name": [0], "after": [1], "place": [0],
                                       "blobs": [["0" * 64, 1, 1]]}), "has not been sent"),
    (part(1), "nothing was appended"),
    (part(-1, ("use", table(1))), "first"),
    (part(10**15, ("use", table(1)), edges=[[0, 10**15]]), "first"),
    ({"first": 1, "pieces": [], "more": 1}, "more"),
])  # fmt: skip
def test_inconsistent_part_is_refused(client, body, says):
    bag = client.submit(graph())
    reply = append(client, bag, body)
    assert reply.code == "bad-input" and says in json.dumps(reply.body)
    assert shown(client, bag)["tasks"] == 1


def test_numbers_that_no_bag_has_are_refused_before_they_are_read(client):
    """Each piece could be a bag, all together are beyond what a number of a task can be."""
    bag, many = client.submit(graph()), [("use", rows(100_000_000))] * 40
    taken = {"names": ["out/y"], "before": [0], "name": [0], "after": [3_000_000_000], "place": [0]}
    for body in (part(1, *many, edges=[[0, 3_000_000_000]]), part(1, *many, flows=taken)):
        assert append(client, bag, body).code == "too-large"
    assert shown(client, bag)["tasks"] == 1


def rows(count):
    return {"type": "sweep", "axes": [{"type": "range", "name": "x", "first": 1, "last": count}]}


def test_numbers_that_leave_a_gap_are_a_conflict_whatever_comes_with_them(client):
    """Files from tasks that are not there, too: it is the number that is wrong, not what hangs on it."""
    bag = client.submit(graph())
    taken = {"names": ["out/y"], "before": [3], "name": [0], "after": [5], "place": [0]}
    for body in (part(5, ("use", table(1))), part(5, ("use", table(1)), edges=[[3, 5]]),
                 part(5, ("use", table(1)), flows=taken)):
        reply = append(client, bag, body)
        assert (reply.status, reply.code) == (409, "conflict") and b"has 1 tasks, but the part begins at 5" in reply.raw


def test_no_circle_is_closed_through_targets(client):
    """All of `b` waits for all of `a`: a task of `a` that waited for one of `b` would wait for ever."""
    targets = [{"name": "a", "command": ["a", "{x}"], "source": table(1)},
               {"name": "b", "command": ["b", "{x}"], "source": table(1), "after": ["a"]}]
    bag = client.submit({"name": "stages", "targets": targets, "open": True})
    reply = append(client, bag, part(2, ("a", table(2)), edges=[[1, 2]]))
    assert reply.code == "bad-input" and "whole of 'a'" in reply.body["error"]["message"]
    assert append(client, bag, part(2, ("a", table(2)), ("b", table(3)), edges=[[2, 3]])).status == 200


def test_files_go_only_where_the_bag_said_so(client):
    bag = graph()
    del bag["flows"]
    reply = append(client, client.submit(bag), part(1, ("make", table(1)), ("use", table(2)),
                                                    flows=flows(put(client, b"more"))))
    assert reply.code == "bad-input" and "without flows" in reply.body["error"]["message"]


def test_closed_bag_without_tasks_is_refused(client):
    closed = {**graph(), "open": False}
    assert client.call("POST", "/v1/bags", closed).code == "bad-input"
