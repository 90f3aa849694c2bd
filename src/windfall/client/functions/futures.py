"""`CallFuture`: the future of a call.  All futures of an executor share one condition, so that each stays small.

The standard library's functions (`wait`, `as_completed`, `asyncio.wrap_future`) work on these futures, because the
thread that holds the condition may enter it again.  Every future that ends wakes all threads that wait on the
condition, so each looks again whether its own has ended.  Results are set many at a time, with one waking for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future, TimeoutError as Timeout
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import Any, Protocol

from windfall.client.functions.payload import StoredResult

DONE = (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)
UNSENT, SENDING = -1, -2  # instead of a task's number


class Dispatcher(Protocol):
    """The part of an executor that a future asks."""

    condition: threading.Condition
    bag: int

    def cancel(self, futures: Iterable[CallFuture]) -> int: ...
    def kill(self, future: CallFuture) -> bool: ...
    def fetched(self, stored: StoredResult) -> Any: ...


class CallFuture(Future[Any]):
    def __init__(self, dispatcher: Dispatcher):  # without the parent's, which makes a condition for each future
        self._condition = dispatcher.condition
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._dispatcher = dispatcher
        self.task = UNSENT
        self.wall = 0  # ms that the call ran
        self.stored: StoredResult | None = None  # a large result is on the server until somebody asks for it

    @property
    def bag(self) -> int:
        """The bag of the call's task, for `windfall show` and `windfall logs`."""
        return self._dispatcher.bag

    def belongs_to(self, dispatcher: Dispatcher) -> bool:
        return self._dispatcher is dispatcher

    # --- waiting

    def result(self, timeout: float | None = None) -> Any:
        error = self.exception(timeout)
        if error is None:
            if isinstance(self._result, StoredResult):
                self._result = self._dispatcher.fetched(self._result)
            return self._result
        try:
            raise error
        finally:
            del error, self  # no cycle through the traceback

    def exception(self, timeout: float | None = None) -> BaseException | None:
        with self._condition:
            if self._state not in DONE and not self._wait(timeout):
                raise Timeout()
            if self._state != FINISHED:
                raise CancelledError()
            return self._exception

    def _wait(self, timeout: float | None) -> bool:
        return self._condition.wait_for(lambda: self._state in DONE, timeout)

    # --- ending it

    def cancel(self) -> bool:
        """Return True if the call will not run, False if it has ended or a pilot holds it; `kill` ends such a call."""
        self._dispatcher.cancel([self])
        return self.cancelled()

    def kill(self) -> bool:
        """End the call wherever it is; return False if it had ended."""
        return self._dispatcher.kill(self)


def settle(future: CallFuture, result: Any, error: BaseException | None, state: str = FINISHED) -> None:
    """Set the outcome of a call.  The caller holds the condition, notifies, and runs the callbacks."""
    future._result, future._exception, future._state = result, error, state
    if isinstance(result, StoredResult):
        future.stored = result
    for waiter in future._waiters:
        if state != FINISHED:
            waiter.add_cancelled(future)
        elif error is not None:
            waiter.add_exception(future)
        else:
            waiter.add_result(future)


def as_completed(futures: Iterable[Future[Any]], timeout: float | None = None) -> Iterator[Future[Any]]:
    """Yield futures as they end, as the standard library's `as_completed`, but for millions of futures.

    One list serves all futures, and no reference to a yielded future remains.
    """
    waiter: Any = _EndedFutures()
    unfinished = set(futures)
    for future in unfinished:
        with future._condition:
            if future._state in DONE:
                waiter.add_result(future)
            else:
                future._waiters.append(waiter)
    until = None if timeout is None else time.monotonic() + timeout
    try:
        while unfinished:
            done = waiter.take(until)
            if not done:
                raise Timeout(f"{len(unfinished)} futures are unfinished")
            done.reverse()
            while done:
                future = done.pop()
                unfinished.discard(future)
                _unlisten(future, waiter)
                yield future
                del future
    finally:
        for future in unfinished:
            _unlisten(future, waiter)


def _unlisten(future: Future[Any], waiter: Any) -> None:
    with future._condition:
        if waiter in future._waiters:
            future._waiters.remove(waiter)


class _EndedFutures:
    """The futures that have ended and were not yielded yet; a waiter as the standard library defines it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self._changed = threading.Condition()

    def take(self, until: float | None) -> list[Any]:
        """Wait for ended futures and return them; an empty list means that the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.done, None if until is None else max(0.0, until - time.monotonic()))
            done, self.done = self.done, []
            return done

    def add_result(self, future: Any) -> None:
        with self._changed:
            self.done.append(future)
            self._changed.notify_all()

    add_exception = add_cancelled = add_result
