"""A server in a few lines, for the client's tests: the calls of docs/reference/http.md over a Unix socket or
TLS, in memory.

It runs each task at once, in a directory of its own, when the bag is submitted.  `plan` makes it misbehave.
"""

import hashlib
import http.server
import json
import os
import re
import socket
import socketserver
import subprocess
import tempfile
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from windfall.errors import WindfallError
from windfall.model.check import validate
from windfall.model.render import Renderer
from windfall.model.spec import Bag

TOKEN = "secret-token"


class Stub:
    def __init__(self, directory: Path):
        self.directory = directory
        self.blobs: dict[str, bytes] = {}
        self.partial: dict[str, bytes] = {}
        self.bags: list[dict] = []
        self.keys: dict[str, dict] = {}
        self.requests: list[tuple[str, str]] = []
        self.plan: list[tuple[str, object]] = []  # what to do to the next requests: ("status", 503) or ("cut", bytes)
        self.outputs: dict[tuple[int, int, str], bytes] = {}
        self.hold = False  # submitted bags stay unfinished
        handler = type("Handler", (_Handler,), {"stub": self})
        self.path = str(directory / "stub.sock")
        self._server = _UnixServer(self.path, handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.profile = {"server": "unix:" + self.path, "certificate": "", "token": TOKEN}

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
        Path(self.path).unlink(missing_ok=True)

    def run(self, bag: Bag) -> dict:
        number = len(self.bags) + 1
        rows = []
        for target in bag.targets:
            renderer = Renderer(target)
            for index in range(renderer.count):
                rows.append(self._task(number, len(rows), target, renderer, index))
        entry = {"bag": number, "spec": bag, "rows": rows, "paused": False}
        self.bags.append(entry)
        return entry

    def _task(self, bag, task, target, renderer, index):
        command = renderer.command(index)
        with tempfile.TemporaryDirectory(dir=self.directory) as where:
            for each in target.inputs:
                path = Path(where, each.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.blobs[each.blob])
            done = subprocess.run(
                command if isinstance(command, list) else ["/bin/sh", "-c", command], cwd=where, capture_output=True
            )
            files = []
            for path in renderer.outputs(index):
                if Path(where, path).exists():
                    data = Path(where, path).read_bytes()
                    sha = hashlib.sha256(data).hexdigest()
                    self.blobs[sha] = data
                    files.append([path, sha, len(data), 0o644])
        self.outputs[bag, task, "out"], self.outputs[bag, task, "err"] = done.stdout, done.stderr
        good = done.returncode in target.check.exit
        return {
            "task": task,
            "target": target.name,
            "params": renderer.params(index),
            "state": "succeeded" if good else "failed",
            "generation": 0,
            "attempt": task,
            "outcome": "succeeded" if good else "failed",
            "why": "" if good else "exit",
            "exit": done.returncode,
            "signal": None,
            "site": "local",
            "host": "here",
            "granted": 1,
            "started": 1,
            "ended": 2,
            "wall": 1,
            "cpu": 1,
            "rss": 1 << 20,
            "out_size": len(done.stdout),
            "err_size": len(done.stderr),
            "files": files,
            "value": None,
            "note": "",
        }

    def counts(self, entry):
        counts = {}
        for row in entry["rows"]:
            state = "ready" if self.hold else row["state"]
            counts[state] = counts.get(state, 0) + 1
        return counts

    def shown(self, entry):
        counts = self.counts(entry)
        state = (
            "paused"
            if entry["paused"]
            else "running"
            if self.hold
            else "failed"
            if counts.get("failed")
            else "succeeded"
        )
        return {
            "bag": entry["bag"],
            "name": entry["spec"].name,
            "owner": "me",
            "state": state,
            "tasks": len(entry["rows"]),
            "counts": counts,
            "submitted": 1,
            "ended": 2,
            "position": 5,
            "targets": [
                {"name": t.name, "first": 0, "count": 1, "after": t.after, "counts": counts}
                for t in entry["spec"].targets
            ],
        }


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        request, _ = super().get_request()
        return request, ("local", 0)

    def handle_error(self, request, client_address):
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: Stub

    def log_message(self, *_):
        pass

    def _answer(self, status, body=b"", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _error(self, status, code):
        self._answer(status, {"error": {"code": code, "message": code, "hint": "", "retry": status in (429, 503)}})

    def _handle(self):
        stub = self.stub
        url = urlsplit(self.path)
        self.query = {k: v[0] for k, v in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        stub.requests.append((self.command, self.path))
        if stub.plan:
            kind, value = stub.plan.pop(0)
            if kind == "status":
                return self._error(value, {503: "unavailable", 429: "overloaded", 409: "conflict"}[value])
            if kind == "cut":  # the connection dies
                self.wfile.write(value)
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return None
            if kind == "after":  # the request is done, the answer is lost
                self._route(url.path, silent=True)
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return None
        if url.path != "/health" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._error(401, "unauthorised")
        return self._route(url.path)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _handle

    def _route(self, path, silent=False):
        if silent:
            self._answer = lambda *_a, **_k: None
        for pattern, name in ROUTES:
            found = re.fullmatch(pattern, f"{self.command} {path}")
            if found:
                try:
                    return getattr(self, name)(*found.groups())
                except WindfallError as error:
                    return self._answer(error.status, error.to_wire())
        return self._error(404, "not-found")

    def _bag(self, number):
        from windfall.errors import NotFound

        if not 1 <= int(number) <= len(self.stub.bags):
            raise NotFound(f"there is no bag {number}")
        return self.stub.bags[int(number) - 1]

    def health(self):
        self._answer(200, {"status": "ok", "version": "0", "position": 1})

    def submit(self):
        key = self.headers.get("Idempotency-Key")
        if key not in self.stub.keys:
            bag = msgspec.json.decode(self.body, type=Bag)
            validate(bag)
            entry = self.stub.run(bag)
            self.stub.keys[key] = {"bag": entry["bag"], "tasks": len(entry["rows"]), "position": 1}
        self._answer(201, self.stub.keys[key])

    def bags(self):
        self._answer(200, {"bags": [self.stub.shown(entry) for entry in self.stub.bags]})

    def bag(self, number):
        self._answer(200, self.stub.shown(self._bag(number)))

    def spec(self, number):
        self._answer(200, msgspec.json.encode(self._bag(number)["spec"]))

    def results(self, number):
        after, limit, state = int(self.query["after"]), int(self.query["limit"]), self.query.get("state")
        rows = [row for row in self._bag(number)["rows"] if row["task"] > after and state in (None, row["state"])]
        self._answer(
            200, {"rows": rows[:limit], "next": rows[limit - 1]["task"] if len(rows) > limit else None, "position": 5}
        )

    def task(self, number, task):
        row = self._bag(number)["rows"][int(task)]
        self._answer(
            200,
            {
                "task": int(task),
                "target": row["target"],
                "params": row["params"],
                "command": ["x"],
                "state": row["state"],
                "attempts": [row],
            },
        )

    def log(self, number, task):
        self._answer(200, self.stub.outputs[int(number), int(task), self.query["stream"]])

    def explain(self, number):
        self._answer(
            200,
            {
                "task": None,
                "state": "ready",
                "summary": "no pilot is there",
                "sites": [{"site": "local", "clauses": [{"clause": "pilots", "holds": False, "says": "none"}]}],
            },
        )

    def watch(self, number):
        entry = self._bag(number)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        done = not self.stub.hold
        lines = [{}, {"position": 6, "counts": self.stub.counts(entry), **({"done": True} if done else {})}]
        for line in lines:
            data = json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def act(self, number, verb):
        entry = self._bag(number)
        if verb in ("cancel", "retry"):
            tasks = json.loads(self.body)["tasks"]
            return self._answer(200, {"count": len(entry["rows"]) if tasks is None else len(tasks)})
        entry["paused"] = verb == "pause"
        return self._answer(200, self.stub.shown(entry))

    def append(self, number):
        self._answer(200, {"first": 0, "count": 1})

    def blob_head(self, sha):
        if sha in self.stub.blobs:
            return self._answer(200, headers=[("X-Size", len(self.stub.blobs[sha]))])
        return self._answer(404, headers=[("X-Received", len(self.stub.partial.get(sha, b"")))])

    def blob_put(self, sha):
        have = self.stub.partial.get(sha, b"")
        span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", self.headers["Content-Range"])
        start, total = (int(span[1]), int(span[3])) if span else (0, 0)
        if start != len(have):
            return self._answer(409, {"error": {"code": "conflict", "message": "x"}}, [("X-Received", len(have))])
        have += self.body
        self.stub.partial[sha] = have
        if len(have) < total:
            return self._answer(202)
        if hashlib.sha256(have).hexdigest() != sha:
            return self._error(400, "bad-input")
        self.stub.blobs[sha] = have
        return self._answer(201)

    def blob_get(self, sha):
        data = self.stub.blobs.get(sha)
        if data is None:
            return self._error(404, "not-found")
        ranged = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        return self._answer(206, data[int(ranged[1]) :]) if ranged else self._answer(200, data)

    def sites(self):
        self._answer(200, {"sites": [{"site": "local"}]})

    def tokens(self):
        self._answer(200, {"tokens": [{"id": "t1", "scope": "user", "user": "me", "expires": 1}]})

    def token_add(self):
        self._answer(201, {"id": "t2", "token": "wf_new", "expires": 1, **json.loads(self.body)})

    def token_remove(self, name):
        self._answer(200, {})


ROUTES = [
    (r"GET /health", "health"),
    (r"POST /v1/bags", "submit"),
    (r"GET /v1/bags", "bags"),
    (r"GET /v1/bags/(\d+)", "bag"),
    (r"GET /v1/bags/(\d+)/spec", "spec"),
    (r"GET /v1/bags/(\d+)/results", "results"),
    (r"GET /v1/bags/(\d+)/tasks/(\d+)", "task"),
    (r"GET /v1/bags/(\d+)/tasks/(\d+)/log", "log"),
    (r"GET /v1/bags/(\d+)/explain", "explain"),
    (r"GET /v1/bags/(\d+)/watch", "watch"),
    (r"POST /v1/bags/(\d+)/tasks", "append"),
    (r"POST /v1/bags/(\d+)/(\w+)", "act"),
    (r"HEAD /v1/blobs/(\w+)", "blob_head"),
    (r"PUT /v1/blobs/(\w+)", "blob_put"),
    (r"GET /v1/blobs/(\w+)", "blob_get"),
    (r"GET /v1/sites", "sites"),
    (r"GET /v1/tokens", "tokens"),
    (r"POST /v1/tokens", "token_add"),
    (r"DELETE /v1/tokens/(\w+)", "token_remove"),
]


def write_profile(home: Path, profile: dict) -> None:
    home.mkdir(parents=True, exist_ok=True)
    path = home / "server.json"
    path.write_text(json.dumps(profile))
    os.chmod(path, 0o600)
