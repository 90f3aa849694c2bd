"""The embedded server with a real pilot."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from server_tools import SRC, Client, sweep, until

from windfall.errors import StoreLocked
from windfall.server.embedded import Embedded

ENV = {**os.environ, "PYTHONPATH": SRC}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def running(home):
    server = Embedded(home)
    server.ensure_pilot(cores=2)
    client = Client(server.start())
    yield server, client
    server.stop()


def wait(client, number, seconds=20):
    until(lambda: client.call("GET", f"/v1/bags/{number}").body["state"] not in ("waiting", "running", "open"), seconds)
    return client.call("GET", f"/v1/bags/{number}").body


def leftovers(home):
    return [p for p in psutil.process_iter(["cmdline"]) if any(str(home) in part for part in p.info["cmdline"] or ())]


def children(process):
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def test_embedded_server_runs_a_bag_to_its_results(running):
    _, client = running
    number = client.submit(sweep(20))
    assert wait(client, number)["counts"]["succeeded"] == 20
    rows = client.call("GET", f"/v1/bags/{number}/results").body["rows"]
    assert [row["params"]["x"] for row in rows] == list(range(1, 21))
    assert client.call("GET", f"/v1/bags/{number}/tasks/4/log").raw == b"5\n"


def test_the_pilot_leaves_with_the_server(home):
    server = Embedded(home)
    server.ensure_pilot(cores=1)
    client = Client(server.start())
    wait(client, client.submit(sweep(1)))
    pilot = server._pilot._process
    server.stop()
    assert pilot.returncode is not None and pilot.returncode != -signal.SIGKILL  # it left, it was not killed
    until(lambda: not leftovers(home))


def test_a_second_run_on_the_same_data(home):
    for turn in (1, 2):
        server = Embedded(home)
        server.ensure_pilot(cores=1)
        client = Client(server.start())
        assert wait(client, client.submit(sweep(2)))["state"] == "succeeded"
        assert len(client.call("GET", "/v1/bags").body["bags"]) == turn
        server.stop()


def test_two_at_once_are_refused(running, home):
    with pytest.raises(StoreLocked):
        Embedded(home).start()


def test_a_pilot_that_is_killed_is_reported_and_replaced(running, tmp_path):
    server, client = running
    wait(client, client.submit(sweep(1)))
    number = client.submit({"name": "s", "targets": [{"command": f"until test -e {tmp_path}/go; do sleep 0.05; done"}]})
    until(lambda: client.call("GET", f"/v1/bags/{number}").body["counts"]["active"])
    first = server._pilot.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: len(client.call("GET", "/v1/pilots").body["pilots"]) == 2)
    (tmp_path / "go").touch()
    assert wait(client, number)["state"] == "succeeded"
    pilots = client.call("GET", "/v1/pilots").body["pilots"]
    assert server._pilot.pid != first and sorted(p["state"] for p in pilots) == ["gone", "live"]


def test_a_killed_process_leaves_no_pilot_for_ever(home):
    code = ("import sys, time; from pathlib import Path; from windfall.server.embedded import Embedded\n"
            "e = Embedded(Path(sys.argv[1])); e.ensure_pilot(cores=1); e.start()\n"
            "print('up', flush=True); time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, env=ENV)
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.wait()
    server = Embedded(home)
    server.ensure_pilot(cores=1)
    client = Client(server.start())
    assert wait(client, client.submit(sweep(3)))["state"] == "succeeded"
    server.stop()
    # The older epoch may report, not start, and leaves by itself when idle limit and lease have passed in silence.
    left = leftovers(home)
    assert len({p.pid for p in left} - {c.pid for p in left for c in children(p)}) <= 1
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    until(lambda: not leftovers(home))


def test_embedded_server_loads_no_tls_modules():
    code = ("import sys; import windfall.server.embedded, windfall.server.runtime\n"
            "print([m for m in ('cryptography', 'uvicorn', 'http.client', 'email') if m in sys.modules])")
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV)
    assert got.stdout.strip() == "[]", got.stderr


def test_the_ticket_is_private(running, home):
    ticket = home / "pilot" / "local.json"
    assert ticket.stat().st_mode & 0o777 == 0o600
    token = __import__("json").loads(ticket.read_text())["token"]
    for process in leftovers(home):
        assert token not in " ".join(process.cmdline())
        assert token not in " ".join(process.environ().values())
    assert Path(home / "pilot").stat().st_mode & 0o777 == 0o700
