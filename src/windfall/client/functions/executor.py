"""`Executor`: a `concurrent.futures.Executor` whose workers are the pilots of a server.

    with Executor() as executor:
        print(executor.submit(pow, 2, 10).result())
        print(sum(executor.map(score, range(1_000_000))))

Every call is a task of one open bag, so its result is on the server's disk before the future has it.  How many run
at once is up to the pilots; `max_workers` is taken and ignored.
"""

from __future__ import annotations

import atexit
import itertools
import time as clock
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import TYPE_CHECKING, Any

from windfall.client.client import Client
from windfall.client.functions.flow import PATIENCE, Flow
from windfall.client.functions.futures import CallFuture
from windfall.client.functions.payload import Packer, raised
from windfall.client.profile import Profile
from windfall.errors import BadInput
from windfall.model.spec import Bag, Items, Resources, Target
from windfall.model.units import parse_duration, parse_size

if TYPE_CHECKING:
    from windfall.session import Session

INITIALIZER = "WINDFALL_INITIALIZER"  # variable in which a runner finds what to do first
MAX_INITIALIZER = 100_000
CHUNK_MS = 50  # a chunk of `map` should take this long
MAX_CHUNK = 10_000
WINDOW = 64  # chunks of `map` under way at once

_open: weakref.WeakSet[Flow] = weakref.WeakSet()


