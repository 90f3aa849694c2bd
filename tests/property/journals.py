"""Record journals: what the core decides in fixed worlds, so that a change that should change nothing proves it.

    python -m tests.property.journals --check            compare all recorded journals with what this tree decides
    python -m tests.property.journals --record           write them anew; the commit says which series changed what
    python -m tests.property.journals --check world-7    only these

Each journal has two digests.  `bytes` covers every byte.  `decisions` leaves out strings that hold a blank, which are
sentences for people (and commands): a change of wording alone leaves it equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from windfall.core.config import Config
from windfall.core.messages import events as e
from windfall.core.step import Core, Step
from windfall.sim import scenario, world as simulated
from windfall.sim.experiments import (
    bags,
    condor,
    naive,
    replicas,
    scale,
    several,
    swarm,
    swarm_table,
    trellis,
    trellis5,
)
from windfall.sim.play import Run
from windfall.store import codec

from .plan import HORIZON, Act, Plan, random_plan
from .soak import MORE
from .world import World

RECORDING = Path(__file__).with_name("journals.json")
EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
HOUR = 3_600_000
PLAIN, EACH = 100, 11  # worlds of random plans; worlds of each kind in MORE


class Digest:
    """A digest of one journal: two hashes over its rows and the number of its facts."""

    def __init__(self) -> None:
        self._bytes, self._decisions, self._facts = hashlib.sha256(), hashlib.sha256(), 0

    def row(self, body: bytes) -> None:
        facts = msgspec.msgpack.decode(body)
        self._facts += len(facts)
        self._bytes.update(body)
        self._decisions.update(msgspec.msgpack.encode(without_sentences(facts)))

    def result(self) -> list[Any]:
        return [self._facts, self._bytes.hexdigest()[:24], self._decisions.hexdigest()[:24]]


def without_sentences(value: Any) -> Any:
    if isinstance(value, str):
        return "" if " " in value else value
    if isinstance(value, list):
        return [without_sentences(each) for each in value]
    if isinstance(value, dict):
        return {key: without_sentences(each) for key, each in value.items()}
    return value


# --- worlds -----------------------------------------------------------------------------------------------------


def steady(plan: Plan) -> Plan:
    """Crash the server at fixed times only.

    A crash by chance draws a random number at every step of the server, also at one that decides nothing, so that a
    needless timer would change the world.
    """
    acts = tuple(Act(HORIZON * at // 4, "server crash", plan.seed + at) for at in (1, 2, 3)) if plan.crash else ()
    return msgspec.structs.replace(plan, crash=0, acts=plan.acts + acts)


def play_world(plan: Plan) -> Iterable[bytes]:
    return World(steady(plan)).run().server.disk.rows


def play_scenario(path: Path, seed: int) -> Iterable[bytes]:
    run = Run(scenario.load(path), seed)
    rows: list[bytes] = []
    run.world.server.observe(lambda facts: rows.append(codec.encode(facts)) if facts else None)
    run.play(most=3_000_000)
    return rows


def play_large(replicate: str) -> Iterable[bytes]:
    """Play GridBot's mix of bags on a smaller scale: hosts lose a tenth of their attempts, and the tail is long."""
    world = simulated.World(1, Config(lease=HOUR, park=HOUR * 5 // 6, deaths=200, idle=1 << 40))
    for site in range(3):
        world.site(f"site{site}")
        world.pilots(f"site{site}", 200, cores=1 + site, loses=0.1)
    rows: list[bytes] = []
    world.server.observe(lambda facts: rows.append(codec.encode(facts)) if facts else None)

    def wall(_task: int, draw: Any) -> int:
        return round(draw.expovariate(1 / (HOUR / 2))) + 1

    for tasks in (20_000, 3_000, 200):
        world.submit(simulated.Work(tasks, wall, retries=100, replicate=replicate))
    world.run()
    return rows


FEW_HOSTS = replicas.ReplicasCalibration(tasks=1_500, hosts=150, buffer=750)
# The papers' studies, each as small as still shows what it is about.
STUDIES: dict[str, Callable[[], object]] = {
    "pool": lambda: condor.run_through_windfall(1, tasks=600, replicate="tail-safe"),
    "tail-policies": lambda: naive.play(1, True, naive.NaiveCalibration(tasks=400, grid=25, volunteers=45)),
    "five-bags": lambda: bags.play(1, bags.FiveBagsCalibration(tasks=150, grid=40, cluster=15)),
    "replica-queue": lambda: replicas.run_on_papers_server(1, replicas.POLICIES[1], FEW_HOSTS),
    "restrictive-replicas": lambda: replicas.run_on_our_server(1, replicas.POLICIES[1], FEW_HOSTS),
    "permissive-replicas": lambda: replicas.run_on_our_server(1, replicas.POLICIES[0], FEW_HOSTS),
    "volunteers": lambda: several.play(1, several.FourBagsCalibration(
        tasks=400, grid=60, volunteers=60, buffer=400, few=110, left=30)),
    "three-servers": lambda: swarm_table.one_round(1),
    "copies-wan": lambda: trellis.play.__wrapped__(trellis.Case(trellis.WAN, "data-conscious", 8), 1),
    "copies-lan": lambda: trellis.play.__wrapped__(trellis.Case(trellis.LAN, "data-conscious", 16, 100), 1),
    "bundles": lambda: trellis5.makespan("blast", 16, 16, 1),
    "pipelines": lambda: trellis5.pipelines(16, 1),
    "ranks": lambda: scale.play(1, 8, 300, 60),
    "one-bag": lambda: scale.run_large_bag(3_000, 100),
    **{f"openings-{policy}": partial(swarm.run_figure, policy) for policy in ("msr", "broker", "swarm")},
}


@contextmanager
def recorded_steps(rows: list[bytes]) -> Iterator[None]:
    """Append the facts of every step of every core in this process."""
    step = Core.step

    def recording(core: Core, now: int, events: Iterable[e.Event]) -> Step:
        result = step(core, now, events)
        if result.facts:
            rows.append(codec.encode(result.facts))
        return result

    with mock.patch.object(Core, "step", recording):
        yield


def play_study(study: Callable[[], object]) -> Iterable[bytes]:
    rows: list[bytes] = []
    with recorded_steps(rows):
        study()
    return rows


def journals() -> dict[str, Callable[[], Iterable[bytes]]]:
    made: dict[str, Callable[[], Iterable[bytes]]] = {
        f"world-{seed}": partial(play_world, random_plan(seed)) for seed in range(PLAIN)}
    for kind, plan in enumerate(MORE):
        for seed in range(EACH):
            made[f"more-{kind}-{seed}"] = partial(play_world, plan(1_000 * kind + seed))
    for path in sorted(EXAMPLES.glob("*.toml")):
        made[f"scenario-{path.stem}"] = partial(play_scenario, path, 1)
    for replicate in ("none", "tail-safe"):
        made[f"large-{replicate}"] = partial(play_large, replicate)
    for name, study in STUDIES.items():
        made[f"study-{name}"] = partial(play_study, study)
    return made


def digest(name: str) -> tuple[str, list[Any]]:
    total = Digest()
    for row in journals()[name]():
        total.row(row)
    return name, total.result()


# --- the recording ----------------------------------------------------------------------------------------------


def recorded() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = json.loads(RECORDING.read_text())
    return found


def differences(now: dict[str, list[Any]], before: dict[str, list[Any]]) -> list[str]:
    """Return one line per journal that differs from its recording; other decisions go before other wording."""
    said = []
    for name, found in now.items():
        was = before.get(name)
        if was is None:
            said.append(f"{name}: not recorded")
        elif found[2] != was[2]:
            said.append(f"{name}: other decisions ({was[0]} facts then, {found[0]} now)")
        elif found[1] != was[1]:
            said.append(f"{name}: other wording")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--check", action="store_true")
    group.add_argument("--record", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("names", nargs="*", help="of journals; all if none is given")
    args = parser.parse_args()
    names = args.names or sorted(journals())
    if args.jobs == 1:
        now = dict(map(digest, names))
    else:
        with Pool(args.jobs) as pool:
            now = dict(pool.imap(digest, names, chunksize=1))
    if args.record:
        kept = recorded() if args.names and RECORDING.exists() else {}
        lines = (f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in sorted({**kept, **now}.items()))
        RECORDING.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{len(now)} journals recorded, {sum(found[0] for found in now.values()):,} facts")
        return 0
    said = differences(now, recorded())
    print("\n".join(said) or f"all {len(now)} journals are equal")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
