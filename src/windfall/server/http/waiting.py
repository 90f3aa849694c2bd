"""Requests that wait for an effect of the writer (long polling).

A parked poll costs one entry in this table and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.core.messages import effects, events
from windfall.server.http.server import Request, to_client_error
from windfall.server.writer import Writer, refusal


class WaitingRequests:
    """The open requests.  `render` turns an effect into the body of the response.  `gone` is called with a request's
    key, and the context given with the request, when its client closes the connection."""

    def __init__(self, writer: Writer, render: Callable[[Any], bytes], gone: Callable[[int, Any], None] | None = None):
        self._writer, self._render, self._hung_up = writer, render, gone
        self.open: dict[int, tuple[Request, Any]] = {}  # by key

    def put(self, event: events.Event, request: Request, about: Any = None) -> None:
        key = self._writer.put(event, self._release, request)
        self.open[key] = request, about
        request.on_gone = lambda: self._gone(key)

    def take(self, key: int) -> tuple[Request, Any]:
        """Remove a request from the table and return it, for an answer without the core."""
        request, about = self.open.pop(key)
        self._writer.forget(key)
        request.on_gone = None
        return request, about

    def _release(self, request: Request, effect: Any) -> None:
        self.open.pop(effect.key, None)
        request.on_gone = None
        try:
            if type(effect) is effects.Refuse:
                raise refusal(effect)
            request.reply(self._render(effect))
        except Exception as error:  # the core repeats its grants and orders in the next answer
            request.fail(to_client_error(error))

    def _gone(self, key: int) -> None:
        """Forget the request of a client that closed the connection."""
        _, about = self.open.pop(key)
        self._writer.forget(key)
        if self._hung_up is not None and not self._writer.closed:
            self._hung_up(key, about)