class Executor(futures.Executor):
    def __init__(
        self,
        client: Client | Profile | Mapping[str, object] | None = None,
        *,
        name: str = "calls",
        cores: int = 1,
        memory: int | str = 0,
        time: float | str = 0,
        retries: int = 0,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_workers: int | None = None,
        chunk: int | str = "auto",
        environment: Mapping[str, str] | None = None,
    ):
        """`time` limits each call (seconds, or "5 min"), `memory` is bytes, or "2 GB"."""
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if chunk != "auto" and not (isinstance(chunk, int) and chunk > 0):
            raise BadInput(f"chunk={chunk!r} is neither a number from 1 on nor 'auto'")
        target = Target(
            kind="call", source=Items(items=[]), retries=retries, time=_milliseconds(time),
            resources=Resources(cores=cores, memory=memory if isinstance(memory, int) else parse_size(memory)),
            environment={**(environment or {}), **_initializer(initializer, initargs)},
        )
        self._chunk = chunk
        session, profile = _reach(client)
        on_end = session.close if session is not None else _nothing
        again = session.again if session is not None and not session.separate else None
        try:
            self._flow = Flow(Client(profile, PATIENCE), Bag(name=name, targets=[target], open=True), on_end, again)
        except BaseException:
            on_end()
            raise
        _open.add(self._flow)
        weakref.finalize(self, self._flow.close).atexit = False

    @property
    def _broken(self) -> bool:  # the standard library's name for it
        return self._flow.broken is not None

    @property
    def bag(self) -> int:
        """The bag of its calls, as `windfall show` wants it."""
        return self._flow.bag

    # --- submitting ------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Run `fn(*args, **kwargs)` on a pilot.  Futures among the arguments are waited for; nobody blocks."""
        if any(isinstance(each, futures.Future) for each in args) or (
            kwargs and any(isinstance(each, futures.Future) for each in kwargs.values())
        ):
            return self._chained(fn, args, kwargs)
        flow = self._flow
        return flow.submit(flow.packer.call(fn, args, kwargs))

    def _chained(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture:
        future = CallFuture(self._flow)
        self._flow.chain(future)
        needed = {each for each in (*args, *kwargs.values()) if isinstance(each, futures.Future)}
        chain = _Chain(self._flow, future, fn, args, kwargs, len(needed))
        for each in needed:
            each.add_done_callback(chain.one_done)
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Results in order.  Read as they are needed, in chunks whose size follows how long a call takes."""
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        size = chunksize if chunksize is not None else self._chunk
        until = None if timeout is None else clock.monotonic() + timeout
        return _Map(self._flow, fn, zip(*iterables, strict=False), size, until).results()

    def cancel(self, calls: Iterable[CallFuture]) -> int:
        """Those of its futures that no pilot has, with one request; how many."""
        return self._flow.cancel(calls)

    # --- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls; those with a pilot end, those without do too, or are cancelled."""
        self._flow.close()
        if cancel_futures:
            self._flow.cancel_all()
        if wait:
            self._flow.join()

    # --- looking ---------------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, int]:
        """How many calls were submitted, succeeded, failed, were cancelled, and are left."""
        counts = dict(self._flow.counts)
        counts["left"] = counts["submitted"] - sum(counts[key] for key in ("succeeded", "failed", "cancelled"))
        return counts

    def __repr__(self) -> str:
        counts = self.progress()
        return f"<Executor bag {self.bag}: {counts['left']} of {counts['submitted']} calls left>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        counts = self.progress()
        cells = "".join(f"<tr><th style='text-align:left'>{key}</th><td>{counts[key]:,}</td></tr>" for key in counts)
        done = counts["submitted"] - counts["left"]
        return (f"<b>calls of bag {self.bag}</b><br><progress value='{done}' max='{max(1, counts['submitted'])}'>"
                f"</progress><table>{cells}</table>")


class _Chain:
    """A call that waits for the futures among its arguments."""

    def __init__(self, flow: Flow, future: CallFuture, fn: Any, args: Any, kwargs: Any, missing: int):
        self._flow, self._future = flow, future
        self._call = fn, args, kwargs
        self._missing = missing

    def one_done(self, _: object) -> None:
        with self._flow.condition:
            self._missing -= 1
            if self._missing:
                return
        try:
            fn, args, kwargs = self._call
            args = tuple(map(_value, args))
            kwargs = {key: _value(value) for key, value in kwargs.items()}
            text = self._flow.packer.call(fn, args, kwargs)
        except BaseException as error:  # what an argument raised, its cancellation, or pickling
            self._flow.fail(self._future, error)
            return
        self._flow.put(self._future, text, chained=True)


def _value(argument: Any) -> Any:
    return argument.result() if isinstance(argument, futures.Future) else argument


class _Map:
    """Chunks out, results in order.  A chunk's size follows from how long the last ones took."""

    def __init__(self, flow: Flow, fn: Callable[..., Any], calls: Iterator[Any], size: int | str, until: float | None):
        self._flow, self._fn, self._calls, self._until = flow, fn, calls, until
        self._auto = size == "auto"
        self._size = 1 if isinstance(size, str) else size
        self._window: deque[tuple[CallFuture, int]] = deque()
        self._fill()  # the first calls start now, not when somebody asks for a result

    def _fill(self) -> None:
        while len(self._window) < WINDOW:
            calls = list(itertools.islice(self._calls, self._size))
            if not calls:
                return
            flow = self._flow
            text = flow.packer.call(self._fn, calls[0], {}) if self._size == 1 else flow.packer.chunk(self._fn, calls)
            self._window.append((flow.submit(text), self._size))

    def results(self) -> Iterator[Any]:
        try:
            while self._window:
                values, error = self._take()
                while values:
                    yield values.pop()  # and keep no reference to it
                if error is not None:
                    raise error
        finally:
            self._flow.cancel(future for future, _ in self._window)

    def _take(self) -> tuple[list[Any], BaseException | None]:
        """Results of the next chunk, the last one first, up to the call that failed; and what that raised."""
        future, size = self._window.popleft()
        result = future.result(None if self._until is None else self._until - clock.monotonic())
        if self._auto:
            self._learn(future)
        self._fill()
        if size == 1:
            return [result], None
        values, errors = result
        if not errors:
            return values[::-1], None
        place = min(errors)
        return values[:place][::-1], raised(*errors[place])

    def _learn(self, future: CallFuture) -> None:
        wall = future.wall
        if wall < CHUNK_MS:
            self._size = min(MAX_CHUNK, self._size * (8 if wall < CHUNK_MS / 8 else 2))
        elif wall > 2 * CHUNK_MS:
            self._size = max(1, self._size // 2)


# --- small ones ------------------------------------------------------------------------------------------------


def _reach(client: Client | Profile | Mapping[str, object] | None) -> tuple[Session | None, Any]:
    if client is None:
        from windfall.session import Session

        session = Session(work=True)
        return session, session.client.profile
    return None, client.profile if isinstance(client, Client) else client


def _initializer(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> dict[str, str]:
    if initializer is None:
        return {}
    text = Packer().call(initializer, initargs, {})
    if len(text) > MAX_INITIALIZER:
        raise BadInput(f"the initializer and its arguments take {len(text):,} bytes", "put large data in a file")
    return {INITIALIZER: text}


def _milliseconds(time: float | str) -> int:
    return parse_duration(time) if isinstance(time, str) else int(1000 * time)


def _nothing() -> None:
    """No server of ours to stop."""


@atexit.register
def _finish_all() -> None:
    """As the standard library's executors: a program ends when its calls have."""
    for flow in list(_open):
        flow.close()
        flow.join()
