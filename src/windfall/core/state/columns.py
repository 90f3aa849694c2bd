"""Columns: equal-length NumPy arrays, each with a memoryview beside it.

A single cell through the memoryview costs a third of a NumPy scalar; a thousand cells through the array cost a
thousandth of a loop.  Both see the same bytes.  Rows are saved in chunks of 64 Ki; a chunk whose rows never changed
is all zeros and is neither saved nor touched.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.lifecycle import FREE, GRANTED, LOST, STARTED
from windfall.core.state.moves import ATTEMPTS

CHUNK_BITS = 16
CHUNK = 1 << CHUNK_BITS

ROW_BITS = 24  # an attempt's number holds its row, so that finding it needs no index
ROW_MASK = (1 << ROW_BITS) - 1

# Up to this many rows a loop over memoryviews is faster than NumPy calls: measured on whole exchanges, 32 is even.
FEW = 24

TASK_BITS = 32  # of the number that names a task of any bag; above them stands its bag
TASK_MASK = (1 << TASK_BITS) - 1


def ref_of(bag: int, task: int) -> int:
    """Return the number that names a task of any bag."""
    return bag << TASK_BITS | task


def bag_and_task(ref: int) -> tuple[int, int]:
    return ref >> TASK_BITS, ref & TASK_MASK


class Table:
    """Columns named in LAYOUT: `name` is the memoryview, `np_name` the array."""

    LAYOUT: tuple[tuple[str, Any], ...] = ()

    def __init__(self, rows: int) -> None:
        self.rows = 0
        self.capacity = 0
        self.dirty = bytearray()
        self._reserve(max(rows, 1))
        self.rows = rows

    def _reserve(self, capacity: int) -> None:
        for name, kind in self.LAYOUT:
            fresh = np.zeros(capacity, dtype=kind)
            if self.rows:
                fresh[: self.rows] = getattr(self, "np_" + name)[: self.rows]
            setattr(self, "np_" + name, fresh)
            setattr(self, name, fresh.data)
        self.capacity = capacity
        self.dirty.extend(bytes(((capacity - 1) >> CHUNK_BITS) + 1 - len(self.dirty)))

    def grow(self, rows: int) -> None:
        """Add rows, all zero."""
        if self.rows + rows > self.capacity:
            self._reserve(max(self.rows + rows, self.capacity + (self.capacity >> 1), 64))
        self.rows += rows

    def mark(self, first: int, last: int) -> None:
        """Note that rows first…last have changed since they were saved."""
        for chunk in range(first >> CHUNK_BITS, (last >> CHUNK_BITS) + 1):
            self.dirty[chunk] = 1

    def touch(self, row: int) -> None:
        """Note that a row has changed since it was saved."""
        self.dirty[row >> CHUNK_BITS] = 1

    def dump(self, everything: bool = False) -> dict[int, bytes]:
        """Return the bytes of the chunks that changed, by number."""
        return {c: self._chunk(c) for c, flag in enumerate(self.dirty) if flag or everything}

    def _chunk(self, chunk: int) -> bytes:
        a, b = chunk << CHUNK_BITS, min((chunk + 1) << CHUNK_BITS, self.rows)
        return b"".join(getattr(self, "np_" + name)[a:b].tobytes() for name, _ in self.LAYOUT)

    def load(self, chunk: int, body: bytes, columns: int | None = None) -> None:
        """Load a chunk; `columns` says how many columns there were when it was written."""
        a, layout = chunk << CHUNK_BITS, self.LAYOUT[:columns]
        width = sum(np.dtype(kind).itemsize for _, kind in layout)
        n, offset = len(body) // width, 0
        for name, kind in layout:
            column = np.frombuffer(body, dtype=kind, count=n, offset=offset)
            getattr(self, "np_" + name)[a : a + n] = column
            offset += column.nbytes

    def saved(self) -> None:
        self.dirty[:] = bytes(len(self.dirty))


class Tasks(Table):
    """The columns of a bag's tasks: eleven bytes a task."""

    LAYOUT = (
        ("state", np.uint8),
        ("live", np.uint8),  # attempts granted or started
        ("variant", np.uint8),  # the class within its target: memory raises, duration failures × 16, OVER
        ("failures", np.uint16),
        ("deaths", np.uint8),
        ("flags", np.uint8),
        ("generation", np.uint16),
        ("tries", np.uint16),
    )
    state: memoryview
    live: memoryview
    variant: memoryview
    failures: memoryview
    deaths: memoryview
    flags: memoryview
    generation: memoryview
    tries: memoryview
    np_state: NDArray[np.uint8]
    np_live: NDArray[np.uint8]
    np_variant: NDArray[np.uint8]
    np_failures: NDArray[np.uint16]
    np_deaths: NDArray[np.uint8]
    np_flags: NDArray[np.uint8]
    np_generation: NDArray[np.uint16]
    np_tries: NDArray[np.uint16]


