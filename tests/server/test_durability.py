"""Real processes: killed, doubled, out of room."""

import hashlib
import json
import os
import signal
import subprocess
import threading

import pytest
from server_tools import Client, Pilot, Process, sweep, until

from windfall.errors import FlushFailed
from windfall.server.embedded import Embedded


def test_acknowledged_reports_and_bags_survive_a_kill(start):
    server = start()
    client = Client(server.profile)
    number = client.submit(sweep(50), Idempotency_Key="once")
    pilot = Pilot(client, cores=64)
    granted = [a for a, _ in pilot.get(want=50)]
    pilot.finish(granted[:20])
    server.kill()
    server = start()
    client = Client(server.profile)
    bag = client.call("GET", f"/v1/bags/{number}").body
    assert bag["counts"]["succeeded"] == 20 and bag["counts"]["active"] == 30
    assert client.submit(sweep(50), Idempotency_Key="once") == number
    pilot.client = Client(server.profile, pilot.me["token"])
    pilot.finish(granted)
    assert client.call("GET", f"/v1/bags/{number}").body["state"] == "succeeded"
    rows = client.call("GET", f"/v1/bags/{number}/results").body["rows"]
    assert [row["task"] for row in rows] == list(range(50))


def test_the_owners_token_stays_the_same(start):
    server = start()
    token = server.profile["token"]
    profile = (server.home / "server.json").read_bytes()
    server.kill()
    (server.home / "server.json").write_bytes(profile)
    os.chmod(server.home / "server.json", 0o600)
    with Embedded_(server.home) as again:
        assert again["token"] == token


class Embedded_:
    def __init__(self, home):
        self.server = Embedded(home)

    def __enter__(self):
        return self.server.start()

    def __exit__(self, *_):
        self.server.stop()


def test_a_second_server_on_the_same_data_is_refused(start, tmp_path):
    first = start()
    profile = (first.home / "server.json").read_bytes()
    second = Process(first.home)
    (first.home / "server.json").write_bytes(profile)
    assert second.process.wait(30) == 3
    assert "hint" in second.said()
    assert Client(first.profile).call("GET", "/health").status == 200


def test_a_server_waits_for_a_command_that_brought_its_own(tmp_path):
    """`windfall ls` in the very moment in which `windfall serve` starts."""
    home = tmp_path / "home"
    brief = Embedded(home)
    brief.start()
    starting = threading.Thread(target=lambda: found.append(Process(home)))
    found: list[Process] = []
    starting.start()
    until(lambda: "waiting" in said(tmp_path / "home.stderr"))
    brief.stop()
    starting.join()
    try:
        until(lambda: "serving at" in found[0].said())
    finally:
        found[0].stop()


def said(path):
    return path.read_text() if path.exists() else ""


def test_a_clean_stop_removes_the_socket_and_answers_everybody(start):
    server = start("127.0.0.1:0")
    unix = {"server": f"unix:{server.home / 'socket'}", "token": server.profile["token"]}
    client = Client(server.profile)
    assert Client(unix).call("GET", "/health").status == 200
    number = client.submit(sweep(1))
    lines = client.lines(f"/v1/bags/{number}/watch?from=0")
    next(lines)
    assert server.stop() == 0
    assert list(lines) == []
    assert not (server.home / "socket").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_though_somebody_watches(start, number):
    server = start()
    client = Client(server.profile)
    lines = client.lines(f"/v1/bags/{client.submit(sweep(1))}/watch?from=0")
    next(lines)
    server.process.send_signal(number)
    assert server.process.wait(30) == 0
    assert list(lines) == [] and not (server.home / "socket").exists()


def test_a_failed_flush_ends_the_process(tmp_path):
    """No effect is released, and no waiting client gets an answer."""
    from windfall.server import writer
    said = []
    server = Embedded(tmp_path / "home")
    client = Client(server.start(), timeout=1)
    running = server._runtime.writer
    running._die = lambda *ended: said.append(ended)

    def refuse(at, body):
        raise FlushFailed("the disk is gone")
    running.journal.append = refuse
    with pytest.raises(TimeoutError):
        client.call("POST", "/v1/bags", sweep(1))
    assert said == [("the disk is gone", 3)] and running.closed
    assert Client(server.start()).call("POST", "/v1/bags", sweep(1)).status == 503
    del writer
    server.stop()


