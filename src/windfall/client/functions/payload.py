"""A Python call as text, and its result back.

A call is `3.11 FUNCTION ARGUMENTS RESULT …`.  The first part is the client's version of Python: a runner with another
version refuses before it unpickles anything.  FUNCTION is a pickle, made once however often a named function is called.
ARGUMENTS is the pickled `(args, kwargs)`.  Pickles are base64, or where they are large `@SHA256:SIZE`, a blob.  Each
RESULT is the blob of another call's result, and ARGUMENTS then has a third part, their places: a number among `args`,
or a name among `kwargs`.  A `*` after the version marks a chunk, whose arguments are a list of argument tuples.

A result is base64 of `pickle(("ok", value))`, `pickle(("error", exception or None, traceback))`,
`pickle(("broken", …))` when the initializer failed, or of a chunk `pickle(("chunk", values, {place: (error,
traceback)}))`.  The value of a large result is STORED, and the row's file RESULT is the pickle; it stays on the server
until a program asks the future for it.  The client unpickles only results that its own pilots sent for its own calls.

Functions are pickled by name.  A function that has no name elsewhere (of `__main__`, a lambda, a closure) is pickled by
value, with cloudpickle.
"""

from __future__ import annotations

import pickle
import sys
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from windfall.errors import BadInput, WindfallError
from windfall.model.calls import RESULT, STORED, reference
from windfall.model.spec import MAX_TEXT

PROTOCOL = 4
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
BLOB_BYTES = 256 << 10  # functions and arguments from this size on are sent as a blob
MAX_FUNCTIONS = 256  # whose pickles are kept


class CallFailed(WindfallError):
    """A call has no result: its process died, ran out of time or memory, or never started."""

    code = "call-failed"


class RemoteTraceback(Exception):
    """The traceback of an exception that came from a pilot, as text; it is the exception's cause."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class StoredResult(NamedTuple):
    """The large result of a call, on the server."""

    sha: str
    size: int


Place = int | str  # of an argument: its position, or its name
Stored = Mapping[Place, StoredResult]


class Packer:
    """Turns calls into texts.  It keeps pickles of functions that go by name; a closure's pickle may change."""

    def __init__(self, upload: Callable[[bytes], str] | None = None) -> None:
        """`upload` sends what is too large for a message, and returns the reference to put instead."""
        self._upload = upload
        self._named: dict[int, tuple[Callable[..., Any], str]] = {}  # by id; the function is kept, so its id stays

    def call(
        self, function: str, args: Sequence[Any], kwargs: dict[str, Any], stored: Stored | None = None
    ) -> str:
        """Pack a call of a packed function.  `stored`: results that take their places among the arguments there."""
        if not stored:
            return f"{VERSION} {function} {self._part(pickled((args, kwargs)))}"
        results = " ".join(reference(*each) for each in stored.values())
        return f"{VERSION} {function} {self._part(pickled((args, kwargs, list(stored))))} {results}"

    def chunk(self, function: str, calls: list[tuple[Any, ...]]) -> str:
        """Pack several calls of a packed function."""
        return f"{VERSION}* {function} {self._part(pickled(calls))}"

    def _part(self, data: bytes) -> str:
        return _text(data) if len(data) < BLOB_BYTES or self._upload is None else self._upload(data)

    def function(self, function: Callable[..., Any]) -> str:
        """Pack a function."""
        known = self._named.get(id(function))
        if known is not None:
            return known[1]
        data, named = _pickled_function(function)
        text = self._part(data)
        if named and len(self._named) < MAX_FUNCTIONS:
            self._named[id(function)] = function, text
        return text


def pickled(value: object) -> bytes:
    """Pickle arguments; those that have no name elsewhere go by value, if cloudpickle can."""
    try:
        return pickle.dumps(value, PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return _by_value(value, f"the arguments cannot be pickled: {error}")


def checked(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise BadInput(
            f"the call and its arguments take {len(text):,} bytes; a call may take {MAX_TEXT:,}",
            "put large data into a file",
        )
    return text


def _text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def _pickled_function(function: Callable[..., Any]) -> tuple[bytes, bool]:
    """Return the pickle of a function, and whether it is by name alone."""
    problem = f"{getattr(function, '__qualname__', function)!r} cannot be found by name on another machine"
    if getattr(function, "__module__", None) == "__main__":
        return _by_value(function, problem), False
    try:
        plain = isinstance(function, (FunctionType, type)) or isinstance(
            getattr(function, "__self__", None), ModuleType
        )
        return pickle.dumps(function, PROTOCOL), plain
    except (pickle.PicklingError, AttributeError, TypeError):
        return _by_value(function, problem), False


def _by_value(value: object, problem: str) -> bytes:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise BadInput(problem, "put it into a module that the pilots have, or install cloudpickle") from None
    data: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    return data


# --- results ---------------------------------------------------------------------------------------------------


def stored_result(value: str, files: Iterable[Sequence[Any]]) -> StoredResult | None:
    """Return where the result of a row is, if it is on the server."""
    if value != STORED:
        return None
    return next((StoredResult(file[1], file[2]) for file in files if file[0] == RESULT), None)


def outcome(value: str, why: str = "") -> tuple[Any, BaseException | None]:
    """Return (result, None), or (None, the exception to raise).  `why` explains a task without a value."""
    if not value or value == STORED:
        return None, CallFailed(f"the call has no result: {why or 'the server gave no reason'}")
    return unpacked(a2b_base64(value))


def unpacked(data: bytes | bytearray) -> tuple[Any, BaseException | None]:
    """Return (result, None), or (None, the exception to raise), from a result's pickle."""
    kind, result, *rest = pickle.loads(data)
    if kind == "ok":
        return result, None
    if kind == "chunk":
        return (result, rest[0]), None
    text = str(rest[0]) if rest else ""
    if kind == "broken":
        return None, _caused(BrokenExecutor("the initializer failed on a pilot"), text)
    return None, raised(result, text)


def raised(error: object, text: str) -> BaseException:
    """Return the exception that a call raised, with its remote traceback as the cause."""
    if not isinstance(error, BaseException):
        return CallFailed(f"the call raised an exception that cannot be unpickled here:\n{text}")
    return _caused(error, text)


def _caused(error: BaseException, text: str) -> BaseException:
    error.__cause__ = RemoteTraceback(text)
    return error


def reason(row: Any) -> str:
    """Return why a row has no value."""
    return str(row.note or row.why or row.outcome or row.state)
