"""Sites with unreliable batch systems, and the tenders that start pilots there.

A batch system keeps its word until a plan makes it lie: a listing that misses a job, or all of them, or is old, a
submission that failed and went through, a job that is started again while its old process lives, a queue that is lost.
This module judges what the server ordered (rule 7, P6), but for the jobs about which a batch system has lied.  A tender
forgets everything when it dies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import Limits, Shape

from .plan import SitePlan

if TYPE_CHECKING:
    from .process import Process
    from .world import World

LANDS = 4_000  # ms in which a submission lands, or never does: less than the core waits for it
POLL = 3_000
TIMEOUT = 5_000
RESERVE = 1_000  # ms that a pilot leaves before its wall time is over


def limits_of(plan: SitePlan) -> Limits:
    shapes = [Shape(cores, cores << 30, 0, 1 << 40, wall, whole=cores == 4) for cores, wall in plan.shapes]
    shapes += [Shape(1, 1 << 30, 0, 1 << 40, 60_000, plan.nodes)] if plan.nodes > 1 else []
    return Limits(shapes, plan.pilots, plan.queued, plan.share, plan.delay, plan.budget, plan.flight, plan.jobs,
                  plan.disk, plan.counts, plan.balance >= 0)


def healed(plan: SitePlan) -> Limits:
    """Return the limits that people set in the end, so that every task can run somewhere."""
    limits = limits_of(plan)
    more = [Shape(4, 4 << 30, 0, 1 << 40, 0, whole=True), Shape(1, 1 << 30, 0, 1 << 40, 0, 2)]
    return Limits([*limits.shapes, *more], limits.pilots, limits.queued)


class Refused(Exception):
    """The batch system has refused a job."""


@dataclass
class Job:
    id: str
    nonce: str
    shape: Shape
    process: Process | None = None
    runs: int = 0
    belied: bool = False  # what was said of it was not true
    lacked: int = 0  # so many listings did not have it
    since: int = 0  # when it began to run


class Site:
    def __init__(self, world: World, name: str, plan: SitePlan) -> None:
        self.world, self.name, self.plan = world, name, plan
        self.jobs: dict[str, Job] = {}
        self.born = self.tenders = 0
        self.tender: Tender | None = None
        self.dark = 0  # until when nobody gets in or out
        self.fails = False  # the next submission seems to fail, and does not
        self.hides = 0  # until when listings miss the oldest job
        self.short = False  # the next listing is empty: nobody must believe it alone
        self.old: tuple[int, list[e.ListedJob]] = (0, [])  # until when listings are this one
        self.most = plan.pilots
        self.jobs_of_user, self.balance = plan.jobs, plan.balance
        self.used = 0  # ms of cores, of jobs that have ended
        self.used_unseen = 0  # of these, by jobs that the core could take for gone
        self.submissions = 0
        self.outboxes: dict[str, tuple[Process, list[Any]]] = {}  # nonce → who left which reports there
        self.watch()

    def watch(self) -> None:
        """Start a tender whenever the site has none."""
        self.world.after(self.world.random.choice((2_000, 8_000)), self.watch)
        if self.tender is None or not self.tender.alive:
            self.new_tender()

    def new_tender(self) -> None:
        self.tenders += 1
        self.tender = Tender(self, f"{self.name} tender {self.tenders}")

    # --- the batch system's commands ----------------------------------------------------------------------------------

    def submit(self, nonce: str, shape: Shape) -> str:
        if len(self.jobs) >= self.plan.most:
            raise Refused
        self.born += 1
        self.submissions += 1
        job = Job(f"{self.name}.{self.born}", nonce, shape)
        again = [other.id for other in self.jobs.values() if other.nonce == nonce and not other.belied]
        self.jobs[job.id] = job
        self._judge(job, again)
        self._queue(job)
        if self.fails:
            self.fails, job.belied = False, True
            raise Refused
        return job.id

    def _judge(self, job: Job, again: list[str]) -> None:
        if again:
            self.world.blame([f"rule 7: {job.nonce} is submitted while {again} is there under the same name"])
        here = [j.id for j in self.jobs.values() if not j.belied]
        if self.most and len(here) > self.most:
            self.world.blame([f"P6: {self.name} may have {self.most} pilots, its batch system has {here}"])
        if self.jobs_of_user and len(here) + self.plan.others > max(self.jobs_of_user, self.plan.others):
            self.world.blame([f"P6: the user may have {self.jobs_of_user} jobs at {self.name}, and has "
                              f"{self.plan.others} beside {here}"])
        worst = self.used - self.used_unseen + sum(j.shape.worst for j in self.jobs.values() if not j.belied)
        if 0 <= self.balance < worst:
            self.world.blame([f"P6: the account at {self.name} has {self.balance}, and may come to use {worst}"])

    def _queue(self, job: Job) -> None:
        run = job.runs = job.runs + 1
        self.world.after(self.world.random.choice((0, 300, 3_000, 15_000)), lambda: self._start(job, run))

    def _start(self, job: Job, run: int) -> None:
        if self.jobs.get(job.id) is not job or job.runs != run:
            return
        busy = sum(j.shape.cores * j.shape.nodes for j in self.jobs.values() if j.process is not None)
        if busy + job.shape.cores * job.shape.nodes > self.plan.cores:
            self.world.after(1_000, lambda: self._start(job, run))
            return
        wall = job.shape.wall - RESERVE if job.shape.wall else None
        job.since = self.world.now
        job.process = self.world.new_pilot(job.shape.cores, job.nonce, wall, self, job)
        if job.shape.wall:
            self.world.after(job.shape.wall, lambda: self._time_is_up(job, run))

    def _time_is_up(self, job: Job, run: int) -> None:
        if self.jobs.get(job.id) is job and job.runs == run:
            self.cancel(job.id)

    def cancel(self, name: str) -> None:
        job = self.jobs.pop(name, None)
        if job is not None and job.process is not None:
            self._account(job)
            job.process.die()

    def _account(self, job: Job) -> None:
        used = job.shape.cores * job.shape.nodes * (self.world.now - job.since)
        self.used += used
        self.used_unseen += used * job.belied

    def ended(self, job: Job) -> None:
        """Remove a job whose process is over from the batch system."""
        if self.jobs.get(job.id) is job:
            self._account(job)
            del self.jobs[job.id]

    def listing(self) -> list[e.ListedJob]:
        """List the jobs, and note which the core may wrongly take for gone: those that two listings lack, or one after
        the pilot's goodbye or death."""
        listed = self._listing()
        said = {job.id for job in listed}
        for job in self.jobs.values():
            job.lacked += job.id not in said
            leaves = job.process is not None and (bool(job.process.agenda.leaving) or not job.process.alive)
            job.belied = job.belied or job.lacked > (not leaves)
        return listed

    def _listing(self) -> list[e.ListedJob]:
        if self.old[0] > self.world.now:
            said = {(job.id, job.running) for job in self.old[1]}
            for job in self.jobs.values():
                job.belied = job.belied or (job.id, job.process is None) in said  # it has begun since, or not
            return self.old[1]
        if self.short:
            self.short = False
            return []
        jobs = list(self.jobs.values())
        if jobs and self.hides > self.world.now:
            jobs.pop(0)
        return [e.ListedJob(job.nonce, job.id, job.process is not None) for job in jobs]

    def info(self) -> e.SiteInfo:
        cores = sum(j.shape.cores * j.shape.nodes for j in self.jobs.values() if j.process is not None)
        queued = sum(j.process is None for j in self.jobs.values())
        ran = sum(j.shape.cores * j.shape.nodes * (self.world.now - j.since) for j in self.jobs.values()
                  if j.process is not None)
        balance = max(self.balance - self.used - ran, 0) if self.balance >= 0 else -1
        return e.SiteInfo(self.plan.cores - cores, queued, 0, self.plan.others, balance)

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def requeue(self, which: int, lives: bool) -> None:
        """Put a running job back into the queue; with `lives` its old process goes on."""
        running = [job for job in self.jobs.values() if job.process is not None]
        if running:
            job = running[which % len(running)]
            self._account(job)
            process, job.process = job.process, None
            job.belied = job.belied or lives
            if process is not None and not lives:
                process.die()
            self._queue(job)

    def lose_queue(self) -> None:
        for job in [job for job in self.jobs.values() if job.process is None]:
            del self.jobs[job.id]

    def heal(self) -> None:
        self.dark = self.hides = self.jobs_of_user = 0
        self.balance = -1
        self.old = (0, [])
        self.fails = self.short = False

    def leftovers(self, intents: dict[tuple[str, str], Any]) -> list[str]:
        said = [f"rule 7: {self.name} has {job.id} ({job.nonce}), which nobody knows" for job in self.jobs.values()
                if (self.name, job.nonce) not in intents]
        return said + [f"P7: all has ended, and {self.name} has {job.id} ({job.nonce})" for job in self.jobs.values()]


