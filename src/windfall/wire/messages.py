"""The exchange between pilot and server, fixed as tables of fields.

Rules
  * One call does the work.  Its request brings reports in, its answer takes grants, cancellations and recalls out.
  * Every request may be sent again, unchanged, any number of times: the server recognises reports by their
    attempt, and resends grants until a request acknowledges them (`ack`).
  * The token names the pilot, `epoch` its enrolment.  A pilot with a superseded epoch may report tasks, not start them.
  * The messages know nothing of HTTP: a relay or a spool of files can carry the same dictionaries.
  * Fields at their default are left out.  Unknown fields are ignored, so that both ends may grow.

Times are integers, milliseconds.  Sizes are bytes.  Text that is not UTF-8 travels as base64 in a field `…64`.

A grant is `{"n": number, "groups": [group]}`; a group is `{"spec": SPEC, "tasks": [TASK]}`, so that the fields which
tasks of one class share are sent once.  A TASK is `[attempt, command]` or `[attempt, command, extra]`: the command is
a list (argument vector), a string (for `/bin/sh -c`) or, where the spec's kind is "call", base64 of a pickled call;
`extra` has the fields that differ from task to task (`outputs`, `inputs`, `placed`, `environment`, `check`,
`checkpoint`, `capture`), each replacing the spec's.

A group with a `chain` (a number within its bag) is a batch, or part of one: its tasks, and those of later groups with
the same chain, run one after the other in one slot, in the order given.  `behind` may name, task by task, the attempt
that must have succeeded on this pilot before (0: none); otherwise the pilot returns the task with why "behind".  No
bag file asks for that yet: a pilot too old to know the field would start such a task early.

`numbers` names the tasks of a group by their numbers within the bag; tasks find their own in their environment.
"""

VERSIONS = (1,)  # protocol versions this end speaks, the newest last

# Kinds of field: i integer, n integer or null, s text, b true/false, l list, d object.
# "?" marks a field that may be left out.

