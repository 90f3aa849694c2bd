"""Mutants: each plants one defect in the core, the driver or the agenda, and names the promise that must break.

The name of a mutant states the defect.  A mutant that breaks no promise shows a hole in the invariants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from windfall.core import step as engine
from windfall.core.apply import attempts, bags as bag_facts
from windfall.core.decide.exchange import (
    exchange,
    leases,
    pilot_end,
    predecessors,
    reconcile as census,
    reply,
    reports,
    verdicts,
)
from windfall.core.decide.grant import batches, eligibility, fail_over, grant as granting, wake
from windfall.core.decide.provision import intents, reconcile, salvage, site_listing, site_session, surplus
from windfall.core.decide.requests import append
from windfall.core.messages import events as e
from windfall.core.messages.lifecycle import LIVE, O_FAILED, O_RETURNED, O_SUCCEEDED, READY, STOPPING, SUCCEEDED
from windfall.core.persist import snapshot
from windfall.core.state import accounts, slots
from windfall.core.state.columns import Table
from windfall.core.state.graph import Edges, Graph
from windfall.core.state.world import BagState, State, TargetState
from windfall.pilot.agenda import agenda
from windfall.pilot.agenda.agenda import Agenda
from windfall.pilot.agenda.chains import Chain, Chains
from windfall.pilot.agenda.seats import Seats

from . import driver
from .plan import (
    Plan,
    belied_plan,
    crowded_plan,
    failing_plan,
    growing_plan,
    hole_plan,
    left_plan,
    random_plan,
    regretted_plan,
    short_plan,
    skewed_plan,
    slow_plan,
)

Patch = pytest.MonkeyPatch
Worlds = Callable[[int], Plan]
MUTANTS: dict[str, tuple[str, Callable[[Patch], None], Worlds]] = {}


def mutant(promise: str, worlds: Worlds = random_plan) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register a mutant; `worlds` makes plans in which the defect matters, if it rarely does in random ones."""

    def add(make: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS[make.__name__] = (promise, make, worlds)
        return make

    return add


def drop_clauses(patch: Patch, *names: str) -> None:
    """Let every decider that asks for eligibility forget these clauses."""
    clauses = eligibility.CLAUSES
    for module in (eligibility, granting, fail_over, batches):
        for attribute, value in vars(module).copy().items():
            if isinstance(value, tuple) and value and all(each in clauses for each in value):
                patch.setattr(module, attribute, tuple(clause for clause in value if clause[0] not in names))
    patch.setattr(eligibility.first_failing, "__defaults__", (eligibility.OF_TASKS,))


# --- the driver --------------------------------------------------------------------------------------------------


@mutant("P2")
def server_releases_effects_before_the_flush(patch: Patch) -> None:
    def turn(self: Any) -> None:
        group, self.inbox = self.inbox, []
        self.ahead = True
        step = self.core.step(self.now, group)
        for effect in step.effects:
            callback = self.waiting.pop(effect.key, None)
            if callback is not None:
                callback(effect)
        self._may_die()
        if step.facts:
            self.commit(step.facts)
        self.ahead = False
        self.check()
        if step.wake_at is not None:
            self.world.after(self.steady.true_wait(max(step.wake_at - self.now, 0)), self._wake_of(self.life))

    patch.setattr(driver.Server, "_turn", turn)


@mutant("P2")
def disk_loses_rows_of_a_flush(patch: Patch) -> None:
    def flush(self: Any) -> list[bytes]:
        fresh, self.cache = self.cache, []
        self.rows += fresh[: len(self.rows) % 7]  # some rows are lost
        return fresh

    patch.setattr(driver.Disk, "flush", flush)


@mutant("P2")
def server_goes_on_after_a_failed_flush(patch: Patch) -> None:
    """When the disk is full, the server drops the rows that it could not write and goes on."""
    original = driver.Disk.flush

    def flush(self: Any) -> list[bytes]:
        full, self.full = self.full, False
        if full:
            self.cache.clear()
        fresh = original(self)
        self.full = full
        return fresh

    patch.setattr(driver.Disk, "flush", flush)


# --- fences ------------------------------------------------------------------------------------------------------


@mutant("P1", regretted_plan)
def success_of_an_older_generation_counts(patch: Patch) -> None:
    """Let a success of an older generation decide the present one."""
    original = reports.end_by_report

    def reported(core: Any, row: int, report: Any) -> Any:
        end = original(core, row, report)
        tasks = core.state.bags[end.bag].tasks
        if end.outcome == O_SUCCEEDED and tasks.state[end.task] < SUCCEEDED and not end.decides:
            end.generation, end.verdict, end.decides = tasks.generation[end.task], SUCCEEDED, True
        return end

    patch.setattr(reports, "end_by_report", reported)


@mutant("rule 8")
def superseded_or_draining_pilot_is_granted_tasks(patch: Patch) -> None:
    """Grant tasks to a superseded or draining pilot as to a live one."""
    original = granting.grant

    def grant(core: Any, pilot: Any, *rest: Any) -> bool:
        state, pilot.state = pilot.state, LIVE
        try:
            return original(core, pilot, *rest)
        finally:
            pilot.state = state

    patch.setattr(exchange, "grant", grant)


@mutant("P1")
def report_of_a_foreign_pilot_counts(patch: Patch) -> None:
    def ends(core: Any, pilot: Any, told: list[Any]) -> Iterator[Any]:
        for report in told:
            row = core.state.attempts.row(report.a)
            if row >= 0:
                yield reports.end_by_report(core, row, report)

    def settle(core: Any, pilot: int, ends: Iterator[Any]) -> None:
        for end in ends:
            core.emit(reports.f.Ended(core.now, pilot, [end]))

    patch.setattr(reports, "_reported_ends", ends)
    patch.setattr(reports, "record_ends", settle)
    patch.setattr(reports, "_record_plain_successes", lambda *_: False)


@mutant("P3")
def pilot_is_granted_tasks_of_any_owner(patch: Patch) -> None:
    original = State._cost_on

    def cost(self: State, pc: Any, cls: Any) -> int:
        owners, pc.owners = pc.owners, (self.bags[cls.bag].owner,)
        try:
            return original(self, pc, cls)
        finally:
            pc.owners = owners

    patch.setattr(State, "_cost_on", cost)


# --- results -----------------------------------------------------------------------------------------------------


@mutant("P1")
def lost_attempt_counts_as_succeeded(patch: Patch) -> None:
    original = verdicts.lose

    def lose(core: Any, row: int, why: str, died: bool, row_kept: bool, outcome: int = 0) -> Any:
        del outcome, row_kept
        return original(core, row, why, died, False, O_SUCCEEDED)

    for module in (leases, census, pilot_end):
        patch.setattr(module, "lose", lose)


@mutant("P1")
def second_success_of_a_generation_counts_too(patch: Patch) -> None:
    """Take a second success of the same generation for the result, too."""
    original = verdicts.judge

    def judge(core: Any, row: int, end: Any, died: bool) -> None:
        original(core, row, end, died)
        end.decides = end.decides or (end.outcome == O_SUCCEEDED and end.verdict == SUCCEEDED)

    for module in (verdicts, reports):
        patch.setattr(module, "judge", judge)


@mutant("books")
def success_is_counted_twice_in_its_target(patch: Patch) -> None:
    original = attempts._succeeded

    def succeeded(state: Any, bag: Any, target: Any, tasks: list[int], finished: int) -> None:
        target.not_succeeded -= len(tasks)
        original(state, bag, target, tasks, finished)

    patch.setattr(attempts, "_succeeded", succeeded)


@mutant("P2")
def new_epoch_adopts_no_attempts(patch: Patch) -> None:
    """Ignore what a pilot reports, under a new epoch, of attempts granted to its older one."""
    patch.setattr(exchange, "_adopt", lambda *_: None)


@mutant("cost")
def returned_attempt_counts_as_failed(patch: Patch) -> None:
    original = verdicts.judge

    def judge(core: Any, row: int, end: Any, died: bool) -> None:
        outcome, end.outcome = end.outcome, O_FAILED if end.outcome == O_RETURNED else end.outcome
        original(core, row, end, died)
        end.outcome = outcome

    for module in (verdicts, reports):
        patch.setattr(module, "judge", judge)


# --- waiting for ever --------------------------------------------------------------------------------------------


@mutant("P4")
def unacknowledged_grant_is_not_sent_again(patch: Patch) -> None:
    patch.setattr(reply, "_unacknowledged", lambda *_: [])


@mutant("P4")
def expired_lease_gives_no_attempt_back(patch: Patch) -> None:
    patch.setattr(leases, "_expired", lambda *_: iter(()))


@mutant("P4")
def waiting_pilots_are_never_woken(patch: Patch) -> None:
    patch.setattr(engine, "grant_to_waiting", lambda _: None)
    patch.setattr(wake, "grant_to_waiting", lambda _: None)


@mutant("P4", hole_plan)
def end_of_a_quarantine_is_ignored(patch: Patch) -> None:
    """Wake no pilot of a quarantined host when its quarantine is over."""
    patch.setitem(engine._TIMERS, "host", lambda *_: None)


@mutant("P4")
def stranded_tasks_are_not_cancelled(patch: Patch) -> None:
    for module in (verdicts, reports):
        patch.setattr(module, "cancel_if_stranded", lambda *_, **__: None)


@mutant("books")
def returned_task_does_not_become_ready(patch: Patch) -> None:
    original = attempts.set_task

    def set_task(state: Any, bag: Any, task: int, new: int) -> None:
        if new != READY:
            original(state, bag, task, new)

    patch.setattr(attempts, "set_task", set_task)


# --- leases ------------------------------------------------------------------------------------------------------


@mutant("rule 8")
def silence_from_before_a_restart_expires_leases(patch: Patch) -> None:
    """Expire every lease as soon as the server is back, so that pilots have no time to reconcile."""
    original = engine.Core.resume

    def resume(self: Any, now: int) -> None:
        original(self, now)
        for pilot in self.state.pilots.values():
            pilot.heard = 0
            self.turn.timers.add(now, "lease", pilot.number)

    patch.setattr(engine.Core, "resume", resume)


@mutant("rule 8")
def pilot_starts_tasks_after_its_lease(patch: Patch) -> None:
    def forever(self: Any, now: int) -> bool:
        self.lease_end = now + 60_000
        return True

    patch.setattr(Agenda, "may_start", forever)


@mutant("rule 8", slow_plan)
def lease_counts_from_the_arrival_of_the_answer(patch: Patch) -> None:
    original = Agenda.answer_received

    def answer_received(self: Any, now: int, answer: Any) -> bool:
        counted = original(self, now, answer)
        if counted:
            self.lease_end = max(self.lease_end, now + self.lease)
        return counted

    patch.setattr(Agenda, "answer_received", answer_received)


@mutant("rule 8", skewed_plan)
def lease_has_no_margin_for_slow_clocks(patch: Patch) -> None:
    """Leave no margin: the server gives up attempts that a pilot with a slow clock may still start."""
    patch.setattr(driver, "CONFIG", dataclasses.replace(driver.CONFIG, margin=0))


@mutant("P4")
def waiting_pilots_are_not_woken_when_the_disk_has_room(patch: Patch) -> None:
    def disk_low(core: Any, event: Any) -> None:
        core.state.disk_low = event.on
        core.done(event)

    patch.setitem(engine._HANDLERS, e.DiskLow, disk_low)


@mutant("P1")
def external_effects_are_given_up_on_silence(patch: Patch) -> None:
    """Give up attempts with external effects on silence alone, so that they start a second time."""
    original = leases._expired

    def expired(core: Any, pilot: Any) -> Any:
        bags = [bag for bag in core.state.bags.values() if bag.external]
        for bag in bags:
            bag.external = False
        ends = list(original(core, pilot))
        for bag in bags:
            bag.external = True
        return iter(ends)

    patch.setattr(leases, "_expired", expired)
    patch.setattr(leases, "_given_up", lambda *_: True)


@mutant("P1", belied_plan)
def batch_systems_belief_proves_that_a_pilot_is_dead(patch: Patch) -> None:
    """Free the attempts with external effects of a pilot whose job is missing, or was put back into the queue."""
    original = pilot_end.end_pilot

    def end(turn: Any, pilot: Any, why: str, *, proven: bool, clean: bool = False) -> None:
        original(turn, pilot, why, proven=True, clean=clean)

    for module in (salvage, site_listing):
        patch.setattr(module, "end_pilot", end)


@mutant("P1", belied_plan)
def later_pilot_on_the_host_proves_its_predecessor_dead_without_a_look(patch: Patch) -> None:
    original = pilot_end.end_predecessors

    def end(turn: Any, pilot: Any, event: Any) -> None:
        event.dead = predecessors.sought(turn, pilot)
        original(turn, pilot, event)

    patch.setattr(exchange, "end_predecessors", end)


@mutant("P5")
def pilot_ignores_how_many_seats_are_free(patch: Patch) -> None:
    patch.setattr(Seats, "fits", lambda self, need: True)


@mutant("P5")
def memory_of_a_pilot_is_ignored(patch: Patch) -> None:
    original = State._cost_on

    def cost(self: State, pc: Any, cls: Any) -> int:
        memory, cls.memory = cls.memory, 0
        try:
            return original(self, pc, cls)
        finally:
            cls.memory = memory

    patch.setattr(State, "_cost_on", cost)
    drop_clauses(patch, "memory")


@mutant("P5")
def target_starts_before_its_files_are_gathered(patch: Patch) -> None:
    patch.setattr(TargetState, "waits", property(lambda self: self.pending > 0))


@mutant("P5")
def checkpoints_are_not_kept(patch: Patch) -> None:
    patch.setattr(attempts, "_keep_checkpoint", lambda *_: None)


@mutant("P5")
def whole_task_leaves_cores_of_its_pilot_free(patch: Patch) -> None:
    original = State._cost_on

    def cost(self: State, pc: Any, cls: Any) -> int:
        whole, cls.whole = cls.whole, False
        try:
            return original(self, pc, cls)
        finally:
            cls.whole = whole

    patch.setattr(State, "_cost_on", cost)


@mutant("P5")
def pilot_ignores_the_time_that_it_has_left(patch: Patch) -> None:
    original = agenda.Spec.__init__

    def spec(self: Any, *rest: Any) -> None:
        original(self, *rest)
        self.time_needed = 0

    patch.setattr(agenda.Spec, "__init__", spec)


# --- sites -------------------------------------------------------------------------------------------------------


@mutant("P6")
def limits_of_a_site_are_ignored(patch: Patch) -> None:
    patch.setattr(reconcile, "_room_to_add", lambda *_: 1 << 30)


@mutant("P6")
def job_ends_with_the_goodbye_of_its_pilot(patch: Patch) -> None:
    """Send the next pilot before the batch system has ended the job of the last."""
    _ends_with_its_pilot(patch, lambda why: why not in ("silent", "requeued"))


def _ends_with_its_pilot(patch: Patch, when: Callable[[str], bool]) -> None:
    original = intents.pilot_left

    def pilot_left(core: Any, pilot: Any, why: str) -> None:
        original(core, pilot, why)
        intent = core.state.intents.get(pilot.intent)
        if when(why) and intent is not None and intent.pilot == pilot.number:
            intents.end_intents(core, core.state.sites[intent.site], [intent], why)

    patch.setattr(pilot_end, "pilot_left", pilot_left)


@mutant("P6", crowded_plan("requeued"))
def requeued_job_is_not_counted(patch: Patch) -> None:
    original = site_listing._adopt

    def adopt(core: Any, site: Any, listed: Any, began: int) -> None:
        original(core, site, listed, began)
        stopping = [core.state.intents[number] for number in site.intents[STOPPING]]
        for intent in [intent for intent in stopping if intent.running_since]:
            site.session.unknown_jobs[intent.nonce, intent.batch_id] = False
            intents.end_intents(core, site, [intent], "requeued")

    patch.setattr(site_listing, "_adopt", adopt)


@mutant("P6", crowded_plan("cut off"))
def job_of_a_silent_pilot_is_not_counted(patch: Patch) -> None:
    """Stop counting the job of a silent pilot, although it may still run."""
    patch.setattr(driver, "CONFIG", dataclasses.replace(driver.CONFIG, silence=12_000))
    _ends_with_its_pilot(patch, lambda why: why == "silent")


@mutant("P6")
def queued_pilots_reserve_no_budget(patch: Patch) -> None:
    """Count what pilots have used, and nothing that queued pilots have reserved."""
    original = reconcile.unreserved
    patch.setattr(reconcile, "unreserved", lambda site: original(site) + site.core_ms_reserved)


@mutant("P6: the account")
def balance_of_the_account_is_ignored(patch: Patch) -> None:
    original = site_session._take_info

    def take_info(core: Any, site: Any, info: Any, seen: int) -> None:
        info.balance = -1
        original(core, site, info, seen)

    patch.setattr(site_session, "_take_info", take_info)


@mutant("P6: the user")
def other_jobs_of_the_user_are_not_counted(patch: Patch) -> None:
    original = site_session._take_info

    def take_info(core: Any, site: Any, info: Any, seen: int) -> None:
        info.others = 0
        original(core, site, info, seen)

    patch.setattr(site_session, "_take_info", take_info)


@mutant("P6: bag")
def bag_budget_ignores_pledges(patch: Patch) -> None:
    patch.setattr(accounts, "left_of_budget", lambda bag: bag.budget - bag.spent if bag.budget else accounts.UNLIMITED)


@mutant("P6")
def allowance_ignores_pledges(patch: Patch) -> None:
    original = accounts.left_of_allowance
    patch.setattr(accounts, "left_of_allowance",
                  lambda state, owner, at: original(state, owner, at) + state.pledged.get(owner, 0))


@mutant("P6: tasks at")
def disk_of_a_site_is_unlimited(patch: Patch) -> None:
    patch.setattr(accounts, "left_of_disk", lambda site: accounts.UNLIMITED)


@mutant("P4")
def freed_pledges_wake_no_pilot(patch: Patch) -> None:
    patch.setattr(accounts, "note_pledge_freed", lambda *_: None)


@mutant("P5")
def number_of_nodes_is_ignored(patch: Patch) -> None:
    patch.setattr(slots, "nodes_suit", lambda *_: True)


@mutant("S5", left_plan)
def results_of_a_vanished_pilot_are_not_salvaged(patch: Patch) -> None:
    patch.setattr(site_listing, "start_salvage", lambda *_: False)


@mutant("P7")
def queued_pilots_are_not_withdrawn_without_demand(patch: Patch) -> None:
    patch.setattr(reconcile, "_shrink", lambda *_: None)


@mutant("P7")
def pilots_that_no_open_bag_may_use_stay(patch: Patch) -> None:
    patch.setattr(surplus, "_drain_all", lambda *_: None)


@mutant("rule 7")
def new_tender_submits_again_without_a_listing(patch: Patch) -> None:
    """Order a new tender to start the pilots ordered from the one before it, without a listing first."""
    original = site_session.renew

    def renew(core: Any, site: Any) -> None:
        original(core, site)
        for intent in core.state.intents.values():
            intent.start_told = 0 if intent.site == site.name else intent.start_told

    patch.setattr(site_session, "renew", renew)


@mutant("P6", crowded_plan("listing short"))
def single_short_listing_ends_jobs(patch: Patch) -> None:
    patch.setattr(site_listing, "_is_gone", lambda *_: True)


@mutant("rule 7", short_plan)
def single_short_listing_proves_that_a_job_was_not_submitted(patch: Patch) -> None:
    patch.setattr(site_listing, "_is_sure", lambda *_: True)


@mutant("rule 6")
def pilot_for_one_task_is_granted_any_task(patch: Patch) -> None:
    patch.setattr(granting, "is_task_pilot", lambda *_: False)
    drop_clauses(patch, "task-pilot")


@mutant("G11", failing_plan)
def failing_tasks_do_not_go_to_their_fail_over_site(patch: Patch) -> None:
    drop_clauses(patch, "fail-over")


@mutant("P2", failing_plan)
def snapshot_loses_the_mark_for_the_fail_over_site(patch: Patch) -> None:
    original = snapshot.load_state

    def load_state(meta: bytes, chunks: dict[str, bytes]) -> Any:
        state = original(meta, chunks)
        for bag in state.bags.values():
            bag.tasks.np_variant[:] &= 127
        return state

    patch.setattr(engine, "load_state", load_state)


@mutant("P4")
def site_that_refused_once_is_never_tried_again(patch: Patch) -> None:
    for module in (intents, salvage, site_listing, site_session):
        patch.setattr(module, "back_off", lambda turn, site: setattr(site.session, "retry_after", 1 << 60))


# --- recovery ----------------------------------------------------------------------------------------------------


@mutant("P2")
def snapshot_loses_the_failures_of_tasks(patch: Patch) -> None:
    original = snapshot.load_state

    def load_state(meta: bytes, chunks: dict[str, bytes]) -> Any:
        state = original(meta, chunks)
        for bag in state.bags.values():
            bag.tasks.np_failures[:] = 0
        return state

    patch.setattr(engine, "load_state", load_state)


# --- batches and pipelines ---------------------------------------------------------------------------------------


@mutant("T7")
def tasks_of_a_batch_run_at_once(patch: Patch) -> None:
    def join(self: Chains, task: Any, key: Any) -> bool:
        task.chain = Chain(key)
        task.chain.current = task.attempt
        return True

    patch.setattr(Chains, "join", join)


@mutant("T7")
def incomplete_batch_is_granted_at_once(patch: Patch) -> None:
    patch.setattr(BagState, "filling", lambda self, target: range(0))


@mutant("T8")
def stage_starts_after_the_one_before_it_failed(patch: Patch) -> None:
    original = Agenda._end_chain
    patch.setattr(Agenda, "_end_chain", lambda self, now, task, good: original(self, now, task, True))


@mutant("T8")
def stage_is_granted_without_its_prerequisites(patch: Patch) -> None:
    original = batches._followers

    def followers(*args: Any) -> Any:
        groups = original(*args)
        for group in groups:
            group.prerequisites = []
        return groups

    patch.setattr(batches, "_followers", followers)


# --- graphs that grow ------------------------------------------------------------------------------------------------


@mutant("Y", growing_plan)
def appended_tasks_ignore_their_edges(patch: Patch) -> None:
    patch.setattr(bag_facts, "_hold_back", lambda bag, first: None)


@mutant("P4", growing_plan)
def tasks_appended_behind_a_failed_one_are_not_cancelled(patch: Patch) -> None:
    patch.setattr(append, "_failed_prerequisites", lambda bag, edges: [])


@mutant("books", growing_plan)
def appended_tasks_wait_for_succeeded_ones(patch: Patch) -> None:
    original = Graph.add
    patch.setattr(Graph, "add", lambda self, pairs, states: original(self, pairs, np.zeros_like(states)))


@mutant("P2", growing_plan)
def snapshot_loses_appended_edges(patch: Patch) -> None:
    original = Edges.grow

    def grow(self: Any, rows: int) -> None:
        had = self.rows
        original(self, rows)
        self.mark = (lambda first, last: None) if had else Table.mark.__get__(self)

    patch.setattr(Edges, "grow", grow)
