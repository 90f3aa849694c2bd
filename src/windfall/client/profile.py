"""`server.json`: the address of a server and a token for it, readable by its owner only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput, NoServer, TrustError

MAX_FILE = 1 << 20


class Profile(NamedTuple):
    server: str  # "unix:/path" or "https://host:port"
    token: str
    certificate: str = ""  # PEM; pinned
    embedded: bool = False  # the server runs inside another command, and ends with it

    def __repr__(self) -> str:
        return f"Profile({self.server!r})"  # tokens stay out of logs and tracebacks


def home() -> Path:
    """Return `$WINDFALL_HOME`, else `windfall` in the user's data folder."""
    given = os.environ.get("WINDFALL_HOME")
    if given:
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(data) / "windfall"


def make_home() -> Path:
    """Return the home; make it if it is missing."""
    directory = home()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.scandir(directory).close()
        if hasattr(os, "getuid") and directory.stat().st_mode & 0o002:
            raise TrustError(f"{directory} holds tokens, and everybody can write to it", f"chmod go-w {directory}")
    except OSError as error:
        raise BadInput(
            f"{directory} cannot be used for Windfall's data: {error.strerror}", "choose another with WINDFALL_HOME"
        ) from None
    return directory


def login_file() -> Path:
    """Return the file that `windfall login` writes."""
    return home() / "login.json"


def chosen() -> Path | None:
    """Return the profile file that the user has chosen by `$WINDFALL_SERVER_FILE` or `windfall login`, if any."""
    named = os.environ.get("WINDFALL_SERVER_FILE")
    if named:
        return Path(named)
    return login_file() if login_file().exists() else None


def find(directory: Path | None = None) -> Profile:
    """Return the profile of the server that the user has chosen, else of this home's server."""
    if directory is not None:
        return load(directory / "server.json")
    return load(chosen() or home() / "server.json")


def load(path: Path) -> Profile:
    try:
        text = _read_private(path)
    except FileNotFoundError:
        raise NoServer(
            f"no server is known here: {path} does not exist",
            "start one with 'windfall serve --pilot', or name its file in WINDFALL_SERVER_FILE",
        ) from None
    except OSError as error:
        raise NoServer(f"cannot read {path}: {error.strerror}") from None
    return from_fields(_fields(text, path), str(path))


def from_fields(fields: dict[str, object], origin: str = "the profile") -> Profile:
    server, token = fields.get("server"), fields.get("token")
    certificate = fields.get("certificate") or ""
    if not (isinstance(server, str) and isinstance(token, str) and isinstance(certificate, str)):
        raise NoServer(f"{origin} does not describe a server", "it needs 'server' and 'token'")
    if server.startswith("https://"):
        if not certificate:
            raise TrustError(f"{origin} has no certificate to pin", "get a new server.json from the server")
    elif not server.startswith("unix:"):
        raise TrustError(f"{origin}: '{server}' is neither unix:/path nor https://host:port")
    return Profile(server, token, certificate, fields.get("embedded") is True)


def _fields(text: str, path: Path) -> dict[str, object]:
    import json

    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise NoServer(f"{path} is not a profile of a server", "remove it, or start the server again")
    return fields


def _read_private(path: Path) -> str:
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, os.O_RDONLY | flags)
    with open(descriptor, "rb") as stream:
        if not hasattr(os, "getuid"):
            return stream.read(MAX_FILE).decode("utf-8", "replace")  # Windows: others cannot read a user's folder
        info = os.fstat(descriptor)
        if info.st_uid != os.getuid():
            raise TrustError(f"{path} belongs to somebody else", "use a file of your own")
        if info.st_mode & 0o077:
            raise TrustError(
                f"{path} can be read by others, and it holds a token", f"chmod 600 {path}; then make a new token"
            )
        return stream.read(MAX_FILE).decode("utf-8", "replace")
