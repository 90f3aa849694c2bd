"""Play a scenario: build the world that it describes, and run it once for a seed.

Each bag and each group of hosts draws its random numbers from a generator of its own, named after it, so that two
scenarios that differ only in a policy have the same tasks and the same hosts.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from windfall.core.config import Config
from windfall.core.messages.facts import DataSelection, DataShape, Limits, Shape, TargetShape
from windfall.core.messages.lifecycle import ACTIVE
from windfall.core.read.explain import explain
from windfall.model.checks.bag import USUAL
from windfall.model.spec import usual_time_retries
from windfall.sim.models import load
from windfall.sim.models.clients import Collector, Poller, ScriptTimes, UserScript
from windfall.sim.models.laws import Law
from windfall.sim.models.swf import LogJob
from windfall.sim.record import Record
from windfall.sim.scenario import Scenario, ScenarioBag, ScenarioSite, ScenarioTarget
from windfall.sim.world import Wall, Work, World, WorldRules, target_shape

DAY = 86_400_000
PROGRESS_EVERY = 20_000  # events between two reports of progress

EVERY = 5_000  # ms between two polls of a script
MOST_EVENTS = 1_000_000_000  # some hours of computing
QUIET, QUEUING = 3 * DAY, 30 * DAY  # ms without a grant after which a run stalls: with steady hosts; otherwise
FOREVER = 365 * DAY  # a run without `until` is given up after this

Tell = Callable[[int, int], None]  # ms of virtual time, tasks that have ended


class Patience(NamedTuple):
    """The ms without a grant after which a run counts as stalled."""

    quiet: int
    queued: int  # while pilots are queued


class Run:
    """A world, built from a scenario and a seed.  `play` runs it; `record` then holds its attempts and pilots."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed
        server = scenario.server
        config = Config(**{key: server[key] for key in ("lease", "park", "idle", "silence", "prefetch", "deaths")
                           if key in server})
        self.world = World(seed, config, WorldRules(service=server.get("service", 0)))
        self.record = Record()
        self.record.attach(self.world.server)
        self._sites()
        self._hosts()
        self._links()
        self.scripts: dict[str, UserScript] = {}
        self._waiting = 0  # scripts that have not begun
        self._patience = _patience(scenario)
        self._seen, self._since = (0, 0), 0  # counts of attempts and of ended tasks; since when they are the same
        for bag in scenario.bags:
            if bag.client:
                self._waiting += 1
                self.world.engine.at(bag.submit, self._script, bag)
            else:
                self.world.later(bag.submit, self._work(bag))

    def draw(self, *names: str) -> random.Random:
        return random.Random("/".join((str(self.seed), *names)))

    def play(self, tell: Tell | None = None, most: int = MOST_EVENTS) -> Record:
        """Run the world until everything has ended, it stalls, or `most` events have happened."""
        world, events = self.world, 0

        def done() -> bool:
            nonlocal events
            events += 1
            if tell is not None and events % PROGRESS_EVERY == 0:
                tell(world.engine.now, self.record.done)
            if events == most or self.finished:
                return True
            return not self.scenario.until and events % PROGRESS_EVERY == 0 and self._stalled()

        world.engine.run(self.scenario.until or FOREVER, done)
        return self.record

    def _stalled(self) -> bool:
        """Has the server granted nothing for so long that it never will again?"""
        world, state = self.world, self.world.server.core.state
        seen = world.tally.attempts, self.record.done
        out = any(bag.counts[ACTIVE] for bag in state.bags.values())
        if seen != self._seen or out or self._waiting or world.coming:
            self._seen, self._since = seen, world.engine.now
        queued = any(site.open for site in state.sites.values())
        return world.engine.now - self._since > (self._patience.queued if queued else self._patience.quiet)

    @property
    def why(self) -> str:
        """Return the name of the first bag that has not ended, and what it waits for."""
        state, now = self.world.server.core.state, self.world.engine.now
        bag = next((bag for bag in state.bags.values() if bag.not_ended()), None)
        return "" if bag is None else f"{bag.name}: {explain(state, now, bag.number)['summary']}"

    @property
    def finished(self) -> bool:
        return self.world.done() and not self._waiting and all(each.ended >= 0 for each in self.scripts.values())

    def summaries(self) -> list[dict[str, Any]]:
        """Return the summary of each bag; with `client_ended`, when its script had all results, if it has a script."""
        found = self.record.summaries()
        for each in found:
            if each["name"] in self.scripts:
                each["client_ended"] = self.scripts[each["name"]].ended
        return found

    # --- places -----------------------------------------------------------------------------------------------------

    def _sites(self) -> None:
        names = [site.name for site in self.scenario.sites]
        for site in self.scenario.sites:
            if "processors" in site.values:
                self._cluster(site)
            else:
                self.world.site(site.name, site.values.get("disk", False))
        for hosts in self.scenario.hosts:
            if hosts.site not in names:
                names.append(hosts.site)
                self.world.site(hosts.site)

    def _hosts(self) -> None:
        for hosts in self.scenario.hosts:
            machines = replace(hosts.machines, dark=(*hosts.machines.dark, *self.scenario.server.get("dark", ())))
            self.world.machines(hosts.site, machines, self.draw("hosts", hosts.name))

    def _links(self) -> None:
        """Add the scenario's links; between all other places the default link takes next to no time."""
        self.world.link("*", "*")
        for link in self.scenario.links:
            self.world.link(link.a, link.b, start=link.start, rate=float(link.bandwidth), shared=link.shared)

    def _cluster(self, site: ScenarioSite) -> None:
        from windfall.sim.models.site import machine

        get = site.values.get
        where = machine(
            self.world.engine, site.name, site.values["processors"], get("discipline", "easy"), speed=get("speed", 1.0),
            load=self._background(site), startup=get("startup", 0), most=get("most"), refresh=get("refresh", 0),
            preempts=float(get("preempts", 0)), requeues=get("requeues", False))
        shape = Shape(get("cores", 1), get("memory", 1 << 50), 0, 1 << 50, get("wall", 0))
        limits = Limits([shape], get("pilots", 0), get("queued", 0), round(1000 * get("share", 1.0)), get("delay", 0))
        self.world.cluster(where, limits, latency=get("latency", 0), submit=get("submission", 0),
                           cancel=get("cancellation", 0), disk=get("disk", False), cut=self._dark(get("dark", [])))

    def _dark(self, spans: list[tuple[int, int]]) -> Callable[[int], bool] | None:
        spans = [*spans, *self.scenario.server.get("dark", ())]
        return (lambda now: any(begin <= now < end for begin, end in spans)) if spans else None

    def _background(self, site: ScenarioSite) -> Any:
        given, procs = site.background, site.values["processors"]
        seconds: dict[str, float] = {key: given[key] / 1000 for key in ("start", "length", "median") if key in given}
        if site.log is not None:
            return load.segment(site.log, procs, seconds.get("start", 0.0), seconds.get("length"))
        if not given:
            return []
        times = load.RunTimes(seconds.get("median", load.USUAL_TIMES.median),
                              given.get("deviation", load.USUAL_TIMES.deviation))
        jobs = load.synthetic(self.draw("background", site.name), procs, given["busy"], given.get("widest"), times)
        return takewhile(self._in_time, jobs)

    def _in_time(self, job: LogJob) -> bool:
        return self.scenario.until is None or job.submit * 1000 <= self.scenario.until

    # --- bags -------------------------------------------------------------------------------------------------------

    def _work(self, bag: ScenarioBag) -> Work:
        walls, shapes = array("q"), []
        columns = {"reads": array("q"), "read_files": array("i"), "leaves": array("q"), "leave_files": array("i")}
        places = {target.name: number for number, target in enumerate(bag.targets)}
        for target in bag.targets:
            draw = self.draw("bags", bag.name, target.name)
            own = array("q", (round(target.duration.draw(draw)) for _ in range(target.tasks)))
            walls.extend(own)
            _fill(columns, target, self.draw("data", bag.name, target.name))
            costs = array("f", own).tobytes() if bag.select == "sjf" else b""
            shapes.append(_shape(target, [places[name] for name in target.after], bag.batch, costs))
        return Work(bag.tasks, lambda task, _draw: walls[task], fails=bag.fails, select=bag.select, name=bag.name,
                    targets=shapes, provision=bag.provision, edges=_edges(bag), data=_data(bag, columns),
                    fail_over=bag.fail_over,
                    data_selection=DataSelection(**bag.conscious) if bag.select == "data-conscious" else None,
                    replicate=USUAL, policy=bag.policy)

    def _script(self, bag: ScenarioBag) -> None:
        """Start the bag's script, which submits each task as a bag of its own; all of them have the same name."""
        self._waiting -= 1
        draw, get = self.draw("client", bag.name), bag.client.get
        whole = self._work(bag)
        assert whole.targets is not None
        shape = msgspec.structs.replace(whole.targets[0], count=1, costs=b"")
        works = [replace(whole, tasks=1, targets=[shape], data=_part(whole.data, number), wall=_only(whole, number))
                 for number in range(bag.tasks)]
        call, fetch, notice = (_taking(get(key), draw) for key in ("call", "fetch", "notice"))
        times = ScriptTimes(poll=get("every", EVERY), call=call, notice=notice, fetch=fetch)
        kind = Poller if bag.client["kind"] == "poll" else Collector
        self.scripts[bag.name] = kind(self.world, works, times)


