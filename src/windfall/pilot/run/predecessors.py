"""Predecessors: pilots that ran on this host before, and whether a process of theirs is left.

A pilot's own processes (guardian, agent, spawners) bear a name with its mark, which forks inherit; those of its tasks
have the mark in their environment.  Where no process bears the mark, the pilot is dead and so are its tasks, but for a
task's process that has both left the pilot's tree and cleared its environment, or become another user's.

The kernel hides the environment of a program that its user may run but not read.  Such a process of this user may be a
task's if it started after the pilot, so it counts as one.
"""

import os

from windfall.pilot.run import proctree

_NAME_CHARACTERS = 12  # of the mark: a name has 15
_LOGINS = (b"sshd", b"sshd-session", b"(sd-pam)")  # names of hidden processes that belong to a login
_begun = ["0"]  # when this pilot's first process started, in ticks since the boot; its forks inherit it


def take_name(mark):
    """Give this process, and all that it forks, a name with the pilot's mark."""
    about = proctree.stat_of("self")
    _begun[0] = str(about[3]) if about else "0"
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(_name(mark))
    except OSError:
        pass  # then the pilot has no life to look for


def life(mark):
    """Return what another pilot on this host needs to look for this one, "" if it could not tell."""
    space = _pid_namespace()
    seen = space and proctree.name_and_state("self")[0] == _name(mark)
    return "{}.{}:{}".format(space, _begun[0], mark) if seen else ""


def is_dead(sought):
    """Has this life no process left?  False where this process could not see them."""
    place, _, mark = sought.partition(":")
    space, _, begun = place.partition(".")
    if not mark or space != _pid_namespace():
        return False
    own = "{}={}".format(proctree.PILOT_MARK, mark).encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name, state = proctree.name_and_state(pid)
        if state in (b"", b"Z", b"X"):
            continue
        if name == _name(mark) or own in proctree.environment(pid):
            return False
        if name not in _LOGINS and pid != str(os.getpid()) and _is_hidden(pid, int(begun) if begun.isdigit() else 0):
            return False
    return True


def _is_hidden(pid, begun):
    """Does the kernel hide the environment of a process of this user that started after `begun`?"""
    try:
        with open("/proc/{}/environ".format(pid), "rb"):
            return False
    except PermissionError:
        about = proctree.stat_of(pid)
        return about is not None and about[3] >= begun and proctree.real_user(pid) == os.getuid()
    except OSError:
        return False


class Seeker:
    """Looks for the predecessors that the server asks about: each twice, since a process may fork during a look.

    Between the looks the pilot delivers what they left in the outbox, so that a result counts before its task runs
    again."""

    def __init__(self, deliver):
        self._deliver = deliver  # begins to deliver the results that earlier pilots left
        self._dead_once = set()

    def look(self, sought, delivering):
        """Return the lives that are proven dead; `delivering`: are results being delivered still?"""
        dead = {each for each in sought if is_dead(each)}
        if dead - self._dead_once:
            self._deliver()
        proven = [] if delivering else sorted(dead & self._dead_once)
        self._dead_once = dead
        return proven


def _name(mark):
    return b"wf-" + mark[:_NAME_CHARACTERS].encode()


def _pid_namespace():
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    except OSError:
        return ""
