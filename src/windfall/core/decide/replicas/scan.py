"""Scan for stragglers: which running tasks of a bag in its tail may have a replica now, and when the next one will.

Rules
  * A task is *late* when it has run several times as long as others of its class took; on a host that loses or fails
    much, after a quarter of that time.  Where `replicate` is an expression, the expression says which tasks are late
    (`by_expression.py`).
  * `tail-safe` scans only after every task of the bag has started (SWARM's rule); an open bag may get more tasks, so it
    is not scanned.
  * After a restart no attempt from before is late until one lease has passed.

A scan costs one pass over the attempts in play, once a step, and only for bags in their tail.  Where tasks become late
by time alone the scan is kept, with the tasks that become late next, for 1/64 of the class's mean time; the mean
changes slowly.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.replicas.by_expression import CYCLE, MOST_WANTED, PAUSE, continue_cycle
from windfall.core.decide.replicas.caps import core_ms_left, preset_of, usual_time
from windfall.core.decide.replicas.session import LateTask, ReplicaScan
from windfall.core.messages.lifecycle import ACTIVE, READY, STARTED, WAITING
from windfall.core.state.columns import ref_of
from windfall.core.state.host_table import bad_hosts
from windfall.core.state.world import BagState, State
from windfall.core.turn import Turn
from windfall.model.policies.presets import PRESETS, Preset
from windfall.model.policies.replica_caps import COST

MOST_LATE = 256  # tasks that one scan lists,
MOST_PER_CLASS = 64  # and of one class: a class that does not fit a pilot must not hide one that does
KEPT = 64  # part of a task's usual time for which a scan is kept
DOUBTED = 64  # tasks not late yet whose hosts are checked
DOUBT_PART = 4  # part of the time after which a task is late, after which it is late on an unreliable host
NEVER = 1 << 61
BEYOND = 1 << 54  # ms; later than any due time

Rows = NDArray[np.int64]


def only_runs(bag: BagState) -> bool:
    """Does nothing of the bag wait any more while some of its tasks run, and is it not paused?

    Only then are its late tasks offered."""
    return bag.counts[ACTIVE] > 0 and not bag.paused and not bag.has_backlog()


def rank_late(each: LateTask) -> tuple[int, int]:
    """Order stragglers: the one with the fewest attempts first, then the one that has run longest."""
    return each.live, each.since


def is_unchanged(bag: BagState, each: LateTask) -> bool:
    """Does the task still run with the same attempts as when it was found?"""
    tasks = bag.tasks
    return (tasks.state[each.task], tasks.live[each.task], tasks.tries[each.task]) == (ACTIVE, each.live, each.tries)


def scan(turn: Turn, bag: BagState) -> ReplicaScan:
    """Return the bag's scan: of this step, or kept from an earlier one, or a new one."""
    found = turn.replicas.scans.get(bag.number)
    if found is not None and found.replica_version == bag.replica_version:
        return found
    if (found := _kept_scan(turn, bag)) is None:
        is_preset = bag.replicate_setting in PRESETS
        found = scan_attempts(turn, bag, preset_of(bag)) if is_preset else _wanted_by_expression(turn, bag)
        found.core_ms_left, found.replica_version = core_ms_left(turn, bag), bag.replica_version
        found.late = found.late if found.core_ms_left > 0 else []
        if found.holds_until:
            _keep(turn, bag, found)
    turn.replicas.scans[bag.number] = found
    # A timer that was set earlier may fire in vain.
    if found.next_late_at and found.next_late_at < turn.replicas.late_timers.get(bag.number, NEVER):
        turn.replicas.late_timers[bag.number] = found.next_late_at
        turn.timers.add(found.next_late_at, "late", bag.number)
    return found


def late_due(turn: Turn, number: int) -> None:
    """A task has become late: offer it to waiting pilots."""
    turn.replicas.late_timers.pop(number, None)
    bag = turn.state.bags.get(number)
    if bag is not None and number in turn.state.replicating and only_runs(bag) and scan(turn, bag).late:
        turn.state.note_replica_offer()


# --- kept from step to step -------------------------------------------------------------------------------------------


def _keep(turn: Turn, bag: BagState, found: ReplicaScan) -> None:
    kept = turn.replicas.kept_scans
    kept[bag.number] = found
    if len(kept) > len(turn.state.replicating):  # some bags have ended since
        for number in [number for number in kept if number not in turn.state.replicating]:
            del kept[number]


def _kept_scan(turn: Turn, bag: BagState) -> ReplicaScan | None:
    """Return the scan of an earlier step, if it still holds."""
    found = turn.replicas.kept_scans.get(bag.number)
    if found is None:
        return None
    while found.late and not is_unchanged(bag, found.late[0]):  # `add_replicas` checks the others
        del found.late[0]
    if not _still_holds(turn, bag, found):
        del turn.replicas.kept_scans[bag.number]
        return None
    if found.soon_late and found.soon_late[-1][0] <= turn.now:
        _add_newly_late(turn, bag, found)
    return found


