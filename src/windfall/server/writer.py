"""The single writer: decide, apply, flush, then release.

Rules
  * Handlers put events into the inbox.  Once per turn of the loop, all events in it are one group: one step of the
    core, one row in the journal, one flush.
  * One callback does all of that, flush included.  So whenever any other code runs, memory equals disk, and that code
    may tell a client anything it reads.
  * The writer releases effects after the flush, never before.
  * A failed flush, or an exception inside the core, ends the process: recovery is the only error path.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from windfall import errors
from windfall.core.messages import effects, events
from windfall.core.messages.facts import Fact
from windfall.core.state.world import State
from windfall.server.clock import Clock
from windfall.server.http.server import log, overloaded
from windfall.store import codec

INTERNAL = 70  # exit code of a process that ended because of an error of its own
MAX_INBOX = 50_000  # events that may wait for one turn; beyond it the server refuses requests with 429
SNAPSHOT_TAIL = 16 << 20  # bytes of journal after which the writer takes a snapshot; a clean stop takes one, too

Callback = Callable[[Any, Any], None]  # context, effect
Listener = Callable[[int, int, list[Fact]], None]  # position, time, facts
Die = Callable[[str, int], None]  # message, exit code


class Journal(Protocol):
    position: int
    tail_bytes: int

    def append(self, at: int, body: bytes) -> int: ...
    def save_snapshot(self, position: int, meta: bytes, chunks: dict[str, bytes], drop: list[str]) -> None: ...


def die(message: str, code: int) -> None:
    """End the process at once, without cleaning up: the state in memory may be wrong."""
    with suppress(OSError):  # the log may lie on the full disk that ends the process
        sys.stderr.write(f"windfall: {message}\n")
        sys.stderr.flush()
    os._exit(code)


class Writer:
    def __init__(self, core: Any, journal: Journal, clock: Clock, die: Die = die) -> None:
        self.loop = asyncio.get_running_loop()
        self.core = core
        self.state: State = core.state
        self.journal = journal
        self.clock = clock
        self.position = journal.position
        self.listeners: list[Listener] = []
        self.early: list[Listener] = []  # listeners that must know a commit before its effects are released
        self.last_acts: list[Callable[[], None]] = []  # when the process ends because of an error
        self.closed = False
        self.flush_times = [0] * (len(BUCKETS) + 1)
        self.flush_total = 0.0
        self.groups = self.events = 0
        self._die = die
        self._inbox: list[events.Event] = []
        self._waiting: dict[int, tuple[Callback, Any]] = {}
        self._next = 1
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at: int | None = None
        self.snapshot_problem = ""  # why there is no new snapshot
        self._snapshot_tail = SNAPSHOT_TAIL  # bytes of journal after which to take the next

    # --- in ---------------------------------------------------------------------------------------------------

    def put(self, event: events.Event, callback: Callback | None = None, context: Any = None) -> int:
        """Put an event into the inbox; the writer calls `callback(context, effect)` once the effect is durable."""
        if self.closed:
            raise errors.Unavailable("the server is stopping", "try again in a moment", retry_after=1)
        if len(self._inbox) >= MAX_INBOX:
            raise overloaded()
        key = self._next
        self._next = key + 1
        event.key = key
        if callback is not None:
            self._waiting[key] = (callback, context)
        self._inbox.append(event)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)
        return key

    async def do(self, event: events.Event) -> Any:
        """Put an event into the inbox, wait for its effect and return it; raise a refusal."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self.put(event, _resolve, future)
        effect = await future
        if type(effect) is effects.Refuse:
            raise refusal(effect)
        return effect

    def forget(self, key: int) -> None:
        """Drop the callback that waits for this effect."""
        self._waiting.pop(key, None)

    @property
    def depth(self) -> int:
        return len(self._inbox)

    # --- a turn -----------------------------------------------------------------------------------------------

    def kick(self) -> None:
        if not self._scheduled and not self.closed:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self.closed:
            return
        group, self._inbox = self._inbox, []
        now = self.clock.now()
        step = self._step(now, group)
        if step is None:
            return
        if step.facts and not self._flush(now, step.facts):
            return
        self.groups += 1
        self.events += len(group)
        if step.facts:
            self._publish(now, step.facts, self.early)
        self._release(step.effects)
        if step.facts:
            self._publish(now, step.facts, self.listeners)
        self._arm(now, step.wake_at)
        if self.journal.tail_bytes > self._snapshot_tail:
            self.snapshot()

    def _step(self, now: int, group: list[events.Event]) -> Any:
        try:
            return self.core.step(now, group)
        except Exception:  # the state may be half changed
            self._end("the core failed; starting again recovers from the journal\n" + traceback.format_exc())
            return None

    def _flush(self, now: int, facts: list[Fact]) -> bool:
        began = time.perf_counter()
        try:
            self.position = self.journal.append(now, codec.encode(facts))
        except errors.FlushFailed as error:
            self._end(str(error), error.exit_code)
            return False
        except Exception:  # memory is ahead of the disk, for whatever reason
            self._end("a commit could not be written\n" + traceback.format_exc())
            return False
        self._measure(time.perf_counter() - began)
        return True

    def _measure(self, seconds: float) -> None:
        self.flush_total += seconds
        for place, bound in enumerate(BUCKETS):
            if seconds <= bound:
                self.flush_times[place] += 1
                return
        self.flush_times[-1] += 1

    def _release(self, released: list[effects.Effect]) -> None:
        waiting = self._waiting
        for effect in released:
            found = waiting.pop(effect.key, None)
            if found is not None:
                try:
                    found[0](found[1], effect)
                except Exception:  # the other answers must still go out
                    log.exception("an answer could not be sent")

    def _publish(self, now: int, facts: list[Fact], listeners: list[Listener]) -> None:
        for listener in listeners:
            try:
                listener(self.position, now, facts)
            except Exception:
                log.exception("the listener %s failed on a commit", listener)

    def _arm(self, now: int, wake_at: int | None) -> None:
        if wake_at == self._wake_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_at = wake_at
        if wake_at is not None:
            self._timer = self.loop.call_later(max(0, wake_at - now) / 1000, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._wake_at = None
        self.kick()

    # --- snapshot and end -------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Save the state.  Where that fails the journal still has everything: `/health` says so, and the writer tries
        again once the journal has grown as much again."""
        try:
            meta, chunks, drop = self.core.snapshot()
            self.journal.save_snapshot(self.position, meta, chunks, drop)
            self.core.saved()
        except errors.FlushFailed as error:
            self._end(str(error), error.exit_code)
        except errors.StoreError as error:
            log.error("%s", self._no_snapshot(error.message))
        except Exception as error:
            why = self._no_snapshot(f"{type(error).__name__}: {error}")
            log.exception("%s; nothing is lost; please report this with the lines below", why)
        else:
            self._snapshot_tail, self.snapshot_problem = SNAPSHOT_TAIL, ""

    def _no_snapshot(self, why: str) -> str:
        self._snapshot_tail = self.journal.tail_bytes + SNAPSHOT_TAIL
        self.snapshot_problem = (
            f"no snapshot can be written, and the journal grows ({self.journal.tail_bytes >> 20} MiB since the last"
            f" one): {why}")
        return self.snapshot_problem

    def finish(self) -> None:
        """Run the last turn; refuse events from now on."""
        if not self.closed and self._inbox:
            self._turn()
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, message: str, code: int = INTERNAL) -> None:
        """End the process; nothing else runs before, so that nobody reads what is not on the disk."""
        self.closed = True
        for act in self.last_acts:
            with suppress(Exception):
                act()
        self._die(message, code)


BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)  # seconds of a flush


def _resolve(future: asyncio.Future[Any], effect: Any) -> None:
    if not future.done():
        future.set_result(effect)


def refusal(effect: effects.Refuse) -> errors.WindfallError:
    made: errors.WindfallError = errors.with_code(effect.error)(effect.message, effect.hint)
    return made
