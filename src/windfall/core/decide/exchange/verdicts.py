"""Ends of attempts: what a report, or the loss of a pilot, makes of the task.

Rules
  * The first valid success of the task's present generation is its result, however late it comes (P1).
  * Only *failed* costs the task: bad exits and bad output count against `retries`, duration failures against a
    counter of their own (three, the limit tripled each time, S4), out-of-memory against `memory_retries`, each with
    twice the memory.  An exit code that the target calls hopeless costs all retries there are.
  * A task that keeps failing goes to its bag's fail-over site, if one is named (G11): from its second failure, or
    pilot's death, on, or with its last retry; and stays bound to it in this generation.
  * *Returned*, *cancelled* and *lost* cost nothing; but a task present at three deaths of pilots is quarantined.
  * What an attempt saved before it was ended early is there for the next one (Y15); a success, a bad exit or a task
    that names no checkpoint files leaves nothing behind.
  * Times are a pilot's word: what cannot be is brought between the grant and now, with a lease to spare.
  * An attempt that nobody granted to this pilot, or that ended before, is ignored: its report was heard already.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from windfall.core.apply.attempts import BLAMELESS
from windfall.core.decide.grant import fail_over
from windfall.core.messages import facts as f
from windfall.core.messages.events import Report
from windfall.core.messages.lifecycle import (
    ACTIVE,
    DROPPED,
    FAILED,
    FIRST_FINAL,
    GRANTED,
    O_FAILED,
    O_LOST,
    O_RETURNED,
    O_SUCCEEDED,
    OUTCOME_CODE,
    QUARANTINED,
    READY,
    STARTED,
    SUCCEEDED,
    WAITING,
)
from windfall.core.state import accounts
from windfall.core.state.classes import spans
from windfall.core.state.columns import FEW, ROW_MASK
from windfall.core.state.graph import Graph
from windfall.core.state.load import OUTSTANDING
from windfall.core.state.world import BagState, PilotState
from windfall.core.turn import Turn

MAX_OVERRUNS = 3
REPEATED = 2  # failures and deaths of pilots after which a task goes to its bag's fail-over site


def take_reports(turn: Turn, pilot: PilotState, reports: list[Report]) -> None:
    """Judge what a pilot reports: plain successes together, in columns; else each report on its own."""
    if not _finish_plain(turn, pilot, reports):
        settle(turn, pilot.number, _reported_ends(turn, pilot, reports))


def not_fetched(turn: Turn, pilot: PilotState, reports: list[Report]) -> list[tuple[int, f.Transfer]]:
    """Of reports that say that input could not be had: (bag, transfer)."""
    attempts, found = turn.state.attempts, []
    for report in reports:
        row = attempts.row(report.a) if report.why == "input" and report.o != "succeeded" else -1
        if row >= 0 and attempts.pilot[row] == pilot.number:
            found += [(attempts.task[row] >> 32, move) for move in turn.state.transfers_of.get(report.a, ())]
    return found


def _reported_ends(turn: Turn, pilot: PilotState, reports: list[Report]) -> Iterator[f.End]:
    attempts, number = turn.state.attempts, pilot.number
    said: dict[int, None] = {}
    for report in reports:
        attempt = report.a
        row = attempts.row(attempt)
        if row >= 0 and attempts.pilot[row] == number and attempt not in said:
            said[attempt] = None
            yield _reported(turn, row, report)


def settle(turn: Turn, pilot: int, ends: Iterable[f.End]) -> None:
    """Journal ends of attempts, in one fact where it can be.

    `ends` is lazy: where other attempts of the same task are in play, each end is judged after the one before it
    has taken effect.
    """
    if turn.state.quarantined and turn.state.pilots[pilot].row in turn.state.quarantined:
        turn.state.version += 1  # its host may have one task again
    gathered: list[f.End] = []
    touched: dict[tuple[int, int], list[int]] = {}  # (bag, target) where tasks ended → those without success
    moved: dict[int, None] = {}  # bags with tasks that go to their fail-over sites
    for end in ends:
        bag = turn.state.bags[end.bag]
        tasks = bag.tasks
        if end.to_fail_over_site and end.verdict < FIRST_FINAL:
            moved[end.bag] = None
        if (bag.graph is not None or len(bag.targets) > 1) and end.verdict >= FIRST_FINAL > tasks.state[end.task]:
            failed = touched.setdefault((end.bag, bag.target_of(end.task)), [])
            if end.verdict != SUCCEEDED:
                failed.append(end.task)
        if tasks.live[end.task] > 1 or tasks.flags[end.task] & OUTSTANDING:
            turn.emit(f.Ended(turn.now, pilot, [end]))
        else:
            gathered.append(end)
    if gathered:
        turn.emit(f.Ended(turn.now, pilot, gathered))
    for (number, target), failed in touched.items():
        _maybe_strand(turn, turn.state.bags[number], target, failed)
    for number in moved:
        fail_over.moved(turn, turn.state.bags[number])


def _maybe_strand(turn: Turn, bag: BagState, target: int, failed: list[int]) -> None:
    """Tasks of a target have ended: did the last one, or one that others wait for?"""
    of = bag.targets[target]
    if (failed and bag.graph is not None) or (of.dependents and of.not_succeeded and not of.not_ended):
        cancel_stranded(turn, bag, failed)


def _finish_plain(turn: Turn, pilot: PilotState, reports: list[Report]) -> bool:
    """Journal the reports as one `Finished`, if all are successes of one class that nothing is special about."""
    check = _plain_tasks_of_many if len(reports) > FEW else _plain_tasks
    tasks = check(turn, pilot, reports)
    if not tasks:
        return False
    attempts, now = turn.state.attempts, turn.now
    rows = [r.a & ROW_MASK for r in reports]
    cls = turn.state.classes[attempts.cls[rows[0]]]
    bag = turn.state.bags[cls.bag]
    if bag.targets[cls.target].shape.outputs and not all(r.files for r in reports):
        return False
    latest = now + turn.config.lease
    column = attempts.granted
    granted = [column[row] for row in rows]
    details: dict[int, f.Detail] = {}
    left: dict[int, tuple[int, int]] = {}
    walls, starts = [], []
    for i, r in enumerate(reports):
        at, wall, start = granted[i], r.wall, r.t0
        walls.append(wall if wall + at <= latest else latest - at)
        starts.append(_start(start, at, now) if start else 0)
        if (detail := detail_of(r)) is not None:
            details[i] = detail
        if r.left is not None and (kept := _left(r)) is not None:
            left[i] = kept
    numbers, cpus, rss = [r.a for r in reports], [r.cpu for r in reports], [r.rss for r in reports]
    turn.emit(
        f.Finished(now, pilot.number, bag.number, numbers, tasks, granted, walls, cpus, rss, details, starts, left)
    )
    _maybe_strand(turn, bag, cls.target, [])
    return True


def _plain_tasks(turn: Turn, pilot: PilotState, reports: list[Report]) -> list[int]:
    """Tasks of the reports if all are plain: the first success of a task, of one class, by its only attempt; or []."""
    state, number = turn.state, pilot.number
    attempts = state.attempts
    first = reports[0].a & ROW_MASK
    cls = attempts.cls[first] if first < attempts.rows else 0
    if cls not in state.classes:
        return []
    t = state.bags[state.classes[cls].bag].tasks
    rows, states, live, flags, tasks = attempts.rows, t.state, t.live, t.flags, []
    for r in reports:
        attempt = r.a
        row = attempt & ROW_MASK
        if row >= rows or attempts.number[row] != attempt or attempts.cls[row] != cls or r.o != "succeeded":
            return []
        if attempts.pilot[row] != number or not GRANTED <= attempts.state[row] <= STARTED:
            return []
        task = attempts.task[row] & 0xFFFFFFFF
        if states[task] != ACTIVE or live[task] != 1 or flags[task]:
            return []
        if t.generation[task] != attempts.generation[row]:
            return []
        tasks.append(task)
    return tasks if len(tasks) == 1 or len(dict.fromkeys(tasks)) == len(tasks) else []


def _plain_tasks_of_many(turn: Turn, pilot: PilotState, reports: list[Report]) -> list[int]:
    """`_plain_tasks` by arrays, which is faster from `FEW` reports on."""
    for r in reports:
        if r.o != "succeeded":
            return []
    attempts = turn.state.attempts
    numbers = np.array([r.a for r in reports], dtype=np.int64)
    rows = numbers & ROW_MASK
    if int(rows.max()) >= attempts.rows:
        return []
    cls = attempts.np_cls[rows]
    known = turn.state.classes.get(int(cls[0]))
    if known is None:
        return []
    states, t = attempts.np_state[rows], turn.state.bags[known.bag].tasks
    tasks: NDArray[np.int64] = attempts.np_task[rows] & 0xFFFFFFFF
    plain = (
        (cls == cls[0]).all()
        and (attempts.np_number[rows] == numbers).all()
        and (attempts.np_pilot[rows] == pilot.number).all()
        and ((states == GRANTED) | (states == STARTED)).all()
        and (t.np_state[tasks] == ACTIVE).all()
        and (t.np_live[tasks] == 1).all()
        and not t.np_flags[tasks].any()
        and (t.np_generation[tasks] == attempts.np_generation[rows]).all()
        and len(np.unique(rows)) == len(rows)
    )
    return tasks.tolist() if plain else []


def detail_of(r: Report, saves: bool = False) -> f.Detail | None:
    """`saves`: checkpoint files it names are to be kept for the next attempt."""
    saved = r.saved if saves else []
    if not (r.out or r.err or r.out64 or r.err64 or r.files or r.value or r.note or r.exit or r.signal or r.out_size
            or r.err_size or r.values or saved or r.scratch):
        return None
    return f.Detail(
        r.exit, r.signal, _bytes(r.out, r.out64), _bytes(r.err, r.err64), r.out_size, r.err_size, r.files, r.value,
        r.note, r.values, saved, r.scratch,
    )


def _saves(turn: Turn, row: int, outcome: int, why: str) -> bool:
    """Ended early, by us or by its limit: what it saved is good.  After a bad exit nobody knows."""
    early = outcome == O_RETURNED or (outcome == O_FAILED and why == "time")
    attempts = turn.state.attempts
    bag = turn.state.bags[attempts.task[row] >> 32]
    task = attempts.task[row] & 0xFFFFFFFF
    shape = bag.targets[bag.target_of(task)].shape
    return early and shape.checkpoint and bag.tasks.generation[task] == attempts.generation[row]


def _bytes(text: str, encoded: str) -> bytes:
    if not encoded:
        return text.encode("utf-8", "surrogatepass")
    try:
        return b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        return b""


def _reported(turn: Turn, row: int, r: Report) -> f.End:
    outcome = OUTCOME_CODE.get(r.o, O_FAILED)
    if outcome == O_LOST:  # a pilot cannot lose what it reports
        outcome = O_RETURNED
    if outcome == O_SUCCEEDED and not r.files and _brings_files(turn, row):
        outcome, r.why = O_FAILED, "output"
        r.note = "; ".join(filter(None, [r.note, "its outputs never arrived"]))
    # "gone": the part of the pilot that ran it died.  Whoever was there is a suspect, or a task that kills its parent
    # would be tried for ever.
    died = outcome == O_RETURNED and r.why == "gone"
    detail = detail_of(r, saves=bool(r.saved) and _saves(turn, row, outcome, r.why))
    granted = turn.state.attempts.granted[row]
    wall = min(r.wall, turn.now - granted + turn.config.lease)
    end = _end(turn, row, outcome, r.why, died=died, wall=wall, cpu=r.cpu, rss=r.rss, detail=detail)
    end.start = _start(r.t0, granted, turn.now)
    end.left_in_place = _left(r)
    if outcome == O_FAILED and r.why not in BLAMELESS:
        attempts = turn.state.attempts
        turn.hosts.failures_in_report.append((turn.state.classes[attempts.cls[row]], attempts.grant[row], wall))
    end.charged = accounts.charge(turn.state, row, wall)
    return end


def _brings_files(turn: Turn, row: int) -> bool:
    """Are there outputs that a success must have brought?"""
    cls = turn.state.classes[turn.state.attempts.cls[row]]
    bag = turn.state.bags.get(cls.bag)
    return bag is not None and bag.targets[cls.target].shape.outputs


def _left(r: Report) -> tuple[int, int] | None:
    """Bytes and files left in place, if that can be true."""
    if r.left is None or not (0 <= r.left[0] < 1 << 60 and 0 <= r.left[1] < 1 << 31):
        return None
    return r.left


def _start(said: int, granted: int, now: int) -> int:
    """By the pilot's clock, which may be wrong: between the grant and now."""
    return min(max(said, granted), now) if said else 0


