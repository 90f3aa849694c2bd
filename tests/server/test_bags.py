"""The users' calls."""

import base64

import pytest
from server_tools import SWEEP, Client, Pilot, sweep


def text(command):
    return command if isinstance(command, str) else " ".join(command)


def test_batch_timeout_beyond_measure_is_bad_input(client):
    for timeout in (1 << 64, 1 << 63, -1):
        refused = client.call("POST", "/v1/bags", {**sweep(4), "policy": {"batch": 2, "batch_timeout": timeout}})
        assert refused.status == 400 and "batch-timeout" in refused.body["error"]["message"], refused.raw


def test_submit_show_results(client):
    number = client.submit(sweep(3, check={"match": ""}))
    pilot = Pilot(client)
    granted = pilot.get(want=3)
    assert [command for _, command in granted] == [["echo", "1"], ["echo", "2"], ["echo", "3"]]
    pilot.finish([a for a, _ in granted], out="hi\n", out_size=3)
    bag = client.call("GET", f"/v1/bags/{number}").body
    assert bag["state"] == "succeeded" and bag["counts"]["succeeded"] == 3 and bag["ended"]
    rows = client.call("GET", f"/v1/bags/{number}/results").body
    assert [row["params"] for row in rows["rows"]] == [{"x": 1}, {"x": 2}, {"x": 3}] and rows["next"] is None
    assert rows["rows"][0]["host"] == "host" and rows["rows"][0]["site"] == "local"
    assert client.call("GET", f"/v1/bags/{number}/tasks/1/log").raw == b"hi\n"
    task = client.call("GET", f"/v1/bags/{number}/tasks/1").body
    assert task["command"] == ["echo", "2"] and task["state"] == "succeeded" and len(task["attempts"]) == 1


def test_results_come_in_pages(client):
    number = client.submit(sweep(25))
    pilot = Pilot(client, cores=32)
    pilot.finish([a for a, _ in pilot.get(want=25)])
    seen, after = [], -1
    while after is not None:
        page = client.call("GET", f"/v1/bags/{number}/results?after={after}&limit=10").body
        seen += [row["task"] for row in page["rows"]]
        after = page["next"]
    assert seen == list(range(25))


def test_a_resent_submission_gets_the_first_answer(client):
    first = client.call("POST", "/v1/bags", SWEEP, Idempotency_Key="k")
    again = client.call("POST", "/v1/bags", SWEEP, Idempotency_Key="k")
    other = client.call("POST", "/v1/bags", SWEEP, Idempotency_Key="l")
    assert first.body["bag"] == again.body["bag"] != other.body["bag"]
    assert first.body["tasks"] == again.body["tasks"] == 20


def test_idempotency_keys_of_two_users_do_not_clash(client):
    ann = client.token_for("user", user="ann")["token"]
    mine = client.call("POST", "/v1/bags", SWEEP, Idempotency_Key="k").body["bag"]
    hers = client.call("POST", "/v1/bags", SWEEP, token=ann, Idempotency_Key="k").body["bag"]
    assert mine != hers


def test_an_open_bag_takes_tasks_until_it_is_closed(client):
    bag = {"name": "open", "open": True, "targets": [{"source": {"type": "items", "items": ["echo 0"]}}]}
    number = client.submit(bag)
    more = {"source": {"type": "items", "items": ["echo 1", "echo 2"]}}
    reply = client.call("POST", f"/v1/bags/{number}/tasks", more, Idempotency_Key="a")
    assert reply.body == {"first": 1, "count": 2}
    assert client.call("POST", f"/v1/bags/{number}/tasks", more, Idempotency_Key="a").body == {"first": 1, "count": 2}
    pilot = Pilot(client, cores=8)
    granted = pilot.get(want=8)
    assert [text(command) for _, command in granted] == ["echo 0", "echo 1", "echo 2"]
    client.call("POST", f"/v1/bags/{number}/tasks", more)
    granted += pilot.get(want=8)
    assert len(granted) == 5
    pilot.finish([a for a, _ in granted])
    assert client.call("GET", f"/v1/bags/{number}").body["state"] == "open"
    assert client.call("POST", f"/v1/bags/{number}/close", {}).body["state"] == "succeeded"
    assert client.call("POST", f"/v1/bags/{number}/tasks", more).status == 409
    assert text(client.call("GET", f"/v1/bags/{number}/tasks/4").body["command"]) == "echo 2"


