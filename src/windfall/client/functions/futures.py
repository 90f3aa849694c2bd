"""The future of a call.  Small: all futures of an executor share one condition.

The standard library's functions (`wait`, `as_completed`, `asyncio.wrap_future`) work on them: a condition may be
entered again by the thread that holds it.  What waits for one future is woken by every one that ends, so the methods
that wait look again; results are set many at a time, with one waking for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future, TimeoutError as Timeout
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windfall.client.functions.flow import Flow

DONE = (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)
UNSENT, SENDING = -1, -2  # instead of a task's number


class CallFuture(Future[Any]):
    def __init__(self, flow: Flow):  # not the parent's, which makes a condition for each
        self._condition = flow.condition
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._flow = flow
        self.task = UNSENT
        self.wall = 0  # ms it took

    @property
    def bag(self) -> int:
        """Where its task is; with `task`, what `windfall show` and `logs` want to know."""
        return self._flow.bag

    # --- waiting

    def result(self, timeout: float | None = None) -> Any:
        error = self.exception(timeout)
        if error is None:
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
        """True: it will not run.  False: it has ended, or a pilot has it; `kill` ends such a one."""
        self._flow.cancel([self])
        return self.cancelled()

    def kill(self) -> bool:
        """End the call wherever it is.  False: it had ended."""
        return self._flow.kill(self)


def settle(future: CallFuture, result: Any, error: BaseException | None, state: str = FINISHED) -> None:
    """Set the outcome.  The caller holds the condition, notifies, and calls back."""
    future._result, future._exception, future._state = result, error, state
    for waiter in future._waiters:
        if state != FINISHED:
            waiter.add_cancelled(future)
        elif error is not None:
            waiter.add_exception(future)
        else:
            waiter.add_result(future)


def as_completed(futures: Iterable[Future[Any]], timeout: float | None = None) -> Iterator[Future[Any]]:
    """As the standard library's, for any number of futures: one list, and what has been given is let go."""
    waiter: Any = _Queue()
    left = set(futures)
    for future in left:
        with future._condition:
            if future._state in DONE:
                waiter.add_result(future)
            else:
                future._waiters.append(waiter)
    until = None if timeout is None else time.monotonic() + timeout
    try:
        while left:
            done = waiter.take(until)
            if not done:
                raise Timeout(f"{len(left)} futures are unfinished")
            done.reverse()
            while done:
                future = done.pop()
                left.discard(future)
                _unlisten(future, waiter)
                yield future
                del future
    finally:
        for future in left:
            _unlisten(future, waiter)


def _unlisten(future: Future[Any], waiter: Any) -> None:
    with future._condition:
        if waiter in future._waiters:
            future._waiters.remove(waiter)


class _Queue:
    """What ended and was not given out yet; the interface of the standard library's waiters."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self._changed = threading.Condition()

    def take(self, until: float | None) -> list[Any]:
        """Empty when time is up, and only then."""
        with self._changed:
            self._changed.wait_for(lambda: self.done, None if until is None else max(0.0, until - time.monotonic()))
            done, self.done = self.done, []
            return done

    def add_result(self, future: Any) -> None:
        with self._changed:
            self.done.append(future)
            self._changed.notify_all()

    add_exception = add_cancelled = add_result
