"""A world: one server and its core, pilots on hosts of some speed, bags of tasks that take some time.

    world = World(seed=7)
    world.site("here")
    world.pilots("here", 100, cores=4)
    bag = world.submit(Work(tasks=1000, wall=lambda task, draw: 60_000))
    world.run()

The world decides nothing: the core chooses the pilot of each task, and the agenda of a pilot chooses when to ask for
work and what to report.  The world only says how long things take and what breaks.  With `watch` it checks every
promise after every step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from windfall.core.config import Config
from windfall.core.invariants.history import Witness
from windfall.core.invariants.promises import check_all
from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import DataSelection, DataShape, Group, Limits, TargetShape, Transfer, time_factor
from windfall.core.state.copies import place_of, site_of
from windfall.core.state.world import BagState
from windfall.sim.engine import Engine
from windfall.sim.models.hosts import Host, Machines
from windfall.sim.models.laws import Law, always
from windfall.sim.models.network import Network
from windfall.sim.models.pilot import Pilot, PilotSpec, Surroundings
from windfall.sim.models.placeholder import USUAL_TURNS, OthersTurns, Placeholder, Turns
from windfall.sim.models.provisioner import SimulatedTender, TenderOptions
from windfall.sim.models.server import Server
from windfall.sim.models.site import BatchJob, SimulatedSite
from windfall.sim.models.storage import Storage

OWNER = "user"
GRACE = 5_000  # ms
Wall = Callable[[int, random.Random], int]
Extra = dict[str, list[Transfer]]  # the files that a granted task has to fetch


def target_shape(name: str, count: int, **fields: Any) -> TargetShape:
    """Return a target of `count` tasks of one core each; `fields`: those that differ from a plain task's."""
    plain: dict[str, Any] = {
        "after": [], "cores": 1, "memory": 0, "gpus": 0, "disk": 0, "limit": 0, "expect": 0, "grace": GRACE,
        "checkpoint": False, "retries": 3, "memory_retries": 0, "priority": 0,
    }
    return TargetShape(name, count, **(plain | fields))


class BrokenPromise(AssertionError):
    """A promise does not hold."""


@dataclass
class Work:
    """A bag to simulate.  `wall(task, draw)`: the milliseconds that a task takes on a host of speed 1."""

    tasks: int
    wall: Wall
    cores: int = 1
    limit: int = 0
    expect: int = 0
    retries: int = 3
    fails: float = 0.0  # share of the attempts that end in failure
    select: str = "fcfs"
    name: str = "bag"
    batch: int = 0  # tasks in a batch
    targets: list[TargetShape] | None = None  # for several targets; `tasks`, `cores` and so on are then theirs
    provision: str = "swarm"
    fail_over: str = ""  # the site for tasks that keep failing elsewhere
    options: dict[str, int] = field(default_factory=dict)
    edges: bytes = b""
    data: DataShape | None = None
    data_selection: DataSelection | None = None
    failing: frozenset[int] = frozenset()  # tasks that never succeed
    replicate: str = "none"
    policy: dict[str, str] = field(default_factory=dict)  # expressions


@dataclass
class PilotPlace:
    """A host on which a pilot is started, and started again when it has left or died."""

    site: str
    host: Host
    cores: int = 1
    memory: int = 1 << 50
    latency: int = 0
    returns: Law | None = None  # ms after which a pilot that left for lack of work is started again
    deadline: int = 0  # ms from an attempt's start until the site reports its dead pilot as gone; 0: never


class WorldRules(NamedTuple):
    """The rules of a world: what its server, sites and pilots do apart from the protocol."""

    service: int = 0  # ms for which each charged request holds the server, which is one queue
    charges: Callable[[e.Event], bool] | None = None  # does the server charge for a request?  None: for all
    restart_wait: int = 1_000  # ms after which a pilot that died is started again
    reports_gone: bool = True  # does a site report that a pilot is gone?
    obeys: bool = True  # do pilots obey cancellations and recalls?


PLAIN_RULES = WorldRules()


@dataclass
class Tally:
    attempts: int = 0
    lost: int = 0
    busy: int = 0  # ms: the sum over all attempts
    ends: dict[int, int] = field(default_factory=dict)  # bag → when it ended