class Hosts(Table):
    """The columns of hosts: counts and times of the ends of the tasks that each was given."""

    LAYOUT = (
        ("success", np.int64),  # when one succeeded last
        ("seen", np.int64),  # when one ended last
        ("until", np.int64),  # it is given nothing before
        ("attempts", np.uint32),
        ("failures", np.uint32),
        ("losses", np.uint32),
        ("mean", np.float32),  # ms that a success took, moving average
        ("streak", np.uint16),  # failures since the last success
        ("standing", np.uint8),
        ("times", np.uint8),  # that it has been quarantined
        ("day", np.uint32),  # of its last success, counted from 1970
        ("today", np.uint32),  # successes on that day
        ("speed", np.float32),  # what its tasks take on average, over what they took here; moving average; 0: unknown
    )
    success: memoryview
    seen: memoryview
    until: memoryview
    attempts: memoryview
    failures: memoryview
    losses: memoryview
    mean: memoryview[float]
    streak: memoryview
    standing: memoryview
    times: memoryview
    day: memoryview
    today: memoryview
    speed: memoryview[float]
    np_seen: NDArray[np.int64]
    np_attempts: NDArray[np.uint32]
    np_failures: NDArray[np.uint32]
    np_losses: NDArray[np.uint32]
    np_standing: NDArray[np.uint8]
    np_speed: NDArray[np.float32]


