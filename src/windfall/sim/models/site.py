"""A site in virtual time: a batch queue with other people's jobs and ours.

Several users may share a site: each call names its user, and a user sees only their own jobs.  When a job of ours
starts, `begin(job)` returns its process, which can `die()`, and which calls `leave(job)` when it ends by itself.

The information system publishes every `refresh` ms, so its numbers are up to that old.  The batch system may preempt
jobs of ours, and put them back into its queue or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from windfall.core.messages import events as e
from windfall.core.messages.facts import Shape
from windfall.sim.engine import Engine
from windfall.sim.models.batch import BatchQueue
from windfall.sim.models.swf import LogJob

SECOND = 1_000


class JobProcess(Protocol):
    def die(self) -> None: ...


class JobRefused(Exception):
    """The batch system refuses a job: its user has too many."""


@dataclass
class BatchJob:
    id: str
    user: str
    nonce: str
    shape: Shape
    begin: Callable[[BatchJob], JobProcess]
    started: int = -1
    runs: int = 0  # starts so far
    process: JobProcess | None = None


class SiteSettings(NamedTuple):
    """The settings of a site's batch system."""

    speed: float = 1.0
    load: Iterable[LogJob] = ()  # other people's jobs
    startup: int = 0  # ms from the start of a job to its process
    most: int | None = None  # jobs that one user may have
    refresh: int = 0  # ms between two reports of the information system; 0: it is always up to date
    preempts: float = 0.0  # mean ms after which a running job of ours is preempted; 0: never
    requeues: bool = False  # does a preempted job go back into the queue?


PLAIN_SITE = SiteSettings()


class SimulatedSite:
    """A site with a batch queue."""

    def __init__(self, engine: Engine, name: str, queue: Any, settings: SiteSettings = PLAIN_SITE) -> None:
        self.engine, self.name, self.queue, self.settings = engine, name, queue, settings
        self.jobs: dict[str, BatchJob] = {}
        self.starts = 0  # starts of our jobs
        self._submitted_jobs = 0
        self._others: dict[str, int] = {}  # job of others → ms that it runs
        self._published = e.SiteInfo(0, 0)
        self._published_at = 0
        self._load: Iterator[LogJob] = iter(settings.load)
        self._schedule_other()
        if settings.refresh:
            engine.after(0, self._publish)

    # --- the commands of a user --------------------------------------------------------------------------------------

    def submit(self, user: str, nonce: str, shape: Shape, begin: Callable[[BatchJob], JobProcess]) -> str:
        most = self.settings.most
        if most is not None and sum(job.user == user for job in self.jobs.values()) >= most:
            raise JobRefused(f"{user} has {most} jobs at {self.name} already")
        self._submitted_jobs += 1
        job = BatchJob(f"{self.name}.{self._submitted_jobs}", user, nonce, shape, begin)
        self.jobs[job.id] = job
        self._enqueue(job)
        return job.id

    def cancel(self, name: str) -> None:
        """Remove a job, waiting or running; a job that is gone is ignored."""
        job = self.jobs.pop(name, None)
        if job is None:
            return
        if job.started < 0:
            self.start(self.queue.cancel(self.engine.now, job.id))
        else:
            self._end(job)

    def listing(self, user: str) -> list[e.ListedJob]:
        return [e.ListedJob(job.nonce, job.id, job.started >= 0) for job in self.jobs.values() if job.user == user]

    def info(self) -> e.SiteInfo:
        if not self.settings.refresh:
            return self._current_info()
        return e.SiteInfo(self._published.free, self._published.queued, self.engine.now - self._published_at, 0)

    def leave(self, job: BatchJob) -> None:
        """End a job whose process has ended."""
        if self.jobs.get(job.id) is job and job.started >= 0:
            del self.jobs[job.id]
            job.process = None
            self._end(job)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _current_info(self) -> e.SiteInfo:
        return e.SiteInfo(max(int(self.queue.free(self.engine.now)), 0), len(self.queue), others=0)

    def _publish(self) -> None:
        self._published, self._published_at = self._current_info(), self.engine.now
        self.engine.after(self.settings.refresh, self._publish)

    def _schedule_other(self) -> None:
        job = next(self._load, None)
        if job is not None:
            self.engine.at(round(job.submit * SECOND), self._other_arrived, job)

    def _other_arrived(self, job: LogJob) -> None:
        key = f"other {job.number}"
        run = max(round(job.run * SECOND), 1)
        self._others[key] = run
        self.start(self.queue.submit(self.engine.now, key, job.procs, max(round(job.estimate * SECOND), run)))
        self._schedule_other()

    def _enqueue(self, job: BatchJob) -> None:
        estimate = job.shape.wall or 1 << 50
        self.start(self.queue.submit(self.engine.now, job.id, job.shape.cores, estimate))

    def start(self, keys: Iterable[Any]) -> None:
        """Start the jobs that the queue lets run now, ours and others'."""
        for key in keys:
            if key in self._others:
                self.engine.after(self._others[key], self._other_ended, key)
            else:
                self._start(self.jobs[key])

    def _other_ended(self, key: str) -> None:
        del self._others[key]
        self.start(self.queue.end(self.engine.now, key))

    def _start(self, job: BatchJob) -> None:
        job.started = self.engine.now
        job.runs += 1
        self.starts += 1
        self.engine.after(self.settings.startup, self._begin, job, job.runs)
        if job.shape.wall:
            self.engine.after(job.shape.wall, self._evict, job, job.runs, False)
        if self.settings.preempts:
            wait = max(round(self.engine.random.expovariate(1 / self.settings.preempts)), 1)
            self.engine.after(wait, self._evict, job, job.runs, self.settings.requeues)

    def _is_running(self, job: BatchJob, run: int) -> bool:
        return self.jobs.get(job.id) is job and job.started >= 0 and job.runs == run

    def _begin(self, job: BatchJob, run: int) -> None:
        if self._is_running(job, run):
            job.process = job.begin(job)

    def _evict(self, job: BatchJob, run: int, again: bool) -> None:
        """Kill a job at its wall time, or preempt it; with `again` the job goes back into the queue."""
        if not self._is_running(job, run):
            return
        del self.jobs[job.id]
        self._end(job)
        if again:
            job.started = -1
            self.jobs[job.id] = job
            self._enqueue(job)

    def _end(self, job: BatchJob) -> None:
        process, job.process = job.process, None
        if process is not None:
            process.die()
        self.start(self.queue.end(self.engine.now, job.id))


def machine(engine: Engine, name: str, procs: int, discipline: str = "easy", **settings: Any) -> SimulatedSite:
    """Return a site whose machine has `procs` processors; `settings`: fields of `SiteSettings`."""
    return SimulatedSite(engine, name, BatchQueue(procs, discipline), SiteSettings(**settings))
