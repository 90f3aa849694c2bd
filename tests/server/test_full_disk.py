"""Servers whose data folder lies on a small file system that fills up."""

import os
import signal
import subprocess
import sys
from http.client import HTTPException

import pytest
from server_tools import SRC, Client, Pilot, sweep, until

pytestmark = pytest.mark.root
MIB = 1 << 20


@pytest.fixture
def small(tmp_path):
    """A file system of 128 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128m", "none", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place, leave=0):
    """Write until at most `leave` bytes are free."""
    with (place / "filler").open("ab", 0) as filler:
        try:
            while (free := os.statvfs(place).f_bavail * os.statvfs(place).f_frsize) > leave:
                filler.write(bytes(min(64 << 10, free - leave)))
        except OSError:
            pass


def command(place, *arguments):
    return subprocess.run([sys.executable, "-m", "windfall", *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": SRC, "WINDFALL_HOME": str(place / "home")})


def test_everything_that_waits_says_that_the_disk_is_full_and_what_frees_it(start, small):
    server = start(home=small / "home")
    client = Client(server.profile)
    waiting, active = client.submit(sweep(1)), client.submit(sweep(1))
    client.call("POST", f"/v1/bags/{waiting}/pause")
    pilot = Pilot(client)
    assert len(pilot.get()) == 1
    client.call("POST", f"/v1/bags/{waiting}/unpause")
    until(lambda: (small / "home" / "reserve").exists())
    fill(small, leave=6 * MIB)
    until(lambda: "is full" in str(client.call("GET", "/health").body["problems"]))
    (problem,) = client.call("GET", "/health").body["problems"]
    assert str(small) in problem and "windfall rm" in problem
    for bag in (waiting, active):
        explained = client.call("GET", f"/v1/bags/{bag}/explain").body
        assert explained["problem"] == problem and explained["summary"].startswith(problem)
        assert client.call("GET", f"/v1/bags/{bag}").body["problem"] == problem
    assert "busy" not in client.call("GET", f"/v1/bags/{waiting}/explain").body["summary"]
    assert problem in command(small, "explain", str(waiting)).stdout
    assert problem in command(small, "show", str(active)).stdout
    (small / "filler").unlink()
    until(lambda: client.call("GET", "/health").body["problems"] == [])
    assert "problem" not in client.call("GET", f"/v1/bags/{waiting}/explain").body


def test_results_are_taken_and_bags_removed_while_nothing_is_free(start, small):
    server = start(home=small / "home")
    client = Client(server.profile)
    old, bag = client.submit(sweep(1)), client.submit(sweep(40))
    pilot = Pilot(client, cores=64)
    granted = [a for a, _ in pilot.get(want=41)]
    until(lambda: (small / "home" / "reserve").exists())
    until(lambda: fill(small) or not (small / "home" / "reserve").exists())
    fill(small)
    for attempt in granted:
        pilot.finish([attempt])
    assert client.call("GET", f"/v1/bags/{bag}").body["state"] == "succeeded"
    fill(small)
    assert len(client.call("GET", f"/v1/bags/{bag}/results").body["rows"]) == 40
    fill(small)
    assert "removed" in command(small, "rm", str(old)).stdout
    (small / "filler").unlink()
    until(lambda: client.call("POST", "/v1/bags", sweep(1)).status == 201)


def test_server_stops_in_order_when_the_reserve_is_used_up_and_starts_again(start, small):
    server = start("--pilot", home=small / "home")
    client = Client(server.profile)
    bag = client.submit(sweep(1, command=["sleep", "1000"]))
    until(lambda: client.call("GET", f"/v1/bags/{bag}").body["counts"]["active"])
    pilots = children(server.process.pid)
    assert pilots
    until(lambda: (small / "home" / "reserve").exists())
    for number in range(5_000):
        fill(small)
        try:
            if client.call("POST", f"/v1/bags/{bag}/policy", {"policy": {"rank": f"{number} + 1"}}).status == 503:
                break
        except (OSError, HTTPException):
            break
    assert server.process.wait(30) == 3
    assert f"the disk with {small / 'home'} is full" in server.said() and "hint" in server.said()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pilots), 20)
    fill(small)
    assert free(small) == 0
    again = start(home=small / "home")
    client = Client(again.profile)
    assert client.call("GET", f"/v1/bags/{bag}").body["state"] == "running"
    assert "full" in client.call("GET", "/health").body["problems"][0]
    again.process.send_signal(signal.SIGTERM)
    assert again.process.wait(30) == 0


def free(place):
    return os.statvfs(place).f_bavail * os.statvfs(place).f_frsize


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.parametrize("arguments", [("serve",), ("run", "true"), ("ls",)])
def test_full_disk_at_the_first_start_is_named(small, arguments):
    fill(small)
    found = command(small, *arguments)
    assert found.returncode == 3
    assert f"the disk with {small / 'home'}" in found.stderr and "is full" in found.stderr
    assert "hint" in found.stderr


def test_server_ends_in_order_although_its_log_is_on_the_full_disk(small):
    with (small / "log").open("wb", 0) as log:
        log.write(bytes(4096))
        fill(small)
        environment = {**os.environ, "PYTHONPATH": SRC, "WINDFALL_HOME": str(small / "home")}
        ended = subprocess.run([sys.executable, "-m", "windfall", "serve"], stderr=log, env=environment, timeout=60)
    assert ended.returncode == 3


@pytest.fixture
def scratch(tmp_path):
    """The folder of the server's own pilot, on a file system of 128 MiB."""
    place = tmp_path / "data" / "pilot" / "local"
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=128m", "none", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_tasks_wait_while_the_only_pilots_scratch_disk_is_full(start, scratch, tmp_path):
    for folder in (tmp_path / "data", tmp_path / "data" / "pilot"):
        folder.chmod(0o700)
    fill(scratch, leave=MIB)
    client = Client(start("--pilot").profile)
    bag = client.submit(sweep(20, command=["sh", "-c", "echo line > f"], retries=0))

    def summary():
        said = client.call("GET", f"/v1/bags/{bag}/explain").body["summary"]
        return said if "scratch" in said else ""
    why = until(summary)
    assert "takes no tasks" in why and str(scratch) in why
    assert "scratch" in client.call("GET", "/v1/pilots").body["pilots"][-1]["trouble"]
    (scratch / "filler").unlink()
    until(lambda: client.call("GET", f"/v1/bags/{bag}").body["state"] == "succeeded")


