"""A spawner's side of one warm runner: its queue of calls, its stream of results.

The queue is a pair of packet sockets of which we keep both ends.  A packet is taken once: by the runner, which thereby
begins the call, or by us, who thereby have it back.  So it is known at any time, even of a runner that was killed, what
was begun.  A runner runs the user's code: what it says is taken apart with bounds, and whatever does not fit ends it.
"""

import os
import socket
import sys

from windfall.pilot.run import spawn
from windfall.pilot.run.channel import fill
from windfall.pilot.run.runner import CALL, RESULT

LARGE = 1 << 15          # bytes of a call that go through a file; the kernel takes no packet of any size
MOST = 64 << 20          # bytes of a result
PIECE = 1 << 16


class Result:
    __slots__ = ("attempt", "flags", "cpu", "rss", "begin", "end", "value", "note")

    def __init__(self, attempt, flags, *, cpu, rss, begin, end, value, note):
        self.attempt = attempt
        self.flags = flags
        self.cpu = cpu
        self.rss = rss
        self.begin = begin
        self.end = end
        self.value = value
        self.note = note


class Runner:
    def __init__(self, pid, calls, taking, results, environment):
        self.pid = pid
        self.calls = calls           # where calls go in
        self.taking = taking         # where they come out
        self.results = results
        self.environment = environment
        self.inbox = bytearray()
        self.queue = {}              # attempt → task that was sent and has not been answered; the first may run
        self.used = 0.0              # when its last call ended
        self.average = None          # seconds a call takes, lately
        self.quiet = False           # results are collected from time to time, and do not wake us
        self.tainted = False         # may not begin another call
        self.doomed = None           # attempt for whose sake we kill it

    def fileno(self):
        return self.results.fileno()

    def fits(self, environment):
        return self.environment is environment or self.environment == environment

    def send(self, attempt, cwd, text, folder):
        """Queue a call; False when there is no room.  OSError when it cannot be kept, or the runner is gone."""
        cwd, text, filed = os.fsencode(cwd), text.encode("utf-8"), len(text) > LARGE
        if filed:
            text = self._file(folder, attempt, text)
        try:
            self.calls.send(CALL.pack(attempt, filed, len(cwd)) + cwd + text)
        except BlockingIOError:
            if filed:
                os.unlink(text)
            return False
        return True

    def _file(self, folder, attempt, text):
        path = os.path.join(folder, "call-{}".format(attempt))
        with open(path, "wb") as file:
            file.write(text)
        return os.fsencode(path)

    def take_back(self, turn):
        """Attempts that it has not begun, and will not.  The one whose turn it is stays, though it was not begun."""
        back = []
        for packet in list(self._packets()):
            attempt, filed, length = CALL.unpack_from(packet)
            if attempt == turn:
                self.calls.send(packet)  # there is nothing else now: it is the next
                continue
            if filed:
                os.unlink(packet[CALL.size + length:])
            back.append(attempt)
        return back

    def _packets(self):
        while True:
            try:
                packet = self.taking.recv(PIECE, socket.MSG_DONTWAIT)
            except OSError:
                return
            if not packet:
                return
            yield packet

    def receive(self):
        """Results, and whether there may be more."""
        alive = fill(self.results, self.inbox)
        results, at = [], 0
        while len(self.inbox) >= at + RESULT.size:
            value, note, attempt, flags, cpu, rss, begin, end = RESULT.unpack_from(self.inbox, at)
            if value + note > MOST or not 0.0 <= begin <= end < 1e12:
                alive = False
                break
            stop = at + RESULT.size + value + note
            if len(self.inbox) < stop:
                break
            text = bytes(self.inbox[at + RESULT.size:stop])
            results.append(Result(attempt, flags, cpu=cpu, rss=rss, begin=begin, end=end, value=text[:value],
                                  note=text[value:]))
            at = stop
        del self.inbox[:at]
        return results, alive

    def go_on(self):
        """It may begin the next call."""
        try:
            self.results.send(b"!")
        except OSError:
            pass  # gone; that is noticed

    def close(self):
        for each in (self.calls, self.taking, self.results):
            each.close()


def start(script, environment, slot, null):
    """A new runner with the slot's pipes as its output."""
    calls, taking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, theirs = socket.socketpair()
    try:
        argv = [sys.executable, "-u", script] if sys.version_info < (3, 7) else [sys.executable, script]
        fds = (null, slot.out_w, slot.err_w, taking.fileno(), theirs.fileno())
        pid = spawn.start(sys.executable, argv, environment, fds)
    except OSError:
        for each in (calls, taking, ours):
            each.close()
        raise
    finally:
        theirs.close()
    for each in (calls, ours):  # not `taking`: its other holder wants to wait
        each.setblocking(False)
    return Runner(pid, calls, taking, ours, environment)


def write_script(folder):
    """Copy runner.py out of wherever we were loaded from; returns its path."""
    source = __loader__.get_data(os.path.join(os.path.dirname(__file__), "runner.py"))
    path = os.path.join(folder, "runner.py")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(source)
    return path
