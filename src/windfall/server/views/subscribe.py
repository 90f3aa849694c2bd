"""Subscriptions: streams of newline-separated JSON that follow the commits.

Rules
  * A commit that touches a subscriber's bag wakes the subscriber; between commits a subscriber costs no time.
  * The rows that wait for a slow subscriber are bounded in number and bytes.  New counts replace old ones.  If too many
    rows wait, the stream ends with `resume`: the client sends a new request with its last position.
  * A subscriber that begins in the past gets the rows of recent commits from memory, and older rows from the views.  In
    the second case it may see a row twice, but misses none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from windfall.core.messages.events import Attend
from windfall.core.messages.facts import Fact
from windfall.core.read.views import counts
from windfall.core.state.world import BagState
from windfall.errors import WindfallError
from windfall.server.grants import Renderings
from windfall.server.http.server import NDJSON, Request, Stream, json
from windfall.server.views import rows
from windfall.server.views.projector import Projector
from windfall.server.writer import Writer

HEARTBEAT_S = 15
MAX_WAITING = 50_000  # rows that may wait for one subscriber
RECENT = 512  # commits kept for subscribers that begin a little late
RECENT_ROWS = 20_000  # of one commit; subscribers get the rows of a larger one from the views
RECENT_BYTES = 16 << 20
MAX_WAITING_BYTES = 32 << 20
PAGE = 5_000


class Subscriber:
    """A subscriber, with the bags that commits touched and, if it wants rows, those commits, until it takes them."""

    __slots__ = (
        "_loop", "_wake", "bag", "bags", "beat", "commits", "lost", "owner", "stopped", "waiting", "waiting_bytes",
        "wants_rows",
    )

    def __init__(self, bag: int | None, owner: str, wants_rows: bool) -> None:
        self.bag = bag
        self.owner = owner
        self.wants_rows = wants_rows
        self.bags: dict[int, None] = {}
        self.commits: list[rows.RecordedCommit] = []
        self.waiting = self.waiting_bytes = 0
        self.lost = self.beat = self.stopped = False
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None

    def take_in(self, commit: rows.RecordedCommit, bag: int, weight: int) -> None:
        self.bags[bag] = None
        if self.wants_rows and not self.lost:
            self.waiting += rows.row_count(commit.facts)
            self.waiting_bytes += weight
            self.commits.append(commit)
            if self.waiting > MAX_WAITING or self.waiting_bytes > MAX_WAITING_BYTES:
                self.lost = True
                self.commits.clear()
        self.wake()

    def wake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def wait(self) -> None:
        if not (self.bags or self.beat or self.stopped):
            self._wake = self._loop.create_future()
            await self._wake
            self._wake = None

    def take(self) -> tuple[dict[int, None], list[rows.RecordedCommit]]:
        taken = self.bags, self.commits
        self.bags, self.commits, self.waiting, self.waiting_bytes = {}, [], 0, 0
        return taken


class Hub:
    def __init__(self, writer: Writer, renderings: Renderings, projector: Projector) -> None:
        self._writer = writer
        self._state = writer.state
        self._renderings = renderings
        self._projector = projector
        self._by_bag: dict[int, list[Subscriber]] = {}
        self._by_owner: dict[str, list[Subscriber]] = {}
        self._recorder = rows.CommitRecorder(writer.state)
        self._recent: deque[tuple[rows.RecordedCommit, int]] = deque()  # commits, with their bytes
        self._recent_bytes = 0
        self._oldest = writer.position  # `_recent` has all commits after this position
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    # --- commits in -------------------------------------------------------------------------------------------

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        commit, weight = self._recorder.record(position, facts), rows.memory_bytes(facts)
        self._remember(commit, weight)
        if not self._by_bag and not self._by_owner:
            return
        for bag in rows.touched(facts):
            for subscriber in self._by_bag.get(bag, ()):
                subscriber.take_in(commit, bag, weight)
            if self._by_owner:
                found = self._state.bags.get(bag)
                for subscriber in self._by_owner.get(found.owner, ()) if found is not None else ():
                    subscriber.take_in(commit, bag, weight)

    def _remember(self, commit: rows.RecordedCommit, weight: int) -> None:
        if rows.row_count(commit.facts) > RECENT_ROWS or weight > RECENT_BYTES:
            self.forget_recent()
            self._oldest = commit.position
            return
        self._recent.append((commit, weight))
        self._recent_bytes += weight
        while len(self._recent) > RECENT or self._recent_bytes > RECENT_BYTES:
            oldest, weight = self._recent.popleft()
            self._oldest = oldest.position
            self._recent_bytes -= weight

    def forget_recent(self) -> None:
        """Drop the recent commits: a subscriber that begins in the past then gets its rows from the views."""
        self._recent.clear()
        self._recent_bytes = 0
        self._oldest = self._writer.position

    # --- subscribers ------------------------------------------------------------------------------------------

    @property
    def subscribers(self) -> int:
        return sum(map(len, self._by_bag.values())) + sum(map(len, self._by_owner.values()))

    def add(self, subscriber: Subscriber) -> None:
        subscriber.stopped = self._stopped
        table: dict[Any, list[Subscriber]] = self._by_owner if subscriber.bag is None else self._by_bag
        table.setdefault(subscriber.owner if subscriber.bag is None else subscriber.bag, []).append(subscriber)
        if self._timer is None:
            self._timer = self._loop.call_later(HEARTBEAT_S, self._beat)

    def remove(self, subscriber: Subscriber) -> None:
        table: dict[Any, list[Subscriber]] = self._by_owner if subscriber.bag is None else self._by_bag
        key = subscriber.owner if subscriber.bag is None else subscriber.bag
        left = [each for each in table.get(key, ()) if each is not subscriber]
        if left:
            table[key] = left
        else:
            table.pop(key, None)

    def _all(self) -> list[Subscriber]:
        tables = (*self._by_bag.values(), *self._by_owner.values())
        return [each for table in tables for each in table]

    def _beat(self) -> None:
        everyone = self._all()
        for subscriber in everyone:
            subscriber.beat = True
            subscriber.wake()
        self._attend()
        self._timer = self._loop.call_later(HEARTBEAT_S, self._beat) if everyone else None

    def _attend(self) -> None:
        """Tell the core which bags are followed, of those that are closed when their clients stay away."""
        followed = [number for number in self._by_bag
                    if (bag := self._state.bags.get(number)) is not None and bag.absence and bag.open]
        if followed:
            with suppress(WindfallError):  # a busy server hears of it at the next beat
                self._writer.put(Attend(key=0, bags=followed))

    def stop(self) -> None:
        """End all streams; clients ask again with their last position."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for subscriber in self._all():
            subscriber.stopped = True
            subscriber.wake()

    # --- streams out ------------------------------------------------------------------------------------------

    async def watch(self, request: Request, bag: BagState) -> None:
        since = request.number("from", 0)
        subscriber = Subscriber(bag.number, bag.owner, request.option("rows") in ("1", "true"))
        self.add(subscriber)
        request.on_gone = subscriber.wake
        try:
            stream = request.start(NDJSON)
            if not await self._begin(stream, subscriber, bag, since):
                await self._follow(stream, subscriber, bag)
            stream.end()
        finally:
            self.remove(subscriber)

    async def _begin(self, stream: Stream, subscriber: Subscriber, bag: BagState, since: int) -> bool:
        """Send the changes between `since` and now; return whether the stream ends with them."""
        position = self._writer.position
        if not subscriber.wants_rows:
            return await self._send_line(stream, bag, position, None)
        if since >= self._oldest:
            past = [commit for commit, _ in self._recent if commit.position > since]
            return await self._send_line(stream, bag, position, self._rows(bag, past))
        await self._old_rows(stream, bag)
        if subscriber.lost:  # the rows up to `position` were sent, those of later commits were dropped
            await self._resume(stream, position)
            return True
        subscriber.commits = [each for each in subscriber.commits if each.position > position]
        return await self._send_line(stream, bag, self._writer.position, self._rows(bag, self._taken(subscriber)))

    async def _old_rows(self, stream: Stream, bag: BagState) -> None:
        after, rendering = -1, self._renderings.of(bag)
        while True:
            page = await self._projector.ask(partial(_page, bag.number, after))
            if page:
                made = [rows.from_view(rendering, row) for row in page]
                await stream.write(json.encode({"position": 0, "rows": made}) + b"\n")
            if len(page) < PAGE:
                return
            after = page[-1].task

    async def _follow(self, stream: Stream, subscriber: Subscriber, bag: BagState) -> None:
        while True:
            await subscriber.wait()
            if stream.closed or subscriber.stopped:
                return
            subscriber.beat, beat = False, subscriber.beat
            if not subscriber.bags:
                if beat:
                    await stream.write(b"{}\n")
                continue
            if subscriber.lost:
                await self._resume(stream, None)
                return
            made = self._rows(bag, self._taken(subscriber)) if subscriber.wants_rows else subscriber.take() and None
            if await self._send_line(stream, bag, self._writer.position, made):
                return

    async def _resume(self, stream: Stream, position: int | None) -> None:
        """Tell the client to ask again, from that position, or else from the last position that it received."""
        line: dict[str, Any] = {"resume": True}
        if position is not None:
            line["position"] = position
        await stream.write(json.encode(line) + b"\n")

    def _taken(self, subscriber: Subscriber) -> list[rows.RecordedCommit]:
        return subscriber.take()[1]

    def _rows(self, bag: BagState, commits: list[rows.RecordedCommit]) -> list[Any]:
        maker = rows.RowMaker(self._state, bag, self._renderings.of(bag))
        return [row for commit in commits for row in maker.rows(commit)]

    async def _send_line(self, stream: Stream, bag: BagState, position: int, made: list[Any] | None) -> bool:
        done = ended(bag) or bag.number not in self._state.bags
        line: dict[str, Any] = {"position": position, "counts": counts(bag)}
        if made is not None:
            line["rows"] = made
        if done:
            line["done"] = True
        await stream.write(json.encode(line) + b"\n")
        return done

    async def events(self, request: Request) -> None:
        """Follow all bags of the user."""
        since = request.number("from", 0)  # before the answer begins: a wrong number is refused in words
        subscriber = Subscriber(None, request.who.owner, wants_rows=False)
        self.add(subscriber)
        request.on_gone = subscriber.wake
        try:
            stream = request.start(NDJSON)
            mine = [bag.number for bag in self._state.bags.values() if bag.owner == request.who.owner]
            if since < self._writer.position:
                subscriber.bags.update(dict.fromkeys(mine))
            while not (stream.closed or subscriber.stopped):
                await stream.write(self._lines(subscriber))
                await subscriber.wait()
            stream.end()
        finally:
            self.remove(subscriber)

    def _lines(self, subscriber: Subscriber) -> bytes:
        touched, _ = subscriber.take()
        position, subscriber.beat, beat = self._writer.position, False, subscriber.beat
        lines = []
        for number in touched:
            bag = self._state.bags.get(number)
            now = counts(bag) if bag is not None else None
            lines.append(json.encode({"position": position, "bag": number, "counts": now}) + b"\n")
        if beat and not lines:
            lines.append(b"{}\n")
        return b"".join(lines)


def _page(bag: int, after: int, views: Any) -> list[Any]:
    return list(views.results(bag, after, PAGE))


def ended(bag: BagState) -> bool:
    return not bag.open and not bag.not_ended()
