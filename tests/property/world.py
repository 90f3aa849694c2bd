"""A world: one server, some pilots, clients, a network that loses, delays, doubles and reorders, and virtual time.

`World(plan).run()` plays the plan, heals everything, lets time pass, and raises `Broken` at the first promise that does
not hold.  Everything is decided by the plan: the same plan, the same world.
"""

from __future__ import annotations

import random
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import Limits, TargetShape
from windfall.core.read.explain import explain
from windfall.core.state.classes import SAVING

from . import acts
from .driver import Server
from .oracle import Oracle
from .plan import HORIZON, POLICIES, REPEATS, BagPlan, Plan, random_plan
from .process import Process
from .sites import Job, Site, healed, limits_of

PATIENCE = 3_000_000  # ms after healing in which all tasks must end
LEAVING = 300_000  # and after that, in which all that was started for them must be gone
OWNERS = ("ann", "bob")


def replay(plan: Plan) -> str:
    """Return the command that replays a plan, for the repository's root."""
    which = f"--seed {plan.seed}" if plan == random_plan(plan.seed) else f"--plan {shlex.quote(plan.text())}"
    return f"{shlex.quote(sys.executable)} -m tests.property.soak {which}"


class Broken(AssertionError):
    """A promise does not hold in a world."""

    def __init__(self, said: list[str], plan: Plan, now: int) -> None:
        super().__init__("\n  ".join([f"at {now} ms", *said[:6], f"replay: {replay(plan)}"]))
        self.said = said


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.now = 1_000
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.ticket = 0
        self.crash_rate = plan.crash
        self.loss, self.double, self.delay, self.late = plan.loss, plan.double, plan.delay, plan.late
        self.healed = False
        self.drained = 0  # how often a site was drained or undrained
        self.oracle = Oracle()
        self.oracle.calm = not plan.loss and not plan.crash and {a.kind for a in plan.acts} <= {"cut off", "job killed"}
        self.server = Server(self)
        self.sites: dict[str, Site] = {}
        self.processes: list[Process] = []
        self.bags: list[int] = []  # acknowledged
        self.asked = 0  # keys
        self.enrolments = 0
        self.boots: Counter[str] = Counter()  # of hosts that pilots share

    # --- time and chance -----------------------------------------------------------------------------------------

    def at(self, when: int, what: Callable[[], None]) -> None:
        self.ticket += 1
        heappush(self.queue, (max(when, self.now), self.ticket, what))

    def after(self, wait: int, what: Callable[[], None]) -> None:
        self.at(self.now + wait, what)

    def chance(self, percent: float) -> bool:
        return percent > 0 and self.random.random() * 100 < percent

    def blame(self, said: list[str]) -> None:
        if said:
            raise Broken(said, self.plan, self.now)

    # --- running -------------------------------------------------------------------------------------------------

    def run(self) -> World:
        self._set_up()
        self._until(lambda: self.now >= HORIZON)
        self._heal()
        limit = self.now + PATIENCE
        self._until(lambda: self.now >= limit or self._done())
        limit = self.now + LEAVING
        self._until(lambda: self.now >= limit or self._quiet())
        assert self.server.core is not None
        self.blame(self.oracle.final(self.server.core.state))
        self.blame(self._leftovers())
        return self

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            if not self.queue:
                return
            self.now, _, what = heappop(self.queue)
            what()

    def _done(self) -> bool:
        core = self.server.core
        return core is not None and not any(bag.not_ended() for bag in core.state.bags.values())

    def _quiet(self) -> bool:
        core = self.server.core
        if core is None or not self._done():
            return False
        if core.state.intents or any(site.jobs for site in self.sites.values()):
            return False
        return not any(p.alive and (p.agenda.holding() or p.agenda.undelivered()) for p in self.processes)

    def _leftovers(self) -> list[str]:
        held = [(p.name, p.agenda.held()) for p in self.processes if p.alive and p.agenda.holding()]
        said = [f"P7: all has ended, but {name} still holds {attempts}" for name, attempts in held]
        assert self.server.core is not None
        state = self.server.core.state
        for site in self.sites.values():
            said += site.leftovers(state.intent_nonces)
        return said + [f"P7: all has ended, but {intent.nonce} is {intent.state}" for intent in state.intents.values()]

    def _set_up(self) -> None:
        self.client(lambda: e.AddSite(0, "here", OWNERS[0], "local", [OWNERS[1]]))
        for place, plan in enumerate(self.plan.sites):
            self.add_site(f"c{place}", limits_of(plan))
            self.sites[f"c{place}"] = Site(self, f"c{place}", plan)
        if self.plan.allowance >= 0:
            self.client(lambda: e.SetAllowance(0, "*", self.plan.allowance))
        for cores in self.plan.pilots:
            self.new_pilot(cores)
        for bag in self.plan.bags:
            self.at(bag.at, lambda bag=bag: self.submit(bag))
        for act in self.plan.acts:
            self.at(act.at, lambda act=act: acts.play(self, act))
        if any(bag.shape == "gathering" for bag in self.plan.bags):
            self.after(300, self._gather)

    def _heal(self) -> None:
        """End all faults, and start a pilot that can run every task."""
        self.healed = True
        self.crash_rate = self.loss = self.double = self.late = 0
        self.delay = 5
        self.server.disk.full = False
        self.server.report_disk(False)
        for site in self.sites.values():
            site.heal()
            self.add_site(site.name, healed(site.plan))
        for process in list(self.processes):
            process.deaf = process.mute = process.frozen = 0
            process.hole = False
            external = any(bag.shape == "external" for bag in self.plan.bags)
            if not process.alive and external and process.site is None:
                self.gone(process)  # other dead pilots are known by silence or by their batch system
        self.new_pilot(4)
        self.after(200, self._tidy)

    def _tidy(self) -> None:
        """Do what people would do: unpause and close bags, start a pilot where none is left, answer what `explain`
        asks."""
        self.after(10_000, self._tidy)
        if self.server.core is None:
            return
        state = self.server.core.state
        if "here" not in state.sites or not state.sites["here"].shared:
            self.client(lambda: e.AddSite(0, "here", OWNERS[0], "local", [OWNERS[1]]))
        for site in self.sites.values():
            if site.name not in state.sites or state.sites[site.name].limits != healed(site.plan):
                self.add_site(site.name, healed(site.plan))  # what was asked for before may have come late
            elif state.sites[site.name].drained:
                self.client(lambda name=site.name: e.DrainSite(0, name, OWNERS[0], False))
        if state.allowances:
            self.client(lambda: e.SetAllowance(0, "*", -1))
        for number, bag in state.bags.items():
            if bag.budget:
                self.client(lambda number=number: e.SetBudget(0, number, 0))
            if bag.paused:
                self.client(lambda number=number: e.Pause(0, number, False))
            if bag.open:
                self.client(lambda number=number: e.Close(0, number))
            if bag.external and bag.not_ended():
                self._answer_for(number, bag.size)
        if not any(p.alive and not p.agenda.leaving and p.cores >= 4 for p in self.processes):
            self.new_pilot(4)

    def _gather(self) -> None:
        """Gather the inputs of targets as `server/dataflow/gather.py` does: in time, more than once, or never, if
        there are too many files."""
        self.after(self.random.choice((50, 700, 3_000)), self._gather)
        core = self.server.core
        for number, bag in core.state.bags.items() if core is not None else ():
            for target in bag.targets:
                if target.shape.gathers and not target.pending and target.not_ended:
                    refused = "too many files" if not self.healed and self.chance(10) else ""
                    self.server.put(e.InputsGathered(0, number, target.index, refused))

    def _answer_for(self, number: int, size: int) -> None:
        assert self.server.core is not None
        for task in range(size):
            if "only you can say" in explain(self.server.core.state, self.server.now, number, task)["summary"]:
                again = lambda _, task=task: self.client(lambda: e.Retry(0, number, [task]))
                self.client(lambda task=task: e.Cancel(0, number, [task]), again)

    def add_site(self, name: str, limits: Limits) -> None:
        self.client(lambda: e.AddSite(0, name, OWNERS[0], "slurm", [OWNERS[1]], limits))

    # --- the network ---------------------------------------------------------------------------------------------

    def call(self, process: Process, event: e.Event, pilot: int, answer: Callable[[Any], None]) -> None:
        """Send a request of a process and hand its answer back.  `pilot` says whose token the request carries."""
        copies = 2 if self.chance(self.double) else 1
        for _ in range(copies):
            if self._passes(process.mute):
                copy = msgspec.structs.replace(event)
                self.after(self._lag(), lambda copy=copy: self._arrive(process, copy, pilot, answer))

    def _arrive(self, process: Process, event: e.Event, pilot: int, answer: Callable[[Any], None]) -> None:
        if not self.server.up:
            if isinstance(event, e.Exchange):
                self.after(self._lag(), lambda: process.awake(lambda: process.lost(event.seq)))
            return
        if isinstance(event, e.Exchange):
            known = self._known(pilot)
            if known is None:
                self._back(process, x.Refuse(0, "unauthorised", "no valid token"), answer)
                return
            event.pilot = known.pilot
        else:
            self.enrolments += 1
            event.token = b"%d" % self.enrolments  # as the server makes them, one for each request
        self.server.put(event, lambda effect: self._back(process, effect, answer))

    def post(self, site: Site, event: e.Event, answer: Callable[[Any], None]) -> None:
        """Send a report of a tender to the server and hand the answer back."""
        for _ in range(2 if self.chance(self.double) else 1):
            if self._passes(site.dark):
                copy = msgspec.structs.replace(event)
                self.after(self._lag(), lambda copy=copy: self._posted(site, copy, answer))

    def _posted(self, site: Site, event: e.Event, answer: Callable[[Any], None]) -> None:
        def back(effect: Any) -> None:
            if self._passes(site.dark):
                self.after(self._lag(), lambda: answer(effect))

        if self.server.up:
            self.server.put(event, back)

    def _known(self, pilot: int) -> Any:
        """Is that pilot's token still good?"""
        assert self.server.core is not None
        state = self.server.core.state
        return state.tokens.get(state.token_ids.get(f"pilot-{pilot}", b"?"))

    def _back(self, process: Process, effect: Any, answer: Callable[[Any], None]) -> None:
        if self._passes(process.deaf):
            self.after(self._lag(), lambda: process.awake(lambda: answer(effect)))

    def _passes(self, cut_until: int) -> bool:
        return self.now >= cut_until and not self.chance(self.loss)

    def _lag(self) -> int:
        if self.chance(self.late):
            return self.random.randint(1_000, 60_000)  # long after both ends have given it up
        if self.chance(5):
            return self.random.randint(0, 20 * self.delay)
        return self.random.randint(0, self.delay)

    def connections_break(self) -> None:
        for process in self.processes:
            for seq in list(process.agenda.in_flight):
                if self.chance(70):
                    self.after(self._lag(), lambda process=process, seq=seq: process.awake(lambda: process.lost(seq)))

    def render(self, effect: x.ExchangeReply) -> dict[str, Any]:
        """Render an answer as `server/calls/exchange.py` does, as far as the agenda reads it."""
        assert isinstance(effect, x.ExchangeReply)
        shapes = self.oracle.shapes
        grants = [{"n": number, "groups": [
            {"spec": _spec(g.bag, shapes[g.bag][g.target], g.time_retries, g.memory_retries),
             "tasks": [[a, [g.bag, t]] for a, t in zip(g.attempts, g.tasks, strict=True)],
             **({"chain": g.chain, "behind": g.prerequisites} if g.chain >= 0 else {})}
            for g in groups if g.bag in shapes
        ]} for number, groups in effect.grants]
        return {
            "v": 1, "epoch": effect.epoch, "seq": effect.seq, "lease": effect.lease, "grants": grants,
            "cancel": effect.cancel, "recall": effect.recall, "census": effect.census, "stop": effect.stop,
            "look": effect.look,
        }

    # --- what tasks do -------------------------------------------------------------------------------------------

    def outcome(self, attempt: int, task: Any) -> tuple[int, dict[str, Any]]:
        r = self.random
        wall = r.choice((3, 40, 400, 3_000, 12_000))
        if not self.healed and self.chance(30 if self.oracle.external.get(task.command[0]) else 2):
            wall = 45_000  # longer than a lease: to be silent is not to be dead
        limit = task.spec.fields.get("time")
        if limit and wall > limit:
            return limit, {"a": attempt, "o": "failed", "why": "time", "wall": limit}
        if self.chance(self.plan.fail):
            why = r.choice(("exit", "output", "memory", "returned", "poison" if not self.healed else "exit"))
            why = "memory" if task.need[1] and r.random() < 0.5 else why
            if why == "returned":
                saved = self.saved(attempt, task)
                return wall, {"a": attempt, "o": "returned", "why": "stop", "wall": wall, **saved}
            return wall, {"a": attempt, "o": "failed", "why": why, "exit": 1, "wall": wall}
        return wall, {"a": attempt, "wall": wall}

    def saved(self, attempt: int, task: Any) -> dict[str, Any]:
        """Return what a task that ends early saves for its next attempt: a file that names the attempt that saved
        it."""
        if task is None or not task.spec.fields.get("checkpoint"):
            return {}
        return {"saved": [("state", f"{attempt:064x}", 1, 0o600)]}

    # --- pilots --------------------------------------------------------------------------------------------------

    def new_pilot(
        self, cores: int, nonce: str = "", wall: int | None = None, site: Site | None = None, job: Job | None = None
    ) -> Process:
        name = f"p{len(self.processes)}"
        self.processes.append(Process(self, name, nonce or name, cores, wall, site, job))
        return self.processes[-1]

    def reboot(self, process: Process) -> None:
        """Start the host of a process again, and with it end all processes there."""
        for each in self.processes:
            if each.alive and each.host == process.host:
                each.die()
        self.boots[process.host] += 1

    def kill(self, process: Process, evidence: bool) -> None:
        process.die()
        if evidence:
            self.after(self.random.choice((10, 2_000, 15_000)), lambda: self.over(process))

    def over(self, process: Process) -> None:
        """Let the site, or the batch system that started the process, notice that it is dead."""
        if process.site is None:
            self.gone(process)
        elif process.job is not None and process.job.process is process:
            process.site.ended(process.job)

    def gone(self, process: Process) -> None:
        """Report the process as dead, under every epoch that it ever had."""
        core = self.server.core
        if core is None:
            self.after(1_000, lambda: self.gone(process))
            return
        for pilot in list(core.state.pilots.values()):
            if process.name in (pilot.host, pilot.life):
                self.client(lambda number=pilot.number: e.Gone(0, number))

    # --- clients -------------------------------------------------------------------------------------------------

    def client(self, make: Callable[[], e.Event], done: Callable[[Any], None] | None = None) -> None:
        """Send a request again and again until the server answers it."""
        answered: list[Any] = []

        def answer(effect: Any) -> None:
            if not answered:
                answered.append(effect)
                if done is not None:
                    done(effect)

        def arrive() -> None:
            if self.server.up:
                self.server.put(make(), lambda effect: None if self.chance(self.loss) else answer(effect))

        def ask() -> None:
            if answered:
                return
            if self.chance(self.late):
                self.after(self._lag(), arrive)  # and may come when it has been asked and answered again
            elif not self.chance(self.loss):
                arrive()
            self.after(2_000, ask)

        ask()

    def submit(self, plan: BagPlan) -> None:
        self.asked += 1
        key = f"k{self.asked}"
        shapes, edges = acts.make_shapes(plan, self.random)
        shapes = acts.scarce(plan, shapes)
        owner = OWNERS[plan.owner]
        data = acts.make_data(plan, sum(shape.count for shape in shapes), self.random)
        select = "sjf" if plan.shape == "sjf" else data.pop("select", "fcfs")

        def done(effect: x.Done | x.Refuse) -> None:
            if isinstance(effect, x.Refuse):  # the site that it names is not there yet
                self.after(1_000, lambda: self.client(make, done))
                return
            self.oracle.submitted[key] = (effect.value, effect.extra)
            if effect.value not in self.bags:
                self.bags.append(effect.value)

        def make() -> e.Event:
            return e.Submit(
                0, owner, key, key, b"spec", shapes, plan.shape == "external", select,
                plan.shape in ("open", "filling", "growing"), edges, plan.provision, budget=plan.budget,
                replicate=plan.replicate, fail_over=plan.fail_over, policy=(*POLICIES, *REPEATS)[plan.policy], **data,
            )

        self.client(make, done)


def _spec(bag: int, shape: TargetShape, overruns: int, boosts: int) -> dict[str, Any]:
    return {
        "bag": bag, "cores": shape.cores, "memory": shape.memory << boosts, "gpus": shape.gpus,
        "time": shape.limit * 3**overruns or None, "grace": shape.grace, "whole": shape.whole,
        "need": shape.grace + SAVING if shape.checkpoint else 0,
        "checkpoint": ["state"] if shape.checkpoint else [],
    }
