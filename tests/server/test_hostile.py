"""Hostile users and pilots: the server refuses or bounds their messages, and others do not wait meanwhile."""

import hashlib
import json
import threading

import pytest
from server_tools import Client, Pilot, sweep

from windfall.server.calls import bags, exchange
from windfall.server.embedded import Embedded

FAMILY = {"path": "p-{n}", "source": "{e}", "files": {}}


@pytest.fixture
def threads(monkeypatch):
    """Names of the threads in which bags were checked."""
    seen, check = [], bags.check.validate

    def watched(bag):
        seen.append(threading.current_thread().name)
        check(bag)

    monkeypatch.setattr(bags.check, "validate", watched)
    return seen


def test_no_bag_is_checked_in_the_loop_however_short_it_is(client, threads):
    body = json.dumps({**sweep(3, cost="{x}"), "policy": {"select": "sjf"}}).replace("sjf", "sj\\u0066").encode()
    assert client.call("POST", "/v1/bags", raw=body).status == 201
    assert threads and all(name.startswith("checks") for name in threads)


def test_names_that_are_empty_are_counted_too(client, monkeypatch):
    monkeypatch.setattr(bags.check, "MAX_NAMED", 100)
    axes = [{"type": "values", "name": "e", "values": [""]}, {"type": "range", "name": "n", "first": 1, "last": 60}]
    target = {"command": "p {n}", "source": {"type": "sweep", "axes": axes}, "families": [FAMILY]}
    assert client.call("POST", "/v1/bags", {"name": "b", "targets": [target]}).status == 201
    refused = client.call("POST", "/v1/bags", {"name": "b", "targets": [{**target, "families": [FAMILY] * 2}]})
    assert refused.status in (400, 413)
    target["families"] = [FAMILY, {**FAMILY, "path": "q-{n}"}]
    refused = client.call("POST", "/v1/bags", {"name": "b", "targets": [target]})
    assert refused.status == 413 and "100" in refused.body["error"]["message"]


def test_cancelled_tasks_may_be_named_by_ranges_that_overlap(client):
    bag = client.submit(sweep(30))
    chosen = {"tasks": [3, 21, 3], "ranges": [[20, 29], [25, 27], [28, 29], [9, 8]]}
    assert client.call("POST", f"/v1/bags/{bag}/cancel", chosen).body == {"count": 11}
    assert client.call("POST", f"/v1/bags/{bag}/retry", {"ranges": [[0, 24]]}).body == {"count": 6}
    assert client.call("POST", f"/v1/bags/{bag}/cancel", {"ranges": [[29, 30]]}).status == 400


def test_selection_that_names_too_many_tasks_is_refused(client):
    bag = client.submit(sweep(100_000_000))
    for ranges in ([[0, 99_999_999]], [[0, 600_000], [1_000_000, 1_600_000]]):
        refused = client.call("POST", f"/v1/bags/{bag}/cancel", {"ranges": ranges})
        assert refused.status == 413 and "1,000,000" in refused.body["error"]["message"]
    refused = client.call("POST", f"/v1/bags/{bag}/cancel", {"tasks": [0] * 50_001})
    assert refused.status == 400 and "50000" in refused.body["error"]["message"]
    assert client.call("POST", f"/v1/bags/{bag}/cancel", raw=b'{"tasks":[' + b"0," * 600_000 + b"0]}").status == 413


@pytest.mark.parametrize("body", [
    b'"started":[' + b"1," * 2_000_000 + b'1],"want":"x"', b'"zzz":[' + b"[]," * 1_000_000 + b'1],"want":"x"',
    b'"reports":[' + b",".join([b'{"a":1,"out":"' + b"\\n" * 200 + b'"}'] * 4_000) + b"]"])
def test_message_with_millions_of_values_is_refused_unread(client, monkeypatch, body):
    pilot = Pilot(client)
    monkeypatch.setattr(exchange, "_decode", None)
    monkeypatch.setattr(exchange.lenient_decode, "parse", None)
    head = b'{"v":1,"epoch":%d,"seq":1,"ack":0,' % pilot.me["epoch"]
    refused = pilot.client.call("POST", "/v1/exchange", raw=head + body + b"}")
    assert refused.status == 413 and "50,000 values" in refused.body["error"]["message"]