def lose(turn: Turn, row: int, why: str, present: bool, stays: bool, outcome: int = O_LOST) -> f.End:
    """The server gives an attempt up; `present`: it may have been running when its pilot died."""
    end = _end(turn, row, outcome, why, died=present, stays=stays)
    end.charged = 0 if stays else accounts.elapsed(turn.state, row, turn.now)
    return end


def _end(
    turn: Turn, row: int, outcome: int, why: str, *, died: bool = False, stays: bool = False,
    wall: int = 0, cpu: int = 0, rss: int = 0, detail: f.Detail | None = None,
) -> f.End:
    attempts = turn.state.attempts
    ref = attempts.task[row]
    bag = turn.state.bags[ref >> 32]
    task = ref & 0xFFFFFFFF
    t = bag.tasks
    time_retries, memory_retries, fails_over = f.unpack_variant(t.variant[task])
    end = f.End(
        attempts.number[row], bag.number, task, attempts.generation[row], outcome, why, t.state[task], stays,
        t.failures[task], time_retries, memory_retries, t.deaths[task], attempts.granted[row], wall, cpu, rss, detail,
        to_fail_over_site=fails_over,
    )
    old = end.verdict
    if end.generation == t.generation[task]:
        _verdict(turn, bag, row, end, died)
    end.decides = old != end.verdict >= FIRST_FINAL
    return end


