"""The outbox: results of a pilot that leaves or dies, and their delivery by the next one or by salvage."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading

import pytest
from harness import call, wait_until, zipapp

from windfall.errors import WindfallError
from windfall.pilot.files import folder_locks, outbox, salvage as salvaging
from windfall.pilot.net.routes import Routes


def drop(handler):
    handler.close_connection = True
    handler.connection.close()
    return True


def entries(pilot):
    return sorted(name for _, _, names in os.walk(os.path.join(pilot.dir, "outbox")) for name in names
                  if name.endswith(".json"))


def test_uploads_under_way_reach_the_server_by_the_outbox(server, launch):
    """Hanging uploads, uploads that wait for a thread, large results and results without files all reach the server."""
    hanging, go = threading.Semaphore(0), threading.Event()

    def stuck(handler, method, path):
        if method == "PUT":
            hanging.release()
            go.wait(60)
            return drop(handler)
        return drop(handler) if go.is_set() else False

    server.intercept = stuck
    pilot = launch("--cores", "2")
    server.submit(*[[i, f"echo {i} > o"] for i in range(1, 9)], outputs=["o"])
    server.submit([10, call(bytes, 2 << 20)], kind="call")
    server.submit([9, "sleep 60"], grace=100)
    for _ in range(3):
        assert hanging.acquire(timeout=30)
    server.wait_started(9)
    pilot.process.terminate()
    server.wait_for(lambda: 9 in server.reports, 30)   # it leaves, and waits for the porters in vain
    go.set()
    assert pilot.wait(60) == 3
    left = {f"{i}.json" for i in (*range(1, 9), 10) if i not in server.reports}
    assert left and set(entries(pilot)) == left
    server.intercept = None
    launch("--idle", "1")
    large = server.result(10, 30)
    assert large["value"] == "@" and pickle.loads(server.blobs[large["files"][0][1]]) == ("ok", bytes(2 << 20))
    for i in range(1, 9):
        report = server.result(i, 30)
        assert report.get("o", "succeeded") == "succeeded"
        assert server.blobs[report["files"][0][1]] == f"{i}\n".encode()
    wait_until(lambda: not os.path.exists(os.path.join(pilot.dir, "outbox")))


def test_dropped_blob_is_uploaded_again(server, launch):
    reported = []

    def deaf(handler, method, path):
        if path != "/v1/exchange" or not server.blobs:
            return False
        reported.append(path)
        return drop(handler)

    server.intercept = deaf
    pilot = launch("--cores", "1")
    server.submit([1, "echo made > o"], outputs=["o"])
    wait_until(lambda: reported, 30)
    assert pilot.stop(60) == 3 and entries(pilot) == ["1.json"]
    assert list(server.blobs.values()) == [b"made\n"]
    server.blobs.clear()                        # nobody spoke for it
    server.intercept = None
    launch("--idle", "1")
    report = server.result(1, 30)
    assert report.get("o", "succeeded") == "succeeded" and server.blobs[report["files"][0][1]] == b"made\n"


def test_directory_is_removed_once_its_result_is_confirmed(server, launch):
    pilot = launch("--cores", "1")
    server.submit([1, "echo made > o"], outputs=["o"])
    server.result(1)
    run = os.path.join(pilot.dir, [name for name in os.listdir(pilot.dir) if name.startswith("run-")][0])
    wait_until(lambda: os.listdir(os.path.join(run, "tasks")) == [], 30)


class Blobs:
    """A server without blobs that accepts the reports that `refuse` does not."""

    def __init__(self, refuse):
        self.refuse = refuse
        self.took = []

    def has(self, digest, attempt):
        return False

    def request(self, request):
        reports = json.loads(request.body.decode())["reports"]

        class Reply:
            status, body = 200, b"{}"
        if any(map(self.refuse, reports)):
            Reply.status, Reply.body = 400, b'{"error": {"code": "bad-input", "message": "no"}}'
        else:
            self.took.extend(reports)
        return Reply


def box(tmp_path):
    made = outbox.Outbox(str(tmp_path / "outbox"), "one")
    made.open({"server": "unix:/nowhere", "certificate": "", "token": "t", "v": 1, "epoch": 1, "seq": 1, "ack": 0})
    return made


def test_missing_folder_does_not_harm_other_results(tmp_path):
    made = box(tmp_path)
    made.keep({"a": 1}, str(tmp_path / "gone"), {"files": ["o"]})
    made.keep({"a": 2, "files": []}, str(tmp_path / "gone too"), {"files": ["o"]})
    made.keep({"a": 3})
    assert made.kept == {1, 2, 3} and not made.close()
    blobs = Blobs(lambda report: False)
    assert outbox.deliver(made.folder, Routes("unix:/nowhere"), lambda link, token: blobs) == 3
    assert [(r["a"], r.get("why")) for r in blobs.took] == [(1, "output"), (2, None), (3, None)]


def test_result_whose_blob_and_file_are_gone_fails(tmp_path):
    made = box(tmp_path)
    made.keep({"a": 1, "files": [["o", "0" * 64, 1, 0o600]]})
    made.close()
    blobs = Blobs(lambda report: False)
    outbox.deliver(made.folder, Routes("unix:/nowhere"), lambda link, token: blobs)
    assert (blobs.took[0]["o"], blobs.took[0]["why"]) == ("failed", "output") and "files" not in blobs.took[0]


def test_outbox_entry_cannot_name_a_directory_elsewhere(tmp_path):
    made = box(tmp_path)
    secret = tmp_path / "elsewhere.d"
    secret.mkdir()
    (secret / "o").write_text("not a task's")
    made.keep({"a": 1, "o": "succeeded"})
    made.close()
    with open(os.path.join(made.folder, "1.json"), "w") as file:
        json.dump({"report": {"a": "../../elsewhere", "o": "succeeded"}, "cargo": {"files": ["o"]}}, file)
    blobs = Blobs(lambda report: False)
    with pytest.raises(WindfallError, match="cannot be read"):
        outbox.deliver(made.folder, Routes("unix:/nowhere"), lambda link, token: blobs)
    assert not blobs.took and (secret / "o").exists()


def test_refused_reports_do_not_hold_up_the_rest(tmp_path):
    made = box(tmp_path)
    for attempt in range(1, 101):
        made.keep({"a": attempt, "exit": 0})
    made.close()
    said, blobs = [], Blobs(lambda report: report["a"] == 7 or (report["a"] == 70 and "exit" in report))
    outbox.deliver(made.folder, Routes("unix:/nowhere"), lambda link, token: blobs, said.append)
    took = {report["a"]: report for report in blobs.took}
    assert set(took) == set(range(1, 101)) - {7} and took[70]["why"] == "refused"
    assert any("the pilot drops it" in text for text in said) and not os.path.exists(made.folder)


def test_outbox_is_delivered_in_messages_of_bounded_size(tmp_path):
    made = box(tmp_path)
    for attempt in range(1, 9):
        made.keep({"a": attempt, "out": "x" * 1500000})
    for attempt in range(100, 300):
        made.keep({"a": attempt})
    batches = list(outbox._batches(made.folder))
    assert sum(map(len, batches)) == 208
    for names in batches:
        size = sum(os.path.getsize(os.path.join(made.folder, name)) for name in names)
        assert len(names) <= outbox.REPORTS_AT_ONCE and size <= outbox.BYTES_AT_ONCE
    made.close()


def salvage(server, box, *nonces):
    ticket = server.ticket("looking")
    argv = [sys.executable, zipapp(), "salvage", "--ticket", ticket, "--outbox", box]
    argv += [word for nonce in nonces for word in ("--nonce", nonce)]
    done = subprocess.run(argv, capture_output=True, timeout=90)
    return done.returncode, json.loads(done.stdout.decode())["found"]


def test_salvage_delivers_the_results_of_a_pilot_by_its_nonce(
        server, launch, gate, tmp_path, monkeypatch):
    """The outbox is on another file system than the scratch, and a living pilot keeps its own results."""
    box = str(tmp_path / "shared" / "outbox")
    os.makedirs(os.path.dirname(box))
    pilot = launch("--cores", "1", "--outbox", box)
    server.submit([1, f"echo made > result; {gate.shell}"], outputs=["result"])
    server.wait_started(1)
    gone = []

    def away(handler, method, path):
        if path.startswith("/v1/blobs/"):
            gone.append(path)  # 1 has ended
        return drop(handler)

    server.intercept = away
    server.say(census=True)
    gate.open()
    wait_until(lambda: gone)
    assert pilot.stop(60) == 3
    assert not os.path.exists(os.path.join(pilot.dir, "outbox")) and len(os.listdir(box)) == 1
    monkeypatch.setattr("windfall.pilot.files.salvage.SECONDS", 1.0)
    assert salvaging.main(["--ticket", server.ticket("looking"), "--outbox", box, "--nonce", "n1"]) != 0
    assert len(os.listdir(box)) == 1  # the server is away: it stays
    server.intercept = None
    assert salvage(server, box, "another") == (0, {"another": 0})
    (folder,) = outbox.left_behind(box)
    held = folder_locks.take(folder)
    assert salvage(server, box, "n1") == (0, {"n1": -1})
    held.release()
    torn = os.path.join(box, "torn")
    os.mkdir(torn, 0o700)
    with open(os.path.join(torn, outbox.CREDENTIALS), "w") as file:
        json.dump({"nonce": "n0"}, file)
    assert salvage(server, box, "n0", "n1", "n2") == (0, {"n1": 1, "n2": 0})  # one that fails holds up no other
    assert salvage(server, box, "n0") == (1, {})
    shutil.rmtree(torn)
    assert server.result(1).get("o", "succeeded") == "succeeded"
    assert server.blobs[server.result(1)["files"][0][1]] == b"made\n"
    assert salvage(server, box, "n1") == (0, {"n1": 0})


def test_files_are_kept_on_another_file_system(tmp_path, monkeypatch):
    source, real = tmp_path / "scratch", os.rename
    source.mkdir()
    (source / "result").write_text("made")

    def rename(old, new):
        if str(old) == str(source):
            raise OSError(errno.EXDEV, "another file system")
        real(old, new)

    monkeypatch.setattr(os, "rename", rename)
    box = outbox.Outbox(str(tmp_path / "box"), "n1")
    box.open({})
    box.keep({"a": 7}, str(source), {"files": []})
    assert (tmp_path / "box" / "n1" / "7.d" / "result").read_text() == "made" and not source.exists()


def no_locks(fd, how):
    raise OSError(errno.ENOLCK, "No locks available")


def hangs(fd, how):
    threading.Event().wait()


@pytest.mark.parametrize("flock", [no_locks, hangs])
def test_outbox_works_on_a_file_system_without_locks(server, tmp_path, monkeypatch, flock):
    """One process at a time keeps or delivers results, and can take over an abandoned claim."""
    monkeypatch.setattr("fcntl.flock", flock)
    monkeypatch.setattr(folder_locks, "SECONDS", 0.2)
    monkeypatch.setattr(folder_locks, "RENEWED", 0.0)
    box, routes = str(tmp_path / "box"), Routes(server.url, server.certificate)
    made = outbox.Outbox(box, "one")
    made.open({"server": server.url, "certificate": server.certificate, "nonce": "n1"})
    made.keep({"a": 7, "o": "succeeded"})
    assert outbox.deliver(made.folder, routes, None) is None, "its pilot lives"
    with pytest.raises(OSError):
        outbox.Outbox(box, "one").open({})
    os.utime(os.path.join(made.folder, "claim"), (1, 1))
    made.renew()
    assert outbox.deliver(made.folder, routes, None) is None, "renewed in time"
    os.utime(os.path.join(made.folder, "claim"), (1, 1))
    taken = [folder_locks.take(made.folder) for _ in range(3)]
    assert [bool(each) for each in taken] == [True, False, False], "taken over once"
    made.renew()
    assert not made.close() and os.path.exists(os.path.join(made.folder, "claim")), "it is not his any more"
    taken[0].release()
    assert sorted(os.listdir(made.folder)) == ["7.json", "credentials", "lock"]
