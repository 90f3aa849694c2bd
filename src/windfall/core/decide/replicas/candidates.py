"""Replicas: one more attempt of a task that runs, for a pilot that has nothing else to do (G6; GridBot's algorithm 2).

Rules
  * Only when nothing of the bag is ready: what nobody runs comes first.  Tasks of targets that wait for others are not.
    `tail-safe` waits until the last of all has started (SWARM's rule); while a bag is open nobody knows which that is.
  * A task is *late* when it has run several times as long as others of its class took, or a while on a host that loses
    or fails much.  Fewest attempts first, then the one that runs longest.
  * Never on a host that runs it already; at another site rather than at the same.  Of several bags the one goes first
    whose tasks would, if they were ready.
  * A preset bounds the attempts of one task at a time, and the replicas of the bag as a share of its tasks.  So is an
    expression bounded, which says in the place of a preset which tasks are to have one (`speculation.py`).  A bag may
    have bounds of its own in their place, and one on what replicas cost (`doubling.py`).
  * After a restart nothing that was handed out before it is late before one lease has passed.
  * External effects are not done twice, and what goes together in batches or pipelines has no replicas.
  * The first good result wins, and the others are cancelled, as always (`endings.py`).

Looking for the late costs one pass over the attempts in play, once a step, and only for bags in their tail; who has
them is then found by an index.  Where tasks are late by time alone, what was found is kept, with those that will be
late next, for a 64th of what such tasks take: averages move slowly.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.decide.grant.fair_share import weight
from windfall.core.decide.replicas.by_expression import CYCLE, MOST_WANTED, PAUSE, continue_cycle
from windfall.core.decide.replicas.caps import cap, core_ms_left, expected_cost, usual_time
from windfall.core.decide.replicas.session import Late, Tail
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import ACTIVE, GRANTED, READY, STARTED, WAITING
from windfall.core.state.accounts import UNLIMITED
from windfall.core.state.estimates import bad_hosts
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn
from windfall.model.checks.bag import TASK_PILOT_POLICIES
from windfall.model.policies.replica_caps import CAPS, COST, PER_TASK, SHARE
from windfall.model.units import format_core_time

MOST_LATE = 256  # tasks that are looked at in one step,
MOST_PER_CLASS = 64  # and of one class: what does not fit a pilot must not hide what does
KEPT = 64  # part of the time that a task takes, for which who is late need not be looked for again
DOUBTED = 64  # of those that are not late, whose hosts are looked at
NEVER = 1 << 61
BEYOND = 1 << 54  # ms; later than whatever may be due
DOUBT_PART = 4  # part of the time after which a task is late, after which it is on a host that is not trusted


class Preset(NamedTuple):
    times_usual: float  # times what such a task takes on average
    per_task: int  # attempts of one task at a time
    share: int  # percent of the bag's tasks that may have a replica
    after_last_start: bool  # not before every task has started


NONE, DEADLINE = "none", "deadline"
PRESETS = {
    NONE: Preset(0, 1, 0, True),
    DEADLINE: Preset(0, 1, 0, True),  # nothing by way of speculation: see `deadlines.py`
    "tail-safe": Preset(1.5, 3, 15, True),
    "tail-fast": Preset(0, 3, 100, False),
}
BY_EXPRESSION = Preset(0, 6, 300, False)


Room = Callable[[Recipient, TaskClass, int], int]  # how many of a class the pilot can begin, with such a load


def setting(bag: BagState) -> str:
    """A preset, or an expression."""
    return bag.policy.get("replicate", bag.replicate)


def effective_policy(bag: BagState) -> dict[str, str]:
    """As they are in force: with the preset that it was submitted with, and none where no task can have a replica."""
    able = may_run_twice(bag) and not (bag.classes and all(cls.in_chain for cls in bag.classes.values()))
    return {**bag.policy, "replicate": setting(bag) if able else NONE}


def preset(bag: BagState) -> Preset:
    """With the bag's own bounds, where it has some."""
    found = PRESETS.get(setting(bag), BY_EXPRESSION)
    return found._replace(per_task=cap(bag, PER_TASK, found.per_task), share=cap(bag, SHARE, found.share))


