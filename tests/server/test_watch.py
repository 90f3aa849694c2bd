"""Subscriptions."""

import threading

import pytest
from server_tools import Client, Pilot, sweep, until

from windfall.server import subscribe


def test_watch_says_everything_until_it_is_done(client):
    number = client.submit(sweep(4))
    lines = client.lines(f"/v1/bags/{number}/watch?from=0")
    assert next(lines)["counts"]["ready"] == 4
    pilot = Pilot(client)
    granted = [a for a, _ in pilot.get(want=2)]
    pilot.finish(granted)
    pilot.finish([a for a, _ in pilot.get(want=2)])
    rest = list(lines)
    assert rest[-1]["done"] is True and rest[-1]["counts"]["succeeded"] == 4
    positions = [line["position"] for line in rest]
    assert positions == sorted(positions)


def test_rows_come_with_the_commit(client):
    submitted = client.call("POST", "/v1/bags", sweep(3)).body
    lines = client.lines(f"/v1/bags/{submitted['bag']}/watch?from={submitted['position']}&rows=1")
    assert next(lines)["rows"] == []
    pilot = Pilot(client, cores=4)
    pilot.finish([a for a, _ in pilot.get(want=3)], out="7", out_size=1, value="abc")
    rows = [row for line in lines for row in line.get("rows", ())]
    assert [row["task"] for row in rows] == [0, 1, 2]
    kept = client.call("GET", f"/v1/bags/{submitted['bag']}/results").body["rows"]
    assert rows == kept and rows[0]["value"] == "abc"


@pytest.mark.parametrize("recent", [512, 0])
def test_one_who_comes_late_misses_nothing(server, client, recent):
    """From memory where the last commits reach back far enough, from the views where not."""
    submitted = client.call("POST", "/v1/bags", sweep(6)).body
    pilot = Pilot(client, cores=8)
    granted = [a for a, _ in pilot.get(want=6)]
    pilot.finish(granted[:3])
    if not recent:
        hub = server._runtime.hub
        hub._recent.clear()
        hub._oldest = server._runtime.writer.position
    lines = client.lines(f"/v1/bags/{submitted['bag']}/watch?from={submitted['position']}&rows=1")
    first = next(lines)
    pilot.finish(granted[3:])
    rows = {row["task"] for line in (first, *lines) for row in line.get("rows", ())}
    assert rows == set(range(6))


def test_a_bag_that_is_over_is_told_at_once(client):
    number = client.submit(sweep(1))
    client.call("POST", f"/v1/bags/{number}/cancel", {})
    lines = list(client.lines(f"/v1/bags/{number}/watch?from=0&rows=1"))
    assert lines[-1]["done"] and [row["state"] for line in lines for row in line["rows"]] == ["cancelled"]


def test_heartbeat(monkeypatch, tmp_path):
    from windfall.server.embedded import Embedded
    monkeypatch.setattr(subscribe, "HEARTBEAT_S", 0.1)
    server = Embedded(tmp_path / "home")
    client = Client(server.start())
    number = client.submit(sweep(1))
    lines = client.lines(f"/v1/bags/{number}/watch?from=0")
    next(lines)
    assert next(lines) == {} == next(lines)
    server.stop()


def test_a_slow_one_is_told_to_resume(server, client, monkeypatch):
    monkeypatch.setattr(subscribe, "MAX_WAITING", 2)
    submitted = client.call("POST", "/v1/bags", sweep(8)).body
    pilot = Pilot(client, cores=8)
    lines = client.lines(f"/v1/bags/{submitted['bag']}/watch?from={submitted['position']}&rows=1")
    next(lines)
    pilot.finish([a for a, _ in pilot.get(want=8)])
    assert list(lines)[-1] == {"resume": True}


def test_events_of_all_bags(client):
    lines = client.lines("/v1/events?from=0")
    got = []
    thread = threading.Thread(target=lambda: got.extend(next(lines) for _ in range(2)), daemon=True)
    thread.start()
    one, two = client.submit(sweep(1)), client.submit(sweep(2))
    thread.join(5)
    assert {line["bag"] for line in got} == {one, two}


def test_events_are_the_owners(client):
    ann = Client(client.profile, client.token_for("user", user="ann")["token"])
    lines = ann.lines("/v1/events?from=0")
    got = []
    threading.Thread(target=lambda: got.append(next(lines)), daemon=True).start()
    until(lambda: True)
    client.submit(sweep(1))
    mine = ann.submit(sweep(1))
    until(lambda: got)
    assert got[0]["bag"] == mine


def test_a_subscriber_that_leaves_is_forgotten(server, client):
    number = client.submit(sweep(1))
    lines = client.lines(f"/v1/bags/{number}/watch?from=0")
    next(lines)
    assert server._runtime.hub.subscribers == 1
    lines.close()
    del lines
    client.submit(sweep(1))
    until(lambda: server._runtime.hub.subscribers == 0)


def test_live_output(server, client):
    number = client.submit(sweep(1))
    pilot = Pilot(client)
    (attempt, _), = pilot.get()
    pilot.exchange(started=[attempt])
    response = Client(client.profile).send("GET", f"/v1/bags/{number}/tasks/0/log?follow=1")
    until(lambda: pilot.exchange().get("stream") == [attempt])
    path = f"/v1/attempts/{attempt}/output?stream=out"
    assert pilot.client.call("POST", path + "&offset=0", raw=b"one ").body == {"go": True}
    assert pilot.client.call("POST", path + "&offset=2", raw=b"e two ").body == {"go": True}
    assert response.read(8) == b"one two "
    pilot.finish([attempt], out="one two three", out_size=13)
    assert response.read() == b"three"
    until(lambda: pilot.exchange().get("stream") is None)
    assert pilot.client.call("POST", path + "&offset=8", raw=b"x").status == 404


def test_output_of_anothers_attempt_is_refused(client):
    client.submit(sweep(1))
    one, two = Pilot(client, nonce="1"), Pilot(client, nonce="2")
    (attempt, _), = one.get()
    assert two.client.call("POST", f"/v1/attempts/{attempt}/output", raw=b"x").status == 404
