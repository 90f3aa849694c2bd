"""Build a bag from the jobs of a DAG: a task for each node, which runs PRE script, job and POST script in turn.

One task runs all three: a retry repeats all three, the job finds the files of the PRE script, the POST script those of
the job, and none of them runs on the submitting machine.  `dagnode.sh`, sent along, keeps them in order.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from windfall.errors import BadInput
from windfall.model.bagfile.reader import Parsed
from windfall.model.spec import Check, Input, Resources, Target
from windfall.workflow.build.assemble import ShellJob, assemble
from windfall.workflow.build.blobs import Blob, BlobCollector
from windfall.workflow.dagman.jobs import DagEnd, NodeJob, NodeJobs, NodeOutput, shell_word
from windfall.workflow.dagman.nodes import Graph, Node, Script
from windfall.workflow.wfformat.sleep_tasks import bag_name, target_name

NODE = Path(__file__).with_name("dagnode.sh")
THERE = ".dagnode.sh"  # its path in the task's directory


def parsed(graph: Graph) -> Parsed:
    found = NodeJobs(graph)
    jobs = found.all()
    if not jobs and graph.final is not None:  # the FINAL node is the only one left
        graph.last = True
        return final(graph, graph.final, DagEnd(0, 0))
    if not jobs:
        raise BadInput(f"all nodes of {graph.file} are done", "--fresh runs them again")
    return _bag(graph, bag_name(graph.title), found, list(jobs.values()))


def final(graph: Graph, node: Node, ended: DagEnd) -> Parsed:
    """Make a bag of the FINAL node alone, told how the other nodes ended."""
    found = NodeJobs(graph, ended)
    return _bag(graph, bag_name(f"{graph.title}-{node.name}"), found, found.final(node))


def _bag(graph: Graph, name: str, found: NodeJobs, jobs: list[NodeJob]) -> Parsed:
    places = {job.number: place for place, job in enumerate(jobs)}
    edges = sorted((places[a], places[b]) for a, b in found.edges())
    graph.parts.update({job.name: job.node.name for job in jobs if job.name != job.node.name})
    most = graph.most if jobs[0].at >= 0 else {}
    files = BlobCollector()
    runner = files.blob(NODE)
    tasks = [_task(job, places, files, _like(job, runner, most)) for job in jobs]
    return Parsed(assemble(name, tasks, edges).bag, files.uploads, {})


def _task(job: NodeJob, places: dict[int, int], files: BlobCollector, like: Target) -> ShellJob:
    takes, brings = [], []
    for place, what in job.reads.items():
        if isinstance(what, NodeOutput):
            takes.append((places[what.node], what.name, place))
        else:
            brings.append((place, *files.blob(what)))
    return ShellJob(_command(job), tuple(job.outputs()), tuple(takes), tuple(brings), job.name, like=like)


def _like(job: NodeJob, runner: Blob, most: dict[str, int]) -> Target:
    node = job.node
    hopeless = {code for code in (node.unless, node.abort[0] if node.abort else None) if code and code < 256}
    return Target(
        name=target_name(node.kind),
        resources=Resources(cores=job.cores, memory=job.memory, disk=job.disk, gpus=job.gpus),
        container=job.container, priority=node.priority, retries=0 if node.asks else node.retries,
        inputs=[Input(path=THERE, blob=runner[0], size=runner[1])], check=Check(hopeless=sorted(hopeless)),
        at_once=most.get(node.category, 0), crowd=node.category if node.category in most else "",
    )  # fmt: skip


# --- lines for the shell ---------------------------------------------------------------------------------------------


def _command(job: NodeJob) -> str:
    error = job.error if job.error != job.output else ""
    words = [_job(job), job.output, error]
    if job.pre or job.post:
        skip = "" if job.node.skip is None else str(job.node.skip)
        words += [_script(job, job.pre, job.node.pre), _script(job, job.post, job.node.post), skip]
    if job.pre or job.post or not job.run:
        words += [*[""] * (6 - len(words)), " ".join(map(shlex.quote, job.outputs()))]
    return " ".join(["sh", THERE, *map(shlex.quote, words)])


def _job(job: NodeJob) -> str:
    if not job.run:
        return ""
    exports = [f"export {name}={shell_word(value)};" for name, value in job.environment.items()]
    words = " ".join(map(shell_word, job.run)) + (f" < {shlex.quote(job.stdin)}" if job.stdin else "")
    both = " 2>&1" if job.error and job.error == job.output else ""
    return " ".join([*exports, _there(job) + words + both])


def _script(job: NodeJob, words: list[str], script: Script | None) -> str:
    if script is None or not words:
        return ""
    line = _there(job) + " ".join(words)
    if script.defer is None:
        return line
    code, seconds = script.defer
    return f"while :; do ( {line} ); s=$?; [ $s = {code} ] || exit $s; sleep {seconds}; done"


def _there(job: NodeJob) -> str:
    return f"mkdir -p -- {shlex.quote(job.folder)} && cd -- {shlex.quote(job.folder)} && " if job.folder else ""
