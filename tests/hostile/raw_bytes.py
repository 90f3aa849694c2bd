"""Bytes that are nearly HTTP: requests cut, joined, repeated and changed, in pieces of any size."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress

from tests.hostile.ground import SWEEP, Caller, Ground

PIECES = (b"\r\n", b"\r\n\r\n", b"\n", b"\0", b" ", b":", b"GET / HTTP/1.1\r\n", b"HTTP/1.1", b"Content-Length: 5\r\n",
          b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n",
          b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"\xff\xfe", b"%00", b"%", b"/../",
          b"?" + b"a=b&" * 200, b"x" * 5_000, b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"Host: evil.example\r\n",
          b"Connection: close\r\n", b"Range: bytes=9-1\r\n", b"Content-Range: bytes 5-1/0\r\n")


def run(ground: Ground, most: int) -> int:
    for number in range(most):
        _send(ground, _bytes(ground))
        if number % 200 == 199:
            ground.check_health()
    return most


def _bytes(ground: Ground) -> bytes:
    draw = ground.draw
    data = b"".join(_request(ground) for _ in range(draw.choice((1, 1, 2, 5))))
    for _ in range(draw.choice((0, 1, 1, 2, 6))):
        at, end = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
        change = draw.randrange(4)
        if change == 0:
            data = data[:at] + draw.choice(PIECES) + data[at:]
        elif change == 1:
            data = data[:at] + data[min(end, at + 20):]
        elif change == 2:
            data = data[:at] + data[at:end] + data[at:]
        else:
            data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1:]
    return data


def _request(ground: Ground) -> bytes:
    draw = ground.draw
    path = draw.choice(("/health", "/v1/bags", "/v1/bags/1/results", "/v1/openapi.json", "/v1/exchange", "/v1/tend",
                        "/v1/blobs/" + "ab" * 32, "/nothing"))
    method = draw.choice(("GET", "GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS"))
    body = draw.choice((b"", b"{}", json.dumps(SWEEP).encode(), b"[" * 3_000, b"x" * 3_000))
    token = draw.choice((ground.caller.token, "wf_wrong"))
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode()
    if body and draw.random() < 0.3:
        return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head + (b"Content-Length: %d\r\n\r\n" % len(body)) + body


def _send(ground: Ground, data: bytes) -> None:
    """Send the bytes in pieces and look at what comes back, if anything does."""
    caller: Caller = ground.caller
    with socket.create_connection((caller.host, int(caller.port)), timeout=60) as plain:
        connection = ssl._create_unverified_context().wrap_socket(plain) if ground.draw.random() < 0.9 else plain
        got = b""
        with suppress(OSError), connection:
            size = ground.draw.choice((1 << 20, 1_000, 100))
            for at in range(0, len(data), size):
                connection.sendall(data[at:at + size])
            connection.settimeout(0.05)
            while piece := connection.recv(1 << 16):
                got += piece
    for part in got.split(b"HTTP/1.1 ")[1:]:
        assert not part.startswith(b"5") or part.startswith((b"503", b"507")), (data, part[:500])
