"""The guardian: the process that was started.  It forks the agent, passes signals on, and clears up after it.

It is the root of the tree and a subreaper, so that whatever the agent and its spawners leave when they are killed
comes to it, and dies.  Killed itself, its end of a pipe closes and the agent does the same.

Signals that come before anybody listens end the pilot, which has nothing yet; none is ever lost.
"""

import os
import signal

from windfall.pilot.run import proctree

PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2", "SIGXCPU")  # SIGUSR2: Grid Engine's "about to be killed"
WARNING = "WINDFALL_WARNING"  # says that SIGUSR2 goes to every process of the job: all but us ignore it


def watch_over(work, mark, clear):
    """Run `work(guard descriptor) → exit code` in a child and see it out; returns its exit code.

    `mark` is the value of WINDFALL_PILOT in the environment of tasks; `clear()` removes the pilot's directory if the
    agent could not.
    """
    reader, writer = os.pipe()
    numbers = [getattr(signal, name) for name in PASSED_ON]
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    agent = os.fork()
    if not agent:
        os.close(writer)
        if os.environ.get(WARNING):
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        _become_agent(work, reader)
    os.close(reader)
    for number in numbers:
        signal.signal(number, lambda number, frame: _pass_on(agent, writer))
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
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
