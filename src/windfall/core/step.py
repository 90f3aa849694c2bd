"""`Core.step(now, events)`: the only way in.

Within a step every event sees what the one before it decided; nothing leaves before the driver has made the facts of
the step durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import msgspec

from windfall.core.apply.table import HANDLERS as FOLDED, apply
from windfall.core.decide.data import lost_copies
from windfall.core.decide.exchange import exchange, leases
from windfall.core.decide.grant import fail_over as failover, fair_share, nearest_data
from windfall.core.decide.grant.order import Matchmaker
from windfall.core.decide.grant.wake import feed_hosts, feed_late, feed_parked, recall_for, take_back
from windfall.core.decide.hosts import quarantine as hosts
from windfall.core.decide.provision import reconcile, site_session, site_watch
from windfall.core.decide.replicas import by_deadline, by_expression, candidates
from windfall.core.decide.requests import bags, sites
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import GONE, LEAVING, RUNNING
from windfall.core.persist.snapshot import dump_state, load_state, mark_saved, rebuild
from windfall.core.state import chains
from windfall.core.state.world import PilotState, State, TaskClass


@dataclass(frozen=True, slots=True)
class Config:
    """Times in milliseconds."""

    lease: int = 60_000
    margin: int = 5_000
    park: int = 20_000  # longest a poll is kept waiting
    idle: int = 120_000  # a pilot without work leaves after this
    silence: int = 3_600_000  # a pilot without limits or wall time is given up after this
    prefetch: int = 500  # worth of work per slot a pilot holds beyond what it runs
    prefetch_most: int = 256  # tasks per slot
    deaths: int = 3  # of pilots, before a task is quarantined
    message: int = 4 << 20  # bytes of commands in one answer, about
    token: int = 90 * 86_400_000  # a pilot's token ends so long after its wall time, or after its enrolment
    forget: int = 86_400_000  # a pilot that is gone is forgotten after this
    owned: int = 400_000_000  # tasks in all bags of one owner, ended or not
    provision: int = 1_000  # sites are provisioned at most once in this time
    landing: int = 30_000  # a submission that was under way when its tender died has landed after this, or never will
    listing: int = 60_000  # how often tenders are asked what their batch system has of ours
    suspect: int = 180_000  # a site that has not answered for so long is suspect
    blackout: int = 900_000  # sites are tried again when no pilot was active anywhere for so long, and work is wanted
    salvage: int = 120_000  # what a pilot that is gone left behind is looked for so long, then its tasks run again
    quarantine: int = 600_000  # of a host; twice as long each time, a day at most
    parting: int = 2_000  # ms that a batch system takes, mostly, to let go of a job whose pilot has said goodbye
    fail_over: int = 3_600_000  # tasks wait so long for a pilot at their fail-over site, then any site will do
    ageing: int = 86_400_000  # a bag that was given to nobody for so long goes before its owner's others
    mark: str = "intent"  # begins the nonces of intents; no other server that uses the same sites may have it


class Step(msgspec.Struct, gc=False):
    facts: list[f.Fact]
    effects: list[x.Effect]
    wake_at: int | None


class Core:
    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.state = State()
        self.now = 0
        self.facts: list[f.Fact] = []
        self.effects: list[x.Effect] = []
        self.fresh: dict[int, tuple[int, list[f.Group]]] = {}  # grants of this step, by pilot
        self.tended: dict[str, int] = {}  # sites whose tender asked in this step → key of its request
        self.provisioned = -1 << 60  # when sites were provisioned last
        self.changed = False  # something has happened since
        self.matched = 0  # pairs of classes and sites that were matched then
        self.makes = 0  # intents that may still be made by this run
        self.provision_timer = 0  # when they will be, at the latest; 0: nothing is planned
        self.blamed: list[tuple[TaskClass, int, int]] = []  # class, grant and ms of failures in this report
        self.strikes: dict[tuple[str, str], dict[str, hosts.Strikes]] = {}  # against hosts of a site, by guest
        self.barring: list[int] = []  # hosts that this step has barred
        self.watching = False  # a timer of the watchdog runs
        self.lit = 0  # when some pilot was active, or nothing was wanted, last
        self.resumed = 0  # when this process began
        self.poor: list[int] = []  # pilots that asked in this step and got nothing
        self.withheld: dict[int, None] = {}  # pilots that ready tasks were withheld from
        self.tails: dict[int, candidates.Tail] = {}  # of this step: bag → what may have a replica
        self.any_late = (-1, False)  # of this step: after so many facts, is there anything to replicate?
        self.kept_tails: dict[int, candidates.Tail] = {}  # and of steps before
        self.looks_late: dict[int, int] = {}  # bag → when another of its tasks is late
        self.scans: dict[int, by_expression.Scan] = {}  # bag → its present cycle of looking for what to replicate
        self.scanned = 0  # of this step: tasks of all bags that were looked at for that
        self.expiries: dict[int, int] = {}  # bag → when the next of its attempts may be overdue
        self.moving_over: dict[int, None] = {}  # bags with tasks for their fail-over sites that may have to wait first
        self.looks: dict[int, int] = {}  # bag → when to look at what it withholds again
        self.stirred = False  # what was withheld may go now
        self.cut = False  # of those who wait not all were asked about what is ready
        self.alive = 0  # pilots that are not gone
        self.match = Matchmaker()
        self.ageing_timer = 0  # when to look at how long bags have waited; 0: nothing is planned
        self.month_timer = 0  # when the next month begins, where that matters
        self._times: list[int] = []  # when something falls due, a heap
        self._timers: dict[int, list[tuple[str, Any]]] = {}  # what does; leases and parked polls do by the dozen
        self._fed = 0  # version that waiting pilots have seen,
        self._fed_ready = 0  # and that of the ready list

    # --- driving ---------------------------------------------------------------------------------------------

    def step(self, now: int, events: Iterable[e.Event]) -> Step:
        state, times = self.state, self._times
        self.now = state.now = now if now > state.now else state.now
        self.facts, self.effects, self.any_late, self.scanned = [], [], (-1, False), 0
        if times and times[0] <= self.now:
            self._fire()
        for event in events:
            _HANDLERS[type(event)](self, event)
        self._settle()
        return Step(self.facts, self.effects, times[0] if times else None)

    def _fire(self) -> None:
        while self._times and self._times[0] <= self.now:
            for kind, key in self._timers.pop(heappop(self._times)):
                _TIMERS[kind](self, key)

    def _settle(self) -> None:
        """What the events made possible: work for those who wait, orders for those who hold."""
        state = self.state
        if self.stirred or self._fed != state.version:
            self._feed()
        if state.roomier:
            feed_hosts(self)
        if self.poor:
            for number in self.poor:
                recall_for(self, state.pilots[number])
            self.poor.clear()
        if self.barring:
            for row in self.barring:
                take_back(self, row)
            self.barring.clear()
        if self.stirred or state.provided or self.tended:
            self._look_again()
        if state.orders:
            for number in list(state.orders):
                exchange.nudge(self, state.pilots[number])
            state.orders.clear()
            self._look_again()
        if state.unended and not self.ageing_timer:
            fair_share.arm(self)
        if self.fresh:
            self.fresh.clear()
        if self.tails:
            self.tails.clear()

    def _feed(self) -> None:
        while self.stirred or self._fed != self.state.version:  # what one is granted may make room for another
            ready = self.stirred or self.cut or self._fed_ready != self.state.listing
            self.cut = False
            self.stirred, self._fed, self._fed_ready = False, self.state.version, self.state.listing
            if ready:
                feed_parked(self)
            else:
                feed_late(self)

    def _look_again(self) -> None:
        """What one who waits for data is granted changes what others can expect, and what is wanted of sites."""
        if self.stirred:
            self._feed()
        if self.state.provided or self.tended:
            reconcile.settle(self)
            site_session.settle(self)

    # --- for the deciders --------------------------------------------------------------------------------------

    def emit(self, fact: f.Fact) -> None:
        self.facts.append(fact)
        FOLDED[type(fact)](self.state, fact)

    def done(self, event: e.Event, value: int = 0, extra: int = 0) -> None:
        self.effects.append(x.Done(event.key, value, extra))

    def refuse(self, event: e.Event, error: str, message: str, hint: str = "") -> None:
        self.effects.append(x.Refuse(event.key, error, message, hint))

    def lose_pilot(self, pilot: PilotState, why: str) -> None:
        """The site's evidence that it is dead."""
        exchange.end_pilot(self, pilot, why, clean=False)

    def timer(self, at: int, kind: str, key: int | str) -> None:
        if (due := self._timers.get(at)) is None:
            self._timers[at] = due = []
            heappush(self._times, at)
        due.append((kind, key))

    def settled(self) -> int:
        """Before that nothing that was handed out before this process began is late: its pilot may not have been heard
        yet."""
        return self.resumed + self.config.lease + self.config.margin

    def watch_lease(self, pilot: PilotState) -> None:
        """A little late, so that leases that run out at about the same time are looked at in one step."""
        patience = self.config.lease + self.config.margin
        at = pilot.heard + patience
        self.timer(at + -at % (patience // exchange.TOGETHER or 1), "lease", pilot.number)

    def spread(self) -> int:
        """Having lost the server, pilots come back over this many ms: a handshake costs a fraction of one."""
        return self.alive if self.alive > 200 else 200

    # --- recovery ----------------------------------------------------------------------------------------------

    def restore(self, meta: bytes, chunks: dict[str, bytes]) -> None:
        self.state = load_state(meta, chunks)

    def replay(self, facts: Iterable[f.Fact]) -> None:
        for fact in facts:
            apply(self.state, fact)

    def resume(self, now: int) -> None:
        """After recovery: silence so far means nothing, so every lease starts again."""
        self.now = self.state.now = self.resumed = max(now, self.state.now)
        rebuild(self.state)
        self.alive = 0
        for bag in self.state.bags.values():
            chains.arm(self, bag)
            failover.resume(self, bag)
        for pilot in self.state.pilots.values():
            if pilot.state == GONE:
                self.timer(pilot.ended + self.config.forget, "forget", pilot.number)
                continue
            pilot.heard = self.now
            self.alive += 1
            self.watch_lease(pilot)
        hosts.restand(self.state)
        for row, until in self.state.barred.items():
            self.timer(max(until, self.now), "host", row)
        for site in self.state.sites.values():
            if site.limits.shapes or site.open:
                site_session.renew(self, site)
                for number in (*site.intents[RUNNING], *site.intents[LEAVING]):
                    site_session.watch_wall(self, self.state.intents[number])
        bags.watch_month(self)
        by_deadline.resume(self)
        fair_share.arm(self)
        self.changed = True

    def snapshot(self) -> tuple[bytes, dict[str, bytes], list[str]]:
        """(meta, changed chunks, names of chunks to drop)"""
        return dump_state(self.state)

    def saved(self) -> None:
        """The last snapshot is durable."""
        mark_saved(self.state)


_TIMERS: dict[str, Callable[[Core, Any], None]] = {
    "lease": leases.lease_due, "park": leases.park_due, "forget": leases.forget_due,
    "tend": site_session.tend_due, "wall": site_session.wall_due, "provision": reconcile.provision_due,
    "batch": chains.patience_over,
    "look": nearest_data.look_due, "watch": site_watch.watch_due,
    "host": hosts.host_due, "salvage": site_session.salvage_due,
    "month": bags.month_begins, "late": candidates.late_due, "over": failover.look_due, "moved": failover.moved_due,
    "expiry": by_deadline.expiry_due, "age": fair_share.age_due,
}

_HANDLERS: dict[type, Callable[[Core, Any], None]] = {
    e.Submit: bags.submit,
    e.Append: bags.append,
    e.AppendPart: bags.append_part,
    e.Close: bags.close,
    e.Pause: bags.pause,
    e.Cancel: bags.cancel,
    e.Retry: bags.retry,
    e.Gathered: bags.gathered,
    e.Remove: bags.remove,
    e.AddSite: bags.add_site,
    e.DrainSite: sites.drain_site,
    e.ShareSite: sites.share_site,
    e.RemoveSite: sites.remove_site,
    e.Frugal: bags.frugal,
    e.SetBudget: bags.set_budget,
    e.SetPolicy: bags.set_policy,
    e.SetAllowance: bags.set_allowance,
    e.SetWeight: bags.set_weight,
    e.IssueToken: bags.issue_token,
    e.RevokeToken: bags.revoke_token,
    e.Enrol: exchange.enrol,
    e.Exchange: exchange.exchange,
    e.Gone: exchange.gone,
    e.Drain: exchange.drain,
    e.Unpark: exchange.drop_connection,
    e.Tend: site_session.tend,
    e.KnowLink: lost_copies.know_link,
    e.LosePlace: lost_copies.lose_place,
}
