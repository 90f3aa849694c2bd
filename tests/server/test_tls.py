"""The certificate, and who may pin it."""

import ssl

import pytest
from server_tools import Client, connect

from windfall.server import tls as certificates


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


def test_made_once(tmp_path):
    assert certificates.context(tmp_path / "tls")[1] == certificates.context(tmp_path / "tls")[1]


def test_only_the_pinned_one_is_trusted(tls, tmp_path):
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
