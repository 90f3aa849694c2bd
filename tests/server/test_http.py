"""The HTTP layer, with real sockets."""

import asyncio
import re
import socket
import threading
import time

import pytest
from server_tools import Client, connect, until

from windfall.server.http import server as module


@pytest.fixture
def raw(server):
    """Bytes out, everything that comes back in."""
    def talk(data, pieces=None):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(5)
            sock.connect(server.start()["server"][5:])
            for piece in pieces or [data]:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR) if data is None else None
            got = b""
            while True:
                try:
                    more = sock.recv(65536)
                except TimeoutError:
                    return got
                if not more:
                    return got
                got += more
    return talk


def get(path="/health", more=b""):
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (path.encode(), more)


CLOSE = b"Connection: close\r\n"


def test_head_asks_for_the_health_without_its_body(client):
    reply = client.call("HEAD", "/health")
    assert reply.status == 200 and reply.raw == b"" and int(reply.headers["content-length"]) > 10
    assert client.call("GET", "/health").status == 200  # the connection goes on


def test_pipelined_requests_are_answered_in_order(raw):
    got = raw(get("/health") + get("/nothing") + get("/health", CLOSE))
    assert re.findall(rb"HTTP/1.1 (\d+)", got) == [b"200", b"404", b"200"]


def test_the_body_of_a_pipelined_request_may_come_later(server):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(server.start()["server"][5:])
        head = b"POST /v1/bags HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        sock.sendall(get("/health") + head)
        got = sock.recv(65536)
        assert got.startswith(b"HTTP/1.1 200")
        sock.sendall(b"{}")
        while more := sock.recv(65536):
            got += more
    assert b"HTTP/1.1 401" in got


def test_a_request_may_come_byte_by_byte(raw):
    data = get("/health", CLOSE)
    assert raw(b"", [data[i:i + 1] for i in range(len(data))]).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n",
                                  b"GET http://evil/ HTTP/1.1\r\nHost: a\r\n\r\n",
                                  b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                                  b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"])
def test_bad_bytes_are_refused_and_the_connection_closed(raw, data):
    assert raw(data).startswith(b"HTTP/1.1 400")


