"""WfFormat 1.5, the format of WfCommons: recorded workflows, task by task.

The reader checks types and bounds as in the published schema, then the rules that a schema cannot express: ids are
unique, every named task exists, no task waits for itself.  The result has the shape of a compiled application: nodes,
edges, levels.  Only parents and children order tasks; files say which data moves.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windfall.errors import BadInput, TooLarge
from windfall.workflow.graphs.dag import Dag, DagShape, cycle, shape
from windfall.workflow.graphs.named_graph import NamedGraph, dag_of
from windfall.workflow.text import read_file

MAX_FILE = 256 << 20
MAX_TASKS = 1_000_000
MAX_SECONDS = 1e12  # of one task: thirty thousand years
PROGRAM = re.compile(r"[\w./+-]{0,100}[\w+-]")  # a program's name, not a whole script

Text = Annotated[str, Meta(min_length=1)]
TaskId = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z-_.#]*\Z")]
FileId = Annotated[str, Meta(min_length=1, pattern=r"^[0-9a-zA-Z-_./:#]*\Z")]
Count = Annotated[int, Meta(ge=1)]


class WfRecord(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Base of the format's records; an optional field that is not set is absent."""


class TaskSpec(WfRecord):
    name: Text
    id: Text
    parents: list[TaskId]
    children: list[TaskId]
    input_files: list[FileId] | msgspec.UnsetType = msgspec.UNSET
    output_files: list[FileId] | msgspec.UnsetType = msgspec.UNSET


class File(WfRecord):
    id: FileId
    size_in_bytes: Annotated[int, Meta(ge=0)]


class Specification(WfRecord):
    tasks: Annotated[list[TaskSpec], Meta(min_length=1)]
    files: list[File] | msgspec.UnsetType = msgspec.UNSET


class Command(WfRecord):
    program: Text | msgspec.UnsetType = msgspec.UNSET
    arguments: list[Text] | msgspec.UnsetType = msgspec.UNSET


class TaskRun(WfRecord):
    id: Text
    runtime_in_seconds: float
    executed_at: Text | msgspec.UnsetType = msgspec.UNSET
    command: Command | msgspec.UnsetType = msgspec.UNSET
    core_count: Annotated[float, Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    avg_cpu: float | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="avgCPU")
    read_bytes: float | msgspec.UnsetType = msgspec.UNSET
    written_bytes: float | msgspec.UnsetType = msgspec.UNSET
    memory_in_bytes: float | msgspec.UnsetType = msgspec.UNSET
    energy: float | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="energyInKWh")
    power: float | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="avgPowerInW")
    priority: float | msgspec.UnsetType = msgspec.UNSET
    machines: list[Text] | msgspec.UnsetType = msgspec.UNSET


class Cpu(WfRecord):
    core_count: Count | msgspec.UnsetType = msgspec.UNSET
    speed: Count | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="speedInMHz")
    vendor: Text | msgspec.UnsetType = msgspec.UNSET


class Machine(WfRecord):
    node_name: Text
    system: Literal["linux", "macos", "windows"] | msgspec.UnsetType = msgspec.UNSET
    architecture: Text | msgspec.UnsetType = msgspec.UNSET
    release: Text | msgspec.UnsetType = msgspec.UNSET
    memory_in_bytes: Count | msgspec.UnsetType = msgspec.UNSET
    cpu: Cpu | msgspec.UnsetType = msgspec.UNSET