ENROL = {
    "v": "i",            # newest version the pilot speaks
    "versions": "l?",    # all of them
    "site": "s",         # the site's name
    "nonce": "s",        # names this pilot within its site; enrolling again under the same nonce makes a new epoch
    "host": "d",         # HOST
    "shape": "d",        # SHAPE
}
ENROLLED = {
    "v": "i",            # version to speak from now on
    "pilot": "i",        # number of the pilot
    "epoch": "i",
    "token": "s",        # the pilot's own; good for its granted attempts and their blobs
    "lease": "i",        # ms the pilot may go on starting tasks after its last successful request was *sent*
    "idle": "i",         # ms without work after which it leaves
    "spread": "i?",      # ms: a pilot that lost the server waits a random part of this before it comes back
    "park": "i?",        # ms a poll may ask to be parked, at most; left out: 30 s
}
HOST = {
    "id": "s",           # survives restarts and preemption (G9)
    "name": "s",
    "cores": "i", "memory": "i", "gpus": "l?",       # gpus: [{"id", "name", "memory"}]
    "platform": "s?", "python": "s?", "boot": "s?",
    "life": "s?",        # the mark of the pilot's processes, and the pid namespace where they can be seen
    "hardware": "s?",    # a digest of the addresses of the network cards; left out where there are none
}
SHAPE = {
    "cores": "i",        # what the allocation may use
    "memory": "i",
    "gpus": "i?",
    "disk": "i?",
    "left": "n?",        # ms of wall time left; null: no end
    "nodes": "i?",       # more than one: the rest is on each of them
}
EXCHANGE = {
    "v": "i",
    "epoch": "i",
    "seq": "i",          # counts a pilot's requests; a resent one keeps its number
    "ack": "i",          # highest grant number taken in
    "want": "i?",        # most tasks it will take now (0: none)
    "wait": "i?",        # ms it is willing to be parked when there is nothing to say
    "left": "n?",        # ms of wall time left
    "started": "l?",     # attempts that run now and that no earlier request named as started
    "reports": "l?",     # [REPORT]
    "held": "l?",        # all attempts it holds and has not reported: after a reconnection, or when asked (census)
    "bye": "s?",         # last words: idle, walltime, stopped; everything unreported has been returned
    "trouble": "s?",     # why the pilot takes no tasks now, a sentence; in every request as long as that lasts
    "dead": "l?",        # of the lives to look for, those that have no process left on this host
}
REPORT = {
    "a": "i",            # attempt
    "o": "s?",           # outcome: succeeded (default), failed, cancelled, returned
    "why": "s?",         # exit, signal, time, memory, disk, output, start, input, cancel, recall, stop
    "exit": "i?", "signal": "i?",
    "t0": "i?",          # start and end by the pilot's wall clock, for people
    "t1": "i?",
    "wall": "i?",        # ms by the pilot's monotonic clock, for arithmetic
    "cpu": "i?",         # ms, user and system, of the whole process tree as far as known
    "rss": "i?",         # peak memory, bytes
    "out": "s?", "err": "s?",        # head (and tail) of what was captured
    "out64": "s?", "err64": "s?",    # the same when it is not UTF-8
    "out_size": "i?", "err_size": "i?",   # bytes written in all; where larger than the text, some is left out
    "files": "l?",       # [[path, sha256, size, mode]] outputs already uploaded
    "value": "s?",       # result of a call, base64
    "values": "d?",      # captured values: {name: text}
    "saved": "l?",       # [[path, sha256, size, mode]] checkpoint files of an attempt ended early, already uploaded
    "scratch": "l?",     # [sha256, size] of the directory of a failed attempt, a tar.gz already uploaded
    "note": "s?",        # one sentence for a person
    "left": "l?",        # [bytes, files] left in place
}
ANSWER = {
    "v": "i",
    "epoch": "i",
    "seq": "i",          # the request's
    "lease": "i?",
    "grants": "l?",      # not acknowledged yet, oldest first
    "cancel": "l?",      # attempts to kill, or to drop when not started
    "recall": "l?",      # attempts to give back if they have not started
    "stream": "l?",      # attempts whose output a user is watching
    "look": "l?",        # lives of pilots that ran on this host: say when no process of theirs is left
    "census": "b?",      # list all attempts you hold in your next request
    "stop": "s?",        # drain: finish, return the rest, leave.  superseded: only report, then leave
    "again": "i?",       # come back after this many ms
    "spread": "i?",      # as in ENROLLED
}
SPEC = {
    "bag": "i",
    "target": "s?",
    "kind": "s?",        # command (default) or call
    "cores": "i?", "memory": "i?", "gpus": "i?", "disk": "i?",
    "time": "n?",        # limit in ms; the pilot kills a task past it: why "time"
    "need": "i?",        # ms of wall time a pilot must have left to start the task; left out: the limit
    "grace": "i?",       # ms between SIGTERM and SIGKILL
    "environment": "d?",
    "setup": "l?",       # shell lines run before the command, in the same shell
    "modules": "l?",     # names for `module load`
    "container": "s?",   # image
    "packed": "l?",      # [sha256, size, "3.11"]: a packed Python environment, unpacked once per pilot directory
    "inputs": "l?",      # [[path, sha256, size, mode]]
    "placed": "l?",      # [[path, absolute path on the host]]: to be linked; with an empty path, only to be there
    "checkpoint": "l?",  # paths: uploaded when the attempt is ended early; the next attempt gets them as inputs
    "capture": "l?",     # [[name, regex, file or ""]]
    "nodes": "i?",       # more than one: the task takes the whole pilot, and is told which nodes it has
    "scratch": "s?",     # "failed": keep the directory of a failed attempt
    "whole": "b?",       # takes the whole pilot
    "outputs": "l?",     # paths; a missing one is an output failure
    "check": "d?",       # {"exit": [0], "file": [..], "match": "regex over stdout", "schema": text, "command": ..}
    "keep": "i?",        # bytes to keep of either end of stdout and of stderr
}

OUTCOMES = ("succeeded", "failed", "cancelled", "returned", "lost")
WHYS = ("", "exit", "signal", "time", "memory", "disk", "output", "start", "program",
        "input", "cancel", "recall", "stop", "lease", "gone", "superseded", "refused", "behind")

MAX_MESSAGE = 64 << 20   # bytes of one request or answer
MAX_REPORTS = 4096       # reports in one request
MAX_HELD = 1 << 16       # tasks that a pilot holds, at most
MAX_ATTEMPTS = 1 << 17   # attempts named as started, or as held with their reports, in one request
INLINE = 16 << 10        # captured output up to this travels in the report; beyond it head and tail are kept


def negotiate(theirs):
    """Return the highest version that both ends speak, or None."""
    both = [v for v in VERSIONS if v in theirs]
    return max(both) if both else None


_KINDS = {"i": int, "s": str, "b": bool, "l": list, "d": dict}


def check(table, message, name="message"):
    """Return the first problem of `message` as a sentence, or "" if it fits its table."""
    if not isinstance(message, dict):
        return "{} is not an object".format(name)
    for field, kind in table.items():
        if field not in message:
            if not kind.endswith("?"):
                return "{} lacks '{}'".format(name, field)
            continue
        value = message[field]
        letter = kind[0]
        if letter == "n":
            if value is None:
                continue
            letter = "i"
        wanted = _KINDS[letter]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            return "{}: '{}' is not {}".format(name, field, wanted.__name__)
    return ""
