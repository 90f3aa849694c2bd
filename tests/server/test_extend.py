"""A bag that has ended gets more tasks, and runs again."""

from hashlib import sha256
from types import SimpleNamespace

import pytest
from msgspec import convert, msgpack
from msgspec.structs import replace
from server_tools import Pilot, sweep

import windfall
from windfall.errors import Conflict
from windfall.model.spec import Bag, Family, Range, Source, Sweep, Target
from windfall.server import grants
from windfall.server.calls import bags


def points(first, last):
    return {"type": "sweep", "axes": [{"type": "range", "name": "x", "first": first, "last": last}]}


def run_all(pilot):
    done = []
    while granted := pilot.get(want=100):
        pilot.finish([task[0] for task in granted])
        done += [task[1] for task in granted]
    return done


def test_extended_sweep_runs_only_its_new_points(client):
    bag, pilot = client.submit(sweep(3)), Pilot(client)
    assert len(run_all(pilot)) == 3
    assert client.call("GET", f"/v1/bags/{bag}").body["state"] == "succeeded"
    body = {"source": points(4, 5), "key": "once"}
    reply = client.call("POST", f"/v1/bags/{bag}/extend", body)
    assert reply.body == {"first": 3, "count": 2}
    assert client.call("POST", f"/v1/bags/{bag}/extend", body).body == reply.body, "the same key, the same tasks"
    shown = client.call("GET", f"/v1/bags/{bag}").body
    assert (shown["state"], shown["tasks"], shown["ended"]) == ("waiting", 5, None)
    assert run_all(pilot) == [["echo", "4"], ["echo", "5"]]
    assert client.call("GET", f"/v1/bags/{bag}").body["state"] == "succeeded"
    rows = client.call("GET", f"/v1/bags/{bag}/results").body["rows"]
    assert [row["params"]["x"] for row in rows] == [1, 2, 3, 4, 5]
    assert client.call("GET", f"/v1/bags/{bag}/statistics").body["accepted"] == 5


def test_extension_survives_a_restart(start):
    from server_tools import Client
    server = start()
    client = Client(server.profile)
    bag, pilot = client.submit(sweep(2)), Pilot(client)
    run_all(pilot)
    client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(3, 3)})
    server.kill()
    client = Client(start().profile)
    assert client.call("GET", f"/v1/bags/{bag}").body["counts"]["ready"] == 1
    assert run_all(Pilot(client, nonce="m")) == [["echo", "3"]]


@pytest.mark.parametrize("source, says", [
    ({"type": "lines", "text": "echo 9", "count": 1}, "is a sweep"),
    ({"type": "sweep", "axes": [{"type": "range", "name": "y", "first": 1, "last": 2}]}, "parameter"),
])
def test_extension_of_another_kind_or_with_other_parameters_is_refused(client, source, says):
    bag = client.submit(sweep(1))
    reply = client.call("POST", f"/v1/bags/{bag}/extend", {"source": source})
    assert reply.status == 400 and says in reply.body["error"]["message"]
    assert client.call("GET", f"/v1/bags/{bag}").body["tasks"] == 1


def test_target_that_others_have_waited_for_cannot_be_extended(client):
    two = sweep(1)
    two["targets"].append({"name": "merge", "after": ["main"], "command": "merge"})
    bag, pilot = client.submit(two), Pilot(client)
    reply = client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(2, 2)})
    assert reply.status == 200, "nothing of it has begun"
    pilot.finish([task[0] for task in pilot.get(want=2)])
    reply = client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(3, 3)})
    assert reply.status == 409 and "main" in reply.body["error"]["message"]


def test_extension_is_refused_if_the_bag_was_extended_meanwhile(client):
    bag = client.submit(sweep(1))
    assert client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(2, 2), "seen": 0}).status == 200
    late = client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(2, 3), "seen": 0})
    assert late.status == 409 and "meanwhile" in late.body["error"]["message"]
    assert client.call("GET", f"/v1/bags/{bag}").body["tasks"] == 2


class Slow(windfall.Client):
    """Between its look and its order somebody else extends the bag."""

    def appended(self, bag):
        found = super().appended(bag)
        if first := self.__dict__.pop("first", None):
            first()
        return found


def up_to(bag, last):
    """The same sweep with more points."""
    first, *others = bag.targets
    return replace(bag, targets=[replace(first, source=convert(points(1, last), Source)), *others])


