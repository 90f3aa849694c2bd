"""Requests that wait for the writer's answer: a parked poll is an entry here, and costs nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.core.messages import effects, events
from windfall.server.http.server import Request, explain
from windfall.server.writer import Writer, refusal


class WaitingRequests:
    """`render`: the body that says what the core answered; `gone`: called of whoever hung up meanwhile, with what was
    said about him."""

    def __init__(self, writer: Writer, render: Callable[[Any], bytes], gone: Callable[[int, Any], None] | None = None):
        self._writer, self._render, self._hung_up = writer, render, gone
        self.open: dict[int, tuple[Request, Any]] = {}  # by key

    def put(self, event: events.Event, request: Request, about: Any = None) -> None:
        key = self._writer.put(event, self._release, request)
        self.open[key] = request, about
        request.on_gone = lambda: self._gone(key)

    def take(self, key: int) -> tuple[Request, Any]:
        """To be answered without the core."""
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
        except Exception as error:  # what was granted, or ordered, is said again with the next answer
            request.fail(explain(error))

    def _gone(self, key: int) -> None:
        """The client closed the connection."""
        _, about = self.open.pop(key)
        self._writer.forget(key)
        if self._hung_up is not None and not self._writer.closed:
            self._hung_up(key, about)