def _still_holds(turn: Turn, bag: BagState, found: ReplicaScan) -> bool:
    is_over = turn.now >= found.holds_until and not found.soon_late and not found.has_more
    if is_over and found.successes == _count_successes(bag):
        found.holds_until = found.late_after_those or NEVER  # nothing that the scan depends on has changed
    if _has_waiting_tasks(bag) or COST in bag.policy or (found.has_more and not found.late):
        return False
    return found.replica_version == bag.replica_version and turn.now < found.holds_until


def _has_waiting_tasks(bag: BagState) -> bool:
    return bool(bag.open or bag.counts[READY] or bag.counts[WAITING])


def _add_newly_late(turn: Turn, bag: BagState, found: ReplicaScan) -> None:
    attempts, soon, rows = turn.state.attempts, found.soon_late, []
    while soon and soon[-1][0] <= turn.now:
        _, row, number = soon.pop()
        if attempts.number[row] == number and attempts.state[row] == STARTED:
            rows.append(row)
    for each in _late_tasks(turn.state, bag, rows):
        known = next((other for other in found.late if other.task == each.task), None)
        if known is not None and is_unchanged(bag, known):
            continue  # another attempt of the task has been late for longer
        if known is not None:
            found.late.remove(known)
        insort(found.late, each, key=rank_late)
    found.next_late_at = soon[-1][0] if soon else found.late_after_those


def _count_successes(bag: BagState) -> int:
    return sum(cls.successes for cls in bag.classes.values())


# --- a new scan -------------------------------------------------------------------------------------------------------


def _wanted_by_expression(turn: Turn, bag: BagState) -> ReplicaScan:
    """Return the tasks for which the bag's expression is true."""
    cycle = continue_cycle(turn, bag, bag.replicate_setting, preset_of(bag).per_task)
    rows = [row for task in cycle.wanted for row in turn.state.attempts.of_task(ref_of(bag.number, task))[:1]]
    again = cycle.next_begins
    if cycle.queue:  # a full list is in no hurry
        again = turn.now + (PAUSE if len(cycle.wanted) < MOST_WANTED else CYCLE)
    return ReplicaScan(sorted(_late_tasks(turn.state, bag, rows), key=lambda each: each.live), again)


def scan_attempts(turn: Turn, bag: BagState, preset: Preset) -> ReplicaScan:
    """Scan the bag's attempts in play for late tasks."""
    state, attempts, live = turn.state, turn.state.attempts, bag.tasks.np_live
    if preset.after_last_start and _has_waiting_tasks(bag):
        return ReplicaScan()
    if preset.times_usual and not any(usual_time(state, cls) for cls in bag.classes.values()):
        return ReplicaScan()  # no task can be late: there may be a thousand bags of which one task runs
    rows = attempts.in_play(bag.number)
    tasks = attempts.tasks_of(rows)
    is_started = attempts.np_state[rows] == STARTED
    if preset.after_last_start and not np.isin(tasks[~is_started], tasks[is_started]).all():
        return ReplicaScan(holds_until=NEVER)  # until the bag's version changes
    runs = is_started & (live[tasks] < preset.per_task)
    rows, tasks = rows[runs], tasks[runs]
    due = late_times(turn, bag, rows, preset.times_usual)
    order = live[tasks].astype(np.int64) * BEYOND + np.minimum(due, BEYOND)
    is_late = due <= turn.now
    listed = _some_of_each_class(state, bag, first_in_order(rows[is_late], order[is_late], len(rows)))
    doubted = first_in_order(rows[~is_late], order[~is_late], DOUBTED)
    doubted_due = _late_times_if_unreliable(turn, bag, doubted, preset)
    late = _late_tasks(state, bag, listed + doubted[doubted_due <= turn.now].tolist())
    found = ReplicaScan(sorted(late, key=rank_late))
    if preset.times_usual:
        found.has_more = int(is_late.sum()) > len(listed)
        _note_usual_times(turn, bag, found, len(rows))
    later = doubted_due > turn.now
    _foresee(
        state, found, np.append(rows[~is_late], doubted[later]), np.append(due[~is_late], doubted_due[later]))
    return found


def _note_usual_times(turn: Turn, bag: BagState, found: ReplicaScan, running: int) -> None:
    """Note how long the scan holds: averages move with every success."""
    for cls in bag.classes.values():
        cls.mean_at_last_scan = cls.mean
    shortest = min(usual for cls in bag.classes.values() if (usual := usual_time(turn.state, cls)))
    found.holds_until = turn.now + 1 + round(shortest / KEPT)
    found.successes = _count_successes(bag) if running <= DOUBTED else -1


