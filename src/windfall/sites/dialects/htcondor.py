"""The dialect of HTCondor.

A pool knows no wall time and restarts a job whose host is lost.  So the job's own rules remove it when its time is over
(with SIGTERM first), and prevent a second start.  The job's script lies in the folder until the schedd has taken it.
Completed jobs leave the queue, so that listings omit them.

Options of a site: `requirements`, an expression that hosts must meet; `transfer`, files to send with the job, separated
by commas, if pool and login node share no file system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Any

from windfall.errors import SiteUnreachable
from windfall.sites.dialects import reasons, text
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

_ID = re.compile(r"\d{1,18}\.\d{1,9}")
_TERSE = re.compile(r"(\d{1,18})\.\d{1,9} - \d{1,18}\.\d{1,9}")
_STATES = {1: QUEUED, 2: RUNNING, 3: RUNNING, 4: ENDED, 5: HELD, 6: RUNNING, 7: RUNNING}
_ATTRIBUTES = ("ClusterId,ProcId,JobStatus,JobBatchName,HoldReason,JobCurrentStartDate,RequestCpus,"
               "LastRejMatchReason,HoldReasonCode")

REFUSALS: text.Table = (
    (r"max_jobs_per_submission|number of jobs in (?:a )?submission|materiali[sz]", text.ARRAY),
    (r"max_jobs_(?:submitted|per_owner)|would exceed|jobs submitted exceeds|limit on number of|too many jobs",
     text.LIMIT),
    (r"accounting[ _]?group|acctgroup", text.ACCOUNT),
    (r"submit requirement|rejected by|parse error|failed to (?:parse|expand)|invalid (?:value|request)", text.SHAPE),
    (r"authentication|authoriz|permission|not allowed|failed to set effective", text.DENIED),
    (r"can't find address|failed to connect|failed to fetch ads|communication error|schedd .*(?:not|down)|queue manager"
     r"|timeout", text.BUSY),
)


def submit(job: Job) -> Command:
    path = f"{check(job).folder}/{job.name}.sh"
    described = "\n".join(_described(job, path)) + "\n"
    lines = (text.document(path, render(job)), f"chmod 700 {quote(path)}", text.document(path + ".sub", described),
             f"condor_submit -terse {quote(path + '.sub')}; status=$?; rm -f {quote(path + '.sub')}",
             f"[ $status = 0 ] || rm -f {quote(path)}", "exit $status")
    return text.shell(*lines)


def render(job: Job) -> str:
    return script(job, ArrayIndex("$1", first=0), '"$2"', directives=())


def _described(job: Job, path: str) -> Iterator[str]:
    """Yield the lines of the submit description, quoted by HTCondor's rules."""
    shape, over = job.shape, "time() - JobCurrentStartDate"
    yield from ("universe = vanilla", f"executable = {path}", f"batch_name = {job.name}")
    yield 'arguments = "$(Process) $(Cluster).$(Process)"'
    log = f"{job.folder}/{job.name}-$(Cluster)-$(Process).log"
    yield from (f"output = {log}", f"error = {log}", "copy_to_spool = true", "notification = never")
    yield from ("should_transfer_files = IF_NEEDED", "when_to_transfer_output = ON_EXIT")
    yield 'transfer_output_files = ""'
    sent = [f"{job.folder}/{name}" for name in job.files] + [_line(job.options.get("transfer", ""))]
    if any(sent):
        yield f"transfer_input_files = {', '.join(filter(None, sent))}"
    yield f"request_cpus = {shape.cores}"
    if shape.memory:
        yield f"request_memory = {-(-shape.memory // (1 << 20))}"  # MiB
    if shape.gpus:
        yield f"request_gpus = {shape.gpus}"
    yield from job.directives
    if job.account:
        yield f"accounting_group = {job.account}"
    wanted = f"({_line(job.options['requirements'])}) && " if "requirements" in job.options else ""
    yield f"requirements = {wanted}(NumJobStarts =?= 0 || JobStatus =?= 2)"
    yield "kill_sig = SIGTERM"
    yield "remove_kill_sig = SIGTERM"
    yield f"job_max_vacate_time = {job.grace}"
    yield (f"periodic_remove = (JobStatus == 2 && {over} > {max(1, shape.walltime - job.grace)})"
           " || (JobStatus == 1 && NumJobStarts > 0)")
    yield f"queue {job.count}"


