"""`CallDispatcher`: sends an executor's calls in batches, and reads their results from a stream.

Rules
  * There are two threads, whatever the number of calls.  The sender sends the calls that piled up since its last
    batch; the reader reads results.
  * The bytes that wait to be sent are bounded; a thread that submits faster waits.
  * A batch is one request with an idempotency key: sent twice, it counts once.
  * Until a future is done it is in exactly one place: chained, unsent, in the batch being sent, or known by its task.
    `give_up` ends the futures of all four, so that no thread waits for ever.
  * Callbacks are the user's code: they run without the lock.
  * A row may come before the answer to the request that made its task; it is kept until then.
  * The sender closes the bag when nothing more will be sent; the reader ends with the bag.
  * A large result stays on the server until somebody asks for it, or the server of this process ends.
  * When another process's server goes away, the reader finds, or becomes, the next one; the sender repeats meanwhile.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from concurrent.futures._base import LOGGER
from typing import Any

import msgspec

from windfall.client.api import Api
from windfall.client.client import Client
from windfall.client.functions.futures import DONE, SENDING, UNSENT, CallFuture, settle
from windfall.client.functions.payload import Packer, StoredResult, checked, outcome, reason, stored_result, unpacked
from windfall.client.http import Http
from windfall.errors import Conflict, NoServer, WindfallError
from windfall.model.calls import reference
from windfall.model.spec import Bag, Items

MAX_BATCH_CALLS = 4096  # in one request
MAX_BATCH_BYTES = 8 << 20
MAX_UNSENT_BYTES = 64 << 20
START_TIMEOUT = 1.0  # seconds in which a pilot with a free slot takes a call
PATIENCE = 120.0  # seconds without a server until the results are given up
PATIENCE_BEFORE_NEXT = 3.0  # the same where the reader can find another server


class CallRow(msgspec.Struct):
    """The fields of a result row that a call needs."""

    task: int
    state: str = ""
    value: str = ""
    why: str | None = ""
    note: str | None = ""
    outcome: str | None = ""
    wall: int = 0
    files: list[tuple[str, str, int, int]] = []


class CallUpdate(msgspec.Struct):
    position: int = 0
    rows: list[CallRow] | None = None
    done: bool = False


_decode = msgspec.json.Decoder(CallUpdate).decode


class CallDispatcher:
    def __init__(
        self, client: Client, bag: Bag, on_end: Callable[[], None], next_server: Callable[[], None] | None = None
    ):
        """`next_server` finds or becomes the next server, at the same address, or raises NoServer."""
        self.condition = threading.Condition()  # of all futures, and of the sender's queue
        self.packer = Packer(self._upload)
        self._uploaded: dict[str, None] = {}  # blobs that were sent
        self._client = client  # the sender's
        self._orders_lock = threading.Lock()
        self._orders = Client(client.profile)  # for uploads and cancellations, by any thread
        self._on_end = on_end
        self._next_server = next_server
        answer = client.submitted(bag)
        self.bag = int(answer["bag"])
        self._position = int(answer.get("position", 0))
        self._chained: set[CallFuture] = set()  # calls that wait for other futures
        self._unsent: list[tuple[CallFuture, str]] = []  # some may have been cancelled since
        self._unsent_bytes = 0
        self._sending: list[tuple[CallFuture, str]] = []
        self._futures: dict[int, CallFuture] = {}  # by task
        self._early_rows: dict[int, CallRow] = {}
        self._stored: weakref.WeakSet[CallFuture] = weakref.WeakSet()  # whose results are on the server
        self._tasks_known = 0  # tasks below this number have, or had, their future
        self.closing = False
        self._cancel_at_end = False  # when all is sent, cancel the calls that no pilot holds
        self._cancelled_early = False  # cancel_all came before any call could start
        self._sending_ended = False
        self.broken: BaseException | None = None
        self.ended = False
        self.counts = {"submitted": 0, "succeeded": 0, "failed": 0, "cancelled": 0}
        self._threads = [threading.Thread(target=each, name=f"windfall {name}", daemon=True)
                         for name, each in (("sender", self._send), ("reader", self._read))]
        for thread in self._threads:
            thread.start()

    # --- submitting --------------------------------------------------------------------------------------------

    def submit(self, text: str) -> CallFuture:
        future = CallFuture(self)
        self.put(future, checked(text))
        return future

    def _upload(self, data: bytes) -> str:
        """Send large arguments once, however often calls use them."""
        sha = hashlib.sha256(data).hexdigest()
        with self._orders_lock:
            if sha not in self._uploaded:
                self._orders.upload(sha, data)
                self._uploaded[sha] = None
        return reference(sha, len(data))

    def fetched(self, stored: StoredResult) -> Any:
        """Return a large result; any thread may ask."""
        with Api(self._orders.profile) as api:
            result, error = unpacked(api.download(*stored))
        if error is not None:
            raise error
        return result

    def chain(self, future: CallFuture) -> None:
        """Count a call that waits for other futures; the bag stays open until `put` or `fail` follows."""
        with self.condition:
            self._refuse_if_closed()
            self._chained.add(future)
            self.counts["submitted"] += 1

    def put(self, future: CallFuture, text: str, chained: bool = False) -> None:
        with self.condition:
            while self._unsent_bytes > MAX_UNSENT_BYTES and not self.broken:
                self.condition.wait()
            if not chained:
                self._refuse_if_closed()
                self.counts["submitted"] += 1
            elif future not in self._chained:  # it was cancelled, or the dispatcher gave up
                return
            self._chained.discard(future)
            self._unsent.append((future, text))
            self._unsent_bytes += len(text)
            if len(self._unsent) == 1:
                self.condition.notify_all()

    def fail(self, future: CallFuture, error: BaseException) -> None:
        """End a chained call whose arguments cannot be had."""
        with self.condition:
            failed = self._end([future], error)
        _run_callbacks(failed)

    def _refuse_if_closed(self) -> None:
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
        """Cancel the calls that no pilot holds, with one request; return how many.

        The server says how many tasks it cancelled.  If it was not all of them, their rows tell which.
        """
        futures = list(dict.fromkeys(futures))
        with self.condition:
            unsent = self._end([future for future in futures if future.task == UNSENT])
        _run_callbacks(unsent)
        sent = self._await_sent(futures)
        if not sent:
            return len(unsent)
        count = self._cancel_tasks([future.task for future in sent], waiting=True)
        if count == len(sent):
            self._end_cancelled(sent)
        return len(unsent) + count

    def kill(self, future: CallFuture) -> bool:
        with self.condition:
            if future._state in DONE:
                return False
            unsent = self._end([future]) if future.task < 0 else []
        _run_callbacks(unsent)
        if not unsent:
            self._cancel_tasks([future.task], waiting=False)
        return bool(unsent) or self._end_cancelled([future])

    def cancel_all(self) -> None:
        """Cancel all calls that no pilot holds.  The sender's last request cancels those that were sent.

        With any executor, calls that could start at once have started by then.  Here `cancel_all` may come before the
        sender has run at all; so one batch is still sent, and has a moment to reach a pilot.
        """
        with self.condition:
            self._cancel_at_end = True
            self._cancelled_early = not self._tasks_known
            spared = MAX_BATCH_CALLS if self._cancelled_early and not self._sending else 0
            unsent = self._end([*(future for future, _ in self._unsent[spared:]), *self._chained])
            sending_ended = self._sending_ended
        _run_callbacks(unsent)
        if sending_ended:
            self._cancel_tasks(None, waiting=True)

    def _await_sent(self, futures: list[CallFuture]) -> list[CallFuture]:
        """Wait until none of these calls is being sent; return those that have a task and have not ended."""
        with self.condition:
            sending = [future for future in futures if future.task == SENDING]
            self.condition.wait_for(lambda: all(each.task != SENDING or each._state in DONE for each in sending))
            return [future for future in futures if future.task >= 0 and future._state not in DONE]

    def _end_cancelled(self, futures: list[CallFuture]) -> bool:
        """End these calls as cancelled; return False if all had ended otherwise."""
        with self.condition:
            cancelled = self._end(futures)
        _run_callbacks(cancelled)
        return any(future.cancelled() for future in futures)

    def _end(self, futures: list[CallFuture], error: BaseException | None = None) -> list[CallFuture]:
        """End the unfinished of these calls as cancelled, or as failed with `error`; return them.

        The caller holds the condition, and runs their callbacks when it has released it.
        """
        ended = [future for future in futures if future._state not in DONE]
        self._chained.difference_update(ended)
        for future in ended:
            settle(future, None, error, "FINISHED" if error is not None else "CANCELLED_AND_NOTIFIED")
        self.counts["cancelled" if error is None else "failed"] += len(ended)
        self.condition.notify_all()
        return ended

    def _cancel_tasks(self, tasks: list[int] | None, waiting: bool) -> int:
        with self._orders_lock:
            return self._orders.cancel(self.bag, tasks, waiting=waiting)

    # --- sending -----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            while self._send_batch(self._next_batch()):
                pass
            if not self.broken:
                self._finish()
        except WindfallError as error:
            self.give_up(error)
        finally:
            self._client.close()

    def _finish(self) -> None:
        if self._cancel_at_end:
            if self._cancelled_early:
                self._wait_for_start()
            self._client.cancel(self.bag, waiting=True)
        self._client.close_bag(self.bag)

    def _wait_for_start(self) -> None:
        """Wait until a pilot has taken a call, but no longer than a pilot with a free slot needs."""
        until = time.monotonic() + START_TIMEOUT
        while time.monotonic() < until:
            counts = self._client.bag(self.bag)["counts"]
            if counts["ready"] < sum(counts.values()):
                return
            time.sleep(0.01)

    def _next_batch(self) -> list[tuple[CallFuture, str]]:
        """Wait for calls and return the next batch; an empty one means that nothing more will be sent."""
        with self.condition:
            while not self._sending:
                while not self._unsent and not self.broken and not (self.closing and not self._chained):
                    self.condition.wait()
                if self.broken or not self._unsent:
                    self._sending_ended = True
                    return []
                self._sending = self._take_batch()
            return self._sending

    def _take_batch(self) -> list[tuple[CallFuture, str]]:
        """Take from the queue what one request can hold, without the calls that were cancelled."""
        size = count = 0
        for _, text in self._unsent[:MAX_BATCH_CALLS]:
            size += len(text)
            if count and size > MAX_BATCH_BYTES:
                break
            count += 1
        taken = self._unsent[:count]
        del self._unsent[:count]
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self.condition.notify_all()
        self._unsent_bytes -= sum(len(text) for _, text in taken)
        batch = [(future, text) for future, text in taken if future._state not in DONE]
        for future, _ in batch:
            future.task = SENDING
        return batch

    def _send_batch(self, batch: list[tuple[CallFuture, str]]) -> bool:
        if not batch:
            return False
        answer = self._client.append(self.bag, Items(items=[text for _, text in batch]))
        first = int(answer["first"])
        early, cancelled = [], []
        with self.condition:
            if self.broken:
                return False
            self._sending = []
            for task, (future, _) in enumerate(batch, first):
                future.task = task
                self._futures[task] = future
                if future._state in DONE:
                    cancelled.append(task)
            self._tasks_known = first + len(batch)
            if self._early_rows:
                tasks = range(first, first + len(batch))
                early = [self._early_rows.pop(task) for task in tasks if task in self._early_rows]
            self.condition.notify_all()
        if cancelled:
            self._cancel_tasks(cancelled, waiting=False)
        if early:
            self._set_results(early)
        return True

    # --- reading -----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        http = Http(self._client.profile, PATIENCE if self._next_server is None else PATIENCE_BEFORE_NEXT)
        try:
            while not self.ended and not self.broken:
                try:
                    self._read_stream(http)
                except NoServer:
                    if self._next_server is None:
                        raise
                    self._next_server()
            if not self._sending_ended:
                self.give_up(Conflict(f"bag {self.bag} of this Executor was cancelled or closed elsewhere",
                                      "make a new Executor"))
        except (WindfallError, msgspec.DecodeError) as error:
            self.give_up(error)
        finally:
            http.close()
            self._orders.close()
            if self._next_server is not None and not self.broken:
                self._fetch_stored()
            self._on_end()

    def _fetch_stored(self) -> None:
        """Bring the results that futures still promise, since the server may end with the executor."""
        for future in list(self._stored):
            try:
                future.result()
            except Exception:
                LOGGER.warning("the result of task %d could not be brought", future.task, exc_info=True)

    def _read_stream(self, http: Http) -> None:
        """Read the stream until it ends or breaks; raise NoServer if no server answered."""
        began = False
        try:
            for line in http.lines(f"/v1/bags/{self.bag}/watch?from={self._position}&rows=1"):
                began = True
                self._take_update(_decode(line))
        except NoServer:
            if not began:
                raise

    def _take_update(self, update: CallUpdate) -> None:
        self._position = max(self._position, update.position)
        if update.rows:
            self._set_results(update.rows)
        if update.done:
            self.ended = True

    def _set_results(self, rows: list[CallRow]) -> None:
        """Decode results outside the lock, set all under it, run callbacks outside it; keep no reference to them."""
        results = [(row, *_outcome_of(row)) for row in reversed(rows)]
        with_callbacks: list[CallFuture] = []
        broken = next((error for _, _, error in results if isinstance(error, BrokenExecutor)), None)
        with self.condition:
            while results:
                self._set_result(*results.pop(), with_callbacks)
            self.condition.notify_all()
        _run_callbacks(with_callbacks)
        if broken is not None:
            LOGGER.critical("Exception in initializer: %s", broken.__cause__)
            self.give_up(broken)

    def _set_result(
        self, row: CallRow, result: Any, error: BaseException | None, with_callbacks: list[CallFuture]
    ) -> None:
        future = self._futures.pop(row.task, None)
        if future is None:
            if row.task >= self._tasks_known:  # else the row came twice
                self._early_rows[row.task] = row
        elif future._state not in DONE:
            self._settle(future, row, result, error)
            if future._done_callbacks:
                with_callbacks.append(future)

    def _settle(self, future: CallFuture, row: CallRow, result: Any, error: BaseException | None) -> None:
        future.wall = row.wall
        if row.state == "cancelled":
            self.counts["cancelled"] += 1
            settle(future, None, None, "CANCELLED_AND_NOTIFIED")
        else:
            self.counts["succeeded" if error is None else "failed"] += 1
            settle(future, result, error)
            if future.stored is not None:
                self._stored.add(future)

    def give_up(self, error: BaseException) -> None:
        """Fail all unfinished calls with `error`, and cancel the bag: no more results will come."""
        with self.condition:
            if self.broken is not None:
                return
            self.broken = error
            waiting = [*self._chained, *self._futures.values()]
            waiting += [future for future, _ in self._sending + self._unsent]
            self._sending, self._unsent, self._futures, self._unsent_bytes = [], [], {}, 0
            ended = self._end(waiting, error)
        _run_callbacks(ended)
        self._cancel_bag()

    def _cancel_bag(self) -> None:
        try:
            with self._orders_lock:
                self._orders.cancel(self.bag)
        except WindfallError:
            pass  # no caller waits for this, and the calls have failed already


def _run_callbacks(futures: Iterable[CallFuture]) -> None:
    """Run the callbacks of these futures; the caller does not hold the lock."""
    for future in futures:
        if future._done_callbacks:
            future._invoke_callbacks()  # type: ignore[attr-defined]


def _outcome_of(row: CallRow) -> tuple[Any, BaseException | None]:
    if row.state == "cancelled":
        return None, None
    stored = stored_result(row.value, row.files)
    if stored is not None:
        return stored, None
    try:
        return outcome(row.value, reason(row))
    except Exception as error:  # unpickling failed: that is the call's failure
        return None, error
