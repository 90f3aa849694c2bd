"""A pilot in virtual time: the `Agenda` of the real pilot, with tasks that take time and do nothing.

The world decides how long a task takes and how it ends: `run(pilot, task)` returns (ms, report).  A task's input files
are fetched first: `stage(pilot, task, then)` calls `then(True)` when all are there, `then(False)` when one is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from windfall.core.messages import effects as x, events as e
from windfall.pilot.agenda.agenda import Agenda
from windfall.sim.engine import Engine
from windfall.sim.models.server import Server

UNHEARD = 30_000  # ms after which a pilot gives a lost message up

Run = Callable[["Pilot", Any], tuple[int, dict[str, Any]]]
Stage = Callable[["Pilot", Any, Callable[[bool], None]], None]
Render = Callable[[x.ExchangeReply], dict[str, Any]]


class Surroundings(NamedTuple):
    """The simulated surroundings of a pilot: its clock, its server, and the world that runs its tasks."""

    engine: Engine
    server: Server
    run: Run
    render: Render
    stage: Stage | None = None


class PilotSpec(NamedTuple):
    """The description of a pilot to start."""

    name: str
    site: str
    cores: int = 1
    memory: int = 0
    wall: int | None = None  # ms
    latency: int = 0  # ms each way between pilot and server
    cut: Callable[[int], bool] | None = None  # is the pilot cut off from the server at this time?


class Pilot:
    """A pilot; `on_end` is called when it has left or died."""

    __slots__ = ("_due", "_seats", "_tasks_to_start", "agenda", "alive", "began", "cores", "cut", "end", "engine",
                 "latency", "memory", "name", "number", "on_end", "render", "run", "running", "runs", "server",
                 "site", "stage")

    def __init__(
        self, surroundings: Surroundings, spec: PilotSpec, on_end: Callable[[Pilot], None] | None = None,
    ) -> None:
        self.engine, self.server, self.run, self.render, self.stage = surroundings
        self.name, self.site, self.cores, self.memory, wall, self.latency, self.cut = spec
        self.end = None if wall is None else self.engine.now + wall
        self.agenda = Agenda(self.cores, memory=self.memory, end=self.end, jitter=self.engine.random.random)
        self.alive = True
        self.number = 0
        self.running: dict[int, int] = {}  # attempt → number of its run
        self.began: dict[int, int] = {}  # attempt → ms
        self.runs = 0
        self.on_end = on_end
        self._tasks_to_start: dict[int, Any] = {}
        self._seats = 0
        self._due: int | None = None
        self._enrol()

    # --- the network ------------------------------------------------------------------------------------------------

    def _enrol(self) -> None:
        left = None if self.end is None else self.end - self.engine.now
        event = e.Enrol(0, site=self.site, nonce=self.name, host=self.name, host_name=self.name, cores=self.cores,
                        memory=self.memory, gpus=0, disk=1 << 50, left=left, token=b"")
        self._send(event, partial(self._enrolled, sent=self.engine.now))

    def _send(self, event: e.Event, answer: Callable[[Any], None]) -> None:
        if not self.latency and self.cut is None:
            self.server.put(event, answer)
            return
        if self.cut is not None and self.cut(self.engine.now):
            self.engine.after(UNHEARD, self._unheard, event)
            return
        latency = self.latency if self.server.charges is None or self.server.charges(event) else 0
        if not latency and self.cut is None:
            self.server.put(event, answer)
            return

        def back(effect: Any) -> None:
            if self.cut is not None and self.cut(self.engine.now):
                self.engine.after(UNHEARD, self._unheard, event)
            else:
                self.engine.after(latency, answer, effect)

        self.engine.after(latency, self.server.put, event, back)

    def _unheard(self, event: e.Event) -> None:
        """Tell the agenda that a request was lost; enrol again if the request was an enrolment."""
        if not self.alive:
            return
        if isinstance(event, e.Exchange):
            self.agenda.request_failed(self.engine.now, event.seq)
            self._pump()
        else:
            self._enrol()

    def _enrolled(self, effect: Any, sent: int) -> None:
        if not self.alive:
            return
        assert isinstance(effect, x.Enrolled), effect
        self.number = effect.pilot
        told = {"v": 1, "epoch": effect.epoch, "lease": effect.lease, "idle": effect.idle, "park": effect.park}
        self.agenda.enrolled(self.engine.now, told, sent)
        self._pump()

    def _answered(self, effect: Any) -> None:
        if not self.alive:
            return
        if isinstance(effect, x.ExchangeReply):
            self.agenda.answer_received(self.engine.now, self.render(effect))
            if not self.agenda.at_rest():
                self._pump()
        elif isinstance(effect, x.Refuse):  # the server no longer knows this pilot
            self.agenda.departed = True
            self.die()

    def _pump(self) -> None:
        """Send the agenda's next request, carry out its orders, and schedule the next call."""
        if not self.alive:
            return
        now, agenda = self.engine.now, self.agenda
        if (request := agenda.next_request(now)) is not None:  # the agenda never has two requests at one instant
            self._request(request)
        for order in agenda.orders(now):
            self._obey(order)
        if self._tasks_to_start:
            self._run_next()
        if agenda.departed:
            self.die()
            return
        due = agenda.due(now)
        if due is not None and (self._due is None or due < self._due or self._due <= now):
            self._due = max(due, now + 1)
            self.engine.at(self._due, self._wake, self._due)

    def _wake(self, due: int) -> None:
        if self._due == due:
            self._due = None
            self._pump()

    def _request(self, request: dict[str, Any]) -> None:
        del request["v"]
        if "reports" in request:
            request["reports"] = [e.Report(**report) for report in request["reports"]]
        self._send(e.Exchange(0, self.number, **request), self._answered)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _obey(self, order: tuple[Any, ...]) -> None:
        kind = order[0]
        if kind == "run":
            self._tasks_to_start[order[1].attempt] = order[1]
            self._seats = order[1].seats
        elif kind == "kill":
            self._kill(order[1], order[2])
        elif kind == "give_back":
            back = [attempt for attempt in order[2] if self._tasks_to_start.pop(attempt, None) is not None]
            self.agenda.given_back(self.engine.now, back)

    def _run_next(self) -> None:
        now = self.engine.now
        for attempt, task in list(self._tasks_to_start.items()):
            if len(self.running) >= self._seats:
                return
            del self._tasks_to_start[attempt]
            if now >= task.start_before:
                self.agenda.given_back(now, [attempt])
            else:
                self._start(attempt, task)

    def _start(self, attempt: int, task: Any) -> None:
        self.runs += 1
        self.running[attempt] = run = self.runs
        self.began[attempt] = self.engine.now
        self.agenda.running(self.engine.now, [attempt])
        if self.stage is not None and task.extra and task.extra.get("moves"):
            self.stage(self, task, lambda there: self._staged(attempt, run, task, there))
        else:
            self._staged(attempt, run, task, True)

    def _staged(self, attempt: int, run: int, task: Any, there: bool) -> None:
        if not self.alive or self.running.get(attempt) != run:
            return  # killed meanwhile
        if there:
            self.began[attempt] = self.engine.now
            wall, report = self.run(self, task)
            self.engine.at(self.engine.now + wall, self._finish, attempt, run, report)
        else:
            self._finish(attempt, run, {"a": attempt, "o": "returned", "why": "input"})

    def _finish(self, attempt: int, run: int, report: dict[str, Any]) -> None:
        if self.alive and self.running.get(attempt) == run:
            del self.running[attempt]
            report["t0"] = self.began.pop(attempt)
            self.agenda.task_ended(self.engine.now, attempt, report)
            self._pump()

    def _kill(self, attempt: int, why: str) -> None:
        placed = self._tasks_to_start.pop(attempt, None) is not None
        if self.running.pop(attempt, None) is not None or placed:
            now, outcome = self.engine.now, "cancelled" if why == "cancel" else "returned"
            began = self.began.pop(attempt, now)
            self.agenda.task_ended(now, attempt, {"a": attempt, "o": outcome, "why": why, "t0": began,
                                                  "wall": now - began})

    def die(self) -> None:
        """Kill the pilot without a report."""
        self.alive = False
        self.running.clear()
        if self.on_end is not None:
            self.on_end(self)
