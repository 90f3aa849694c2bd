"""Play a finished bag again: as it was, or under another policy, or at other sites.

An export holds what the public API tells about a bag: its specification, the end, duration and host of each task, and
the pilots.  Each task takes as long as its last attempt did.  The speed of a host is estimated from its tasks, if there
are enough of them.  Earlier attempts and transfers of files are not in an export, and are not played.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pvariance
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from windfall.core.config import Config
from windfall.core.decide.requests.intake import submission
from windfall.errors import BadInput
from windfall.model.bagfile import reader
from windfall.model.checks.bag import check_head, validate
from windfall.model.spec import Bag
from windfall.sim.models.hosts import Host
from windfall.sim.models.laws import always
from windfall.sim.play import Run
from windfall.sim.record import Record
from windfall.sim.scenario import Scenario
from windfall.sim.world import OWNER, PilotPlace, Work, World

FORMAT = "windfall-replay/1"
ENOUGH = 20  # tasks of a target on a host, below which its speed is not estimated
MOST = 1 << 45  # ms: a thousand years
SURE = 3.0  # a host counts as faster or slower if it is so many standard errors from the others


class EndedTask(msgspec.Struct, array_like=True):
    """An ended task.  Times are ms since the bag's submission."""

    target: str
    state: str
    site: str
    host: str
    start: int
    wall: int


class PilotStay(msgspec.Struct, array_like=True):
    """A pilot, and when it was there; `left` is None if it stayed to the end."""

    site: str
    host: str
    cores: int
    memory: int
    came: int
    left: int | None


