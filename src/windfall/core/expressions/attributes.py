"""Ads: the values of the attributes that policies speak of (`windfall.model.policies.attributes`), read from the state.

What a pilot reported does not change while it lives.  What was learnt of its host changes with every result; it is
published once a minute, so that decisions that depend on it need not be made afresh each time.  The rest, a bag's
numbers above all, is read whenever it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from windfall.core.expressions.classads import Value
from windfall.core.messages.lifecycle import READY, SUCCEEDED, WAITING
from windfall.core.state.accounts import left_of_budget
from windfall.core.state.world import BagState, PilotState, SiteState, State, TaskClass

MB = 1_000_000
CORE_HOUR = 3_600_000  # ms of cores
DAY = 86_400_000  # ms
VOLUNTEERS = "boinc"  # kind of a site


@dataclass(slots=True)
class Subject:
    """The bag, class and pilot that an expression is evaluated for; those of a missing pilot or class are undefined."""

    state: State
    now: int
    bag: BagState
    site: SiteState
    cls: TaskClass | None = None
    pilot: PilotState | None = None
    slack: int = 0  # ms that it may be later than `now` says


Read = Callable[[Subject], Value]


def _task(read: Callable[[BagState, TaskClass], Value]) -> Read:
    return lambda s: read(s.bag, s.cls) if s.cls is not None else None


def _pilot(read: Callable[[PilotState, int], Value]) -> Read:
    return lambda s: read(s.pilot, s.now + s.slack) if s.pilot is not None else None


_PRESENT: dict[str, Callable[[PilotState, int], Value]] = {
    "Host.Running": lambda pilot, now: pilot.attempts_held,
    "Host.Load": lambda pilot, now: pilot.load / (pilot.cores * 1000),
    "Host.TimeLeft": lambda pilot, now: max(pilot.ends - now, 0) // 1000 if pilot.ends else None,
}
_READ: dict[str, Read] = {
    "Bag.Number": lambda s: s.bag.number,
    "Bag.Name": lambda s: s.bag.name,
    "Bag.Owner": lambda s: s.bag.owner,
    "Bag.Tasks": lambda s: s.bag.size,
    "Bag.JobsLeft": lambda s: s.bag.not_ended(),
    "Bag.JobsDone": lambda s: s.bag.counts[SUCCEEDED],
    "Bag.JobsWaiting": lambda s: s.bag.counts[READY] + s.bag.counts[WAITING],
    "Bag.Tail": lambda s: s.bag.in_tail,
    "Bag.Age": lambda s: max(s.now - s.bag.submitted, 0) // 1000,
    "Bag.BudgetLeft": lambda s: left_of_budget(s.bag) / CORE_HOUR if s.bag.budget else None,
    "Queue.Bags": lambda s: len(s.state.unended),
    "Now": lambda s: s.now // 1000,
    "Task.Target": _task(lambda bag, cls: bag.targets[cls.target].shape.name),
    "Task.Cores": _task(lambda bag, cls: cls.cores),
    "Task.Memory": _task(lambda bag, cls: cls.memory // MB),
    "Task.Disk": _task(lambda bag, cls: cls.disk // MB),
    "Task.Gpus": _task(lambda bag, cls: cls.gpus),
    "Task.Time": _task(lambda bag, cls: cls.limit // 1000),
    "Task.Expect": _task(lambda bag, cls: (cls.mean or bag.targets[cls.target].shape.expect) / 1000 or None),
    "Task.Priority": _task(lambda bag, cls: bag.targets[cls.target].shape.priority),
    "Task.NumberOfReplicas": lambda s: 0,  # what waits to be handed out has none
    **{path: _pilot(read) for path, read in _PRESENT.items()},
}
"""What is read whenever it is asked for."""

_SITE: dict[str, Callable[[SiteState], Value]] = {
    "Site.Name": lambda site: site.name,
    "Site.Kind": lambda site: site.kind,
    "Site.Owner": lambda site: site.owner,
    "Site.Shared": lambda site: bool(site.shared),
    "Site.Volunteer": lambda site: site.kind == VOLUNTEERS,
}
_REPORTED: dict[str, Callable[[PilotState], Value]] = {
    "Host.Name": lambda pilot: pilot.host_name,
    "Host.Site": lambda pilot: pilot.site,
    "Host.Owner": lambda pilot: pilot.owner,
    "Host.Cores": lambda pilot: pilot.cores,
    "Host.Memory": lambda pilot: pilot.memory // MB,
    "Host.Disk": lambda pilot: pilot.disk // MB,
    "Host.Gpus": lambda pilot: pilot.gpus,
}


def _learnt(state: State, row: int, now: int) -> dict[str, Value]:
    h = state.hosts
    tried = h.attempts[row]
    return {
        "Host.Attempts": tried,
        "Host.ErrorRate": (h.failures[row] + h.losses[row]) / tried if tried else None,
        "Host.Turnaround": h.mean[row] / 1000 or None,
        "Host.Speed": h.speed[row] or 1.0,
        "Host.JobsToday": h.today[row] if h.day[row] == now // DAY else 0,
        "Host.LastSuccess": h.success[row] // 1000 or None,
    }


MOMENT = ("Now", "Queue.Bags", "Host.Running", "Host.Load", "Host.TimeLeft")
"""Those that are the same for all bags when a host asks."""
TIMED = ("Now", "Host.TimeLeft")
PASSING = ("Now", "Bag.Age")
"""Those that change while nothing happens, of what `sites` may speak of."""
LEARNT = ("Host.Attempts", "Host.ErrorRate", "Host.Turnaround", "Host.Speed", "Host.JobsToday", "Host.LastSuccess")
LASTING = (*_REPORTED, *_SITE, "Host.Volunteer", "Bag.Number", "Bag.Name", "Bag.Owner",
           "Task.Target", "Task.Cores", "Task.Memory", "Task.Disk", "Task.Gpus", "Task.Time", "Task.Priority")
"""Those that stay as they are while pilot, site and bag do."""


def host_ad(state: State, pilot: PilotState, now: int) -> dict[str, Value]:
    """Return the ad of a host and its site, which is published once a minute."""
    site = state.sites[pilot.site]
    made: dict[str, Value] = {path: read(pilot) for path, read in _REPORTED.items()}
    made.update((path, of(site)) for path, of in _SITE.items())
    made["Host.Volunteer"] = made["Site.Volunteer"]
    made.update(_learnt(state, pilot.row, now))
    return made


def current_ad(state: State, pilot: PilotState, now: int) -> dict[str, Value]:
    """Return the host's ad with its present values, which `host_ad` leaves out."""
    return {**host_ad(state, pilot, now), **{path: read(pilot, now) for path, read in _PRESENT.items()}}


def reader(path: str) -> Read | None:
    """Return the function that reads an attribute; None: hosts publish it in their ads."""
    return _READ.get(path)


def value_from_ad(subject: Subject, path: str, published: Mapping[str, Value]) -> Value:
    """Return an attribute's value; published attributes come from the host's ad."""
    read = _READ.get(path)
    return read(subject) if read is not None else published[path]


def value_now(subject: Subject, path: str) -> Value:
    """Return an attribute's value as it is now, published or not."""
    if path in _READ:
        return _READ[path](subject)
    if path in _SITE:
        return _SITE[path](subject.site)
    if subject.pilot is None:
        return None
    return host_ad(subject.state, subject.pilot, subject.now).get(path)
