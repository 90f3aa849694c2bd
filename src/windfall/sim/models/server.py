"""The server in virtual time: the work of `server/writer.py` without disk and sockets.

Events of one instant form one group and one step of the core.  With a `service` time the server is one queue: each
request holds it for so long, and the answer leaves at the end.  `charges(event)` says which requests count as calls;
other requests cost neither service nor latency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.core.config import Config
from windfall.core.messages import events as e
from windfall.core.step import Core
from windfall.sim.engine import Engine

Callback = Callable[[Any], None]


class Server:
    def __init__(self, engine: Engine, config: Config | None = None, service: int = 0,
                 charges: Callable[[e.Event], bool] | None = None) -> None:
        self.engine = engine
        self.charges = charges
        self.core = Core(config)
        self.service = service
        self.watch: Callable[[list[Any]], None] | None = None  # called with the facts of every step
        self.exchanges = 0
        self._inbox: list[e.Event] = []
        self._waiting: dict[int, Callback] = {}
        self._key = 0
        self._free_at = 0
        self._scheduled = False
        self._wake_at: int | None = None

    @property
    def idle(self) -> bool:
        return not self._inbox

    def observe(self, watch: Callable[[list[Any]], None]) -> None:
        """Call `watch` with every step's facts, after the observers that are there already."""
        before = self.watch

        def both(facts: list[Any]) -> None:
            if before is not None:
                before(facts)
            watch(facts)

        self.watch = watch if before is None else both

    def put(self, event: e.Event, answer: Callback | None = None) -> None:
        """Take a request, after its service time if the server charges for it."""
        if not self.service or (self.charges is not None and not self.charges(event)):
            self.take(event, answer)
            return
        start = max(self.engine.now, self._free_at)
        self._free_at = start + self.service
        self.engine.at(self._free_at, self.take, event, answer)

    def take(self, event: e.Event, answer: Callback | None) -> None:
        """Add a request to the step of this instant."""
        self._key += 1
        event.key = self._key
        if answer is not None:
            self._waiting[self._key] = answer
        self._inbox.append(event)
        if not self._scheduled:
            self._scheduled = True
            self.engine.soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        group, self._inbox = self._inbox, []
        self.exchanges += len(group)
        step = self.core.step(self.engine.now, group)
        if self.watch is not None:
            self.watch(step.facts)
        for effect in step.effects:
            answer = self._waiting.pop(effect.key, None)
            if answer is not None:
                answer(effect)
        wake = step.wake_at
        if wake is not None and (self._wake_at is None or wake < self._wake_at):
            self._wake_at = wake
            self.engine.at(wake, self._wake, wake)

    def _wake(self, when: int) -> None:
        if self._wake_at == when:
            self._wake_at = None
            if not self._scheduled:
                self._scheduled = True
                self.engine.soon(self._turn)