def test_a_head_without_end_is_refused(raw):
    got = raw(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-Long: " + b"a" * 40_000 + b"\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413")


def test_an_upgrade_is_refused(raw):
    got = raw(get("/health", b"Connection: upgrade\r\nUpgrade: websocket\r\n"))
    assert b"HTTP/1.1 101" not in got


def test_a_body_over_the_limit_is_refused_before_it_is_sent(client):
    reply = client.call("POST", "/v1/sites", raw=b"", Content_Length=str(1 << 30))
    assert reply.status == 413 and reply.code == "too-large"


def test_a_chunked_body_over_the_limit_is_cut_off(client):
    connection = connect(client.profile)
    headers = {"Authorization": f"Bearer {client.token}"}
    pieces = (b"x" * 65536 for _ in range(64))
    try:
        connection.request("POST", "/v1/sites", pieces, headers, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was told early
    try:
        assert connection.getresponse().status == 413
    except ConnectionResetError:
        pass


def test_expect_header_gets_100_continue(raw, client):
    body = b'{"name": "s", "kind": "local"}'
    got = raw(b"POST /v1/sites HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nAuthorization: Bearer %b\r\n"
              b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (client.token.encode(), len(body), body))
    assert got.startswith(b"HTTP/1.1 100 Continue") and b"HTTP/1.1 201" in got


def test_errors_have_one_form(client):
    error = client.call("GET", "/v1/nothing").body["error"]
    assert set(error) >= {"code", "message", "hint", "retry"}


def test_json_that_is_none(client):
    reply = client.call("POST", "/v1/bags", raw=b"{")
    assert reply.status == 400 and reply.code == "bad-input"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", ""])
def test_an_unknown_name_is_refused_over_tcp(tls, host):
    reply = Client(tls.profile).call("GET", "/health", Host=host)
    assert reply.status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:5", "10.1.2.3"])
def test_known_names_and_addresses_pass(tls, host):
    assert Client(tls.profile).call("GET", "/health", Host=host).status == 200


def test_a_page_of_another_site_is_refused(tls):
    client = Client(tls.profile)
    own = "https://" + tls.profile["server"][8:]
    assert client.call("GET", "/health", Origin="https://evil.example").status == 403
    assert client.call("GET", "/health", Origin="null").status == 403
    assert client.call("GET", "/health", Origin=own).status == 200


def test_no_page_reaches_the_unix_socket(client):
    assert client.call("GET", "/health", Origin="http://localhost").status == 403


def test_an_unexpected_exception_is_500_and_the_server_goes_on(server, client, monkeypatch):
    def boom(*_):
        raise ZeroDivisionError
    monkeypatch.setattr(server._runtime.bags, "_own_bag", boom)
    reply = client.call("GET", "/v1/bags/1")
    assert reply.status == 500 and "internal error" in reply.body["error"]["message"]
    assert client.call("GET", "/health").status == 200


def test_too_many_events_at_once_are_put_off(client, monkeypatch):
    from windfall.server import writer
    monkeypatch.setattr(writer, "MAX_INBOX", 0)
    reply = client.call("POST", "/v1/sites", {"name": "s"})
    assert reply.status == 429 and reply.code == "overloaded" and int(reply.headers["Retry-After"]) >= 1


def test_connections_are_bounded(server, client):
    assert client.call("GET", "/health").status == 200
    server._runtime.http.limit = 1
    with pytest.raises((ConnectionError, OSError)):
        Client(client.profile).call("GET", "/health")
    assert client.call("GET", "/health").status == 200


def test_sweep_closes_idle_and_slow_connections(server, client, monkeypatch):
    from windfall.server.http import server as layer
    monkeypatch.setattr(layer, "DAWDLE_S", 0)
    monkeypatch.setattr(layer, "IDLE_S", 0)
    monkeypatch.setattr(layer, "SILENT_S", 0)
    running = server._runtime.http
    idle, slow = connect(client.profile), connect(client.profile)
    for each in (idle, slow):
        each.connect()
    slow.sock.sendall(b"GET /health HTTP/1.1\r\nHost:")
    until(lambda: sorted(c.request is None for c in list(running.connections)) == [False, True])
    time.sleep(0.05)  # the loop's clock counts milliseconds
    running.loop.call_soon_threadsafe(running.sweep)
    until(lambda: not running.connections)
    assert slow.sock.recv(100).startswith(b"HTTP/1.1 400") and idle.sock.recv(100) == b""


def test_a_streamed_body_does_not_pile_up(server, client):
    """Reading stops while the handler is busy."""
    import hashlib
    body = b"x" * (32 << 20)
    most = []
    running = server._runtime
    append = running.blobs.store().append

    def slow(*arguments):
        most.append(running.http.buffered)
        return append(*arguments)
    running.blobs.store().append = slow
    assert client.call("PUT", f"/v1/blobs/{hashlib.sha256(body).hexdigest()}", raw=body).status == 201
    assert max(most) < 4 << 20 and running.http.buffered == 0


def test_a_request_that_trickles_is_timed_from_its_first_byte(server, client, monkeypatch):
    from windfall.server.http import server as http
    monkeypatch.setattr(http, "DAWDLE_S", 0.3)
    layer = server._runtime.http
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(0.05)
        sock.connect(client.profile["server"][5:])
        got = b""
        for byte in get(more=b"X-Long: %b\r\n" % (b"a" * 200)):
            try:
                sock.sendall(bytes([byte]))
                got += sock.recv(65536)
            except TimeoutError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                got += sock.recv(65536)
            layer.loop.call_soon_threadsafe(layer.sweep)
            if b"does not arrive" in got:
                break
    assert b"400" in got and b"does not arrive" in got


def test_a_large_request_that_comes_steadily_is_waited_for(server, client, monkeypatch):
    from windfall.server.http import server as http
    monkeypatch.setattr(http, "DAWDLE_S", 1.5)
    layer = server._runtime.http
    token = client.profile["token"].encode()
    head = (b"POST /v1/bags HTTP/1.1\r\nHost: localhost\r\nContent-Length: 80000\r\n"
            b"Authorization: Bearer %b\r\n\r\n" % token)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(client.profile["server"][5:])
        sock.sendall(head)
        for _ in range(8):
            sock.sendall(b" " * 10_000)
            time.sleep(0.25)
            layer.loop.call_soon_threadsafe(layer.sweep)
        answer = sock.recv(65536)
    assert b"400" in answer and b"does not arrive" not in answer


def connected(profile):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(profile["server"][5:])
    return sock


def send_all_it_takes(sock, data):
    """Send until the server reads no more; return how many bytes it took."""
    sock.setblocking(False)
    sent, silent = 0, 0
    while silent < 50:
        try:
            sent, silent = sent + sock.send(data[sent % len(data):]), 0
        except BlockingIOError:
            silent += 1
            time.sleep(0.01)
    sock.setblocking(True)
    return sent


def test_requests_sent_ahead_wait_while_answers_are_not_read(server, client):
    sock, request = connected(client.profile), get("/health")
    sent = send_all_it_takes(sock, request * 1_000)
    assert sent < 4 << 20  # what the system's buffers hold, and a piece
    (held,) = [c for c in list(server._runtime.http.connections) if c.stuck]
    assert len(held._waiting or ()) < 100 and len(held._ahead) <= 1 << 20
    assert client.call("GET", "/health").status == 200
    asked, left = divmod(sent, len(request))
    rest = (request[left:] if left else b"") + get("/health", CLOSE)
    threading.Thread(target=sock.sendall, args=(rest,)).start()  # the server takes it as soon as answers are read
    got = b""
    while piece := sock.recv(1 << 20):
        got += piece
    sock.close()
    assert got.count(b"HTTP/1.1 200") == asked + bool(left) + 1


def test_bodies_and_requests_sent_ahead_arrive_whole(client):
    token = f"Authorization: Bearer {client.token}\r\n".encode()

    def post(size):
        body = b'{"name": "b", "targets": [{"command": "p ' + b"x" * size + b'{x}", "source": {"type": "sweep"}}]}'
        head = b"POST /v1/bags HTTP/1.1\r\nHost: localhost\r\n" + token
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    sizes = (1, 3_000, 10, 200_000, 1_999, 5, 70_000)
    with connected(client.profile) as sock:
        sock.sendall(b"".join(get("/health") * 3 + post(size) for size in sizes) + get("/health", CLOSE))
        got = b""
        while piece := sock.recv(1 << 16):
            got += piece
    statuses = re.findall(rb"HTTP/1.1 (\d+)", got)
    assert len(statuses) == 4 * len(sizes) + 1 and statuses.count(b"200") == 3 * len(sizes) + 1
    assert len({status for status in statuses if status != b"200"}) == 1


def test_path_with_the_letters_of_a_template_names_nothing(client):
    for method, path in (("DELETE", "/v1/tokens/{}"), ("GET", "/v1/bags/{}"), ("POST", "/v1/bags/%7b%7d/cancel")):
        assert client.call(method, path, {} if method == "POST" else None).status == 404, path


def test_request_that_needs_no_body_may_have_none(client):
    assert client.call("GET", "/health", raw=b"x" * 10).status == 413


def test_silent_connections_make_room_for_others(server, client, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", -1)
    http = server._runtime.http
    client.call("GET", "/health")
    silent = [connected(client.profile) for _ in range(3)]
    until(lambda: len(http.connections) == 4)
    http.limit = 4
    assert Client(client.profile).call("GET", "/health").status == 200
    assert client.call("GET", "/health").status == 200, "a connection with requests stays"
    assert all(sock.recv(1) == b"" for sock in silent)


def test_sweep_closes_silent_connections_first_and_gives_memory_back(server, client, monkeypatch):
    trimmed = threading.Event()
    monkeypatch.setattr(module.memory, "trim", trimmed.set)
    monkeypatch.setattr(module, "SILENT_S", -1)
    monkeypatch.setattr(module, "CROWD", 2)
    http = server._runtime.http
    client.call("GET", "/health")
    silent = [connected(client.profile) for _ in range(3)]
    until(lambda: len(http.connections) == 4)
    server._loop.call_soon_threadsafe(http.sweep)
    until(lambda: len(http.connections) == 1)
    assert all(sock.recv(1) == b"" for sock in silent)
    server._loop.call_soon_threadsafe(http.sweep)
    assert trimmed.wait(10) and client.call("GET", "/health").status == 200


def test_unread_answers_follow_the_connection_to_its_next_user(server):
    async def move():
        http = server._runtime.http
        connection = module.Connection(http, local=True)
        connection.belong_to("ann")
        connection._unsent = 1_000
        http.count_unsent("ann", 1_000)
        connection.belong_to("bob")
        moved = dict(http._unsent)
        connection.resume_writing()
        return moved, dict(http._unsent)

    moved, left = asyncio.run_coroutine_threadsafe(move(), server._loop).result(10)
    assert moved == {"bob": 1_000} and not left


def test_unread_answers_of_one_user_are_bounded(server, client, monkeypatch):
    monkeypatch.setattr(module, "MAX_UNSENT", 8 << 20)
    source = {"type": "sweep", "axes": [{"type": "range", "name": "x", "first": 1, "last": 9}],
              "derived": [{"name": "d", "template": "x" * 700_000}]}  # nine rows: more than a socket takes unread
    bag = client.submit({"name": "b", "targets": [{"command": "p", "source": source}]})
    client.call("POST", f"/v1/bags/{bag}/cancel", {})
    path = f"/v1/bags/{bag}/results"
    until(lambda: len(client.call("GET", path).body["rows"]) == 9)
    with connected(client.profile) as sock:
        sock.sendall(get(path, f"Authorization: Bearer {client.token}\r\n".encode()))
        until(lambda: server._runtime.http._unsent)
        refused = client.call("GET", path)
        assert refused.status == 429 and "do not read" in refused.body["error"]["message"]
        bob = Client(client.profile, client.token_for("user", user="bob")["token"])
        assert bob.call("GET", "/v1/openapi.json").status == 200
    until(lambda: not server._runtime.http._unsent)
    assert client.call("GET", path).status == 200