def may_run_twice(bag: BagState) -> bool:
    """May a task of it run twice at a time at all?"""
    return not bag.external and bag.provision not in TASK_PILOT_POLICIES


def replicates(bag: BagState) -> bool:
    return setting(bag) not in (NONE, DEADLINE) and may_run_twice(bag)


def add_replicas(turn: Turn, draft: GrantDraft, room: Room) -> None:
    """Add replicas to the draft, as many as its pilot can run at once."""
    to, groups = draft.recipient, draft.groups
    pilot, load = to.pilot, draft.load
    for bag in _in_order(turn, pilot):
        tail = scan(turn, bag)
        most = min(draft.want, len(groups) + replicas_left(bag)) if tail.late else 0
        full: set[int] = set()  # classes of which it can have no more
        for each in _for_host(tail.late, pilot) if len(groups) < most else ():
            cls = each.cls
            if cls.number in full or not _stands(bag, each):
                continue  # what has ended since then is not taken out of the list, but for the first
            cost = expected_cost(turn.state, cls, pilot) if tail.left < UNLIMITED else 0
            if cost > tail.left or room(to, cls, load) <= 0:
                full.add(cls.number)
                continue
            groups.append(cls.group([each.task], turn.state.attempts.numbers(1)))
            load += turn.state.cost_on(turn.state.pilot_classes[pilot.cls], cls)
            tail.late.remove(each)
            if setting(bag) in PRESETS and not tail.more:  # else those come first that were too many to be listed
                _again(bag, tail, each, pilot)
            tail.left -= cost
            if len(groups) >= most:
                break


def _again(bag: BagState, tail: Tail, each: Late, pilot: PilotState) -> None:
    """It may have yet another one, elsewhere, after those that have fewer."""
    if each.live + 1 < preset(bag).per_task:
        hosts, sites, tries = (*each.hosts, pilot.row), (*each.sites, pilot.site), each.tries + 1 & 0xFFFF
        insort(tail.late, each._replace(hosts=hosts, sites=sites, live=each.live + 1, tries=tries), key=_turn)


def _turn(each: Late) -> tuple[int, int]:
    """Whose it is first: that of the one with the fewest attempts, then of that which runs longest."""
    return each.live, each.since


def any_late(turn: Turn) -> bool:
    """Is there a replica that somebody may have?  Those who wait are asked one after the other: it is worked out again
    only when something has happened."""
    known, found = turn.replicas.any_late
    if known != len(turn.facts):
        found = any(_offers(turn, bag) for bag in _bags(turn.state))
        turn.replicas.any_late = (len(turn.facts), found)
    return found


def hosts_running_all_late(turn: Turn) -> dict[int, None]:
    """Hosts that run whatever is late: they can have none of it."""
    found: dict[int, None] | None = None
    for bag in _bags(turn.state):
        for each in scan(turn, bag).late:
            found = {row: None for row in each.hosts if found is None or row in found}
            if not found:
                return {}
    return found or {}


def _offers(turn: Turn, bag: BagState) -> bool:
    return bool(scan(turn, bag).late) and replicas_left(bag) > 0


def _in_order(turn: Turn, pilot: PilotState) -> list[BagState]:
    """Bags with something that runs late: as with what nobody runs, the owner goes first who has least for his weight,
    and of his bags the one that ranks highest there."""
    state = turn.state
    found = [bag for bag in _bags(state) if _offers(turn, bag)]
    if len(found) < 2:
        return found
    use, orders = state.sites[pilot.site].cores_in_use, turn.grants.orders
    return sorted(found, key=lambda bag: (use.get(bag.owner, 0) / weight(state, bag.owner),
                                          orders.place(state, turn.now, pilot, scan(turn, bag).late[0].cls)))


def _bags(state: State) -> Iterator[BagState]:
    for number in state.replicating:
        bag = state.bags[number]
        if _is_out(bag):
            yield bag


def _is_out(bag: BagState) -> bool:
    """Does something of it run, and nothing wait that could?"""
    return bag.counts[ACTIVE] > 0 and not bag.paused and not bag.has_backlog()


