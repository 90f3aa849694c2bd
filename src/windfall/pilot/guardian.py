"""The guardian: the pilot's first process.  The guardian forks the agent, passes signals on, and clears up after it.

The guardian is the root of the process tree and a subreaper: processes that a killed agent or spawner leaves become
its children, and it kills them.  When the guardian itself is killed, its end of a pipe closes, and the agent kills all
processes and ends.

A signal that comes before the agent listens ends the pilot, which holds nothing yet; no signal is lost.
"""

import os
import signal

from windfall.pilot.run import predecessors, proctree

PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR2", "SIGXCPU")  # SIGUSR2: Grid Engine warns before it kills
WARNING = "WINDFALL_WARNING"  # set where SIGUSR2 goes to every process of the job: all but the guardian ignore it


def watch_over(work, mark, clear):
    """Run `work(guard descriptor) → exit code` in a child process, the agent; wait for it and return its exit code.

    `mark` is the value of WINDFALL_PILOT in the environment of tasks; `clear()` removes the pilot's directory if the
    agent could not.
    """
    predecessors.take_name(mark)
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
    """Pass a signal on as SIGTERM; a byte tells the agent that the guardian sent it."""
    try:
        os.write(writer, b"!")
    except OSError:
        return  # the agent has ended
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
    """Reap children until the agent ends; return its exit code, negative if a signal ended it."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == agent:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _clear_up(code, mark, clear):
    proctree.kill_descendants()
    if code < 0:  # killed: where there was no subreaper, the marker finds the processes
        for pid in proctree.marked(proctree.PILOT_MARK, mark):
            proctree.send(pid, signal.SIGKILL)
    clear()