def _verdict(turn: Turn, bag: BagState, row: int, end: f.End, died: bool) -> None:
    """Set what the task becomes.  `end` arrives with the task's present state and counters."""
    state = turn.state.attempts.state[row]
    if end.outcome == O_SUCCEEDED:
        if state != DROPPED and (end.verdict < SUCCEEDED or end.verdict in (FAILED, QUARANTINED)):
            end.verdict = SUCCEEDED
        return
    counts = state in (GRANTED, STARTED)
    if end.verdict >= FIRST_FINAL or not (counts or died):
        return  # decided already, or given up before: nothing more to lose
    if end.outcome == O_FAILED:
        _charge(turn, bag, row, end)
    elif died:
        end.deaths = min(end.deaths + 1, 255)
    retries = bag.targets[bag.target_of(end.task)].shape.retries
    if bag.fail_over and not end.to_fail_over_site:
        end.to_fail_over_site = end.failures + end.deaths >= REPEATED or 0 < retries <= end.failures
    if bag.tasks.live[end.task] > counts:
        end.verdict = ACTIVE  # another attempt goes on
    elif end.failures > retries or end.time_retries > MAX_OVERRUNS:
        end.verdict = FAILED
    elif end.deaths >= turn.config.deaths:
        end.verdict = QUARANTINED
    else:  # what it reads may have been lost meanwhile, and is made again
        blocked = bag.graph is not None and bag.graph.blocked(end.task, end.task + 1).size
        end.verdict = WAITING if blocked else READY


