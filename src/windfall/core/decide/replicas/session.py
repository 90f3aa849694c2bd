"""The session of the deciders of replicas: volatile state, kept from one step to the next."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from windfall.core.state.accounts import UNLIMITED
from windfall.core.state.world import TaskClass


class LateTask(NamedTuple):
    """A late task (straggler) that a scan listed, and its attempts when it was found."""

    task: int
    cls: TaskClass
    hosts: tuple[int, ...]  # rows of the hosts that run the task
    sites: tuple[str, ...]
    live: int  # attempts in play
    tries: int  # attempts so far
    since: int  # when the late attempt started


@dataclass(slots=True)
class ReplicaScan:
    """The tasks of one bag that may have a replica now, and how long the scan holds."""

    late: list[LateTask] = field(default_factory=list)
    next_late_at: int = 0  # when another task becomes late; 0: time alone makes none late
    soon_late: list[tuple[int, int, int]] = field(default_factory=list)  # (when, row, attempt), the last first
    late_after_those: int = 0  # when the first task becomes late that `soon_late` does not list; 0: none does
    core_ms_left: int = UNLIMITED  # what replicas of the bag may still use
    holds_until: int = 0  # apart from tasks that end or get a replica meanwhile
    has_more: bool = False  # more tasks are late than the scan lists
    successes: int = -1  # of the bag's classes at the scan, where it depends on nothing else; else -1
    replica_version: int = 0  # of the bag at the scan


@dataclass(slots=True)
class Cycle:
    """A round of evaluations of a bag's `replicate` expression."""

    text: str
    next_begins: int = 0
    queue: deque[int] = field(default_factory=deque)  # tasks that the cycle has not evaluated yet
    wanted: dict[int, int] = field(default_factory=dict)  # task to replicate → its live attempts when evaluated


@dataclass(slots=True)
class ReplicaSession:
    scans: dict[int, ReplicaScan] = field(default_factory=dict)  # of this step, by bag
    any_late: tuple[int, bool] = (-1, False)  # (facts of this step so far, was there anything to replicate then?)
    kept_scans: dict[int, ReplicaScan] = field(default_factory=dict)  # of earlier steps, by bag
    late_timers: dict[int, int] = field(default_factory=dict)  # bag → when its next timer for a late task fires
    cycles: dict[int, Cycle] = field(default_factory=dict)  # by bag
    evaluated: int = 0  # expressions evaluated in this step, for tasks of all bags
    overdue_timers: dict[int, int] = field(default_factory=dict)  # bag → when its attempts are next checked for overdue
