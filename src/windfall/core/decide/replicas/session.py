"""What the search for replicas keeps from one step to the next; volatile."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from windfall.core.state.accounts import UNLIMITED
from windfall.core.state.world import TaskClass


class Late(NamedTuple):
    task: int
    cls: TaskClass
    hosts: tuple[int, ...]  # rows of those that run it
    sites: tuple[str, ...]
    live: int  # attempts that the task has,
    tries: int  # and has had
    since: int  # when the one that is late started


@dataclass(slots=True)
class Tail:
    """What of one bag may have a replica now."""

    late: list[Late] = field(default_factory=list)
    next: int = 0  # when another task will be late; 0: not by time alone
    coming: list[tuple[int, int, int]] = field(default_factory=list)  # when, row, attempt; last first
    beyond: int = 0  # when another one is late after those; 0: none
    left: int = UNLIMITED  # ms of cores that replicas may still take
    until: int = 0  # it holds, but for tasks that end or have a replica meanwhile
    more: bool = False  # there may be others that are late
    done: int = -1  # tasks of its classes that had ended then, where that is all it depends on
    news: int = 0  # of the bag, when it was looked for


@dataclass(slots=True)
class Scan:
    """One bag's present cycle."""

    text: str
    begins: int = 0  # when the next one does
    queue: deque[int] = field(default_factory=deque)  # tasks that were not looked at yet
    found: dict[int, int] = field(default_factory=dict)  # those to replicate → their attempts then


@dataclass(slots=True)
class ReplicaSession:
    scans: dict[int, Tail] = field(default_factory=dict)  # of this step: bag → what may have a replica
    any_late: tuple[int, bool] = (-1, False)  # of this step: after so many facts, is there anything to replicate?
    kept_scans: dict[int, Tail] = field(default_factory=dict)  # of earlier steps
    looks_late: dict[int, int] = field(default_factory=dict)  # bag → when another of its tasks is late
    cycles: dict[int, Scan] = field(default_factory=dict)  # bag → its present cycle of evaluations
    evaluated: int = 0  # of this step: tasks of all bags for which an expression was evaluated
    expiries: dict[int, int] = field(default_factory=dict)  # bag → when the next of its attempts may be overdue
