"""The server's certificate: self-signed, made once, pinned by clients and pilots.

Its key is on the elliptic curve P-256, since a handshake then costs half of what RSA's does.  The certificate is no
authority (CA:FALSE): clients that pin it trust this key and no certificate that the key might sign.

Key and certificate appear together, on the disk, or not at all.  A pair of which one is missing or damaged is never
replaced: every client and every pilot's ticket has the certificate, and would refuse another.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from windfall.errors import TrustError
from windfall.server.local.data_folder import private_directory, write_private
from windfall.store.mark import flush_directory

YEARS = 20


def context(folder: Path, names: tuple[str, ...] = ()) -> tuple[ssl.SSLContext, str]:
    """Return the TLS context of the server, and the certificate (PEM) to pin; make key and certificate if missing."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    there = [path.exists() for path in (key, certificate)]
    if not any(there):
        _make(folder, names)
    elif not all(there):
        raise _unusable(folder, f"{key if there[1] else certificate} is missing")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(certificate, key)
        pem = certificate.read_text("ascii")
        _check_signature(pem.encode())
    except (ssl.SSLError, ValueError, OSError) as error:
        raise _unusable(folder, f"key and certificate in {folder} cannot be used: {error}") from error
    made.set_alpn_protocols(["http/1.1"])
    return made, pem


def _check_signature(pem: bytes) -> None:
    """Raise ValueError if a self-signed certificate does not bear its own signature: OpenSSL loads one with a flipped
    bit, and every client would refuse it."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    found = x509.load_pem_x509_certificate(pem)
    if found.issuer == found.subject:
        try:
            found.verify_directly_issued_by(found)
        except (InvalidSignature, TypeError) as error:
            raise ValueError("the certificate's signature is wrong") from error


def _unusable(folder: Path, problem: str) -> TrustError:
    return TrustError(
        f"{problem}; clients and pilots trust the certificate in {folder}, so no other is made",
        f"restore {folder} from a backup; or remove it for a new pair: then everyone must 'windfall login' again, and "
        "pilots elsewhere need new tickets")


def _make(folder: Path, names: tuple[str, ...]) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certify(key, names)
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    private_directory(fresh)
    write_private(fresh / "key.pem", key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()), flush=True)
    pem = certificate.public_bytes(serialization.Encoding.PEM)  # type: ignore[attr-defined]
    write_private(fresh / "certificate.pem", pem, flush=True)
    os.rename(fresh, folder)  # which may be there, empty
    flush_directory(folder.parent)


def _certify(key: object, names: tuple[str, ...]) -> object:
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windfall")])
    now = datetime.datetime.now(datetime.UTC)
    also = x509.SubjectAlternativeName([x509.DNSName(each) for each in dict.fromkeys(("localhost", *names))])
    return (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key())  # type: ignore[attr-defined]
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))  # some pilots' clocks are slow
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(also, critical=False)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
