"""Start of a process: own session, given descriptors, default signals.

This module uses `os.posix_spawn` where Python (3.8) and the C library can make a session with it, else fork and exec.
Both raise OSError when the command cannot be executed, so that nobody takes "no such command" for an exit code.
"""

import os
import signal
import struct

SHELL = "/bin/sh"
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# Python ignores these signals, and ignored ones stay ignored over exec; exec itself resets those that Python catches.
_RESET = [int(signal.SIGPIPE), int(signal.SIGXFSZ)]
_can_spawn = hasattr(os, "posix_spawn")


def argv_of(command, setup):
    """Return the argument vector of a command: a list as it is, text through the shell, after the setup lines."""
    if isinstance(command, str):
        return [SHELL, "-c", "\n".join(list(setup) + [command])] if setup else [SHELL, "-c", command]
    if setup:
        return [SHELL, "-c", "\n".join(list(setup) + ['exec "$@"']), SHELL] + command
    return command


class Finder:
    """Looks commands up in PATH and remembers their places, until `forget`."""

    def __init__(self):
        self.known = {}

    def find(self, name, path):
        """Return the path of a command; raise FileNotFoundError if PATH has none."""
        if "/" in name:
            return name
        key = (name, path)
        if key not in self.known:
            self.known[key] = _search(name, path)
        return self.known[key]

    def forget(self):
        self.known.clear()


def _search(name, path):
    for folder in path.split(":"):
        full = os.path.join(folder or ".", name)
        if os.access(full, os.X_OK) and not os.path.isdir(full):
            return full
    raise FileNotFoundError(2, "no such command", name)


def start(file, argv, env, fds):
    """Start a process as a session leader and return its pid; `fds` become its descriptors 0, 1, 2, …"""
    global _can_spawn
    if _can_spawn:
        try:
            return _posix_spawn(file, argv, env, fds)
        except NotImplementedError:  # an old C library
            _can_spawn = False
    return _fork_exec(file, argv, env, fds)


_actions = {}


def _posix_spawn(file, argv, env, fds):
    actions = _actions.get(fds)
    if actions is None:
        if len(_actions) > 1000:
            _actions.clear()
        actions = _actions[fds] = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in enumerate(fds)]
    return os.posix_spawn(file, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_RESET)


def _fork_exec(file, argv, env, fds):
    """Fork and exec; the child reports a failed exec through a pipe that a successful exec closes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _child(file, argv, env, fds, writer)
    os.close(writer)
    try:
        failure = os.read(reader, 4)
    finally:
        os.close(reader)
    if failure:
        os.waitpid(pid, 0)
        number, = struct.unpack("=I", failure)
        raise OSError(number, os.strerror(number), file)
    return pid


def _child(file, argv, env, fds, writer):
    try:
        os.setsid()
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for theirs, ours in enumerate(fds):
            os.dup2(ours, theirs, inheritable=True)
        os.execve(file, argv, env)
    except OSError as error:
        os.write(writer, struct.pack("=I", error.errno or 0))
    except BaseException:
        os.write(writer, struct.pack("=I", 5))
    finally:
        os._exit(127)


def close_all_but(keep):
    """Close a fork's descriptors but one: the other end of a socket notices a death only when all copies are closed."""
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)
