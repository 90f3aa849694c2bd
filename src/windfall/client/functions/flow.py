"""The calls of one executor on their way: out in batches, back on a stream.

Rules
  * Two threads, whatever the number of calls: one sends what has piled up since it last sent, one reads results.
  * What waits to be sent is bounded; whoever submits faster waits.
  * A batch is one request with an idempotency key: sent twice, it counts once.
  * A future is, until it is done, in exactly one place: chained, unsent, in the batch being sent, or known by its task.
    Whoever gives up settles all four, so that nobody waits for ever.
  * Callbacks are the user's: they run without the lock.
  * A row may come before the answer to the request that made its task; it is kept until then.
  * The bag is closed when nothing more will be sent; the reader ends with the bag.
  * Where another process's server went away, the reader finds, or becomes, the next one; the sender tries on meanwhile.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from concurrent.futures._base import LOGGER
from typing import Any

import msgspec

from windfall.client.client import Client
from windfall.client.functions.futures import DONE, SENDING, UNSENT, CallFuture, settle
from windfall.client.functions.payload import Packer, checked, outcome, reason
from windfall.client.http import Http
from windfall.errors import Conflict, NoServer, WindfallError
from windfall.model.calls import reference
from windfall.model.spec import Bag, Items

MOST_CALLS = 4096  # in one request
MOST_BYTES = 8 << 20
WAITING_BYTES = 64 << 20  # that may wait to be sent
START = 1.0  # seconds until a pilot with room has taken what was sent, at most
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
        self._chained: set[CallFuture] = set()  # they wait for others
        self._unsent: list[tuple[CallFuture, str]] = []  # with some that were cancelled since
        self._bytes = 0
        self._sending: list[tuple[CallFuture, str]] = []
        self._futures: dict[int, CallFuture] = {}  # by task
        self._early: dict[int, Row] = {}
        self._known = 0  # tasks below this have, or had, their future
        self.closing = False
        self._cancelling = False  # when all is sent, cancel what no pilot has
        self._hasty = False  # before a call could begin
        self._over = False  # nothing more will be sent
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
            self._chained.add(future)
            self.counts["submitted"] += 1

    def put(self, future: CallFuture, text: str, chained: bool = False) -> None:
        with self.condition:
            while self._bytes > WAITING_BYTES and not self.broken:
                self.condition.wait()
            if not chained:
                self.refuse_if_over()
                self.counts["submitted"] += 1
            elif future not in self._chained:  # cancelled, or given up
                return
            self._chained.discard(future)
            self._unsent.append((future, text))
            self._bytes += len(text)
            if len(self._unsent) == 1:
                self.condition.notify_all()

    def fail(self, future: CallFuture, error: BaseException) -> None:
        """What it waited for cannot be had."""
        with self.condition:
            failed = self._end([future], error)
        _tell(failed)

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

    def cancel(self, futures: Iterable[CallFuture]) -> int:
        """Those that no pilot has, with one request; how many.  The rows tell which if it is not all of them."""
        futures = list(dict.fromkeys(futures))
        with self.condition:
            dropped = self._end([future for future in futures if future.task == UNSENT])
        _tell(dropped)
        sent = self._sent(futures)
        if not sent:
            return len(dropped)
        count = self._ask([future.task for future in sent], waiting=True)
        if count == len(sent):
            self._drop(sent)
        return len(dropped) + count

    def kill(self, future: CallFuture) -> bool:
        with self.condition:
            if future._state in DONE:
                return False
            dropped = self._end([future]) if future.task < 0 else []
        _tell(dropped)
        if not dropped:
            self._ask([future.task], waiting=False)
        return bool(dropped) or self._drop([future])

    def cancel_all(self) -> None:
        """All that no pilot has, when nothing more will be put.  The sender asks for it as the last thing it does.

        As with any executor, calls that could begin at once have begun, though this may come before the sender ran at
        all.  So in such haste a batch is sent, and given a moment to find a pilot.
        """
        with self.condition:
            self._cancelling = True
            self._hasty = not self._known
            spared = MOST_CALLS if self._hasty and not self._sending else 0
            dropped = self._end([*(future for future, _ in self._unsent[spared:]), *self._chained])
            over = self._over
        _tell(dropped)
        if over:
            self._ask(None, waiting=True)

    def _sent(self, futures: list[CallFuture]) -> list[CallFuture]:
        """Those that have a task and have not ended.  What is on its way is waited for."""
        with self.condition:
            sending = [future for future in futures if future.task == SENDING]
            self.condition.wait_for(lambda: all(each.task != SENDING or each._state in DONE for each in sending))
            return [future for future in futures if future.task >= 0 and future._state not in DONE]

    def _drop(self, futures: list[CallFuture]) -> bool:
        """Cancelled, as far as we are concerned; False if all had ended otherwise."""
        with self.condition:
            dropped = self._end(futures)
        _tell(dropped)
        return any(future.cancelled() for future in futures)

    def _end(self, futures: list[CallFuture], error: BaseException | None = None) -> list[CallFuture]:
        """Settle those that have not ended: cancelled, or failed with `error`.  Under the condition; then `_tell`."""
        ended = [future for future in futures if future._state not in DONE]
        self._chained.difference_update(ended)
        for future in ended:
            settle(future, None, error, "FINISHED" if error is not None else "CANCELLED_AND_NOTIFIED")
        self.counts["cancelled" if error is None else "failed"] += len(ended)
        self.condition.notify_all()
        return ended

    def _ask(self, tasks: list[int] | None, waiting: bool) -> int:
        with self._asking:
            return self._asker.cancel(self.bag, tasks, waiting=waiting)

    # --- sending -----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            while self._send_batch(self._batch()):
                pass
            if not self.broken:
                self._finish()
        except WindfallError as error:
            self.give_up(error)

    def _finish(self) -> None:
        if self._cancelling:
            if self._hasty:
                self._wait_for_start()
            self._client.cancel(self.bag, waiting=True)
        self._client.close_bag(self.bag)

    def _wait_for_start(self) -> None:
        """Pilots with room take calls in a moment; those without are not waited for."""
        until = time.monotonic() + START
        while time.monotonic() < until:
            counts = self._client.bag(self.bag)["counts"]
            if counts["ready"] < sum(counts.values()):
                return
            time.sleep(0.01)

    def _batch(self) -> list[tuple[CallFuture, str]]:
        """What is to be sent now; empty: nothing more will come."""
        with self.condition:
            while not self._sending:
                while not self._unsent and not self.broken and not (self.closing and not self._chained):
                    self.condition.wait()
                if self.broken or not self._unsent:
                    self._over = True
                    return []
                self._sending = self._first()
            return self._sending

    def _first(self) -> list[tuple[CallFuture, str]]:
        """Take out what one request can hold, and leave away what was cancelled."""
        size = count = 0
        for _, text in self._unsent[:MOST_CALLS]:
            size += len(text)
            if count and size > MOST_BYTES:
                break
            count += 1
        taken = self._unsent[:count]
        del self._unsent[:count]
        if self._bytes > WAITING_BYTES:
            self.condition.notify_all()
        self._bytes -= sum(len(text) for _, text in taken)
        batch = [(future, text) for future, text in taken if future._state not in DONE]
        for future, _ in batch:
            future.task = SENDING
        return batch

    def _send_batch(self, batch: list[tuple[CallFuture, str]]) -> bool:
        if not batch:
            return False
        answer = self._client.append(self.bag, Items(items=[text for _, text in batch]))
        first = int(answer["first"])
        early, dropped = [], []
        with self.condition:
            if self.broken:
                return False
            self._sending = []
            for task, (future, _) in enumerate(batch, first):
                future.task = task
                self._futures[task] = future
                if future._state in DONE:
                    dropped.append(task)
            self._known = first + len(batch)
            if self._early:
                early = [self._early.pop(task) for task in range(first, first + len(batch)) if task in self._early]
            self.condition.notify_all()
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
            if not self._over:
                self.give_up(Conflict(f"bag {self.bag} was ended by somebody else", "make a new Executor"))
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
        _tell(told)
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
            waiting = [*self._chained, *self._futures.values()]
            waiting += [future for future, _ in self._sending + self._unsent]
            self._sending, self._unsent, self._futures, self._bytes = [], [], {}, 0
            ended = self._end(waiting, error)
        _tell(ended)
        self._cancel_rest()

    def _cancel_rest(self) -> None:
        try:
            with self._asking:
                self._asker.cancel(self.bag)
        except WindfallError:
            pass  # there is nobody to tell


def _tell(futures: Iterable[CallFuture]) -> None:
    """Call back, without the lock."""
    for future in futures:
        if future._done_callbacks:
            future._invoke_callbacks()  # type: ignore[attr-defined]


def _outcome_of(row: Row) -> tuple[Any, BaseException | None]:
    if row.state == "cancelled":
        return None, None
    try:
        return outcome(row.value, reason(row))
    except Exception as error:  # whatever unpickling raises is the call's failure
        return None, error
