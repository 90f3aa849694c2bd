"""Inspection of a task's results: compares output with a pattern or a schema, and captures values from it.

Rules
  * Patterns, schemas and files come from users, so time and memory are bounded.
  * An inspection that may take longer than QUICK_SECONDS runs in a process of its own, a fork of the spawner, which
    writes what it found into a pipe.
  * That process bounds each step itself, so that it can name the one that took too long; the spawner kills it after
    SECONDS.
  * Any failure of the inspection is a problem of the task's result, as a sentence for the user.
"""

import json
import os
import signal

from windfall.errors import BadInput
from windfall.pilot.files.staging import open_inside
from windfall.pilot.run import spawn

QUICK_SECONDS = 0.02         # longest time, and longest output, for an inspection within the spawner
QUICK_BYTES = 1 << 16
SEARCH_SECONDS = 2.0
SCHEMA_SECONDS = 10.0
SECONDS = 30.0               # for the whole inspection
END = 8 << 20                # bytes at either end of a file that are searched
VALUE = 1000                 # most characters of a captured value
ANSWER = 16 << 20            # most bytes that the inspecting process may write
PIECE = 1 << 16


class _TooSlow(BaseException):
    """The alarm has gone off; a BaseException, so that no `except Exception` catches it."""


def _too_slow(number, frame):
    raise _TooSlow()


def bounded(seconds, function, doing):
    """Call a function and return its value; raise BadInput when it takes longer than `seconds`."""
    before = signal.getsignal(signal.SIGALRM)
    try:
        try:
            signal.signal(signal.SIGALRM, _too_slow)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)  # the alarm may still go off here; the outer `try` catches it
    except _TooSlow:
        raise BadInput("{} took longer than {:g} s".format(doing, seconds))
    finally:
        signal.signal(signal.SIGALRM, before)


def _at_once(seconds, function, doing):
    """Call a function without a bound of its own: a `bounded` around the whole inspection bounds it."""
    return function()


class Inspection:
    """The inspection of one task's results, and the process that runs it."""

    def __init__(self, job, checked):
        """Prepare to capture values and, with `checked`, to compare the output as the task's check asks."""
        check = job.plan.check if checked and isinstance(job.plan.check, dict) else {}
        self.match = check.get("match")
        self.schema = check.get("schema")
        self.path = (check.get("file") or [""])[0]
        self.capture = job.plan.capture
        self.folder = job.cwd
        self.output = job.captured()
        self.pipe = -1               # while the process lives
        self.answer = b""

    def needed(self):
        return bool(self.match or self.schema or self.capture)

    # --- findings

    def quick(self):
        """Return the findings (see `found`), or None where they may take long."""
        try:
            if self.schema or len(self.output) > QUICK_BYTES or any(path for _, _, path in self.capture or ()):
                return None
            return bounded(QUICK_SECONDS, lambda: self.found(_at_once), "looking")
        except (BadInput, TypeError, ValueError):
            return None

    def found(self, bound=bounded):
        """Return {"problem": why the result is wrong, "values": {name: text}, "trouble": why values are missing}."""
        values = {}
        return {"problem": _words(lambda: self._problem(bound), "the check"), "values": values,
                "trouble": _words(lambda: self._capture(values, bound), "the capture")}

    def _problem(self, bound):
        if self.match and not bound(SEARCH_SECONDS, lambda: _search(self.match, self.output),
                                    "matching {!r}".format(self.match)):
            return "the output does not match {!r}".format(self.match)
        if self.schema:
            return bound(SCHEMA_SECONDS, self._misfit,
                         "comparing {} with its schema".format(self.path or "the output"))
        return ""

    def _misfit(self):
        from windfall.pilot.files import json_schema
        data = pieces(self.folder, self.path, json_schema.MAX_BYTES + 1, 0)[0] if self.path else self.output
        return json_schema.problem(self.schema, data.decode("utf-8", "replace"), self.path or "the output")

    def _capture(self, values, bound):
        def capture():
            for name, pattern, path in self.capture or ():
                text = _first(pattern, pieces(self.folder, path, END, END) if path else [self.output])
                if text is not None:
                    values[str(name)] = text[:VALUE]
            return ""

        return bound(SEARCH_SECONDS, capture, "capturing values")

    # --- the process

    def start(self):
        """Start the inspecting process and return its pid; its findings come through `pipe`."""
        if self.schema:
            from windfall.pilot.files import json_schema  # noqa: F401  imported once, not once per process
        self.pipe, writer = os.pipe()
        try:
            pid = os.fork()
            if not pid:
                self._tell(writer)
        except OSError:
            self.close()
            raise
        finally:
            os.close(writer)
        os.set_blocking(self.pipe, False)
        return pid

    def _tell(self, writer):
        """Inspect the results in the forked process, write the findings, and end."""
        try:
            _leave_spawner(writer)
            answer = json.dumps(self.found()).encode("ascii")
            while answer:
                answer = answer[os.write(writer, answer):]
        finally:
            os._exit(0)

    def read(self):
        """Read what the process has written; return False at the end."""
        while True:
            try:
                data = os.read(self.pipe, PIECE)
            except BlockingIOError:
                return True
            if not data:
                return False
            if len(self.answer) < ANSWER:
                self.answer += data

    def answered(self):
        """Return the findings of a process that has ended; None if it wrote no whole answer."""
        self.read()
        try:
            return json.loads(self.answer.decode("ascii"))
        except ValueError:
            return None

    def close(self):
        os.close(self.pipe)
        self.pipe = -1


def _leave_spawner(writer):
    """Turn a fork of the spawner into a process of its own: default signals, a session, no descriptor but `writer`."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"):
        if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.setsid()
    spawn.close_all_but(writer)


def _words(function, what):
    """Call a function and return its sentence, or one about its failure."""
    try:
        return function()
    except BadInput as error:
        return error.message
    except OSError as error:
        return "{} cannot be read: {}".format(os.path.basename(str(error.filename or what)), error.strerror)
    except (TypeError, ValueError, AttributeError) as error:
        return "{} cannot be used: {}".format(what, error)
    except Exception as error:
        return "{} failed: {}".format(what, type(error).__name__)


def _search(pattern, data):
    import re
    try:
        return re.search(pattern, data.decode("utf-8", "replace"))
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput("the pattern {!r} cannot be used: {}".format(pattern, error))


def _first(pattern, data):
    for piece in data:
        found = _search(pattern, piece)
        if found:
            return found.group(1) if found.groups() else found.group(0)
    return None


def pieces(folder, path, head, tail):
    """Return the beginning of a file and, where it is longer, its end, as [bytes]."""
    with open_inside(folder, path) as file:
        size = os.fstat(file.fileno()).st_size
        found = [file.read(head)]
        if tail and size > head:
            file.seek(max(head, size - tail))
            found.append(file.read(tail))
        return found
