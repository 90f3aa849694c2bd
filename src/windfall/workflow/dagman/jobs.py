"""Turn the nodes of a DAG, with their submit descriptions, into jobs: command, inputs, outputs, resources.

Rules
  * A job sees the folder of the DAG file: a file called `sub/x` there lies at `sub/x` for the job, too, and the job
    runs in the folder that DIR and `initialdir` name.
  * A job's input is an output of an earlier node (on a lower level of the graph; then the job waits for that node), or
    else a file that lies on this machine now.
  * A program or script is sent along, unless it is one of the system's own: /bin, /usr and such.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from windfall.errors import BadInput, Mistakes as Several, TooLarge
from windfall.workflow.dagman.macros import DAG_NUMBER, MacroError
from windfall.workflow.dagman.nodes import Graph, Node, Script
from windfall.workflow.dagman.queue import QueueError, QueueStatement
from windfall.workflow.dagman.submit_file import UNIVERSES, Description, Values, extend, read
from windfall.workflow.mistakes import KEPT, MistakeLog
from windfall.workflow.text import Source, read_source

MAX_SUBMIT = 4 << 20
MAX_JOBS = 1_000_000
MAX_EDGES = 5_000_000  # between jobs
MAX_FOLDER = 10_000  # files of a folder that is sent along
SYSTEM = ("/bin/", "/sbin/", "/usr/", "/lib/", "/opt/")
ELSEWHERE = ("http:", "https:", "ftp:", "file:", "osdf:", "stash:", "s3:", "gs:", "box:", "gdrive:")


class FileEntry(NamedTuple):
    """An entry of a submit description that names files."""

    values: Values
    name: str

    def mistake(self, message: str, hint: str = "") -> BadInput:
        return self.values.description.mistake(self.name, message, hint)


class DagEnd(NamedTuple):
    """How the nodes of a DAG ended: DAGMan's $DAG_STATUS, and the number of failed nodes."""

    status: int
    failed: int


class NodeOutput(NamedTuple):
    """An output file of another node."""

    node: int
    name: str


@dataclass
class NodeJob:
    number: int  # of its node, or above all nodes if the node queues several
    node: Node
    at: int = 0  # number of its node
    name: str = ""  # of its task
    step: int = 1  # of its node: 0 PRE script, 1 jobs, 2 POST script, if these are tasks of their own
    folder: str = ""  # relative to the DAG file's folder
    run: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    output: str = ""
    error: str = ""
    leaves: list[str] = field(default_factory=list)  # further output files
    reads: dict[str, NodeOutput | Path] = field(default_factory=dict)  # path for the job → its source
    cores: int = 1
    memory: int = 0
    disk: int = 0
    gpus: int = 0
    container: str = ""
    pre: list[str] = field(default_factory=list)  # words for the shell, quoted
    post: list[str] = field(default_factory=list)

    def outputs(self) -> list[str]:
        return list(dict.fromkeys(each for each in (self.output, self.error, *self.leaves) if each))


