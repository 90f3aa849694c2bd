"""Grants: the fields of the bag language that they carry, and the blobs that a pilot may read by them."""

import hashlib

from server_tools import Pilot, sweep


def put(client, body, **headers):
    name = hashlib.sha256(body).hexdigest()
    reply = client.call("PUT", f"/v1/blobs/{name}", raw=body, **headers)
    assert reply.status == 201, reply.raw
    return name


def groups(answer):
    return [group for grant in answer["grants"] for group in grant["groups"]]


def test_everything_the_target_says_is_in_its_spec(client):
    env = put(client, b"an environment")
    client.submit(sweep(
        1, modules=["gcc"], container="image.sif", scratch="failed", resources={"cores": 1, "whole": True},
        packed={"blob": env, "size": 14, "python": "3.11"}, placed=[{"path": "ref", "there": "/data/ref"}],
        checkpoint=["state.bin"], outputs=["o.json"], capture=[{"name": "lod", "pattern": "LOD=(.*)"}],
        check={"schema": "{}", "file": ["o.json"], "command": "validate o.json"}))
    (group,) = groups(Pilot(client).exchange(want=1))
    spec = group["spec"]
    assert spec["modules"] == ["gcc"] and spec["container"] == "image.sif" and spec["scratch"] == "failed"
    assert spec["packed"] == [env, 14, "3.11"] and spec["whole"] is True
    assert spec["placed"] == [["ref", "/data/ref"]] and spec["checkpoint"] == ["state.bin"]
    assert spec["capture"] == [["lod", "LOD=(.*)", ""]]
    assert spec["check"] == {"schema": "{}", "file": ["o.json"], "command": ["validate", "o.json"]}
    assert len(group["tasks"][0]) == 2, "nothing differs from task to task"


def test_a_family_gives_each_task_its_own_file_and_no_other(client):
    names = {f"d-{x}.dat": (put(client, b"data %d" % x), 6, 0o644) for x in (1, 2)}
    shared = put(client, b"shared")
    client.submit(sweep(
        2, inputs=[{"path": "all", "blob": shared, "size": 6}],
        families=[{"path": "in.dat", "source": "d-{x}.dat", "files": names}]))
    pilot = Pilot(client)
    (group,) = groups(pilot.exchange(want=2))
    blobs = [names[name][0] for name in names]
    for (attempt, _, extra), own, other in zip(group["tasks"], blobs, blobs[::-1], strict=True):
        assert extra["inputs"] == [["all", shared, 6, 0o644], ["in.dat", own, 6, 0o644]]
        asked = [pilot.client.call("GET", f"/v1/blobs/{sha}", X_Attempt=str(attempt)).status
                 for sha in (shared, own, other)]
        assert asked == [200, 200, 404]


def test_a_family_whose_files_were_not_sent_is_refused(client):
    bag = sweep(1, families=[{"path": "in", "source": "d-{x}", "files": {"d-1": ("ab" * 32, 3, 0o644)}}])
    reply = client.call("POST", "/v1/bags", bag)
    assert reply.status == 400 and "d-1" in reply.body["error"]["message"]


def test_the_next_attempt_finds_what_the_last_one_saved(client):
    old = put(client, b"begin")
    bag = client.submit(sweep(
        1, scratch="failed", checkpoint=["state-{x}.bin"], inputs=[{"path": "state-1.bin", "blob": old, "size": 5}]))
    pilot = Pilot(client)
    ((attempt, *_),) = pilot.get()
    new = put(pilot.client, b"saved", X_Attempt=str(attempt))
    saved = [["state-1.bin", new, 5, 0o600], ["elsewhere", new, 5, 0o600]]
    pilot.finish([attempt], o="returned", why="stop", saved=saved)
    ((again, _, extra),) = pilot.get()
    assert extra["inputs"] == [["state-1.bin", new, 5, 0o600]], "in place of the input of that name, and no other name"
    read = pilot.client.call("GET", f"/v1/blobs/{new}", X_Attempt=str(again))
    assert read.raw == b"saved"
    pilot.finish([again], values={"lod": "3.5"}, scratch=[new, 5])
    row = client.call("GET", f"/v1/bags/{bag}/results").body["rows"][0]
    assert row["values"] == {"lod": "3.5"} and row["scratch"] == [new, 5] and row["saved"] == []
    attempts = client.call("GET", f"/v1/bags/{bag}/tasks/0").body["attempts"]
    assert attempts[0]["saved"][0][1] == new


def test_captured_values_out_of_bounds_are_cut_and_the_report_is_taken(client):
    bag = client.submit(sweep(1))
    pilot = Pilot(client)
    ((attempt, _),) = pilot.get()
    values = {**{f"v{i}": "x" * (5_000 if i < 100 else 10) for i in range(1_200)}, "n" * 300: "y"}
    pilot.finish([attempt], values=values)
    row = client.call("GET", f"/v1/bags/{bag}/results").body["rows"][0]
    assert len(row["values"]) == 1_000 and set(map(len, row["values"].values())) == {4_096, 10}
