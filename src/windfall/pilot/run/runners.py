"""A spawner's side of a warm runner: its queue of calls and its stream of results.

The queue is a pair of packet sockets, and the spawner keeps both ends.  A packet is taken once: by the runner, which so
begins the call, or by the spawner, which so takes it back.  The spawner therefore knows at any time which calls began,
even when the runner was killed.  A runner executes the user's code, so the spawner parses its results with bounds and
kills it for a malformed one.
"""

import os
import socket
import sys
from collections import namedtuple

from windfall.pilot.run import spawn
from windfall.pilot.run.channel import fill
from windfall.pilot.run.runner import CALL, RESULT

LARGE = 1 << 15          # a call with more bytes goes through a file, since the kernel bounds packets
MOST = 64 << 20          # most bytes of a result
PIECE = 1 << 16


class Result(namedtuple("Result", "cpu rss begin end value note attempt flags")):
    """The result of a call, as its runner reported it."""

    __slots__ = ()


class Runner:
    def __init__(self, pid, sockets, environment):
        self.pid = pid
        self.calls, self.taking, self.results = sockets  # the queue's two ends: calls go in, calls come out
        self.environment = environment
        self.inbox = bytearray()
        self.queue = {}              # attempt → task sent and without a result; the first may have begun
        self.used = 0.0              # when its last call ended
        self.average = None          # recent mean of the seconds that a call takes
        self.quiet = False           # its results do not wake the spawner, which collects them from time to time
        self.tainted = False         # may not begin another call
        self.killed_for = None       # the attempt because of which the spawner kills it

    def fileno(self):
        return self.results.fileno()

    def fits(self, environment):
        return self.environment is environment or self.environment == environment

    def send(self, who, cwd, text, folder):
        """Queue a call; return False if there is no room.  OSError: the runner is gone, or a file cannot be written.

        `who`: the attempt, the number of its task or None, and its plan."""
        attempt, number, plan = who
        cwd, text, filed = os.fsencode(cwd), text.encode("utf-8"), len(text) > LARGE
        if filed:
            text = self._file(folder, attempt, text)
        try:
            head = CALL.pack(attempt, -1 if number is None else number, filed, len(plan.names), len(cwd))
            self.calls.send(head + plan.names + cwd + text)
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
        """Take calls that have not begun out of the queue, but not the attempt `turn`; return their attempts."""
        back = []
        for packet in list(self._packets()):
            attempt, _, filed, named, length = CALL.unpack_from(packet)
            if attempt == turn:
                self.calls.send(packet)  # all others are taken out, so this is the next
                continue
            if filed:
                os.unlink(packet[CALL.size + named + length:])
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
        """Return (the results that have come whole, False if the runner ended or sent a malformed one)."""
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
            results.append(Result(cpu=cpu, rss=rss, begin=begin, end=end, value=text[:value], note=text[value:],
                                  attempt=attempt, flags=flags))
            at = stop
        del self.inbox[:at]
        return results, alive

    def go_on(self):
        """Let a waiting runner begin its next call."""
        try:
            self.results.send(b"!")
        except OSError:
            pass  # it has ended, which the loop notices

    def close(self):
        for each in (self.calls, self.taking, self.results):
            each.close()


def start(script, environment, slot, null):
    """Start a runner with the slot's pipes as its output."""
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
    for each in (calls, ours):  # not `taking`, which the runner holds, too, to wait for calls
        each.setblocking(False)
    return Runner(pid, (calls, taking, ours), environment)


def write_script(folder):
    """Copy runner.py out of the zipapp or source tree into a folder; return its path."""
    source = __loader__.get_data(os.path.join(os.path.dirname(__file__), "runner.py"))
    path = os.path.join(folder, "runner.py")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(source)
    return path
