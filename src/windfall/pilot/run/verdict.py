"""The outcome of an attempt, as its pilot reports it, from the end of its process.  It is never a guessed success.

The core decides what the outcome makes of the task (`core/decide/exchange/verdicts.py`).
Reasons count in this order: the spawner ended the task (cancel, stop, a limit), a signal, the exit code, the check.
"""

import os
import re
import signal

from windfall.errors import BadInput
from windfall.pilot.files import checks, scratch
from windfall.pilot.files.staging import inside
from windfall.pilot.notes import short
from windfall.pilot.run.slot import usage

ROOM = 1 << 16               # bytes: a disk with less room is full

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


_FIRST_WORD = re.compile(r"\s*([\w.@%+,:-]*(?:/[\w.@%+,:-]+)+)(?=[\s;&|<>]|$)")  # of a shell's text: a plain path


def judge(report, code, number, job):
    """Write outcome, reason and note into `report`, by the exit code or signal number of a job.

    Return the Inspection of its results if one must run before the verdict is complete, else None.
    """
    if number:
        report["signal"] = number
    else:
        report["exit"] = code
    if job.kill_reason:
        report["o"], report["why"] = _OURS[job.kill_reason]
        _explain_limit(report, job.kill_reason, job.plan)
    elif number:
        _fail(report, "signal", "ended by {}".format(signal_name(number)))
    else:
        try:
            return _judge_exit(report, code, job)
        except BadInput as error:
            _fail(report, "output", error.message)
        except Exception as error:  # a malformed check must not end the other tasks
            _fail(report, "output", "the check cannot be used: {}".format(error))
    return None


def _judge_exit(report, code, job):
    if code != 0 or job.plan.check:
        _check(report, code, job.plan.check or {}, job)
    if report.get("why", "") not in ("", "output"):
        return None
    inspection = checks.Inspection(job, "o" not in report)
    found = inspection.quick() if inspection.needed() else None
    if found is None:
        return inspection if inspection.needed() else None
    judge_found(report, found)
    return None


def _explain_limit(report, kill_reason, plan):
    if kill_reason in _NOTES:
        limit = getattr(plan, kill_reason)
        report["note"] = _NOTES[kill_reason].format(limit if kill_reason == "time" else limit // 1000000)


def _fail(report, why, note):
    report.update(o="failed", why=why, note=note)


def _check(report, code, check, job):
    not_prepared = job.plan.wrapper.explain(code, _last_line(job.err)) if job.plan.wrapper is not None else ""
    if not_prepared:
        return _fail(report, "start", not_prepared)
    if code not in (check.get("exit") or [0]):
        missing = _no_program_for_shell(code, job)
        if missing:
            return _fail(report, "program", missing)
        if full(job.cwd):
            note = "exit code {}, with the pilot's scratch disk full".format(code)
            return no_room(report, job.cwd, note, own=usage(job.cwd))
        return _fail(report, "exit", "exit code {}".format(code))
    for path in check.get("file", ()):
        if not os.path.exists(os.path.join(job.cwd, inside(path))):
            return _fail(report, "output", "the file {} is missing".format(path))
    return None


def no_room(report, folder, note, own=0):
    """Return the attempt if the scratch disk is full even without its `own` bytes there; else it has failed."""
    why = scratch.trouble(folder, own)
    if why:
        report.update(o="returned", why="disk", note="the pilot has no room: " + why)
    else:
        _fail(report, "disk", note)


def no_program(name, folder):
    """Return a sentence if no host could run this program, since a path in the task's own directory leads to none;
    else "".
    """
    if not folder or "/" not in name or name.startswith("/"):
        return ""
    path, shown = os.path.join(folder, name), short(repr(name), 60)
    if not os.path.lexists(path):
        return ("cannot run {}: a task runs in a directory of its own; name the file with --input, or use an absolute"
                " path".format(shown))
    if os.path.isfile(path) and not os.stat(path).st_mode & 0o111:
        return "cannot run {}: the file is not executable; chmod +x it, or name its interpreter".format(shown)
    return ""


def _no_program_for_shell(code, job):
    """Do the same for the first word of a shell's command, after the exit code by which a shell tells of it."""
    if code not in (126, 127) or not isinstance(job.command, str) or job.plan.setup or job.plan.wrapper is not None:
        return ""
    first = _FIRST_WORD.match(job.command)
    return no_program(first.group(1), job.cwd) if first else ""


def judge_found(report, found):
    """Write the findings of an inspection into the report."""
    if found["problem"]:
        _fail(report, "output", found["problem"])
    if found["values"]:
        report["values"] = found["values"]
    if found["trouble"]:
        report.setdefault("note", found["trouble"])


def judge_inspection(report, number, job):
    """Complete the verdict when the inspecting process has ended; `number` is the signal that ended it."""
    found = job.inspection.answered()
    if job.kill_reason in ("cancel", "stop"):
        report["o"], report["why"] = _OURS[job.kill_reason]
    elif found is not None:
        judge_found(report, found)
    elif "o" not in report:
        how = "it took longer than {:g} s".format(checks.SECONDS) if job.kill_reason else "ended by {}".format(
            signal_name(number)) if number else "it gave no answer"
        _fail(report, "output", "the result could not be checked: {}".format(how))


def judge_check(report, code, number, job):
    """Complete the verdict when the check's command has ended; `report` is the task's."""
    if job.kill_reason in ("cancel", "stop"):
        report["o"], report["why"] = _OURS[job.kill_reason]
    elif job.kill_reason:
        _fail(report, "output", "the check took longer than {:g} s".format(job.plan.check_time))
    elif number or code:
        how = "ended by {}".format(signal_name(number)) if number else "exit code {}".format(code)
        line = _last_line(job.err)
        _fail(report, "output", "the check failed: {}{}".format(how, ": " + line if line else ""))


def _last_line(capture):
    line = b"" if capture is None else capture.kept().strip().rpartition(b"\n")[2]
    return line.decode("utf-8", "replace")


def full(path):
    """Is the disk of this directory full?"""
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