def test_many_values_that_miss_the_schema_are_not_walked_in_python(client, monkeypatch):
    pilot = Pilot(client)
    monkeypatch.setattr(exchange.lenient_decode, "parse", None)
    body = b'{"v":1,"epoch":1,"seq":1,"ack":0,"zzz":[' + b"[]," * 30_000 + b'1],"want":"x"}'
    refused = pilot.client.call("POST", "/v1/exchange", raw=body)
    assert refused.status == 400 and "want" in refused.body["error"]["message"]


def test_reports_with_many_files_come_one_by_one(client):
    client.submit(sweep(2))
    pilot = Pilot(client)
    attempts = [attempt for attempt, *_ in pilot.get(want=2)]
    files = [[f"f{n}", "ab" * 32, 1, 1] for n in range(6_000)]
    reports = [{"a": attempt, "files": files} for attempt in attempts]
    refused = pilot.client.call("POST", "/v1/exchange", pilot.message(reports=reports))
    assert refused.status == 413 and "fewer reports" in refused.body["error"]["hint"]
    for report in reports:
        pilot.exchange(reports=[report])


def test_a_schema_with_half_a_character_is_answered(client):
    body = json.dumps(sweep(1, check={"schema": '{"\\ud800": 1}'})).encode()
    refused = client.call("POST", "/v1/bags", raw=body)
    assert refused.status == 400 and "schema" in refused.body["error"]["message"]


def test_an_error_that_quotes_half_a_character_is_told(client):
    refused = client.call("POST", "/v1/bags", raw=b'{"name": "b", "targets": [{"command": "p", "kind": "\\ud800"}]}')
    assert refused.status == 400
    assert client.call("GET", "/v1/bags").status == 200


def test_numbers_beyond_measure_are_refused(client):
    bag = client.submit(sweep(1))
    for path in (f"results?after={10**23}", f"results?limit={10**30}", f"explain?task={10**40}"):
        assert client.call("GET", f"/v1/bags/{bag}/{path}").status == 400, path
    assert client.call("GET", f"/v1/bags/{bag}/results?after=-5").status == 200


def test_an_enrolment_nested_without_end_is_refused(client):
    token = client.token_for("enrol", site="local")["token"]
    gpus = "[" * 1_200 + "]" * 1_200
    host = '{"id":"h","name":"h","gpus":' + gpus + "}"
    body = '{"v":1,"site":"local","nonce":"n","shape":{"cores":1},"host":' + host + "}"
    assert client.call("POST", "/v1/enrol", raw=body.encode(), token=token).status == 400


def derived(n, size):
    source = sweep(25)["targets"][0]["source"]
    return {**source, "derived": [{"name": f"d{i}", "template": "x" * size} for i in range(n)]}


def test_parameters_of_a_task_are_bounded(client):
    bag = {"name": "b", "targets": [{"command": "p", "source": derived(40, 900_000)}]}
    refused = client.call("POST", "/v1/bags", bag)
    assert refused.status == 413 and "parameters of a task" in refused.body["error"]["message"]


def test_pages_of_results_are_cut_by_the_size_of_their_parameters(client, monkeypatch):
    monkeypatch.setattr(bags, "PAGE_BYTES", 100_000)
    bag = client.submit({"name": "b", "targets": [{"command": "p", "source": derived(2, 20_000)}]})
    client.call("POST", f"/v1/bags/{bag}/cancel", {})
    seen, after = [], -1
    while after is not None:
        page = client.call("GET", f"/v1/bags/{bag}/results?after={after}")
        assert len(page.raw) < 250_000
        seen += [row["task"] for row in page.body["rows"]]
        after = page.body["next"]
    assert seen == list(range(25))


def saving(client):
    bag = client.submit(sweep(1, checkpoint=["state", "parts"]))
    pilot = Pilot(client)
    ((attempt, *_),) = pilot.get()
    body = b"saved"
    sha = hashlib.sha256(body).hexdigest()
    sent = pilot.client.call("PUT", f"/v1/blobs/{sha}", raw=body, X_Attempt=str(attempt))
    assert sent.status == 201
    return bag, pilot, attempt, sha