def _charge(turn: Turn, bag: BagState, row: int, end: f.End) -> None:
    """Count a failure where it belongs.  One under limits the task has outgrown meanwhile is not counted twice."""
    shape = bag.targets[bag.target_of(end.task)].shape
    cls = turn.state.classes[turn.state.attempts.cls[row]]
    if end.why == "time":
        end.time_retries += cls.time_retries == end.time_retries
    elif end.why == "memory" and shape.memory and end.memory_retries < min(shape.memory_retries, 15):
        end.memory_retries += cls.memory_retries == end.memory_retries
    elif (
        shape.exits_not_retried
        and end.why == "exit"
        and end.detail is not None
        and end.detail.exit in shape.exits_not_retried
    ):
        end.failures = 0xFFFF
    else:
        end.failures = min(end.failures + 1, 0xFFFF)


def cancel_stranded(turn: Turn, bag: BagState, failed: list[int] | None = None) -> None:
    """Cancel what waits for something that will not succeed any more, so that nothing waits for ever (P4).

    `failed`: only these tasks are new among those without success.
    """
    while len(doomed := _stranded(bag, failed)):
        turn.emit(f.TasksCancelled(turn.now, bag.number, runs_of(doomed), "upstream"))
        failed = doomed.tolist() if len(bag.targets) > 1 else []


