"""The promises as checks: one function each, run after every step by every test harness.

`Witness` watches the facts go by, because some promises are about history (P1).  The others look at the state alone.
A check returns sentences; none means it holds.  P8 gets its own with the market.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.grant.amount import room, room_for
from windfall.core.decide.grant.draft import recipient_of
from windfall.core.decide.grant.host_orders import Entry, HostOrders
from windfall.core.decide.grant.nearest_data import withholds
from windfall.core.decide.grant.order import is_lasting
from windfall.core.decide.hosts.quarantine import refuses_guest, tasks_allowed
from windfall.core.decide.provision.demand import View, Wanted, pilots_for, unstarted
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import (
    ACTIVE,
    ATTEMPT_MOVES,
    ATTEMPT_STATES,
    DROPPED,
    ENDED,
    FIRST_FINAL,
    FREE,
    GONE,
    GRANTED,
    INTENDED,
    INTENT_MOVES,
    INTENT_STATES,
    LIVE,
    LOST,
    O_SUCCEEDED,
    PILOT_MOVES,
    PILOT_STATES,
    QUEUED,
    READY,
    STARTED,
    STOPPING,
    SUCCEEDED,
    TASK_MOVES,
    TASK_STATES,
    WAITING,
    allowed,
)
from windfall.core.state import accounts
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.chains import chain_of
from windfall.core.state.classes import target_done
from windfall.core.state.columns import Attempts
from windfall.core.state.copies import missing
from windfall.core.state.graph import Graph, as_pairs, graph_of
from windfall.core.state.world import NO_CHAIN, BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn


class Witness:
    """Remembers which results were accepted, and who was granted what."""

    def __init__(self) -> None:
        self.accepted: dict[tuple[int, int, int], int] = {}  # (bag, task, generation) → attempt
        self.generation: Counter[tuple[int, int]] = Counter()
        self.granted: dict[int, tuple[int, int, int, int]] = {}  # attempt → (pilot, bag, task, generation)
        self.takes: dict[int, bool] = {}  # pilot → may be granted something
        self.newest: dict[tuple[str, str], int] = {}
        self.saved: dict[tuple[int, int], list[tuple[str, str, int, int]]] = {}  # task → its newest checkpoint
        self.held: set[tuple[int, int]] = set()  # (bag, target) whose files have not been gathered
        self.batches: dict[tuple[int, int], Batches] = {}
        self.before: dict[tuple[int, int], list[int]] = {}  # task → tasks that it waits for, of bags that are `ordered`
        self.ordered: set[int] = set()
        self.suspects: set[str] = set()
        self.broken: list[str] = []

    def observe(self, facts: Iterable[f.Fact]) -> None:
        for fact in facts:
            if isinstance(fact, f.Granted):
                self._grant(fact)
            elif isinstance(fact, f.BagSubmitted):
                self.held.update((fact.bag, place) for place, shape in enumerate(fact.targets) if shape.gathers)
                self._shapes(fact)
            elif isinstance(fact, f.TasksAppended):
                self.batches[fact.bag, fact.target].grow(fact.first, fact.count)
            elif isinstance(fact, f.PartAppended):
                self._append(fact)
            elif isinstance(fact, f.BagClosed):
                for (number, _), batches in self.batches.items():
                    batches.open = batches.open and number != fact.bag
            elif isinstance(fact, f.BatchReleased):
                self.batches[fact.bag, fact.target].released = fact.count
            elif isinstance(fact, f.SiteJudged):
                (self.suspects.add if fact.suspect else self.suspects.discard)(fact.site)
            elif isinstance(fact, f.IntentsMade) and fact.site in self.suspects:
                self.broken.append(f"rule 7: {fact.site} does not answer, and more is to be sent there")
            elif isinstance(fact, f.InputsGathered):
                self.held.discard((fact.bag, fact.target))
            elif isinstance(fact, f.Adopted):
                for attempt in fact.attempts:
                    self.granted[attempt] = (fact.pilot, *self.granted[attempt][1:])
            elif isinstance(fact, f.PilotEnrolled):
                self.takes[fact.pilot] = True
                self.takes[self.newest.get((fact.site, fact.nonce), 0)] = False
                self.newest[fact.site, fact.nonce] = fact.pilot
            elif isinstance(fact, f.PilotDraining | f.PilotEnded):
                self.takes[fact.pilot] = False
            elif isinstance(fact, f.Finished):
                for attempt, task in zip(fact.attempts, fact.tasks, strict=True):
                    self._accept(fact.pilot, fact.bag, task, self.generation[fact.bag, task], attempt)
                    self.saved.pop((fact.bag, task), None)
            elif isinstance(fact, f.Ended):
                self._ended(fact)
            elif isinstance(fact, f.TasksCancelled):
                for first, count in fact.runs:
                    for task in range(first, first + count):
                        self.saved.pop((fact.bag, task), None)
            elif isinstance(fact, f.TasksRetried):
                for first, count in fact.runs:
                    self.generation.update((fact.bag, task) for task in range(first, first + count))

    def _append(self, fact: f.PartAppended) -> None:
        first = fact.first
        self._edges(fact.bag, fact.edges)
        for target, count in fact.pieces:
            self.batches[fact.bag, target].grow(first, count)
            first += count

    def _edges(self, bag: int, edges: bytes) -> None:
        for before, after in as_pairs(edges).tolist() if bag in self.ordered else ():
            self.before.setdefault((bag, after), []).append(before)

    def _too_soon(self, group: f.Group) -> None:
        for task in group.tasks:
            for before in self.before.get((group.bag, task), ()):
                if (group.bag, before, self.generation[group.bag, before]) not in self.accepted:
                    self.broken.append(f"Y: task {group.bag}/{task} was granted before {before} had succeeded")

    def _shapes(self, fact: f.BagSubmitted) -> None:
        first = 0
        # else what is read may be lost again
        if fact.data is None and all(shape.previous_stage < 0 for shape in fact.targets):
            self.ordered.add(fact.bag)
        self._edges(fact.bag, fact.edges)
        for place, shape in enumerate(fact.targets):
            batches = self.batches[fact.bag, place] = Batches(shape, fact.open)
            batches.grow(first, shape.count)
            first += shape.count

    def _grant(self, fact: f.Granted) -> None:
        if not self.takes.get(fact.pilot):
            self.broken.append(f"rule 8: pilot {fact.pilot} was granted work after its epoch was over")
        given = Counter((group.bag, task) for group in fact.groups for task in group.tasks)
        self.broken += [f"P1: task {bag}/{task} was granted {n} times in one answer"
                        for (bag, task), n in given.items() if n > 1]
        for group in fact.groups:
            if (group.bag, group.target) in self.held:
                self.broken.append(f"P5: target {group.target} of bag {group.bag} was granted before its files")
            self.broken += self.batches[group.bag, group.target].problems(group)
            self.broken += self._early(fact, group)
            self._too_soon(group)
            for attempt, task in zip(group.attempts, group.tasks, strict=True):
                if attempt in self.granted:
                    self.broken.append(f"P1: attempt {attempt} was granted twice")
                self.granted[attempt] = (fact.pilot, group.bag, task, self.generation[group.bag, task])

    def _early(self, fact: f.Granted, group: f.Group) -> list[str]:
        """Stages of a pipeline: the one before is done, or goes along to the same pilot (T8)."""
        stage = self.batches[group.bag, group.target]
        if stage.behind < 0:
            return []
        before = list(self.batches[group.bag, stage.behind].tasks)
        along = {number: task for other in fact.groups if (other.bag, other.target) == (group.bag, stage.behind)
                 for number, task in zip(other.attempts, other.tasks, strict=True)}
        said = []
        for place, task in enumerate(group.tasks):
            needs = before[stage.tasks[task]]
            done = (group.bag, needs, self.generation[group.bag, needs]) in self.accepted
            if not done and not (group.prerequisites and along.get(group.prerequisites[place]) == needs):
                said.append(f"T8: task {group.bag}/{task} was granted, and what it is behind was not")
        return said

    def _ended(self, fact: f.Ended) -> None:
        for end in fact.ends:
            self._note_saved(end)
            if not end.decides or end.verdict != SUCCEEDED:
                continue
            if end.outcome == O_SUCCEEDED:
                self._accept(fact.pilot, end.bag, end.task, end.generation, end.attempt)
            else:
                self.broken.append(f"P1: task {end.bag}/{end.task} succeeded without a success")

    def _note_saved(self, end: f.End) -> None:
        if end.generation != self.generation[end.bag, end.task]:
            return
        if end.verdict >= FIRST_FINAL or end.why == "input":
            self.saved.pop((end.bag, end.task), None)
        elif end.detail is not None and end.detail.saved:
            self.saved[end.bag, end.task] = end.detail.saved

    def _accept(self, pilot: int, bag: int, task: int, generation: int, attempt: int) -> None:
        key = (bag, task, generation)
        if key in self.accepted:
            self.broken.append(f"P1: task {bag}/{task} has two results in generation {generation}")
        if generation != self.generation[bag, task]:
            self.broken.append(f"P1: task {bag}/{task} took a result of generation {generation}, which is over")
        if self.granted.get(attempt) != (pilot, bag, task, generation):
            self.broken.append(f"P1: attempt {attempt} of pilot {pilot} was never granted for task {bag}/{task}")
        self.accepted[key] = attempt


class Batches:
    """What the facts have said of a target's batches (T7)."""

    def __init__(self, shape: f.TargetShape, open_: bool) -> None:
        self.size = shape.batch
        self.behind = shape.previous_stage
        self.open = open_ and shape.patience > 0
        self.released = 0
        self.tasks: dict[int, int] = {}  # task → its place within the target

    def grow(self, first: int, count: int) -> None:
        self.tasks |= {task: place for place, task in enumerate(range(first, first + count), len(self.tasks))}

    def problems(self, group: f.Group) -> list[str]:
        if self.size < 2:
            return []
        places = [self.tasks[task] for task in group.tasks]
        full = len(self.tasks) if not self.open else max(len(self.tasks) // self.size * self.size, self.released)
        said = []
        if places[-1] >= full:
            said.append(f"T7: task {group.bag}/{group.tasks[-1]} was granted before its batch was full")
        if places != sorted(places) or places[0] // self.size != places[-1] // self.size or group.chain < 0:
            said.append(f"T7: tasks {group.tasks} of bag {group.bag} were granted together, and are not one batch")
        return said


def p1_one_result(state: State, witness: Witness) -> list[str]:
    """At most one accepted result per task and generation, and it was granted to who reported it."""
    said = list(witness.broken)
    for bag in state.bags.values():
        for task in np.flatnonzero(bag.tasks.np_state[: bag.size] == SUCCEEDED).tolist():
            if (bag.number, task, bag.tasks.generation[task]) not in witness.accepted:
                said.append(f"P1: task {bag.number}/{task} is done, but nobody saw its result accepted")
    return said


def p2_nothing_lost(state: State, witness: Witness) -> list[str]:
    """Every accepted result of a present generation is still there."""
    said = []
    for bag, task, generation in witness.accepted:
        tasks = state.bags[bag].tasks if bag in state.bags else None
        if tasks is not None and tasks.generation[task] == generation and tasks.state[task] != SUCCEEDED:
            said.append(f"P2: the result of task {bag}/{task} is gone")
    return said


def p3_own_pilots(state: State) -> list[str]:
    """A pilot holds only tasks of owners its site serves."""
    said = []
    for row in np.flatnonzero(state.attempts.np_state[: state.attempts.rows] != FREE).tolist():
        pilot = state.pilots[state.attempts.pilot[row]]
        bag = state.bags[state.attempts.task[row] >> 32]
        if state.attempts.granted[row] <= state.sites[pilot.site].added:
            continue  # it was shared with others then
        if bag.owner not in state.pilot_classes[pilot.cls].owners:
            said.append(f"P3: pilot {pilot.number} of {pilot.owner} holds a task of {bag.owner}")
    return said


def p4_nobody_waits_in_vain(turn: Turn) -> list[str]:
    """No pilot is parked while something is ready that it could run now.  Whoever looks keeps what was published to
    itself: hosts' ads must not become newer by that."""
    match, turn.grants.orders = turn.grants.orders, HostOrders()
    try:
        return _waiting_in_vain(turn)
    finally:
        turn.grants.orders = match


def _waiting_in_vain(turn: Turn) -> list[str]:
    said = []
    for pilot in turn.state.pilots.values():
        if (
            pilot.waiting_request is None
            or pilot.waiting_request.want <= 0
            or pilot.state != LIVE
            or pilot.lease_expired
            or turn.state.disk_low
        ):
            continue
        if pilot.intent and turn.state.intents[pilot.intent].task >= 0:
            continue
        if pilot.row in turn.state.quarantined and not tasks_allowed(turn.state, turn.now, pilot):
            continue
        left = pilot.waiting_request.time_left(turn.now)
        to = recipient_of(turn, pilot, left)
        for _, number in _seen_by(turn, pilot):
            cls = turn.state.classes[number]
            cost = turn.state.cost_on(turn.state.pilot_classes[pilot.cls], cls)
            if not cost or cls.bag in turn.state.bags_with_task_pilots:
                continue
            if not _fits(pilot, cls, left):
                if _fits(pilot, cls, pilot.waiting_request.time_left(pilot.waiting_request.arrived)):
                    break  # it came first when the pilot asked, and time alone has changed that; it asks again
                continue
            if cls.has_per_host:
                if room(to, pilot.load, cls, cost) <= 0:
                    break  # it may come first, and have no room
                continue  # what its host holds changes without it; it asks again
            if must_go_elsewhere(turn.state, pilot.site, cls) or refuses_guest(turn.state, turn.now, pilot, cls):
                continue
            # What changes of itself may have made it match since the pilot asked; it asks again.
            if cls.has_expressions and not is_lasting(turn.state.bags[cls.bag]):
                continue
            if not turn.grants.orders.admits(turn.state, turn.now, pilot, cls):
                continue
            if withholds(to, cls, room_for):
                if turn.grants.withheld_timers.get(cls.bag, 0) <= turn.now:
                    said.append(f"P4: nobody looks at bag {cls.bag} again")
                continue
            # What a task without a limit may take is what its pilot has left, which becomes less: it asks again.
            if accounts.Affordable(turn.state, pilot, pilot.waiting_request.arrived).most(cls) <= 0:
                continue
            if room(to, pilot.load, cls, cost) > 0:
                said.append(f"P4: pilot {pilot.number} waits while class {number} has {cls.ready} ready")
            break
    return said


def _fits(pilot: PilotState, cls: TaskClass, left: int | None) -> bool:
    """Read the limits of this very pilot plainly: its memory, its disk, the time that it has left."""
    if cls.memory > pilot.memory or cls.disk > pilot.disk:
        return False
    return left is None or (cls.least_time_left or 1) <= left


def _seen_by(turn: Turn, pilot: PilotState) -> list[Entry]:
    """The ready list as such a pilot sees it; nothing where what it has no room for may have come first since."""
    state, pc, to = turn.state, turn.state.pilot_classes[pilot.cls], recipient_of(turn, pilot, None)
    overdue = [state.classes[number] for number in state.overdue if number in state.classes]
    passing = [cls for cls in overdue if cls.overdue and state.cost_on(pc, cls)]  # these may be on no list
    if not state.ready_with_expressions and not passing:
        return state.ready
    ruled = [
        cls for _, number in state.ready if (cls := state.classes[number]).has_expressions and state.cost_on(pc, cls)
    ]
    passing += [cls for cls in ruled if not is_lasting(state.bags[cls.bag])]
    full = [cls for cls in passing if room(to, pilot.load, cls, state.cost_on(pc, cls)) <= 0]
    return (
        []
        if full
        else turn.grants.orders.order(turn.state, turn.now, pilot)
        if state.ready_with_expressions
        else state.ready
    )


def p4_what_is_read_is_somewhere(state: State) -> list[str]:
    """Whatever a task that has not ended reads of others' output has a copy, or is being made."""
    return [
        f"P4: somebody reads what task {bag.number}/{task} left, and it is nowhere"
        for bag in state.bags.values() if bag.data is not None for task in missing(bag).tolist()
    ]


def p5_within_shape(state: State) -> list[str]:
    """Nothing is granted that its pilot could not run.  How much it runs at once is the pilot's to keep."""
    said = []
    for row in np.flatnonzero(state.attempts.np_state[: state.attempts.rows] != FREE).tolist():
        cls, pilot = state.classes[state.attempts.cls[row]], state.pilots[state.attempts.pilot[row]]
        needs = (cls.cores, cls.memory, cls.gpus, cls.disk, cls.nodes)
        has = (pilot.cores, pilot.memory, pilot.gpus, pilot.disk, pilot.nodes)
        if any(need > there for need, there in zip(needs, has, strict=True)):
            said.append(f"P5: pilot {pilot.number} has {has} and was granted what needs {needs}")
        cost = state.cost_on(state.pilot_classes[pilot.cls], cls)
        if not cost and state.attempts.granted[row] <= state.sites[pilot.site].added:
            continue  # its site served that owner when it was granted, and does not any more
        if not cost or ((cls.whole or cls.nodes > 1) and cost < pilot.cores * 1000):
            said.append(f"P5: pilot {pilot.number} counts a task of class {cls.number} as less than the whole of it")
    return said


def p5_checkpoints_are_kept(state: State, witness: Witness) -> list[str]:
    """What an attempt saved before it was ended early is there for the next one, and for no task that has ended."""
    kept = {(bag.number, task): files for bag in state.bags.values() for task, files in bag.checkpoints.items()}
    there = {ref: files for ref, files in witness.saved.items() if ref[0] in state.bags}
    return [
        f"P5: task {bag}/{task} saved {there.get((bag, task))}, kept is {kept.get((bag, task))}"
        for bag, task in {**kept, **there} if kept.get((bag, task)) != there.get((bag, task))
    ]


def p6_within_limits(state: State) -> list[str]:
    """Pilots queued and running, and what they may use, stay within the limits that held when the last one was made."""
    said = []
    for site in state.sites.values():
        limits, numbers = site.limits, [number for of in site.intents for number in of]
        if not numbers or state.intents[max(numbers)].made <= site.added:
            continue
        # What had run and was put back into the queue by the batch system is over that limit without our doing.
        queued = site.waiting - sum(state.intents[number].running_since > 0 for number in site.intents[STOPPING])
        for what, has, most in (("pilots", site.open, limits.pilots), ("queued pilots", queued, limits.queued),
                                ("ms of cores", site.core_ms_used + site.core_ms_reserved, limits.budget)):
            if most and has > most:
                said.append(f"P6: site {site.name} has {has} {what}, may have {most}")
    return said


def p6_drained_is_drained(state: State) -> list[str]:
    """Nothing is sent to a site that is drained, or removed, and nobody there gets anything to do."""
    closed = {site.name: None for site in state.sites.values() if site.drained or site.removed}
    said = [f"P6: {name} is drained, and pilots are queued there" for name in closed
            if state.sites[name].intents[INTENDED] or state.sites[name].intents[QUEUED]]
    return said + [f"P6: {pilot.site} is drained, and pilot {pilot.number} goes on" for pilot in state.pilots.values()
                   if pilot.site in closed and pilot.state == LIVE]


def p6_within_means(turn: Turn) -> list[str]:
    """What attempts have used and may use stays within budgets, allowances and disks, unless somebody changed those."""
    state, a = turn.state, turn.state.attempts
    said = [f"P6: bag {bag.number} has used {bag.spent} and reserved {bag.pledged} ms of cores, may use {bag.budget}"
            for bag in state.bags.values() if bag.budget and bag.spent + bag.pledged > bag.budget]
    rows = np.flatnonzero(a.np_state[: a.rows] != FREE).tolist()
    newest: dict[str, int] = {}  # site → when something was granted there last that is in play
    counted: dict[str, int] = {}  # the same by owner, where it counts
    for row in rows:
        site = state.sites[state.pilots[a.pilot[row]].site]
        owner = state.bags[a.task[row] >> 32].owner
        if state.classes[a.cls[row]].disk:
            newest[site.name] = max(newest.get(site.name, 0), a.granted[row])
        if accounts.counts(site, owner):
            counted[owner] = max(counted.get(owner, 0), a.granted[row])
    for name, at in newest.items():
        site = state.sites[name]
        if site.limits.disk and site.disk_reserved > site.limits.disk and at > site.added:
            said.append(f"P6: tasks at {name} may take {site.disk_reserved} bytes of disk, it has {site.limits.disk}")
    for owner, at in counted.items():
        used = state.usage.get((owner, accounts.month(turn.now)), 0) + state.pledged.get(owner, 0)
        if 0 <= accounts.allowance(state, owner) < used and at > state.limits_changed:
            said.append(f"P6: {owner} has used and reserved {used} ms of cores, and may use "
                        f"{accounts.allowance(state, owner)}")
    return said


def p7_queued_follow_demand(turn: Turn) -> list[str]:
    """No pilot stays queued that nothing wants."""
    if turn.provision.changed or not turn.state.provisioned_sites:
        return []  # sites are provisioned soon
    view = View(turn.state, turn.provision.last_run, turn.config.margin)
    said = []
    classes = [cls for policy in ("swarm", "demand") for cls in view.classes(policy)]
    for site in view.sites:
        fits = [(cls, view.fit(site, cls)) for cls in classes]
        most = pilots_for(Wanted(cls, fit, unstarted(cls)) for cls, fit in fits if fit is not None)
        said += [f"P7: site {site.name} has {n} pilots of {shape} queued, wanted are {most.get(shape, 0)}"
                 for shape, n in site.queued_by_shape.items() if n > most.get(shape, 0)]
    for ref, of in turn.state.task_pilots.items():
        bag = turn.state.bags.get(ref >> 32)
        if bag is None or bag.tasks.state[ref & 0xFFFFFFFF] != READY:
            said += [f"P7: intent {n} waits for a task that needs it no more" for n in of
                     if turn.state.intents[n].state in (INTENDED, QUEUED)]
    return said


def p7_gone_is_gone(state: State) -> list[str]:
    """A pilot that has left holds nothing."""
    return [
        f"P7: pilot {p.number} is gone but holds {p.attempts_held} attempts" for p in state.pilots.values()
        if p.state == GONE and p.attempts_held
    ]


def books_balance(state: State) -> list[str]:
    """Every count that is kept equals what it counts."""
    said = []
    for bag in state.bags.values():
        said += _bag_balances(state, bag)
    said += _use_balances(state)
    said += _pilots_balance(state) + _owners_balance(state) + _moves_balance(state) + _intents_balance(state)
    said += _means_balance(state) + _lost_balance(state) + _index_balances(state.attempts)
    unended = [bag.number for bag in state.bags.values() if not bag.ended]
    if sorted(state.unended) != sorted(unended):
        said.append(f"books: bags {unended} have not ended, {[*state.unended]} are listed")
    listed = sorted(
        entry for cls in state.classes.values() if cls.on_ready_list for entry in [(cls.order_key, cls.number)]
    )
    if listed != state.ready:
        said.append("books: the ready list is not the list of listed classes")
    wrong = [cls.number for cls in state.classes.values() if cls.on_ready_list != state.can_offer(cls)]
    if wrong:
        said.append(f"books: classes {wrong} are on the ready list and should not be, or the other way round")
    return said


def _lost_balance(state: State) -> list[str]:
    a = state.attempts
    rows = np.flatnonzero(a.np_state[: a.rows] == LOST).tolist()
    listed = sorted((row, ref) for ref, found in a.lost.items() for row in found)
    wrong = listed != [(row, a.task[row]) for row in rows] or not all(a.lost.values())
    return [f"books: attempts {rows} were lost, {listed} are listed"] if wrong else []


def _index_balances(a: Attempts) -> list[str]:
    """Where there is an index it says what a pass over the rows would find."""
    said = []
    for bag, known in a.indexed.items():
        there = sorted((a.task[row], row) for row in a.of_bag(bag).tolist())
        listed = sorted((ref, row) for ref, rows in known.items() for row in rows)
        if listed != there or not known or not all(known.values()):
            said.append(f"books: bag {bag} has {there} in play, its index says {listed}")
    return said


def _means_balance(state: State) -> list[str]:
    """What is pledged is what attempts in play may take."""
    a = state.attempts
    bags: Counter[int] = Counter()
    owners: Counter[str] = Counter()
    disks: Counter[str] = Counter()
    crowds: dict[int, Counter[int]] = {number: Counter() for number in state.bags}
    dropped: Counter[tuple[int, int]] = Counter()  # of these, what was lost may have been found again
    for row in np.flatnonzero(a.np_state[: a.rows] != FREE).tolist():
        cls, pilot = state.classes[a.cls[row]], state.pilots[a.pilot[row]]
        bag = state.bags[cls.bag]
        worst = accounts.cores_used(cls, pilot) * accounts.worst_case(cls, pilot, a.granted[row])
        bags[bag.number] += worst if bag.budget else 0
        disks[pilot.site] += cls.disk if pilot.state != GONE else 0
        crowds[bag.number][cls.concurrency_group] += cls.at_once > 0 and a.state[row] != LOST
        dropped[bag.number, cls.concurrency_group] += a.state[row] == DROPPED
        stinted = accounts.allowance(state, bag.owner) >= 0
        if stinted and accounts.counts(state.sites[pilot.site], bag.owner):
            owners[bag.owner] += worst
    said = [f"books: bag {bag.number} says {bag.pledged} are pledged, {bags[bag.number]} are"
            for bag in state.bags.values() if bag.pledged != bags[bag.number]]
    said += [f"books: site {site.name} says {site.disk_reserved} bytes are taken, {disks[site.name]} are"
             for site in state.sites.values() if site.disk_reserved != disks[site.name]]
    said += [f"books: bag {bag.number} counts {bag.running_in_group} in play, {dict(crowds[bag.number])} are"
             for bag in state.bags.values() if +Counter(bag.running_in_group) != +crowds[bag.number]]
    said += [f"P6: bag {cls.bag} has {crowds[cls.bag][cls.concurrency_group]} in play where {cls.at_once} may be"
             for cls in state.classes.values()
             if 0 < cls.at_once < crowds[cls.bag][cls.concurrency_group] - dropped[cls.bag, cls.concurrency_group]]
    pledged = Counter(state.pledged)
    return said if +pledged == +owners else [*said, f"books: {dict(owners)} is pledged, counted {state.pledged}"]


def _moves_balance(state: State) -> list[str]:
    """Transfers under way are those of attempts in play, and are counted where they come from."""
    said = [f"books: attempt {number} fetches, and is not in play" for number in state.transfers_of
            if state.attempts.row(number) < 0]
    reading = Counter(move.place for made in state.transfers_of.values() for move in made)
    return (
        said if reading == state.readers_of else [*said, f"books: {dict(reading)} are read, counted {state.readers_of}"]
    )


def _owners_balance(state: State) -> list[str]:
    owned: Counter[str] = Counter()
    for bag in state.bags.values():
        owned[bag.owner] += bag.size
    return (
        [] if +owned == state.tasks_owned else [f"books: owners have {dict(owned)} tasks, counted {state.tasks_owned}"]
    )


def _intents_balance(state: State) -> list[str]:
    said = []
    for site in state.sites.values():
        mine = [i for i in state.intents.values() if i.site == site.name]
        by_state = [sorted(i.number for i in mine if i.state == s) for s in range(len(site.intents))]
        pool = Counter(i.shape for i in mine if i.task < 0 and i.state in (INTENDED, QUEUED))
        kept = ([sorted(of) for of in site.intents], site.queued_by_shape, site.core_ms_reserved)
        if kept != (by_state, dict(pool), sum(i.reserved for i in mine)):
            said.append(f"books: site {site.name} counts {kept} of its intents, has {by_state}")
    named = {n for of in state.task_pilots.values() for n in of}
    if named != {i.number for i in state.intents.values() if i.task >= 0}:
        said.append("books: intents for one task are not those that are counted as such")
    return said


def _bag_balances(state: State, bag: BagState) -> list[str]:
    t, n = bag.tasks, bag.size
    said = []
    tally = np.bincount(t.np_state[:n], minlength=len(TASK_STATES)).tolist()
    if tally != bag.counts:
        said.append(f"books: bag {bag.number} counts {bag.counts}, has {tally}")
    live = _live_rows(state, bag.number)
    for task in range(n):
        if bag.external and live[task] > 1:
            said.append(f"P1: task {bag.number}/{task}, with external effects, has {live[task]} live attempts")
        if t.live[task] != live[task]:
            said.append(f"books: task {bag.number}/{task} says {t.live[task]} live attempts, has {live[task]}")
        if (t.state[task] == ACTIVE) != (live[task] > 0) and t.state[task] in (ACTIVE, READY):
            said.append(f"books: task {bag.number}/{task} is {TASK_STATES[t.state[task]]} with {live[task]} attempts")
    said += _targets_balance(bag)
    for (target, variant), cls in bag.classes.items():
        ready = sum(
            1 for task in range(n)
            if t.state[task] == READY and t.variant[task] == variant and bag.target_of(task) == target
        )
        if ready != cls.ready:
            said.append(f"books: class {cls.number} says {cls.ready} ready, has {ready}")
    return said


def _targets_balance(bag: BagState) -> list[str]:
    states: dict[int, Counter[int]] = {target.index: Counter() for target in bag.targets}
    for task in range(bag.size):
        states[bag.target_of(task)][bag.tasks.state[task]] += 1
    said = []
    for target in bag.targets:
        tally = states[target.index]
        left = target.count - tally[SUCCEEDED]
        unfinished = sum(n for state, n in tally.items() if state < FIRST_FINAL)
        pending = sum(not target_done(bag, bag.targets[i]) for i in target.shape.after)
        kept = (target.count, target.not_succeeded, target.not_ended, target.pending)
        if kept != (tally.total(), left, unfinished, pending):
            said.append(f"books: target {bag.number}/{target.index} says {kept}, has {left}, {unfinished}, {pending}")
    if bag.graph is not None:
        said += _graph_balances(bag, bag.graph)
    return said


def _graph_balances(bag: BagState, graph: Graph) -> list[str]:
    fresh, said = graph_of(bag.pairs, bag.tasks.np_state[: bag.size]), []
    if any(graph.after(task) != fresh.after(task) for task in range(bag.size)):
        said.append(f"books: the graph of bag {bag.number} is not that of its edges")
    states = bag.tasks.np_state[: bag.size]
    if ((states == READY) & (fresh.np_pending > 0)).any() or ((states == WAITING) & (fresh.np_pending == 0)).any():
        said.append(f"books: a task of bag {bag.number} is ready and waits for others, or waits for none")
    before, after = bag.pairs.T
    for task in after[(states[after] == WAITING) & (states[before] > SUCCEEDED)].tolist():
        said.append(f"P4: task {bag.number}/{task} waits for one that has ended without success")
    if not np.array_equal(graph.np_pending, fresh.np_pending):
        said.append(f"books: the graph of bag {bag.number} does not count its open prerequisites")
    return said


def _live_rows(state: State, bag: int) -> Counter[int]:
    a = state.attempts
    live: Counter[int] = Counter()
    for row in np.flatnonzero(a.np_state[: a.rows] != FREE).tolist():
        if a.task[row] >> 32 == bag and a.state[row] in (GRANTED, STARTED):
            live[a.task[row] & 0xFFFFFFFF] += 1
    return live


def _pilots_balance(state: State) -> list[str]:
    a = state.attempts
    held: Counter[int] = Counter()
    load: Counter[int] = Counter()
    chains: dict[tuple[int, int, int], int] = {}  # (pilot, bag, chain) → what its heaviest part weighs
    for row in np.flatnonzero(a.np_state[: a.rows] != FREE).tolist():
        if a.state[row] in (GRANTED, STARTED, DROPPED):
            pilot = state.pilots[a.pilot[row]]
            cost = state.cost_on(state.pilot_classes[pilot.cls], state.classes[a.cls[row]])
            held[pilot.number] += 1
            bag, task = state.bags[a.task[row] >> 32], a.task[row] & 0xFFFFFFFF
            key = (pilot.number, bag.number, chain_of(bag, task))
            if key[2] == NO_CHAIN:
                load[pilot.number] += cost
            else:
                chains[key] = max(chains.get(key, 0), cost)
    for (number, _, _), cost in chains.items():
        load[number] += cost
    return [
        f"books: pilot {p.number} holds {p.attempts_held} ({p.load}), rows say {held[p.number]} ({load[p.number]})"
        for p in state.pilots.values() if (p.attempts_held, p.load) != (held[p.number], load[p.number])
    ]


def _use_balances(state: State) -> list[str]:
    """What owners use of a site that they share is what its pilots carry."""
    carried: Counter[str] = Counter()
    for pilot in state.pilots.values():
        if len(state.pilot_classes[pilot.cls].owners) > 1:
            carried[pilot.site] += pilot.load
    return [f"books: at {name} {sum(site.cores_in_use.values())} is in use, pilots carry {carried[name]}"
            for name, site in state.sites.items() if sum(site.cores_in_use.values()) != carried[name] or min(
                site.cores_in_use.values(), default=0) < 0]


def check_all(turn: Turn, witness: Witness) -> list[str]:
    state = turn.state
    return [
        *p1_one_result(state, witness), *p2_nothing_lost(state, witness), *p3_own_pilots(state),
        *p4_nobody_waits_in_vain(turn), *p4_what_is_read_is_somewhere(state), *p5_within_shape(state),
        *p5_checkpoints_are_kept(state, witness), *p6_within_limits(state), *p6_drained_is_drained(state),
        *p6_within_means(turn),
        *p7_queued_follow_demand(turn), *p7_gone_is_gone(state), *books_balance(state),
    ]


class Moves:
    """Made before a fact is applied; afterwards `broken` names every move that is not in the lifecycle tables."""

    def __init__(self, state: State) -> None:
        self.tasks = {bag.number: bag.tasks.np_state[: bag.size].copy() for bag in state.bags.values()}
        self.attempts = state.attempts.np_state[: state.attempts.rows].copy()
        self.pilots = {pilot.number: pilot.state for pilot in state.pilots.values()}
        self.intents = {intent.number: intent.state for intent in state.intents.values()}

    def broken(self, state: State) -> list[str]:
        said = []
        for number, old in self.tasks.items():
            if number in state.bags:
                new = state.bags[number].tasks.np_state[: len(old)]
                said += _illegal("task", old, new, TASK_STATES, TASK_MOVES)
        new = state.attempts.np_state[: len(self.attempts)]
        said += _illegal("attempt", self.attempts, new, ATTEMPT_STATES, ATTEMPT_MOVES)
        for number, was in self.pilots.items():
            if number in state.pilots and state.pilots[number].state != was:
                made = (was, state.pilots[number].state)
                said += [] if made in allowed(PILOT_MOVES) else [f"lifecycle: pilot {PILOT_STATES[was]} → {made[1]}"]
        for number, was in self.intents.items():
            now = state.intents[number].state if number in state.intents else ENDED
            if now != was and (was, now) not in allowed(INTENT_MOVES):
                said.append(f"lifecycle: intent {INTENT_STATES[was]} → {INTENT_STATES[now]}")
        return said


def _illegal(
    noun: str, old: NDArray[np.uint8], new: NDArray[np.uint8], names: tuple[str, ...],
    moves: tuple[tuple[int, int, str], ...],
) -> list[str]:
    changed = np.flatnonzero(old != new)
    made = sorted(set(zip(old[changed].tolist(), new[changed].tolist(), strict=True)))
    return [f"lifecycle: {noun} {names[a]} → {names[b]}" for a, b in made if (a, b) not in allowed(moves)]
