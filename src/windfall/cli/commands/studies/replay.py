"""`windfall simulate --export` and `--replay`: export an ended bag through the public API, and simulate it again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import duration, print_json, print_table
from windfall.errors import BadInput, Unwritable
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.types import PilotInfo
    from windfall.sim.record import Record
    from windfall.sim.scenario import Scenario
    from windfall.sim.whatif import EndedTask, Export, PilotStay

POLICIES = ("requirements", "rank", "replicate", "per-host")  # that a replay may change
MOST = 10_000_000  # tasks that can be simulated


def export(args: argparse.Namespace) -> int:
    from windfall.sim import whatif

    data = whatif.dump(_fetched(args.export))
    if args.directory is None:
        print(data.decode(), end="")
        return 0
    try:
        args.directory.write_bytes(data)
    except OSError as error:
        raise Unwritable(f"cannot write {args.directory}: {error.strerror}", "write elsewhere: -o FILE") from None
    print_json({"file": str(args.directory)}) if args.json else print(f"bag {args.export} is in {args.directory}")
    return 0


def replay(args: argparse.Namespace) -> int:
    from windfall.sim import scenario, whatif

    file = Path(args.replay)
    found = whatif.load(file) if file.suffix == ".json" else _fetched(args.replay)
    places = scenario.load(args.sites, bags=False) if args.sites else None
    if args.provision and places is None:
        raise BadInput("--provision needs sites: without them, the replay has the bag's own pilots",
                       "give sites with --sites FILE")
    records = _played(found, places, args)
    if args.directory is not None:
        from windfall.sim import pages

        for name, record in records.items():
            pages.write(record, args.directory / name.replace(" ", "-"))
    _tell(found, records, args.json)
    return 0


def _played(found: Export, places: Scenario | None, args: argparse.Namespace) -> dict[str, Record]:
    """Simulate the bag as it was, and under the changes that the options ask for."""
    from windfall.sim import whatif

    seed = 1 if args.seed is None else args.seed
    policy = {key: text for key in POLICIES if (text := getattr(args, key.replace("-", "_"))) is not None}
    changes = whatif.Changes(args.select or "", args.provision or "", policy)
    changes.applied_to(found.spec)  # refuse a wrong change before the first run
    records = {"as it was": whatif.as_it_was(found, seed)}
    if places is not None:
        records["what if"] = whatif.elsewhere(found, places, seed, changes)
    elif changes != whatif.UNCHANGED:
        records["what if"] = whatif.as_it_was(found, seed, changes)
    return records


def _tell(found: Export, records: dict[str, Record], as_json: bool) -> None:
    recorded = {**found.statistics, "tasks": len(found.tasks), "wall_clock": found.wall_clock}
    runs = {name: record.summary(1) for name, record in records.items()}
    off = runs["as it was"]["wall_clock"] / found.wall_clock - 1 if found.wall_clock else 0.0
    if as_json:
        print_json({"bag": found.bag, "tasks": len(found.tasks), "recorded": recorded, "replayed": runs["as it was"],
                    "difference": off, "what_if": runs.get("what if")})
        return
    print(f"bag {found.bag} ({found.spec.name}): {plural(len(found.tasks), 'task')}, "
          f"{plural(len(found.pilots), 'pilot')}\n")
    print_table(["", "makespan", "queuing", "longest", "real time", "redundant", "speed-up", "succeeded"],
                [_row("recorded", recorded), *(_row(name, run) for name, run in runs.items())], right=range(1, 8))
    print(f"\nthe replay as it was takes {abs(off):.1%} {'longer' if off > 0 else 'less'} than the bag did")


def _row(name: str, found: dict[str, Any]) -> list[Any]:
    times = (found["wall_clock"], round(found["queuing_average"]), found["queuing_longest"], found["real"],
             found["redundant"])
    return [name, *map(duration, times), f"{found['speed_up']:.2f}", f"{found['accepted']:,}"]


# --- the export ------------------------------------------------------------------------------------------------------


def _fetched(given: str) -> Export:
    from windfall.cli.connect import Session, find_bag

    with Session() as session:
        return fetch(session.client, find_bag(session.client, given))


def fetch(client: Client, bag: int) -> Export:
    from windfall.client.waiting import FINAL
    from windfall.sim import whatif

    info = client.bag(bag)
    if info["state"] not in FINAL:
        raise BadInput(f"bag {bag} has not ended: it is {info['state']}", f"'windfall wait {bag}' waits for it")
    if info["tasks"] > MOST:
        raise BadInput(f"{info['tasks']:,} tasks are more than the {MOST:,} that can be simulated")
    statistics = dict(client.statistics(bag))
    submitted = info["submitted"]
    tasks = [_task(row, submitted) for row in client.results(bag)]
    ran = [task for task in tasks if task.host]
    if not ran:
        raise BadInput(f"no task of bag {bag} ran: there is nothing to replay")
    end = max(task.start + task.wall for task in ran)
    found = whatif.Export(
        format=whatif.FORMAT, bag=bag, spec=client.spec(bag), wall_clock=statistics["wall_clock"],
        statistics=statistics, tasks=tasks, pilots=_pilot_stays(client, ran, submitted, end),
    )  # fmt: skip
    whatif.check(found)
    return found


def _task(row: dict[str, Any], submitted: int) -> EndedTask:
    from windfall.sim.whatif import EndedTask

    start = (row.get("started") or row.get("granted") or submitted) - submitted
    return EndedTask(target=row["target"], state=row["state"], site=row.get("site") or "", host=row.get("host") or "",
                     start=max(0, start), wall=row.get("wall") or 0)  # fmt: skip


def _pilot_stays(client: Client, ran: list[EndedTask], submitted: int, end: int) -> list[PilotStay]:
    """Return the pilots of the hosts on which tasks ran, while they ran.

    A host whose pilots the server has forgotten gets one pilot, with as many cores as tasks ran there at once.
    """
    hosts = dict.fromkeys((task.site, task.host) for task in ran)
    found = [_stay_of(pilot, submitted, end) for pilot in client.pilots()
             if (pilot["site"], pilot["host"]) in hosts and _was_there(pilot, submitted, end)]
    known = {(stay.site, stay.host) for stay in found}
    for host in hosts:
        if host not in known:
            found.append(_stay_by_tasks([task for task in ran if (task.site, task.host) == host]))
    return found


def _was_there(pilot: PilotInfo, submitted: int, end: int) -> bool:
    """Did the pilot serve at some time between the bag's submission and its end, in ms since the submission?"""
    return pilot["enrolled"] - submitted < end and (not pilot["ended"] or pilot["ended"] > submitted)


def _stay_of(pilot: PilotInfo, submitted: int, end: int) -> PilotStay:
    from windfall.sim.whatif import PilotStay

    left = pilot["ended"] - submitted if pilot["ended"] else 0
    return PilotStay(site=pilot["site"], host=pilot["host"], cores=pilot["cores"], memory=pilot["memory"],
                     came=max(0, pilot["enrolled"] - submitted), left=left if 0 < left < end else None)  # fmt: skip


def _stay_by_tasks(tasks: list[EndedTask]) -> PilotStay:
    from windfall.sim.whatif import PilotStay

    return PilotStay(site=tasks[0].site, host=tasks[0].host, cores=_at_once(tasks), memory=0,
                     came=min(task.start for task in tasks), left=None)  # fmt: skip


def _at_once(tasks: list[EndedTask]) -> int:
    changes = sorted([(task.start, 1) for task in tasks] + [(task.start + max(1, task.wall), -1) for task in tasks])
    level = most = 0
    for _, change in changes:
        level += change
        most = max(most, level)
    return most