def test_run_says_that_the_servers_disk_is_full(start, small):
    start("--pilot", home=small / "home")
    until(lambda: (small / "home" / "reserve").exists())
    environment = {**os.environ, "PYTHONPATH": SRC, "WINDFALL_HOME": str(small / "home")}
    said = small.parent / "said"
    with said.open("wb") as file:
        running = subprocess.Popen([sys.executable, "-m", "windfall", "run", "sleep 1000"], stderr=file,
                                   stdout=file, env=environment, cwd=small.parent)
    until(lambda: b"1 running" in said.read_bytes())
    fill(small, leave=6 * MIB)
    until(lambda: f"the server reports: the disk with {small / 'home'}".encode() in said.read_bytes())
    running.send_signal(signal.SIGINT)
    running.wait(30)


def test_pilot_without_a_byte_of_scratch_names_the_directory(small, tmp_path):
    fill(small)
    ticket = tmp_path / "ticket"
    ticket.write_text('{"server": "unix:/nowhere", "certificate": "", "token": "t", "site": "s", "nonce": "n"}')
    ticket.chmod(0o600)
    found = subprocess.run([sys.executable, "-m", "windfall", "pilot", "--ticket", str(ticket), "--dir", str(small)],
                           capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": SRC})
    assert found.returncode == 2 and f"cannot use the directory {small}: No space left" in found.stderr
