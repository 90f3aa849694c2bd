"""Lenient decoding: fields that no decision depends on are cut or clamped, so that the other reports arrive."""

import json

import pytest
from server_tools import Pilot, sweep

from windfall.server.calls.exchange import _read
from windfall.server.http import schema


def read(report, **more):
    body = {"v": 1, "epoch": 1, "seq": 1, "ack": 0, "reports": [{"a": 1}, {"a": 2, **report}], **more}
    return _read(json.dumps(body).encode())


@pytest.mark.parametrize("report, field, wanted", [
    ({"note": "x" * 5000}, "note", "x" * 4096),
    ({"why": "w" * 100}, "why", "w" * 64),
    ({"why": "moonlight"}, "why", "moonlight"),
    ({"out": "x" * (2 << 20)}, "out", "x" * schema.MAX_TEXT),
    ({"err64": "eHh4" * (1 << 19)}, "err64", "eHh4" * (schema.MAX_TEXT // 4)),
    ({"wall": 1 << 60}, "wall", 1 << 53), ({"cpu": -5}, "cpu", 0), ({"rss": 1 << 100}, "rss", 1 << 53),
    ({"out_size": -1}, "out_size", 0), ({"exit": 1 << 40}, "exit", 1 << 31),
    ({"files": [["p", "0" * 64, -1, 1 << 70]]}, "files", [("p", "0" * 64, 0, 1 << 53)]),
    ({"note": "half \ud800"}, "note", "half ?"),
])
def test_lenient_decoding_keeps_reports_with_a_field_out_of_bounds(report, field, wanted):
    m = read(report)
    assert [r.a for r in m.reports] == [1, 2] and getattr(m.reports[1], field) == wanted


def test_attempt_numbers_have_63_bits():
    number = (1 << 63) - 1
    m = read({"a": number}, started=[number], held=[number])
    assert m.reports[1].a == m.started[0] == m.held[0] == number


@pytest.mark.parametrize("more, field, wanted", [
    ({"left": -20}, "left", 0), ({"left": 1 << 60}, "left", 1 << 53), ({"want": -1}, "want", 0),
    ({"bye": "b" * 100}, "bye", "b" * 64)])
def test_the_request_itself(more, field, wanted):
    assert getattr(read({}, **more), field) == wanted


def test_a_bad_note_beside_good_reports(client):
    number = client.submit(sweep(3))
    pilot = Pilot(client, cores=4)
    one, two, three = (a for a, _ in pilot.get(want=3))
    pilot.exchange(reports=[{"a": one}, {"a": two, "note": "n" * 9999, "wall": 1 << 62}, {"a": three}])
    rows = client.call("GET", f"/v1/bags/{number}/results").body["rows"]
    assert [row["state"] for row in rows] == ["succeeded"] * 3
    assert rows[1]["note"] == "n" * 4096 and rows[1]["wall"] < 120_000, "no longer than since it was granted"


def test_an_enrolment_with_odd_numbers(client):
    ticket = client.token_for("enrol", site="local")["token"]
    host = {"id": "h", "name": "n" * 300, "cores": 0, "memory": -1, "platform": "p" * 9999}
    shape = {"cores": 0, "memory": 1 << 60, "left": -7}
    body = {"v": 1, "site": "local", "nonce": "n", "host": host, "shape": shape}
    assert client.call("POST", "/v1/enrol", body, token=ticket).status == 200
