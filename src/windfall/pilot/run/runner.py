"""The program of a warm runner: takes pickled calls one by one and writes pickled results.

This file stands alone: the pilot copies it out of the zipapp and starts it with the user's interpreter and
site-packages, so that a call finds the user's modules and not the pilot's.  No other part of the pilot unpickles.

Calls wait in a queue of packets at descriptor 3.  A runner begins a call by taking its packet: the kernel gives a
packet to the runner, or back to the spawner, never to both.  The runner writes each result to descriptor 4.  Where the
spawner must act before the next call (read output, remove files, kill processes left behind) the result says so, and
the runner waits for a byte.  Formats: CALL and RESULT.
"""

import fcntl
import os
import pickle
import resource
import struct
import sys
import termios
import time
import traceback
from binascii import a2b_base64, b2a_base64

CALLS, RESULTS = 3, 4
# attempt, the task's number (-1: not named), 1 if the text is the name of a file with it; lengths of the variables that
# name its bag, and of the directory
CALL = struct.Struct("=qqBHI")
RESULT = struct.Struct("=IIqBqqdd")  # lengths of value and note, attempt, flags, cpu in ms, memory, begin, end
OK, WAITS, LEFT = 1, 2, 4            # flags: success, the runner waits for a byte, the call left processes
STORED = b"@"          # the value of a result that is in a file beside this program
PACKET = 1 << 16       # most bytes of a packet; Python would map a larger buffer anew each time
MAX_VALUE = 40 << 20   # bytes of an exception
STORE_FROM = 1 << 20   # bytes of a result from which on it goes into a file
MAX_FUNCTIONS = 256
PROTOCOL = 4
VERSION = "{}.{}".format(*sys.version_info).encode("ascii")
CHUNK = VERSION + b"*"
MISMATCH = ("the call was pickled by Python {}, and this pilot runs Python {}, which may not read it; "
            "use the same version on both sides")
PART = ".windfall-part-"
INITIALIZER = "WINDFALL_INITIALIZER"
ENDS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)

_functions = {}  # text → function: most calls have the same one
_large_function = {}  # the last one that came as a file


class InitializerFailed(Exception):
    """No call of this runner can succeed."""


def initialize():
    """Run the initializer, once per runner, before its first call."""
    text = os.environ.pop(INITIALIZER, None)
    if text is None:
        return
    try:
        _, function, arguments = text.split(" ")
        args, kwargs = pickle.loads(a2b_base64(arguments))
        pickle.loads(a2b_base64(function))(*args, **kwargs)
    except ENDS as error:
        os.environ[INITIALIZER] = text  # the next call must not run either
        raise InitializerFailed() from _explained(error)


def main():
    sys.path[0] = ""  # not the pilot's directory: where the call runs
    calls, results = _private(CALLS), _private(RESULTS)
    os.close(CALLS)
    os.close(RESULTS)
    Runner(calls, results, (_private(1), _private(2))).serve()


def _private(fd):
    """Return a copy of a descriptor, with a high number, that no child inherits."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)


def _pick_clock():
    """Return the pilot's clock (see clock.py)."""
    try:
        time.clock_gettime(7)
        return lambda: time.clock_gettime(7)
    except (AttributeError, OSError):
        return time.monotonic


class Runner:
    def __init__(self, calls, results, outputs):
        self.calls, self.results, self.outputs = calls, results, outputs
        self.clock = _pick_clock()
        self.cwd, self.place, self.identity = b"", -1, None  # directory of calls: path, descriptor, state before
        self.spent = _usage()[0]
        self.names = b""             # variables that name the last call's bag
        self.folder = os.path.dirname(os.path.abspath(__file__))

    def serve(self):
        while True:
            packet = os.read(self.calls, PACKET)
            if not packet:
                return
            attempt, number, filed, named, length = CALL.unpack_from(packet)
            cwd = CALL.size + named
            text = cwd + length
            self._name(attempt, number, packet[CALL.size:cwd])
            self._run(attempt, packet[cwd:text], packet[text:], filed)

    def _name(self, attempt, number, names):
        """Tell the call its attempt, task, bag and target by its environment."""
        os.environ["WINDFALL_ATTEMPT"] = str(attempt)
        if number >= 0:
            os.environ["WINDFALL_TASK"] = str(number)
        if names != self.names:
            self.names = names
            for pair in names.split(b"\0") if names else ():
                os.environb.__setitem__(*pair.split(b"=", 1))

    def _run(self, attempt, cwd, text, filed):
        begin = self.clock()
        if cwd != self.cwd:
            self._move(cwd)
        os.fchdir(self.place)
        ok, value, note = _call(_content(text) if filed else text, result_file(self.folder, attempt))
        flags = OK if ok else 0
        if self._wrote() or self.identity != _identity(self.place):  # `_wrote` first, since it flushes buffers
            flags |= WAITS
        if _has_children():
            flags |= LEFT | WAITS
        before = self.spent
        self.spent, rss = _usage()
        head = (len(value), len(note), attempt, flags, int(1000 * (self.spent - before)), rss, begin, self.clock())
        self._send(RESULT.pack(*head) + value + note)
        if flags & WAITS:
            self._wait()

    def _move(self, cwd):
        place = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
        if self.place >= 0:
            os.close(self.place)
        self.cwd, self.place, self.identity = cwd, place, _identity(place)

    def _wait(self):
        """Wait until the spawner has prepared the slot for the next call; the directory may be another then."""
        if not os.read(self.results, 1):
            os._exit(0)
        self.cwd = b""

    def _wrote(self):
        """Is there unread output, or has the call changed the pipes?"""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        try:
            for fd in self.outputs:
                if fcntl.ioctl(fd, termios.FIONREAD, NOTHING) != NOTHING:
                    return True
                if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK:
                    return True
        except OSError:
            return True
        return False

    def _send(self, data):
        sent = os.write(self.results, data)
        while sent < len(data):
            data = data[sent:]
            sent = os.write(self.results, data)


