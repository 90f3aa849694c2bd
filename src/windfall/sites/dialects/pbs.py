"""The dialects of PBS: OpenPBS and PBS Professional (`pbs`), Torque and its relatives (`torque`).

The site's file tells which of the two it is, since their options `-t` and `-x` differ.  Not every `qsub` reads standard
input, so the script is written to a file, and removed when the server has taken it.  PBS warns a job only by SIGTERM a
few seconds before its end, so the pilot watches its wall time itself.

OpenPBS requires that arrays may be run again: a pilot that PBS restarts enrols as a new epoch of the same pilot.

Options of a site: `mail`, any value but "no" keeps the site's own mail settings; `output`, a path for logs if a folder
will not do, as with PBS's commands over Slurm.  Those commands list an array as one job: there, submit one pilot at a
time (arrays = false).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from shlex import quote

from windfall.sites.dialects import text
from windfall.sites.dialects.job import (
    ENDED,
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

_ID = re.compile(r"(\d{1,18})(?:\[(\d{0,9})\]|_(\d{1,9})|-(\d{1,9}))?(\.[\w.-]{1,200})?")
_STATES = {"Q": QUEUED, "W": QUEUED, "T": QUEUED, "M": QUEUED, "H": HELD, "R": RUNNING, "E": RUNNING, "S": RUNNING,
           "U": RUNNING, "B": RUNNING, "F": ENDED, "X": ENDED, "C": ENDED}
_GONE = re.compile(r"unknown job|has finished|invalid job id|already complet", re.IGNORECASE)
_FIELD = re.compile(r"\s+([A-Za-z_][\w.]{0,100}) = (.*)")

REFUSALS: text.Table = (
    (r"array.*(?:size|range|limit|illegal)|illegal -[jt] value|max_array_size|max_slot_limit", text.ARRAY),
    (r"maximum number of jobs|would exceed.*limit|max_(?:user_)?(?:queued|queuable|run)|limit on number of jobs"
     r"|too many jobs|accounting/qos policy", text.LIMIT),
    (r"invalid account|account .*(?:not|invalid)|invalid project|project .*not|allocation", text.ACCOUNT),
    (r"unknown queue|queue is not enabled|access to queue|no default queue|invalid partition", text.QUEUE),
    (r"exceeds queue|resource limits|unknown resource|illegal attribute|cannot be satisfied|no such resource|walltime"
     r"|no feasible|node configuration|cpu count|time limit", text.SHAPE),
    (r"unauthori[sz]ed|bad uid|not allowed|permission|ruserok", text.DENIED),
    (r"cannot connect|communication failure|no permission.*server|pbs_server|end of file|server.*(?:down|busy|shutting)"
     r"|unable to contact|socket timed out", text.BUSY),
)


def submit(job: Job) -> Command:
    return _submit(job, _open_resources)


def submit_torque(job: Job) -> Command:
    return _submit(job, _torque_resources)


def _submit(job: Job, resources: Callable[[Job], Iterator[str]]) -> Command:
    path = f"{check(job).folder}/{job.name}.sh"
    argv = ["qsub", "-N", job.name, "-j", "oe", "-o", job.options.get("output", f"{job.folder}/"), *resources(job)]
    if job.options.get("mail", "no") == "no":
        argv += ["-m", "n"]
    if job.queue:
        argv += ["-q", job.queue]
    return text.shell(text.document(path, render(job)), text.words([*argv, path]),
                      f"status=$?; rm -f {quote(path)}; exit $status")


def render(job: Job) -> str:
    return script(job, ArrayIndex("${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-$SLURM_ARRAY_TASK_ID}}"), '"$PBS_JOBID"')


def _open_resources(job: Job) -> Iterator[str]:
    shape = job.shape
    chunk = f"select={shape.nodes}:ncpus={shape.cores}"
    chunk += f":mem={-(-shape.memory // 1024)}kb" if shape.memory else ""
    chunk += f":ngpus={shape.gpus}" if shape.gpus else ""
    yield from ("-l", chunk, "-l", f"walltime={_clock(shape.walltime)}")
    yield from ("-l", "place=scatter:excl" if shape.whole else "place=scatter" if shape.nodes > 1 else "place=pack")
    if job.account:
        yield from ("-A", job.account)
    yield from ("-J", f"1-{job.count}") if job.count > 1 else ("-r", "n")


def _torque_resources(job: Job) -> Iterator[str]:
    shape = job.shape
    nodes = f"nodes={shape.nodes}:ppn={shape.cores}" + (f":gpus={shape.gpus}" if shape.gpus else "")
    wanted = [nodes, f"walltime={_clock(shape.walltime)}"]
    if shape.memory:
        wanted.append(f"mem={-(-shape.memory * shape.nodes // (1 << 20))}mb")
    yield from ("-l", ",".join(wanted))
    if shape.whole:
        yield "-n"
    if job.account:
        yield from ("-A", job.account)
    yield from ("-r", "n")
    if job.count > 1:
        yield from ("-t", f"1-{job.count}")


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def submitted(answer: Answer) -> str:
    last = answer.out.strip().rpartition("\n")[2].strip()
    if answer.exit or not _ID.fullmatch(last):
        raise text.refusal(answer, REFUSALS, "PBS refused the job")
    return last


def names(job: Job, id: str) -> list[str]:
    """Return `7[1].server` … for `7[].server`; an older Torque prints `7.server`, and lists `7-1.server`."""
    number, dot, server = id.partition(".")
    place = "[{}]" if number.endswith("[]") else "-{}"
    return ([number.removesuffix("[]") + place.format(index + 1) + dot + server for index in range(job.count)]
            if job.count > 1 else [id])


def listing(user: str) -> Command:
    """Return the command; it selects the user's jobs first, since a full listing would burden a large site."""
    lines = ("LC_ALL=C TZ=UTC; export LC_ALL TZ",
             "if command -v qselect >/dev/null; then",
             f"    ids=$(qselect -u {quote(text.login(user))}) || exit",
             '    [ -n "$ids" ] || exit 0',
             "    exec qstat -f -t $ids",
             "fi", f"echo 'owner {user}'", "exec qstat -f")
    return text.shell(*lines)