class World:
    def __init__(self, seed: int = 0, config: Config | None = None, rules: WorldRules = PLAIN_RULES, *,
                 watch: bool = False, engine: Engine | None = None) -> None:
        """Make a world; worlds with one `engine` share its time and its random numbers, and may share sites."""
        self.engine = engine or Engine(seed)
        self.server = Server(self.engine, config, rules.service, rules.charges)
        if watch:
            self.server.observe(self._check)
        self.network = Network(self.engine)
        self.storage = Storage()
        self.rules = rules
        self.tally = Tally()
        self._surroundings = Surroundings(self.engine, self.server, self._run, self._render, self._stage)
        self._works: dict[int, Work] = {}
        self._places: dict[str, PilotPlace] = {}
        self._pilots: dict[str, Pilot] = {}  # the last pilot at each place
        self._away: set[str] = set()  # places whose host is away
        self._shapes: dict[tuple[int, int, int, int], dict[str, Any]] = {}
        self._witness = Witness()
        self._hosts_at: dict[str, int] = {}  # site → hosts there so far
        self._coming = 0  # bags that will be submitted later
        self._busy: BagState | None = None  # a bag that had not ended when `done` was last asked

    # --- setting up -------------------------------------------------------------------------------------------------

    def site(self, name: str, disk: bool = False, kind: str = "simulated") -> None:
        """Add a site; with `disk` its hosts share a disk."""
        self.server.put(e.AddSite(0, name, OWNER, kind, [], disk=disk))

    def link(self, a: str, b: str, *, start: int = 0, rate: float = 1e9, shared: bool = False) -> None:
        """Add a link, and tell the core its start-up cost and its full bandwidth (a shared link gives each less)."""
        self.network.link(a, b, start=start, rate=rate, shared=shared)
        self.server.put(e.KnowLink(0, a, b, start, round(rate)))

    def placeholders(self, site: str, count: int, others: OthersTurns = USUAL_TURNS, latency: int = 0) -> None:
        """Add hosts on which placeholders take turns with others' jobs: each runs one grant and leaves (T3)."""
        for number in range(1, count + 1):
            name = f"{site}-{number}"
            self._places[name] = PilotPlace(site, Host(), latency=latency)
            Turns(name, self._start_placeholder, self.engine, others)

    def _start_placeholder(self, name: str, left: Callable[[Pilot], None]) -> None:
        if not self.done():
            place = self._places[name]
            spec = PilotSpec(name, place.site, memory=place.memory, latency=place.latency)
            Placeholder(self._surroundings, spec, left)

    def pilots(self, site: str, count: int, *, cores: int = 1, speed: float = 1.0, loses: float = 0.0,
               latency: int = 0) -> None:
        """Add hosts, each with a pilot."""
        for _ in range(count):
            self.add_host(PilotPlace(site, Host(speed, loses), cores, latency=latency))

    def machines(self, site: str, group: Machines, draw: random.Random) -> None:
        """Add a group of like hosts; a pilot that leaves a host for lack of work is started there again."""
        idle = always(self.server.core.config.idle)
        for host in group.hosts(draw):
            self.add_host(PilotPlace(site, host, group.cores, group.memory, latency=group.latency, returns=idle))

    def cluster(self, site: SimulatedSite, limits: Limits, *, disk: bool = False,
                cut: Callable[[int], bool] | None = None, **tender: Any) -> SimulatedTender:
        """Add a batch site, whose tender starts pilots as the core orders.

        `cut(now)`: are the site's pilots cut off from the server?  `tender`: fields of `TenderOptions`.
        """
        options = TenderOptions(**tender)

        def begin(job: BatchJob) -> Pilot:
            left = job.started + job.shape.wall - self.engine.now if job.shape.wall else None
            self._places[job.nonce] = PilotPlace(site.name, Host(site.settings.speed), job.shape.cores)
            spec = PilotSpec(job.nonce, site.name, job.shape.cores, job.shape.memory or 1 << 50, wall=left,
                             latency=options.latency, cut=cut)
            return Pilot(self._surroundings, spec, lambda _: site.leave(job))

        self.server.put(e.AddSite(0, name=site.name, owner=OWNER, kind="simulated", limits=limits, disk=disk))
        return SimulatedTender(self.server, site, begin, options)

    def submit(self, work: Work, then: Callable[[int], None] | None = None) -> None:
        """Submit a bag; `then` is called with its number."""
        shape = target_shape("main", work.tasks, cores=work.cores, limit=work.limit, expect=work.expect,
                             retries=work.retries, batch=work.batch)
        event = e.Submit(
            0, owner=OWNER, name=work.name, idempotency="", spec=b"", targets=work.targets or [shape], external=False,
            select=work.select, open=False, edges=work.edges, provision=work.provision, options=work.options,
            data=work.data, data_selection=work.data_selection, replicate=work.replicate, policy=work.policy,
            fail_over=work.fail_over)

        self.send(event, work, then)

    def send(self, event: e.Submit, work: Work, then: Callable[[int], None] | None = None) -> None:
        """Submit a bag by an event of the caller's own; `work` says how long its tasks take."""
        def taken(effect: Any) -> None:
            self._works[effect.value] = work
            if then is not None:
                then(effect.value)

        self.server.put(event, taken)

    def later(self, when: int, work: Work) -> None:
        self._coming += 1
        self.engine.at(when, self._submit_now, work)

    @property
    def coming(self) -> int:
        """Return how many bags will be submitted later."""
        return self._coming

    def _submit_now(self, work: Work) -> None:
        self._coming -= 1
        self.submit(work)

    def add_host(self, place: PilotPlace) -> None:
        """Add a host, named by its site and a number, and start a pilot there when the host is present."""
        number = self._hosts_at[place.site] = self._hosts_at.get(place.site, 0) + 1
        name = f"{place.site}-{number}"
        self._places[name] = place
        presence = place.host.availability
        if presence is None or place.host.suspends:
            self._start(name)
        elif self.engine.random.random() < presence.share:
            self._host_comes(name)
        else:
            self.engine.after(round(presence.down.draw(self.engine.random)), self._host_comes, name)

    def _start(self, name: str) -> None:
        place = self._places[name]
        spec = PilotSpec(name, place.site, place.cores, place.memory, latency=place.latency,
                         cut=place.host.network.cut if place.host.network else None)
        self._pilots[name] = Pilot(self._surroundings, spec, self._pilot_ended)

    def _pilot_ended(self, pilot: Pilot) -> None:
        """Start a pilot that left for lack of work again, where its place says so."""
        returns = self._places[pilot.name].returns
        if returns is not None and pilot.agenda.departed:
            self.engine.after(round(returns.draw(self.engine.random)), self._restart, pilot)

    def _restart(self, pilot: Pilot) -> None:
        if self._pilots[pilot.name] is pilot and pilot.name not in self._away:
            self._start(pilot.name)

    def visit(self, name: str, place: PilotPlace, came: int, left: int | None) -> None:
        """Start a pilot at `came`; at `left` the server drains it, so that it finishes its running tasks."""
        self._places[name] = place
        self.engine.at(came, self._start, name)
        if left is not None:
            self.engine.at(left, self._drain, name)

    def _drain(self, name: str) -> None:
        self._away.add(name)
        if self._pilots[name].alive:
            self.server.put(e.Drain(0, self._pilots[name].number))

    # --- hosts that come and go -------------------------------------------------------------------------------------

    def _host_comes(self, name: str) -> None:
        presence = self._places[name].host.availability
        assert presence is not None
        self._away.discard(name)
        self._start(name)
        self.engine.after(max(1, round(presence.up.draw(self.engine.random))), self._host_leaves, name)

    def _host_leaves(self, name: str) -> None:
        presence = self._places[name].host.availability
        assert presence is not None
        self._away.add(name)
        self._take_away(self._pilots[name])
        self.engine.after(max(1, round(presence.down.draw(self.engine.random))), self._host_comes, name)

    def _take_away(self, pilot: Pilot) -> None:
        if pilot.alive:
            pilot.die()
            if pilot.number and self.rules.reports_gone:
                self.server.put(e.Gone(0, pilot.number))

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, until: int | None = None) -> None:
        """Run the world until every bag has ended, or until `until`."""
        self.engine.run(until, self.done)

    def done(self) -> bool:
        """Have all bags ended?"""
        # The engine asks before every event: the bag that had not ended the last time answers most of them.
        if self._busy is not None and not self._busy.ended and not self._busy.open:
            return False
        bags = self.server.core.state.bags.values()
        self._busy = next((bag for bag in bags if bag.not_ended()), None)
        return bool(self._works) and not self._coming and self.server.idle and self._busy is None

    def _run(self, pilot: Pilot, task: Any) -> tuple[int, dict[str, Any]]:
        number, index = task.command
        work, host, draw = self._works[number], self._places[pilot.name].host, self.engine.random
        wall, over = host.takes(work.wall(index, draw), draw, task.spec.fields["time"] or math.inf)
        self.tally.attempts += 1
        if host.hole:
            return wall, {"a": task.attempt, "o": "failed", "why": "exit", "exit": 1, "wall": wall}
        if host.loses and draw.random() < host.loses:
            self.tally.lost += 1
            self.engine.after(draw.randrange(wall), self._kill_pilot, pilot)
        elif over:
            return wall, {"a": task.attempt, "o": "failed", "why": "time", "wall": wall}
        elif (work.fails and draw.random() < work.fails) or index in work.failing:
            return wall, {"a": task.attempt, "o": "failed", "why": "exit", "exit": 1, "wall": wall}
        elif work.data is not None and work.data.leaves:
            self.engine.after(wall, self._store_output, pilot, task.attempt, task.command)
        self.tally.busy += wall
        return wall, {"a": task.attempt, "wall": wall}

    # --- data -------------------------------------------------------------------------------------------------------

    def _stage(self, pilot: Pilot, task: Any, then: Callable[[bool], None]) -> None:
        """Fetch the files of a granted task, one set after the other; call `then(False)` if a set is missing."""
        number, _ = task.command
        left = list(task.extra["moves"])

        def next_one() -> None:
            if not left:
                then(True)
                return
            move = left.pop(0)
            if self.storage.has(move.place, (number, move.task)):
                self.network.send(site_of(move.place), pilot.site, move.size, move.files, next_one)
            else:
                then(False)

        next_one()

    def _store_output(self, pilot: Pilot, attempt: int, file_set: tuple[int, int]) -> None:
        """Store the output of an attempt that has succeeded on the disk of its pilot; a killed attempt leaves none."""
        bag, task = file_set
        data = self._works[bag].data
        if data is not None and pilot.alive and attempt in pilot.running:
            size = int.from_bytes(data.leaves[8 * task : 8 * task + 8], "little")
            self.storage.put(self._disk(pilot), file_set, size)

    def _disk(self, pilot: Pilot) -> str:
        return place_of(self.server.core.state, self.server.core.state.pilots[pilot.number])

    def lose_disk(self, site: str, host: str = "") -> None:
        """Destroy the disk of a site or of a host, and tell the server."""
        self.storage.lose(f"host {site} {host}" if host else f"site {site}")
        self.server.put(e.LosePlace(0, site, host))

    def _kill_pilot(self, pilot: Pilot) -> None:
        """Kill a pilot with its attempts; its host starts a new one after `settle` ms."""
        if pilot.alive:
            self._take_away(pilot)
            self.engine.after(self.rules.restart_wait, self._restart, pilot)
            deadline = self._places[pilot.name].deadline
            if deadline and pilot.began:
                self.engine.at(max(pilot.began.values()) + deadline, self.server.put, e.Gone(0, pilot.number))

    def _render(self, answer: x.ExchangeReply) -> dict[str, Any]:
        """Render an answer as `server/calls/exchange.py` does; a task's command is its bag and its number."""
        rendered: dict[str, Any] = {
            "epoch": answer.epoch, "seq": answer.seq, "lease": answer.lease, "spread": answer.spread,
        }
        if answer.grants:
            moves = _by_attempt(answer.transfers)
            rendered["grants"] = [
                {"n": number, "groups": [self._group(group, moves) for group in groups]}
                for number, groups in answer.grants
            ]
        if self.rules.obeys and (answer.cancel or answer.recall or answer.census or answer.stop):
            rendered |= {"cancel": answer.cancel, "recall": answer.recall, "census": answer.census, "stop": answer.stop}
        return rendered

    def _group(self, group: Group, moves: dict[int, Extra]) -> dict[str, Any]:
        made: dict[str, Any] = {
            "spec": self._spec(group.bag, group.target, group.time_retries, group.memory_retries),
            "tasks": [(a, (group.bag, t), moves.get(a)) for a, t in zip(group.attempts, group.tasks, strict=True)],
        }
        if group.chain >= 0:
            made["chain"] = group.chain
            made["behind"] = group.prerequisites
        return made

    def _spec(self, bag: int, target: int, time_retries: int, memory_retries: int) -> dict[str, Any]:
        key = (bag, target, time_retries, memory_retries)
        found = self._shapes.get(key)
        if found is None:
            shape = self.server.core.state.bags[bag].targets[target].shape
            found = self._shapes[key] = {
                "bag": bag, "cores": shape.cores, "memory": shape.memory << memory_retries,
                "time": shape.limit * time_factor(time_retries) or None,
            }
        return found

    def _check(self, facts: list[Any]) -> None:
        self._witness.observe(facts)
        broken = check_all(self.server.core.turn, self._witness)
        if broken:
            raise BrokenPromise(f"at {self.engine.now} ms: " + "; ".join(broken[:6]))


def _by_attempt(moves: list[Transfer]) -> dict[int, Extra]:
    found: dict[int, Extra] = {}
    for move in moves:
        found.setdefault(move.attempt, {"moves": []})["moves"].append(move)
    return found
