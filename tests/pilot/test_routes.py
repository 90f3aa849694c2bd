"""The pilot's routes to the server: relay and spool with every Python from 3.6, and the choice among several."""

import asyncio
import json
import os
import signal
import sys
import threading
import time

import pytest
from harness import Pilot, Server, zipapp
from test_versions import FOUND

from windfall.errors import BadInput, NoServer, TrustError
from windfall.pilot import ticket
from windfall.pilot.net.routes import Routes
from windfall.provision import relay
from windfall.provision.relay import Relay
from windfall.sites.channels.here import Here


class Through:
    """A relay to a scripted server, under one of the interpreters."""

    def __init__(self, server, python):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.folder = os.path.join(server.folder, "relay")
        argv = (python, "-I", "-S", zipapp(), "relay", "--folder", self.folder, "--spool")
        self.relay = Relay(Here(home=server.folder), argv, ("127.0.0.1", int(server.url.rpartition(":")[2])))
        self.offer = self.do(self.relay.ready())

    def do(self, what):
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(60)

    def routes(self, kind):
        where = self.offer.spool if kind == "spool" else f"https://127.0.0.1:{self.offer.port}"
        return [{"kind": kind, "address": where}]

    def kill(self):
        """The process, once there is one; another will come."""
        end = time.monotonic() + 30
        while not (found := self._processes()):
            assert time.monotonic() < end, "it has not come back"
            time.sleep(0.02)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        while self._processes():
            time.sleep(0.02)

    def _processes(self):
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            found += [int(name)] if b"relay" in words and self.folder.encode() in words else []
        return found

    def close(self):
        self.do(self.relay.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


def with_routes(server, routes, **more):
    path = server.ticket()
    with open(path) as file:
        fields = json.load(file)
    fields.update(routes=routes, **more)
    with open(path, "w") as file:
        json.dump(fields, file)
    return path


@pytest.mark.parametrize("kind", ["relay", "spool"])
@pytest.mark.parametrize("python", FOUND)
def test_relay_and_spool_work_on_every_python(python, kind, tmp_path):
    server = Server(tmp_path, tls=True)
    through = Through(server, python)
    pilot = Pilot(server, "--idle", "20", python=python, ticket=with_routes(server, through.routes(kind)))
    try:
        data = os.urandom(3_000_000)
        server.submit(*[[i, ["echo", str(i)]] for i in range(1, 21)])
        server.submit([21, "cat in in > out"], inputs=[["in", server.blob(data), len(data), 0o644]], outputs=["out"])
        for i in range(1, 21):
            assert server.result(i)["out"] == f"{i}\n"
        (_, digest, size, _), = server.result(21)["files"]
        assert size == 6_000_000 and server.blobs[digest] == data + data
        assert pilot.stop() == 0 and not server.problems, pilot.text()
        left = [name for part in ("up", "down") for name in os.listdir(os.path.join(server.folder, "relay", part))]
        assert kind != "spool" or not [name for name in left if "." in name and name.endswith(".0")], left
    finally:
        pilot.end()
        through.close()
        server.close()


@pytest.mark.parametrize("kind", ["relay", "spool"])
def test_repeatedly_killed_relay_loses_no_result(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(relay, "PAUSES_S", (0.1,))
    server = Server(tmp_path, tls=True, lease=8000)
    server.grant_size = 4
    through = Through(server, sys.executable)
    pilot = Pilot(server, "--idle", "120", ticket=with_routes(server, through.routes(kind)))
    try:
        data = os.urandom(300_000)
        digest = server.blob(data)
        for i in range(1, 61):
            server.submit([i, f"cat in > out; echo {i} >> out; sleep 0.1"],
                          inputs=[["in", digest, len(data), 0o644]], outputs=["out"])
        for life in range(1, 7):
            server.wait_for(lambda life=life: len(server.reports) >= 8 * life, what=f"in life {life}")
            through.kill()
        server.wait_for(lambda: len(server.reports) == 60)
        assert through.relay.lives >= 6
        for i, reports in server.reports.items():
            (_, digest, _, _), = reports[0]["files"]
            assert server.blobs[digest] == data + f"{i}\n".encode()
        assert pilot.stop() == 0 and not server.problems, pilot.text()
    finally:
        pilot.end()
        through.close()
        server.close()


def test_working_route_is_tried_first(tmp_path):
    server = Server(tmp_path, tls=True)
    with open(server.certificate) as file:
        certificate = file.read()
    dead = {"kind": "direct", "address": "https://127.0.0.1:1"}
    good = {"kind": "relay", "address": server.url}
    routes = Routes(server.url, certificate, [dead, good])
    try:
        for _ in range(2):
            sock, route = routes.connect()
            sock.close()
            assert route.kind == "relay" and routes.best == 1 and route.host() == "localhost"
        with pytest.raises(NoServer, match="127.0.0.1:1"):
            Routes(server.url, certificate, [dead]).connect()
    finally:
        server.close()


def test_certificate_is_checked_on_every_route(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, other = Server(tmp_path / "a", tls=True), Server(tmp_path / "b", tls=True)
    with open(ours.certificate) as file:
        certificate = file.read()
    wrong = {"kind": "relay", "address": other.url}
    try:
        with pytest.raises(TrustError, match="not the one in the ticket"):
            Routes(ours.url, certificate, [wrong]).connect()
        sock, route = Routes(ours.url, certificate, [wrong, {"kind": "direct", "address": ours.url}]).connect()
        sock.close()
        assert route.kind == "direct"
    finally:
        ours.close()
        other.close()


def test_ticket_is_read_again_when_no_route_works(tmp_path):
    server = Server(tmp_path, tls=True)
    path = with_routes(server, [{"kind": "relay", "address": "https://127.0.0.1:1"}])
    read = ticket.read(path)
    routes = Routes.of(read)
    try:
        with pytest.raises(NoServer):
            routes.connect()
        with_routes(server, [{"kind": "relay", "address": server.url}], token="another")
        routes.read_at -= 60  # it was read a minute ago
        sock, route = routes.connect()
        sock.close()
        assert route.where == server.url and read.token == "another" and read.nonce == "n1"
    finally:
        server.close()


@pytest.mark.parametrize("routes, says", [
    ("x", "no list"), ([1], "without kind"), ([{"kind": "relay"}], "without kind"),
    ([{"kind": "spool", "address": "here"}], "absolute"), ([{"kind": "pigeon", "address": "x"}], "newer pilot"),
    ([{"kind": "relay", "address": "https://a:1"}] * 40, "no list"),
])
def test_invalid_routes_are_refused(tmp_path, routes, says):
    server = Server(tmp_path, tls=True)
    server.close()
    with pytest.raises(BadInput) as wrong:
        ticket.read(with_routes(server, routes))
    assert says in str(wrong.value)


def test_unknown_kind_of_route_is_left_out(tmp_path):
    server = Server(tmp_path, tls=True)
    server.close()
    routes = [{"kind": "pigeon", "address": "x"}, {"kind": "direct", "address": server.url}]
    assert ticket.read(with_routes(server, routes)).routes == routes[1:]
