"""Small clients and servers for these tests."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

SRC = str(Path(__file__).resolve().parents[2] / "src")
SWEEP = {"name": "x", "targets": [{"command": "echo {x}", "source": {
    "type": "sweep", "axes": [{"type": "range", "name": "x", "first": 1, "last": 20}]}}]}


def sweep(n, name="x", **more):
    source = {"type": "sweep", "axes": [{"type": "range", "name": "x", "first": 1, "last": n}]}
    return {"name": name, "targets": [{"command": ["echo", "{x}"], "source": source, **more}]}


class Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connect(profile, timeout=60):
    if profile["server"].startswith("unix:"):
        return Unix(profile["server"][5:], timeout)
    host, _, port = profile["server"][8:].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=profile["certificate"])
    context.verify_flags |= 0x80000
    return http.client.HTTPSConnection(host, int(port), timeout=timeout, context=context)


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.raw = response.read()

    @property
    def body(self):
        return json.loads(self.raw)

    @property
    def code(self):
        return self.body["error"]["code"]


class Client:
    def __init__(self, profile, token=None, timeout=60):
        self.profile = profile
        self.token = profile["token"] if token is None else token
        self.connection = connect(profile, timeout)

    def call(self, method, path, body=None, token=None, raw=None, **headers):
        return Reply(self.send(method, path, body, token, raw, **headers))

    def send(self, method, path, body=None, token=None, raw=None, **headers):
        token = self.token if token is None else token
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["Authorization"] = f"Bearer {token}"
        data = json.dumps(body).encode() if body is not None else raw
        self.connection.request(method, path, data, named)
        return self.connection.getresponse()

    def submit(self, bag, **headers):
        reply = self.call("POST", "/v1/bags", bag, **headers)
        assert reply.status == 201, reply.raw
        return reply.body["bag"]

    def token_for(self, scope, **more):
        return self.call("POST", "/v1/tokens", {"scope": scope, **more}).body

    def lines(self, path):
        """A stream of JSON lines, on a connection of its own."""
        response = Client(self.profile, self.token).send("GET", path)
        assert response.status == 200
        while True:
            line = response.readline()
            if not line:
                return
            yield json.loads(line)


class Pilot:
    """A pilot that runs nothing: it speaks the exchange and says what it is told to say."""

    def __init__(self, client, site="local", nonce="n", cores=2, **shape):
        self.client = Client(client.profile, client.token_for("enrol", site=site)["token"])
        host = {"id": "h", "name": "host", "cores": cores, "memory": 1 << 30}
        reply = self.client.call("POST", "/v1/enrol", {
            "v": 1, "site": site, "nonce": nonce, "host": host, "shape": {"cores": cores, "memory": 1 << 30, **shape}})
        assert reply.status == 200, reply.raw
        self.me = reply.body
        self.client.token = self.me["token"]
        self.seq = self.ack = 0

    def message(self, **more):
        self.seq += 1
        return {"v": 1, "epoch": self.me["epoch"], "seq": self.seq, "ack": self.ack, **more}

    def exchange(self, **more):
        reply = self.client.call("POST", "/v1/exchange", self.message(**more))
        assert reply.status == 200, reply.raw
        return self.take(reply.body)

    def take(self, answer):
        for grant in answer.get("grants", ()):
            self.ack = max(self.ack, grant["n"])
        return answer

    def get(self, want=1, wait=0):
        return tasks(self.exchange(want=want, wait=wait))

    def finish(self, attempts, **more):
        return self.exchange(reports=[{"a": a, "wall": 5, **more} for a in attempts])


def tasks(answer):
    return [task for grant in answer.get("grants", ()) for group in grant["groups"] for task in group["tasks"]]


_SERVE = """
import sys
from pathlib import Path
from windfall.server.main import serve
pilot = "--pilot" in sys.argv
listen = [each for each in sys.argv[2:] if each != "--pilot"]
sys.exit(serve(Path(sys.argv[1]), *listen, pilot=pilot))
"""


class Process:
    """A server in a process of its own."""

    def __init__(self, home, *arguments):
        self.home = Path(home)
        self.stderr = Path(str(home) + ".stderr")
        profile = self.home / "server.json"
        profile.unlink(missing_ok=True)
        with self.stderr.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(home), *arguments], stderr=errors,
                env={**os.environ, "PYTHONPATH": SRC})
        self.profile = None
        end = time.monotonic() + 15
        while time.monotonic() < end and self.process.poll() is None:
            if profile.exists():
                self.profile = json.loads(profile.read_text())
                break
            time.sleep(0.01)

    def said(self):
        return self.stderr.read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")
