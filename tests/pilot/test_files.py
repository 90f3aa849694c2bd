"""Inputs and outputs of tasks: downloads, uploads, resumption."""

import hashlib
import os
import threading

import pytest
from harness import Pilot, Server, wait_until


def entry(server, path, data, mode=0o644):
    return [path, server.blob(data), len(data), mode]


def test_task_gets_its_inputs_and_outputs_are_uploaded(server, launch):
    pilot = launch()
    tool = b"#!/bin/sh\ncat data/in.txt > out/o\n"
    inputs = [entry(server, "data/in.txt", b"hello\n"), entry(server, "tool", tool, 0o755)]
    server.submit([1, "mkdir out; ./tool; echo done"], inputs=inputs, outputs=["out/o"])
    report = server.result(1)
    assert report["out"] == "done\n"
    path, digest, size, mode = report["files"][0]
    assert (path, size, mode & 0o400) == ("out/o", 6, 0o400) and server.blobs[digest] == b"hello\n"
    assert pilot.stop() == 0
    assert os.listdir(pilot.dir) == ["cache"]


def test_input_is_fetched_once_and_never_changed(server, launch):
    launch("--cores", "1")
    gets = []
    server.intercept = lambda handler, method, path: gets.append(path) if method == "GET" else None
    inputs = [entry(server, "f", b"original")]
    server.submit(*[[i, "cat f; echo changed > f"] for i in range(1, 6)], inputs=inputs)
    for i in range(1, 6):
        assert server.result(i)["out"] == "original"
    assert len(gets) == 1


def test_missing_output_fails_the_task(server, launch):
    launch()
    server.submit([1, "true"], outputs=["never"])
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "output") and "never" in report["note"]


def test_missing_input_fails_the_task(server, launch):
    launch()
    server.submit([1, "true"], inputs=[["f", "0" * 64, 3, 0o644]])
    server.submit([2, "echo on"])
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "input")
    assert server.result(2)["out"] == "on\n"


def test_input_with_another_content_fails_the_task(server, launch):
    launch()
    digest = hashlib.sha256(b"right").hexdigest()
    server.blobs[digest] = b"wrong"
    server.submit([1, "true"], inputs=[["f", digest, 5, 0o644]])
    assert (server.result(1)["o"], server.result(1)["why"]) == ("failed", "input")


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", ""])
def test_paths_that_lead_out_are_refused(server, launch, path):
    launch()
    server.submit([1, "true"], inputs=[entry(server, path, b"x")])
    server.submit([2, "true"], outputs=[path])
    assert server.result(1)["why"] == "input" and server.result(2)["why"] == "output"


def test_failed_task_uploads_no_outputs(server, launch):
    launch()
    server.submit([1, "echo x > o; exit 1"], outputs=["o"])
    assert server.result(1)["why"] == "exit" and "files" not in server.result(1)


def test_empty_output_is_uploaded(server, launch):
    launch()
    server.submit([1, "touch o"], outputs=["o"])
    assert server.result(1)["files"][0][2] == 0


def test_download_resumes_after_it_broke_off(server, launch):
    data = os.urandom(3000000)
    ranges = []

    def breaking(handler, method, path):
        if method != "GET" or len(ranges) >= 2:
            return False
        ranges.append(handler.headers.get("Range"))
        first = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
        handler.send_response_only(206 if first else 200)
        handler.send_header("Content-Length", str(len(data) - first))
        handler.end_headers()
        handler.wfile.write(data[first:first + 1000000])
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.shutdown(2)
        return True

    server.intercept = breaking
    launch()
    server.submit([1, "sha256sum f"], inputs=[entry(server, "f", data)])
    assert hashlib.sha256(data).hexdigest() in server.result(1)["out"]
    assert ranges == [None, "bytes=1000000-"]


def test_upload_resumes_after_it_broke_off(server, launch):
    puts = []

    def breaking(handler, method, path):
        if method != "PUT":
            return False
        puts.append(handler.headers["Content-Range"])
        if len(puts) == 2:
            handler.connection.shutdown(2)
            handler.close_connection = True
            return True
        return False

    server.intercept = breaking
    launch()
    server.submit([1, "head -c 20000000 /dev/urandom > o; sha256sum o"], outputs=["o"])
    report = server.result(1)
    assert report["files"][0][1] in report["out"] and report["files"][0][1] in server.blobs
    assert len(puts) == 4 and puts[1] == puts[2]


def test_uploads_do_not_hold_up_tasks(server, launch):
    go = threading.Event()
    server.intercept = lambda handler, method, path: method == "HEAD" and not go.wait(60)
    launch("--cores", "1")
    server.submit([1, "echo x > o"], outputs=["o"])
    server.submit([2, "echo next"])
    assert server.result(2)["out"] == "next\n"
    assert 1 not in server.reports
    go.set()
    assert server.result(1)["files"]


def test_returned_task_leaves_no_directory(server, launch, gate):
    pilot = launch("--cores", "1")
    server.submit([1, gate.shell])
    server.submit([2, "true"], inputs=[entry(server, "f", b"x")])
    server.wait_started(1)
    server.say(recall=[2])
    assert server.result(2)["why"] == "recall"
    gate.open()
    run = [n for n in os.listdir(pilot.dir) if n.startswith("run-")][0]
    wait_until(lambda: os.listdir(os.path.join(pilot.dir, run, "tasks")) == [])


@pytest.mark.slow
def test_two_gigabytes_are_uploaded_in_bounded_memory(tmp_path):
    """The pilot's processes stay small while they upload 2 GB."""
    server = Server(tmp_path)
    server.intercept = _swallow
    pilot = Pilot(server, "--cores", "1")
    server.submit([1, "head -c 2000000000 /dev/zero > big"], outputs=["big"])
    report = server.result(1, 120)
    assert report["files"][0][2] == 2000000000 and report["files"][0][1] in server.blobs
    with open(f"/proc/{pilot.agent()}/status") as file:
        peak = [int(line.split()[1]) for line in file if line.startswith("VmHWM")][0]
    assert peak < 100000, "kB"
    pilot.end()
    server.close()


def _swallow(handler, method, path):
    """Take pieces without keeping them."""
    if method != "PUT":
        return False
    span, total = handler.headers["Content-Range"][6:].split("/")
    handler.raw()
    if int(span.split("-")[1]) + 1 == int(total):
        handler.server.owner.blobs[path[10:]] = b"(large)"
    handler.answer(200, {})
    return True


def test_upload_is_tried_again_while_the_server_learns_of_a_new_epoch(server, launch):
    """For a moment the server does not know that the pilot still holds the attempt."""
    told = []

    def settling(handler, method, path):
        if method != "PUT":
            return False
        if server.epoch == 1:
            server.tokens.clear()
            server.say(census=True)
            return False
        told.append(path)
        if len(told) > 2:
            return False
        handler.raw()
        handler.refuse(404, "not-found")
        return True

    server.intercept = settling
    launch("--cores", "1")
    server.submit([1, "echo made > o"], outputs=["o"])
    report = server.result(1, 30)
    assert report.get("o", "succeeded") == "succeeded" and server.blobs[report["files"][0][1]] == b"made\n"
    assert server.epoch == 2 and len(told) == 3
