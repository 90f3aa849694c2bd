"""Subscriptions."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from server_tools import Client, Pilot, sweep, until

from windfall.server import grants
from windfall.server.embedded import Embedded
from windfall.server.views import subscribe


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
def test_late_subscriber_gets_every_row(server, client, recent):
    """From memory where the last commits reach back far enough, from the views where not."""
    submitted = client.call("POST", "/v1/bags", sweep(6)).body
    pilot = Pilot(client, cores=8)
    granted = [a for a, _ in pilot.get(want=6)]
    pilot.finish(granted[:3])
    if not recent:
        server._runtime.hub.forget_recent()
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


def test_idle_stream_sends_heartbeats(monkeypatch, tmp_path):
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


def test_subscriber_overrun_while_it_reads_old_rows_resumes_after_them(server, client, monkeypatch):
    """While pages of the past are read, more happens than may wait for one subscriber."""
    monkeypatch.setattr(subscribe, "MAX_WAITING", 2)
    number = client.submit(sweep(8))
    pilot = Pilot(client, cores=8)
    granted = [a for a, _ in pilot.get(want=8)]
    pilot.finish(granted[:2])
    runtime = server._runtime
    runtime.hub.forget_recent()
    began, ask, late = runtime.writer.position, runtime.projector.ask, []

    async def slow(question):
        page = await ask(question)
        if not late:
            late.append(threading.Thread(target=pilot.finish, args=(granted[2:],)))
            late[0].start()
            while late[0].is_alive():
                await asyncio.sleep(0.001)
        return page
    monkeypatch.setattr(runtime.projector, "ask", slow)
    lines = list(client.lines(f"/v1/bags/{number}/watch?from=0&rows=1"))
    assert lines[-1] == {"resume": True, "position": began}
    again = client.lines(f"/v1/bags/{number}/watch?from={began}&rows=1")
    rows = {row["task"] for line in (*lines, *again) for row in line.get("rows", ())}
    assert rows == set(range(8))


def test_bytes_count_too(server, client, monkeypatch):
    monkeypatch.setattr(subscribe, "MAX_WAITING_BYTES", 20_000)
    monkeypatch.setattr(subscribe, "RECENT_BYTES", 60_000)
    submitted = client.call("POST", "/v1/bags", sweep(8)).body
    pilot = Pilot(client, cores=8)
    path = f"/v1/bags/{submitted['bag']}/watch?from={submitted['position']}&rows=1"
    lines = client.lines(path)
    next(lines)
    granted = [a for a, _ in pilot.get(want=8)]
    for attempt in granted:
        pilot.finish([attempt], out="x" * 16_000, out_size=16_000)
    hub = server._runtime.hub
    assert 0 < hub._recent_bytes <= 60_000 and len(hub._recent) <= 4
    assert hub._recent_bytes == sum(weight for _, weight in hub._recent)
    rows = {row["task"] for line in client.lines(path) for row in line.get("rows", ())}
    assert rows == set(range(8))


def test_the_stream_says_what_the_results_say(client):
    """Also of what was started long before, retried, cancelled again, or never heard of again."""
    submitted = client.call("POST", "/v1/bags", sweep(5, retries=0)).body
    number = submitted["bag"]
    pilot = Pilot(client, cores=8)
    granted = [a for a, _ in pilot.get(want=4)]
    pilot.exchange(started=granted)
    time.sleep(0.02)  # so that the time it began is not the time it ended less its wall time
    pilot.finish(granted[:1])
    pilot.finish(granted[1:3], o="failed", why="exit", exit=3)
    client.call("POST", f"/v1/bags/{number}/cancel", {"tasks": [4]})
    client.call("POST", f"/v1/bags/{number}/retry", {"tasks": [2, 4]})
    again, = ([a for a, _ in pilot.get(want=1)])
    pilot.finish([again])
    client.call("POST", f"/v1/bags/{number}/cancel", {"tasks": [4]})
    pilot.exchange(bye="stopped")
    client.call("POST", f"/v1/bags/{number}/cancel", {})
    told = {}
    for line in client.lines(f"/v1/bags/{number}/watch?from={submitted['position']}&rows=1"):
        told.update((row["task"], row) for row in line["rows"])
    kept = {row["task"]: row for row in client.call("GET", f"/v1/bags/{number}/results").body["rows"]}
    assert told.keys() == kept.keys() == set(range(5))
    assert kept[0]["started"] < kept[0]["ended"] - kept[0]["wall"] and kept[2]["generation"] == 1
    for task in (0, 1, 2, 4):
        assert told[task] == kept[task]


def test_a_row_of_the_past_keeps_its_generation(client):
    """Cancelled, told, retried: who asks for the past hears of the cancelled generation, not of the next."""
    submitted = client.call("POST", "/v1/bags", sweep(1)).body
    number = submitted["bag"]
    for order in ("cancel", "retry", "cancel", "retry"):
        client.call("POST", f"/v1/bags/{number}/{order}", {})
    line = next(client.lines(f"/v1/bags/{number}/watch?from={submitted['position']}&rows=1"))
    assert [row["generation"] for row in line["rows"]] == [0, 1]


def test_a_restart_does_not_change_when_things_began(tmp_path):
    server = Embedded(tmp_path / "home")
    client = Client(server.start())
    submitted = client.call("POST", "/v1/bags", sweep(1)).body
    pilot = Pilot(client)
    (attempt, _), = pilot.get()
    pilot.exchange(started=[attempt])
    server.stop()
    server = Embedded(tmp_path / "home")
    client = Client(server.start())
    pilot.client = Client(client.profile, pilot.me["token"])
    path = f"/v1/bags/{submitted['bag']}"
    lines = client.lines(f"{path}/watch?from={client.call('GET', path).body['position']}&rows=1")
    next(lines)
    time.sleep(0.02)
    pilot.finish([attempt])
    told = [row for line in lines for row in line.get("rows", ())]
    assert told == client.call("GET", f"{path}/results").body["rows"]
    assert told[0]["started"] < told[0]["ended"] - told[0]["wall"]
    server.stop()


def test_commit_wakes_only_followers_of_ended_attempts(server, client):
    """Counted: a commit about something else wakes nobody who follows an output."""
    number = client.submit(sweep(2))
    pilot = Pilot(client)
    (one, _), (two, _) = pilot.get(want=2)
    pilot.exchange(started=[one, two])
    followed = [Client(client.profile).send("GET", f"/v1/bags/{number}/tasks/{task}/log?follow=1") for task in (0, 1)]
    live = server._runtime.live
    until(lambda: sum(len(tail.waiting) for tail in live._tails.values()) == 2)
    waiting = {key: list(tail.waiting) for key, tail in live._tails.items()}
    client.submit(sweep(1))
    assert not any(future.done() for futures in waiting.values() for future in futures)
    pilot.finish([one], out="x", out_size=1)
    assert followed[0].read() == b"x"
    assert not any(future.done() for future in waiting[two, "out"])
    pilot.finish([two])
    assert followed[1].read() == b""


def test_bags_asked_for_lately_stay_ready(monkeypatch):
    monkeypatch.setattr(grants, "MAX_RENDERINGS", 2)
    monkeypatch.setattr(grants, "Rendering", lambda bag, find, made_by: SimpleNamespace(read=bag.spec))
    kept = grants.Renderings(SimpleNamespace(bags={}))
    one, two, three = (SimpleNamespace(number=n, spec=b"spec") for n in (1, 2, 3))
    first = kept.of(one)
    kept.of(two)
    assert kept.of(one) is first
    kept.of(three)
    assert kept.of(one) is first and list(kept._kept) == [3, 1]


def test_events_of_all_bags(client):
    lines = client.lines("/v1/events?from=0")
    got = []
    thread = threading.Thread(target=lambda: got.extend(next(lines) for _ in range(2)), daemon=True)
    thread.start()
    one, two = client.submit(sweep(1)), client.submit(sweep(2))
    thread.join(5)
    assert {line["bag"] for line in got} == {one, two}


def test_events_from_a_wrong_position_are_refused_in_words(client):
    reply = client.call("GET", "/v1/events?from=main")
    assert reply.status == 400 and "from" in reply.body["error"]["message"]


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


def test_live_output_is_streamed_until_the_attempt_ends(server, client):
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


@pytest.mark.lengthy
def test_open_bag_that_nobody_follows_is_closed_after_its_absence(client):
    followed, left = (client.submit({**sweep(1), "open": True, "absence": 60_000}) for _ in range(2))
    pilot = Pilot(client, cores=2)
    pilot.finish([attempt for attempt, _ in pilot.get(want=2)])
    lines = client.lines(f"/v1/bags/{followed}/watch?from=0")
    for line in lines:
        bags = {bag["bag"]: bag["open"] for bag in Client(client.profile).call("GET", "/v1/bags").body["bags"]}
        assert bags[followed], line
        if not bags[left]:
            break
