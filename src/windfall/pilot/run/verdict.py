"""From how a process ended to an attempt's outcome.  Never guesses a success.

In this order: what we did to it (cancel, stop, a limit), the signal that ended it, its exit code, the check.
"""

import os
import signal

from windfall.errors import BadInput
from windfall.pilot.files import checks
from windfall.pilot.files.staging import inside

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
    """Write outcome, reason and note into `report`, by the exit code, or signal number, of a job.

    Returns the Look that has to be taken at its results before all is said, or None.
    """
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
        try:
            return _judge_exit(report, code, job)
        except BadInput as error:
            _fail(report, "output", error.message)
        except Exception as error:  # a task, or its check, that is past understanding must not end the other tasks
            _fail(report, "output", "the check makes no sense: {}".format(error))
    return None


def _judge_exit(report, code, job):
    if code != 0 or job.plan.check:
        _check(report, code, job.plan.check or {}, job)
    if report.get("why", "") not in ("", "output"):
        return None
    look = checks.Look(job, "o" not in report)
    found = look.quick() if look.needed() else None
    if found is None:
        return look if look.needed() else None
    judge_found(report, found)
    return None


def _explain_limit(report, doom, plan):
    if doom in _NOTES:
        limit = getattr(plan, doom)
        report["note"] = _NOTES[doom].format(limit if doom == "time" else limit // 1000000)


def _fail(report, why, note):
    report.update(o="failed", why=why, note=note)


def _check(report, code, check, job):
    around = job.plan.around.explain(code, _last_line(job.err)) if job.plan.around is not None else ""
    if around:
        return _fail(report, "start", around)
    if code not in (check.get("exit") or [0]):
        if full(job.cwd):
            return _fail(report, "disk", "exit code {}, with the pilot's scratch disk full".format(code))
        return _fail(report, "exit", "exit code {}".format(code))
    for path in check.get("file", ()):
        if not os.path.exists(os.path.join(job.cwd, inside(path))):
            return _fail(report, "output", "the file {} is missing".format(path))
    return None


def judge_found(report, found):
    """The same by what was found in a task's results."""
    if found["problem"]:
        _fail(report, "output", found["problem"])
    if found["values"]:
        report["values"] = found["values"]
    if found["trouble"]:
        report.setdefault("note", found["trouble"])


def judge_look(report, number, job):
    """The same once the process that looks at them has ended."""
    found = job.look.answered()
    if job.doom in ("cancel", "stop"):
        report["o"], report["why"] = _OURS[job.doom]
    elif found is not None:
        judge_found(report, found)
    elif "o" not in report:
        how = "it took longer than {:g} s".format(checks.SECONDS) if job.doom else "ended by {}".format(
            signal_name(number)) if number else "nothing was said"
        _fail(report, "output", "the result could not be looked at: {}".format(how))


def judge_check(report, code, number, job):
    """The same for the command that looks at a task's results; `report` is the task's."""
    if job.doom in ("cancel", "stop"):
        report["o"], report["why"] = _OURS[job.doom]
    elif job.doom:
        _fail(report, "output", "the check took longer than {:g} s".format(job.plan.check_time))
    elif number or code:
        how = "ended by {}".format(signal_name(number)) if number else "exit code {}".format(code)
        said = _last_line(job.err)
        _fail(report, "output", "the check failed: {}{}".format(how, ": " + said if said else ""))


def _last_line(capture):
    said = b"" if capture is None else capture.kept().strip().rpartition(b"\n")[2]
    return said.decode("utf-8", "replace")


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
