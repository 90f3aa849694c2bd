"""`Executor`: a `concurrent.futures.Executor` whose workers are the pilots of a server.

    with Executor() as executor:
        print(executor.submit(pow, 2, 10).result())
        print(sum(executor.map(score, range(1_000_000))))

Every call is a task of one open bag, so its result is on the server's disk before the future has it.  The pilots decide
how many calls run at once; `max_workers` is accepted and ignored.
"""

from __future__ import annotations

import atexit
import itertools
import os
import time as clock
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windfall.client.client import Client
from windfall.client.functions.dispatcher import PATIENCE, CallDispatcher
from windfall.client.functions.futures import CallFuture
from windfall.client.functions.payload import Packer, Place, StoredResult, raised
from windfall.client.profile import Profile
from windfall.errors import BadInput
from windfall.model.spec import Bag, Items, Packed, Resources, Target
from windfall.model.units import parse_duration, parse_size

INITIALIZER = "WINDFALL_INITIALIZER"  # environment variable with the call that a runner makes first
MAX_INITIALIZER = 100_000
CHUNK_MS = 50  # aim for the time of a chunk of `map`
MAX_CHUNK = 10_000
ABSENCE = 3_600_000  # ms for which the process may be away before its bag is closed
MAX_CHUNKS = 64  # of one `map` that are submitted and not yet yielded

_open: weakref.WeakSet[CallDispatcher] = weakref.WeakSet()