def listed(answer: Answer) -> list[Listed]:
    """Parse the listing.  The second command fails for jobs that ended after the first, but lists all others."""
    if answer.exit and not _only_gone(answer):
        raise text.refusal(answer, REFUSALS, "PBS did not list the jobs")
    first, _, rest = answer.out.partition("\n")
    owner = first.removeprefix("owner ").strip() if first.startswith("owner ") else ""
    return text.jobs(_job(id, fields, owner) for id, fields in _blocks(rest if owner else answer.out))


def _only_gone(answer: Answer) -> bool:
    errors = list(text.lines(answer.err))
    return all(_GONE.search(line) for line in errors) and bool(errors or answer.exit == 153)


def _blocks(output: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each job's id and fields, from `Job Id: …` and the lines ` name = value` after it."""
    id, fields = "", _Fields()
    for line in text.lines(output):
        if line.startswith("Job Id:"):
            if id:
                yield id, fields.values
            id, fields = line[7:].strip(), _Fields(fields.tabbed)
        else:
            fields.add(line)
    if id:
        yield id, fields.values


class _Fields:
    """The fields of one job.  A line that begins with a tab continues the value before, unless all lines begin with
    one, as with PBS's commands over Slurm (`tabbed`)."""

    def __init__(self, tabbed: bool = False) -> None:
        self.values: dict[str, str] = {}
        self.tabbed = tabbed
        self._last = ""

    def add(self, line: str) -> None:
        found, tab = _FIELD.match(line), line.startswith("\t")
        if found and len(self.values) < 500 and (not tab or self.tabbed or not self._last):
            self.tabbed, self._last = tab, found[1]
            self.values[self._last] = found[2].strip()[:2000]
        elif tab and self._last:
            self.values[self._last] = (self.values[self._last] + line.strip())[:2000]


def _job(id: str, fields: dict[str, str], owner: str) -> Listed | None:
    found = _ID.fullmatch(id)
    whose = fields.get("Job_Owner", "").partition("@")[0]
    if not found or found[2] == "" or (owner and owner != whose):  # the line of an array repeats those of its members
        return None
    index = int(found[2] or found[3] or found[4] or 0)
    start = text.when(fields.get("stime", "") or fields.get("start_time", ""), "%a %b %d %H:%M:%S %Y")
    return Listed(id=id, nonce=_nonce(fields.get("Job_Name", ""), index),
                  state=_STATES.get(fields.get("job_state", "")[:1], RUNNING),
                  reason=text.plain(fields.get("comment", "")), start=start, cores=_cores(fields))


def _nonce(name: str, index: int) -> str:
    """Return the nonce of an array's member; Torque appends the index to the name."""
    if index and nonce_of(name.removesuffix(f"-{index}")):
        name = name.removesuffix(f"-{index}")
    return nonce_of(name, max(index, 1) - 1)


def _cores(fields: dict[str, str]) -> int:
    cores = text.whole(fields.get("Resource_List.ncpus", ""))
    spread = re.fullmatch(r"(\d{1,6}):ppn=(\d{1,6}).*", fields.get("Resource_List.nodes", ""))
    return cores or (int(spread[1]) * int(spread[2]) if spread else 0)


def cancel(ids: Iterable[str]) -> list[Command]:
    return [Command(("qdel", *chunk)) for chunk in text.chunks(ids, _ID)]


def cancelled(answer: Answer) -> None:
    errors = [line for line in text.lines(answer.err + answer.out) if not _GONE.search(line)]
    if answer.exit and errors and not re.search("invalid state|already", " ".join(errors).lower()):
        raise text.refusal(answer, REFUSALS, "PBS did not cancel the jobs")


def balance(user: str, account: str) -> Command | None:
    return None


def balanced(answer: Answer) -> list[Balance]:
    return []


def room(queue: str) -> Command | None:
    return text.shell("pbsnodes -a || exit", "echo --", f"qstat -Q -f {quote(queue) if queue else ''}", "exit 0")


def roomed(answer: Answer) -> Room:
    """Count the free cores of nodes that are up; take the queued jobs from `state_count`."""
    nodes, _, queues = answer.out.partition("\n--\n")
    free = total = 0
    for node in re.split(r"\n\s*\n", nodes):
        has = dict(re.findall(r"^\s+([\w.]{1,100}) = (.{0,2000})$", node, re.MULTILINE))
        cores = text.whole(has.get("resources_available.ncpus", "") or has.get("np", "")) or 0
        busy = text.whole(has.get("resources_assigned.ncpus", ""))
        taken = busy if busy is not None else len([job for job in has.get("jobs", "").split(",") if job.strip()])
        if cores and not re.search("down|offline|unknown", has.get("state", "")):
            total, free = total + cores, free + max(0, cores - taken)
    waiting = re.findall(r"Queued:(\d{1,12})", queues)
    if answer.exit or not total:
        return Room(None, None, None)
    return Room(free, total, sum(map(int, waiting)) if waiting else None)