def test_a_corrupted_journal_is_named_and_left_alone(start, tmp_path):
    server = start()
    server.stop()
    journal = server.home / "journal.db"
    journal.write_bytes(b"not a database" * 100)
    again = start()
    assert again.process.wait(10) == 3 and "journal.db" in again.said()
    assert journal.read_bytes().startswith(b"not a database")


def test_the_snapshot_at_the_end_is_what_comes_back(start):
    server = start()
    client = Client(server.profile)
    text = "\n".join(f"echo {i:060d}" for i in range(20_000))
    number = client.submit({"name": "big", "targets": [{"source": {"type": "lines", "text": text, "count": 20_000}}]})
    pilot = Pilot(client, cores=512)
    granted = pilot.get(want=500)
    pilot.finish([a for a, _ in granted])
    server.stop()
    server = start()
    bag = Client(server.profile).call("GET", f"/v1/bags/{number}").body
    assert bag["counts"]["succeeded"] == len(granted) and bag["tasks"] == 20_000


@pytest.fixture
def small(tmp_path):
    """A file system of 48 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.root
def test_a_full_disk_refuses_work_and_takes_results(start, small):
    server = start(home=small / "home")
    client = Client(server.profile)
    number = client.submit(sweep(4))
    pilot = Pilot(client)
    granted = [a for a, _ in pilot.get(want=2)]
    until(lambda: (small / "home" / "reserve").exists())
    with (small / "filler").open("wb") as filler:
        filler.write(bytes(os.statvfs(small).f_bavail * os.statvfs(small).f_frsize - (4 << 20)))
    reply = until(lambda: (r := client.call("POST", "/v1/bags", sweep(1))).status == 507 and r)
    assert reply.code == "disk-full" and int(reply.headers["Retry-After"]) > 0
    assert pilot.get(want=2) == []
    pilot.finish(granted)
    assert client.call("GET", f"/v1/bags/{number}").body["counts"]["succeeded"] == 2
    (small / "filler").unlink()
    until(lambda: client.call("POST", "/v1/bags", sweep(1)).status == 201)
    assert len(pilot.get(want=2)) == 2


def test_a_long_path_gets_its_socket_elsewhere(tmp_path):
    home = tmp_path / ("d" * 90) / "home"
    server = Embedded(home)
    profile = server.start()
    path = profile["server"][5:]
    assert not path.startswith(str(home)) and os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert Client(profile).call("GET", "/health").status == 200
    server.stop()


def test_the_profile_is_written_whole(start):
    server = start()
    assert set(json.loads((server.home / "server.json").read_text())) >= {"server", "certificate", "token"}


@pytest.mark.root
def test_a_full_disk_keeps_its_last_room_for_the_journal(start, small):
    """File contents of results are put off, with a time to come back; reports are taken."""
    server = start(home=small / "home")
    client = Client(server.profile)
    number = client.submit(sweep(2))
    pilot = Pilot(client)
    (attempt, _), (other, _) = pilot.get(want=2)
    until(lambda: (small / "home" / "reserve").exists())

    def put(body):
        name = hashlib.sha256(body).hexdigest()
        return pilot.client.call("PUT", f"/v1/blobs/{name}", raw=body, X_Attempt=str(attempt))
    assert put(b"early").status == 201
    with (small / "filler").open("wb") as filler:
        filler.write(bytes(os.statvfs(small).f_bavail * os.statvfs(small).f_frsize - (1 << 20)))
    reply = until(lambda: (r := put(os.urandom(1000))).status == 507 and r)
    assert reply.code == "disk-full" and int(reply.headers["Retry-After"]) > 0
    until(lambda: not (small / "home" / "reserve").exists())
    assert put(b"late").status == 507  # what the reserve freed is not for this
    pilot.finish([attempt])
    (small / "filler").unlink()
    attempt = other
    until(lambda: put(b"late").status == 201)
    assert client.call("GET", f"/v1/bags/{number}").body["counts"]["succeeded"] == 1