def _line(value: str) -> str:
    return text.plain(value, 4000)


def submitted(answer: Answer) -> str:
    found = _TERSE.search(answer.out)
    if answer.exit or not found:
        raise text.refusal(answer, REFUSALS, "HTCondor refused the job")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return [f"{id}.{index}" for index in range(job.count)]


def listing(user: str) -> Command:
    return Command(("env", "LC_ALL=C", "condor_q", text.login(user), "-json", "-attributes", _ATTRIBUTES))


def listed(answer: Answer) -> list[Listed]:
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "HTCondor did not list the jobs")
    ads = text.from_json(answer.out) if answer.out.strip() else []
    if not isinstance(ads, list):
        raise SiteUnreachable(f"HTCondor's answer is not a list of jobs: {text.plain(answer.out, 60)!r}")
    return text.jobs(map(_job, ads))


def _job(ad: Any) -> Listed | None:
    if not isinstance(ad, dict):
        return None
    cluster, number = text.whole(ad.get("ClusterId")), text.whole(ad.get("ProcId"))
    if cluster is None or number is None or number > 1 << 30:
        return None
    state = _STATES.get(text.whole(ad.get("JobStatus")) or 0, RUNNING)
    return Listed(id=f"{cluster}.{number}", nonce=nonce_of(str(ad.get("JobBatchName", "")), number), state=state,
                  reason=text.plain(_reason(ad, state)), start=text.whole(ad.get("JobCurrentStartDate")),
                  cores=text.whole(ad.get("RequestCpus")) or 0)


def _reason(ad: dict[str, Any], state: str) -> str:
    if state == HELD:
        return reasons.htcondor_hold(text.whole(ad.get("HoldReasonCode")), text.plain(ad.get("HoldReason") or ""))
    if state == QUEUED:
        return reasons.htcondor_rejection(text.plain(ad.get("LastRejMatchReason") or ""))
    return ""


def cancel(ids: Iterable[str]) -> list[Command]:
    return [Command(("condor_rm", *chunk)) for chunk in text.chunks(ids, _ID)]


def cancelled(answer: Answer) -> None:
    if answer.exit and not re.search("not found|couldn't find|already marked", (answer.out + answer.err).lower()):
        raise text.refusal(answer, REFUSALS, "HTCondor did not cancel the jobs")


def balance(user: str, account: str) -> Command | None:
    return None


def balanced(answer: Answer) -> list[Balance]:
    return []


def room(queue: str) -> Command | None:
    return text.shell("condor_status -af:, State Cpus TotalSlotCpus SlotType || exit", "echo --",
                      "condor_q -all -totals -af JobStatus 2>/dev/null | grep -c '^1$'", "exit 0")


def roomed(answer: Answer) -> Room:
    hosts, _, waiting = answer.out.partition("--")
    slots = [slot for line in text.lines(hosts) if (slot := _slot(line))]
    if answer.exit or not slots:
        return Room(None, None, None)
    return Room(sum(free for free, _ in slots), sum(total for _, total in slots), text.whole(waiting))


def _slot(line: str) -> tuple[int, int] | None:
    """Return the free and the total cores of a slot; a dynamic slot's cores are in the total of its parent."""
    row = [word.strip() for word in line.split(",")]
    if len(row) != 4 or (cores := text.whole(row[1])) is None:
        return None
    free = cores if row[0] == "Unclaimed" else 0
    totals = {"Partitionable": text.whole(row[2]) or 0, "Dynamic": 0}
    return free, totals.get(row[3], cores)
