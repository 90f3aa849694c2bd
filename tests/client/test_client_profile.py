import json
import socket
import ssl
import threading

import pytest

from windfall.client import profile
from windfall.client.http import Http
from windfall.errors import NoServer, TrustError

GOOD = {"server": "unix:/x", "token": "t", "certificate": ""}


def written(path, text, mode=0o600):
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    path.chmod(mode)
    return path


def test_good_profile_is_read_and_its_token_hidden(tmp_path):
    found = profile.load(written(tmp_path / "server.json", GOOD))
    assert (found.server, found.token) == ("unix:/x", "t")
    assert "t'" not in repr(found)  # the token stays out of logs


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_profile_that_others_can_read_is_refused(tmp_path, mode):
    with pytest.raises(TrustError, match="others"):
        profile.load(written(tmp_path / "server.json", GOOD, mode))


def test_profile_of_another_user_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "server.json", GOOD)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    with pytest.raises(TrustError, match="somebody else"):
        profile.load(path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", NoServer),
        ("[]", NoServer),
        ("{}", NoServer),
        ("{", NoServer),
        ({"server": 1, "token": "x"}, NoServer),
        ({"server": "http://x:1", "token": "x"}, TrustError),
        ({"server": "https://x:1", "token": "x"}, TrustError),
        ("[" * 100_000, NoServer),
    ],
)
def test_malformed_profile_is_refused(tmp_path, text, kind):
    with pytest.raises(kind):
        profile.load(written(tmp_path / "server.json", text))


def test_profile_is_looked_for_by_variable_then_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("WINDFALL_HOME", str(tmp_path))
    monkeypatch.delenv("WINDFALL_SERVER_FILE", raising=False)
    with pytest.raises(NoServer, match="does not exist"):
        profile.find()
    written(tmp_path / "server.json", GOOD)
    assert profile.find().server == "unix:/x"
    monkeypatch.setenv("WINDFALL_SERVER_FILE", str(written(tmp_path / "other.json", {**GOOD, "server": "unix:/y"})))
    assert profile.find().server == "unix:/y"


def certificate(tmp_path, name):
    """Make a self-signed certificate, as the server does."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=9))
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    written(tmp_path / f"{name}.pem", pem + private)
    return pem, tmp_path / f"{name}.pem"


@pytest.fixture
def tls(tmp_path):
    pem, path = certificate(tmp_path, "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    while secure.recv(65536):
                        secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    yield f"https://127.0.0.1:{listener.getsockname()[1]}", pem
    listener.close()


def test_pinned_certificate_is_accepted(tls):
    with Http(profile.Profile(tls[0], "t", tls[1]), patience=0) as http:
        assert http.get("/health") == {}


def test_certificate_that_is_not_pinned_is_refused(tls, tmp_path):
    other, _ = certificate(tmp_path, "other")
    with Http(profile.Profile(tls[0], "t", other), patience=0) as http, pytest.raises(TrustError, match="certificate"):
        http.get("/health")


def test_malformed_pinned_certificate_is_refused(tls):
    with Http(profile.Profile(tls[0], "t", "rubbish"), patience=0) as http, pytest.raises(TrustError):
        http.get("/health")