def test_checkpoint_files_that_the_task_does_not_name_are_dropped(server, client):
    bag, pilot, attempt, sha = saving(client)
    names = ["state", "parts/1", "other", "parts/" + "x" * 5_000]
    files = [[name, sha, 5, 0o600] for name in names] + [["state", "ab" * 32, 5, 0o600]]
    pilot.exchange(reports=[{"a": attempt, "o": "returned", "why": "stop", "saved": files}])
    kept = server._runtime.writer.state.bags[bag].checkpoints[0]
    assert [tuple(file[:2]) for file in kept] == [("state", sha), ("parts/1", sha)]


def test_checkpoints_with_names_beyond_measure_are_none(server, client):
    bag, pilot, attempt, sha = saving(client)
    files = [[f"parts/{n}-" + "x" * 3_000, sha, 5, 0o600] for n in range(200)]
    pilot.exchange(reports=[{"a": attempt, "o": "returned", "why": "stop", "saved": files}])
    assert 0 not in server._runtime.writer.state.bags[bag].checkpoints


def test_explain_hides_sites_of_other_users(client):
    bob = Client(client.profile, client.token_for("user", user="bob")["token"])
    Pilot(client)
    told = bob.call("GET", f"/v1/bags/{bob.submit(sweep(1))}/explain").body
    assert told["sites"] == [] and "local" not in json.dumps(told)


@pytest.mark.parametrize(("path", "body"), [("/v1/bags", b'{"name":"\xff"}'), ("/v1/weights", b'{"user":"\xff"}'),
                                            ("/v1/bags/1/policy", b'{"policy":{"rank":"\xff"}}')])
def test_body_that_is_not_utf_8_is_bad_input(client, path, body):
    client.submit(sweep(1))
    reply = client.call("POST", path, raw=body)
    assert reply.status == 400 and "UTF-8" in reply.body["error"]["message"], reply.raw


def test_books_of_a_lying_pilot_fit_into_a_snapshot(server, client):
    bag = client.submit(sweep(300, resources={"nodes": 2}))
    pilot = Pilot(client, cores=1 << 20, nodes=1 << 20, left=1 << 53)
    for _ in range(300):
        ((attempt, *_),) = pilot.get()
        pilot.finish([attempt], wall=1 << 53, cpu=1 << 53, rss=1 << 53, out_size=1 << 53)
    assert client.call("GET", f"/v1/bags/{bag}").body["used"] < 1 << 63
    assert client.call("GET", f"/v1/bags/{bag}/statistics").body["accepted"] == 300
    writer = server._runtime.writer
    writer.snapshot()
    assert writer.journal.tail_bytes == 0 and client.call("GET", "/health").body["status"] == "ok"


def test_failed_snapshot_is_told_by_health_and_loses_nothing(server, client):
    bag, writer = client.submit(sweep(2)), server._runtime.writer
    writer.state.bags[bag].spent = 1 << 70  # as a mistake in the books might leave it
    writer.snapshot()
    health = client.call("GET", "/health").body
    assert health["status"] == "degraded" and "no snapshot can be written" in health["problems"][0]
    assert "windfall_snapshot_failing 1" in client.call("GET", "/metrics").raw.decode()
    writer.state.bags[bag].spent = 0
    writer.snapshot()
    assert client.call("GET", "/health").body == {"status": "ok", "version": health["version"],
                                                   "position": writer.position, "problems": []}


def test_server_stops_cleanly_although_no_snapshot_can_be_written(tmp_path):
    home = tmp_path / "home"
    server = Embedded(home)
    client = Client(server.start())
    bag = client.submit({"name": "b", "targets": [{"command": "p {d0}", "source": derived(1, 500_000)}]})
    server._runtime.writer.state.bags[bag].spent = 1 << 70
    server.stop()
    again = Embedded(home)
    try:
        assert Client(again.start()).call("GET", f"/v1/bags/{bag}").body["used"] == 0
    finally:
        again.stop()