def _patience(scenario: Scenario) -> Patience:
    groups = [hosts.machines for hosts in scenario.hosts]
    outages = [span for each in groups for span in each.dark] + list(scenario.server.get("dark", ()))
    outages += [span for site in scenario.sites for span in site.values.get("dark", ())]
    last = max([end for _, end in outages], default=0)
    unsteady = any(each.availability or each.cuts for each in groups)  # some hosts are away at times
    return Patience((QUEUING if unsteady else QUIET) + last, QUEUING + last)


def _only(work: Work, number: int) -> Wall:
    return lambda _task, draw: work.wall(number, draw)


def _taking(law: Law | None, draw: random.Random) -> Callable[[], int]:
    return lambda: round(law.draw(draw)) if law is not None else 0


def _part(data: DataShape | None, task: int) -> DataShape | None:
    """Return the data of one task: what it reads and leaves."""
    if data is None:
        return None
    eight, four = slice(8 * task, 8 * task + 8), slice(4 * task, 4 * task + 4)
    return msgspec.structs.replace(data, reads=data.reads[eight], read_files=data.read_files[four],
                                   leaves=data.leaves[eight], leave_files=data.leave_files[four])


def _fill(columns: dict[str, array[int]], target: ScenarioTarget, draw: random.Random) -> None:
    for law, files, size, count in ((target.reads, target.read_files, "reads", "read_files"),
                                    (target.leaves, target.leave_files, "leaves", "leave_files")):
        columns[size].extend(round(law.draw(draw)) for _ in range(target.tasks))
        columns[count].extend([files if law.mean else 0] * target.tasks)