class Tender:
    """A tender's process: it carries out orders, once per nonce, and reports the outcomes until the core answers."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.world, self.name = site, site.world, name
        self.alive, self.known = True, False
        self.seen = self.now = self.asks = 0
        self.names: dict[str, str] = {}  # nonce → what the batch system calls it; "": under way; "-": not wanted
        self.stops: dict[tuple[str, str], None] = {}  # under way
        self.accepted: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.stopped: dict[tuple[str, str], None] = {}
        self.salvaged: dict[str, int] = {}
        self.seeking: dict[str, None] = {}
        self.looking = False
        self.tell(poll=True)

    def after(self, wait: int, what: Callable[[], None]) -> None:
        self.world.after(wait, lambda: what() if self.alive else None)

    # --- the exchange -----------------------------------------------------------------------------------------------

    def tell(self, poll: bool = False, **more: Any) -> None:
        self.asks += 1
        ask = self.asks
        news = (list(self.accepted), list(self.refused), list(self.stopped), list(self.salvaged))
        event = e.SiteReport(
            0, self.site.name, self.name, not self.known, self.seen, list(self.accepted.items()),
            list(self.refused.items()), list(self.stopped), info=self.site.info(), wait=POLL if poll else 0,
            can_salvage=True, salvaged=list(self.salvaged.items()), **more,
        )
        heard: list[Any] = []

        def answer(effect: Any) -> None:
            if self.alive and not heard:
                heard.append(effect)
                self._answered(effect, news, poll)

        def give_up() -> None:
            if not heard and poll and ask >= self.polled:
                self.tell(poll=True)

        if poll:
            self.polled = ask
        self.world.post(self.site, event, answer)
        self.after(TIMEOUT + (POLL if poll else 0), give_up)

    def _answered(self, orders: Any, news: tuple[list[Any], ...], polled: bool) -> None:
        if isinstance(orders, x.SiteOrders) and orders.over:
            self.alive = False
            return
        if isinstance(orders, x.SiteOrders):
            self.known = True
            for said, confirmed in zip((self.accepted, self.refused, self.stopped, self.salvaged), news, strict=True):
                for key in confirmed:
                    said.pop(key, None)
            if orders.number > self.seen:
                self._carry_out(orders)
        if polled:
            self.after(100, lambda: self.tell(poll=True))

    def _carry_out(self, orders: x.SiteOrders) -> None:
        self.seen, self.now = orders.number, orders.now
        for nonce, shape in orders.start:
            self._start(nonce, shape)
        for nonce, name in orders.stop:
            self._stop(nonce, name)
        if orders.look and not self.looking:
            self.looking = True
            began = self.now
            self.after(self.world.random.choice((10, 500)), lambda: self._look(began))

        for nonce in orders.salvage:
            if nonce not in self.seeking:
                self.seeking[nonce] = None
                self.after(self.world.random.choice((10, 2_000)), lambda nonce=nonce: self._salvage(nonce))

    # --- orders -----------------------------------------------------------------------------------------------------

    def _start(self, nonce: str, shape: Shape) -> None:
        name = self.names.get(nonce)
        if name is None:
            self.names[nonce] = ""
            # On its way it does not need us any more: should we die now, it arrives, and nobody says so.
            self.world.after(self.world.random.choice((5, 400, LANDS)), lambda: self._submit(nonce, shape))
        elif name not in ("", "-"):
            self.accepted[nonce] = name

    def _submit(self, nonce: str, shape: Shape) -> None:
        if self.site.dark > self.world.now:
            self.after(2_000, lambda: self._submit(nonce, shape))  # it did not get there
            return
        try:
            name = self.site.submit(nonce, shape)
        except Refused:
            if self.alive:
                self.names[nonce] = "-"
                self.refused[nonce] = "too many"
                self.tell()
            return
        if self.alive:
            self.names[nonce] = name
            self.accepted[nonce] = name
            self.after(self.world.random.choice((1, 300)), self.tell)

    def _stop(self, nonce: str, name: str) -> None:
        if (nonce, name) not in self.stops:
            self.stops[nonce, name] = None
            self.after(self.world.random.choice((5, 700)), lambda: self._cancel(nonce, name))

    def _cancel(self, nonce: str, name: str) -> None:
        if self.site.dark > self.world.now or self.names.get(nonce) == "":
            self.after(500, lambda: self._cancel(nonce, name))  # not there yet
            return
        self.names.setdefault(nonce, "-")
        for job in list(self.site.jobs.values()):
            if name in (job.id, "") and job.nonce == nonce:
                self.site.cancel(job.id)
        del self.stops[nonce, name]
        self.stopped[nonce, name] = None
        self.tell()

    def _salvage(self, nonce: str) -> None:
        """Send the reports that a pilot left, as the pilot would have, and tell the core."""
        if self.site.dark > self.world.now:
            self.after(1_000, lambda: self._salvage(nonce))
            return
        lives = any(p.alive and p.nonce == nonce and p.site is self.site for p in self.world.processes)
        process, reports = self.site.outboxes.get(nonce, (None, []))
        if lives or process is None:
            self._sought(nonce, -1 if lives else 0)
            return
        send = lambda: e.Exchange(0, process.number, process.agenda.epoch or 1, 1 << 30, reports=[
            e.Report(**report) for report in reports])
        self.world.client(send, lambda effect: self._delivered(nonce, reports, effect))

    def _delivered(self, nonce: str, reports: list[Any], effect: Any) -> None:
        """Tell the core how many reports arrived; if this tender is dead by now, the next one finds and sends them
        again."""
        if isinstance(effect, x.ExchangeReply):
            self.world.blame(self.world.oracle.answered(reports))
        if self.alive:
            self.site.outboxes.pop(nonce, None)
            self._sought(nonce, len(reports))

    def _sought(self, nonce: str, found: int) -> None:
        self.seeking.pop(nonce, None)
        self.salvaged[nonce] = found
        self.tell()

    def _look(self, began: int) -> None:
        if self.site.dark > self.world.now:
            self.after(1_000, lambda: self._look(began))
            return
        self.looking = False
        self.tell(listed=self.site.listing(), began=began)
