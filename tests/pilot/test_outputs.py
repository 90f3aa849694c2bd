"""Files of tasks that did not succeed: checkpoints and kept scratch; and files in place on the host."""

import io
import os
import signal
import tarfile
import time
from types import SimpleNamespace

from harness import wait_until

from windfall.pilot.files import limits, outputs, transfers

# Counts in a file from where it stands; writes it when it is told to end.
COUNTER = """
import os, signal, sys, time
n = int(open("state").read()) if os.path.exists("state") else 0
def save(number, frame):
    open("state", "w").write(str(n))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("from", n, flush=True)
while True:
    n += 1
    open(sys.argv[1], "w").close()
    time.sleep(0.01)
"""


def counter(begun):
    return ["python3", "-c", COUNTER, str(begun)]


def saved(server, report):
    (path, digest, size, _), = report["saved"]
    assert path == "state" and len(server.blobs[digest]) == size
    return int(server.blobs[digest])


def test_stopped_pilot_saves_new_checkpoints(server, launch, tmp_path):
    pilot = launch("--cores", "1")
    begun = tmp_path / "begun"
    old = [["state", server.blob(b"41"), 2, 0o644]]
    server.submit([1, counter(begun)], checkpoint=["state", "never/made"], inputs=old)
    wait_until(begun.exists)
    assert pilot.stop() == 0
    report = server.result(1)
    assert (report["o"], report["why"]) == ("returned", "stop") and "note" not in report
    assert report["out"] == "from 41\n" and saved(server, report) > 41


def test_checkpoint_is_saved_before_the_wall_time_ends(server, launch, tmp_path):
    pilot = launch("--cores", "1", "--walltime", "10")
    begun = tmp_path / "begun"
    server.submit([1, counter(begun)], checkpoint=["state"], grace=1500)
    report = server.result(1)
    assert (report["o"], report["why"]) == ("returned", "stop") and saved(server, report) > 0
    assert pilot.wait() == 0


def test_task_over_its_time_limit_saves_its_checkpoint(server, launch, tmp_path):
    launch("--cores", "1")
    server.submit([1, counter(tmp_path / "begun")], checkpoint=["state"], time=3000)
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "time") and saved(server, report) > 0


def test_task_without_a_checkpoint_file_saves_none(server, launch, tmp_path):
    launch("--cores", "1")
    server.submit([1, "exit 1"], [2, "true"], [3, "echo x > state; exit 1"], checkpoint=["state"])
    server.submit([4, "sleep 600"], checkpoint=["state"], time=300, grace=100)
    for attempt in (1, 2, 3, 4):
        assert "saved" not in server.result(attempt) and "saved" not in server.result(attempt).get("note", "")


def test_checkpoint_waits_in_the_outbox_while_the_server_is_away(server, launch, tmp_path):
    """The checkpoint waits in the outbox for the next pilot."""
    pilot = launch("--cores", "1")
    begun = tmp_path / "begun"
    server.submit([1, counter(begun)], checkpoint=["state"])
    wait_until(begun.exists)
    server.wait_started(1)
    server.intercept = lambda handler, method, path: handler.connection.close() or True
    assert pilot.stop() == 3
    server.intercept = None
    launch("--cores", "1")
    assert saved(server, server.result(1)) > 0


def names(server, report):
    digest, size = report["scratch"]
    assert len(server.blobs[digest]) == size
    with tarfile.open(fileobj=io.BytesIO(server.blobs[digest])) as archive:
        return sorted(archive.getnames())


def test_scratch_directory_of_a_failure_is_uploaded(server, launch):
    pilot = launch()
    command = "mkdir -p d/e; echo x > d/e/f; ln -s f d/e/link; mkfifo pipe; exit $CODE"
    server.submit([1, command], scratch="failed", environment={"CODE": "1"})
    server.submit([2, command], scratch="failed", environment={"CODE": "0"})
    server.submit([3, "echo y > f"], scratch="failed", check={"match": "z"})
    assert names(server, server.result(1)) == ["d", "d/e", "d/e/f", "d/e/link"] and server.result(1)["why"] == "exit"
    assert "scratch" not in server.result(2) and "o" not in server.result(2)
    assert names(server, server.result(3)) == ["f"]
    assert pilot.stop() == 0
    assert os.listdir(pilot.dir) == []


