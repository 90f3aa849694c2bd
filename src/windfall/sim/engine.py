"""The event loop of the simulator: callbacks run in the order of their virtual time, then of their scheduling.

Every random number comes from the engine's one generator, and a counter breaks ties, so that the same seed gives the
same run to the last byte.  Times are integer milliseconds.

Events of this instant stand in a queue of their own: half of all events do, and a queue is cheaper than a heap.  Events
of the current span of time stand in a heap.  Later events lie unsorted, one list per span, until their span begins (a
calendar queue, Brown 1988): a single heap of all events would be cold memory at every step.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

SPAN_BITS = 14  # a span is 2**14 ms: 16 s
END_OF_TIME = 1 << 62
Entry = tuple[int, int, Callable[..., None], tuple[Any, ...]]  # time, ticket, callback, its arguments


class Engine:
    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self._queue: deque[Entry] = deque()  # events of this instant, by ticket
        self._heap: list[Entry] = []  # events of the current span
        self._span_end = 0  # ms
        self._spans: list[int] = []  # a heap: the numbers of the later spans that hold events
        self._later: dict[int, list[Entry]] = {}  # span → its events, unsorted
        self._ticket = 0

    @property
    def events(self) -> int:
        """Return how many events have happened."""
        return self._ticket - len(self._queue) - len(self._heap) - sum(map(len, self._later.values()))

    def at(self, when: int, what: Callable[..., None], *args: Any) -> None:
        """Schedule a call; a time in the past means now."""
        self._ticket += 1
        if when <= self.now:
            self._queue.append((self.now, self._ticket, what, args))
        elif when < self._span_end:
            heappush(self._heap, (when, self._ticket, what, args))
        elif (later := self._later.get(when >> SPAN_BITS)) is not None:
            later.append((when, self._ticket, what, args))
        else:
            self._later[when >> SPAN_BITS] = [(when, self._ticket, what, args)]
            heappush(self._spans, when >> SPAN_BITS)

    def soon(self, what: Callable[[], None]) -> None:
        """Schedule a call at this instant, after all others of this instant."""
        self._ticket += 1
        self._queue.append((self.now, self._ticket, what, ()))

    def after(self, wait: int, what: Callable[..., None], *args: Any) -> None:
        self.at(self.now + wait, what, *args)

    def run(self, until: int | None = None, done: Callable[[], bool] | None = None) -> None:
        """Run events until none is left, until `until`, or until `done` returns true.

        `done` is asked before time advances, and leaves `now` where it is.
        """
        stopped = self._run_events(END_OF_TIME if until is None else until, done)
        if until is not None and not stopped:
            self.now = max(self.now, until)

    def _run_events(self, last: int, done: Callable[[], bool] | None) -> bool:
        """Run the events up to `last`; did `done` stop the run?"""
        queue, heap = self._queue, self._heap
        while queue or heap or self._open_next_span():
            # An event that was scheduled for this instant before it came stands in the heap, with a lower ticket.
            if queue and (not heap or queue[0] < heap[0]):
                _, _, what, args = queue.popleft()
            elif done is not None and done():
                return True
            elif heap[0][0] <= last:
                self.now, _, what, args = heappop(heap)
            else:
                break
            what(*args)
        return False

    def _open_next_span(self) -> bool:
        """Move the events of the next span into the heap; is there such a span?"""
        if not self._spans:
            return False
        span = heappop(self._spans)
        self._heap += self._later.pop(span)
        heapify(self._heap)
        self._span_end = span + 1 << SPAN_BITS
        return True
