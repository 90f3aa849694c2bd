"""The pilots' call over real sockets; records against the wire's tables."""

import json
import threading

import msgspec
import pytest
from server_tools import Client, Pilot, sweep, tasks, until

from windfall.server.http import schema
from windfall.wire import messages

KINDS = {"i": int, "s": str, "b": bool, "l": list, "d": dict, "n": int}


def kinds_of(kind):
    """Plain types that an annotation allows."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return set().union(*map(kinds_of, kind.types))
    return {{
        msgspec.inspect.IntType: int, msgspec.inspect.StrType: str, msgspec.inspect.LiteralType: str,
        msgspec.inspect.BoolType: bool, msgspec.inspect.ListType: list, msgspec.inspect.DictType: dict,
        msgspec.inspect.StructType: dict, msgspec.inspect.NoneType: type(None), msgspec.inspect.RawType: object,
            msgspec.inspect.TupleType: list,
    }[type(kind)]}


@pytest.mark.parametrize("table, record", [
    (messages.ENROL, schema.Enrol), (messages.ENROLLED, schema.Enrolled), (messages.HOST, schema.PilotHost),
    (messages.SHAPE, schema.PilotShape), (messages.EXCHANGE, schema.Exchange), (messages.REPORT, schema.Report),
    (messages.ANSWER, schema.ExchangeResponse), (messages.SPEC, schema.TaskSpec),
])
def test_records_agree_with_the_wires_tables(table, record):
    fields = {f.encode_name: f for f in msgspec.inspect.type_info(record).fields}
    assert set(fields) == set(table)
    for name, kind in table.items():
        assert fields[name].required == (not kind.endswith("?")), name
        assert KINDS[kind[0]] in kinds_of(fields[name].type), name
        assert (type(None) in kinds_of(fields[name].type)) >= (kind[0] == "n"), name


def test_an_answer_fits_its_table(client):
    client.submit(sweep(2, inputs=[], time=1000, setup=["true"]))
    answer = Pilot(client).exchange(want=2)
    assert messages.check(messages.ANSWER, answer) == ""
    assert messages.check(messages.SPEC, answer["grants"][0]["groups"][0]["spec"]) == ""


def test_exchange_ignores_key_and_pilot_in_its_body(client):
    client.submit(sweep(2))
    one, two = Pilot(client, nonce="1"), Pilot(client, nonce="2")
    answer = one.exchange(want=1, pilot=two.me["pilot"], key=99)
    assert len(tasks(answer)) == 1
    held = {p["pilot"]: p["held"] for p in client.call("GET", "/v1/pilots").body["pilots"]}
    assert held == {one.me["pilot"]: 1, two.me["pilot"]: 0}


@pytest.mark.parametrize("more", [
    {"reports": [{"a": 1 << 70}]}, {"reports": [{"a": -1}]}, {"reports": [{"a": 1, "wall": "long"}]}, {"want": 1.5},
    {"reports": [{"a": 1, "o": "splendid"}]}, {"held": [1.5]}, {"started": ["x"]}, {"epoch": "1"},
    {"reports": [{"a": 1, "files": [["x", "nohash", 1, 1]]}]}, {"reports": [{"a": 1}] * 5000}, {"reports": {"a": 1}},
])
def test_hostile_messages_stop_at_the_door(client, more):
    client.submit(sweep(1))
    pilot = Pilot(client)
    reply = pilot.client.call("POST", "/v1/exchange", pilot.message(**more))
    assert reply.status == 400 and reply.code == "bad-input"
    assert len(pilot.get()) == 1


@pytest.mark.parametrize("more", [
    {"reports": [{"a": 1 << 52}]}, {"held": [1 << 52, 0]}, {"started": [1 << 52]}, {"ack": 1 << 50}, {"want": 1 << 50},
    {"wait": 0, "left": 0}, {"epoch": 999}, {"left": 1 << 60}, {"left": -1}, {"want": -1},
    {"reports": [{"a": (1 << 63) - 1}]}, {"reports": [{"a": n << 24} for n in range(1 << 38, (1 << 38) + 100)]},
])
def test_numbers_that_mean_nothing_do_no_harm(client, more):
    client.submit(sweep(1))
    pilot = Pilot(client)
    pilot.client.call("POST", "/v1/exchange", pilot.message(**more))
    assert client.call("GET", "/health").status == 200


def test_attempt_named_twice_as_started_starts_once(client):
    client.submit(sweep(1))
    pilot = Pilot(client)
    (attempt, _), = pilot.get()
    pilot.exchange(started=[attempt, attempt], held=[attempt, attempt])
    pilot.exchange(reports=[{"a": attempt}, {"a": attempt}], started=[attempt, attempt])
    assert client.call("GET", "/health").status == 200


@pytest.mark.parametrize("left", [[1 << 63, 1], [1 << 90, 1], [-1, -1], [1, 1 << 40], [0, 0]])
def test_result_counts_whatever_leftovers_its_pilot_reports(client, left):
    bag = client.submit(sweep(1))
    pilot = Pilot(client)
    pilot.finish([attempt for attempt, *_ in pilot.get()], left=left)
    assert client.call("GET", f"/v1/bags/{bag}").body["state"] == "succeeded"


def test_no_name_of_a_pilot_ends_the_server(client):
    for nonce in ("intent-²", "intent-" + "9" * 190, "intent-1", "²"):
        Pilot(client, nonce=nonce).exchange(want=1)
    assert client.call("GET", "/health").status == 200


def test_exchange_of_an_unknown_version_is_refused(client):
    pilot = Pilot(client)
    reply = pilot.client.call("POST", "/v1/exchange", {**pilot.message(), "v": 99})
    assert reply.status == 426 and reply.code == "version-mismatch"


def in_thread(function):
    got = []
    thread = threading.Thread(target=lambda: got.append(function()), daemon=True)
    thread.start()
    return thread, got


def parked(server):
    return server._runtime.exchanges.parked


def test_a_parked_poll_is_answered_when_work_comes(server, client):
    pilot = Pilot(client)
    thread, got = in_thread(lambda: pilot.get(want=1, wait=10_000))
    until(lambda: parked(server) == 1)
    client.submit(sweep(1))
    thread.join(30)
    assert len(got[0]) == 1  # one that had waited for its time to be up would have got nothing


def test_reports_do_not_wait_behind_a_parked_poll(server, client):
    client.submit(sweep(1))
    pilot = Pilot(client)
    (attempt, _), = pilot.get()
    thread, got = in_thread(lambda: pilot.get(want=1, wait=3_000))
    until(lambda: parked(server) == 1)
    lane = Client(client.profile, pilot.client.token)
    reply = lane.call("POST", "/v1/exchange", {**pilot.message(), "reports": [{"a": attempt}]})
    assert reply.status == 200
    thread.join(6)
    assert client.call("GET", "/v1/bags/1").body["state"] == "succeeded"


def test_a_closed_connection_is_no_longer_parked(server, client):
    pilot = Pilot(client)
    connection = pilot.client.connection
    body = json.dumps(pilot.message(want=1, wait=20_000))
    connection.request("POST", "/v1/exchange", body, {"Authorization": f"Bearer {pilot.client.token}"})
    until(lambda: parked(server) == 1)
    connection.close()
    until(lambda: parked(server) == 0)
    assert server._runtime.writer.state.pilots[pilot.me["pilot"]].waiting_request is None
    client.submit(sweep(1))
    fresh = Client(client.profile, pilot.client.token)
    reply = fresh.call("POST", "/v1/exchange", pilot.message(want=1))
    assert len(tasks(reply.body)) == 1


def test_the_stop_answers_parked_polls(server, client):
    pilot = Pilot(client)
    thread, got = in_thread(lambda: pilot.exchange(want=1, wait=20_000))
    until(lambda: parked(server) == 1)
    server.stop()
    thread.join(30)
    assert got[0]["again"] > 0 and got[0]["spread"] > 0 and "grants" not in got[0]


def test_grants_come_again_until_acknowledged(client):
    client.submit(sweep(3))
    pilot = Pilot(client)
    first = tasks(pilot.client.call("POST", "/v1/exchange", pilot.message(want=2)).body)
    again = tasks(pilot.client.call("POST", "/v1/exchange", pilot.message(want=0)).body)
    assert first == again and len(first) == 2
    pilot.ack = 1
    assert tasks(pilot.exchange(want=0)) == []


def test_a_spoiled_core_ends_the_process_and_says_why(start):
    """An event that the core does not know: what it had begun is not trusted any more."""
    from windfall.core.messages import events
    from windfall.server.writer import Writer

    class Strange(events.Event):
        pass

    import asyncio

    from windfall.core.step import Core

    class NoJournal:
        position = tail_bytes = 0

    async def go():
        said = []
        from windfall.server.clock import Clock
        writer = Writer(Core(), NoJournal(), Clock(), die=lambda message, code: said.append((message, code)))
        writer.put(Strange(0))
        while not writer.closed:
            await asyncio.sleep(0)
        return said
    (message, code), = asyncio.run(go())
    assert "the core failed" in message and code == 70
