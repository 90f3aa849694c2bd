"""A Python call as text, and its result back.

A call is `3.11 FUNCTION ARGUMENTS`, each part base64 of a pickle: the version of our Python, so that a runner with
another one refuses before it unpickles anything; the function, pickled once however often it is called; and
`(args, kwargs)`, or where that is large `@SHA256:SIZE`, a blob.  With a `*` after the version the arguments are a list
of argument tuples, a chunk.

A result is base64 of `pickle(("ok", value))`, `pickle(("error", exception or None, traceback))`,
`pickle(("broken", …))` when the initializer failed, or of a chunk `pickle(("chunk", values, {place: (error,
traceback)}))`.  We unpickle only what our own pilots sent for our own calls.

Functions are pickled by name.  One that cannot be found by name elsewhere (of `__main__`, a lambda, a closure) goes
by value, with cloudpickle.
"""

from __future__ import annotations

import pickle
import sys
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from types import FunctionType, ModuleType
from typing import Any

from windfall.errors import BadInput, WindfallError
from windfall.model.spec import MAX_TEXT

PROTOCOL = 4
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
LARGE = 256 << 10  # bytes of arguments that go as a blob
MAX_FUNCTIONS = 256  # kept pickled


class CallFailed(WindfallError):
    """The call did not come to an end: its process died, ran out of time or memory, or never started."""

    code = "call-failed"


class RemoteTraceback(Exception):
    """Where it was raised, as text: the cause of an exception that came from a pilot."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Packer:
    """Calls to texts.  What is pickled by name is remembered: its pickle stays the same; a closure's may change."""

    def __init__(self, keep: Callable[[bytes], str] | None = None) -> None:
        """`keep` takes arguments that are too large for a message, and returns what to say instead."""
        self._keep = keep
        self._named: dict[int, tuple[Callable[..., Any], str]] = {}  # by id, and kept, so that it stays theirs

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return f"{VERSION} {self.function(function)} {self._arguments((args, kwargs))}"

    def chunk(self, function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> str:
        return f"{VERSION}* {self.function(function)} {self._arguments(calls)}"

    def _arguments(self, value: object) -> str:
        data = pickled(value)
        return _text(data) if len(data) < LARGE or self._keep is None else self._keep(data)

    def function(self, function: Callable[..., Any]) -> str:
        found = self._named.get(id(function))
        if found is not None:
            return found[1]
        data, named = _function(function)
        text = _text(data)
        if named and len(self._named) < MAX_FUNCTIONS:
            self._named[id(function)] = function, text
        return text


def pickled(value: object) -> bytes:
    """Arguments; what has no name elsewhere goes by value, too, where that can be done."""
    try:
        return pickle.dumps(value, PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return _by_value(value, f"the arguments cannot be pickled: {error}")


def checked(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise BadInput(
            f"the call and its arguments take {len(text):,} bytes, more than the {MAX_TEXT:,} a call may have",
            "put large data in a file",
        )
    return text


def _text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def _function(function: Callable[..., Any]) -> tuple[bytes, bool]:
    """(pickle, is it by name alone)"""
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
        raise BadInput(problem, "put it in a module that is installed there, or install cloudpickle") from None
    data: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    return data


# --- results ---------------------------------------------------------------------------------------------------


def outcome(value: str, why: str = "") -> tuple[Any, BaseException | None]:
    """(result, None) or (None, what to raise).  `why` is for a task that ended without a value."""
    if not value:
        return None, CallFailed(f"the call did not come to an end: {why or 'no reason was given'}")
    kind, result, *rest = pickle.loads(a2b_base64(value))
    if kind == "ok":
        return result, None
    if kind == "chunk":
        return (result, rest[0]), None
    text = str(rest[0]) if rest else ""
    if kind == "broken":
        return None, _caused(BrokenExecutor("the initializer failed on a pilot"), text)
    return None, raised(result, text)


def raised(error: object, text: str) -> BaseException:
    """What the call raised, with the traceback from there as its cause."""
    if not isinstance(error, BaseException):
        return CallFailed(f"the call failed, and what it raised cannot be brought here:\n{text}")
    return _caused(error, text)


def _caused(error: BaseException, text: str) -> BaseException:
    error.__cause__ = RemoteTraceback(text)
    return error


def reason(row: Any) -> str:
    """Of a row without a value."""
    return str(row.note or row.why or row.outcome or row.state)