class Execution(WfRecord):
    makespan_in_seconds: float
    executed_at: Text
    tasks: Annotated[list[TaskRun], Meta(min_length=1)]
    machines: Annotated[list[Machine], Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET


class Body(WfRecord):
    specification: Specification
    execution: Execution | msgspec.UnsetType = msgspec.UNSET


class Author(WfRecord):
    name: Text
    email: Text
    institution: Text | msgspec.UnsetType = msgspec.UNSET
    country: Text | msgspec.UnsetType = msgspec.UNSET


class System(WfRecord):
    name: Text
    version: Text
    url: Text | msgspec.UnsetType = msgspec.UNSET


class Instance(WfRecord):
    name: Text
    schema_version: Literal["1.5"]
    workflow: Body
    description: Text | msgspec.UnsetType = msgspec.UNSET
    created_at: Text | msgspec.UnsetType = msgspec.UNSET
    runtime_system: System | msgspec.UnsetType = msgspec.UNSET
    author: Author | msgspec.UnsetType = msgspec.UNSET


# --- reading and writing ---------------------------------------------------------------------------------------------


class RecordedWorkflow(NamedGraph):
    """A workflow that has run elsewhere, with the recorded seconds of its tasks."""

    def __init__(self, instance: Instance, dag: Dag, shape: DagShape) -> None:
        self.instance, self.dag, self.shape = instance, dag, shape
        self.title = instance.name
        self.names = [spec.name for spec in self.specs]
        self.kinds = _kinds(instance.workflow)

    @property
    def specs(self) -> list[TaskSpec]:
        return self.instance.workflow.specification.tasks

    def requirements(self) -> dict[str, Any]:
        found = super().requirements()
        found["critical_path"]["seconds"] = longest(self)
        return {**found, "components": _components(self)}

    @cached_property
    def seconds(self) -> list[float]:
        """Each task's recorded seconds; 0 if none were recorded."""
        execution = self.instance.workflow.execution
        tasks = [] if execution is msgspec.UNSET else execution.tasks
        runs = {run.id: max(0.0, run.runtime_in_seconds) for run in tasks}
        return [runs.get(spec.id, 0.0) for spec in self.specs]


def _kinds(body: Body) -> list[str]:
    """Return each task's kind: its program, or else its name without the number at the end."""
    runs = [] if body.execution is msgspec.UNSET else body.execution.tasks
    programs = {run.id: run.command.program for run in runs if run.command is not msgspec.UNSET}
    return [_kind(spec.name, programs.get(spec.id)) for spec in body.specification.tasks]


def _kind(name: str, program: object) -> str:
    if isinstance(program, str) and PROGRAM.fullmatch(program):
        return program.rsplit("/", 1)[-1]
    bare = name.rstrip("0123456789")
    bare = bare if bare == name else bare.removesuffix("ID")
    return (bare if bare == name else bare[:-1] if bare.endswith(("_", "-")) else bare) or name


def load(path: Path) -> RecordedWorkflow:
    return loads(read_file(path, MAX_FILE), str(path))


def loads(data: bytes, file: str) -> RecordedWorkflow:
    if len(data) > MAX_FILE:
        raise TooLarge(f"{file} is larger than {MAX_FILE >> 20} MiB")
    try:
        instance = msgspec.json.decode(data, type=Instance)
    except msgspec.ValidationError as error:
        raise BadInput(f"{file} is not WfFormat 1.5: {error}", "WfCommons publishes the schema of it") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text", "save the file as UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{file} is not JSON: {error}") from None
    return _checked(instance, file)


def dumps(workflow: RecordedWorkflow) -> bytes:
    """Write the workflow as JSON; fields outside the format were dropped when it was read."""
    return msgspec.json.format(msgspec.json.encode(workflow.instance), indent=1) + b"\n"


def _checked(instance: Instance, file: str) -> RecordedWorkflow:
    specs = instance.workflow.specification.tasks
    if len(specs) > MAX_TASKS:
        raise TooLarge(f"{file} has more than {MAX_TASKS:,} tasks")
    numbers: dict[str, int] = {}
    for number, spec in enumerate(specs):
        if numbers.setdefault(spec.id, number) != number:
            raise BadInput(f"{file}: two tasks have the id '{spec.id}'")
    _check_files(instance.workflow.specification, file)
    if instance.workflow.execution is not msgspec.UNSET:
        _check_runs(instance.workflow.execution, numbers, file)
    pairs = [(_known(parent, spec, numbers, file), numbers[spec.id]) for spec in specs for parent in spec.parents]
    pairs += [(numbers[spec.id], _known(child, spec, numbers, file)) for spec in specs for child in spec.children]
    dag = dag_of(len(specs), pairs)
    found = shape(dag)
    if len(found.order) < dag.nodes:
        circle = [specs[node - 1].id for node in cycle(dag, found)]
        raise BadInput(f"{file}: tasks wait for each other in a circle: {' → '.join(circle[:8])}")
    return RecordedWorkflow(instance, dag, found)


def _check_files(specification: Specification, file: str) -> None:
    ids = set[str]()
    for each in specification.files or ():
        if each.id in ids:
            raise BadInput(f"{file}: two files have the id '{each.id}'")
        ids.add(each.id)


def _check_runs(execution: Execution, numbers: dict[str, int], file: str) -> None:
    seen = set[str]()
    for run in execution.tasks:
        if run.id not in numbers:
            raise BadInput(f"{file}: the execution has a task '{run.id}', and there is no such task")
        if run.id in seen:
            raise BadInput(f"{file}: the execution has two records of task '{run.id}'")
        if run.runtime_in_seconds > MAX_SECONDS:
            raise BadInput(f"{file}: task '{run.id}' cannot have taken {run.runtime_in_seconds:g} seconds")
        seen.add(run.id)


def _known(name: str, spec: TaskSpec, numbers: dict[str, int], file: str) -> int:
    if name not in numbers:
        raise BadInput(f"{file}: task '{spec.id}' names '{name}', and there is no such task")
    return numbers[name]


# --- requirements ----------------------------------------------------------------------------------------------------


def longest(workflow: RecordedWorkflow) -> float:
    """Return the seconds of the chain that takes longest: no number of machines is faster."""
    start, after = (each.tolist() for each in workflow.dag.rows())
    begins = [0.0] * workflow.dag.nodes
    ends = [0.0] * workflow.dag.nodes
    for node in workflow.shape.order.tolist():
        ends[node] = begins[node] + (workflow.seconds[node - 1] if node else 0.0)
        for other in after[start[node] : start[node + 1]]:
            begins[other] = max(begins[other], ends[node])
    return round(max(ends), 6)


def _components(workflow: RecordedWorkflow) -> list[dict[str, Any]]:
    files = workflow.instance.workflow.specification.files
    sizes = {} if files is msgspec.UNSET else {file.id: file.size_in_bytes for file in files}
    found: dict[str, dict[str, Any]] = {}
    for spec, kind, seconds in zip(workflow.specs, workflow.kinds, workflow.seconds, strict=True):
        new = {"component": kind, "tasks": 0, "bytes_in": 0, "bytes_out": 0, "seconds": 0.0}
        entry = found.setdefault(kind, new)
        entry["tasks"] += 1
        entry["seconds"] = round(entry["seconds"] + seconds, 6)
        for key, names in (("bytes_in", spec.input_files), ("bytes_out", spec.output_files)):
            listed = [] if names is msgspec.UNSET else names
            whole = entry[key] is not None and all(name in sizes for name in listed)
            entry[key] = entry[key] + sum(sizes[name] for name in listed) if whole else None
    return list(found.values())
