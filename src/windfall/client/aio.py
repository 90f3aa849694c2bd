"""`AsyncClient`: the methods of `Client`, awaited.

    async with AsyncClient() as client:
        bag = await client.submit(spec)
        async for update in client.watch(bag, rows=True): ...
        print(await client.call(pow, 2, 10))

One thread makes all requests, in order, because a client is for one thread.  Each stream has a thread and a client of
its own while it is read.  Python calls go through an `Executor`, so that any number may be awaited at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from windfall.client.api import PAGE, BagRef, Upload
from windfall.client.client import Client
from windfall.client.functions.executor import Executor
from windfall.client.http import PATIENCE
from windfall.client.profile import Profile
from windfall.client.types import BagInfo, HostInfo, Row, StoryLine, Update

if TYPE_CHECKING:
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Bag

P = ParamSpec("P")
T = TypeVar("T")
MAX_UNREAD = 64  # items of a stream that may wait for its reader


def _awaited(method: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def run(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(method, self._client, *args, **kwargs))

    run.__doc__ = method.__doc__
    return run


class AsyncClient:
    def __init__(self, profile: Profile | Mapping[str, object] | None = None, patience: float = PATIENCE):
        self._client = Client(profile, patience)
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, "windfall client")
        self._executor: Executor | None = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._executor is not None:
            await asyncio.to_thread(self._executor.shutdown)
        await self._run(self._client.close)
        self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    # --- requests ---------------------------------------------------------------------------------------------

    async def submit(
        self, bag: Bag | Parsed | str | os.PathLike[str], uploads: Mapping[str, Upload] | None = None, key: str = ""
    ) -> int:
        """Submit a bag as `Client.submit` does; return its number."""
        return int(await self._run(partial(self._client.submit, bag, uploads, key)))

    async def find(self, bag: BagRef) -> int:
        """Return the number of a bag that is named by number or name."""
        return int(await self._run(partial(self._client.find, bag)))

    submitted = _awaited(Client.submitted)
    append = _awaited(Client.append)
    append_part = _awaited(Client.append_part)
    extend = _awaited(Client.extend)
    close_bag = _awaited(Client.close_bag)
    health = _awaited(Client.health)
    bags = _awaited(Client.bags)
    bag = _awaited(Client.bag)
    number_of = _awaited(Client.number_of)
    spec = _awaited(Client.spec)
    task = _awaited(Client.task)
    explain = _awaited(Client.explain)
    pilots = _awaited(Client.pilots)
    sites = _awaited(Client.sites)
    appended = _awaited(Client.appended)
    usage = _awaited(Client.usage)
    task_spec = _awaited(Client.task_spec)
    statistics = _awaited(Client.statistics)
    table = _awaited(Client.table)
    failures = _awaited(Client.failures)
    running = _awaited(Client.running)
    cancel = _awaited(Client.cancel)
    retry = _awaited(Client.retry)
    rerun = _awaited(Client.rerun)
    pause = _awaited(Client.pause)
    unpause = _awaited(Client.unpause)
    remove = _awaited(Client.remove)
    free = _awaited(Client.free)
    fetch = _awaited(Client.fetch)
    fetch_some = _awaited(Client.fetch_some)
    upload = _awaited(Client.upload)
    download = _awaited(Client.download)
    add_site = _awaited(Client.add_site)
    site = _awaited(Client.site)
    drain_site = _awaited(Client.drain_site)
    undrain_site = _awaited(Client.undrain_site)
    share_site = _awaited(Client.share_site)
    remove_site = _awaited(Client.remove_site)
    try_site = _awaited(Client.try_site)
    gone = _awaited(Client.gone)
    tokens = _awaited(Client.tokens)
    add_token = _awaited(Client.add_token)
    remove_token = _awaited(Client.remove_token)
    allowances = _awaited(Client.allowances)
    set_allowance = _awaited(Client.set_allowance)
    set_weight = _awaited(Client.set_weight)
    set_budget = _awaited(Client.set_budget)
    policy = _awaited(Client.policy)
    set_policy = _awaited(Client.set_policy)

    # --- streams -----------------------------------------------------------------------------------------------

    def results(self, bag: BagRef, state: str = "", after: int = -1, page: int = PAGE) -> AsyncIterator[Row]:
        return self._stream(lambda client: client.results(bag, state, after, page))

    def texts(self, bag: BagRef, state: str = "", after: int = -1, page: int = PAGE) -> AsyncIterator[Row]:
        return self._stream(lambda client: client.texts(bag, state, after, page))

    def hosts(self, bag: BagRef | None = None) -> AsyncIterator[HostInfo]:
        return self._stream(lambda client: client.hosts(bag))

    def story(self, bag: BagRef, task: int) -> AsyncIterator[StoryLine]:
        return self._stream(lambda client: client.story(bag, task))

    def log(self, bag: BagRef, task: int, stream: str = "out", follow: bool = False) -> AsyncIterator[bytes]:
        return self._stream(lambda client: client.log(bag, task, stream, follow))

    def watch(self, bag: BagRef, position: int = 0, rows: bool = False) -> AsyncIterator[Update]:
        return self._stream(lambda client: client.watch(bag, position, rows))

    async def wait(self, bag: BagRef, on_update: Callable[[dict[str, int]], None] | None = None) -> BagInfo:
        """Wait until the bag has ended; return it."""
        return await self._in_thread(lambda client: client.wait(bag, on_update))

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run one Python call on a pilot."""
        if self._executor is None:
            self._executor = await asyncio.to_thread(Executor, self._client.profile)
        call, ended = self._executor.submit(function, *args, **kwargs), Future[None]()
        call.add_done_callback(lambda _: None if ended.cancelled() else ended.set_result(None))
        try:
            await asyncio.wrap_future(ended)
        except asyncio.CancelledError:
            call.cancel()
            raise
        return await asyncio.to_thread(call.result) if call.stored else call.result()

    # --- inside ------------------------------------------------------------------------------------------------

    async def _in_thread(self, function: Callable[[Client], T]) -> T:
        """Call `function` with a client of its own, so that no other request waits for it."""
        with Client(self._client.profile, self._patience) as client:
            return await asyncio.to_thread(function, client)

    async def _stream(self, start: Callable[[Client], Iterator[T]]) -> AsyncIterator[T]:
        reader = _StreamReader(Client(self._client.profile, self._patience), start)
        try:
            while (item := await reader.queue.get()) is not reader.end:
                if isinstance(item, _Failure):
                    raise item.error
                yield item
        finally:
            reader.stopped = True


class _Failure:
    def __init__(self, error: BaseException):
        self.error = error


class _StreamReader:
    """A thread that reads a stream into a queue.  It ends with the first item after `stopped` was set."""

    def __init__(self, client: Client, start: Callable[[Client], Iterator[Any]]):
        self.queue: asyncio.Queue[Any] = asyncio.Queue(MAX_UNREAD)
        self.end = object()
        self.stopped = False
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(client, start), name="windfall stream", daemon=True).start()

    def _read(self, client: Client, start: Callable[[Client], Iterator[Any]]) -> None:
        try:
            with client:
                for item in start(client):
                    if not self._put(item):
                        return
            self._put(self.end)
        except BaseException as error:  # raised where the stream is read
            self._put(_Failure(error))

    def _put(self, item: object) -> bool:
        """Wait for room in the queue; False when the stream's reader, or its loop, has stopped."""
        while not self.stopped and not self._loop.is_closed():
            try:
                asyncio.run_coroutine_threadsafe(self._offer(item), self._loop).result()
                return True
            except TimeoutError:
                continue
            except (RuntimeError, asyncio.CancelledError):
                return False  # the event loop has ended
        return False

    async def _offer(self, item: object) -> None:
        await asyncio.wait_for(self.queue.put(item), 1.0)