def test_two_clients_at_once_run_no_point_twice(client):
    bag = client.submit(sweep(2))
    one, two = windfall.Client(client.profile), Slow(client.profile)
    two.first = lambda: one.extend(bag, up_to(one.spec(bag), 5))
    assert two.extend(bag, up_to(one.spec(bag), 6)) == {"main": 1}
    run = [command[1] for command in run_all(Pilot(client))]
    assert sorted(run) == ["1", "2", "3", "4", "5", "6"]
    one.close(), two.close()


def test_a_refusal_for_another_reason_is_told(client):
    two = sweep(1)
    two["targets"].append({"name": "merge", "after": ["main"], "command": "merge"})
    bag, pilot = client.submit(two), Pilot(client)
    pilot.finish([task[0] for task in pilot.get(want=2)])
    with windfall.Client(client.profile) as user:
        with pytest.raises(Conflict, match="is done"):
            user.extend(bag, up_to(user.spec(bag), 2))


def test_appended_sources_come_in_pages(client, monkeypatch):
    monkeypatch.setattr(bags, "PAGE_BYTES", 100)
    bag = client.submit(sweep(1))
    for x in range(2, 12):
        client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(x, x)})
    pages, after = 0, 0
    found = []
    while after is not None:
        page = client.call("GET", f"/v1/bags/{bag}/appended?after={after}").body
        found += [row["source"]["axes"][0]["first"] for row in page["appended"]]
        pages, after = pages + 1, page["next"]
    assert found == list(range(2, 12)) and pages > 2
    with windfall.Client(client.profile) as user:
        assert len(user.appended(bag)) == 10


def test_time_without_work_is_not_the_bags(server, client):
    bag, pilot = client.submit(sweep(2)), Pilot(client)
    run_all(pilot)
    state = server._runtime.writer.state.bags[bag]
    first = client.call("GET", f"/v1/bags/{bag}/statistics").body["wall_clock"]
    assert first == state.busy_ms == state.ended - state.submitted and state.busy_since == 0
    state.ended = state.submitted = 1  # as if it had been long ago
    client.call("POST", f"/v1/bags/{bag}/extend", {"source": points(3, 3)})
    assert state.busy_since and state.busy_ms == first
    run_all(pilot)
    again = client.call("GET", f"/v1/bags/{bag}/statistics").body["wall_clock"]
    assert first <= again == state.busy_ms < 60_000


def sent(client, data):
    sha = sha256(data).hexdigest()
    assert client.call("PUT", f"/v1/blobs/{sha}", raw=data).status < 300
    return [sha, len(data), 0o644]


def test_a_name_stands_for_one_content(client):
    one, other = (sent(client, data) for data in (b"one", b"other"))
    bag = sweep(1)
    bag["targets"][0]["families"] = [{"path": "in", "source": "d-{x}", "files": {"d-1": one}}]
    bag = client.submit(bag)
    body = {"source": points(2, 2), "files": [{"d-2": one}]}
    assert client.call("POST", f"/v1/bags/{bag}/extend", body).status == 200
    for name in ("d-1", "d-2"):
        body = {"source": points(3, 3), "files": [{"d-3": one, name: other}]}
        reply = client.call("POST", f"/v1/bags/{bag}/extend", body)
        assert reply.status == 400 and f"'{name}' has changed" in reply.body["error"]["message"]
    body = {"source": {"type": "sweep", "axes": [{"type": "values", "name": "x", "values": [2]}]}}
    assert client.call("POST", f"/v1/bags/{bag}/extend", body).status == 200, "files of an extension are known"


def test_files_of_extensions_are_read_once(monkeypatch):
    """Every extension asks for those of all before."""
    source = Sweep(axes=[Range(name="x", first=1, last=1)])
    family = Family(path="in", source="d-{x}", files={"d-1": ("a" * 64, 1, 0o644)})
    target = Target(command="p {x}", source=source, families=[family])
    bag = SimpleNamespace(spec=msgpack.encode(Bag(name="b", targets=[target])), appended=[], reread=0)
    rendering, decode, decoded = grants.Rendering(bag, None, None), grants._decode_target_append, []
    monkeypatch.setattr(grants, "_decode_target_append", lambda packed: decoded.append(1) or decode(packed))
    for number in range(2, 50):
        bag.appended.append(msgpack.encode((0, source, [{f"d-{number}": ("b" * 64, 1, 0o644)}])))
        assert len(rendering.family_files(0)[0]) == number
    assert len(decoded) == 48 and rendering.family_files(0)[0]["d-1"][0] == "a" * 64