def replicas_left(bag: BagState) -> int:
    """How many more replicas it may have."""
    share = cap(bag, SHARE, PRESETS.get(setting(bag), BY_EXPRESSION).share)
    return -(-bag.size * share // 100) - bag.replicas_granted


def why_capped(bag: BagState, task: int) -> str:
    """What keeps a running task from having one more attempt, of those bounds that do not pass by themselves."""
    if not replicates(bag):
        return ""
    own = {key: f"{key} = {text}" for key, text in bag.policy.items() if key in CAPS}
    most, of = preset(bag), f"replicate = {setting(bag)}" if setting(bag) in PRESETS else "an expression"
    if most.per_task <= bag.tasks.live[task]:
        return f"{own.get(PER_TASK, of)} allows {most.per_task} of a task at a time"
    if replicas_left(bag) <= 0:
        return f"the bag has had {bag.replicas_granted}, and {own.get(SHARE, of)} allows no more for {bag.size} tasks"
    if cap(bag, COST, UNLIMITED) <= bag.replica_waste:
        return f"needless attempts have used {format_core_time(bag.replica_waste)}, and {own[COST]} allows no more"
    return ""


def _for_host(late: list[Late], pilot: PilotState) -> Iterator[Late]:
    """Those that its host does not run: of what has equally few attempts, that which runs at other sites first."""
    here: list[Late] = []
    for each in [each for each in late if pilot.row not in each.hosts]:
        if here and here[0].live != each.live:
            yield from here
            here = []
        if pilot.site in each.sites:
            here.append(each)
        else:
            yield each
    yield from here


# --- who is late ------------------------------------------------------------------------------------------------------


def scan(turn: Turn, bag: BagState) -> Tail:
    """Once a step, unless there is news in it."""
    tail = turn.replicas.scans.get(bag.number)
    if tail is not None and tail.news == bag.replica_version:
        return tail
    if (tail := _kept(turn, bag)) is None:
        tail = _scan_attempts(turn, bag, preset(bag)) if setting(bag) in PRESETS else _asked_for(turn, bag)
        tail.left, tail.news = core_ms_left(turn, bag), bag.replica_version
        tail.late = tail.late if tail.left > 0 else []
        if tail.until:
            _keep(turn, bag, tail)
    turn.replicas.scans[bag.number] = tail
    # A timer that was set earlier may fire for nothing.
    if tail.next and tail.next < turn.replicas.looks_late.get(bag.number, NEVER):
        turn.replicas.looks_late[bag.number] = tail.next
        turn.timers.add(tail.next, "late", bag.number)
    return tail


def _keep(turn: Turn, bag: BagState, tail: Tail) -> None:
    kept = turn.replicas.kept_scans
    kept[bag.number] = tail
    if len(kept) > len(turn.state.replicating):  # bags have ended since
        for number in [number for number in kept if number not in turn.state.replicating]:
            del kept[number]


def _kept(turn: Turn, bag: BagState) -> Tail | None:
    """What was found in a step before, if it still holds."""
    tail = turn.replicas.kept_scans.get(bag.number)
    if tail is None:
        return None
    late = tail.late
    while late and not _stands(bag, late[0]):  # who asks sees about the others
        del late[0]
    if turn.now >= tail.until and not tail.coming and not tail.more and tail.done == _done(bag):
        tail.until = tail.beyond or NEVER  # nothing that it depends on has changed
    changed = bag.open or bag.counts[READY] or bag.counts[WAITING] or COST in bag.policy
    if changed or tail.news != bag.replica_version or turn.now >= tail.until or (tail.more and not late):
        del turn.replicas.kept_scans[bag.number]
        return None
    if tail.coming and tail.coming[-1][0] <= turn.now:
        _come(turn, bag, tail)
    return tail


def _come(turn: Turn, bag: BagState, tail: Tail) -> None:
    """Those that are late by now."""
    attempts, coming, rows = turn.state.attempts, tail.coming, []
    while coming and coming[-1][0] <= turn.now:
        _, row, number = coming.pop()
        if attempts.number[row] == number and attempts.state[row] == STARTED:
            rows.append(row)
    for each in _each(turn.state, bag, rows):
        known = next((other for other in tail.late if other.task == each.task), None)
        if known is not None and _stands(bag, known):
            continue  # another attempt of it has been late for longer
        if known is not None:
            tail.late.remove(known)
        insort(tail.late, each, key=_turn)
    tail.next = coming[-1][0] if coming else tail.beyond


def _stands(bag: BagState, each: Late) -> bool:
    """Is its task as it was: has it not ended, nor one of its attempts, and has nobody else got it?"""
    tasks = bag.tasks
    return (tasks.state[each.task], tasks.live[each.task], tasks.tries[each.task]) == (ACTIVE, each.live, each.tries)


def forget_scans(turn: Turn, groups: list[f.Group]) -> None:
    """Something that nobody ran was granted.  It has not started: nothing of its bag may have a replica."""
    for group in groups:
        turn.replicas.kept_scans.pop(group.bag, None)
        turn.replicas.scans.pop(group.bag, None)


def late_due(turn: Turn, number: int) -> None:
    """A task has become late: who waits may have something to do."""
    turn.replicas.looks_late.pop(number, None)
    bag = turn.state.bags.get(number)
    if bag is not None and number in turn.state.replicating and _is_out(bag) and scan(turn, bag).late:
        turn.state.note_replica_offer()


def _asked_for(turn: Turn, bag: BagState) -> Tail:
    """Those for which the bag's expression is true."""
    seen = continue_cycle(turn, bag, setting(bag), preset(bag).per_task)
    rows = [row for task in seen.found for row in turn.state.attempts.of_task(bag.number << 32 | task)[:1]]
    again = seen.begins
    if seen.queue:  # with as many found as may wait there is no hurry
        again = turn.now + (PAUSE if len(seen.found) < MOST_WANTED else CYCLE)
    return Tail(sorted(_each(turn.state, bag, rows), key=lambda each: each.live), again)


def _scan_attempts(turn: Turn, bag: BagState, preset: Preset) -> Tail:
    state, attempts, live = turn.state, turn.state.attempts, bag.tasks.np_live
    if preset.after_last_start and (bag.open or bag.counts[READY] or bag.counts[WAITING]):
        return Tail()
    if preset.times_usual and not any(usual_time(state, cls) for cls in bag.classes.values()):
        return Tail()  # nothing can be late: there may be a thousand bags of which one task runs
    states, refs = attempts.np_state[: attempts.rows], attempts.np_task[: attempts.rows]
    rows = np.flatnonzero((refs >> 32 == bag.number) & ((states == STARTED) | (states == GRANTED)))
    tasks = refs[rows] & 0xFFFFFFFF
    is_started = states[rows] == STARTED
    if preset.after_last_start and not np.isin(tasks[~is_started], tasks[is_started]).all():
        return Tail(until=NEVER)  # but for news
    runs = (states[rows] == STARTED) & (live[tasks] < preset.per_task)
    rows, tasks = rows[runs], tasks[runs]
    due = _late_at(turn, bag, rows, preset.times_usual)
    order = live[tasks].astype(np.int64) * BEYOND + np.minimum(due, BEYOND)
    is_late = due <= turn.now
    some = _some_of_each(state, bag, first_in_order(rows[is_late], order[is_late], len(rows)))
    doubted = first_in_order(rows[~is_late], order[~is_late], DOUBTED)
    then = np.where(_unreliable(state, doubted), _late_at(turn, bag, doubted, preset.times_usual / DOUBT_PART), NEVER)
    tail = Tail(sorted(_each(state, bag, some + doubted[then <= turn.now].tolist()), key=_turn))
    if preset.times_usual:
        for cls in bag.classes.values():
            cls.mean_at_last_scan = cls.mean
        shortest = min(usual for cls in bag.classes.values() if (usual := usual_time(state, cls)))
        tail.until = turn.now + 1 + round(shortest / KEPT)
        tail.more = int(is_late.sum()) > len(some)
        tail.done = _done(bag) if len(rows) <= DOUBTED else -1
    ahead = then > turn.now
    rows, due = np.append(rows[~is_late], doubted[ahead]), np.append(due[~is_late], then[ahead])
    _foresee(state, tail, rows, due)
    return tail


def _done(bag: BagState) -> int:
    return sum(cls.successes for cls in bag.classes.values())


def _foresee(state: State, tail: Tail, rows: NDArray[np.int64], due: NDArray[np.int64]) -> None:
    """Which of these will be late while it holds, and when another one will be."""
    soon, numbers = np.flatnonzero(due < tail.until), state.attempts.np_number
    soon = soon[np.argsort(due[soon], kind="stable")]
    after = int(np.min(due, initial=NEVER, where=due >= tail.until))
    if len(soon) > MOST_LATE:
        after = tail.until = int(due[soon[MOST_LATE]])
    elif tail.more:
        after = min(after, tail.until)  # those that were too many to be listed: there may be somebody for them
    first = soon[:MOST_LATE][::-1]
    tail.coming = list(zip(due[first].tolist(), rows[first].tolist(), numbers[rows[first]].tolist(), strict=True))
    tail.beyond = after if after < NEVER else 0
    tail.next = tail.coming[-1][0] if tail.coming else tail.beyond


def first_in_order(rows: NDArray[np.int64], order: NDArray[Any], most: int) -> NDArray[np.int64]:
    """So many of them, in order.  Of thousands the rest is not sorted."""
    if len(rows) > most:
        some = np.flatnonzero(order <= np.partition(order, most - 1)[most - 1])
        rows, order = rows[some], order[some]
    return rows[np.argsort(order, kind="stable")[:most]]


def _some_of_each(state: State, bag: BagState, rows: NDArray[np.int64]) -> list[int]:
    """Of every class the first; half of them are not on the host of the very first, which is to find some, too."""
    classes, pilots = state.attempts.np_cls[rows], state.attempts.np_pilot[rows]
    first: list[int] = []
    others: list[int] = []
    for number in _classes(bag, classes)[: MOST_LATE // 2]:
        alike = np.flatnonzero(classes == number)
        first += alike[: MOST_PER_CLASS // 2].tolist()
        rest = alike[MOST_PER_CLASS // 2 :]
        beside = [*state.on_host.get(state.pilots[int(pilots[alike[0]])].row, ())]
        others += rest[~np.isin(pilots[rest], beside)][: MOST_PER_CLASS // 2].tolist() if len(rest) else []
    found: list[int] = rows[sorted(sorted(first)[: MOST_LATE // 2] + sorted(others)[: MOST_LATE // 2])].tolist()
    return found


def _classes(bag: BagState, classes: NDArray[np.int32]) -> list[int]:
    """Those that are there."""
    if len(bag.classes) == 1 and len(classes):
        return [int(classes[0])]
    found: list[int] = np.unique(classes).tolist()
    return found


def _late_at(turn: Turn, bag: BagState, rows: NDArray[np.int64], late: float) -> NDArray[np.int64]:
    """When each is late; never, where nobody knows how long it takes.  After a restart: what has ended meanwhile will
    be told of before one lease has passed."""
    attempts = turn.state.attempts
    due, classes = attempts.np_started[rows], attempts.np_cls[rows]
    for number in _classes(bag, classes):
        usual = usual_time(turn.state, turn.state.classes[number])
        due[classes == number] += math.ceil(late * usual) if usual or not late else NEVER
    return np.where(attempts.np_granted[rows] < turn.resumed, np.maximum(due, turn.grace_ends()), due)


def _unreliable(state: State, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these attempts are on a host that loses or fails much?"""
    pilots = state.pilots
    hosts = [pilots[number].row for number in state.attempts.np_pilot[rows].tolist()]
    return bad_hosts(state.hosts, np.array(hosts, dtype=np.int64))


def _each(state: State, bag: BagState, rows: list[int]) -> Iterator[Late]:
    """Each task once, whichever of its attempts is late."""
    attempts, tasks, most = state.attempts, bag.tasks, preset(bag).per_task
    if rows:
        attempts.index(bag.number)
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(attempts.task[row], row)
    for ref, row in first.items():
        task, cls = ref & 0xFFFFFFFF, state.classes[attempts.cls[row]]
        now = bag.classes.get((cls.target, tasks.variant[task]))
        if cls.in_chain or tasks.live[task] >= most or now is None:
            continue
        pilots = [state.pilots[attempts.pilot[each]] for each in attempts.of_task(ref)]
        hosts, sites = tuple([p.row for p in pilots]), tuple([p.site for p in pilots])
        yield Late(task, now, hosts, sites, tasks.live[task], tasks.tries[task], attempts.started[row])