NOTHING = struct.pack("=i", 0)


def _identity(place):
    """Return a value that changes when an entry of a directory is made, removed or renamed (see slot.py)."""
    about = os.fstat(place)
    return about.st_mode, about.st_mtime, about.st_ctime, about.st_nlink


def _content(path):
    with open(path, "rb") as file:
        text = file.read()
    os.unlink(path)
    return text


def _usage():
    """Return (seconds of processor time, with that of children; most memory, in bytes)."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, own.ru_maxrss * 1024


def _has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def _call(text, place):
    """Call what a text names; return (did it return, its value, a note), the latter two as bytes.

    A large value goes into the file `place`.
    """
    try:
        version, *parts = text.split(b" ")
        function, arguments, *results = parts
        if version not in (VERSION, CHUNK):
            raise RuntimeError(MISMATCH.format(version.decode("ascii").rstrip("*"), VERSION.decode("ascii")))
        initialize()
        function, arguments = _function(function), _loaded(arguments)
        if version == CHUNK:
            _hide(parts)
            return True, _stored(_chunk(function, arguments), place), b""
        args, kwargs = _complete(arguments, [_loaded(result)[1] for result in results])
        del arguments
        _hide(parts)
        return True, _stored(("ok", function(*args, **kwargs)), place), b""
    except ENDS as error:
        return _failure(error)


def _loaded(part):
    """Return the value of a call's part: base64, or a reference to a file."""
    if part[:1] != b"@":
        return pickle.loads(a2b_base64(part))
    with open(_part_file(part), "rb") as file:
        return pickle.load(file)


def _part_file(part):
    return PART + part[1:65].decode("ascii")


def _hide(parts):
    """Remove the files of a call's parts, since the call must not see them."""
    for part in {part for part in parts if part[:1] == b"@"}:
        os.unlink(_part_file(part))


def _complete(arguments, results):
    """Put the results of other calls at their places among the arguments."""
    if not results:
        return arguments
    args, kwargs, places = arguments
    args = list(args)
    for place, result in zip(places, results):
        (kwargs if isinstance(place, str) else args)[place] = result
    return args, kwargs


def _function(text):
    known = _large_function if text[:1] == b"@" else _functions
    function = known.get(text)
    if function is None:
        if known is _large_function or len(known) >= MAX_FUNCTIONS:
            known.clear()
        function = known[text] = _loaded(text)
    return function


def result_file(folder, attempt):
    return os.path.join(folder, "result-{}".format(attempt))


def _stored(value, place):
    """Return a value as bytes for a message, or write a large one into the file `place` and return STORED."""
    data = pickle.dumps(value, PROTOCOL)
    if len(data) < STORE_FROM:
        return b2a_base64(data, newline=False)
    try:
        with open(place, "wb") as file:
            file.write(data)
    except OSError:
        remove(place)
        raise
    return STORED


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def _chunk(function, calls):
    """Call the function once per arguments; a failing call keeps no other from its result."""
    values, errors = [], {}
    for place, args in enumerate(calls):
        try:
            values.append(function(*args))
        except ENDS as error:
            values.append(None)
            errors[place] = _portable(error)
    return "chunk", values, errors


def _portable(error):
    """Return (exception, traceback); None for an exception that cannot be pickled and unpickled, or is too large."""
    error = _explained(error)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        data = pickle.dumps(error, PROTOCOL)
        pickle.loads(data)
        return error if len(data) < MAX_VALUE else None, text[-MAX_VALUE // 4:]
    except Exception:
        return None, text[-MAX_VALUE // 4:]


def _explained(error):
    """Say of a module that is missing here where that is, and how to send it along."""
    if type(error) is not ModuleNotFoundError:
        return error
    says = ("{} on the host {}, whose pilot runs {} (Python {}); install it there, or send your packages along: "
            "Executor(environment=\".venv\")")
    told = ModuleNotFoundError(says.format(error, os.uname()[1], sys.executable, VERSION.decode("ascii")),
                               name=error.name)
    told.__cause__, told.__context__ = error.__cause__, error.__context__
    told.__suppress_context__ = error.__suppress_context__
    return told.with_traceback(error.__traceback__)


def _failure(error):
    broken = isinstance(error, InitializerFailed)
    error, text = _portable(error)
    value = b2a_base64(pickle.dumps(("broken", None, text) if broken else ("error", error, text), PROTOCOL),
                       newline=False)
    last = [line for line in text.splitlines() if line.strip()]
    return False, value, (last[-1][:1000] if last else "the call failed without a message").encode("utf-8", "replace")


if __name__ == "__main__":
    main()