def _data(bag: ScenarioBag, columns: dict[str, array[int]]) -> DataShape | None:
    if not any(target.reads.mean or target.leaves.mean for target in bag.targets):
        return None
    return DataShape(**{name: column.tobytes() for name, column in columns.items()}, staged=bag.staged,
                     stays=bag.stays, keeps=bag.keeps)


def _edges(bag: ScenarioBag) -> bytes:
    """Return the edges between tasks, one by one, of targets that follow another."""
    firsts, first = {}, 0
    for target in bag.targets:
        firsts[target.name] = first
        first += target.tasks
    pairs = array("i")
    for target in bag.targets:
        if target.follows:
            for number in range(target.tasks):
                pairs.extend((firsts[target.follows] + number, firsts[target.name] + number))
    return pairs.tobytes()


NEEDS = {"cores": "cores", "memory": "memory", "gpus": "gpus", "disk": "disk", "time": "limit", "expect": "expect",
         "retries": "retries", "memory-retries": "memory_retries", "time-retries": "time_retries",
         "priority": "priority", "whole-node": "whole"}
"""A key of a target's table → the field of a `TargetShape`."""


def _shape(target: ScenarioTarget, after: list[int], batch: int, costs: bytes) -> TargetShape:
    needs = {NEEDS[key]: value for key, value in target.needs.items()}
    if "retries" in needs:
        needs.setdefault("time_retries", usual_time_retries(needs["retries"]))
    return target_shape(target.name, target.tasks, after=after, costs=costs, batch=batch, **needs)
