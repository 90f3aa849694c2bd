"""The dialect of Slurm.

Options are words of the command line: there they outrank the user's directives and the site's variables, and need no
quoting.  `sbatch` reads the script from standard input.  `squeue` prints times as seconds since 1970.

Option of a site: `signal` = "no" omits the signal before the end of the wall time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import NamedTuple

from windfall.errors import SiteRefused
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

_ID = re.compile(r"\d{1,18}(?:_(\d{1,9}))?(?:\+\d{1,6})?")
_PARSABLE = re.compile(r"(\d{1,18})(?:;[\w.-]{1,100})?")
_ENDED = {"CA", "CD", "F", "TO", "NF", "OOM", "BF", "DL", "PR", "RV"}
# Variables that a user has set for his own listings would hide jobs from this one.
_ALL = tuple(word for name in ("PARTITION", "ACCOUNT", "QOS", "NAMES", "LICENSES", "USERS", "STATES")
             for word in ("-u", f"SQUEUE_{name}"))
_HELD_FOR = re.compile(r"jobheld|launch failed requeued held|^held|hold", re.IGNORECASE)

REFUSALS: text.Table = (
    (r"invalid job array|array index|array size", text.ARRAY),
    (r"maxsubmitjob|grpsubmitjob|submitjobsper|temporarily unable to accept|maxjobcount|too many jobs"
     r"|resource temporarily unavailable", text.LIMIT),
    (r"wallduration|maxcpu|maxnode|maxtres|maxmem|maxgres|mincpu|mintres", text.SHAPE),
    (r"violates accounting/qos policy", text.LIMIT),  # this message lists every possible cause
    (r"invalid account|account/partition|invalid qos|qos not permitted|invalid wckey", text.ACCOUNT),
    (r"invalid partition|partition name specified|partition.*(?:inactive|not available|not in a state)", text.QUEUE),
    (r"time limit|node configuration|memory required|memory specification|cpu count|more processors|node count"
     r"|generic resource|invalid gres|requested nodes? |invalid feature", text.SHAPE),
    (r"not permitted to use|access/permission denied|user not found|invalid user|invalid credential", text.DENIED),
    (r"unable to contact|socket timed out|zero bytes|communication|protocol authentication|controller", text.BUSY),
)


def submit(job: Job) -> Command:
    return Command(tuple(_options(check(job))), render(job))


def render(job: Job) -> str:
    """Return the script."""
    return script(job, ArrayIndex("$SLURM_ARRAY_TASK_ID"), '"$SLURM_JOB_ID"')


def _options(job: Job) -> Iterator[str]:
    shape = job.shape
    yield from ("sbatch", "--parsable", "--no-requeue", f"--job-name={job.name}", "--export=NONE")
    yield from ("--input=/dev/null", f"--output={job.folder}/{job.name}-%{'A-%a' if job.count > 1 else 'j'}.log")
    yield from (f"--nodes={shape.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={shape.cores}")
    yield f"--time={_minutes(shape.walltime)}"
    if job.options.get("signal") != "no":
        yield f"--signal=B:TERM@{job.grace}"
    if shape.memory:
        yield f"--mem={-(-shape.memory // 1024)}K"
    if shape.gpus:
        yield f"--gpus-per-node={shape.gpus}"
    if shape.whole:
        yield "--exclusive"
    if job.account:
        yield f"--account={job.account}"
    if job.queue:
        yield f"--partition={job.queue}"
    if job.count > 1:
        yield f"--array=1-{job.count}"


def _minutes(seconds: int) -> str:
    """Return whole minutes, which Slurm counts in, rounded down: the pilot must not count on more than it asked for."""
    return str(max(1, seconds // 60))


def submitted(answer: Answer) -> str:
    found = _PARSABLE.fullmatch(answer.out.strip().rpartition("\n")[2])
    if answer.exit or not found:
        raise text.refusal(answer, REFUSALS, "Slurm refused the job")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return [f"{id}_{index + 1}" for index in range(job.count)] if job.count > 1 else [id]


def listing(user: str) -> Command:
    return Command(("env", *_ALL, "LC_ALL=C", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--array", "--states=all",
                    f"--user={text.login(user)}", "--format=%i|%t|%S|%C|%r|%j"))


def listed(answer: Answer) -> list[Listed]:
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "Slurm did not list the jobs")
    return text.jobs(map(_job, text.lines(answer.out)))


def _job(line: str) -> Listed | None:
    id, state, start, cores, reason, name = (*line.split("|", 5), "", "", "", "", "")[:6]
    found = _ID.fullmatch(id.strip())
    if not found:
        return None
    reason = "" if reason in ("None", "(null)") else text.plain(reason)
    state = state.strip()
    return Listed(id=id.strip(), nonce=nonce_of(name, int(found[1] or 1) - 1), state=_state(state, reason),
                  reason=text.plain(reasons.slurm_end(state, reason) if state in _ENDED else reasons.slurm(reason)),
                  start=text.whole(start), cores=text.whole(cores) or 0)


def _state(code: str, reason: str) -> str:
    if code in _ENDED:
        return ENDED
    if code in ("PD", "RD", "RF", "RH", "RQ", "SE"):
        return HELD if code in ("RH", "SE") or _HELD_FOR.search(reason) else QUEUED
    return RUNNING  # suspended, completing, or a state of a later version: the job still holds its nodes


def cancel(ids: Iterable[str]) -> list[Command]:
    return [Command(("scancel", *chunk)) for chunk in text.chunks(ids, _ID)]


def cancelled(answer: Answer) -> None:
    """Raise if a cancellation failed; jobs that have already ended are no failure."""
    if answer.exit and not re.search("invalid job id|already completing|already complete", answer.err.lower()):
        raise text.refusal(answer, REFUSALS, "Slurm did not cancel the jobs")


def balance(user: str, account: str) -> Command | None:
    which = (f"--accounts={account}",) if account else ()
    return Command(("sshare", "--noheader", "--parsable2", f"--users={text.login(user)}", *which,
                    "--format=Account,User,RawUsage,GrpTRESMins,GrpTRESRaw,TRESRunMins"))


def balanced(answer: Answer) -> list[Balance]:
    """Return the balances of the accounts, and of the user in them, that Slurm compares with GrpTRESMins.

    Used are the CPU minutes of GrpTRESRaw, which decay if the site sets PriorityDecayHalfLife, or else RawUsage in
    billing units.  TRESRunMins has those that running jobs may still take, without the user's own: the core counts its
    pilots itself.  `sshare` does not show the limits of a parent account or of a quality of service.
    """
    if answer.exit and "not running a supported" in answer.out + answer.err:
        raise SiteRefused("Slurm keeps no accounts there, so it has no balance of yours",
                          "replace balance = true in the site's file by core-hours = N", kind=text.ACCOUNT)
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "Slurm did not show the account's balance")
    found: dict[str, list[_Share]] = {}
    for line in text.lines(answer.out):
        if share := _share(line):
            found.setdefault(share.account, []).append(share)
    return [each for shares in found.values() for each in _balances(shares)]


class _Share(NamedTuple):
    account: str
    user: str  # "": the account's own line
    used: int  # core-seconds
    limit: int | None
    running: int


def _share(line: str) -> _Share | None:
    account, user, raw, limits, used, running = (*line.split("|"), *[""] * 6)[:6]
    name, billed, spent, limit = text.plain(account, 100), text.whole(raw), _cpu(used), _cpu(limits)
    if not name or (billed is None and spent is None):
        return None
    return _Share(name, user.strip(), (billed or 0) if spent is None else spent, limit, _cpu(running) or 0)


def _cpu(minutes: str) -> int | None:
    """Return the core-seconds in `cpu=60,mem=0,…`."""
    found = re.search(r"(?:^|,)cpu=(\d{1,15})", minutes)
    return int(found[1]) * 60 if found else None


def _balances(shares: list[_Share]) -> list[Balance]:
    own = sum(share.running for share in shares if share.user)
    limited = [share for share in shares if share.limit is not None]
    return [Balance(share.account, share.used, share.limit, 0 if share.user else max(share.running - own, 0))
            for share in limited or shares[:1]]


def room(queue: str) -> Command | None:
    which = "--partition=" + quote(queue) if queue else ""
    return text.shell(f"sinfo --noheader {which} --format='cpus %C' || exit",
                      f"squeue --noheader {which} --states=PD --format=pending | uniq -c")


def roomed(answer: Answer) -> Room:
    cpus = re.search(r"cpus (\d{1,12})/(\d{1,12})/(\d{1,12})/(\d{1,12})", answer.out)
    pending = re.search(r"(\d{1,12}) pending", answer.out)
    if answer.exit or not cpus:
        return Room(None, None, None)
    return Room(int(cpus[2]), int(cpus[4]), int(pending[1]) if pending else 0)
