"""The script of a job: variables, set-up lines, then the pilot in place of the shell, so that signals reach it.

The script holds no secret, since all users of a cluster may read job scripts and environments.  The pilots' token lies
in a file that only its owner can read; the script names that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import NamedTuple

from windfall.sites.dialects.job import Command, Job, parts
from windfall.sites.dialects.text import shell, words

NO_PYTHON = "windfall-job: no python: "  # the last line of a job's log; `provision/job_log.py` knows these two
DAMAGED = "windfall-job: damaged: "
_CHECK = ("import hashlib, sys; sys.exit(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest() != sys.argv[2] "
          f"and '{DAMAGED}' + sys.argv[1] or 0)")


class ArrayIndex(NamedTuple):
    """A shell expression for a pilot's place in its array, counted from `first`."""

    expression: str
    first: int = 1


def script(job: Job, index: ArrayIndex, jobid: str, directives: Sequence[str] | None = None, before: str = "") -> str:
    """Return the script.  `jobid`: a shell expression for the job's id; `directives` replace the job's own."""
    mark, number = parts(job.nonce)
    nonce = f"{mark}-$(({number - index.first} + {index.expression}))" if job.count > 1 else job.nonce
    lines = ["#!/bin/sh", *(job.directives if directives is None else directives), f"# Windfall, pilot {job.nonce}",
             f"WINDFALL_NONCE={nonce}", f"WINDFALL_JOB={jobid}", "export WINDFALL_NONCE WINDFALL_JOB"]
    lines += [*_exports(job.variables), *job.setup]
    lines += _to_files(job)
    lines += [before] if before else []
    python = quote(job.command[0])
    lines.append(f"command -v {python} >/dev/null || {{ echo '{NO_PYTHON}'{python} >&2; exit 127; }}")
    if job.digest:  # the file may have changed while the job waited
        lines.append(f"{words((job.command[0], '-c', _CHECK, job.files[0], job.digest))} || exit 72")
    lines.append("exec " + words(job.command))
    return "\n".join(lines) + "\n"


def _exports(variables: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}={quote(value)}; export {name}" for name, value in variables]


def with_setup(argv: Sequence[str], variables: Iterable[tuple[str, str]], setup: Sequence[str]) -> tuple[str, ...]:
    """Return the command for the head node with the variables and set-up lines of a job: a module may bring its
    Python.  The set-up lines read nothing of the command's input, and their output is not part of the answer."""
    before = [*_exports(variables), *setup]
    if not before:
        return tuple(argv)
    lines = ("{", *before, "} </dev/null >&2", "exec " + words(argv))
    return ("/bin/sh", "-c", r'eval "$(printf "%s\n" "$@")"', "windfall", *lines)


def _to_files(job: Job) -> list[str]:
    """Return lines that go to the folder with the pilot's files.  If the node does not see the folder, the batch
    system has sent the files to the job's directory, perhaps with another mode."""
    if not job.files:
        return []
    first, folder = quote(job.files[0]), quote(job.folder)
    lost = f"echo windfall: {first} is neither in {folder} nor beside the job: is that folder shared? >&2; exit 72"
    return [f"[ ! -r {folder}/{first} ] || cd {folder}", f"[ -r {first} ] || {{ {lost}; }}",
            f"chmod go= {words(job.files)} 2>/dev/null"]


_OURS = """ours() {  # other users must not write here: jobs run the files of this folder
    me=$(id -u)
    [ "$(find . -prune -user "$me")" = . ] || { echo "$PWD belongs to another user" >&2; return 77; }
    chmod go-w . || return
    up=$(pwd -P)
    while [ "$up" != / ] && [ "$up" != // ]; do
        up=$(dirname -- "$up")
        [ -z "$(find "$up" -prune -perm -0002 ! -perm -1000 ! -type l)" ] && continue
        echo "any user may replace the files in $up (chmod +t prevents that)" >&2
        return 77
    done
}"""


def prepare(folder: str, after: str = "") -> Command:
    """Return the command that makes the folder for the pilot's file and logs, runs `after`, and prints the folder's
    absolute path.  Without the folder, a job cannot write its log and fails without a message."""
    lines = [f"mkdir -p -- {quote(folder)} && cd -- {quote(folder)} && ours || exit", *filter(None, [after]), "pwd -P"]
    return shell("umask 077", _OURS, *lines)
