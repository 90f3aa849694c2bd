"""From how a process ended to an attempt's outcome.  Never guesses a success.

In this order: what we did to it (cancel, stop, a limit), the signal that ended it, its exit code, the check.
"""

import os
import signal

from windfall.errors import BadInput

from .staging import inside

MATCH_SECONDS = 2.0
ROOM = 1 << 16               # bytes; a disk with less is full

_OURS = {
    "cancel": ("cancelled", "cancel"),
    "stop": ("returned", "stop"),
    "time": ("failed", "time"),
    "memory": ("failed", "memory"),
    "disk": ("failed", "disk"),
}
_NOTES = {
    "time": "over its time limit of {} s",
    "memory": "over its memory limit of {} MB",
    "disk": "over its disk limit of {} MB",
}


def judge(report, code, number, job):
    """Write outcome, reason and note into `report`, by the exit code, or signal number, of a job."""
    if number:
        report["signal"] = number
    else:
        report["exit"] = code
    if job.doom:
        report["o"], report["why"] = _OURS[job.doom]
        _explain_limit(report, job.doom, job.plan)
    elif number:
        _fail(report, "signal", "ended by {}".format(signal_name(number)))
    else:
        check = job.plan.check
        if code != 0 or check:
            try:
                _check(report, code, check or {}, job)
            except (TypeError, ValueError, AttributeError, BadInput) as error:
                _fail(report, "output", "the check makes no sense: {}".format(error))


def _explain_limit(report, doom, plan):
    if doom in _NOTES:
        limit = getattr(plan, doom)
        report["note"] = _NOTES[doom].format(limit if doom == "time" else limit // 1000000)


def _fail(report, why, note):
    report.update(o="failed", why=why, note=note)


def _check(report, code, check, job):
    if code not in (check.get("exit") or [0]):
        if full(job.cwd):
            return _fail(report, "disk", "exit code {}, with the pilot's scratch disk full".format(code))
        return _fail(report, "exit", "exit code {}".format(code))
    for path in check.get("file", ()):
        if not os.path.exists(os.path.join(job.cwd, inside(path))):
            return _fail(report, "output", "the file {} is missing".format(path))
    pattern = check.get("match")
    if pattern:
        problem = _match(pattern, job.captured())
        if problem:
            _fail(report, "output", problem)
    return None


class _TooSlow(Exception):
    pass


def _too_slow(number, frame):
    raise _TooSlow()


def _match(pattern, data):
    """What is wrong, or "".  Bounded in time: the pattern is the user's, and patterns can take for ever."""
    import re
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, MATCH_SECONDS)
    try:
        found = re.search(pattern, data.decode("utf-8", "replace"))
        return "" if found else "the output does not match {!r}".format(pattern)
    except _TooSlow:
        return "matching {!r} took longer than {} s".format(pattern, MATCH_SECONDS)
    except (re.error, RecursionError, OverflowError) as error:
        return "the pattern {!r} cannot be used: {}".format(pattern, error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def full(path):
    """Is there no room on the disk a directory is on?"""
    try:
        about = os.statvfs(path)
    except OSError:
        return False
    blocks = about.f_bavail if os.geteuid() else about.f_bfree
    return blocks * about.f_frsize < ROOM or bool(about.f_files and not about.f_favail)


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)
