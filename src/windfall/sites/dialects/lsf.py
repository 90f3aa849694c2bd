"""The dialect of LSF.

`bsub` reads the script from standard input.  At a limit it would try for ever; `LSB_NTRIES` prevents that.
`-wa TERM -wt` warns a job before its run limit.  Names are the last column of the listing, since they may contain the
delimiter.

Options of a site: `ptile`, "no" omits `span[…]`; `memory`, "no" omits `-M`, for sites that count it in units of their
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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

_ID = re.compile(r"\d{1,18}(?:\[(\d{1,9})\])?")
_SUBMITTED = re.compile(r"Job <(\d{1,18})> is submitted to (?:default )?queue")
_STATES = {"PEND": QUEUED, "WAIT": QUEUED, "PSUSP": HELD, "DONE": ENDED, "EXIT": ENDED}
_NONE = re.compile(r"no (?:unfinished |matching )?job found", re.IGNORECASE)

REFUSALS: text.Table = (
    (r"array.*(?:size|limit|index)|bad job array|too many elements", text.ARRAY),
    (r"pending (?:job|slot).*(?:threshold|limit)|job (?:number )?limit|too many (?:pending )?jobs|max_pend",
     text.LIMIT),
    (r"project.*(?:not|invalid|unknown)|invalid project|user group.*(?:not|invalid)", text.ACCOUNT),
    (r"no such queue|queue has been closed|queue.*(?:not accept|closed|does not)", text.QUEUE),
    (r"cannot exceed queue's hard limit|resource requirement|too few|exceed.*limit|no such host|run limit"
     r"|invalid .*argument|processors requested|unable to satisfy", text.SHAPE),
    (r"cannot use the queue|permission denied|user cannot|not.*permitted|not a valid user", text.DENIED),
    (r"cannot connect|failed in an lsf library call|lsf is down|lim is down|mbatchd|batch daemon|request aborted"
     r"|not responding", text.BUSY),
)


def submit(job: Job) -> Command:
    return Command(tuple(_options(check(job))), render(job))


def render(job: Job) -> str:
    return script(job, ArrayIndex("$LSB_JOBINDEX"), '"$LSB_JOBID"')


def _options(job: Job) -> Iterator[str]:
    shape = job.shape
    array = f"[1-{job.count}]" if job.count > 1 else ""
    yield from ("env", "LC_ALL=C", "LSB_NTRIES=1", "bsub", "-J", job.name + array, "-rn", "-env", "none")
    yield from ("-o", f"{job.folder}/{job.name}-%J-%I.log", "-W", str(max(1, shape.walltime // 60)))
    yield from ("-wa", "TERM", "-wt", str(max(1, job.grace // 60)), "-n", str(shape.cores * shape.nodes))
    if job.options.get("ptile") != "no":
        yield from ("-R", "span[hosts=1]" if shape.nodes == 1 else f"span[ptile={shape.cores}]")
    if shape.memory and job.options.get("memory") != "no":
        megabytes = -(-shape.memory // (1 << 20))
        yield from ("-M", f"{megabytes}MB", "-R", f"rusage[mem={megabytes}MB]")
    if shape.gpus:
        yield from ("-gpu", f"num={shape.gpus}")
    if shape.whole:
        yield "-x"
    if job.account:
        yield from ("-P", job.account)
    if job.queue:
        yield from ("-q", job.queue)


def submitted(answer: Answer) -> str:
    found = _SUBMITTED.search(answer.out)
    if answer.exit or not found:
        raise text.refusal(answer, REFUSALS, "LSF refused the job")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return [f"{id}[{index + 1}]" for index in range(job.count)] if job.count > 1 else [id]


def listing(user: str) -> Command:
    return Command(("env", "LC_ALL=C", "TZ=UTC", "LSB_DISPLAY_YEAR=Y", "bjobs", "-noheader", "-a", "-u",
                    text.login(user), "-o", "jobid jobindex stat slots start_time pend_reason job_name delimiter='|'"))


def listed(answer: Answer) -> list[Listed]:
    if answer.exit and not _NONE.search(answer.err + answer.out):
        raise text.refusal(answer, REFUSALS, "LSF did not list the jobs")
    return text.jobs(map(_job, text.lines(answer.out)))


def _job(line: str) -> Listed | None:
    id, index, code, slots, start, reason, name = (*line.split("|", 6), *[""] * 6)[:7]
    if not _ID.fullmatch(id.strip()):
        return None
    number, place = id.strip().partition("[")[0], text.whole(index) or 0
    code = code.strip()
    began = text.when(start.strip().removesuffix(" L").removesuffix(" E"), "%b %d %H:%M:%S %Y", "%b %d %H:%M %Y")
    name = re.sub(r"\[\d+\]$", "", name.strip())
    why = text.plain(code if code == "EXIT" else reason.strip(" -"))
    nonce = nonce_of(name, max(place, 1) - 1)
    return Listed(id=f"{number}[{place}]" if place else number, nonce=nonce, state=_STATES.get(code, RUNNING),
                  reason=why, start=began, cores=text.whole(slots) or 0)


def cancel(ids: Iterable[str]) -> list[Command]:
    return [Command(("bkill", *chunk)) for chunk in text.chunks(ids, _ID)]


def cancelled(answer: Answer) -> None:
    output = list(text.lines(answer.err + answer.out))
    gone = re.compile("is being terminated|already finished|no matching job")
    if answer.exit and not all(gone.search(line.lower()) for line in output):
        raise text.refusal(answer, REFUSALS, "LSF did not cancel the jobs")


def balance(user: str, account: str) -> Command | None:
    return None


def balanced(answer: Answer) -> list[Balance]:
    return []


def room(queue: str) -> Command | None:
    return text.shell("bhosts -noheader -o \"status max njobs delimiter='|'\" || exit", "echo --",
                      f"bqueues -noheader -o \"pend delimiter='|'\" {quote(queue) if queue else ''}", "exit 0")


def roomed(answer: Answer) -> Room:
    hosts, _, queues = answer.out.partition("--")
    known = [slots for line in text.lines(hosts) if (slots := _slots(line))]
    if answer.exit or not known:
        return Room(None, None, None)
    waiting = [text.whole(line) for line in text.lines(queues)]
    return Room(sum(free for free, _ in known), sum(total for _, total in known), sum(each or 0 for each in waiting))


def _slots(line: str) -> tuple[int, int] | None:
    """Return the free and the total slots of a host; a host that is not ok has none free."""
    state, most, used = (*line.split("|"), "", "", "")[:3]
    total = text.whole(most)
    if line.count("|") != 2 or total is None:
        return None
    return max(0, total - (text.whole(used) or 0)) if state.strip() == "ok" else 0, total
