"""Build a bag from a recorded workflow with its recorded commands.

A task's shell command is its program and arguments, as recorded, with blanks between them.  Its input is an output of
an earlier task (on a lower level; then it waits for that task), or else a file beside the workflow's file.  A file
called `/a/b` there lies at `a/b` for the task; a program that lies beside the file is sent along.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from windfall.errors import BadInput
from windfall.model.bagfile.reader import Parsed
from windfall.model.checks.bag import MAX_CORES
from windfall.model.spec import Resources, Target
from windfall.workflow.build.assemble import ShellJob, assemble
from windfall.workflow.build.blobs import BlobCollector
from windfall.workflow.wfformat.instance import Command, RecordedWorkflow, TaskSpec
from windfall.workflow.wfformat.sleep_tasks import bag_name, target_name

TakenFile = tuple[int, str, str]  # as in ShellJob.takes
BroughtFile = tuple[str, str, int, int]  # as in ShellJob.brings


def parsed(workflow: RecordedWorkflow, base: Path) -> Parsed:
    return _RecordedBag(workflow, base).parsed()


class _RecordedBag:
    def __init__(self, workflow: RecordedWorkflow, base: Path) -> None:
        self.workflow, self.base, self.files = workflow, base, BlobCollector()
        execution = workflow.instance.workflow.execution
        self.runs = {} if execution is msgspec.UNSET else {run.id: run for run in execution.tasks}
        self.makers: dict[str, list[int]] = {}
        for number, spec in enumerate(workflow.specs):
            for name in spec.output_files or ():
                self.makers.setdefault(name, []).append(number)

    def parsed(self) -> Parsed:
        jobs = [self._job(number, spec) for number, spec in enumerate(self.workflow.specs)]
        dag = self.workflow.dag
        edges = zip((dag.src - 1).tolist(), (dag.dst - 1).tolist(), strict=True)
        bag = assemble(bag_name(self.workflow.title), jobs, edges).bag
        return Parsed(bag, self.files.uploads, {})

    def _job(self, number: int, spec: TaskSpec) -> ShellJob:
        run = self.runs.get(spec.id)
        if run is None or run.command is msgspec.UNSET or run.command.program is msgspec.UNSET:
            raise BadInput(f"task '{spec.id}' has no command", "--stand-ins take its time instead")
        takes, brings = self._inputs(number, spec)
        line, own = self._line(run.command)
        if own and own[0] not in {place for place, *_ in brings}:
            brings.append(own)
        cores = 1 if run.core_count is msgspec.UNSET else math.ceil(run.core_count)
        if cores > MAX_CORES:
            raise BadInput(f"task '{spec.id}' cannot have had {run.core_count:g} cores")
        outputs = tuple(dict.fromkeys(_place(name, spec) for name in spec.output_files or ()))
        like = Target(name=target_name(self.workflow.kinds[number]), resources=Resources(cores=cores))
        return ShellJob(line, outputs, tuple(dict.fromkeys(takes)), tuple(dict.fromkeys(brings)), spec.id, like=like)

    def _inputs(self, number: int, spec: TaskSpec) -> tuple[list[TakenFile], list[BroughtFile]]:
        """Return the input files that earlier tasks leave, and those that are sent from here."""
        takes: list[TakenFile] = []
        brings: list[BroughtFile] = []
        for name in spec.input_files or ():
            maker = self._maker(number, name)
            if maker is None:
                brings.append((_place(name, spec), *self._blob(name, spec)))
            else:
                takes.append((maker, _place(name, spec), _place(name, spec)))
        return takes, brings

    def _maker(self, number: int, name: str) -> int | None:
        """Return the last earlier task that leaves such a file, or None."""
        levels = self.workflow.levels
        before = [each for each in self.makers.get(name, ()) if levels[each] < levels[number]]
        return max(before, key=lambda each: (levels[each], each), default=None)

    def _blob(self, name: str, spec: TaskSpec) -> tuple[str, int, int]:
        path = self.base / name.lstrip("/")
        if not path.is_file():
            raise BadInput(f"task '{spec.id}' reads '{name}', which no task before it leaves, and {path} is not there",
                           "put its inputs beside the file; --stand-ins need none")
        return self.files.blob(path)

    def _line(self, command: Command) -> tuple[str, tuple[str, str, int, int] | None]:
        program, arguments = str(command.program), [] if command.arguments is msgspec.UNSET else command.arguments
        own, path = None, self.base / program
        if not program.startswith("/") and ".." not in program.split("/") and len(program) < 200 and path.is_file():
            own = (program.removeprefix("./"), *self.files.blob(path))
            program = f"./{own[0]}"
        return " ".join([program, *arguments]), own


def _place(name: str, spec: TaskSpec) -> str:
    place = name.lstrip("/").removeprefix("./")
    if ".." in place.split("/") or not place.strip("./"):
        raise BadInput(f"task '{spec.id}' names a file '{name}' outside its folder")
    return place
