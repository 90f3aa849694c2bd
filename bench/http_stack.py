"""Which HTTP stack answers a request like an exchange, ten reports in and ten tasks out, the fastest, over TLS?

    python bench/http_stack.py [seconds]

Every stack decodes the same body with msgspec into the same record and encodes the same answer, without deciding or
storing anything.  The server has one core, the load generator (blocking sockets, requests kept in flight) the other.
Where the generator is the limit, server CPU per request says more than requests a second.  Stacks that are not
installed are left out.

This file is not called http.py: a script's folder comes first in `sys.path`, and `import http` would find it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import msgspec  # noqa: E402

STACKS = ("own", "uvicorn", "granian", "aiohttp")
CONNECTIONS = 16
ROUNDS = 3

TIMES = {"t0": 1_700_000_000_000, "t1": 1_700_000_000_100, "wall": 100, "cpu": 90, "rss": 10 << 20}
REPORTS = [{"a": (7 << 24) + i, **TIMES} for i in range(10)]
BODY = json.dumps({"v": 1, "epoch": 1, "seq": 5, "ack": 4, "want": 10, "wait": 20_000, "reports": REPORTS}).encode()
ANSWER = {"v": 1, "epoch": 1, "seq": 5, "lease": 60_000, "spread": 200, "grants": [{"n": 5, "groups": [{
    "spec": {"bag": 1}, "tasks": [[(8 << 24) + i, ["simulate", "--seed", str(i)]] for i in range(10)]}]}]}
PATH = "/v1/exchange"


_decode = _encode = None


def _work(body: bytes) -> bytes:
    global _decode, _encode
    if _decode is None:
        from windfall.server.http import schema
        _decode = msgspec.json.Decoder(schema.Exchange).decode
        _encode = msgspec.json.Encoder().encode
    _decode(body)
    return _encode(ANSWER)


# --- the stacks -----------------------------------------------------------------------------------------------

async def asgi(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    answer = _work(body)
    await send({"type": "http.response.start", "status": 200, "headers": [
        (b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


def serve_own(folder: Path) -> None:
    import asyncio

    import uvloop

    from windfall.server.http import tls
    from windfall.server.http.listen import TlsListener
    from windfall.server.http.server import HttpServer, Route

    def exchange(request) -> None:
        request.reply(_work(request.body))

    async def go() -> None:
        server = HttpServer([Route("POST", PATH, exchange, "", fast=True)], lambda r: None, lambda r: None)
        ready(folder, TlsListener(server, tls.context(folder)[0], "127.0.0.1", 0).port)
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(go())


def serve_uvicorn(folder: Path) -> None:
    import uvicorn

    port = free_port()
    ready(folder, port)
    uvicorn.run(asgi, host="127.0.0.1", port=port, loop="uvloop", http="httptools", ws="none", lifespan="off",
                log_level="error", access_log=False,
                ssl_keyfile=folder / "key.pem", ssl_certfile=folder / "certificate.pem")


def serve_granian(folder: Path) -> None:
    from granian import Granian

    port = free_port()
    ready(folder, port)
    Granian("http_stack:asgi", address="127.0.0.1", port=port, interface="asginl", loop="uvloop", http="1", workers=1,
            log_enabled=False, ssl_cert=folder / "certificate.pem", ssl_key=folder / "key.pem").serve()


def serve_aiohttp(folder: Path) -> None:
    import uvloop
    from aiohttp import web

    uvloop.install()

    async def exchange(request):
        return web.Response(body=_work(await request.read()), content_type="application/json")

    from windfall.server.http import tls
    app = web.Application()
    app.router.add_post(PATH, exchange)
    port = free_port()
    ready(folder, port)
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=tls.context(folder)[0], print=None, access_log=None)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def ready(folder: Path, port: int) -> None:
    (folder / "port").write_text(str(port))


# --- the load -------------------------------------------------------------------------------------------------

def connect(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    for _ in range(200):
        try:
            return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 5))
        except (ConnectionRefusedError, ConnectionResetError):
            time.sleep(0.05)
    raise SystemExit("the server does not answer")


def load(sockets: list[ssl.SSLSocket], request: bytes, size: int, seconds: float) -> tuple[int, float]:
    """Keep a request in flight on every connection; return the number of answers, all of one size, and the seconds."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for each in sockets:
            each.sendall(request)
        for each in sockets:
            left = size
            while left > 0:
                left -= len(each.recv(65536))
        count += len(sockets)
    return count, time.perf_counter() - began