class Attempts(Table):
    """Attempts in play.  A row is used again under a new number; a report for an old number finds another one there."""

    LAYOUT = (
        ("number", np.int64),
        ("task", np.int64),  # ref
        ("granted", np.int64),
        ("started", np.int64),
        ("pilot", np.int32),
        ("cls", np.int32),
        ("grant", np.int32),
        ("generation", np.uint16),
        ("state", np.uint8),
    )
    number: memoryview
    task: memoryview
    granted: memoryview
    started: memoryview
    pilot: memoryview
    cls: memoryview
    grant: memoryview
    generation: memoryview
    state: memoryview
    np_number: NDArray[np.int64]
    np_task: NDArray[np.int64]
    np_granted: NDArray[np.int64]
    np_started: NDArray[np.int64]
    np_pilot: NDArray[np.int32]
    np_cls: NDArray[np.int32]
    np_grant: NDArray[np.int32]
    np_generation: NDArray[np.uint16]
    np_state: NDArray[np.uint8]

    def __init__(self, rows: int = 0) -> None:
        super().__init__(rows)
        self.free: deque[int] = deque()  # rows to use next, longest unused first; rebuilt after recovery
        self.base = 0  # `State.attempt_base`
        self.lost: dict[int, dict[int, None]] = {}  # ref → rows of it that were given up; derived
        self.indexed: dict[int, dict[int, list[int]]] = {}  # bag → ref → its rows; volatile

    def reindex(self) -> None:
        """Rebuild the free rows and the lost attempts from the columns."""
        states = self.np_state[: self.rows]
        self.free = deque(np.flatnonzero(states == FREE).tolist())
        self.lost, self.indexed = {}, {}
        for row in np.flatnonzero(states == LOST).tolist():
            self.lost.setdefault(self.task[row], {})[row] = None

    def mark_lost(self, row: int) -> None:
        """Move an attempt to the lost ones; it may still report."""
        ATTEMPTS.check(self.state[row], LOST, self.number[row])
        self.state[row] = LOST
        self.touch(row)
        self.lost.setdefault(self.task[row], {})[row] = None

    def recover(self, row: int) -> None:
        """Take an attempt from the lost ones; the caller writes its new state."""
        ref = self.task[row]
        rows = self.lost[ref]
        del rows[row]
        if not rows:
            del self.lost[ref]

    def numbers(self, n: int) -> list[int]:
        """Take n free rows, and return their new attempt numbers.  A row stays free until the grant is applied."""
        free = self.free
        if len(free) < n:
            first = self.rows
            self.grow(max(n, min(self.rows // 4, 1 << 16), 256))  # few: whoever looks for some looks at all
            free.extend(range(first, self.rows))
        number, take, base = self.number, free.popleft, self.base
        if base:
            return [(max(number[row] >> ROW_BITS, base) + 1 << ROW_BITS) | row for row in (take() for _ in range(n))]
        if n == 1:
            row = take()
            return [((number[row] >> ROW_BITS) + 1 << ROW_BITS) | row]
        taken = [take() for _ in range(n)]
        return [((number[row] >> ROW_BITS) + 1 << ROW_BITS) | row for row in taken]

    def rows_left(self) -> int:
        """How many more attempts can be in play: the row must fit into the number."""
        return ROW_MASK - (1 << 16) - self.rows + len(self.free)

    def row(self, attempt: int) -> int:
        """The attempt's row, or -1 if that number is not in play."""
        row = attempt & ROW_MASK
        if row < self.rows and self.number[row] == attempt and self.state[row]:
            return row
        return -1

    def of_pilot(self, pilot: int) -> NDArray[np.int64]:
        """Rows of a pilot, oldest grant first (within a grant by number of task)."""
        rows: NDArray[np.int64] = (self.np_pilot[: self.rows] == pilot).nonzero()[0]  # the others for few
        rows = rows[self.np_state[rows] != 0]
        if len(rows) > 1:
            rows = rows[np.lexsort((self.np_task[rows], self.np_grant[rows]))]
        return rows

    def bag_of(self, row: int) -> int:
        """The number of the bag of the attempt's task."""
        bag: int = self.task[row] >> TASK_BITS
        return bag

    def task_of(self, row: int) -> int:
        """The number, within its bag, of the attempt's task."""
        task: int = self.task[row] & TASK_MASK
        return task

    def bags_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.np_task[rows] >> TASK_BITS

    def tasks_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.np_task[rows] & TASK_MASK

    def of_bag(self, bag: int) -> NDArray[np.int64]:
        """Rows of a bag's attempts, those included that are lost or dropped."""
        return np.flatnonzero((self.np_task[: self.rows] >> TASK_BITS == bag) & (self.np_state[: self.rows] != FREE))

    def in_play(self, bag: int) -> NDArray[np.int64]:
        """Rows of a bag's attempts that are granted or started."""
        states = self.np_state[: self.rows]
        mine = self.np_task[: self.rows] >> TASK_BITS == bag
        return np.flatnonzero(mine & ((states == STARTED) | (states == GRANTED)))

    def in_state(self, bag: int, state: int) -> NDArray[np.int64]:
        """Rows of a bag's attempts that are in one state."""
        return np.flatnonzero((self.np_state[: self.rows] == state) & (self.np_task[: self.rows] >> TASK_BITS == bag))

    def of_task(self, ref: int) -> list[int]:
        """Return the rows of a task's attempts: in one pass over all rows, unless its bag has an index."""
        known = self.indexed.get(ref >> TASK_BITS)
        if known is not None:
            return sorted(known.get(ref, ()))
        rows = np.flatnonzero(self.np_task[: self.rows] == ref)
        found: list[int] = rows[self.np_state[rows] != 0].tolist()
        return found

    # --- rows by task ------------------------------------------------------------------------------------------

    def index(self, bag: int) -> None:
        """Index a bag's attempts by task, for many calls of `of_task`.  The index costs one pass; it is kept up to date
        until none of the bag's attempts is in play, or many of its tasks are granted at once."""
        if bag not in self.indexed:
            made: dict[int, list[int]] = {}
            for row in self.of_bag(bag).tolist():
                made.setdefault(self.task[row], []).append(row)
            if made:
                self.indexed[bag] = made

    def add_rows(self, bag: int, rows: list[int]) -> None:
        """Add rows to the index of their bag, if it has one."""
        if len(rows) > FEW:
            self.indexed.pop(bag, None)
        elif (known := self.indexed.get(bag)) is not None:
            for row in rows:
                known.setdefault(self.task[row], []).append(row)

    def drop_rows(self, bag: int, rows: list[int]) -> None:
        """Drop rows from the index of their bag, before their columns change."""
        known = self.indexed.get(bag)
        if known is None:
            return
        for row in rows:
            ref = self.task[row]
            known[ref].remove(row)
            if not known[ref]:
                del known[ref]
        if not known:
            del self.indexed[bag]
