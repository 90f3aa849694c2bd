"""The script of a job: variables, set-up lines, then the pilot in place of the shell, so that signals reach it.

It holds no secret.  Everybody on a cluster may read job scripts and environments; what lets a pilot in lies in a file
that only its owner can read, and the script names that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote

from windfall.sites.dialects.job import Command, Job, parts
from windfall.sites.dialects.text import shell, words

NO_PYTHON = "windfall-job: no python: "  # last words of a job; whoever looks into its log knows them
DAMAGED = "windfall-job: damaged: "
_CHECK = ("import hashlib, sys; sys.exit(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest() != sys.argv[2] "
          f"and '{DAMAGED}' + sys.argv[1] or 0)")


def script(job: Job, index: str, jobid: str, first: int = 1, directives: Sequence[str] | None = None,
           before: str = "") -> str:
    """`index`, `jobid`: what the shell makes of them is the pilot's place in the array, counted from `first`, and its
    job's id."""
    mark, number = parts(job.nonce)
    nonce = f"{mark}-$(({number - first} + {index}))" if job.count > 1 else job.nonce
    lines = ["#!/bin/sh", *(job.directives if directives is None else directives), f"# Windfall, pilot {job.nonce}",
             f"WINDFALL_NONCE={nonce}", f"WINDFALL_JOB={jobid}", "export WINDFALL_NONCE WINDFALL_JOB"]
    lines += [*_exports(job.variables), *job.setup]
    lines += _beside(job)
    lines += [before] if before else []
    python = quote(job.command[0])
    lines.append(f"command -v {python} >/dev/null || {{ echo '{NO_PYTHON}'{python} >&2; exit 127; }}")
    if job.digest:  # what was put there is what runs, whatever became of the file while the job waited
        lines.append(f"{words((job.command[0], '-c', _CHECK, job.files[0], job.digest))} || exit 72")
    lines.append("exec " + words(job.command))
    return "\n".join(lines) + "\n"


def _exports(variables: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}={quote(value)}; export {name}" for name, value in variables]


def surrounded(argv: Sequence[str], variables: Iterable[tuple[str, str]], setup: Sequence[str]) -> tuple[str, ...]:
    """The same command where commands run, in the surroundings that a job has: its Python may be a module's.  What the
    set-up lines print is not the command's answer, and what is said to it is not for them."""
    before = [*_exports(variables), *setup]
    if not before:
        return tuple(argv)
    lines = ("{", *before, "} </dev/null >&2", "exec " + words(argv))
    return ("/bin/sh", "-c", r'eval "$(printf "%s\n" "$@")"', "windfall", *lines)


def _beside(job: Job) -> list[str]:
    """Where the folder is not to be seen, its files have been sent to where the job runs.  A copy that was sent may
    have lost its mode."""
    if not job.files:
        return []
    first, folder = quote(job.files[0]), quote(job.folder)
    lost = f"echo windfall: {first} is neither in {folder} nor beside the job: is that folder shared? >&2; exit 72"
    return [f"[ ! -r {folder}/{first} ] || cd {folder}", f"[ -r {first} ] || {{ {lost}; }}",
            f"chmod go= {words(job.files)} 2>/dev/null"]


_OURS = """ours() {  # nobody else may put anything here: what lies here is run under our name
    me=$(id -u)
    [ "$(find . -prune -user "$me")" = . ] || { echo "$PWD belongs to somebody else" >&2; return 77; }
    chmod go-w . || return
    up=$(pwd -P)
    while [ "$up" != / ] && [ "$up" != // ]; do
        up=$(dirname -- "$up")
        [ -z "$(find "$up" -prune -perm -0002 ! -perm -1000 ! -type l)" ] && continue
        echo "anybody may replace what is in $up (chmod +t would mend it)" >&2
        return 77
    done
}"""


def prepare(folder: str, after: str = "") -> Command:
    """Makes the folder for pilot and logs: a job whose log cannot be written fails without a word.  Says where it is,
    after what `after` says."""
    lines = [f"mkdir -p -- {quote(folder)} && cd -- {quote(folder)} && ours || exit", *filter(None, [after]), "pwd -P"]
    return shell("umask 077", _OURS, *lines)