class NodeJobs:
    """The jobs of all nodes that are to run, by number."""

    def __init__(self, graph: Graph, ended: DagEnd | None = None) -> None:
        """Prepare the jobs of a graph; `ended`, for the FINAL node, says how the other nodes ended."""
        self.graph = graph
        status, failed = ended or DagEnd(0, 0)
        self.given = {
            "dag_status": str(status), "failed_count": str(failed), "dagmanjobid": str(graph.bag or DAG_NUMBER),
            "islinux": "1", "iswindows": "0",
        }  # fmt: skip
        self.base = Path(os.path.abspath(graph.base))
        self.notes = dict(graph.notes)
        self._mistakes = MistakeLog()
        self._whole = True  # are the outputs of every node known?
        self._read: dict[tuple[Path | str, str], Description | BadInput] = {}
        self._folders: dict[Path, str] = {}
        self._steps: dict[int, list[NodeJob]] = {}  # node → its jobs
        self._further = 0  # jobs beyond the first of each node
        self._makers: dict[str, list[NodeOutput]] = {}
        self._values: dict[int, Values] = {}
        self._missing: dict[str, BadInput] = {}  # file that is not here → its first mistake
        self._jobs: dict[tuple[Path, QueueStatement], list[dict[str, str]]] = {}  # of a queue statement
        self.each: dict[int, NodeJob] = {}

    def all(self) -> dict[int, NodeJob]:
        todo = [(number, node) for number, node in enumerate(self.graph.nodes) if not (node.done or node.left)]
        for number, node in todo:
            self._try(partial(self._outside, number, node))
        self._whole = not self._mistakes
        for job in self.each.values():
            self._try(partial(self._inside, job))
        if self.graph.final is not None:
            self._try(partial(self._check_final, self.graph.final))
        self._mistakes.tell()
        return self.each

    def _check_final(self, node: Node) -> None:
        """Check the FINAL node now, although its task is made only when all other nodes have ended."""
        last = NodeJobs(self.graph)
        last._makers, last._whole, last._further = self._makers, self._whole, self._further
        last.each = dict(self.each)
        last.final(node)
        self.notes.update(last.notes)

    def final(self, node: Node) -> list[NodeJob]:
        self._outside(-1, node)
        jobs = list(self._steps[-1])
        for job in jobs:
            self._inside(job)
        self._mistakes.tell()
        return jobs

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TooLarge:
            raise
        except BadInput as error:
            for each in error.each if isinstance(error, Several) else [error]:
                if not each.where:
                    raise
                self._mistakes.keep(each)
            if len(self._mistakes.each) >= KEPT:
                self._mistakes.tell()

    def _absent(self, path: Path, error: BadInput) -> BadInput:
        """Return the first mistake about a missing file, so that the log keeps one however many nodes name the file."""
        return self._missing.setdefault(os.path.abspath(path), error)

    # --- descriptions ------------------------------------------------------------------------------------------------

    def _description(self, node: Node) -> Description:
        if node.inline is not None:
            return read(node.source, *node.inline)
        assert node.submit is not None
        scope = node.name.rpartition("+")[0]
        named = f"{scope}+{node.submit.text}" if scope else node.submit.text
        folder = "" if named in self.graph.described else node.folder
        known = (folder, node.submit.text if folder else named)
        if known not in self._read:
            self._read[known] = self._read_once(node, named)
        found = self._read[known]
        if isinstance(found, BadInput):
            raise found
        return found

    def _read_once(self, node: Node, named: str) -> Description | BadInput:
        """Read a submit description, or keep its error: a million nodes may share a file that cannot be read."""
        assert node.submit is not None
        path = node.folder / node.submit.text
        try:
            if named in self.graph.described:
                return read(*self.graph.described[named])
            if os.path.isfile(path):
                return read(read_source(path, MAX_SUBMIT))
        except TooLarge:
            raise
        except BadInput as error:
            return error
        raise self._absent(path, node.source.mistake(
            node.submit.at, f"there is no submit file {path}",
            "relative names start at the DAG file's folder, or at DIR"))

    def _given(self, node: Node, number: int) -> list[Values]:
        """Return the values of each job of a node."""
        own = {"job": node.called, "cluster": str(number + 1), "clusterid": str(number + 1), "process": "0",
               "procid": "0", "node": node.called, "step": "0", "row": "0", "retry": str(node.tries), **self.given}
        description = self._description(node)
        node.described = description.asks
        try:
            extend(own, ((name, value) for name, value, later in node.vars if not later))
            later = [(name, value) for name, value, later in node.vars if later]
            if description.queue.plain and not description.further:
                return [Values(description, own, later)]
            given = [(each, macros) for each in (description, *description.further)
                     for macros in self._queued(node, Values(each, own, later))]
            return [Values(each, {**own, "process": str(process), "procid": str(process)}, [*macros.items(), *later])
                    for process, (each, macros) in enumerate(given)]
        except MacroError as error:
            raise node.source.mistake(node.at, error.message, error.hint) from None

    def _queued(self, node: Node, values: Values) -> list[dict[str, str]]:
        """Return the macros of each job of a queue statement, worked out once for all nodes of a folder."""
        queue = values.queue()
        known = node.folder, queue
        if known not in self._jobs:
            try:
                self._jobs[known] = queue.jobs(node.folder)
            except QueueError as error:
                raise values.description.source.mistake(queue.at, error.message, error.hint) from None
        if not self._jobs[known]:
            raise values.description.source.mistake(queue.at, "this queues no job", "do its items exist here, now?")
        return self._jobs[known]

    # --- outputs -----------------------------------------------------------------------------------------------------

    def _outside(self, number: int, node: Node) -> None:
        """Find the outputs of a node's jobs, for all nodes before any node's inputs."""
        every = [None] if node.noop else self._given(node, number)
        several = len(every) > 1
        if several:
            self._need_few(len(every), node)
            description = self._description(node)
            self.notes[f"{Path(description.source.file).name} queues {len(every):,} jobs: a task each"] = None
        for process, values in enumerate(every):
            job = self._new(number, node, f"{node.name}+{process}" if several else node.name)
            try:
                self._describe(job, values)
            except BadInput:
                self._forget(number)
                raise
        if several:
            self._add_scripts(number, node)

    def _add_scripts(self, number: int, node: Node) -> None:
        """Make a task of each script of a node that queues several jobs."""
        if node.skip is not None and node.pre:
            raise node.source.mistake(node.at, f"'{node.name}' queues several jobs, so PRE_SKIP cannot skip them",
                                      "let a node with one job go before it")
        for script, name, step in ((node.pre, "pre", 0), (node.post, "post", 2)):
            if script is not None:
                self._new(number, node, f"{node.name}++{name}", step)

    def _need_few(self, count: int, node: Node) -> None:
        if len(self.each) + count > MAX_JOBS:
            raise TooLarge(f"more than {MAX_JOBS:,} jobs of all nodes, with those of '{node.name}'")

    def _new(self, number: int, node: Node, name: str, step: int = 1) -> NodeJob:
        """Make a task of a node; the first one has the node's number."""
        own = number
        if number in self.each:
            self._further += 1
            own = -1 - self._further if number < 0 else len(self.graph.nodes) + self._further
        job = self.each[own] = NodeJob(
            number=own, node=node, at=number, name=name, step=step, folder=self._folder(node))
        self._steps.setdefault(number, []).append(job)
        return job

    def _forget(self, number: int) -> None:
        """Drop the jobs of a node with a mistake: others would only follow from it."""
        for job in self._steps.pop(number):
            del self.each[job.number]

    def _describe(self, job: NodeJob, values: Values | None) -> None:
        if values is None:
            return
        self._values[job.number] = values
        start = values.get("initialdir") or values.get("initial_dir")
        if start:
            at = values.description.at("initialdir" if values.get("initialdir") else "initial_dir")
            job.folder = self._relative(job.node.folder / start, values.description.source, at)
        self._leaves(job, values)
        for name in job.outputs():
            self._makers.setdefault(name, []).append(NodeOutput(job.number, name))
            flat = _joined(job.folder, name.rpartition("/")[2])
            if flat != name:
                self._makers.setdefault(flat, []).append(NodeOutput(job.number, name))

    def _around(self, job: NodeJob) -> tuple[Script | None, Script | None]:
        """Return the scripts that run in a job's task: both of a node with one job, or the one that is a task."""
        if len(self._steps[job.at]) == 1:
            return job.node.pre, job.node.post
        return job.node.pre if job.step == 0 else None, job.node.post if job.step == 2 else None

    def edges(self) -> set[tuple[int, int]]:
        """Return which job waits for which, by their numbers."""
        found: set[tuple[int, int]] = set()
        for before, after in self.graph.pairs:
            if before in self._steps and after in self._steps:
                last = max(job.step for job in self._steps[before])
                first = min(job.step for job in self._steps[after])
                found.update(self._between(before, last, after, first))
        for number, jobs in self._steps.items():
            steps = sorted({job.step for job in jobs})
            for one, next_ in pairwise(steps):
                found.update(self._between(number, one, number, next_))
        if len(found) > MAX_EDGES:
            raise TooLarge(f"more than {MAX_EDGES:,} edges between jobs", "a NOOP node between two nodes joins them")
        return found

    def _between(self, before: int, last: int, after: int, first: int) -> list[tuple[int, int]]:
        ends = [job.number for job in self._steps[before] if job.step == last]
        starts = [job.number for job in self._steps[after] if job.step == first]
        if len(ends) * len(starts) > MAX_EDGES:
            raise TooLarge(f"more than {MAX_EDGES:,} edges between jobs", "a NOOP node between two nodes joins them")
        return [(a, b) for a in ends for b in starts]

    def _leaves(self, job: NodeJob, values: Values) -> None:
        for name in ("output", "error"):
            text = values.get(name)
            if text and text != "/dev/null":
                setattr(job, name, self._place(job, text, values, name))
        job.leaves = [self._place(job, text, values, "transfer_output_files")
                      for text in values.listed("transfer_output_files")]

    def _place(self, job: NodeJob, text: str, values: Values, name: str) -> str:
        if "/" not in text and text not in (".", ".."):
            return _joined(job.folder, text)
        at = values.description.at(name)
        return self._relative(self.base / job.folder / text, values.description.source, at)

    def _folder(self, node: Node) -> str:
        if node.folder not in self._folders:
            self._folders[node.folder] = self._relative(node.folder, node.source, node.at)
        return self._folders[node.folder]

    def _relative(self, path: Path, source: Source, at: int) -> str:
        """Return a path relative to the DAG file's folder; refuse one outside it."""
        found = os.path.relpath(os.path.abspath(path), self.base)
        if found.startswith("../") or found == "..":
            raise source.mistake(at, f"'{path}' lies outside the folder of the DAG file",
                                 "a task has that folder, and what is below it")
        return "" if found == "." else found

    # --- commands and inputs -----------------------------------------------------------------------------------------

    def _inside(self, job: NodeJob) -> None:
        node = job.node
        if job.number in self._values:
            self._job(job, self._values[job.number])
        for script, words in zip(self._around(job), (job.pre, job.post), strict=True):
            if script is not None:
                program = self._program(job, script.program.text, script.source, script.program.at)
                words.append(shlex.quote(program))
                words += [_argument(each, node, self.given) for each in script.arguments]

    def _job(self, job: NodeJob, values: Values) -> None:
        for part in (self._kind, self._run, self._needs, self._inputs):
            self._try(partial(part, job, values))
        self.notes.update(dict.fromkeys(f"'{name}' of a submit file is ignored" for name in values.unheeded()))

    def _kind(self, job: NodeJob, values: Values) -> None:
        if (universe := values.get("universe").lower()) not in UNIVERSES:
            raise values.description.mistake("universe", f"universe '{universe}' is not known here", "leave it out")

    def _run(self, job: NodeJob, values: Values) -> None:
        described, program = values.description, values.get("executable")
        if not program:
            raise described.mistake("executable", f"node '{job.node.name}' has no executable", "executable = PROGRAM")
        at = described.at("executable")
        sent = values.yes("transfer_executable", True)
        job.run = [self._program(job, program, described.source, at) if sent else program]
        job.run += values.arguments()
        job.environment = values.environment()

    def _needs(self, job: NodeJob, values: Values) -> None:
        job.cores = max(1, values.count("request_cpus", 1))
        job.gpus, job.container = values.count("request_gpus", 0), values.get("container_image")
        job.memory, job.disk = values.size("request_memory", "M"), values.size("request_disk", "K")

    def _inputs(self, job: NodeJob, values: Values) -> None:
        entry = FileEntry(values, "transfer_input_files")
        for text in values.listed(entry.name):
            if text.lower().startswith(ELSEWHERE):
                raise entry.mistake(f"'{text[:100]}' cannot be sent along", "fetch it first, or in the job itself")
            self._read_file(job, text, entry)
        stdin = values.get("input")
        if stdin and stdin != "/dev/null":
            self._read_file(job, stdin, FileEntry(values, "input"))
            job.stdin = PurePosixPath(stdin).name

    def _read_file(self, job: NodeJob, text: str, entry: FileEntry) -> None:
        home = self.base / job.folder / text
        place = _joined(job.folder, PurePosixPath(text).name)
        made = self._made(job, home)
        if made is not None:
            self._put(job, place, made, entry)
        elif os.path.isdir(home):
            inner = job.folder if text.endswith("/") else place
            for file in _below(home):
                if not (home / file).is_file():
                    raise entry.mistake(f"'{home / file}' is not a plain file, so it cannot be sent")
                self._put(job, _joined(inner, file), home / file, entry)
        elif os.path.isfile(home):  # unlike `Path.is_file`, no error where the name is too long
            self._put(job, place, Path(os.path.abspath(home)), entry)
        elif self._whole:
            raise self._absent(home, entry.mistake(
                f"node '{job.node.name}' reads '{text[:100]}', which is not here and no earlier node leaves",
                "name it in 'output' or 'transfer_output_files' of the node that makes it"))

    def _put(self, job: NodeJob, place: str, what: NodeOutput | Path, entry: FileEntry) -> None:
        if job.reads.setdefault(place, what) != what:
            raise entry.mistake(f"node '{job.node.name}' reads two files called '{place}'")

    def _made(self, job: NodeJob, home: Path) -> NodeOutput | None:
        """Return the output of the last earlier node that leaves such a file, or None."""
        makers = self._makers.get(os.path.relpath(os.path.abspath(home), self.base), [])
        levels, last = self.graph.levels, job.at < 0  # the FINAL node comes after all others
        nodes = [(self.each[made.node].at, made) for made in makers if made.node >= 0]
        before = [(levels[at], made.node, made) for at, made in nodes if last or levels[at] < levels[job.at]]
        return max(before, default=(0, 0, None))[2]

    def _program(self, job: NodeJob, text: str, source: Source, at: int) -> str:
        """Return a program's path for the job, and send the program along unless it is the system's."""
        if text.startswith(SYSTEM):
            return text
        place = _joined(job.folder, PurePosixPath(text).name)
        home = job.node.folder / text
        what: NodeOutput | Path | None = self._made(job, home)
        if what is None and os.path.isfile(home):
            what = Path(os.path.abspath(home))
        if what is None and not self._whole:
            return ""  # a node whose description could not be read may leave it
        if what is None:
            raise self._absent(home, source.mistake(
                at, f"there is no program {home}", "it goes along with the task, so it must be here"))
        if job.reads.setdefault(place, what) != what:
            raise source.mistake(at, f"node '{job.node.name}' has two files called '{place}'")
        return f"./{PurePosixPath(text).name}"


