"""HTCondor.

A pool knows no wall time and starts a job again when its host goes away.  Here a job is removed when its time is over
(SIGTERM first), and neither matched nor kept once it has been started.  Its script lies in the folder until the
schedd has taken it.  Completed jobs leave the queue: an ended job is not listed.

Options of a site: `requirements`, an expression that hosts must meet; `transfer`, files to send along, separated by
commas, where pool and login node share no file system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Any

from windfall.errors import SiteUnreachable
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
from windfall.sites.dialects.script import script

_ID = re.compile(r"\d{1,18}\.\d{1,9}")
_TERSE = re.compile(r"(\d{1,18})\.\d{1,9} - \d{1,18}\.\d{1,9}")
_STATES = {1: QUEUED, 2: RUNNING, 3: RUNNING, 4: ENDED, 5: HELD, 6: RUNNING, 7: RUNNING}
_ATTRIBUTES = ("ClusterId,ProcId,JobStatus,JobBatchName,HoldReason,JobCurrentStartDate,RequestCpus,"
               "LastRejMatchReason")

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
    return text.shell(text.document(path, render(job)), f"chmod 700 {quote(path)}",
                      text.document(path + ".sub", described),
                      f"condor_submit -terse {quote(path + '.sub')}; status=$?; rm -f {quote(path + '.sub')}",
                      f"[ $status = 0 ] || rm -f {quote(path)}", "exit $status")


def render(job: Job) -> str:
    return script(job, "$1", '"$2"', first=0, directives=())


def _described(job: Job, path: str) -> Iterator[str]:
    """The submit description.  What is quoted is quoted by HTCondor's rules."""
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
        raise text.refusal(answer, REFUSALS, "HTCondor refuses the job")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return [f"{id}.{index}" for index in range(job.count)]


def listing(user: str) -> Command:
    return Command(("env", "LC_ALL=C", "condor_q", text.login(user), "-json", "-attributes", _ATTRIBUTES))


def listed(answer: Answer) -> list[Listed]:
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "HTCondor does not list jobs")
    ads = text.from_json(answer.out) if answer.out.strip() else []
    if not isinstance(ads, list):
        raise SiteUnreachable(f"HTCondor's answer is no list of jobs: {text.plain(answer.out, 60)!r}")
    return text.jobs(map(_job, ads))


def _job(ad: Any) -> Listed | None:
    if not isinstance(ad, dict):
        return None
    cluster, number = text.whole(ad.get("ClusterId")), text.whole(ad.get("ProcId"))
    if cluster is None or number is None or number > 1 << 30:
        return None
    state = _STATES.get(text.whole(ad.get("JobStatus")) or 0, RUNNING)
    reason = ad.get("HoldReason") if state == HELD else ad.get("LastRejMatchReason") if state == QUEUED else ""
    return Listed(f"{cluster}.{number}", nonce_of(str(ad.get("JobBatchName", "")), number), state,
                  text.plain(reason or ""), text.whole(ad.get("JobCurrentStartDate")),
                  text.whole(ad.get("RequestCpus")) or 0)


def cancel(ids: Iterable[str]) -> list[Command]:
    return [Command(("condor_rm", *chunk)) for chunk in text.chunks(ids, _ID)]


def cancelled(answer: Answer) -> None:
    if answer.exit and not re.search("not found|couldn't find|already marked", (answer.out + answer.err).lower()):
        raise text.refusal(answer, REFUSALS, "HTCondor does not cancel")


def balance(user: str, account: str) -> Command | None:
    return None


def balanced(answer: Answer) -> list[Balance]:
    return []


def room(queue: str) -> Command | None:
    return text.shell("condor_status -af:, State Cpus TotalSlotCpus SlotType || exit", "echo --",
                      "condor_q -all -totals -af JobStatus 2>/dev/null | grep -c '^1$'", "exit 0")


def roomed(answer: Answer) -> Room:
    hosts, _, waiting = answer.out.partition("--")
    rows = [[word.strip() for word in line.split(",")] for line in text.lines(hosts)]
    slots = [row for row in rows if len(row) == 4 and text.whole(row[1]) is not None]
    if answer.exit or not slots:
        return Room(None, None, None)
    free = sum(text.whole(row[1]) or 0 for row in slots if row[0] == "Unclaimed")
    total = sum((text.whole(row[2]) if row[3] == "Partitionable" else text.whole(row[1])) or 0
                for row in slots if row[3] != "Dynamic")
    return Room(free, total, text.whole(waiting))