def test_cancel_retry_pause_remove(client):
    number = client.submit(sweep(5))
    path = f"/v1/bags/{number}"
    assert client.call("POST", path + "/pause", {}).body["state"] == "paused"
    pilot = Pilot(client)
    assert pilot.get(want=5) == []
    assert client.call("POST", path + "/remove", {}).status == 409
    assert client.call("POST", path + "/cancel", {"tasks": [0, 1]}).body == {"count": 2}
    assert client.call("POST", path + "/cancel", {"tasks": None}).body == {"count": 3}
    assert client.call("GET", path).body["state"] == "cancelled"
    states = [row["state"] for row in client.call("GET", path + "/results").body["rows"]]
    assert states == ["cancelled"] * 5
    assert client.call("POST", path + "/retry", {"tasks": [4]}).body == {"count": 1}
    assert client.call("POST", path + "/cancel", {"tasks": [77]}).status == 400
    client.call("POST", path + "/cancel", {})
    assert client.call("POST", path + "/remove", {}).status == 200
    assert client.call("GET", path).status == 404


def test_explain_shows_the_failing_clause_of_a_task(client):
    number = client.submit(sweep(1))
    answer = client.call("GET", f"/v1/bags/{number}/explain?task=0").body
    assert answer["state"] == "ready" and answer["sites"][0]["clauses"][0]["holds"] is False
    assert client.call("GET", f"/v1/bags/{number}/explain?task=5").status == 404


@pytest.mark.parametrize("bag, says", [
    ({"name": "x"}, "targets"),
    ({"name": "x", "targets": [], "colour": 1}, "colour"),
    ({"name": "x", "targets": [{"command": "echo {y}"}]}, "y"),
    ({"name": "x", "targets": [{"command": 5}]}, "command"),
    (sweep(0), ""),
    (sweep(10**12), ""),
])
def test_bad_bags_are_refused_with_a_reason(client, bag, says):
    reply = client.call("POST", "/v1/bags", bag)
    assert reply.status in (400, 413) and says in reply.body["error"]["message"]
    assert client.call("GET", "/v1/bags").body["bags"] == []


def test_a_missing_input_is_named(client):
    bag = sweep(1, inputs=[{"path": "data/in.txt", "blob": "0" * 64, "size": 3}])
    reply = client.call("POST", "/v1/bags", bag)
    assert reply.status == 400 and "data/in.txt" in reply.body["error"]["message"]


def test_spec_returns_the_submitted_bag(client):
    number = client.submit(SWEEP)
    assert client.call("GET", f"/v1/bags/{number}/spec").body == SWEEP


def test_a_large_submission_does_not_stop_the_others(client):
    text = "\n".join(f"echo {i}" for i in range(200_000))
    bag = {"name": "big", "targets": [{"source": {"type": "lines", "text": text, "count": 200_000}}]}
    number = client.submit(bag)
    assert client.call("GET", f"/v1/bags/{number}").body["tasks"] == 200_000


def test_grant_carries_the_fields_that_differ_per_task(client):
    client.submit(sweep(2, outputs=["{x}.txt"], environment={"X": "{x}"}))
    _, _, extra = Pilot(client).get(want=1)[0]
    assert extra == {"outputs": ["1.txt"], "environment": {"X": "1"}}


def test_output_that_is_not_text(client):
    number = client.submit(sweep(1))
    pilot = Pilot(client)
    pilot.finish([a for a, _ in pilot.get()], out64=base64.b64encode(b"\xff\x00").decode(), out_size=2)
    assert client.call("GET", f"/v1/bags/{number}/tasks/0/log").raw == b"\xff\x00"


@pytest.mark.parametrize("path", ["/v1/bags/x", "/v1/bags/99999999999999999999", "/v1/bags/-1", "/v1/bags/1/tasks/x"])
def test_odd_numbers_are_not_found(client, path):
    assert client.call("GET", path).status == 404


def test_bag_runs_to_success_over_tls(tls):
    client = Client(tls.profile)
    number = client.submit(sweep(2))
    pilot = Pilot(client, nonce="tls")
    pilot.finish([a for a, _ in pilot.get(want=2)])
    assert client.call("GET", f"/v1/bags/{number}").body["state"] == "succeeded"


def test_a_page_is_bounded_in_bytes_too():
    from types import SimpleNamespace

    from windfall.server.calls.bags import PAGE_BYTES, _page

    class Large:
        def results(self, bag, after, limit, state):
            tasks = range(after + 1, after + 1 + limit)
            plain = {"values": {}, "files": [], "saved": [], "value": "x" * 100_000, "note": ""}
            return [SimpleNamespace(task=task, **plain) for task in tasks]

    page = _page(Large(), 1, -1, 10_000, "")
    assert len(page.rows) * 100_000 < 4 * PAGE_BYTES and page.next == page.rows[-1].task