def test_kept_directory_has_no_inputs_that_the_task_left_unchanged(server, launch):
    launch("--cores", "1")
    inputs = [[name, server.blob(body), len(body), 0o644]
              for name, body in (("d/same", b"one"), ("changed", b"two"), ("restored", b"six"))]
    server.submit([1, "echo 2 > changed; echo 3 > new; exit 1"], inputs=inputs, scratch="failed",
                  checkpoint=["restored"])
    assert names(server, server.result(1)) == ["changed", "d", "new", "restored"]


def test_links_that_lead_out_are_not_followed(server, launch, tmp_path):
    """Through such a link a task in a container could read files that only the pilot may read."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "o").write_text("secret")
    launch()
    server.submit([1, f"ln -s {secret} o"], outputs=["o"])
    server.submit([2, "ln -s {} d".format(tmp_path / "folder")], outputs=["d/o"])
    server.submit([3, f"ln -s ../../../../../../../../..{secret} o"], outputs=["o"])
    server.submit([4, f"ln -s {secret} o"], capture=[["v", "s.*", "o"]])
    server.submit([5, "mkdir d; echo mine > d/f; ln -s d/f o; ln -s d e"], outputs=["o", "e/f"])
    for attempt in (1, 2, 3):
        report = server.result(attempt)
        assert (report["o"], report["why"]) == ("failed", "output") and "leads out" in report["note"]
    assert "values" not in server.result(4)
    assert [(path, size) for path, _, size, _ in server.result(5)["files"]] == [("o", 5), ("e/f", 5)]
    assert b"secret" not in server.blobs.values()


DEEP = """import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
raise SystemExit(3)
"""


def test_very_deep_directory_does_not_stop_the_pilot(server, launch):
    pilot = launch("--cores", "1")
    server.submit([1, ["python3", "-c", DEEP]], scratch="failed")
    server.submit([2, "echo on"])
    report = server.result(1)
    assert (report["why"], report["exit"]) == ("exit", 3) and ("scratch" in report or "not kept" in report["note"])
    assert server.result(2)["out"] == "on\n"
    assert pilot.stop() == 0
    assert os.listdir(pilot.dir) == []


def test_any_error_with_files_ends_the_attempt(tmp_path, monkeypatch):
    folders = SimpleNamespace(tasks=str(tmp_path), cache=str(tmp_path / "c"), environments=str(tmp_path / "e"))
    made = transfers.Transfers(folders, lambda: None, lambda: "", lambda: None)

    def wrong(*arguments):
        raise RecursionError("too deep")

    monkeypatch.setattr(outputs, "send", wrong)
    monkeypatch.setattr(transfers.staging, "stage_in", wrong)
    made._upload(SimpleNamespace(), {"a": 1}, {}, limits.Limits())
    made._fetch(None, 2, lambda name: None)
    ends = [(kind, report["a"], report["why"]) for kind, _, report in made.done]
    assert ends == [("uploaded", 1, "output"), ("fetched", 2, "input")]
    assert all("too deep" in report["note"] for _, _, report in made.done)


class Blobs:
    def upload(self, file, digest, size, attempt):
        raise AssertionError("nothing is to be sent")


def test_large_directory_is_only_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "ARCHIVE_BYTES", 1000)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "big").write_bytes(bytes(2000))
    fields = outputs.send(str(tmp_path / "t"), {"scratch": True}, {"a": 1, "note": "exit code 1"}, Blobs())
    assert list(fields) == ["note"] and fields["note"].startswith("exit code 1; the directory was not kept")
    assert os.listdir(str(tmp_path)) == ["t"]


def test_placed_files_are_linked_or_missing_ones_named(server, launch, tmp_path):
    launch()
    panel = tmp_path / "panel.bin"
    panel.write_text("panel")
    server.submit([1, "cat ref/p; readlink ref/p"], placed=[["ref/p", str(panel)], ["", str(tmp_path)]])
    server.submit([2, "true"], placed=[["", "/nowhere/panel.bin"]])
    server.submit([3, "true"], placed=[["../out", str(panel)]])
    server.submit([4, "rm ref/p; echo changed > ref/p"], placed=[["ref/p", str(panel)]])
    assert server.result(1)["out"] == f"panel{panel}\n"
    assert (server.result(2)["o"], server.result(2)["why"]) == ("failed", "input")
    assert "/nowhere/panel.bin is not on this host" in server.result(2)["note"]
    assert server.result(3)["why"] == "input"
    assert "o" not in server.result(4) and panel.read_text() == "panel"


def test_task_of_a_killed_spawner_has_no_checkpoint(server, launch, tmp_path):
    pilot = launch("--cores", "1")
    server.submit([1, counter(tmp_path / "begun")], checkpoint=["state"])
    wait_until((tmp_path / "begun").exists)
    os.kill(pilot.spawners()[0], signal.SIGKILL)
    assert (server.result(1)["o"], server.result(1)["why"]) == ("returned", "gone")


class LinkStub:
    def abort(self):
        pass


def test_live_output_is_sent_in_order(tmp_path):
    """Three threads send pieces, and the second piece never overtakes a slow first one."""
    folders = SimpleNamespace(tasks=str(tmp_path), cache=str(tmp_path / "c"), environments=str(tmp_path / "e"))
    made, seen = transfers.Transfers(folders, LinkStub, lambda: "", lambda: None), []

    def send(blobs, piece):
        offset = piece[2]
        time.sleep(0.05 if offset % 3 == 0 else 0)
        seen.append(offset)

    made._send = send
    for offset in range(40):
        made.show(1, "out", offset, b"x")
        made.run_in_thread(lambda blobs: None)
    wait_until(lambda: len(seen) == 40 and not made.showing)
    assert seen == list(range(40))
    made.show(1, "out", 40, b"x")
    wait_until(lambda: seen[-1] == 40)
    assert made.close(5)


def test_output_counts_by_its_apparent_size_against_the_disk_limit(server, launch):
    launch("--cores", "1")
    server.submit([1, "truncate -s 2T big"], outputs=["big"], disk=10 << 20)
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "disk") and "over its disk limit" in report["note"]
    assert "files" not in report


def test_sending_of_outputs_ends_with_the_time_limit(server, launch):
    launch("--cores", "1")
    server.submit([1, "truncate -s 2T big"], outputs=["big"], time=1500)
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "time") and "sending its outputs" in report["note"]


def test_sending_of_outputs_ends_when_the_bag_is_cancelled(server, launch, tmp_path):
    launch("--cores", "1")
    server.submit([1, f"truncate -s 2T big; touch {tmp_path}/ended"], outputs=["big"])
    server.submit([2, "true"])
    wait_until((tmp_path / "ended").exists)
    server.result(2)  # which ran in the slot that the first task has left
    server.say(cancel=[1])
    assert (server.result(1)["o"], server.result(1)["why"]) == ("cancelled", "cancel")


def test_wait_for_the_server_counts_against_no_limit(server, launch):
    """A server with a full disk makes pilots wait; no result is lost for that."""
    launch("--cores", "1")
    refused = []

    def later(handler, method, path):
        if method == "PUT" and len(refused) < 3:
            refused.append(path)
            handler.rfile.read(int(handler.headers["Content-Length"]))
            handler.answer(507, {"error": {"code": "disk-full"}}, [("Retry-After", "1")])
            return True
        return False
    server.intercept = later
    server.submit([1, "echo out > f"], outputs=["f"], time=1500)
    assert server.result(1).get("o", "succeeded") == "succeeded" and len(refused) == 3


def test_output_that_the_quota_refuses_fails_the_attempt_with_the_servers_words(server, launch):
    launch("--cores", "1")

    def refuse(handler, method, path):
        if method == "PUT":
            handler.rfile.read(int(handler.headers["Content-Length"]))
            handler.answer(507, {"error": {"code": "over-quota", "message": "your files here take 9 GB of 5 GB"}})
        return method == "PUT"
    server.intercept = refuse
    server.submit([1, "echo out > f"], outputs=["f"])
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "output") and "9 GB of 5 GB" in report["note"]