def _stranded(bag: BagState, failed: list[int] | None) -> NDArray[np.int64]:
    states = bag.tasks.np_state[: bag.size]
    found = [np.zeros(0, dtype=np.int64)]
    targets = _stranded_targets(bag) if len(bag.targets) > 1 and not bag.open else {}
    if targets:
        found += [np.arange(first, stop) for first, target, stop in spans(bag) if target in targets]
    if bag.graph is not None:
        front = np.flatnonzero(states > SUCCEEDED).tolist() if failed is None else list(failed)
        found.append(_stranded_tasks(bag.graph, bag.tasks.state, front))
    tasks: NDArray[np.int64] = np.unique(np.concatenate(found))
    return tasks[states[tasks] < FIRST_FINAL]


def _stranded_targets(bag: BagState) -> dict[int, None]:
    """Targets behind one that has ended without all its successes, however far behind."""
    doomed: dict[int, None] = {}
    front = [t for t in bag.targets if t.not_succeeded and not t.not_ended]
    while front:
        for index in front.pop().dependents:
            if index not in doomed:
                doomed[index] = None
                front.append(bag.targets[index])
    return doomed


def _stranded_tasks(graph: Graph, states: memoryview, front: list[int]) -> NDArray[np.int64]:
    """All that comes after these tasks, however far.  What has ended already was walked from when it did."""
    doomed: dict[int, None] = {}
    while front:
        for after in graph.after(front.pop()):
            if after not in doomed and states[after] < FIRST_FINAL:
                doomed[after] = None
                front.append(after)
    return np.array(sorted(doomed), dtype=np.int64)


def runs_where(mask: NDArray[np.bool_]) -> f.Runs:
    """Places that hold, as (first, count)."""
    if mask.all():
        return [(0, len(mask))] if len(mask) else []
    edges = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    bounds = [0] * bool(mask[0]) + edges.tolist() + [len(mask)] * bool(mask[-1])
    return [(first, stop - first) for first, stop in zip(bounds[::2], bounds[1::2], strict=True)]


def runs_of(tasks: NDArray[np.int64]) -> f.Runs:
    """Sorted task numbers as (first, count)."""
    if not len(tasks):
        return []
    breaks = np.flatnonzero(np.diff(tasks) != 1) + 1
    return [(int(part[0]), len(part)) for part in np.split(tasks, breaks)]
