"""Write a bag that has run as WfFormat 1.5: its tasks, their order, and each task's times, memory and host.

A task's id is its parameter `id` or `name` if these are unique and every task has one, else its target and number.  A
target that waits for another target is written edge by edge, as the format has nothing else.  The files are the tasks'
output files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from windfall import __version__
from windfall.errors import BadInput, TooLarge
from windfall.model.spec import Bag, Target
from windfall.model.templates.render import Renderer, source_count
from windfall.workflow.wfformat import instance as wf

MAX_EDGES = 2_000_000

Row = Mapping[str, Any]
_ID = re.compile(r"[0-9a-zA-Z_.#-]{1,1000}")
_NO_FILE = re.compile(r"[^0-9a-zA-Z_./:#-]")


def exported(bag: Bag, rows: Iterable[Row]) -> wf.RecordedWorkflow:
    """Return the bag as a recorded workflow; `rows` are the results, one per ended task."""
    total = sum(source_count(target.source) for target in bag.targets)
    if total > wf.MAX_TASKS:
        raise TooLarge(f"the bag has {total:,} tasks; at most {wf.MAX_TASKS:,} are written as WfFormat")
    ended = {row["task"]: row for row in rows}
    tasks = _tasks(bag)
    _order(bag, tasks)
    files = _files(tasks, ended)
    runs = _runs(bag, tasks, ended)
    body = wf.Body(specification=wf.Specification(tasks=tasks, files=files), execution=_execution(runs, ended))
    instance = wf.Instance(
        name=bag.name, schema_version="1.5", workflow=body,
        runtime_system=wf.System(name="Windfall", version=__version__),
    )  # fmt: skip
    return wf.loads(msgspec.json.encode(instance), f"bag '{bag.name}'")


# --- the graph -------------------------------------------------------------------------------------------------------


def _tasks(bag: Bag) -> list[wf.TaskSpec]:
    params = [(target.name, each) for target in bag.targets for each in _parameters(target)]
    own = [str(each.get("id") or each.get("name") or "") for _, each in params]
    if len(set(own)) < len(own) or not all(map(_ID.fullmatch, own)):
        own = [f"{target}-{number}" for number, (target, _) in enumerate(params)]
    names = (_name(target, each) for target, each in params)
    return [wf.TaskSpec(name=name, id=task, parents=[], children=[]) for task, name in zip(own, names, strict=True)]


def _parameters(target: Target) -> Iterator[Mapping[str, Any]]:
    renderer = Renderer(target)
    return (renderer.params(number) for number in range(source_count(target.source)))


def _name(target: str, params: Mapping[str, Any]) -> str:
    return str(params.get("name", "")) or target


def _order(bag: Bag, tasks: list[wf.TaskSpec]) -> None:
    for count, (before, after) in enumerate(_pairs(bag)):
        tasks[before].children.append(tasks[after].id)
        tasks[after].parents.append(tasks[before].id)
        if count >= MAX_EDGES:
            raise TooLarge(f"WfFormat has every edge on its own, and there are more than {MAX_EDGES:,}")


def _pairs(bag: Bag) -> Iterator[tuple[int, int]]:
    flows = zip(bag.flows.before, bag.flows.after, strict=True) if bag.flows else ()
    yield from dict.fromkeys([*bag.edges, *((before, after) for before, after in flows if before >= 0)])
    spans: dict[str, range] = {}
    first = 0
    for target in bag.targets:
        spans[target.name] = range(first, first + source_count(target.source))
        first = spans[target.name].stop
    for target in bag.targets:
        for name in target.after:
            yield from ((before, after) for after in spans[target.name] for before in spans[name])


# --- the execution ---------------------------------------------------------------------------------------------------


def _files(tasks: list[wf.TaskSpec], ended: Mapping[int, Row]) -> list[wf.File]:
    """List the output files; a name that several tasks used gets the task's id as a folder."""
    found: dict[str, wf.File] = {}
    for number, row in ended.items():
        names = []
        for path, _, size, _ in row.get("files") or []:
            name = _NO_FILE.sub("_", str(path))
            while name in found:
                name = f"{_NO_FILE.sub('_', tasks[number].id)}/{name}"
            found[name] = wf.File(id=name, size_in_bytes=int(size))
            names.append(name)
        if names:
            tasks[number].output_files = names
    return list(found.values())


def _runs(bag: Bag, tasks: list[wf.TaskSpec], ended: Mapping[int, Row]) -> list[wf.TaskRun]:
    cores = [target.resources.cores for target in bag.targets for _ in range(source_count(target.source))]
    return [_run(tasks[number].id, cores[number], row) for number, row in ended.items() if _ran(row)]


def _ran(row: Row) -> bool:
    return bool(row.get("started") and row.get("ended"))


def _run(task: str, cores: int, row: Row) -> wf.TaskRun:
    wall = int(row["wall"] or 0)
    run = wf.TaskRun(
        id=task, runtime_in_seconds=wall / 1000, executed_at=_moment(row["started"]), core_count=float(cores),
        machines=[str(row["host"])] if row.get("host") else msgspec.UNSET,
    )  # fmt: skip
    if wall:
        run.avg_cpu = round(100 * int(row["cpu"] or 0) / wall, 4)
    if row.get("rss"):
        run.memory_in_bytes = float(row["rss"])
    return run


def _execution(runs: list[wf.TaskRun], ended: Mapping[int, Row]) -> wf.Execution | msgspec.UnsetType:
    if not runs:
        return msgspec.UNSET
    rows = [row for row in ended.values() if _ran(row)]
    began, over = min(int(row["started"]) for row in rows), max(int(row["ended"]) for row in rows)
    hosts = dict.fromkeys(host for run in runs if run.machines for host in run.machines)
    machines = [wf.Machine(node_name=host) for host in hosts]
    return wf.Execution(makespan_in_seconds=(over - began) / 1000, executed_at=_moment(began), tasks=runs,
                        machines=machines or msgspec.UNSET)


def _moment(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03}+00:00"


def refuse_grown(count: int) -> None:
    if count:
        raise BadInput("tasks were added to this bag after it was submitted: it is not written as WfFormat",
                       "its results are there as JSON, CSV and Parquet")
