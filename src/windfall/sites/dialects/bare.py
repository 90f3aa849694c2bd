"""The dialect of machines without a batch system: a workstation (`ssh`), or this machine (`local`).

A job is a directory `~/.windfall/jobs/HOST/NONCE`, made before its process starts: `mkdir` succeeds only once, so the
same intent never starts twice.  The path is fixed, so that no change of the configuration hides a pilot; it holds the
host's name, since hosts may share a home directory.  The directory holds the script, the log, and the process's id
with its start time, since the system reuses ids.  `timeout` ends the process when its wall time is over: by SIGTERM,
and by SIGKILL after the grace.  There is no queue: every submitted job runs at once.  Directories of ended jobs are
removed after a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from windfall.errors import BadInput
from windfall.sites.dialects import text
from windfall.sites.dialects.job import ENDED, RUNNING, Answer, Balance, Command, Job, Listed, Room, check, parts
from windfall.sites.dialects.script import ArrayIndex, script

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
    """Return the command that starts the pilots whose nonces were not started before."""
    for key, value in (("account", job.account), ("queue", job.queue)):
        if value:
            raise BadInput(f"a machine without a batch system has no {key}", f"remove {key} from the site's file")
    limit = max(1, check(job).shape.walltime - job.grace)
    mark, number = parts(job.nonce)
    lines = (
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
    return text.shell(*lines)


def render(job: Job) -> str:
    return script(job, ArrayIndex("$1", first=0), '"$WINDFALL_NONCE"', directives=())


def submitted(answer: Answer) -> str:
    found = re.search(r"^started ([a-z0-9]{1,12}-\d{1,9})$", answer.out, re.MULTILINE)
    if answer.exit or not found:
        raise text.refusal(answer, REFUSALS, "the machine did not start the pilot")
    return found[1]


def names(job: Job, id: str) -> list[str]:
    return job.nonces


def listing(user: str) -> Command:
    """Return a shell loop that needs no process per job.  Its last line tells a complete listing from half of one."""
    text.login(user)
    lines = (
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
    return text.shell(*lines)


def listed(answer: Answer) -> list[Listed]:
    if answer.exit or answer.out.rstrip().rpartition("\n")[2] != "end":
        raise text.refusal(answer, REFUSALS, "the machine did not list its pilots")
    return text.jobs(map(_job, text.lines(answer.out)))


def _job(line: str) -> Listed | None:
    id, code, start = (*line.split("|"), "", "")[:3]
    if not _ID.fullmatch(id) or code not in ("R", "E"):
        return None
    return Listed(id, id, RUNNING if code == "R" else ENDED, "", text.whole(start))


def cancel(ids: Iterable[str]) -> list[Command]:
    """Return commands that send SIGTERM to `timeout`, which passes it on, and kills after the grace."""
    return [text.shell(*_kill_lines(chunk)) for chunk in text.chunks(ids, _ID)]


def _kill_lines(ids: tuple[str, ...]) -> tuple[str, ...]:
    return (
        _STARTED, f"cd {_PLACE} || exit 0", f"for place in {text.words(ids)}; do",
        '    cd "$place" 2>/dev/null || continue',
        '    alive && kill -TERM "$pid"',
        "    cd ..",
        "done", "exit 0")


def cancelled(answer: Answer) -> None:
    if answer.exit:
        raise text.refusal(answer, REFUSALS, "the machine did not stop its pilots")


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
