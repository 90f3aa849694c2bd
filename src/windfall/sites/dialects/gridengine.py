"""The dialect of Grid Engine: Sun's and its descendants (Son of Grid Engine, Univa, Altair).

Grid Engine sends SIGUSR2 to a job before it kills it (`-notify`); the queue sets how long before.  The tables of
`qstat` shorten names, so this dialect reads its XML.  `qstat` does not list ended jobs.

Options of a site: `pe`, the parallel environment for several cores on one host (default `smp`); `pe-nodes`, the one for
several hosts; `memory`, the resource for memory per core (such as `mem_free` or `h_vmem`; without it, jobs ask for no
memory); `gpu`, the resource for GPUs (default `gpu`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from shlex import quote

from windfall.errors import BadInput
from windfall.sites.dialects import reasons, text
from windfall.sites.dialects.job import (
    HELD,
    QUEUED,
    RUNNING,
    Answer,
    Balance,
    Command,
    Job,
    Listed,
    Room,
    check,
    nonce_of,
)
from windfall.sites.dialects.script import ArrayIndex, script

_ID = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?")
_TERSE = re.compile(r"(\d{1,18})(?:\.\d{1,9}-\d{1,9}:\d{1,9})?")
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_RESOURCE = re.compile(r"[A-Za-z_][\w.]{0,99}")

REFUSALS: text.Table = (
    (r"max_aj_tasks|array.*(?:limit|too)|max_aj_instances", text.ARRAY),
    (r"jobs are allowed|would exceed|max_u_jobs|max_jobs|job limit|number of (?:active )?jobs|resource quota",
     text.LIMIT),
    (r"project .*(?:does not exist|unknown)|no such project|access to project|unknown project|not member of project",
     text.ACCOUNT),
    (r"parallel environment|unknown resource|requested (?:unknown )?resource|could not be scheduled|no suitable queues",
     text.SHAPE),
    (r"unknown queue|no such queue|queue .*does not exist|requested queue", text.QUEUE),
    (r"no submit host|not (?:a )?submit host|has no permission|denied: .*(?:user|host)|no permission", text.DENIED),
    (r"commlib error|unable to (?:contact|send)|got (?:select|send|read) error|can't (?:connect|get)|failed receiving "
     r"gdi|qmaster", text.BUSY),
)


def submit(job: Job) -> Command:
    return Command(tuple(_options(check(job))), render(job))


def render(job: Job) -> str:
    """Return the script.  The variable tells the pilot to shield its tasks from SIGUSR2, which goes to every process of
    the job and would end them.  The script itself must not ignore the signal: a job that is warned before its pilot
    listens must end at once, or it would take tasks and be killed while they run."""
    return script(job, ArrayIndex("$SGE_TASK_ID"), '"$JOB_ID"',
                  before="WINDFALL_WARNING=USR2; export WINDFALL_WARNING")


def _options(job: Job) -> Iterator[str]:
    shape = job.shape
    yield from ("qsub", "-terse", "-N", job.name, "-S", "/bin/sh", "-cwd", "-j", "y", "-o", job.folder + "/")
    yield from ("-r", "n", "-notify", "-l", f"h_rt={shape.walltime}")
    if shape.cores * shape.nodes > 1:
        yield from ("-pe", _environment(job), str(shape.cores * shape.nodes))
    if shape.memory and "memory" in job.options:
        yield from ("-l", f"{_resource(job.options['memory'])}={-(-shape.memory // shape.cores)}")
    if shape.gpus:
        yield from ("-l", f"{_resource(job.options.get('gpu', 'gpu'))}={shape.gpus}")
    if shape.whole:
        yield from ("-l", "exclusive=true")
    if job.account:
        yield from ("-P", job.account)
    if job.queue:
        yield from ("-q", job.queue)
    if job.count > 1:
        yield from ("-t", f"1-{job.count}")


def _environment(job: Job) -> str:
    if job.shape.nodes == 1:
        return _resource(job.options.get("pe", "smp"))
    if "pe-nodes" not in job.options:
        raise BadInput("a pilot on several nodes needs a parallel environment for them",
                       'ask the site, or run `qconf -spl`; then write pe-nodes = "…" in [options]')
    return _resource(job.options["pe-nodes"])


def _resource(name: str) -> str:
    if not _RESOURCE.fullmatch(name):
        raise BadInput(f"{name!r} is not a name Grid Engine could have")
    return name


def submitted(answer: Answer) -> str:
    found = _TERSE.fullmatch(answer.out.strip().rpartition("\n")[2])
    if answer.exit or not found:
        raise text.refusal(answer, REFUSALS, "Grid Engine refused the job")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return [f"{id}.{index + 1}" for index in range(job.count)] if job.count > 1 else [id]


def listing(user: str) -> Command:
    return Command(("env", "LC_ALL=C", "TZ=UTC", "qstat", "-u", text.login(user), "-g", "d", "-s", "prs", "-r", "-xml"))


def listed(answer: Answer) -> list[Listed]:
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "Grid Engine did not list the jobs")
    return text.jobs(job for each in text.from_xml(answer.out, "job_info", "job_list") for job in _jobs(each))


def _jobs(each: dict[str, str]) -> Iterator[Listed]:
    number = each.get("JB_job_number", "").strip()
    if not _ID.fullmatch(number):
        return
    code = each.get("state", "").strip()
    name = each.get("full_job_name") or each.get("JB_name", "")
    start = text.when(each.get("JAT_start_time", "").partition(".")[0], "%Y-%m-%dT%H:%M:%S")
    for index in _indices(each.get("tasks", "")):
        id = f"{number}.{index}" if index else number
        yield Listed(id=id, nonce=nonce_of(name, max(index, 1) - 1), state=_state(code),
                     reason=text.plain(reasons.gridengine(code)), start=start,
                     cores=text.whole(each.get("slots", "")) or 0)


def _indices(tasks: str) -> Iterable[int]:
    """Return the indices in `7`, or in `1-9:2` for array tasks that wait together."""
    found = [each for part in tasks.split(",") if (each := _TASKS.fullmatch(part.strip()))]
    return chain.from_iterable(
        range(int(each[1]), int(each[2] or each[1]) + 1, int(each[3] or 1) or 1) for each in found) if found else (0,)


def _state(code: str) -> str:
    if "q" in code or "w" in code:
        return HELD if "h" in code or "E" in code else QUEUED
    return RUNNING


def cancel(ids: Iterable[str]) -> list[Command]:
    """Return shells that run one `qdel` per job and range of array tasks."""
    every: dict[str, list[int]] = {}
    for chunk in text.chunks(ids, _ID):
        for each in chunk:
            job, _, index = each.partition(".")
            every.setdefault(job, []).extend([int(index)] if index else [])
    wanted = [f"{job} -t {low}-{high}" if low else job
              for job, indices in every.items() for low, high in _runs(indices)]
    return [text.shell("status=0", *(f"qdel {each} || status=$?" for each in wanted[at : at + text.CHUNK]),
                       "exit $status") for at in range(0, len(wanted), text.CHUNK)]


def _runs(indices: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive indices: 1–3 and 7–7 for 1,2,3,7."""
    if not indices:
        yield 0, 0
    low = high = -1
    for index in sorted(set(indices)):
        if index != high + 1 or low < 0:
            if low >= 0:
                yield low, high
            low = index
        high = index
    if low >= 0:
        yield low, high


def cancelled(answer: Answer) -> None:
    output = (answer.out + answer.err).lower()
    if answer.exit and not re.search("does not exist|already (?:in deletion|registered)|registered the job", output):
        raise text.refusal(answer, REFUSALS, "Grid Engine did not cancel the jobs")


def balance(user: str, account: str) -> Command | None:
    return None


def balanced(answer: Answer) -> list[Balance]:
    return []


def room(queue: str) -> Command | None:
    which = "-q " + quote(queue) if queue else ""
    return text.shell(f"qstat -g c {which} || exit", "qstat -s p -u '*' -g d | awk 'NR > 2' | wc -l")


def roomed(answer: Answer) -> Room:
    """Parse the table `CLUSTER QUEUE  CQLOAD  USED  RES  AVAIL  TOTAL …`, a line per queue after a rule."""
    rows = [line.split() for line in text.lines(answer.out)]
    numbers = [(text.whole(row[4]), text.whole(row[5])) for row in rows if len(row) >= 8]
    free = [(free, total) for free, total in numbers if free is not None and total is not None]
    if answer.exit or not free:
        return Room(None, None, None)
    return Room(sum(each[0] for each in free), sum(each[1] for each in free), text.whole(rows[-1][0]) if rows else None)
