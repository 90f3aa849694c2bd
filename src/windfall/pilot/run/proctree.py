"""Processes and their descendants, from /proc.  The pilot finds a task's processes by ancestry, session or marker.

A process whose parent dies becomes a child of its nearest *subreaper*.  Guardian, agent and spawners are subreapers, so
no process of a task can leave the pilot's tree, and an empty list of children proves that no process is left.
"""

import os
import signal
import time

from windfall.pilot import clock

PILOT_MARK = "WINDFALL_PILOT"
ATTEMPT_MARK = "WINDFALL_ATTEMPT"
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper():
    """Make this process a subreaper; return True if it is one.  Call it late: ctypes takes long to import."""
    try:
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        return libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False  # an interpreter without ctypes: sessions and markers must do


def stat_of(pid):
    """Return (parent, group, session, start time) of a process, or None when it is gone."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2:].split()
    return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])


def real_user(pid):
    """Return the user who started a process, also where its program runs with another's rights; -1 when it is gone."""
    try:
        with open("/proc/{}/status".format(pid), "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), -1)
    except OSError:
        return -1


def stopped(pid):
    """Is the process stopped (SIGSTOP)?"""
    return name_and_state(pid)[1] == b"T"


def name_and_state(pid):
    """Return a process's name, as the kernel has it, and the letter of its state; nothing when it is gone."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            before, _, after = file.read().rpartition(b")")
        return before.partition(b"(")[2], after.split()[0]
    except (OSError, IndexError):
        return b"", b""


def snapshot():
    """Return {pid: (parent, group, session, start time)} of all processes."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            about = stat_of(name)
            if about is not None:
                table[int(name)] = about
    return table


def children(pid="self"):
    """Return the pids of a process's children, from one small file per thread where the kernel has it."""
    base = "/proc/{}/task".format(pid)
    found = []
    try:
        for thread in os.listdir(base):
            with open("{}/{}/children".format(base, thread), "rb") as file:
                found.extend(map(int, file.read().split()))
        return found
    except FileNotFoundError:
        if not os.path.exists(base):
            return []
    except OSError:
        pass
    parent = os.getpid() if pid == "self" else int(pid)
    return [p for p, about in snapshot().items() if about[0] == parent]


def own_children():
    """Return a quick version of `children()` for this process, which must have no threads."""
    path = "/proc/self/task/{}/children".format(os.getpid())

    def read():
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            return children()
        try:
            return list(map(int, os.read(fd, 1 << 16).split()))
        finally:
            os.close(fd)

    return read


def descendants(roots, table=None):
    """Return the pids of all descendants of `roots`, without the roots."""
    table = snapshot() if table is None else table
    below = {}
    for pid, about in table.items():
        below.setdefault(about[0], []).append(pid)
    seen, todo = set(roots), list(roots)
    while todo:
        fresh = [pid for pid in below.get(todo.pop(), ()) if pid not in seen]
        seen.update(fresh)
        todo.extend(fresh)
    return sorted(seen.difference(roots))


def members(*leaders):
    """Return the pids of tasks' processes: the leaders, their descendants, and all processes in their sessions."""
    table = snapshot()
    known = set(leaders)
    roots = list(leaders) + [pid for pid, about in table.items() if about[2] in known]
    return sorted(set(roots + descendants(roots, table)))


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def signal_tree(leader, number):
    """Signal all processes of a task."""
    signal_trees([leader], number)


def signal_trees(leaders, number):
    """Signal all processes of several tasks; continue the stopped ones, since they get no other signal."""
    for pid in members(*leaders):
        if send(pid, number) and number != signal.SIGKILL:
            send(pid, signal.SIGCONT)


def marked(name, value):
    """Return the pids of processes whose environment has `name=value`."""
    wanted = "{}={}".format(name, value).encode()
    return [pid for pid in snapshot() if wanted in environment(pid)]


def environment(pid):
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def attempt_of(pid):
    """Return the attempt that a process's environment names, or None."""
    prefix = ATTEMPT_MARK.encode() + b"="
    for entry in environment(pid):
        if entry.startswith(prefix) and entry[len(prefix):].isdigit():
            return int(entry[len(prefix):])
    return None


def kill_descendants(spare=(), patience=5.0):
    """Kill and reap all descendants of this process but `spare`; return True if none is left within `patience` s."""
    spare = set(spare)
    end = clock.seconds() + patience
    while True:
        killed_for = [pid for pid in children() if pid not in spare]
        if not killed_for:
            return True
        for pid in killed_for + descendants(killed_for):
            send(pid, signal.SIGKILL)
        for pid in killed_for:
            reap(pid, end)
        if clock.seconds() > end:
            return False


def reap(pid, end):
    """Wait until `end` for a child process to end, and reap it."""
    while clock.seconds() < end:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.001)


def memory(leader):
    """Return the bytes of memory that a task's processes use now; pages they share count for each of them."""
    pids = members(leader)
    return sum(map(_resident, pids))


def memory_shared_once(leader):
    """Return a task's memory with shared pages counted once where the kernel can; slower than `memory`."""
    return sum(map(_proportional, members(leader)))


def _resident(pid):
    try:
        with open("/proc/{}/statm".format(pid), "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _proportional(pid):
    try:
        with open("/proc/{}/smaps_rollup".format(pid), "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return _resident(pid)


def oom_kills():
    """Return how many processes the kernel has killed since boot because memory ran out."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
