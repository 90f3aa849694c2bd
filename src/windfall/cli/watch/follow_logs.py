"""`windfall logs -f BAG`: print what all running tasks of a bag write, line by line, each after its task's number.

The first tasks, up to STREAMS at a time, are followed while they write; the output of the others is printed when they
end.  One thread prints, so that lines do not mix; the other threads wait when it cannot keep up.
"""

from __future__ import annotations

import sys
import threading
from queue import Queue
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import Bytes
from windfall.client.client import Client
from windfall.client.waiting import FINAL
from windfall.errors import NoServer, WindfallError

if TYPE_CHECKING:
    from windfall.client.profile import Profile

STREAMS = 32  # tasks followed at a time
LOOK = 0.5  # seconds between requests for newly started tasks
PIECES = 256  # pieces of output that may wait to be printed
MAX_LINE = 1 << 16  # bytes; a longer line is broken

Piece = tuple[int, bytes | None]  # task, and what it wrote; None: the task has ended


def follow(client: Client, bag: int, stream: str) -> None:
    """Print what the bag's tasks write until the bag has ended."""
    now = client.bag(bag)
    if now["state"] in FINAL:
        return
    follower = _Follower(client.profile, bag, stream, now["position"])
    threading.Thread(target=follower.watch, name="watch", daemon=True).start()
    threading.Thread(target=follower.find_started, name="find-started", daemon=True).start()
    printer = Printer()
    while True:
        piece = follower.pieces.get()
        if piece is None:
            break
        if isinstance(piece, BaseException):
            raise piece
        printer(*piece)


class Printer:
    """Prints whole lines to standard output, `TASK: ` before each."""

    def __init__(self) -> None:
        self._out = Bytes(sys.stdout)
        self._begun: dict[int, bytes] = {}  # the last line of each task, if it has no end yet

    def __call__(self, task: int, data: bytes | None) -> None:
        text = self._begun.pop(task, b"") + (data or b"")
        *lines, rest = text.split(b"\n")
        if rest and (data is None or len(rest) > MAX_LINE):
            lines.append(rest)
        elif rest:
            self._begun[task] = rest
        if lines:
            self._out.write(b"".join(b"%d: %s\n" % (task, line) for line in lines))


class _Follower:
    def __init__(self, profile: Profile, bag: int, stream: str, position: int) -> None:
        self._profile, self._bag, self._stream, self._position = profile, bag, stream, position
        self.pieces: Queue[Piece | BaseException | None] = Queue(PIECES)
        self._taken: set[int] = set()  # tasks that a thread prints, or has printed
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}
        self._ended = threading.Event()

    def _client(self) -> Client:
        return Client(self._profile)

    def _take(self, task: int) -> bool:
        with self._lock:
            if task in self._taken:
                return False
            self._taken.add(task)
            return True

    def watch(self) -> None:
        """Print tasks that ended without having been followed, until the bag has ended."""
        end: BaseException | None = None
        try:
            with self._client() as client:
                self._watch(client)
        except BaseException as error:
            end = error
        self._ended.set()
        if end is None:
            for thread in list(self._threads.values()):
                thread.join()
        self.pieces.put(end)

    def _watch(self, client: Client) -> None:
        while True:
            try:
                for update in client.watch(self._bag, self._position, rows=True):
                    self._position = update.get("position") or self._position
                    for row in update.get("rows") or ():
                        self._print_ended(client, row)
                    if update.get("done"):
                        return
            except NoServer:
                client.bag(self._bag)  # waits for a server to answer, and raises if none does

    def _print_ended(self, client: Client, row: dict[str, Any]) -> None:
        if row.get(f"{self._stream}_size") and self._take(row["task"]):
            self._send(client, row["task"], follow=False)

    def find_started(self) -> None:
        """Follow tasks as they start, up to STREAMS at a time."""
        try:
            with self._client() as client:
                while not self._ended.is_set():
                    self._threads = {task: each for task, each in self._threads.items() if each.is_alive()}
                    if len(self._threads) < STREAMS:
                        for task in client.running(self._bag, STREAMS):
                            self._start(task)
                    self._ended.wait(LOOK)
        except WindfallError:
            return  # `watch` reports the failure, or prints the tasks when they end

    def _start(self, task: int) -> None:
        if len(self._threads) < STREAMS and not self._ended.is_set() and self._take(task):
            thread = self._threads[task] = threading.Thread(target=self._follow, args=(task,), daemon=True)
            thread.start()

    def _follow(self, task: int) -> None:
        with self._client() as client:
            self._send(client, task, follow=True)

    def _send(self, client: Client, task: int, follow: bool) -> None:
        try:
            for data in client.log(self._bag, task, self._stream, follow):
                self.pieces.put((task, data))
        except WindfallError:
            pass  # the task wrote nothing, or its output is gone with the server
        self.pieces.put((task, None))
