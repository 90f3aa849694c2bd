"""Live output: pilots send pieces of a running task's output while a user watches it.

The output of ended tasks comes from the views.  The server keeps pieces only while somebody watches, at most a megabyte
per stream.
"""

from __future__ import annotations

import asyncio
from typing import Any

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import GRANTED, STARTED
from windfall.core.state.world import State
from windfall.errors import BadInput, NotFound
from windfall.server.files.lineage import attempt_number, same_lineage
from windfall.server.http.server import Request, Stream, reply_json

KEEP = 1 << 20
LOOK_S = 0.25  # between checks whether a watched task has started
MAX_WATCHED = 1024
_ENDING = (f.Finished, f.Ended, f.TasksCancelled, f.BagRemoved, f.PilotEnded)  # after these an attempt may be over


class Tail:
    """The last megabyte of one attempt's stream."""

    __slots__ = ("base", "data", "pilot", "waiting", "watchers")

    def __init__(self, pilot: int) -> None:
        self.pilot = pilot
        self.base = 0  # offset of data[0]
        self.data = bytearray()
        self.watchers = 0
        self.waiting: list[asyncio.Future[None]] = []

    def add(self, offset: int, piece: bytes) -> None:
        end = self.base + len(self.data)
        if offset > end:  # a piece was lost on the way
            self.base, self.data = offset, bytearray(piece)
        else:
            self.data += piece[end - offset:]
        excess = len(self.data) - KEEP
        if excess > 0:
            del self.data[:excess]
            self.base += excess
        self.wake()

    def after(self, position: int) -> tuple[bytes, int]:
        """Return the bytes after a position, and the position after them."""
        start = max(position, self.base)
        piece = bytes(self.data[start - self.base:])
        return piece, start + len(piece)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)


class LiveOutput:
    """The attempts whose output users watch, by pilot, and the output received so far."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tails: dict[tuple[int, str], Tail] = {}
        self._by_pilot: dict[int, dict[int, None]] = {}
        self.stopped = False

    def watched(self, pilot: int) -> list[int]:
        """Return the attempts of a pilot whose output somebody watches."""
        found = self._by_pilot.get(pilot)
        return list(found) if found else []

    def open(self, attempt: int, pilot: int, stream: str) -> Tail:
        tail = self._tails.get((attempt, stream))
        if tail is None:
            if len(self._tails) >= MAX_WATCHED:
                raise NotFound(f"{MAX_WATCHED} outputs are being watched already", "try again later")
            tail = self._tails[attempt, stream] = Tail(pilot)
            self._by_pilot.setdefault(pilot, {})[attempt] = None
        tail.watchers += 1
        return tail

    def close(self, attempt: int, stream: str) -> None:
        tail = self._tails[attempt, stream]
        tail.watchers -= 1
        if tail.watchers:
            return
        del self._tails[attempt, stream]
        if (attempt, "out") not in self._tails and (attempt, "err") not in self._tails:
            mine = self._by_pilot[tail.pilot]
            mine.pop(attempt, None)
            if not mine:
                del self._by_pilot[tail.pilot]

    async def receive(self, request: Request) -> Any:
        """Take a piece of output from a pilot; answer whether to send more."""
        attempt, stream = _number(request.args[0]), request.option("stream", "out")
        attempts = self._state.attempts
        row = attempts.row(attempt)
        if row < 0 or not same_lineage(self._state, request.who.pilot, attempts.pilot[row]):
            raise NotFound(f"this pilot has no attempt {attempt}")
        tail = self._tails.get((attempt, stream))
        if tail is not None:
            tail.add(max(0, request.number("offset", 0)), bytes(request.body))
        return reply_json({"go": tail is not None})

    def commit(self, position: int, at: int, facts: Any) -> None:
        """Wake the watchers of attempts that have ended."""
        if self._tails and any(isinstance(fact, _ENDING) for fact in facts):
            for (attempt, _), tail in self._tails.items():
                if not self.runs(attempt):
                    tail.wake()

    def stop(self) -> None:
        self.stopped = True
        for tail in self._tails.values():
            tail.wake()

    def running(self, bag: int, task: int) -> tuple[int, int] | None:
        """Return attempt and pilot of a task: a started attempt if there is one, else a granted one."""
        attempts = self._state.attempts
        rows = attempts.of_task(bag << 32 | task)
        for wanted in (STARTED, GRANTED):
            for row in rows:
                if attempts.state[row] == wanted:
                    return attempts.number[row], attempts.pilot[row]
        return None

    def runs(self, attempt: int) -> bool:
        attempts = self._state.attempts
        row = attempts.row(attempt)
        return row >= 0 and attempts.state[row] in (STARTED, GRANTED)


async def stream_output(live: LiveOutput, request: Request, out: Stream, attempt: int, tail: Tail) -> int:
    """Send an attempt's output as it arrives until the attempt has ended; return how many bytes were sent."""
    loop = asyncio.get_running_loop()
    position = 0
    while not (out.closed or live.stopped):
        piece, position = tail.after(position)
        if piece:
            await out.write(piece)
        elif not live.runs(attempt):
            break
        else:
            more = loop.create_future()
            tail.waiting.append(more)
            request.on_gone = tail.wake
            await more
    return position


def _number(text: str) -> int:
    number = attempt_number(text)
    if number is None:
        raise BadInput(f"'{text[:40]}' is not an attempt's number")
    return number
