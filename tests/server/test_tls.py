"""The certificate, and who may pin it."""

import shutil
import ssl
import subprocess
import sys

import pytest
from server_tools import Client, connect

from windfall.errors import TrustError
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


@pytest.mark.parametrize("name", ["key.pem", "certificate.pem"])
def test_pinned_pair_is_refused_not_replaced_if_half_is_missing(tmp_path, name):
    folder = tmp_path / "tls"
    certificates.context(folder)
    (folder / name).unlink()
    left = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(TrustError, match=f"{name} is missing") as caught:
        certificates.context(folder)
    assert "backup" in caught.value.hint and "new tickets" in caught.value.hint
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == left


@pytest.mark.parametrize("name", ["key.pem", "certificate.pem"])
@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, None])
def test_damaged_pair_is_refused_with_words(tmp_path, name, damage):
    folder, other = tmp_path / "tls", tmp_path / "other"
    certificates.context(folder)
    certificates.context(other)
    (folder / name).write_bytes((other / name).read_bytes() if damage is None else damage)
    with pytest.raises(TrustError, match="cannot be used"):
        certificates.context(folder)


def test_server_with_half_a_pair_ends_with_words(start, tmp_path):
    server = start("127.0.0.1:0")
    server.stop()
    (server.home / "tls" / "key.pem").unlink()
    again = start("127.0.0.1:0")
    assert again.process.wait(60) == 3
    assert "key.pem is missing" in again.said() and "Traceback" not in again.said()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_key_certificate_and_mark_are_flushed(tmp_path):
    code = ("import sys; from pathlib import Path; from windfall.server.http import tls;"
            "from windfall.server.local.data_folder import Home;"
            "home = Home(Path(sys.argv[1])); home.mark; tls.context(home.tls)")
    done = subprocess.run(["strace", "-f", "-y", "-e", "trace=fsync,rename", sys.executable, "-c", code, str(tmp_path)],
                          capture_output=True, text=True, check=True)
    flushed = [line for line in done.stderr.splitlines() if "fsync(" in line]
    for name in ("mark.", "key.pem.", "certificate.pem.", f"{tmp_path}>"):
        assert any(name in line for line in flushed), (name, flushed)


def test_certificate_with_a_flipped_bit_in_its_signature_is_refused(tmp_path):
    """OpenSSL loads it, and every client would refuse it."""
    folder = tmp_path / "tls"
    _, pem = certificates.context(folder)
    der = bytearray(ssl.PEM_cert_to_DER_cert(pem))
    der[-5] ^= 1
    (folder / "certificate.pem").write_text(ssl.DER_cert_to_PEM_cert(bytes(der)))
    with pytest.raises(TrustError, match="signature is wrong"):
        certificates.context(folder)