def checked(graph: Graph) -> dict[str, None]:
    """Check every node of a graph, and return the notes."""
    jobs = NodeJobs(graph)
    jobs.all()
    return jobs.notes


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _below(folder: Path) -> Iterator[str]:
    count = 0
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MAX_FOLDER:
                raise TooLarge(f"the folder {folder} has more than {MAX_FOLDER:,} files", "make an archive of it")
            yield os.path.relpath(os.path.join(where, name), folder)


SHELL = {"$RETURN": '"$RETURN"', "$PRE_SCRIPT_RETURN": '"$PRE"', "$JOBID": '"$WINDFALL_ATTEMPT.0"'}
"""Macros that only the task knows, as variables of its shell."""


def shell_word(text: str) -> str:
    """Quote a word for the shell of the task, which fills in the number of the DAG's bag."""
    return shlex.quote(text).replace(DAG_NUMBER, "'\"$WINDFALL_BAG\"'")


def _argument(text: str, node: Node, given: dict[str, str]) -> str:
    word = text.upper() if text.startswith("$") else ""
    known = {"$JOB": node.called, "$NODE": node.called, "$RETRY": str(node.tries), "$MAX_RETRIES": str(node.retries),
             "$DAG_STATUS": given["dag_status"], "$FAILED_COUNT": given["failed_count"],
             "$DAGID": given["dagmanjobid"]}
    return SHELL.get(word) or shell_word(known.get(word, text))