def first_answer(sock: ssl.SSLSocket, request: bytes) -> int:
    sock.sendall(request)
    got = b""
    while b"\r\n\r\n" not in got:
        got += sock.recv(65536)
    head, _, rest = got.partition(b"\r\n\r\n")
    assert b" 200 " in head, head
    lines = head.lower().split(b"\r\n")
    length = int(next(line for line in lines if line.startswith(b"content-length")).split(b":")[1])
    while len(rest) < length:
        rest += sock.recv(65536)
    return len(head) + 4 + length


def cpu(pid: int) -> float:
    """Return the processor seconds of a process and its children (granian's worker is a child)."""
    total = 0.0
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    for each in (pid, *map(int, children)):
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(stack: str, seconds: float) -> list[tuple[float, float]]:
    from windfall.server.http import tls

    folder = Path(tempfile.mkdtemp())
    tls.context(folder)
    path = (str(ROOT / "src"), str(ROOT / "bench"), os.environ.get("PYTHONPATH", ""))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    server = subprocess.Popen([sys.executable, __file__, "--serve", stack, str(folder)], env=env,
                              stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {0}))
    try:
        while not (folder / "port").exists():
            if server.poll() is not None:
                return []
            time.sleep(0.02)
        return drive(int((folder / "port").read_text()), folder, server.pid, seconds)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)


def drive(port: int, folder: Path, pid: int, seconds: float) -> list[tuple[float, float]]:
    context = ssl.create_default_context(cafile=folder / "certificate.pem")
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = (f"POST {PATH} HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {'t' * 46}\r\n"
               f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n").encode() + BODY
    sockets = [connect(port, context) for _ in range(CONNECTIONS)]
    size = [first_answer(each, request) for each in sockets][0]
    load(sockets, request, size, 0.3)
    results = []
    for _ in range(ROUNDS):
        before = cpu(pid)
        count, took = load(sockets, request, size, seconds)
        results.append((count / took, (cpu(pid) - before) / count * 1e6))
    for each in sockets:
        each.close()
    return results


def start_up(module: str) -> float:
    """Return the ms that a new interpreter takes to import `module`, the least of five."""
    took = []
    for _ in range(5):
        began = time.perf_counter()
        if subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode:
            return float("nan")
        took.append(time.perf_counter() - began)
    return min(took) * 1e3


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    modules = {"own": "uvloop, httptools", "uvicorn": "uvicorn.protocols.http.httptools_impl, uvicorn.main, uvloop",
               "granian": "granian, uvloop", "aiohttp": "aiohttp.web, uvloop"}
    print(f"{'stack':10} {'requests/s':>12} {'spread':>8} {'server µs/request':>18} {'import ms':>10}")
    for stack in STACKS:
        results = measure(stack, seconds)
        if not results:
            print(f"{stack:10} not installed")
            continue
        rates = [rate for rate, _ in results]
        spread = (max(rates) - min(rates)) / statistics.median(rates)
        cost = statistics.median(each for _, each in results)
        print(f"{stack:10} {statistics.median(rates):12,.0f} {spread:8.0%} {cost:18.1f} "
              f"{start_up(modules[stack]):10.0f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        globals()[f"serve_{sys.argv[2]}"](Path(sys.argv[3]))
    else:
        main()