class Executor(futures.Executor):
    def __init__(
        self,
        client: Client | Profile | Mapping[str, object] | None = None,
        *,
        name: str = "calls",
        cores: int = 1,
        memory: int | str = 0,
        gpus: int = 0,
        time: float | str = 0,
        retries: int = 0,
        time_retries: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_workers: int | None = None,
        chunk: int | str = "auto",
        environment: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ):
        """`time` limits each call (seconds, or "5 min"), `memory` is bytes, or "2 GB".

        A call over its time runs again with three times as much, `time_retries` times: by default three times, or
        never where `retries` is 0.  `environment` is variables, or a virtual environment, or a file of requirements,
        whose packages go along.
        """
        _check_arguments(initializer, max_workers, chunk)
        target = Target(
            kind="call", source=Items(items=[]), retries=retries, time=_milliseconds(time),
            time_retries=time_retries,
            resources=Resources(cores=cores, gpus=gpus,
                                memory=memory if isinstance(memory, int) else parse_size(memory)),
            environment={**_variables(environment), **_initializer(initializer, initargs)},
        )
        packed = None if environment is None or isinstance(environment, Mapping) else _packed(environment)
        self._chunk = chunk
        connection = _connect(client)
        try:
            dispatching = Client(connection.profile, PATIENCE)
            if packed is not None:
                target = msgspec.structs.replace(target, packed=packed[0])
                dispatching.upload(packed[0].blob, packed[1])
            bag = Bag(name=name, targets=[target], open=True, absence=ABSENCE)
            self._dispatcher = CallDispatcher(dispatching, bag, connection.close, connection.next_server)
        except BaseException:
            connection.close()
            raise
        _open.add(self._dispatcher)
        weakref.finalize(self, self._dispatcher.close).atexit = False

    @property
    def _broken(self) -> bool:  # this name is the standard library's
        return self._dispatcher.broken is not None

    @property
    def bag(self) -> int:
        """The number of the calls' bag, for `windfall show`."""
        return self._dispatcher.bag

    # --- submitting ------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Run `fn(*args, **kwargs)` on a pilot.  The call starts when the futures among its arguments have ended."""
        if any(isinstance(each, futures.Future) for each in args) or (
            kwargs and any(isinstance(each, futures.Future) for each in kwargs.values())
        ):
            return self._submit_chained(fn, args, kwargs)
        dispatcher = self._dispatcher
        packer = dispatcher.packer
        return dispatcher.submit(packer.call(packer.function(fn), args, kwargs))

    def _submit_chained(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture:
        future = CallFuture(self._dispatcher)
        self._dispatcher.chain(future)
        needed = {each for each in (*args, *kwargs.values()) if isinstance(each, futures.Future)}
        chained = _ChainedCall(self._dispatcher, future, _Call(fn, args, kwargs), len(needed))
        for each in needed:
            each.add_done_callback(chained.argument_done)
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Yield results in order; read arguments as results are taken, in chunks whose size follows the calls' time."""
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        size = chunksize if chunksize is not None else self._chunk
        until = None if timeout is None else clock.monotonic() + timeout
        return _Map(self._dispatcher, fn, zip(*iterables, strict=False), size).results(until)

    def cancel(self, calls: Iterable[CallFuture]) -> int:
        """Cancel the calls that no pilot holds, with one request; return how many."""
        return self._dispatcher.cancel(calls)

    # --- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls.  Submitted calls still run; with `cancel_futures`, only those that a pilot holds."""
        self._dispatcher.close()
        if cancel_futures:
            self._dispatcher.cancel_all()
        if wait:
            self._dispatcher.join()

    # --- looking ---------------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, int]:
        """Return how many calls were submitted, succeeded, failed, were cancelled, and are left."""
        counts = dict(self._dispatcher.counts)
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


class _Call(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _ChainedCall:
    """A call that waits for the futures among its arguments."""

    def __init__(self, dispatcher: CallDispatcher, future: CallFuture, call: _Call, missing: int):
        self._dispatcher, self._future, self._call = dispatcher, future, call
        self._missing = missing

    def argument_done(self, _: object) -> None:
        with self._dispatcher.condition:
            self._missing -= 1
            if self._missing:
                return
        try:
            text = self._packed()
        except BaseException as error:  # an argument failed or was cancelled, or the call cannot be pickled
            self._dispatcher.fail(self._future, error)
            return
        self._dispatcher.put(self._future, text, chained=True)


    def _packed(self) -> str:
        """Pack the call.  Large results of other calls of this executor stay on the server, and go to the pilot."""
        function, args, kwargs = self._call
        stored: dict[Place, StoredResult] = {}
        positional = [self._value(place, value, stored) for place, value in enumerate(args)]
        named = {name: self._value(name, value, stored) for name, value in kwargs.items()}
        packer = self._dispatcher.packer
        return packer.call(packer.function(function), positional, named, stored)

    def _value(self, place: Place, argument: Any, stored: dict[Place, StoredResult]) -> Any:
        if not isinstance(argument, futures.Future):
            return argument
        if isinstance(argument, CallFuture) and argument.belongs_to(self._dispatcher) and argument.stored is not None:
            stored[place] = argument.stored
            return None
        return argument.result()


class _Map:
    """Runs a `map`: submits chunks, yields results in order.  "auto" adjusts the size to the last chunks' time."""

    def __init__(self, dispatcher: CallDispatcher, fn: Callable[..., Any], calls: Iterator[Any], size: int | str):
        self._dispatcher, self._fn, self._calls = dispatcher, fn, calls
        self._auto = size == "auto"
        self._size = 1 if isinstance(size, str) else size
        self._chunks: deque[tuple[CallFuture, int]] = deque()
        self._packed = ""  # the function, packed once for all calls
        self._submit_chunks()  # the first calls start now, not when the first result is asked for

    def _submit_chunks(self) -> None:
        while len(self._chunks) < MAX_CHUNKS:
            calls = list(itertools.islice(self._calls, self._size))
            if not calls:
                return
            packer = self._dispatcher.packer
            self._packed = function = self._packed or packer.function(self._fn)
            text = packer.call(function, calls[0], {}) if self._size == 1 else packer.chunk(function, calls)
            self._chunks.append((self._dispatcher.submit(text), self._size))

    def results(self, until: float | None) -> Iterator[Any]:
        try:
            while self._chunks:
                values, error = self._next_chunk(until)
                while values:
                    yield values.pop()  # and keep no reference to the value
                if error is not None:
                    raise error
        finally:
            self._dispatcher.cancel(future for future, _ in self._chunks)

    def _next_chunk(self, until: float | None) -> tuple[list[Any], BaseException | None]:
        """Return the results of the next chunk, the last one first, up to the call that failed; and its exception."""
        future, size = self._chunks.popleft()
        result = future.result(None if until is None else until - clock.monotonic())
        if self._auto:
            self._adjust_size(future)
        self._submit_chunks()
        if size == 1:
            return [result], None
        values, errors = result
        if not errors:
            return values[::-1], None
        place = min(errors)
        return values[:place][::-1], raised(*errors[place])

    def _adjust_size(self, future: CallFuture) -> None:
        wall = future.wall
        if wall < CHUNK_MS:
            self._size = min(MAX_CHUNK, self._size * (8 if wall < CHUNK_MS / 8 else 2))
        elif wall > 2 * CHUNK_MS:
            self._size = max(1, self._size // 2)


# --- helpers ---------------------------------------------------------------------------------------------------


class _Connection(NamedTuple):
    """The server of an executor, and the functions of the session that found it, if one did."""

    profile: Any
    close: Callable[[], None]
    next_server: Callable[[], None] | None = None


def _connect(client: Client | Profile | Mapping[str, object] | None) -> _Connection:
    if client is None:
        from windfall.client.session import Session

        session = Session(needs_pilot=True)
        next_server = None if session.separate else session.find_next_server
        return _Connection(session.client.profile, session.close, next_server)
    return _Connection(client.profile if isinstance(client, Client) else client, _close_nothing)


def _check_arguments(initializer: object, max_workers: int | None, chunk: int | str) -> None:
    if max_workers is not None and max_workers <= 0:
        raise ValueError("max_workers must be greater than 0")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if chunk != "auto" and not (isinstance(chunk, int) and chunk > 0):
        raise BadInput(f"chunk={chunk!r} must be a whole number from 1 on, or 'auto'")


def _initializer(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> dict[str, str]:
    if initializer is None:
        return {}
    packer = Packer()
    text = packer.call(packer.function(initializer), initargs, {})
    if len(text) > MAX_INITIALIZER:
        raise BadInput(f"the initializer and its arguments take {len(text):,} bytes; {MAX_INITIALIZER:,} are allowed",
                       "put large data into a file")
    return {INITIALIZER: text}


def _variables(environment: Mapping[str, str] | str | os.PathLike[str] | None) -> Mapping[str, str]:
    return environment if isinstance(environment, Mapping) else {}


def _packed(environment: str | os.PathLike[str]) -> tuple[Packed, Path]:
    """Pack a virtual environment, or what a file of requirements names; return its record and its file."""
    from windfall.client.files.pack import pack
    from windfall.client.profile import make_home

    path = Path(environment).expanduser()
    if not path.exists():
        raise BadInput(f"environment: there is no '{path}'", "name a virtual environment, or a file of requirements")
    return pack(path, make_home() / "packed")


def _milliseconds(time: float | str) -> int:
    return parse_duration(time) if isinstance(time, str) else int(1000 * time)


def _close_nothing() -> None:
    """Close no session: the server is the caller's."""


@atexit.register
def _finish_all() -> None:
    """Let the program end only when its calls have ended, as the standard library's executors do."""
    for dispatcher in list(_open):
        dispatcher.close()
        dispatcher.join()
