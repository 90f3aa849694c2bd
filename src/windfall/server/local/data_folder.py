"""The data folder: its files, its lock, and the profile that tells clients how to reach the server.

    journal.db  views.db  blobs/  uploads/  server.json  mark  tls/  pilot/  socket  sites/  provision/
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import socket as sockets
import stat
from pathlib import Path
from typing import Any

import msgspec

from windfall.errors import StoreError, StoreLocked, TrustError
from windfall.store.mark import flush_directory

BACKLOG = 4096
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # no two of them look alike
MAX_SOCKET = 100  # bytes of a Unix socket's path; the kernel takes 107


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        private_directory(self.path)
        self.journal = self.path / "journal.db"
        self.views = self.path / "views.db"
        self.profile = self.path / "server.json"
        self.tls = self.path / "tls"
        self.pilot = self.path / "pilot"
        self._socket: Path | None = None
        self._lock_file: int | None = None

    @property
    def socket(self) -> Path:
        """Return the path of the Unix socket: in the data folder, or in a runtime folder if that path is too long for
        the kernel."""
        if self._socket is None:
            self._socket = self.path / "socket"
            if len(os.fsencode(self._socket)) > MAX_SOCKET:
                self._socket = _runtime_directory(self.path) / "socket"
        return self._socket

    @property
    def mark(self) -> str:
        """Return the prefix of this server's job names in batch systems.  The prefix is random, made once and kept."""
        path = self.path / "mark"
        try:
            found = path.read_text("ascii").strip()
        except (OSError, ValueError):
            found = ""
        if not re.fullmatch("[a-z0-9]{6}", found):
            found = "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(6))
            write_private(path, found.encode(), flush=True)
        return found

    def claim(self) -> sockets.socket:
        """Bind the Unix socket, and return it.  Until the server accepts, connections wait in the kernel's queue."""
        self._lock()
        self.socket.unlink(missing_ok=True)
        listener = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        listener.bind(str(self.socket))
        os.chmod(self.socket, 0o600)
        listener.listen(BACKLOG)
        return listener

    def _lock(self) -> None:
        """Take the lock that permits to replace the socket.  The journal has its own lock, which decides who serves."""
        if self._lock_file is not None:
            return
        self._lock_file = os.open(self.path / "socket.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StoreLocked(f"another server is using {self.path}", "stop it first, or use that one") from None
        except OSError:
            pass  # a file system without locks; the journal will say so

    def release(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def read_profile(self) -> dict[str, Any]:
        """Return the profile last written; {} if others could read the file, or it cannot be parsed."""
        try:
            if self.profile.stat().st_mode & 0o077:
                return {}
            found = msgspec.json.decode(self.profile.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_profile(self, profile: dict[str, Any]) -> None:
        write_private(self.profile, msgspec.json.encode(profile) + b"\n")


def user() -> str:
    """Return the name of the account that runs the server."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid{os.geteuid()}"


def private_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise TrustError(f"{path} is not a directory of yours", "choose another with WINDFALL_HOME")
    if found.st_mode & 0o077:
        path.chmod(0o700)


def write_private(path: Path, body: bytes, flush: bool = False) -> None:
    """Write a file completely or not at all, readable by its owner only; with `flush`, return once the file and its
    name are on the disk."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            if flush:
                file.flush()
                os.fsync(descriptor)
    except OSError as error:
        fresh.unlink()
        raise StoreError(f"the disk with {path.parent} is full or sick: {path.name} could not be written:"
                         f" {error.strerror}", "free some space on that disk, then try again") from error
    os.rename(fresh, path)
    if flush:
        flush_directory(path.parent)


def _runtime_directory(home: Path) -> Path:
    name = "windfall-" + hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and len(os.fsencode(base)) < 60 and os.access(base, os.W_OK):
        path = Path(base) / name
    else:
        path = Path("/tmp") / f"{name}-{os.geteuid()}"
    private_directory(path)
    return path
