"""The API calls that send and fetch file contents (blobs); threads do the reading and writing.

A user reaches his own blobs.  A pilot names an attempt that it holds.  It may read the inputs of that attempt's task
and the blobs that the attempt sent, and may send outputs, which then belong to the bag's owner.  A report may name only
blobs that its attempt sent or may read.  The server answers the same for an absent blob as for a forbidden one,
and takes the upload of a blob that the owner has already as any other: no answer tells a pilot whether the owner has a
file, or lets the pilot guess its contents byte by byte.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from windfall.core.messages.events import Report
from windfall.core.state.world import BagState, State
from windfall.data.blobs import Blobs, Span, upload_name
from windfall.errors import BadInput, Conflict, NotFound, TooLarge, WindfallError
from windfall.server.files import evidence
from windfall.server.files.disk_guard import DiskGuard
from windfall.server.files.lineage import attempt_number, same_lineage
from windfall.server.files.quota import Quota
from windfall.server.files.sent import SentBlobs
from windfall.server.grants import Renderings
from windfall.server.http.server import BYTES, JSON, Disconnected, Request, Response, json, reply_json

T = TypeVar("T")
PIECE = 1 << 20
MAX_SAVED_NAMES = 256 << 10  # characters of the names of a task's checkpoint files
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")


class Upload(NamedTuple):
    """A piece of a blob that a client sends: bytes `first` to `last` of `total`."""

    owner: str
    by: str
    sha: str
    first: int
    last: int
    total: int


class BlobCalls:
    def __init__(self, root: Path, state: State, renderings: Renderings, disk: DiskGuard) -> None:
        self._root = root
        self._made: Blobs | None = None
        self._sent: SentBlobs | None = None
        self._making = threading.Lock()
        self._state = state
        self._renderings = renderings
        self._disk = disk
        self.quota: Quota | None = None
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(4, "blobs")
        self._comparing = ThreadPoolExecutor(1, "outputs")

    def store(self) -> Blobs:
        """Return the store of blobs; the first call opens it.  There is only one, since it knows which uploads are
        under way."""
        if self._made is None:
            with self._making:
                if self._made is None:
                    self._made = Blobs(self._root)
        return self._made

    @property
    def sent(self) -> SentBlobs:
        """Return the record of sent blobs; the loop's first call reads it."""
        if self._sent is None:
            self._sent = SentBlobs(self._root / "sent", lambda attempt: self._state.attempts.row(attempt) >= 0)
        return self._sent

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        self._comparing.shutdown(wait=False, cancel_futures=True)

    # --- who may what -----------------------------------------------------------------------------------------

    def _owner(self, request: Request, sha: str, writing: bool) -> str:
        """Return the owner of the blob that a request names; raise NotFound if the caller may not reach it."""
        who = request.who
        if who.scope != "pilot":
            return str(who.owner)
        bag, task = self._task_of_attempt(request)
        if bag is None or not (
            writing or sha in self.sent.by(_attempt(request)) or self._renderings.of(bag).may_read(task, sha)
        ):
            raise NotFound(f"there is no blob {sha[:64]}")
        return str(bag.owner)

    def check_files(self, report: Report, most: int) -> bool:
        """Drop from a report the files that the task did not declare, and blobs that the attempt neither sent nor may
        read.  False: comparing them takes the loop more than `most` nanoseconds, so `check_slowly` has to."""
        outputs = self._outputs(report)
        if outputs is None:
            return True
        paths = evidence.paths_of(report)
        if evidence.effort(paths, outputs) > most:
            return False
        self._check(report, outputs, evidence.compare(paths, outputs))
        return True

    async def check_slowly(self, report: Report) -> None:
        """Check a report as `check_files` does, but compare its files in a thread, one report after the other."""
        outputs, found = self._outputs(report), evidence.Found()
        try:
            found = await self._loop.run_in_executor(
                self._comparing, evidence.compare, evidence.paths_of(report), outputs or [])
        except TooLarge as error:
            evidence.add_note(report, error.message)
        if (outputs := self._outputs(report)) is not None:
            self._check(report, outputs, found)

    def _outputs(self, report: Report) -> list[str] | None:
        """Return the outputs of a report's task; None if the bag or the attempt is gone: the core drops the report."""
        place = self._place(report)
        return None if place is None else evidence.declared(report, self._renderings.of(place[0]), *place)

    def _place(self, report: Report) -> tuple[BagState, int] | None:
        attempts = self._state.attempts
        row = attempts.row(report.a)
        bag = self._state.bags.get(attempts.task[row] >> 32) if row >= 0 else None
        return None if bag is None else (bag, attempts.task[row] & 0xFFFFFFFF)

    def _check(self, report: Report, outputs: list[str], found: evidence.Found) -> None:
        place = self._place(report)
        assert place is not None
        bag, task = place
        evidence.keep_found(report, found)
        sent, may_read = self.sent.by(report.a), self._renderings.of(bag).may_read
        dropped = _drop_strange(report, lambda sha: sha not in sent and not may_read(task, sha))
        if report.saved:
            self._trim_checkpoint(report, bag, task)
        if dropped:
            evidence.add_note(report, _not_sent(dropped))
        evidence.demand_all(report, outputs, found)

    def _trim_checkpoint(self, report: Report, bag: BagState, task: int) -> None:
        """Keep only checkpoint files that the task names, and none if their names are too long: the core holds them in
        memory."""
        report.saved = self._renderings.of(bag).named_saved(task, report.saved)
        if sum(len(file[0]) for file in report.saved) > MAX_SAVED_NAMES:
            report.saved = []  # a task cannot resume from half a checkpoint
            evidence.add_note(report, "the names of its checkpoint files are too long")

    def _task_of_attempt(self, request: Request) -> tuple[Any, int]:
        number = attempt_number(request.header(b"x-attempt"))
        attempts = self._state.attempts
        row = attempts.row(number) if number is not None else -1
        if row < 0 or not same_lineage(self._state, request.who.pilot, attempts.pilot[row]):
            return None, -1
        return self._state.bags.get(attempts.task[row] >> 32), attempts.task[row] & 0xFFFFFFFF

    # --- calls ------------------------------------------------------------------------------------------------

    async def head(self, request: Request) -> Response | None:
        sha = request.args[0]
        owner = self._owner(request, sha, writing=True)
        try:
            self._owner(request, sha, writing=False)
            size = await self._run(self.store().size, owner, sha, request.who.scope != "pilot")
        except NotFound as error:
            return _error(error, await self._received(request, owner, sha))
        request.start(BYTES, size, headers=(("Accept-Ranges", "bytes"), ("ETag", f'"{sha}"'))).end()
        return None

    async def get(self, request: Request) -> None:
        sha = request.args[0]
        file = await self._run(self.store().open, self._owner(request, sha, writing=False), sha)
        try:
            size = await self._run(_size, file)
            await self._send(request, file, sha, size)
        finally:
            file.close()

    async def _send(self, request: Request, file: Any, sha: str, size: int) -> None:
        first, last = _byte_range(request.header(b"range"), size)
        headers = [("Accept-Ranges", "bytes"), ("ETag", f'"{sha}"')]
        whole = (first, last) == (0, size - 1)
        if not whole:
            headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        stream = request.start(BYTES, last - first + 1, 200 if whole else 206, tuple(headers))
        while first <= last:
            piece = await self._run(_read, file, first, min(PIECE, last - first + 1))
            if not piece:
                return stream.abort()
            await stream.write(piece)
            first += len(piece)
        stream.end()

    async def put(self, request: Request) -> Response:
        sha = request.args[0]
        owner = self._owner(request, sha, writing=True)
        pilot = request.who.scope == "pilot"
        if pilot:
            self._disk.admit_results()
        else:
            self._disk.admit()
        upload = Upload(owner, _sender(request), sha, *_content_range(request))
        if self.quota is None or (pilot and sha in self.sent.by(_attempt(request))):
            return await self._put(request, upload)
        async with self.quota.receiving(owner, upload_name(sha, upload.by), upload.total, results=pilot):
            return await self._put(request, upload)

    async def _put(self, request: Request, upload: Upload) -> Response:
        pilot, (owner, _, sha, _, last, total) = request.who.scope == "pilot", upload
        try:
            complete = await self._receive(request, upload)
        except Conflict as error:
            return _error(error, await self._received(request, owner, sha))
        if complete and pilot:
            await self._record_sent(_attempt(request), owner, sha)
        if complete:
            return reply_json({"blob": sha, "size": total}, 201)
        return reply_json({"received": last + 1}, 200, (("X-Received", str(last + 1)),))

    async def _received(self, request: Request, owner: str, sha: str) -> int:
        """Return how many bytes of the sender's upload the server has."""
        return await self._run(self.store().received, owner, sha, _sender(request))

    async def _record_sent(self, attempt: int, owner: str, sha: str) -> None:
        await self._run(self.sent.add, attempt, sha)
        await self._run(self.store().settle, owner, [sha])  # from now on the record keeps the blob
        if (ended := self.sent.ended()) is not None:
            await self._run(self.sent.forget, ended)

    async def _receive(self, request: Request, upload: Upload) -> bool:
        """Receive an upload in pieces of a megabyte; if the connection breaks, keep the bytes that arrived."""
        gathered, complete, at = bytearray(), False, upload.first
        try:
            async for piece in request.pieces():
                gathered += piece
                if len(gathered) >= PIECE:
                    self._disk.admit_results()
                    complete = await self._run(self._append, upload, at, bytes(gathered))
                    at += len(gathered)
                    gathered.clear()
        except Disconnected:
            if gathered:
                await self._run(self._append, upload, at, bytes(gathered))
            raise
        if gathered or not complete:
            complete = await self._run(self._append, upload, at, bytes(gathered))
        return complete

    def _append(self, upload: Upload, at: int, piece: bytes) -> bool:
        return self.store().append(upload.owner, upload.sha, Span(at, upload.total, upload.by), [piece])


