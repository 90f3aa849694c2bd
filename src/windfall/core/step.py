"""`Core.step(now, events)`: the only way in.

Within a step every event sees what the one before it decided; nothing leaves before the driver has made the facts of
the step durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from windfall.core.apply.table import HANDLERS as FOLDED, apply
from windfall.core.config import Config
from windfall.core.decide.data import lost_copies
from windfall.core.decide.exchange import enrol, exchange, leases, pilot_end, reply
from windfall.core.decide.grant import batches, fail_over, fair_share, nearest_data
from windfall.core.decide.grant.steal import recall_from_host, steal_for
from windfall.core.decide.grant.wake import grant_on_hosts, grant_to_waiting, offer_replicas
from windfall.core.decide.hosts import quarantine as hosts
from windfall.core.decide.provision import reconcile, salvage, site_orders, site_session, site_watch
from windfall.core.decide.replicas import by_deadline, scan
from windfall.core.decide.requests import append, attendance, bags, owners, rerun, sites, submit, tokens
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.persist.snapshot import dump_state, load_state, mark_saved, rebuild
from windfall.core.state.world import State
from windfall.core.turn import Turn


class Step(msgspec.Struct, gc=False):
    facts: list[f.Fact]
    effects: list[x.Effect]
    wake_at: int | None


class Core:
    """Takes steps, recovers, and saves.  Deciders, which see a `Turn`, do the rest."""

    def __init__(self, config: Config | None = None, turn: type[Turn] = Turn) -> None:
        self.turn = turn(config or Config(), FOLDED)

    @property
    def config(self) -> Config:
        return self.turn.config

    @property
    def state(self) -> State:
        return self.turn.state

    @property
    def now(self) -> int:
        return self.turn.now

    # --- driving ---------------------------------------------------------------------------------------------

    def step(self, now: int, events: Iterable[e.Event]) -> Step:
        turn = self.turn
        turn.begin(now)
        while due := turn.timers.pop(turn.now):
            for kind, key in due:
                _TIMERS[kind](turn, key)
        for event in events:
            _HANDLERS[type(event)](turn, event)
        _finish(turn)
        return Step(turn.facts, turn.effects, turn.timers.next)

    # --- recovery ----------------------------------------------------------------------------------------------

    def restore(self, meta: bytes, chunks: dict[str, bytes]) -> None:
        self.turn.state = load_state(meta, chunks)

    def replay(self, facts: Iterable[f.Fact]) -> None:
        for fact in facts:
            apply(self.turn.state, fact)

    def resume(self, now: int) -> None:
        """Resume after a recovery: silence so far means nothing, so every lease starts again."""
        turn, state = self.turn, self.turn.state
        turn.now = state.now = turn.resumed = max(now, state.now)
        rebuild(state)
        for bag in state.bags.values():
            batches.set_batch_timer(turn, bag)
            fail_over.resume(turn, bag)
            attendance.resume(turn, bag)
        enrol.resume(turn)
        hosts.resume(turn)
        site_session.resume(turn)
        owners.watch_month(turn)
        by_deadline.resume(turn)
        fair_share.set_ageing_timer(turn)
        turn.provision.changed = True

    def numbers(self) -> tuple[int, int, int]:
        """Return the numbers that the next bag, pilot and intent get.

        The mark beside the journal keeps them: a core recovered from a journal that lost commits gives none twice."""
        state = self.turn.state
        return state.next_bag, state.next_pilot, state.next_intent

    def snapshot(self) -> tuple[bytes, dict[str, bytes], list[str]]:
        """Return (meta, changed chunks, names of chunks to drop)."""
        return dump_state(self.turn.state)

    def saved(self) -> None:
        """Note that the last snapshot is durable."""
        mark_saved(self.turn.state)


# --- the end of a step ---------------------------------------------------------------------------------------


def _finish(turn: Turn) -> None:
    """Do what the events made possible: grant to waiting pilots, send orders to pilots that hold attempts."""
    state, grants = turn.state, turn.grants
    if grants.recheck_waiting or grants.version_offered != state.version:
        _feed(turn)
    if state.hosts_below_per_host:
        grant_on_hosts(turn)
    if grants.starved_pilots or turn.hosts.to_empty:
        _recall_tasks(turn)
    if grants.recheck_waiting or state.provisioned_sites or turn.provision.to_answer:
        _provision(turn)
    if state.pilots_with_news:
        for number in list(state.pilots_with_news):
            reply.answer_waiting(turn, state.pilots[number])
        state.pilots_with_news.clear()
        _provision(turn)
    if state.unended and not grants.ageing_timer:
        fair_share.set_ageing_timer(turn)
    grants.grants_this_step.clear()
    turn.replicas.scans.clear()


def _recall_tasks(turn: Turn) -> None:
    """Steal tasks for the pilots that got nothing in this step, and recall those of hosts that were barred in it."""
    starved, barred = turn.grants.starved_pilots, turn.hosts.to_empty
    for number, wanted in starved.items():
        steal_for(turn, turn.state.pilots[number], wanted)
    starved.clear()
    for row in barred:
        recall_from_host(turn, row)
    barred.clear()


def _feed(turn: Turn) -> None:
    grants, state = turn.grants, turn.state
    while grants.recheck_waiting or grants.version_offered != state.version:
        # what one pilot is granted may make room for another
        ready = grants.recheck_waiting or grants.some_waiting_unasked or grants.listing_offered != state.ready_version
        grants.recheck_waiting = grants.some_waiting_unasked = False
        grants.version_offered, grants.listing_offered = state.version, state.ready_version
        if ready:
            grant_to_waiting(turn)
        else:
            offer_replicas(turn)


def _provision(turn: Turn) -> None:
    """Grant to pilots that wait for data first, then provision, since the demand has changed."""
    if turn.grants.recheck_waiting:
        _feed(turn)
    if turn.state.provisioned_sites or turn.provision.to_answer:
        reconcile.provision_if_due(turn)
        site_orders.answer_provisioners(turn)


_TIMERS: dict[str, Callable[[Turn, Any], None]] = {
    "lease": leases.lease_due, "park": reply.request_due, "forget": pilot_end.forget_due,
    "tend": site_orders.orders_due, "wall": site_session.wall_due, "provision": reconcile.provision_due,
    "batch": batches.patience_over,
    "withheld": nearest_data.withheld_due, "watch": site_watch.watch_due,
    "host": hosts.host_due, "salvage": salvage.salvage_due,
    "month": owners.month_begins, "late": scan.late_due, "over": fail_over.check_due, "moved": fail_over.moved_due,
    "expiry": by_deadline.expiry_due, "age": fair_share.age_due,
    "absence": attendance.absence_due,
}

_HANDLERS: dict[type, Callable[[Turn, Any], None]] = {
    e.Submit: submit.submit,
    e.Append: append.append,
    e.AppendPart: append.append_part,
    e.Attend: attendance.attend,
    e.Close: bags.close,
    e.Pause: bags.pause,
    e.Cancel: bags.cancel,
    e.Retry: bags.retry,
    e.Rerun: rerun.rerun,
    e.InputsGathered: bags.inputs_gathered,
    e.Remove: bags.remove,
    e.AddSite: sites.add_site,
    e.DrainSite: sites.drain_site,
    e.ShareSite: sites.share_site,
    e.RemoveSite: sites.remove_site,
    e.DiskLow: bags.note_disk_low,
    e.SetBudget: bags.set_budget,
    e.SetPolicy: bags.set_policy,
    e.SetAllowance: owners.set_allowance,
    e.SetWeight: owners.set_weight,
    e.IssueToken: tokens.issue_token,
    e.RevokeToken: tokens.revoke_token,
    e.Enrol: enrol.enrol,
    e.Exchange: exchange.exchange,
    e.Gone: pilot_end.gone,
    e.Drain: pilot_end.drain,
    e.DropRequest: reply.drop_connection,
    e.SiteReport: site_session.site_report,
    e.KnowLink: lost_copies.know_link,
    e.LosePlace: lost_copies.lose_place,
}
