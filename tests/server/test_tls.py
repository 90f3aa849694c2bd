"""The certificate, and who may pin it."""

import ssl

import pytest
from server_tools import Client, connect

from windfall.server.http import tls as certificates


def test_elliptic_curve_self_signed_no_authority(tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    _, pem = certificates.context(tmp_path / "tls")
    found = x509.load_pem_x509_certificate(pem.encode())
    key = found.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and not constraints.value.ca
    assert (tmp_path / "tls" / "key.pem").stat().st_mode & 0o777 == 0o600


def test_certificate_is_made_only_once(tmp_path):
    assert certificates.context(tmp_path / "tls")[1] == certificates.context(tmp_path / "tls")[1]


def test_client_trusts_only_the_pinned_certificate(tls, tmp_path):
    _, other = certificates.context(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect({**tls.profile, "certificate": other}).request("GET", "/health")
    assert Client(tls.profile).call("GET", "/health").status == 200


def test_plain_http_gets_nothing(tls):
    import socket
    host, _, port = tls.profile["server"][8:].rpartition(":")
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sock.settimeout(5)
        try:
            assert b"HTTP" not in sock.recv(1000)
        except ConnectionResetError:
            pass
    assert Client(tls.profile).call("GET", "/health").status == 200


def test_old_protocols_are_refused(tls):
    import socket
    host, _, port = tls.profile["server"][8:].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)), socket.create_connection((host, int(port)), 5) as sock:
        context.wrap_socket(sock)


def test_connections_that_say_nothing_keep_nobody_out(server, client, tmp_path, monkeypatch):
    """The silent handshakes never time out here, so only their eviction makes room for the one below."""
    import concurrent.futures
    import socket

    from windfall.server.http import listen
    monkeypatch.setattr(listen, "MAX_HANDSHAKES", 20)
    monkeypatch.setattr(listen, "PATIENCE_S", 0.1)
    monkeypatch.setattr(listen, "HANDSHAKE_S", 10_000.0)
    context, pem = certificates.context(tmp_path / "tls")
    made = concurrent.futures.Future()
    runtime = server._runtime
    runtime.http.loop.call_soon_threadsafe(
        lambda: made.set_result(listen.TlsListener(runtime.http, context, "127.0.0.1", 0)))
    listener = made.result(5)
    silent = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(100)]
    profile = {**client.profile, "server": f"https://127.0.0.1:{listener.port}", "certificate": pem}
    try:
        assert Client(profile, timeout=60).call("GET", "/health").status == 200
    finally:
        for sock in silent:
            sock.close()
        runtime.http.loop.call_soon_threadsafe(listener.close)
