"""A pilot's process: the real `Agenda`, with tasks that only pretend to run and an unreliable network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.core.messages import effects as x, events as e
from windfall.pilot.agenda.agenda import Agenda

from .clocks import Steady, rate

if TYPE_CHECKING:
    from .sites import Job, Site
    from .world import World

TIMEOUT = 6_000  # ms beyond the wait it asked for, after which a request has failed
ENROL_AGAIN = 1_000
SEEK = 2_000


class Process:
    def __init__(
        self, world: World, name: str, nonce: str, cores: int, wall: int | None = None, site: Site | None = None,
        job: Job | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.nonce = nonce
        self.cores = cores
        self.site, self.job = site, job  # of the batch system that started it
        self.host, self.boot = name, ""
        if world.plan.hosts:
            self.host = f"node{len(world.processes) % world.plan.hosts}"
            self.boot = f"{self.host} boot {world.boots[self.host]}"
        self.seeking = False
        self.clock = Steady(lambda: world.now, rate(world.random, world.plan.skew))
        self.wall_clock = world.random.choice((0, -86_400_000, 86_400_000)) if world.plan.skew else 0  # ms it is off
        self.frozen = 0  # until when the host sleeps
        self.end = None if wall is None else self.now() + wall
        self.agenda = Agenda(cores, memory=cores << 30, end=self.end, jitter=world.random.random)
        self.alive = True
        self.hole = False  # its host fails whatever it is given
        self.deaf = self.mute = 0  # until when nothing reaches it, or leaves it
        self.number = 0
        self.tries = self.enrolments = 0
        self.enrolling = False
        self.station: dict[int, Any] = {}  # placed, not running
        self.width = 0
        self.running: dict[int, Any] = {}  # attempt → task
        self.life: dict[int, int] = {}  # attempt → number of this run of it, so that an old timer does nothing
        self.enrol()
        if wall is not None:
            self.after(wall, self._time_is_up)

    # --- time ----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.clock.now()

    def after(self, wait: int, what: Callable[[], None]) -> None:
        """Call `what` after so many ms of the pilot's own clock."""
        self.world.after(self.clock.true_wait(wait), lambda: self.awake(what))

    def awake(self, what: Callable[[], None]) -> None:
        """Call `what` now, or when the host wakes up."""
        if self.frozen > self.world.now:
            self.world.at(self.frozen, lambda: self.awake(what))
        elif self.alive:
            what()

    # --- enrolment -----------------------------------------------------------------------------------------------

    def enrol(self) -> None:
        if not self.alive or self.enrolling:
            return
        self.enrolling = True
        self.tries += 1
        sent = self.now()
        left = None if self.end is None else max(0, self.end - sent)
        event = e.Enrol(
            0, self.site.name if self.site else "here", self.nonce, self.host, self.host, self.cores, self.cores << 30,
            0, 1 << 40, left, b"", nodes=self.job.shape.nodes if self.job else 1,
            boot=self.boot, life=self.name if self.boot else "", hardware=self.host if self.boot else "",
        )
        self.world.call(self, event, 0, lambda effect: self._enrolled(effect, sent))
        tries = self.tries
        self.after(TIMEOUT, lambda: self._enrol_late(tries))

    def _enrol_late(self, tries: int) -> None:
        if self.enrolling and tries == self.tries:
            self.enrolling = False
            self.enrol()

    def _enrolled(self, effect: Any, sent: int) -> None:
        if not self.alive or not self.enrolling or not isinstance(effect, x.Enrolled):
            return
        self.enrolling = False
        self.number = effect.pilot
        self.enrolments += 1
        self.agenda.enrolled(
            self.now(), {"v": 1, "epoch": effect.epoch, "lease": effect.lease, "idle": effect.idle}, sent
        )
        self.pump()

    # --- exchange ------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send every request that the agenda wants to send, and carry out every order that it gives."""
        if not self.alive or self.enrolling:
            return
        now = self.now()
        while (request := self.agenda.next_request(now)) is not None:
            self._send(request)
        for order in self.agenda.orders(now):
            self._obey(order)
        self._run_next()
        if self.agenda.departed:
            self.leave()
            return
        due = self.agenda.due(now)
        if due is not None:
            self.after(max(due - now, 1), self.pump)

    def _send(self, request: dict[str, Any]) -> None:
        reports = [e.Report(**report) for report in request.get("reports", ())]
        event = e.Exchange(
            0, 0, request["epoch"], request["seq"], request["ack"], request.get("want", 0), request.get("wait", 0),
            request.get("left"), list(request.get("started", ())), reports, request.get("held"), request.get("bye", ""),
            dead=request.get("dead", []),
        )
        self.world.call(self, event, self.number, lambda effect: self._answer(effect, request))
        self.after(request.get("wait", 0) + TIMEOUT, lambda: self.lost(request["seq"]))

    def lost(self, seq: int) -> None:
        if self.alive and seq in self.agenda.in_flight:
            self.agenda.request_failed(self.now(), seq)
            self.pump()

    def _answer(self, effect: Any, request: dict[str, Any]) -> None:
        if not self.alive:
            return
        now = self.now()
        if isinstance(effect, x.Refuse):
            self.agenda.request_failed(now, request["seq"])
            if effect.error == "unauthorised" and not self.enrolling and request["epoch"] == self.agenda.epoch:
                self.enrol()
            self.pump()
            return
        counted = self.agenda.answer_received(now, self.world.render(effect))
        if counted:
            self.world.blame(self.world.oracle.answered(request.get("reports", ())))
        if self.agenda.look and not self.seeking:
            self.seeking = True
            self.after(SEEK, self._seek)
        self.pump()

    def _seek(self) -> None:
        """Look for the processes of predecessors, as `pilot/run/predecessors.py` does."""
        self.seeking = False
        alive = {process.name for process in self.world.processes if process.alive}
        self.agenda.tell_dead([life for life in self.agenda.look if life not in alive])
        self.pump()

    # --- tasks ---------------------------------------------------------------------------------------------------

    def _obey(self, order: tuple[Any, ...]) -> None:
        kind = order[0]
        if kind == "run":
            self.station[order[1].attempt] = order[1]
            self.width = order[1].seats
        elif kind == "fetch":
            attempt = order[1].attempt
            self.after(self.world.random.choice((0, 20)), lambda: self._fetched(attempt))
        elif kind == "kill":
            self._kill(order[1], order[2])
        elif kind == "give_back":
            back = [a for a in order[2] if self.station.pop(a, None) is not None]
            self.agenda.given_back(self.now(), back)

    def _fetched(self, attempt: int) -> None:
        if self.alive:
            self.agenda.fetched(self.now(), attempt)
            self.pump()

    def _kill(self, attempt: int, why: str) -> None:
        if attempt in self.running or attempt in self.station:
            outcome = "cancelled" if why == "cancel" else "returned"
            saved = self.world.saved(attempt, self.running.get(attempt)) if why == "stop" else {}
            self._over(attempt, {"a": attempt, "o": outcome, "why": why, **saved})

    def _run_next(self) -> None:
        now = self.now()
        for attempt, task in list(self.station.items()):
            if now >= task.start_before:
                del self.station[attempt]
                self.agenda.given_back(now, [attempt])
                continue
            if len(self.running) >= self.width:
                return  # as a spawner does: the agenda says how many at once
            del self.station[attempt]
            self._start(attempt, task)

    def _start(self, attempt: int, task: Any) -> None:
        world = self.world
        world.blame(world.oracle.starts(attempt))
        room = task.spec.fields.get("need") or task.spec.fields.get("time") or 0
        if self.end is not None and room and self.now() + room > self.end:
            world.blame([f"P5: {self.name} starts what needs {room} ms with {self.end - self.now()} left"])
        self.running[attempt] = task
        run = self.life[attempt] = self.life.get(attempt, 0) + 1
        wall, report = world.outcome(attempt, task)
        if self.hole:
            wall, report = 20, {"a": attempt, "o": "failed", "why": "exit", "exit": 1, "wall": 20}
        if self.wall_clock:
            report["t0"] = world.now + self.wall_clock
        self.after(wall, lambda: self._finish(attempt, run, report))
        self.after(world.random.choice((1, 30, 300)), lambda: self._seen(attempt, run))
        mates = [other for other in self.running.values() if other.chain is not None]
        if task.chain is not None and sum(other.chain.key == task.chain.key for other in mates) > 1:
            world.blame([f"T7: {self.name} runs two tasks of one batch at once"])
        if task.previous is not None and task.previous not in world.oracle.succeeded:
            world.blame([f"T8: {self.name} starts attempt {attempt} before {task.previous} has succeeded"])
        used = [sum(t.need[i] for t in self.running.values()) for i in (0, 1)]
        if used[0] > self.cores or used[1] > self.cores << 30:
            world.blame([f"P5: {self.name} runs {used[0]} cores and {used[1]} bytes"])

    def _seen(self, attempt: int, run: int) -> None:
        if self.alive and attempt in self.running and self.life[attempt] == run:
            self.agenda.running(self.now(), [attempt])
            self.pump()

    def _finish(self, attempt: int, run: int, report: dict[str, Any]) -> None:
        if not self.alive or attempt not in self.running or self.life[attempt] != run:
            return
        if report.get("why") == "poison":
            self.world.kill(self, evidence=True)
            return
        self._over(attempt, report)
        self.pump()

    def _over(self, attempt: int, report: dict[str, Any]) -> None:
        if self.running.pop(attempt, None) is not None:
            self.world.oracle.stops(attempt)
        self.station.pop(attempt, None)
        self.world.oracle.really(attempt, report.get("o", "succeeded"), lambda: self.alive)
        self.agenda.task_ended(self.now(), attempt, report)

    def _time_is_up(self) -> None:
        self.agenda.stop(self.now(), "walltime")
        self.pump()

    # --- the end -------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        if self.running or self.station:
            self.world.blame([f"P7: {self.name} leaves while it runs {list(self.running)}"])
        self.alive = False
        self.world.over(self)

    def die(self) -> None:
        """Kill the process; in four of five cases its undelivered reports stay on its site's disk."""
        if self.alive and self.site is not None and self.number and (left := list(self.agenda.undelivered().values())):
            if self.world.random.random() < 0.8:
                self.site.outboxes[self.nonce] = (self, left)
                self.world.oracle.kept(left, lambda: self.nonce in self.site.outboxes)
        self.alive = False
        for attempt in self.running:
            self.world.oracle.stops(attempt)
        self.running.clear()
