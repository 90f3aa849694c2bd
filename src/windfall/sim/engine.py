"""Virtual time: things to happen, in the order of their time and then of their scheduling.

Everything random comes from the engine's one generator, and ties are broken by a counter, so that the same seed gives
the same run to the last byte.  Times are integer milliseconds.

What is to happen now stands in a line of its own: half of all events do, and a line is cheaper than a heap.  What is
to happen soon stands in a heap, and what comes later lies unsorted, by spans of time, until its span has come (a
calendar queue, Brown 1988): a heap of all of it would be cold memory at every step.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

SPAN = 14  # bits of milliseconds: 16 s
Entry = tuple[int, int, Callable[..., None], tuple[Any, ...]]  # when, ticket, what, with what


class Engine:
    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self._line: deque[Entry] = deque()  # all of them at `now`, by ticket
        self._heap: list[Entry] = []  # of this span
        self._soon = 0  # when it ends
        self._spans: list[int] = []  # numbers of those to come that hold something, a heap
        self._later: dict[int, list[Entry]] = {}  # what
        self._ticket = 0

    @property
    def events(self) -> int:
        """That have happened."""
        return self._ticket - len(self._line) - len(self._heap) - sum(map(len, self._later.values()))

    def at(self, when: int, what: Callable[..., None], *args: Any) -> None:
        """What lies in the past happens now."""
        self._ticket += 1
        if when <= self.now:
            self._line.append((self.now, self._ticket, what, args))
        elif when < self._soon:
            heappush(self._heap, (when, self._ticket, what, args))
        elif (later := self._later.get(when >> SPAN)) is not None:
            later.append((when, self._ticket, what, args))
        else:
            self._later[when >> SPAN] = [(when, self._ticket, what, args)]
            heappush(self._spans, when >> SPAN)

    def soon(self, what: Callable[[], None]) -> None:
        """At this instant, after all that stands in line."""
        self._ticket += 1
        self._line.append((self.now, self._ticket, what, ()))

    def after(self, wait: int, what: Callable[..., None], *args: Any) -> None:
        self.at(self.now + wait, what, *args)

    def run(self, until: int | None = None, done: Callable[[], bool] | None = None) -> None:
        """Until nothing is left to happen, the time has come, or `done` says so, which is asked before time goes on."""
        line, heap = self._line, self._heap
        last = until if until is not None else 1 << 62
        while line or heap or self._turn_page():
            # What was scheduled for this instant before it came stands in the heap, with a lower ticket.
            if line and (not heap or line[0] < heap[0]):
                _, _, what, args = line.popleft()
            elif done is not None and done():
                return
            elif heap[0][0] <= last:
                self.now, _, what, args = heappop(heap)
            else:
                break
            what(*args)
        if until is not None:
            self.now = max(self.now, until)

    def _turn_page(self) -> bool:
        """The next span in which something happens, if there is one."""
        if not self._spans:
            return False
        span = heappop(self._spans)
        self._heap += self._later.pop(span)
        heapify(self._heap)
        self._soon = span + 1 << SPAN
        return True
