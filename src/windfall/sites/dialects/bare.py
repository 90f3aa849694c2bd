"""No batch system: a workstation (`ssh`), or this machine (`local`).

A job is a directory `~/.windfall/jobs/HOST/NONCE`, made before its process is started: `mkdir` succeeds once,
so the same intent never starts twice.  The place is fixed, so that no change of the configuration hides a pilot, and
has the host's name in it, since a home directory may be shared by many.  In it lie the script, the log, and the
process's id with its start time, without which an id says nothing after a while.  `timeout` ends it when its wall
time is over: SIGTERM, and SIGKILL after the grace.  There is no queue; what was submitted runs.  Directories of ended
jobs go after a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from windfall.errors import BadInput
from windfall.sites.dialects import text
from windfall.sites.dialects.job import ENDED, RUNNING, Answer, Balance, Command, Job, Listed, Room, check, parts
from windfall.sites.dialects.script import script

_ID = re.compile(r"[a-z0-9]{1,12}-\d{1,9}")
_PLACE = '"$HOME/.windfall/jobs/$(uname -n)"'
KEPT = 24 * 60  # minutes
STARTING = 1  # minutes between a directory and its process, at most

REFUSALS: text.Table = (
    (r"resource temporarily unavailable|cannot fork|fork: ", text.LIMIT),
)

_STARTED = """started() {  # start time of process $1, in ticks since the machine's own
    stat=''
    read -r stat 2>/dev/null </proc/$1/stat || return 1
    set -- ${stat##*) }
    case $1 in Z|X) return 1 ;; esac
    shift 19
    ticks=$1
}
alive() {  # is the process of this directory the one that was started?
    pid='' begun='' at=''
    [ -r pid ] && read -r pid begun at <pid && started "$pid" && [ "$ticks" = "$begun" ]
}"""


def submit(job: Job) -> Command:
    """Starts what has not been started before under this nonce."""
    for wanted, what in ((job.account, "account"), (job.queue, "queue")):
        if wanted:
            raise BadInput(f"there is no {what} on a machine without a batch system")
    limit = max(1, check(job).shape.walltime - job.grace)
    mark, number = parts(job.nonce)
    return text.shell(
        _STARTED, "umask 077", f"mkdir -p {_PLACE} && cd {_PLACE} || exit 73",
        "all=$PWD/new.$$", text.document("new.$$", render(job)).replace("'new.$$'", '"$all"'),
        f"count=0; while [ $count -lt {job.count} ]; do",
        f"    place={mark}-$(({number} + count))",
        '    if mkdir "$place" 2>/dev/null; then',
        '        cp "$all" "$place/script" && cd "$place" || exit 73',
        "        here=$PWD",
        f'        (cd && exec setsid timeout -s TERM -k {job.grace} {limit} /bin/sh "$here/script" $count) \\',
        "            </dev/null >log 2>&1 &",
        '        started $! && echo "$! $ticks $(date +%s)" >pid.new && mv pid.new pid',
        "        cd ..",
        "    fi",
        '    [ -d "$place" ] || exit 73',
        "    count=$((count + 1))",
        "done", 'rm -f "$all"', f"echo started {job.nonce}")


def render(job: Job) -> str:
    return script(job, "$1", '"$WINDFALL_NONCE"', first=0, directives=())


def submitted(answer: Answer) -> str:
    found = re.search(r"^started ([a-z0-9]{1,12}-\d{1,9})$", answer.out, re.MULTILINE)
    if answer.exit or not found:
        raise text.refusal(answer, REFUSALS, "the machine does not start the pilot")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return job.nonces


def listing(user: str) -> Command:
    """One loop of the shell without a process per job.  A last line tells a listing from its half."""
    text.login(user)
    return text.shell(
        _STARTED, f"cd {_PLACE} 2>/dev/null || {{ echo end; exit 0; }}",
        "for place in *; do",
        '    [ -d "$place" ] && cd "$place" || continue',
        "    state=E",
        "    if alive; then state=R; elif [ ! -e pid ]; then",
        f'        [ -z "$(find . -maxdepth 0 -mmin +{STARTING})" ] && state=R',
        "    fi",
        '    echo "$place|$state|$at"',
        "    cd ..",
        "done",
        f"find . -mindepth 2 -maxdepth 2 -name pid -mmin +{KEPT} | while read -r file; do",
        '    cd "${file%/pid}" || continue',
        '    if alive; then cd ..; else cd ..; rm -rf "${file%/pid}"; fi',
        "done", "echo end")


def listed(answer: Answer) -> list[Listed]:
    if answer.exit or answer.out.rstrip().rpartition("\n")[2] != "end":
        raise text.refusal(answer, REFUSALS, "the machine does not list its pilots")
    return text.jobs(map(_job, text.lines(answer.out)))


def _job(line: str) -> Listed | None:
    id, code, start = (*line.split("|"), "", "")[:3]
    if not _ID.fullmatch(id) or code not in ("R", "E"):
        return None
    return Listed(id, id, RUNNING if code == "R" else ENDED, "", text.whole(start))


def cancel(ids: Iterable[str]) -> list[Command]:
    """`timeout` passes SIGTERM on, and kills after the grace."""
    return [text.shell(
        _STARTED, f"cd {_PLACE} || exit 0", f"for place in {text.words(chunk)}; do",
        '    cd "$place" 2>/dev/null || continue',
        '    alive && kill -TERM "$pid"',
        "    cd ..",
        "done", "exit 0") for chunk in text.chunks(ids, _ID)]


def cancelled(answer: Answer) -> None:
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "the machine does not stop its pilots")


def balance(user: str, account: str) -> Command | None:
    return None


def balanced(answer: Answer) -> list[Balance]:
    return []


def room(queue: str) -> Command | None:
    return text.shell("nproc && cut -d' ' -f1 /proc/loadavg")


def roomed(answer: Answer) -> Room:
    cores, load = (*answer.out.split(), "", "")[:2]
    total = text.whole(cores)
    busy = text.whole(load.partition(".")[0])
    if answer.exit or total is None:
        return Room(None, None, None)
    return Room(max(0, total - (busy or 0)), total, 0)
