"""The guardian: the process that was started.  It forks the agent, passes signals on, and clears up after it.

It is the root of the tree and a subreaper, so that whatever the agent and its spawners leave when they are killed
comes to it, and dies.  Killed itself, its end of a pipe closes and the agent does the same.
"""

import os
import signal

from . import proctree

PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2", "SIGXCPU")  # SIGUSR2: Grid Engine's "about to be killed"


def watch_over(work, mark, clear):
    """Run `work(guard descriptor) → exit code` in a child and see it out; returns its exit code.

    `mark` is the value of WINDFALL_PILOT in the environment of tasks; `clear()` removes the pilot's directory if the
    agent could not.
    """
    reader, writer = os.pipe()
    agent = os.fork()
    if not agent:
        os.close(writer)
        _become_agent(work, reader)
    os.close(reader)
    for name in PASSED_ON:
        signal.signal(getattr(signal, name), lambda number, frame: _pass_on(agent, writer))
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    proctree.become_subreaper()
    code = _wait(agent)
    _clear_up(code, mark, clear)
    return code if code >= 0 else 1


def _pass_on(agent, writer):
    """The byte says that it came through us."""
    try:
        os.write(writer, b"!")
    except OSError:
        return  # it has gone already
    proctree.send(agent, signal.SIGTERM)


def _become_agent(work, guard):
    code = 1
    try:
        os.setsid()
        code = work(guard)
    except BaseException as error:
        import traceback
        os.write(2, "windfall-pilot: {}\n{}".format(error, traceback.format_exc()).encode())
    finally:
        os._exit(code)


def _wait(agent):
    """Exit code of the agent, negative if a signal ended it; meanwhile orphans are reaped."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == agent:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _clear_up(code, mark, clear):
    proctree.kill_descendants()
    if code < 0:  # killed: should a subreaper have been missing, the marker still tells
        for pid in proctree.marked(proctree.PILOT_MARK, mark):
            proctree.send(pid, signal.SIGKILL)
    clear()
