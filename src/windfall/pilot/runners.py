"""A spawner's side of warm runners: one Python process per slot, started when its first call comes.

A runner is replaced when a call killed it, left processes behind, or wants another environment.  It runs the user's
code, so what it says is parsed as JSON with a bound, and whatever does not parse ends the runner.
"""

import json
import os
import socket
import sys

from . import spawn
from .channel import Frames


class Runner:
    def __init__(self, pid, frames, environment):
        self.pid = pid
        self.frames = frames
        self.environment = environment
        self.used = 0.0          # when its last call ended

    def fileno(self):
        return self.frames.fileno()

    def send(self, attempt, cwd, call):
        """True when all of it is on its way."""
        return self.frames.send({"a": attempt, "cwd": cwd, "call": call})

    def receive(self):
        """Results; None when the runner is gone or talks nonsense."""
        try:
            values = self.frames.receive()
        except (ValueError, MemoryError):
            return None
        if values is not None and not all(isinstance(v, dict) and "a" in v for v in values):
            return None
        return values

    def close(self):
        self.frames.close()


def start(script, environment, slot, null):
    """A new runner with the slot's pipes as its output."""
    ours, theirs = socket.socketpair()
    try:
        argv = [sys.executable, "-u", script] if sys.version_info < (3, 7) else [sys.executable, script]
        pid = spawn.start(sys.executable, argv, environment, (null, slot.out_w, slot.err_w, theirs.fileno()))
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Runner(pid, Frames(ours, _dumps, _loads), environment)


def _dumps(value):
    return json.dumps(value).encode("utf-8")


def _loads(data):
    return json.loads(data.decode("utf-8"))


def write_script(folder):
    """Copy runner.py out of wherever we were loaded from; returns its path."""
    source = __loader__.get_data(os.path.join(os.path.dirname(__file__), "runner.py"))
    path = os.path.join(folder, "runner.py")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(source)
    return path
