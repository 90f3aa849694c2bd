"""Pages of a task's story, read from the journal beside the commit loop.

Rules
  * A thread of its own reads: the loop only waits for it.  The thread holds the journal's lock for a few rows at a
    time, and rests after each such batch, so that a commit never waits long for the lock or the interpreter.
  * One page reads a bounded part of the journal and has a bounded number of lines.  Its cursor says where the next page
    begins, and which attempts and requested pilots of the task are in play there.
  * Rows beyond a size are not read: such a row holds a large submission.  The story has a line that says so.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from windfall.core.read.story import Protagonist, StoryLine, story
from windfall.errors import BadInput
from windfall.model.units import format_size
from windfall.store import codec
from windfall.store.journal import Journal

MOST_LINES = 1_000  # of a page
PAGE_ROWS = 50_000  # of the journal, that one page reads
PAGE_BYTES = 16 << 20
BATCH_ROWS = 128  # read under one hold of the journal's lock
BATCH_BYTES = 128 << 10
LARGEST_ROW = 4 << 20
REST_S = 0.0005
MOST_CURSOR = 4_000  # characters


class StoryPage(NamedTuple):
    lines: list[StoryLine]
    next: str  # the cursor of the next page; "" after the last one
    since: int  # time of the oldest row that the journal still holds


class StoryPages:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "stories")

    async def page(self, who: Protagonist, begins: int, cursor: str, most: int) -> StoryPage:
        """Return the next lines of a task's story; `begins` is when its bag was submitted."""
        position = _resume(who, cursor) if cursor else -1
        return await self._loop.run_in_executor(self._thread, lambda: self._read(who, begins, position, most))

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    # --- in the thread ----------------------------------------------------------------------------------------

    def _read(self, who: Protagonist, begins: int, position: int, most: int) -> StoryPage:
        journal = self._journal
        lines: list[StoryLine] = []
        if position < 0:
            position = journal.position_before(begins)
            if (since := journal.first_at()) > begins:
                lines.append(StoryLine(since, "begins", "the journal reaches back to here: it has no earlier facts"))
        rows_left, bytes_left = PAGE_ROWS, PAGE_BYTES
        while rows_left > 0 and bytes_left > 0:
            batch = journal.read_batch(position, BATCH_ROWS, BATCH_BYTES, LARGEST_ROW)
            if not batch:
                return StoryPage(lines, "", journal.first_at())
            for position, at, size, body in batch:
                lines += [_too_large(at, size)] if body is None else story(codec.decode(body), who)
                bytes_left -= size if body is not None else 0
                if len(lines) >= most:
                    return StoryPage(lines, _cursor(position, who), journal.first_at())
            rows_left -= len(batch)
            time.sleep(REST_S)
        return StoryPage(lines, _cursor(position, who), journal.first_at())


def _too_large(at: int, size: int) -> StoryLine:
    text = f"a commit of {format_size(size)}, such as a large submission, is too large to be searched for the task"
    return StoryLine(at, "unread", text)


def _cursor(position: int, who: Protagonist) -> str:
    attempts = ".".join(f"{attempt}-{pilot}" for attempt, pilot in who.attempts.items())
    return f"{position}/{attempts}/{'.'.join(map(str, who.intents))}"


def _resume(who: Protagonist, cursor: str) -> int:
    """Take what a cursor says of the task's attempts and requested pilots; return the position to read after."""
    try:
        if len(cursor) > MOST_CURSOR or not cursor.isascii():
            raise ValueError(cursor)
        position, attempts, intents = cursor.split("/")
        for each in filter(None, attempts.split(".")):
            attempt, _, pilot = each.partition("-")
            who.follow(_number(attempt), _number(pilot))
        who.intents = [_number(each) for each in filter(None, intents.split("."))]
        return _number(position)
    except ValueError:
        raise BadInput("after is not a cursor of this call", "take it from `next` of the page before") from None


def _number(text: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise ValueError(text)
    return int(text)


def place_lines(lines: list[StoryLine], pilots: Any, ended: list[Any]) -> None:
    """Name the site and the host of each line's pilot; pilots long gone are known from their ended attempts."""
    known = {row.attempt: (row.site, row.host) for row in ended}
    for line in lines:
        pilot = pilots.get(line.pilot)  # None: no pilot is meant, or the server has forgotten it
        if pilot is not None:
            line.site, line.host = pilot.site, pilot.host_name
        elif line.attempt in known:
            line.site, line.host = known[line.attempt]
