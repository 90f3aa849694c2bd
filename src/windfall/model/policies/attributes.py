"""The attributes that expressions may use: one table, from which the reference is made, too.

An attribute belongs to an ad, and its full name has both: `Host.Memory`.  Case does not matter.  The bag's attributes
need no ad, since the policy belongs to the bag: `Tail`.  The names of GridBot (Silberstein et al., 2009) are aliases.
Sizes are in MB of 1,000,000 bytes, times in seconds, `Now` and other moments in seconds since 1970.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NUMBER, TEXT, TRUTH, LIST, ANY = "number", "text", "truth", "list", "any"


class Attribute(NamedTuple):
    name: str
    type: str
    says: str
    by: str  # who knows it
    aliases: tuple[str, ...] = ()


HOST = (
    Attribute("Name", TEXT, "what the machine calls itself", "pilot"),
    Attribute("Site", TEXT, "the site it belongs to", "server"),
    Attribute("Owner", TEXT, "whose pilot it is", "server"),
    Attribute("Volunteer", TRUTH, "is it a volunteer's?", "server"),
    Attribute("Cores", NUMBER, "that its pilot may use", "pilot", ("NumCpus", "Cpus")),
    Attribute("Memory", NUMBER, "MB that its pilot may use", "pilot"),
    Attribute("Disk", NUMBER, "MB free where tasks work", "pilot"),
    Attribute("Gpus", NUMBER, "that its pilot may use", "pilot"),
    Attribute("Running", NUMBER, "tasks that its pilot holds, waiting ones too", "server"),
    Attribute("Load", NUMBER, "of its cores, the part that these take; above 1 where some wait", "server"),
    Attribute("TimeLeft", NUMBER, "s until its pilot must end; undefined where it need not", "pilot"),
    Attribute("Attempts", NUMBER, "that ended there, ever", "learnt"),
    Attribute("ErrorRate", NUMBER, "of these, the part that failed or was lost; undefined before the first", "learnt"),
    Attribute("Turnaround", NUMBER, "s that a success takes there, recent ones counting more; undefined before "
                                    "the first", "learnt"),
    Attribute("Speed", NUMBER, "how fast tasks go there, against what such tasks take on average: 2 is twice as fast, "
                               "1 before the first", "learnt"),
    Attribute("JobsToday", NUMBER, "successes there since midnight UTC", "learnt"),
    Attribute("LastSuccess", NUMBER, "when a task succeeded there last; undefined before the first", "learnt"),
)
SITE = (
    Attribute("Name", TEXT, "as in its file", "site file"),
    Attribute("Kind", TEXT, "slurm, gridengine, htcondor, pbs, lsf, ssh, local", "site file"),
    Attribute("Owner", TEXT, "whose it is", "server"),
    Attribute("Shared", TRUTH, "may others use it, too?", "server"),
    Attribute("Volunteer", TRUTH, "is it one of volunteers?", "server"),
)
TASK = (
    Attribute("Target", TEXT, "of the bag, that it belongs to", "bag file", ("Name",)),
    Attribute("Cores", NUMBER, "it takes", "bag file"),
    Attribute("Memory", NUMBER, "MB it may take; grows where memory-retries says so", "bag file"),
    Attribute("Disk", NUMBER, "MB it may take", "bag file"),
    Attribute("Gpus", NUMBER, "it takes", "bag file"),
    Attribute("Time", NUMBER, "s it may take; 0 if there is no limit", "bag file"),
    Attribute("Expect", NUMBER, "s it probably takes: by its class's own record, else by the bag file; "
                                "undefined if neither says", "server"),
    Attribute("Priority", NUMBER, "as in the bag file", "bag file"),
    Attribute("NumberOfReplicas", NUMBER, "attempts of it in play", "server"),
)
REPLICA = (Attribute("SentTime", NUMBER, "when it was handed out", "server"),)
BAG = (
    Attribute("Number", NUMBER, "as windfall ls shows it", "server"),
    Attribute("Name", TEXT, "as in its file", "bag file"),
    Attribute("Owner", TEXT, "whose it is", "server"),
    Attribute("Tasks", NUMBER, "all of them", "server"),
    Attribute("JobsLeft", NUMBER, "tasks that have not ended", "server"),
    Attribute("JobsDone", NUMBER, "tasks that succeeded", "server"),
    Attribute("JobsWaiting", NUMBER, "tasks that nobody has been given", "server"),
    Attribute("Tail", TRUTH, "is it in its last round: fewer tasks wait than are handed out?", "server"),
    Attribute("Age", NUMBER, "s since it was submitted", "server"),
    Attribute("BudgetLeft", NUMBER, "core-hours; undefined without a budget", "server"),
)
QUEUE = (Attribute("Bags", NUMBER, "that have something to do", "server", ("BOTsInQueue",)),)
LONE = (
    Attribute("Now", NUMBER, "the time", "server"),
    Attribute("PerHost", NUMBER, "what per-host comes to, in attempt-deadline", "bag file", ("Concurrency",)),
)
ADS: dict[str, tuple[Attribute, ...]] = {"Host": HOST, "Site": SITE, "Task": TASK, "Bag": BAG, "Queue": QUEUE}
SAYS = {
    "Host": "the machine that asks for work",
    "Site": "the place that it, or a pilot that might be started, belongs to",
    "Task": "a task that might run there; `Task.Replica1.Host` and so on are the hosts that have it already",
    "Bag": "the bag that the task is from",
    "Queue": "all bags together",
}
SCOPE_ALIASES = {"job": "Task", "bot": "Bag", "grid": "Site"}
MOST_REPLICAS = 16

FRESH = ("Host.Running", "Host.Load", "Host.TimeLeft", "Task.Expect", "Task.NumberOfReplicas", "Bag.Tasks",
         "Bag.JobsLeft", "Bag.JobsDone", "Bag.JobsWaiting", "Bag.Tail", "Bag.Age", "Bag.BudgetLeft", "Queue.Bags",
         "Now")
"""Attributes that may change with every request; the others change when a pilot comes, or once a minute."""


class Known(NamedTuple):
    """An attribute as an expression names it."""

    path: str  # its own name: Host.Memory, Task.Replica1.Host.Memory, Now
    type: str

    @property
    def scope(self) -> str:
        """Return the ad: `Host`, …, `Replica`, or the name itself if it has no ad."""
        return "Replica" if self.path.startswith("Task.Replica") else self.path.split(".")[0]


def _table(scope: str, attributes: tuple[Attribute, ...]) -> dict[str, Known]:
    return {name.lower(): Known(f"{scope}.{each.name}" if scope else each.name, each.type)
            for each in attributes for name in (each.name, *each.aliases)}


_BY_SCOPE = {scope.lower(): _table(scope, attributes) for scope, attributes in ADS.items()}
_BY_SCOPE.update((alias, _BY_SCOPE[scope.lower()]) for alias, scope in SCOPE_ALIASES.items())
_BARE = {**_table("Bag", BAG), "numberofreplicas": _BY_SCOPE["task"]["numberofreplicas"], **_table("", LONE)}
_REPLICA = re.compile(r"replica([1-9]\d?)")


def find(path: str) -> Known | None:
    """Return the attribute that a name stands for, whatever its case or alias; None if there is none."""
    parts = path.lower().split(".")
    if len(parts) == 1:
        return _BARE.get(parts[0])
    if len(parts) == 2:
        return _BY_SCOPE.get(parts[0], {}).get(parts[1])
    which = _REPLICA.fullmatch(parts[1]) if parts[0] in ("task", "job") else None
    if which is None or int(which[1]) > MOST_REPLICAS:
        return None
    if parts[2:] in (["senttime"], ["host", "senttime"]):
        return Known(f"Task.Replica{which[1]}.SentTime", NUMBER)
    if len(parts) == 4 and parts[2] == "host" and (known := _BY_SCOPE["host"].get(parts[3])):
        return Known(f"Task.Replica{which[1]}.{known.path}", known.type)
    return None


def nearest(path: str) -> str:
    """Return a hint for the name of an attribute that does not exist."""
    from difflib import get_close_matches

    if path.lower().startswith("task.replica"):
        return (f"Task.Replica1 to Task.Replica{MOST_REPLICAS} are the hosts that have the task: "
                "Task.Replica1.SentTime, Task.Replica1.Host.ErrorRate and so on")
    scope, _, name = path.lower()[:100].rpartition(".")
    if not scope and name in _BY_SCOPE:
        return f"{path} is an ad: name an attribute of it, as in {next(iter(_BY_SCOPE[name].values())).path}"
    known = _BY_SCOPE.get(scope)
    near = get_close_matches(name, known if known is not None else _SHORT, 1, 0.6)
    if near:
        return f"did you mean {(known or _SHORT)[near[0]].path}?"
    if known is not None:
        return f"known: {', '.join(dict.fromkeys(each.path for each in known.values()))}"
    return f"known: {', '.join(f'{each}.…' for each in ADS)} and Now; windfall policy --attributes lists them all"


_SHORT = {name: known for table in reversed(_BY_SCOPE.values()) for name, known in table.items()} | _table("", LONE)
