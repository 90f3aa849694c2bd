"""A server that misbehaves, for what the real one cannot be made to do: answers 503, 429 or 409 on order, speaks
something else than HTTP, names files outside the directory, sends other bytes than it promised.

Everything else in this folder runs against a real server; broken connections come from `tests/live/relay.py`.
"""

import http.server
import json
import socket
import socketserver
import threading
from pathlib import Path

TOKEN = "secret-token"
CODES = {503: "unavailable", 429: "overloaded", 409: "conflict"}


class Stub:
    def __init__(self, directory: Path):
        self.answers: dict[str, object] = {"/v1/bags": {"bags": []}}  # by path without its query: JSON, or bytes
        self.plan: list[int | bytes] = []  # for the next requests: a status, or bytes before the connection dies
        self.path = str(directory / "stub.sock")
        self._server = _UnixServer(self.path, type("Handler", (_Handler,), {"stub": self}))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.profile = {"server": "unix:" + self.path, "certificate": "", "token": TOKEN}

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


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

    def _handle(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        order = self.stub.plan.pop(0) if self.stub.plan else 200
        if isinstance(order, bytes):
            self.wfile.write(order)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif order != 200:
            error = {"code": CODES[order], "message": "x", "hint": "", "retry": order != 409}
            self._answer(order, {"error": error})
        else:
            self._answer(200, self.stub.answers.get(self.path.partition("?")[0], {}))

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _handle

    def _answer(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
