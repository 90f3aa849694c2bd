"""The calls of one executor on their way: out in batches, back on a stream.

Rules
  * Two threads, whatever the number of calls: one sends what has piled up since it last sent, one reads results.
  * What waits to be sent is bounded; whoever submits faster waits.
  * A batch is one request with an idempotency key: sent twice, it counts once.
  * A row may come before the answer to the request that made its task; it is kept until then.
  * The bag is closed when nothing more will be sent; the reader ends with the bag.
  * Where another process's server went away, the reader finds, or becomes, the next one; the sender tries on meanwhile.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from concurrent.futures._base import LOGGER
from typing import Any

import msgspec

from ..errors import NoServer, WindfallError
from ..model.calls import reference
from ..model.spec import Bag, Items
from .client import Client
from .futures import DONE, SENDING, UNSENT, CallFuture, settle
from .http import Http
from .payload import Packer, checked, outcome, reason

MOST_CALLS = 4096  # in one request
MOST_BYTES = 8 << 20
WAITING_BYTES = 64 << 20  # that may wait to be sent
PATIENCE = 120.0  # seconds without a server until the results are given up
SOON = 3.0  # until another one is looked for, where that can be done


class Row(msgspec.Struct):
    """What we read of a row of results."""

    task: int
    state: str = ""
    value: str = ""
    why: str | None = ""
    note: str | None = ""
    outcome: str | None = ""
    wall: int = 0


class Update(msgspec.Struct):
    position: int = 0
    rows: list[Row] | None = None
    done: bool = False


_decode = msgspec.json.Decoder(Update).decode


class Flow:
    def __init__(
        self, client: Client, bag: Bag, on_end: Callable[[], None], again: Callable[[], None] | None = None
    ):
        """`again` finds or becomes the next server, at the same address, or raises NoServer."""
        self.condition = threading.Condition()  # of all futures, and of what waits to be sent
        self.packer = Packer(self._keep)
        self._kept: dict[str, None] = {}  # blobs that were sent
        self._client = client  # the sender's
        self._asking = threading.Lock()
        self._asker = Client(client.profile)  # for orders in between, by any thread
        self._on_end = on_end
        self._again = again
        answer = client.submitted(bag)
        self.bag = int(answer["bag"])
        self._position = int(answer.get("position", 0))
        self._unsent: list[tuple[CallFuture, str]] = []
        self._bytes = 0
        self._chained = 0  # futures that wait for others
        self._futures: dict[int, CallFuture] = {}  # by task
        self._early: dict[int, Row] = {}
        self._known = 0  # tasks below this have, or had, their future
        self.closing = False
        self.broken: BaseException | None = None
        self.ended = False
        self.counts = {"submitted": 0, "succeeded": 0, "failed": 0, "cancelled": 0}
        self._threads = [threading.Thread(target=each, name=f"windfall {name}", daemon=True)
                         for name, each in (("sender", self._send), ("reader", self._read))]
        for thread in self._threads:
            thread.start()

    # --- from outside ------------------------------------------------------------------------------------------

    def submit(self, text: str) -> CallFuture:
        future = CallFuture(self)
        self.put(future, checked(text))
        return future

    def _keep(self, data: bytes) -> str:
        """Send large arguments once, however often they are used."""
        sha = hashlib.sha256(data).hexdigest()
        with self._asking:
            if sha not in self._kept:
                self._asker.upload(sha, data)
                self._kept[sha] = None
        return reference(sha, len(data))

    def chain(self, future: CallFuture) -> None:
        """It will be put later; until then the bag stays open."""
        with self.condition:
            self.refuse_if_over()
            self._chained += 1

    def put(self, future: CallFuture, text: str, chained: bool = False) -> None:
        with self.condition:
            if chained:
                self._chained -= 1
                self.condition.notify_all()
                if future._state in DONE:
                    return
            else:
                self.refuse_if_over()
            while self._bytes > WAITING_BYTES and not self.broken:
                self.condition.wait()
            self._unsent.append((future, text))
            self._bytes += len(text)
            self.counts["submitted"] += 1
            if len(self._unsent) == 1:
                self.condition.notify_all()

    def unchain(self) -> None:
        """A future that waited for others will not be put."""
        with self.condition:
            self._chained -= 1
            self.condition.notify_all()

    def refuse_if_over(self) -> None:
        if self.broken is not None:
            raise type(self.broken)(*self.broken.args) from self.broken.__cause__
        if self.closing:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def close(self) -> None:
        with self.condition:
            self.closing = True
            self.condition.notify_all()

    def join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # --- cancelling --------------------------------------------------------------------------------------------

    def cancel(self, future: CallFuture) -> bool:
        with self.condition:
            unsent = future.task == UNSENT
            if unsent:
                self._withdraw([future])
            if unsent or future._state in DONE or future.task == SENDING:
                return future.task != SENDING and future._drop()
        return bool(self._ask([future.task], waiting=True)) and future._drop()

    def kill(self, future: CallFuture) -> bool:
        with self.condition:
            if future._state in DONE:
                return False
            self._withdraw([future])
        if future.task >= 0:
            self._ask([future.task], waiting=False)
        return future._drop()

    def cancel_all(self) -> None:
        """All that no pilot has."""
        with self.condition:
            unsent = [future for future, _ in self._unsent]
            self._withdraw(unsent)
            sent = list(self._futures)
        for future in unsent:
            future._drop()
        if sent:
            self._ask(sent, waiting=True)  # the rows tell which

    def _withdraw(self, futures: Iterable[CallFuture]) -> None:
        """Take out what was not sent.  Under the condition."""
        gone = set(futures)
        self._bytes -= sum(len(text) for future, text in self._unsent if future in gone)
        self._unsent = [entry for entry in self._unsent if entry[0] not in gone]

    def _ask(self, tasks: list[int], waiting: bool) -> int:
        with self._asking:
            return self._asker.cancel(self.bag, tasks, waiting=waiting)

    # --- sending -----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            while self._send_batch(self._batch()):
                pass
            if not self.broken:
                self._client.close_bag(self.bag)
        except WindfallError as error:
            self.give_up(error)

    def _batch(self) -> list[tuple[CallFuture, str]]:
        """What is to be sent now; empty: nothing more will come."""
        with self.condition:
            while not self._unsent and not self.broken and not (self.closing and not self._chained):
                self.condition.wait()
            if self.broken:
                return []
            size = count = 0
            for _, text in self._unsent[:MOST_CALLS]:
                size += len(text)
                if count and size > MOST_BYTES:
                    break
                count += 1
            batch = self._unsent[:count]
            del self._unsent[:count]
            for future, _ in batch:
                future.task = SENDING
            if self._bytes > WAITING_BYTES:
                self.condition.notify_all()
            self._bytes -= sum(len(text) for _, text in batch)
            return batch

    def _send_batch(self, batch: list[tuple[CallFuture, str]]) -> bool:
        if not batch:
            return False
        answer = self._client.append(self.bag, Items(items=[text for _, text in batch]))
        first = int(answer["first"])
        early, dropped = [], []
        with self.condition:
            for task, (future, _) in enumerate(batch, first):
                future.task = task
                self._futures[task] = future
                if future._state in DONE:
                    dropped.append(task)
            self._known = first + len(batch)
            if self._early:
                early = [self._early.pop(task) for task in range(first, first + len(batch)) if task in self._early]
        if dropped:
            self._ask(dropped, waiting=False)
        if early:
            self._take(early)
        return True

    # --- reading -----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        http = Http(self._client.profile, SOON if self._again is not None else PATIENCE)
        try:
            while not self.ended and not self.broken:
                try:
                    self._read_stream(http)
                except NoServer:
                    if self._again is None:
                        raise
                    self._again()
        except (WindfallError, msgspec.DecodeError) as error:
            self.give_up(error)
        finally:
            http.close()
            self._asker.close()
            self._on_end()

    def _read_stream(self, http: Http) -> None:
        """Until it ends or breaks; a server that does not answer at all for long is an error."""
        began = False
        try:
            for line in http.lines(f"/v1/bags/{self.bag}/watch?from={self._position}&rows=1"):
                began = True
                self._hear(_decode(line))
        except NoServer:
            if not began:
                raise

    def _hear(self, update: Update) -> None:
        self._position = max(self._position, update.position)
        if update.rows:
            self._take(update.rows)
        if update.done:
            self.ended = True

    def _take(self, rows: list[Row]) -> None:
        """Results: decoded outside the lock, set under it all at once, told outside it; no reference is kept."""
        read = [(row, *_outcome_of(row)) for row in reversed(rows)]
        told: list[CallFuture] = []
        broken = next((error for _, _, error in read if isinstance(error, BrokenExecutor)), None)
        with self.condition:
            while read:
                self._set(*read.pop(), told)
            self.condition.notify_all()
        for future in told:
            future._invoke_callbacks()  # type: ignore[attr-defined]
        if broken is not None:
            LOGGER.critical("Exception in initializer: %s", broken.__cause__)
            self.give_up(broken)

    def _set(self, row: Row, result: Any, error: BaseException | None, told: list[CallFuture]) -> None:
        future = self._futures.pop(row.task, None)
        if future is None:
            if row.task >= self._known:  # else it came twice
                self._early[row.task] = row
        elif future._state not in DONE:
            self._settle(future, row, result, error)
            if future._done_callbacks:
                told.append(future)

    def _settle(self, future: CallFuture, row: Row, result: Any, error: BaseException | None) -> None:
        future.wall = row.wall
        if row.state == "cancelled":
            self.counts["cancelled"] += 1
            settle(future, None, None, "CANCELLED_AND_NOTIFIED")
        else:
            self.counts["succeeded" if error is None else "failed"] += 1
            settle(future, result, error)

    def give_up(self, error: BaseException) -> None:
        """Nothing more will come: everybody who waits is told why."""
        with self.condition:
            if self.broken is not None:
                return
            self.broken = error
            waiting = [future for future, _ in self._unsent] + list(self._futures.values())
            waiting = [future for future in waiting if future._state not in DONE]
            self._unsent, self._futures = [], {}
            for future in waiting:
                settle(future, None, error)
            self.condition.notify_all()
        for future in waiting:
            future._invoke_callbacks()  # type: ignore[attr-defined]
        self._cancel_rest()

    def _cancel_rest(self) -> None:
        try:
            with self._asking:
                self._asker.cancel(self.bag)
        except WindfallError:
            pass  # there is nobody to tell


def _outcome_of(row: Row) -> tuple[Any, BaseException | None]:
    if row.state == "cancelled":
        return None, None
    try:
        return outcome(row.value, reason(row))
    except Exception as error:  # whatever unpickling raises is the call's failure
        return None, error