def _foresee(state: State, found: ReplicaScan, rows: Rows, due: Rows) -> None:
    """Note which of these attempts become late while the scan holds, and when the first one after that does."""
    soon, numbers = np.flatnonzero(due < found.holds_until), state.attempts.np_number
    soon = soon[np.argsort(due[soon], kind="stable")]
    after = int(np.min(due, initial=NEVER, where=due >= found.holds_until))
    if len(soon) > MOST_LATE:
        after = found.holds_until = int(due[soon[MOST_LATE]])
    elif found.has_more:
        after = min(after, found.holds_until)  # a pilot may suit the tasks that the scan left out
    first = soon[:MOST_LATE][::-1]
    found.soon_late = list(zip(due[first].tolist(), rows[first].tolist(), numbers[rows[first]].tolist(), strict=True))
    found.late_after_those = after if after < NEVER else 0
    found.next_late_at = found.soon_late[-1][0] if found.soon_late else found.late_after_those


def first_in_order(rows: Rows, order: NDArray[Any], most: int) -> Rows:
    """Return the first `most` of the rows, in order, without sorting the rest."""
    if len(rows) > most:
        some = np.flatnonzero(order <= np.partition(order, most - 1)[most - 1])
        rows, order = rows[some], order[some]
    return rows[np.argsort(order, kind="stable")[:most]]


def _some_of_each_class(state: State, bag: BagState, rows: Rows) -> list[int]:
    """Return the first rows of every class.  Half of them run on other hosts than the very first, so that this host,
    too, finds some that it does not run itself."""
    classes, pilots = state.attempts.np_cls[rows], state.attempts.np_pilot[rows]
    first: list[int] = []
    others: list[int] = []
    for number in _class_numbers(bag, classes)[: MOST_LATE // 2]:
        alike = np.flatnonzero(classes == number)
        first += alike[: MOST_PER_CLASS // 2].tolist()
        rest = alike[MOST_PER_CLASS // 2 :]
        beside = [*state.on_host.get(state.pilots[int(pilots[alike[0]])].row, ())]
        others += rest[~np.isin(pilots[rest], beside)][: MOST_PER_CLASS // 2].tolist() if len(rest) else []
    found: list[int] = rows[sorted(sorted(first)[: MOST_LATE // 2] + sorted(others)[: MOST_LATE // 2])].tolist()
    return found


def _class_numbers(bag: BagState, classes: NDArray[np.int32]) -> list[int]:
    if len(bag.classes) == 1 and len(classes):
        return [int(classes[0])]
    found: list[int] = np.unique(classes).tolist()
    return found


def late_times(turn: Turn, bag: BagState, rows: Rows, times_usual: float) -> Rows:
    """Return when each attempt becomes late; NEVER where its usual time is unknown.

    After a restart, pilots report what ended meanwhile before one lease has passed."""
    attempts = turn.state.attempts
    due, classes = attempts.np_started[rows], attempts.np_cls[rows]
    for number in _class_numbers(bag, classes):
        usual = usual_time(turn.state, turn.state.classes[number])
        due[classes == number] += math.ceil(times_usual * usual) if usual or not times_usual else NEVER
    return np.where(attempts.np_granted[rows] < turn.resumed, np.maximum(due, turn.grace_ends()), due)


def _late_times_if_unreliable(turn: Turn, bag: BagState, rows: Rows, preset: Preset) -> Rows:
    """Return when each attempt becomes late because its host loses or fails much; NEVER on other hosts."""
    state = turn.state
    hosts = [state.pilots[number].row for number in state.attempts.np_pilot[rows].tolist()]
    is_bad = bad_hosts(state.hosts, np.array(hosts, dtype=np.int64))
    return np.where(is_bad, late_times(turn, bag, rows, preset.times_usual / DOUBT_PART), NEVER)


def _late_tasks(state: State, bag: BagState, rows: list[int]) -> Iterator[LateTask]:
    """Yield each task of these attempts once."""
    attempts, tasks, most = state.attempts, bag.tasks, preset_of(bag).per_task
    if rows:
        attempts.index(bag.number)
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(attempts.task[row], row)
    for ref, row in first.items():
        task, cls = attempts.task_of(row), state.classes[attempts.cls[row]]
        now = bag.classes.get((cls.target, tasks.variant[task]))
        if cls.in_chain or tasks.live[task] >= most or now is None:
            continue
        pilots = [state.pilots[attempts.pilot[each]] for each in attempts.of_task(ref)]
        yield LateTask(
            task, now, hosts=tuple([p.row for p in pilots]), sites=tuple([p.site for p in pilots]),
            live=tasks.live[task], tries=tasks.tries[task], since=attempts.started[row],
        )
