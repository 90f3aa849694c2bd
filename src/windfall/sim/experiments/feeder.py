"""The server of the GridBot paper, where it differs from ours: replicas queue.

The paper's feeder keeps a queue of jobs to send.  When few of a bag's jobs are left in the queue, a cycle draws some of
the running jobs for which `ReplicationRequirements` hold (a job with fewer replicas is likelier), and puts a replica of
each at the end of the queue.  When a job gets a result its queued replicas stay until all jobs of the bag have one, and
its running replicas are not cancelled: hosts call only when they are done.

Here the replicas of a bag are a second, open bag that comes after the first, and the core grants, gives attempts up and
evaluates expressions.  Originals that were given up stand before replicas in the queue.  A job ends with the first
result of any of its tasks; an attempt of it that is given up later is not sent again.  The tail begins when, for the
first time, few jobs are in the queue; it lasts, or it ends when replicas fill the queue again: the paper's server can
do either.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from windfall.core.decide.replicas.by_expression import RunningTask, reader
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value, matches, program
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import GRANTED, O_SUCCEEDED, READY, STARTED
from windfall.core.state.world import BagState
from windfall.core.step import Core
from windfall.errors import BadInput
from windfall.sim.world import OWNER, Work, World, target_shape

CYCLE = 60_000  # ms between two cycles of the feeder
AGE = re.compile(r"Now - Task\.Replica\d+\.SentTime")


class FeederRules(NamedTuple):
    """The rules of one bag."""

    replicate: str = ""  # an expression; empty: no replicas
    tail: str = ""  # requirements in the tail
    rank: str = ""
    buffer: int = 0  # replicas are added while the queue holds fewer jobs than this
    few: int = 0  # the tail begins when the queue holds fewer jobs than this; 0: `buffer`
    left: int = 0  # the tail begins when fewer jobs than this have no result; 0: the queue decides
    lasts: bool = True  # does the tail last once it has begun?


class ReplicaRule:
    """An expression that says whether a running job gets a replica; it reads attributes as the core does."""

    def __init__(self, text: str) -> None:
        self.program = program(text)
        if self.program.broken:  # a live server ignores such a policy; here the study's numbers would be wrong
            raise BadInput(f"the expression cannot be evaluated: {text}", self.program.broken)
        rest = AGE.sub("", text)
        by_age = "Now" not in rest and "SentTime" not in rest  # times occur only as ages: `Now - SentTime`
        self.times = [at for at, path in enumerate(self.program.uses) if by_age and path.endswith(("Now", "SentTime"))]
        self.reads = [_read(path) for path in self.program.uses]
        self.known: dict[tuple[Value, ...], bool] = {}

    def at(self, core: Core, now: int, bag: BagState) -> Callable[[int, list[int], int], bool]:
        """Return the function that decides at this moment: may a running job of the bag have one more replica?

        The function takes a job, the rows of its attempts, oldest first, and the number of its replicas.
        """
        def wants(job: int, rows: list[int], count: int) -> bool:
            values = tuple([count if read is None else read(core, now, bag, job, rows) for read in self.reads])
            key = self._by_age(values, now) if self.times else values
            found = self.known.get(key)
            if found is None:
                found = self.known[key] = matches(self.program.result(values))
            return found

        return wants

    def _by_age(self, values: tuple[Value, ...], now: int) -> tuple[Value, ...]:
        """Replace times by ages: jobs that differ only in when they were sent share a result at the same age."""
        ages = list(values)
        for at in self.times:
            ages[at] = None if ages[at] is None else now // 1000 - ages[at]  # type: ignore[operator]
        return tuple(ages)


def _read(path: str) -> Callable[[Core, int, BagState, int, list[int]], Value] | None:
    """Return the reader of an attribute; None for the number of replicas, which the feeder knows."""
    if path == "Task.NumberOfReplicas":
        return None
    if path == "Now":
        return lambda core, now, *_: now // 1000
    if path.startswith("Task.Replica"):
        which, _, rest = path.removeprefix("Task.Replica").partition(".")
        place = int(which) - 1
        if rest == "SentTime":
            return lambda core, now, bag, job, rows: (
                core.state.attempts.granted[rows[place]] // 1000 if place < len(rows) else None)
        if attributes.reader(rest) is None:
            return lambda core, now, bag, job, rows: (
                _published(core, rows[place])[rest] if place < len(rows) else None)
    read = reader(path)
    return lambda core, now, bag, job, rows: read(_subject_of(core, now, bag, job, rows))


def _published(core: Core, row: int) -> Mapping[str, Value]:
    return core.turn.grants.orders.published(core.state, core.now, core.state.pilots[core.state.attempts.pilot[row]])


def _subject_of(core: Core, now: int, bag: BagState, job: int, rows: list[int]) -> RunningTask:
    cls = bag.classes[bag.target_of(job), bag.tasks.variant[job]]
    subject = attributes.Subject(core.state, now, bag, next(iter(core.state.sites.values())), cls)
    return RunningTask(subject, rows, partial(core.turn.grants.orders.published, core.state, core.now))


class Feeder:
    """The feeder of one bag, whose number is known once it is submitted."""

    def __init__(self, world: World, work: Work, rules: FeederRules, seed: int) -> None:
        self.world, self.work, self.rules = world, work, rules
        self.draw = random.Random(f"replicas {seed} {work.name}")
        self.replica_rule = ReplicaRule(rules.replicate or "false")
        self.bag = self.shadow = 0
        self.tail = False
        self.left = 0  # jobs without a result when the tail began
        self.jobs: list[int] = []  # the job of each replica
        self.copies: dict[int, list[int]] = {}  # job → its replicas
        self.ends: dict[int, int] = {}  # job → when its first result came
        self.began = -1  # when its first job was sent
        self.discarded = 0  # results of jobs that had a result already
        world.server.observe(self._observe)
        world.submit(work, self._taken)

    @property
    def done(self) -> bool:
        return len(self.ends) == self.work.tasks

    def _taken(self, number: int) -> None:
        self.bag = number
        self.world.engine.after(CYCLE, self._feed)

    # --- results ------------------------------------------------------------------------------------------------------

    def _job(self, bag: int, task: int) -> int:
        return task if bag == self.bag else self.jobs[task]

    def _observe(self, facts: list[Any]) -> None:
        for fact in facts:
            if isinstance(fact, f.Finished) and fact.bag in (self.bag, self.shadow):
                for task in fact.tasks:
                    self._result(self._job(fact.bag, task), fact.at)
            elif isinstance(fact, f.Ended):
                self._ended(fact)
            elif self.began < 0 and isinstance(fact, f.Granted) and any(g.bag == self.bag for g in fact.groups):
                self.began = fact.at

    def _ended(self, fact: f.Ended) -> None:
        for end in fact.ends:
            if end.bag not in (self.bag, self.shadow):
                continue
            if end.outcome == O_SUCCEEDED:
                self._result(self._job(end.bag, end.task), fact.at)
            elif end.verdict == READY and self._job(end.bag, end.task) in self.ends:
                self.world.engine.after(0, self.world.server.put, e.Cancel(0, end.bag, [end.task]))

    def _result(self, job: int, at: int) -> None:
        if job in self.ends:
            self.discarded += 1
            return
        self.ends[job] = at
        if self.done and self.shadow:  # all jobs have a result: queued replicas are of no use
            self.world.engine.after(0, self.world.server.put, e.Cancel(0, self.shadow, None, waiting=True))

    # --- the cycle ----------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Draw jobs for new replicas, begin or end the tail, and put the replicas into the queue."""
        if self.done:
            return
        self.world.engine.after(CYCLE, self._feed)
        bags = self.world.server.core.state.bags
        waits = bags[self.bag].counts[READY]
        queued = waits + (bags[self.shadow].counts[READY] if self.shadow else 0)
        few = self._is_tail_due(waits if self.rules.lasts else queued)
        if few and not self.left:
            self.left = self.work.tasks - len(self.ends)
        drawn = self._draw_jobs(bags[self.bag], self.rules.buffer - queued)
        if not self.rules.lasts:
            few = self._is_tail_due(queued + len(drawn))
        self._set_tail(few or (self.tail and self.rules.lasts))
        if drawn:
            self._enqueue(drawn)

    def _draw_jobs(self, bag: BagState, room: int) -> list[int]:
        """Draw jobs for replicas, at most `room`; none before the first tail."""
        if not self.rules.replicate or not self.left or room <= 0:
            return []
        return self._draw_by_replicas(list(self._candidates(bag)), room)

    def _is_tail_due(self, queued: int) -> bool:
        """Are so few jobs left, in the queue or without a result, that the bag is in its tail?"""
        if self.rules.left:
            return self.work.tasks - len(self.ends) < self.rules.left
        return queued < (self.rules.few or self.rules.buffer)

    def _set_tail(self, tail: bool) -> None:
        if tail != self.tail and self.rules.tail:
            for bag in (self.bag, self.shadow) if self.shadow else (self.bag,):
                self.world.server.put(e.SetPolicy(0, bag, {"requirements": self.rules.tail if tail else "true"}))
        self.tail = tail

    def _candidates(self, bag: BagState) -> Iterator[int]:
        """Yield the running jobs without a result for which the expression holds, in order."""
        running, wants = self._running(), self.replica_rule.at(self.world.server.core, self.world.engine.now, bag)
        for job in sorted(running):
            if job not in self.ends and wants(job, running[job], self._count(job)):
                yield job

    def _count(self, job: int) -> int:
        """Return how many replicas a job has, running or queued, the original among them."""
        return 1 + len(self.copies.get(job, ()))

    def _running(self) -> dict[int, list[int]]:
        """Return the rows of the attempts of each running job, oldest first."""
        attempts = self.world.server.core.state.attempts
        states, refs = attempts.np_state[: attempts.rows], attempts.np_task[: attempts.rows]
        found: dict[int, list[int]] = {}
        ours = (refs >> 32 == self.bag) | (refs >> 32 == (self.shadow or -1))
        rows = np.flatnonzero(ours & ((states == STARTED) | (states == GRANTED)))
        rows = rows[np.argsort(attempts.np_granted[rows], kind="stable")]
        for row, ref in zip(rows.tolist(), refs[rows].tolist(), strict=True):
            found.setdefault(self._job(ref >> 32, ref & 0xFFFFFFFF), []).append(row)
        return found

    def _draw_by_replicas(self, jobs: list[int], most: int) -> list[int]:
        """Draw jobs without replacement; a job with fewer replicas is likelier."""
        keys = [(self.draw.random() ** self._count(job), job) for job in jobs]
        return [job for _, job in sorted(keys, reverse=True)[:most]]

    def _enqueue(self, jobs: list[int]) -> None:
        for job in jobs:
            self.copies.setdefault(job, []).append(len(self.jobs))
            self.jobs.append(job)
        if self.shadow:
            self.world.server.put(e.Append(0, owner=OWNER, bag=self.shadow, target=0, count=len(jobs), idempotency="",
                                           source=b""))
            return
        work = self.work
        shape = target_shape("main", len(jobs), cores=work.cores, limit=work.limit, expect=work.expect,
                             retries=work.retries)
        tail = self.rules.tail if self.tail else ""
        policy = {key: text for key, text in (("requirements", tail), ("rank", self.rules.rank)) if text}
        again = Work(0, lambda task, draw: work.wall(self.jobs[task], draw), limit=work.limit)

        def taken(number: int) -> None:
            self.shadow = number

        event = e.Submit(0, owner=OWNER, name=work.name, idempotency="", spec=b"", targets=[shape], external=False,
                         select="fcfs", open=True, policy=policy)
        self.world.send(event, again, taken)
