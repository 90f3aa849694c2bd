"""Files that reports name: those that were asked for, and that are here."""

import hashlib
import json
import select

import pytest
from server_tools import Pilot, sweep

from windfall.core.messages.events import Report
from windfall.server.calls.blobs import _drop_strange
from windfall.server.files import evidence

HERE = hashlib.sha256(b"here").hexdigest()
AWAY = "0" * 64


def row_of(client, report, **bag):
    """The result of a task whose pilot reports so, after it has sent the blob HERE."""
    client.submit(sweep(1, retries=0, **bag))
    pilot = Pilot(client)
    ((attempt, *_),) = pilot.get()
    assert pilot.client.call("PUT", f"/v1/blobs/{HERE}", raw=b"here", X_Attempt=str(attempt)).status == 201
    pilot.finish([attempt], **report)
    return client.call("GET", "/v1/bags/1/results").body["rows"][0]


def file(path, sha=HERE, size=4, mode=0o644):
    return [path, sha, size, mode]


def test_files_nobody_asked_for_are_dropped(client):
    files = [file("out-1.txt", mode=0o4777), file(".git/hooks/pre-commit"), file("bag.toml"), file("../x")]
    row = row_of(client, {"files": files}, outputs=["out-{x}.txt"])
    assert row["state"] == "succeeded" and [name for name, *_ in row["files"]] == ["out-1.txt"]
    assert row["files"][0][3] & 0o7000 == 0


@pytest.mark.parametrize("files", [
    [file("out", AWAY)], [file("other")], [file("out"), file("out", AWAY)]])
def test_a_success_whose_output_never_arrived_is_none(client, files):
    row = row_of(client, {"files": files}, outputs=["out"])
    assert (row["state"], row["why"], row["note"]) == ("failed", "output", row["note"]) and "out" in row["note"]
    assert not row["files"]


def test_a_success_without_any_file_is_none_where_some_were_asked_for(client):
    row = row_of(client, {}, outputs=["out"])
    assert (row["state"], row["why"], row["note"]) == ("failed", "output", "the outputs never arrived")


def test_nor_in_bulk(client):
    client.submit(sweep(40, retries=0, outputs=["out-{x}"]))
    pilot = Pilot(client, cores=40)
    pilot.finish([attempt for attempt, *_ in pilot.get()])
    assert {row["why"] for row in client.call("GET", "/v1/bags/1/results").body["rows"]} == {"output"}


def test_all_outputs_are_wanted(client):
    row = row_of(client, {"files": [file("a")]}, outputs=["a", "b"])
    assert (row["state"], row["note"]) == ("failed", "the output b never arrived")


def test_a_failure_brings_no_outputs_and_no_directory_that_is_not_here(client):
    report = {"o": "failed", "why": "exit", "exit": 3, "files": [file("out")], "scratch": [AWAY, 4]}
    row = row_of(client, report, outputs=["out"], scratch="failed")
    assert (row["state"], row["files"] or []) == ("failed", [])
    assert client.call("GET", "/v1/bags/1/tasks/0").body["attempts"][-1]["scratch"] is None


def test_a_directory_nobody_asked_for_is_not_kept(client):
    row_of(client, {"o": "failed", "why": "exit", "exit": 3, "scratch": [HERE, 4]})
    assert client.call("GET", "/v1/bags/1/tasks/0").body["attempts"][-1]["scratch"] is None


def test_kept_directory_of_a_failure_is_recorded(client):
    row_of(client, {"o": "failed", "why": "exit", "exit": 3, "scratch": [HERE, 4]}, scratch="failed")
    assert client.call("GET", "/v1/bags/1/tasks/0").body["attempts"][-1]["scratch"] == [HERE, 4]


@pytest.mark.parametrize(("files", "state"), [
    ([file(".windfall-result"), file("other")], "succeeded"), ([file(".windfall-result", AWAY)], "failed"),
    ([file("other")], "failed"), ([], "failed")])
def test_call_with_a_stored_result_brings_that_file_alone_or_fails(client, files, state):
    row = row_of(client, {"value": "@", "files": files}, kind="call", source={"type": "items", "items": ["Zg=="]},
                 command="")
    assert row["state"] == state
    assert [name for name, *_ in row["files"] or []] == ([".windfall-result"] if state == "succeeded" else [])


def test_command_brings_no_stored_result(client):
    assert not row_of(client, {"value": "@", "files": [file(".windfall-result")]})["files"]


@pytest.mark.parametrize(("output", "kept", "dropped"), [
    ("*.png", "a.png", "a.txt"), ("out/", "out/deep/a", "outer/a"), ("out", "out/a", "../out/a"),
    ("{x}-*", "1-a/b", "2-a"), ("**", "a/b", "a/../b"),
])
def test_files_that_a_pattern_stands_for_are_kept(client, output, kept, dropped):
    row = row_of(client, {"files": [file(kept), file(dropped)]}, outputs=[output])
    assert row["state"] == "succeeded" and [name for name, *_ in row["files"]] == [kept]


def test_pattern_without_a_file_never_arrived(client):
    row = row_of(client, {"files": [file("a.png")]}, outputs=["a.png", "*.txt"])
    assert (row["state"], row["note"]) == ("failed", "the output *.txt never arrived")


def test_costly_patterns_hold_up_nobody_else_and_fail_the_report_in_the_end(server, client, monkeypatch):
    monkeypatch.setattr(evidence, "MOST_S", 0.5)
    client.submit(sweep(1, retries=0, outputs=[f"*{'?' * 240}{number:03}" for number in range(100)]))
    pilot = Pilot(client)
    ((attempt, *_),) = pilot.get()
    files = [file("a" * 240 + f"{number:08}") for number in range(2_000)]
    pilot.client.connection.request(
        "POST", "/v1/exchange", json.dumps(pilot.message(reports=[{"a": attempt, "wall": 5, "files": files}])),
        {"Authorization": f"Bearer {pilot.client.token}"})
    assert client.call("GET", "/health").status == 200
    assert not select.select([pilot.client.connection.sock], [], [], 0)[0]  # the report is still being compared
    assert pilot.client.connection.getresponse().status == 200
    row = client.call("GET", "/v1/bags/1/results").body["rows"][0]
    assert (row["state"], row["why"]) == ("failed", "output") and "takes too long" in row["note"]


def test_files_that_never_came_are_dropped_without_comparing_each_with_all():
    compared = []

    class Entry(tuple):
        __slots__ = ()
        __hash__ = tuple.__hash__

        def __eq__(self, other):
            compared.append(other)
            return tuple.__eq__(self, other)

    report = Report(1, files=[Entry(file(f"out-{number}")) for number in range(100)])
    assert len(_drop_strange(report, lambda sha: True)) == 100
    assert not report.files and len(compared) <= 100