def _attempt(request: Request) -> int:
    """Return the attempt that a pilot's request names; -1 if it names none."""
    number = attempt_number(request.header(b"x-attempt"))
    return -1 if number is None else number


def _sender(request: Request) -> str:
    """Return the sender of an upload: "" for the owner, or an attempt, whose number outlives a new enrolment."""
    return str(_attempt(request)) if request.who.scope == "pilot" else ""


def _drop_strange(report: Report, strange: Callable[[str], bool]) -> list[str]:
    """Drop the files whose blobs are strange to the attempt; return their paths, and fail a success without them."""
    files, saved = ([file for file in named if strange(file[1])] for named in (report.files, report.saved))
    if files:
        gone = set(files)
        report.files = [file for file in report.files if file not in gone]
        if report.o == "succeeded":
            report.o, report.why = "failed", "output"
    if saved:
        report.saved = [file for file in report.saved if file not in saved]
    paths = [file[0] for file in files + saved]
    if report.scratch is not None and strange(report.scratch[0]):
        report.scratch = None
        paths.append("its directory")
    return paths


def _not_sent(paths: list[str]) -> str:
    named = ", ".join(path[:200] for path in paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return f"not taken, since this attempt did not send it: {named}"


def _error(error: WindfallError, received: int) -> Response:
    return Response(json.encode(error.to_wire()), error.status, JSON, (("X-Received", str(received)),))


def _size(file: Any) -> int:
    return int(file.seek(0, 2))


def _read(file: Any, at: int, count: int) -> bytes:
    file.seek(at)
    return bytes(file.read(count))


def _byte_range(header: str, size: int) -> tuple[int, int]:
    """Return the first and last byte of a Range header; the whole blob if the header cannot be parsed."""
    found = _RANGE.fullmatch(header.strip())
    if found is None or (not found[1] and not found[2]):
        return 0, size - 1
    if not found[1]:
        return max(0, size - int(found[2])), size - 1
    first = int(found[1])
    last = min(int(found[2]), size - 1) if found[2] else size - 1
    if first > last:
        raise BadInput(f"the range begins at byte {first}, but the blob has {size} bytes", "ask for a smaller range")
    return first, last


def _content_range(request: Request) -> tuple[int, int, int]:
    """Return first byte, last byte and total of Content-Range; without that header, the body is the whole blob."""
    header = request.header(b"content-range")
    length = request.header(b"content-length")
    if not header:
        if not length.isdigit():
            raise BadInput("the request does not say the size of the blob", "send Content-Length or Content-Range")
        return 0, int(length) - 1, int(length)
    found = _CONTENT_RANGE.fullmatch(header.strip())
    if found is None:
        raise BadInput(f"cannot parse Content-Range: {header[:60]}", "write bytes FIRST-LAST/TOTAL")
    first, last, total = map(int, found.groups())
    if first > last or last >= total:
        raise BadInput(f"Content-Range {header[:60]} does not lie within its total", "write bytes FIRST-LAST/TOTAL")
    if length.isdigit() and int(length) != last - first + 1:
        raise BadInput("Content-Range and Content-Length give different sizes", "send the sizes of the same body")
    return first, last, total
