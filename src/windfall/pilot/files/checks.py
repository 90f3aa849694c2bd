"""Looking into what a task wrote: patterns, schemas and files are the user's, so time and memory are bounded.

Rules
  * Nobody waits for it: what may take longer than QUICK_SECONDS is done by a process of its own, a fork of the spawner,
    which writes what it found into a pipe.
  * That process bounds each part of its work itself, so that it can say which took too long; should it fail to, it is
    killed after SECONDS.
  * Whatever goes wrong is a problem of the result, in words.
"""

import json
import os
import signal

from windfall.errors import BadInput
from windfall.pilot.files.staging import open_inside
from windfall.pilot.run import spawn

QUICK_SECONDS = 0.02         # what the spawner itself spends on a short output
QUICK_BYTES = 1 << 16
SEARCH_SECONDS = 2.0
SCHEMA_SECONDS = 10.0
SECONDS = 30.0               # for all of it
END = 8 << 20                # bytes of either end of a file that are searched
VALUE = 1000                 # characters of a captured value
ANSWER = 16 << 20            # bytes of what was found, at most
PIECE = 1 << 16


class _TooSlow(BaseException):
    """Not to be caught by whoever is in the middle of something."""


def _too_slow(number, frame):
    raise _TooSlow()


def bounded(seconds, function, doing):
    """What a function returns; BadInput when it takes longer than `seconds`."""
    before = signal.getsignal(signal.SIGALRM)
    try:
        try:
            signal.signal(signal.SIGALRM, _too_slow)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)  # the alarm may go off here at the latest: caught below
    except _TooSlow:
        raise BadInput("{} took longer than {:g} s".format(doing, seconds))
    finally:
        signal.signal(signal.SIGALRM, before)


def _at_once(seconds, function, doing):
    """In place of `bounded`, by whom all of it is bounded."""
    return function()


class Look:
    """What is to be found in the results of one task, and the process that does it."""

    def __init__(self, job, checked):
        """`checked`: look for what the check asks for, too."""
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

    # --- what is found

    def quick(self):
        """What was found (see `found`), or None where that may take long."""
        try:
            if self.schema or len(self.output) > QUICK_BYTES or any(path for _, _, path in self.capture or ()):
                return None
            return bounded(QUICK_SECONDS, lambda: self.found(_at_once), "looking")
        except (BadInput, TypeError, ValueError):
            return None

    def found(self, bound=bounded):
        """{"problem": what is wrong with the result, "values": {name: text}, "trouble": what kept values away}."""
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
        def look():
            for name, pattern, path in self.capture or ():
                text = _first(pattern, pieces(self.folder, path, END, END) if path else [self.output])
                if text is not None:
                    values[str(name)] = text[:VALUE]
            return ""

        return bound(SEARCH_SECONDS, look, "capturing values")

    # --- by a process of its own

    def start(self):
        """Its pid; what it says comes through `pipe`."""
        if self.schema:
            from windfall.pilot.files import json_schema  # noqa: F401  once here, not once per process
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
        """The life of the process."""
        try:
            _become_another(writer)
            answer = json.dumps(self.found()).encode("ascii")
            while answer:
                answer = answer[os.write(writer, answer):]
        finally:
            os._exit(0)

    def read(self):
        """Take in what it says; False when there is no more."""
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
        """What was found, once it has ended; None if it did not come to that."""
        self.read()
        try:
            return json.loads(self.answer.decode("ascii"))
        except ValueError:
            return None

    def close(self):
        os.close(self.pipe)
        self.pipe = -1


def _become_another(writer):
    """From the spawner's fork to a process that holds nothing of the spawner's, and dies when it is told to."""
    signal.set_wakeup_fd(-1)
    for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"):
        if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.setsid()
    spawn.close_all_but(writer)


def _words(function, what):
    """What a function says, or what went wrong with it."""
    try:
        return function()
    except BadInput as error:
        return error.message
    except OSError as error:
        return "{} cannot be read: {}".format(os.path.basename(str(error.filename or what)), error.strerror)
    except (TypeError, ValueError, AttributeError) as error:
        return "{} makes no sense: {}".format(what, error)
    except Exception as error:
        return "{} cannot be made: {}".format(what, type(error).__name__)


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
    """[bytes]: the beginning of a file and, where it is longer, its end.  Pipes and devices are not read."""
    with open_inside(folder, path) as file:
        size = os.fstat(file.fileno()).st_size
        found = [file.read(head)]
        if tail and size > head:
            file.seek(max(head, size - tail))
            found.append(file.read(tail))
        return found
