"""Where blobs lie on the server.

    blobs/OWNER/ab/cdef…      complete: its hash fitted, and it is on the disk
    uploads/OWNER/abcdef…     what has arrived so far

Rules
  * The hash names a blob and grants nothing: every call names the owner, and what another owner has does not exist.
    So deduplication is per owner, and nobody learns from the speed of an upload what others hold.
  * Complete means: hashed while it came, flushed, renamed, directory flushed.  Nothing half-written has a blob's name.
  * Names are checked, owners escaped; no symbolic link is followed; modes are 0700 and 0600.
  * A blob may be collected when nothing refers to it and it has lain untouched for a while; being asked for renews it,
    so that a client that found it there has time to refer to it.

Everything blocks; the server calls from threads.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import string
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from windfall.errors import BadInput, Conflict, DiskFull, NotFound, TooLarge

MAX_BLOB = 1 << 40
MAX_OWNER = 64  # bytes
SMALLEST = 4096  # bytes that a file takes on the disk

_SHA = re.compile(r"[0-9a-f]{64}")
_PLAIN = frozenset((string.ascii_lowercase + string.digits + "-_@").encode())
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 1 << 20


class Blobs:
    """All owners' blobs below one directory."""

    def __init__(self, root: Path, limit: int = MAX_BLOB) -> None:
        self._complete = root / "blobs"
        self._partial = root / "uploads"
        self._limit = limit
        self._busy: set[Path] = set()
        self._hashes: dict[Path, tuple[int, hashlib._Hash]] = {}  # how far, so that resuming need not read again
        self._used: dict[str, int] = {}  # bytes of those owners who were asked about
        self._changes: dict[str, dict[str, int]] = {}  # while an owner's blobs are looked at: blob → bytes by now
        self._looking = threading.Lock()
        self._mutex = threading.Lock()
        for directory in (root, self._complete, self._partial):
            _make_directory(directory)

    # --- reading ----------------------------------------------------------------------------------------------

    def size(self, owner: str, sha: str) -> int:
        """Bytes of a complete blob, or NotFound; renews it."""
        try:
            with self.open(owner, sha) as file:
                os.utime(file.fileno())
                return os.fstat(file.fileno()).st_size
        except PermissionError as error:
            raise _absent(sha) from error

    def open(self, owner: str, sha: str) -> BinaryIO:
        """A complete blob, for reading; seek for a range."""
        try:
            descriptor = os.open(self._blob(owner, sha), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise _absent(sha) from error
            raise
        return os.fdopen(descriptor, "rb", buffering=0)

    def received(self, owner: str, sha: str) -> int:
        """Bytes of an unfinished upload that lie here; the next piece begins there."""
        try:
            return os.lstat(self._upload(owner, sha)).st_size
        except FileNotFoundError:
            return 0

    def used(self, owner: str) -> int:
        """Bytes of all complete blobs of an owner: looked at once, counted from then on."""
        if owner not in self._used:
            with self._looking:
                if owner not in self._used:
                    self._look(owner)
        return self._used[owner]

    def begun(self, owner: str) -> dict[str, int]:
        """Unfinished uploads of an owner, with their bytes; each takes a block at least."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self._partial / escape(owner)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found[entry.name] = max(entry.stat(follow_symlinks=False).st_size, SMALLEST)
        return found

    def _look(self, owner: str) -> None:
        """Uploads go on meanwhile; what they change is noted, and counts in place of what was seen."""
        with self._mutex:
            changes = self._changes[owner] = {}
        sizes = {}
        for path in self._complete.glob(f"{escape(owner)}/*/*"):
            with suppress(FileNotFoundError):
                sizes[path.parent.name + path.name] = path.lstat().st_size
        with self._mutex:
            sizes.update(changes)
            self._used[owner] = sum(sizes.values())
            del self._changes[owner]

    def _count(self, owner: str, sha: str, old: int, new: int) -> None:
        """The mutex is held, and was when the file came or went."""
        if owner in self._changes:
            self._changes[owner][sha] = new
        elif owner in self._used:
            self._used[owner] += new - old

    # --- writing ----------------------------------------------------------------------------------------------

    def put(self, owner: str, body: bytes) -> str:
        """A blob at once; its name."""
        sha = hashlib.sha256(body).hexdigest()
        self.drop(owner, sha)
        self.append(owner, sha, 0, len(body), [body])
        return sha

    def append(self, owner: str, sha: str, offset: int, total: int, chunks: Iterable[bytes]) -> bool:
        """Take a piece of an upload; True: the blob is complete and on the disk.

        Conflict when `offset` is not where the upload stands or another request is at it; what arrived before
        `chunks` broke off is kept.
        """
        if total > self._limit:
            raise TooLarge(f"a blob of {total} bytes is over the limit of {self._limit}")
        if not 0 <= offset <= total:
            raise BadInput(f"a piece at {offset} does not lie within {total} bytes")
        with self._alone(self._upload(owner, sha)) as upload:
            if self._exists(owner, sha):
                return True
            with _or_disk_full(upload, self._forget):
                if not self._take(upload, sha, offset, total, chunks):
                    return False
                self._publish(upload, owner, sha, total)
                return True

    def drop(self, owner: str, sha: str) -> None:
        """Forget an unfinished upload."""
        with self._alone(self._upload(owner, sha)) as upload:
            self._forget(upload)

    # --- cleaning ---------------------------------------------------------------------------------------------

    def delete_unreferenced(self, keep: Callable[[str, str], bool], older_than: float = 86_400) -> int:
        """Delete what `keep(owner, sha)` does not want and nobody touched for so many seconds; bytes freed."""
        freed = 0
        limit = time.time() - older_than
        for owner, sha, path in self._walk():
            with suppress(FileNotFoundError, Conflict), self._alone(self._upload(owner, sha)):
                found = path.lstat()
                if found.st_mtime <= limit and not keep(owner, sha):
                    with self._mutex:
                        path.unlink()
                        self._count(owner, sha, found.st_size, 0)
                    freed += found.st_size
        return freed

    def delete_stale_uploads(self, older_than: float = 7 * 86_400) -> int:
        """Delete uploads that nobody went on with for so many seconds; bytes freed."""
        freed = 0
        limit = time.time() - older_than
        for path in sorted(self._partial.glob("*/*")):
            with suppress(FileNotFoundError, Conflict), self._alone(path):
                found = path.lstat()
                if found.st_mtime <= limit:
                    self._forget(path)
                    freed += found.st_size
        return freed

    # --- inside -----------------------------------------------------------------------------------------------

    def _take(self, upload: Path, sha: str, offset: int, total: int, chunks: Iterable[bytes]) -> bool:
        """True: all is there, and flushed."""
        _make_directory(upload.parent)
        descriptor = os.open(upload, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size != offset:
                raise Conflict(f"the upload stands at {size}, not at {offset}", "go on from there")
            digest = self._resume(upload, descriptor, size)
            for chunk in chunks:
                self._check_room(upload, size + len(chunk), total)
                _write_all(descriptor, chunk, size)
                digest.update(chunk)
                size += len(chunk)
                self._hashes[upload] = (size, digest)
            if size < total:
                return False
            if digest.hexdigest() != sha:
                self._forget(upload)
                raise BadInput(f"what was sent is not {sha}", "did the file change? send it again from the start")
            os.fsync(descriptor)
            return True
        finally:
            os.close(descriptor)

    def _check_room(self, upload: Path, size: int, total: int) -> None:
        if size > total:
            self._forget(upload)
            raise BadInput(f"more than the announced {total} bytes were sent")

    def _resume(self, upload: Path, descriptor: int, size: int) -> hashlib._Hash:
        """The hash so far: remembered, or read again after a restart."""
        known, digest = self._hashes.get(upload, (-1, hashlib.sha256()))
        if known == size:
            return digest
        digest, at = hashlib.sha256(), 0
        while at < size and (block := os.pread(descriptor, min(_BLOCK, size - at), at)):
            digest.update(block)
            at += len(block)
        return digest

    def _publish(self, upload: Path, owner: str, sha: str, size: int) -> None:
        blob = self._blob(owner, sha)
        _make_directory(blob.parent.parent)
        _make_directory(blob.parent)
        os.utime(upload)
        with self._mutex:
            os.rename(upload, blob)
            self._count(owner, sha, 0, size)
        _flush_directory(blob.parent)
        self._hashes.pop(upload, None)

    def _forget(self, upload: Path) -> None:
        self._hashes.pop(upload, None)
        upload.unlink(missing_ok=True)

    def _exists(self, owner: str, sha: str) -> bool:
        try:
            self.size(owner, sha)
        except NotFound:
            return False
        return True

    @contextmanager
    def _alone(self, upload: Path) -> Iterator[Path]:
        """One request at a time for one blob of one owner."""
        with self._mutex:
            if upload in self._busy:
                hint = "wait for it, then ask how far it came"
                raise Conflict("another request is sending the same blob", hint, retry_after=1)
            self._busy.add(upload)
        try:
            yield upload
        finally:
            with self._mutex:
                self._busy.discard(upload)

    def _walk(self) -> Iterator[tuple[str, str, Path]]:
        for path in self._complete.glob("*/*/*"):
            owner, sha = unescape(path.parent.parent.name), path.parent.name + path.name
            if _SHA.fullmatch(sha):
                yield owner, sha, path

    def _blob(self, owner: str, sha: str) -> Path:
        _check_sha(sha)
        return self._complete / escape(owner) / sha[:2] / sha[2:]

    def _upload(self, owner: str, sha: str) -> Path:
        _check_sha(sha)
        return self._partial / escape(owner) / sha


def escape(owner: str) -> str:
    """A directory's name: no separator, no dot, no capital (some file systems fold them), reversible."""
    raw = owner.encode("utf-8", "surrogatepass")
    if not 0 < len(raw) <= MAX_OWNER:
        raise BadInput(f"an owner's name has 1 to {MAX_OWNER} bytes, not {len(raw)}")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)


def unescape(name: str) -> str:
    raw = re.sub(rb"%([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), os.fsencode(name))
    return raw.decode("utf-8", "surrogatepass")


def _check_sha(sha: str) -> None:
    if not _SHA.fullmatch(sha):
        raise BadInput("a blob is named by 64 hexadecimal digits in lower case")


def _absent(sha: str) -> NotFound:
    return NotFound(f"there is no blob {sha}")


@contextmanager
def _or_disk_full(upload: Path, forget: Callable[[Path], None]) -> Iterator[None]:
    """A full disk gets back what the unfinished upload took."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        forget(upload)
        hint = "make room there, then send it again"
        raise DiskFull("no room for this blob on the server's disk", hint, retry_after=30) from error


def _write_all(descriptor: int, chunk: bytes, at: int) -> None:
    view = memoryview(chunk)
    while view:
        count = os.pwrite(descriptor, view, at)
        view, at = view[count:], at + count


def _make_directory(path: Path) -> None:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
        _flush_directory(path.parent)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