class Export(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    bag: int
    spec: Bag
    wall_clock: int  # ms
    statistics: dict[str, Any]
    tasks: list[EndedTask]  # by number
    pilots: list[PilotStay]


def dump(export: Export) -> bytes:
    return msgspec.json.format(msgspec.json.encode(export), indent=1) + b"\n"


def load(path: Path) -> Export:
    text = reader.read_text(path, "the export")
    try:
        found = msgspec.json.decode(text.encode(), type=Export)
    except msgspec.MsgspecError as error:
        raise BadInput(f"the file is not an export of a bag: {error}",
                       "make one: windfall simulate --export BAG -o FILE", str(path)) from None
    if found.format != FORMAT:
        raise BadInput(f"the export has the format '{found.format[:40]}', not '{FORMAT}'", where=str(path))
    validate(found.spec)
    check(found)
    return found


def check(export: Export) -> None:
    """Raise an error if an export cannot be played: it is empty, or some of its numbers are impossible."""
    if not export.tasks or not export.pilots:
        raise BadInput("nothing ran: there is nothing to play again")
    known = {target.name for target in export.spec.targets}
    for number, task in enumerate(export.tasks):
        if task.target not in known:
            raise BadInput(f"task {number} belongs to the target '{task.target[:40]}', which the bag does not have")
        if not 0 <= task.wall < MOST:
            raise BadInput(f"task {number} cannot have taken {task.wall} ms")
    for pilot in export.pilots:
        _check_pilot(pilot)


def _check_pilot(pilot: PilotStay) -> None:
    if not (1 <= pilot.cores <= 1 << 20 and 0 <= pilot.memory < 1 << 60):
        raise BadInput(f"a pilot cannot have {pilot.cores} cores and {pilot.memory} bytes of memory")
    if not (0 <= pilot.came < MOST and (pilot.left is None or pilot.came <= pilot.left < MOST)):
        raise BadInput(f"a pilot cannot have been there from {pilot.came} to {pilot.left} ms")


# --- how fast a host is ----------------------------------------------------------------------------------------------


def speeds(tasks: Sequence[EndedTask]) -> dict[tuple[str, str], float]:
    """Return the speed of each (site, host) that is surely faster or slower than all hosts together.

    Compared are the logarithms of the durations of one target's tasks.
    """
    logs: dict[str, dict[tuple[str, str], list[float]]] = {}
    for task in tasks:
        if task.state == "succeeded" and task.wall > 0:
            logs.setdefault(task.target, {}).setdefault((task.site, task.host), []).append(math.log(task.wall))
    found: dict[tuple[str, str], float] = {}
    for places in logs.values():
        everything = [value for values in places.values() for value in values]
        for place, values in places.items():
            spread = math.sqrt(pvariance(values) / len(values)) if len(values) >= ENOUGH else math.inf
            off = fmean(everything) - fmean(values)
            if abs(off) > SURE * spread:
                found[place] = math.exp(off)
    return found


# --- changes ---------------------------------------------------------------------------------------------------------


class Changes(NamedTuple):
    """The policies that a replay has in place of the bag's own."""

    select: str = ""
    provision: str = ""
    policy: Mapping[str, str] = MappingProxyType({})  # rank, requirements, replicate, per-host

    def applied_to(self, spec: Bag) -> Bag:
        """Return the bag with these changes; BadInput names one that is wrong."""
        fields = {key.replace("-", "_"): text for key, text in self.policy.items()}
        if self.select:
            fields["select"] = self.select
        if self.provision:
            fields["provision"] = self.provision
        changed = msgspec.structs.replace(spec, policy=msgspec.structs.replace(spec.policy, **fields), open=False)
        check_head(changed)
        return changed


UNCHANGED = Changes()


# --- worlds ----------------------------------------------------------------------------------------------------------


def as_it_was(export: Export, seed: int = 1, changes: Changes = UNCHANGED) -> Record:
    """Play the bag on the pilots of the export, each there when it was there."""
    world = World(seed, Config())
    record = _watched(world)
    fast = speeds(export.tasks)
    for site in dict.fromkeys(pilot.site for pilot in export.pilots):
        world.site(site)
    for number, pilot in enumerate(export.pilots):
        host = Host(fast.get((pilot.site, pilot.host), 1.0))
        idle = always(world.server.core.config.idle)
        place = PilotPlace(pilot.site, host, pilot.cores, pilot.memory or 1 << 50, latency=1, returns=idle)
        world.visit(f"{pilot.host}.{number}", place, pilot.came, pilot.left)
    _submit(world, export, fast, changes)
    world.run(_patience(export))
    return record


def elsewhere(export: Export, places: Scenario, seed: int = 1, changes: Changes = UNCHANGED) -> Record:
    """Play the bag at the sites and on the hosts of a scenario."""
    run = Run(places, seed)
    _submit(run.world, export, speeds(export.tasks), changes)
    run.world.run(_patience(export))
    return run.record


def _watched(world: World) -> Record:
    record = Record()
    record.attach(world.server)
    return record


def _patience(export: Export) -> int:
    """Return the time (ms) after which a replay counts as one that never ends."""
    return 1000 * (export.wall_clock + sum(task.wall for task in export.tasks)) + 86_400_000


def _submit(world: World, export: Export, fast: dict[tuple[str, str], float], changes: Changes) -> None:
    """Submit the bag to a world, in which each task takes its own time on a host of speed 1.

    Budgets and fail-over stay out: a budget may have been raised while the bag ran, and the fail-over site may be no
    part of this world."""
    spec = changes.applied_to(export.spec)
    event = submission(0, OWNER, spec)
    event.spec, event.budget, event.fail_over, event.absence = b"", 0, "", 0
    counts = {target.name: 0 for target in spec.targets}
    for task in export.tasks:
        counts[task.target] += 1
    for shape in event.targets:
        if shape.count != counts[shape.name]:
            raise BadInput(f"the bag had {counts[shape.name]:,} tasks of '{shape.name}', its file has {shape.count:,}",
                           "a bag that was extended, or that calls were added to, cannot be played again")
        shape.gathers = False  # a replay moves no files
    walls = array("q", (_work(task, fast) for task in export.tasks))
    failing = frozenset(number for number, task in enumerate(export.tasks) if task.state != "succeeded")

    def wall(task: int, _draw: random.Random) -> int:
        return walls[task]

    world.send(event, Work(len(walls), wall, failing=failing))


def _work(task: EndedTask, fast: dict[tuple[str, str], float]) -> int:
    return max(1, round(task.wall * fast.get((task.site, task.host), 1.0)))
