"""Looking into what a task wrote: patterns, schemas and files are the user's, so time and memory are bounded."""

import os
import signal
import stat

from windfall.errors import BadInput

from .staging import inside

SEARCH_SECONDS = 2.0
SCHEMA_SECONDS = 10.0
END = 8 << 20                # bytes of either end of a file that are searched
VALUE = 1000                 # characters of a captured value


class _TooSlow(Exception):
    pass


def _too_slow(number, frame):
    raise _TooSlow()


def bounded(seconds, function, doing):
    """What a function returns; BadInput when it takes longer than `seconds`."""
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return function()
    except _TooSlow:
        raise BadInput("{} took longer than {:g} s".format(doing, seconds))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _search(pattern, data):
    import re
    try:
        return re.search(pattern, data.decode("utf-8", "replace"))
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput("the pattern {!r} cannot be used: {}".format(pattern, error))


def mismatch(pattern, data):
    """What is wrong, or ""."""
    found = bounded(SEARCH_SECONDS, lambda: _search(pattern, data), "matching {!r}".format(pattern))
    return "" if found else "the output does not match {!r}".format(pattern)


def misfit(schema, job, path):
    """What keeps a file, or with no path the output, from fitting a JSON schema, or ""."""
    from . import jsonschema

    def look():
        data = pieces(job.cwd, path, jsonschema.MAX_BYTES + 1, 0)[0] if path else job.captured()
        return jsonschema.problem(schema, data.decode("utf-8", "replace"), path or "the output")

    return bounded(SCHEMA_SECONDS, look, "comparing {} with its schema".format(path or "the output"))


def pieces(folder, path, head, tail):
    """[bytes]: the beginning of a file and, where it is longer, its end.  Pipes and devices are not read."""
    fd = os.open(os.path.join(folder, inside(path)), os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("{} is not a file".format(path))
        found = [file.read(head)]
        if tail and about.st_size > head:
            file.seek(max(head, about.st_size - tail))
            found.append(file.read(tail))
        return found


def capture(job, wanted):
    """({name: text} of what was found, what went wrong or "")."""
    values = {}

    def look():
        for name, pattern, path in wanted:
            text = _first(pattern, pieces(job.cwd, path, END, END) if path else [job.captured()])
            if text is not None:
                values[str(name)] = text[:VALUE]

    try:
        bounded(SEARCH_SECONDS, look, "capturing values")
        return values, ""
    except BadInput as error:
        return values, error.message
    except OSError as error:
        return values, "no values from {}: {}".format(os.path.basename(str(error.filename)), error.strerror)
    except (TypeError, ValueError) as error:
        return values, "the capture makes no sense: {}".format(error)


def _first(pattern, data):
    for piece in data:
        found = _search(pattern, piece)
        if found:
            return found.group(1) if found.groups() else found.group(0)
    return None
