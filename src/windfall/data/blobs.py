"""The blobs on the server's disk.

    blobs/OWNER/ab/cdef…      a complete blob: its hash is right, and it is flushed to the disk
    uploads/OWNER/abcdef…     the bytes of an unfinished upload by the owner
    uploads/OWNER/abcdef…-7   the same blob, as attempt 7 sends it

Rules
  * The hash names a blob and grants no access: every call names the owner, and the blobs of other owners do not exist
    for it.  So deduplication is per owner, and the speed of an upload tells nobody which files others have.
  * Each sender (`by`) has unfinished uploads of its own: nobody can spoil another's, or see how far it is.
  * A complete blob was hashed while it came, flushed and renamed, and its directory was flushed.  No half-written file
    has a blob's name.
  * Names are checked and owners escaped; no call follows a symbolic link; modes are 0700 and 0600.
  * A blob is garbage when no bag refers to it.  A client that sent a blob, or found it here, has time to submit the bag
    that names it: the blob's modification time says when that was.  Once a bag or an attempt has taken the blob
    (`settle`), the time is 0, and the blob is deleted as soon as it is garbage.

All calls block; the server makes them in threads.
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
from typing import BinaryIO, NamedTuple

from windfall.errors import BadInput, Conflict, DiskFull, NotFound, TooLarge

MAX_BLOB = 1 << 40
MAX_OWNER = 64  # bytes
SMALLEST = 4096  # bytes that a file takes on the disk

_SHA = re.compile(r"[0-9a-f]{64}")
_PLAIN = frozenset((string.ascii_lowercase + string.digits + "-_@").encode())
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 1 << 20
TICK_S = 0.01  # a file system's clock ticks every few milliseconds


class Span(NamedTuple):
    """A piece's place in its blob: where the piece begins, the blob's size, and the sender ("": the owner)."""

    offset: int
    total: int
    by: str = ""


class Blobs:
    """All owners' blobs below one directory."""

    def __init__(self, root: Path, limit: int = MAX_BLOB) -> None:
        self._complete = root / "blobs"
        self._partial = root / "uploads"
        self._limit = limit
        self._busy: set[Path] = set()
        self._hashes: dict[Path, tuple[int, hashlib._Hash]] = {}  # bytes hashed, so that resuming need not read again
        self._used: dict[str, int] = {}  # bytes of the owners whose blobs have been counted
        self._changes: dict[str, dict[str, int]] = {}  # while an owner's blobs are being counted: blob → new size
        self._counting = threading.Lock()
        self._mutex = threading.Lock()
        for directory in (root, self._complete, self._partial):
            _make_directory(directory)

    # --- reading ----------------------------------------------------------------------------------------------

    def size(self, owner: str, sha: str, renew: bool = True) -> int:
        """Return the size of a complete blob; `renew` gives the caller time to name it in a bag.  Raise NotFound if
        there is no such blob."""
        try:
            with self.open(owner, sha) as file, self._mutex:
                about = os.fstat(file.fileno())
                if not about.st_nlink:
                    raise _absent(sha)  # deleted since it was opened
                if renew:
                    os.utime(file.fileno())
                return about.st_size
        except PermissionError as error:
            raise _absent(sha) from error

    def open(self, owner: str, sha: str) -> BinaryIO:
        """Open a complete blob for reading; seek for a range."""
        try:
            descriptor = os.open(self._blob(owner, sha), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise _absent(sha) from error
            raise
        return os.fdopen(descriptor, "rb", buffering=0)

    def received(self, owner: str, sha: str, by: str = "") -> int:
        """Return how many bytes of an unfinished upload are here, and so where the next piece begins."""
        try:
            return os.lstat(self._upload(owner, sha, by)).st_size
        except FileNotFoundError:
            return 0

    def used(self, owner: str) -> int:
        """Return the bytes of an owner's complete blobs: read from the disk once, kept up to date from then on."""
        if owner not in self._used:
            with self._counting:
                if owner not in self._used:
                    self._count_all(owner)
        return self._used[owner]

    def begun(self, owner: str) -> dict[str, int]:
        """Return an owner's unfinished uploads with their bytes; each takes a block at least."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self._partial / escape(owner)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found[entry.name] = max(entry.stat(follow_symlinks=False).st_size, SMALLEST)
        return found

    def _count_all(self, owner: str) -> None:
        """Count an owner's blobs on the disk; changes that uploads make meanwhile replace the sizes read."""
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
        """Note a blob's new size; the caller holds the mutex, as when it made or removed the file."""
        if owner in self._changes:
            self._changes[owner][sha] = new
        elif owner in self._used:
            self._used[owner] += new - old

    # --- writing ----------------------------------------------------------------------------------------------

    def put(self, owner: str, body: bytes) -> str:
        """Store a whole blob and return its name."""
        sha = hashlib.sha256(body).hexdigest()
        self.drop(owner, sha)
        self.append(owner, sha, Span(0, len(body)), [body])
        return sha

    def append(self, owner: str, sha: str, span: Span, chunks: Iterable[bytes]) -> bool:
        """Take a piece of an upload; return True when the blob is complete and on the disk.

        Conflict when the upload does not stand at the piece's offset, or another request of its sender is sending the
        blob.  The bytes that arrived before `chunks` broke off are kept.
        """
        offset, total, by = span
        if total > self._limit:
            raise TooLarge(f"a blob of {total} bytes is over the limit of {self._limit}")
        if not 0 <= offset <= total:
            raise BadInput(f"a piece at {offset} does not lie within {total} bytes")
        with self._alone(self._upload(owner, sha, by)) as upload:
            if not by and self._exists(owner, sha):
                self._forget(upload)
                return True
            with _or_disk_full(upload, self._forget):
                if not self._take(upload, sha, span, chunks):
                    return False
                self._publish(upload, owner, sha, total)
                return True

    def drop(self, owner: str, sha: str) -> None:
        """Forget an unfinished upload."""
        with self._alone(self._upload(owner, sha)) as upload:
            self._forget(upload)

    # --- cleaning ---------------------------------------------------------------------------------------------

    def settle(self, owner: str, shas: Iterable[str]) -> None:
        """Note that a bag or an attempt has taken these blobs: they need no time of grace any more."""
        for sha in shas:
            with suppress(FileNotFoundError):
                os.utime(self._blob(owner, sha), (0, 0), follow_symlinks=False)

    def mark(self) -> int:
        """Return a time by the disk's clock.  A blob whose status changed since then was touched since then.

        Blobs that were touched before the call are older than the mark: the clock ticks meanwhile."""
        time.sleep(TICK_S)
        os.utime(self._complete)
        return os.stat(self._complete).st_ctime_ns

    def delete_unreferenced(
        self, keep: Callable[[str, str], bool], older_than: float = 86_400, *, owner: str = "", mark: int | None = None,
    ) -> dict[str, int]:
        """Delete the blobs that `keep(owner, sha)` refuses and nobody asked for so long; return the bytes freed, by
        owner.

        `owner` names the one owner whose blobs are looked at.  Blobs touched since `mark` stay: the caller listed what
        to keep after it.
        """
        freed: dict[str, int] = {}
        limit = time.time() - older_than
        for each, sha, path in self._walk(owner):
            if keep(each, sha):
                continue
            with suppress(FileNotFoundError, Conflict), self._alone(self._upload(each, sha)), self._mutex:
                found = path.lstat()
                if found.st_mtime <= limit and (mark is None or found.st_ctime_ns < mark):
                    path.unlink()
                    self._count(each, sha, found.st_size, 0)
                    freed[each] = freed.get(each, 0) + found.st_size
        return freed

    def delete_stale_uploads(self, older_than: float = 7 * 86_400) -> int:
        """Delete uploads without a new piece for so many seconds; return the bytes freed."""
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

    def _take(self, upload: Path, sha: str, span: Span, chunks: Iterable[bytes]) -> bool:
        """Write a piece; return True when all bytes are there, have the right hash, and are flushed."""
        offset, total, _ = span
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
                raise BadInput(f"the bytes sent do not have the SHA-256 {sha}",
                               "did the file change? send it again from the start")
            os.fsync(descriptor)
            return True
        finally:
            os.close(descriptor)

    def _check_room(self, upload: Path, size: int, total: int) -> None:
        if size > total:
            self._forget(upload)
            raise BadInput(f"more than the announced {total} bytes were sent")

    def _resume(self, upload: Path, descriptor: int, size: int) -> hashlib._Hash:
        """Return the hash of the bytes so far: the one in memory, or after a restart that of the bytes on the disk."""
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
            if blob.is_file() and not blob.is_symlink():  # it was here, or another sender was faster
                os.utime(blob, follow_symlinks=False)
                upload.unlink()
            else:
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
        """Admit one request at a time for a sender's blob; raise Conflict for others."""
        with self._mutex:
            if upload in self._busy:
                hint = "wait for it, then ask how many bytes the server has"
                raise Conflict("another request is sending the same blob", hint, retry_after=1)
            self._busy.add(upload)
        try:
            yield upload
        finally:
            with self._mutex:
                self._busy.discard(upload)

    def _walk(self, only: str = "") -> Iterator[tuple[str, str, Path]]:
        for path in self._complete.glob(f"{escape(only) if only else '*'}/*/*"):
            owner, sha = unescape(path.parent.parent.name), path.parent.name + path.name
            if _SHA.fullmatch(sha):
                yield owner, sha, path

    def _blob(self, owner: str, sha: str) -> Path:
        _check_sha(sha)
        return self._complete / escape(owner) / sha[:2] / sha[2:]

    def _upload(self, owner: str, sha: str, by: str = "") -> Path:
        _check_sha(sha)
        return self._partial / escape(owner) / upload_name(sha, by)


def upload_name(sha: str, by: str) -> str:
    """Return the file name of a sender's unfinished upload."""
    return f"{sha}-{by}" if by else sha


def escape(owner: str) -> str:
    """Return a directory name for an owner: reversible, no separators, no dots, no capitals (some disks fold them)."""
    raw = owner.encode("utf-8", "surrogatepass")
    if not 0 < len(raw) <= MAX_OWNER:
        raise BadInput(f"an owner's name must have 1 to {MAX_OWNER} bytes, not {len(raw)}")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)


def unescape(name: str) -> str:
    raw = re.sub(rb"%([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), os.fsencode(name))
    return raw.decode("utf-8", "surrogatepass")


def _check_sha(sha: str) -> None:
    if not _SHA.fullmatch(sha):
        raise BadInput("a blob's name must be 64 hexadecimal digits in lower case")


def _absent(sha: str) -> NotFound:
    return NotFound(f"there is no blob {sha}")


@contextmanager
def _or_disk_full(upload: Path, forget: Callable[[Path], None]) -> Iterator[None]:
    """Turn the error of a full disk into DiskFull, and free the bytes of the unfinished upload."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        forget(upload)
        hint = "make room there, then send it again"
        raise DiskFull("no room for this blob on the server's disk", hint, retry_after=30) from error


def _write_all(descriptor: int, chunk: bytes, at: int) -> None:
    """Write a piece at the end of a file; a piece of zeros becomes a hole, which takes no room."""
    if not chunk.strip(b"\0"):
        os.ftruncate(descriptor, at + len(chunk))
        return
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
