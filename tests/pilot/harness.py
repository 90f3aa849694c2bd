"""A scripted server for the pilot's own tests: speaks the exchange over TLS or a Unix socket, all in memory.

It accepts more than the real server, but checks that messages fit their tables.
"""

import atexit
import base64
import hashlib
import json
import os
import pickle
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler

from windfall.pilot import bundle
from windfall.wire.messages import ENROL, EXCHANGE, REPORT, check

FLAGS = ["-I", "-S"]
PATIENCE = 60.0  # seconds; only what goes wrong waits so long


class Gate:
    """Lets tasks wait until the test opens the gate, however slow the machine is."""

    def __init__(self, folder):
        self.path = os.path.join(str(folder), f"gate-{os.urandom(3).hex()}")
        self.shell = f"until [ -e {self.path} ]; do sleep 0.02; done"
        self.python = f"import os, time\nwhile not os.path.exists({self.path!r}): time.sleep(0.02)"

    def open(self):
        open(self.path, "w").close()


class Server:
    def __init__(self, folder, tls=False, lease=60000, idle=60000):
        self.folder = str(folder)
        self.lease, self.idle, self.spread = lease, idle, 0
        self.lock = threading.Condition()
        self.queue = []              # (spec, [task, …]) not granted
        self.grants = {}             # number → grant not acknowledged
        self.granted = 0
        self.reports = {}            # attempt → [report, …]
        self.requests = []           # exchanges as they came
        self.story = []              # ("in" or "out", seq), as they came and were answered
        self.enrols = []
        self.epoch = 0
        self.tokens = {}             # token → epoch
        self.blobs = {}
        self.partial = {}
        self.outputs = {}            # (attempt, stream) → bytearray
        self.extra = {}              # goes into the next answer
        self.intercept = None        # function(handler, method, path) → True if it has answered
        self.problems = []
        self.grant_size = 10 ** 9
        self.bye = None
        self.started = set()
        self._listen(tls)

    def _listen(self, tls):
        if tls:
            self.certificate, key = make_certificate(self.folder)
            self.http = _Tcp(("127.0.0.1", 0), _Handler)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, key)
            self.http.context = context
            self.url = f"https://127.0.0.1:{self.http.server_address[1]}"
        else:
            self.certificate = None
            path = os.path.join(self.folder, f"s{os.urandom(3).hex()}.sock")
            self.http = _Unix(path, _Handler)
            self.url = "unix:" + path
        self.http.owner = self
        self.up = True
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        with self.lock:
            self.up = False
            self.lock.notify_all()
        self.http.shutdown()
        self.http.server_close()

    # --- what tests do

    def ticket(self, nonce="n1", token="ticket-token"):
        path = os.path.join(self.folder, f"ticket-{nonce}")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            pem = open(self.certificate).read() if self.certificate else ""
            json.dump({"server": self.url, "certificate": pem, "token": token, "site": "local", "nonce": nonce}, file)
        return path

    def submit(self, *tasks, **spec):
        spec.setdefault("bag", 1)
        with self.lock:
            self.queue.append((spec, [list(task) for task in tasks]))
            self.lock.notify_all()

    def say(self, **fields):
        """Put fields into the next answer, and wake whoever is parked."""
        with self.lock:
            self.extra.update(fields)
            self.lock.notify_all()

    def wait_for(self, condition, timeout=PATIENCE, what=""):
        end = time.monotonic() + timeout
        with self.lock:
            while not condition():
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"timed out {what}; reports {list(self.reports)[:20]}")
                self.lock.wait(min(left, 0.05))

    def result(self, attempt, timeout=PATIENCE):
        self.wait_for(lambda: attempt in self.reports, timeout, f"waiting for {attempt}")
        return self.reports[attempt][0]

    def wait_started(self, attempt, timeout=PATIENCE):
        self.wait_for(lambda: attempt in self.started, timeout, f"waiting for the start of {attempt}")

    def blob(self, data):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    # --- the protocol

    def enrol(self, message):
        self._note(check(ENROL, message, "enrol"))
        with self.lock:
            self.epoch += 1
            token = f"pilot-{os.urandom(4).hex()}"
            self.tokens[token] = self.epoch
            self.enrols.append(message)
            self.grants.clear()
            self.granted = 0
            self.lock.notify_all()
            return {"v": 1, "pilot": 1, "epoch": self.epoch, "token": token, "lease": self.lease, "idle": self.idle,
                    "spread": self.spread}

    def exchange(self, message):
        self._note(check(EXCHANGE, message, "exchange"))
        with self.lock:
            self.requests.append(message)
            self.story.append(("in", message["seq"]))
            self._take(message)
            end = time.monotonic() + message.get("wait", 0) / 1000.0
            while self.up and not self._something(message) and time.monotonic() < end:
                self.lock.wait(min(end - time.monotonic(), 0.5))
            self.story.append(("out", message["seq"]))
            return self._answer(message)

    def _take(self, message):
        for report in message.get("reports", ()):
            self._note(check(REPORT, report, "report"))
            self.reports.setdefault(report["a"], []).append(report)
        self.started.update(message.get("started", ()))
        for number in [n for n in self.grants if n <= message["ack"]]:
            del self.grants[number]
        if message.get("bye"):
            self.bye = message["bye"]
        self.lock.notify_all()

    def _something(self, message):
        return self.extra or self.grants or (message.get("want") and self.queue)

    def _answer(self, message):
        answer = {"v": 1, "epoch": message["epoch"], "seq": message["seq"]}
        if message.get("want") and self.queue:
            self._grant(message["want"])
        if self.grants:
            answer["grants"] = [self.grants[n] for n in sorted(self.grants)]
        answer.update(self.extra)
        self.extra = {}
        return answer

    def _grant(self, want):
        want = min(want, self.grant_size)
        groups = []
        while want and self.queue:
            spec, tasks = self.queue[0]
            groups.append({"spec": spec, "tasks": tasks[:want]})
            del tasks[:want]
            want -= len(groups[-1]["tasks"])
            if not tasks:
                self.queue.pop(0)
        self.granted += 1
        self.grants[self.granted] = {"n": self.granted, "groups": groups}

    def _note(self, problem):
        if problem:
            self.problems.append(problem)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = False

    def address_string(self):
        return "-"

    def log_message(self, *args):
        pass

    def handle(self):
        try:
            super().handle()
        except (OSError, ValueError):
            pass

    def finish(self):
        try:
            super().finish()
        except OSError:
            pass

    def answer(self, status, body=b"", headers=()):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def refuse(self, status, code, headers=()):
        error = {"code": code, "message": code, "hint": "", "retry": status in (429, 503)}
        self.answer(status, {"error": error}, headers)

    def do(self):
        owner = self.server.owner
        if owner.intercept is not None and owner.intercept(self, self.command, self.path):
            return
        token = self.headers.get("Authorization", "")[7:]
        if self.path == "/v1/enrol":
            if token != "ticket-token":
                return self.refuse(401, "unauthorised")
            return self.answer(200, owner.enrol(self.body()))
        if token not in owner.tokens:
            return self.refuse(401, "unauthorised")
        if self.path == "/v1/exchange":
            return self.answer(200, owner.exchange(self.body()))
        if self.path.startswith("/v1/blobs/"):
            return self.do_blob(owner, self.path[10:])
        return self.do_output(owner)

    do_GET = do_PUT = do_POST = do_HEAD = do

    def raw(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def body(self):
        return json.loads(self.raw().decode())

    def do_blob(self, owner, digest):
        if self.command == "PUT":
            return self.put_blob(owner, digest)
        if digest not in owner.blobs or not self.headers.get("X-Attempt", "").isdigit():
            return self.answer(404, b"", [("X-Received", str(len(owner.partial.get(digest, b""))))])
        data = owner.blobs[digest]
        first = int(self.headers.get("Range", "bytes=0-")[6:-1])
        return self.answer(206 if first else 200, data[first:])

    def put_blob(self, owner, digest):
        data = self.raw()
        span, total = self.headers.get("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")[6:].split("/")
        first = int(span.split("-")[0])
        part = owner.partial.setdefault(digest, bytearray())
        if first != len(part):
            return self.answer(409, b"", [("X-Received", str(len(part)))])
        part += data
        if len(part) == int(total):
            if hashlib.sha256(part).hexdigest() != digest:
                return self.refuse(400, "bad-input")
            owner.blobs[digest] = bytes(part) if len(part) < 1 << 26 else b"(large)"
            owner.partial.pop(digest)
            return self.answer(201, {})
        return self.answer(200, {})

    def do_output(self, owner):
        path, _, query = self.path.partition("?")
        fields = dict(pair.split("=") for pair in query.split("&"))
        key = (int(path.split("/")[3]), fields["stream"])
        with owner.lock:
            have = owner.outputs.setdefault(key, bytearray())
            data = self.raw()
            have[int(fields["offset"]):] = data
            owner.lock.notify_all()
        self.answer(200, {"go": True})


class _Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False


class _Tcp(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def finish_request(self, request, client_address):
        try:
            request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            super().finish_request(self.context.wrap_socket(request, server_side=True), client_address)
        except OSError:
            pass


def make_certificate(folder):
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    if not os.path.exists(cert):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", key, "-out", cert, "-days", "30", "-subj", "/CN=windfall"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cert, key


class Pilot:
    """The zipapp as a process of its own."""

    def __init__(self, server, *args, python=sys.executable, nonce="n1", ticket=None, env=None, flags=FLAGS):
        self.dir = os.path.join(server.folder, "pilot-" + nonce)
        folder = [] if env and "TMPDIR" in env else ["--dir", self.dir]
        argv = [python] + flags + [zipapp(), "--ticket", ticket or server.ticket(nonce)] + folder + list(args)
        if "--cores" not in args:
            argv += ["--cores", "2"]
        self.log = open(os.path.join(server.folder, f"pilot-{nonce}.log"), "a+")
        self.process = subprocess.Popen(argv, stderr=self.log, stdout=self.log, stdin=subprocess.DEVNULL, env=env)
        self.pid = self.process.pid

    def wait(self, timeout=PATIENCE):
        return self.process.wait(timeout)

    def stop(self, timeout=PATIENCE):
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def agent(self):
        return children(self.pid)[0]

    def spawners(self):
        return children(self.agent())

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        """End the pilot if the test has not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, timeout=PATIENCE):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("timed out")
        time.sleep(0.01)


_built = []


def zipapp():
    if not _built:
        folder = tempfile.mkdtemp(prefix="windfall-pyz-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _built.append(bundle.build(folder)[0])
    return _built[0]


def call(function, *args, python="{}.{}".format(*sys.version_info), **kwargs):
    parts = [base64.b64encode(pickle.dumps(part, 2)).decode() for part in (function, (args, kwargs))]
    return " ".join([python, *parts])


def value(report):
    return pickle.loads(base64.b64decode(report["value"]))
