"""Ends of attempts: what a report, or the loss of a pilot, makes of the task.

Rules
  * The first valid success of the task's present generation is its result, however late it comes (P1).
  * Only *failed* costs the task: bad exits and bad output count against `retries`, duration failures against a
    counter of their own (three, the limit tripled each time, S4), out-of-memory against `memory_retries`, each with
    twice the memory.
  * *Returned*, *cancelled* and *lost* cost nothing; but a task present at three deaths of pilots is quarantined.
  * An attempt that nobody granted to this pilot, or that ended before, is ignored: its report was heard already.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windfall.core import facts as f
from windfall.core.apply import OUTSTANDING, spans
from windfall.core.columns import FEW, ROW_MASK
from windfall.core.events import Report
from windfall.core.lifecycle import (
    ACTIVE,
    CANCELLED,
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
)
from windfall.core.state import BagState, PilotState

if TYPE_CHECKING:
    from windfall.core.engine import Core

MAX_OVERRUNS = 3


def take_reports(core: Core, pilot: PilotState, reports: list[Report]) -> None:
    if len(reports) > FEW and _finish_in_bulk(core, pilot, reports):
        return
    ends = []
    bags: dict[int, None] = {}
    for report in reports:
        row = core.state.attempts.row(report.a)
        if row < 0 or core.state.attempts.pilot[row] != pilot.number:
            continue
        end = _reported(core, row, report)
        # One by one: the next report may be of the same task.
        core.emit(f.Ended(core.now, pilot.number, [end])) if _crowded(core, end) else ends.append(end)
        bags[end.bag] = None
    if ends:
        core.emit(f.Ended(core.now, pilot.number, ends))
    _cancel_stranded(core, bags)


def _crowded(core: Core, end: f.End) -> bool:
    """Other attempts of the task are in play, so that ends must be judged one after the other."""
    tasks = core.state.bags[end.bag].tasks
    return bool(tasks.live[end.task] > 1 or tasks.flags[end.task] & OUTSTANDING)


def _finish_in_bulk(core: Core, pilot: PilotState, reports: list[Report]) -> bool:
    """All of them plain successes of one class, nothing special about any: one fact in columns."""
    for r in reports:
        if r.o != "succeeded":
            return False
    attempts = core.state.attempts
    numbers = np.array([r.a for r in reports], dtype=np.int64)
    rows = numbers & ROW_MASK
    if int(rows.max()) >= attempts.rows:
        return False
    refs = attempts.np_task[rows]
    bag = core.state.bags.get(int(refs[0]) >> 32)
    cls = attempts.np_cls[rows]
    if bag is None or not _all_plain(bag, pilot, attempts, numbers, rows, refs, cls):
        return False
    tasks = refs & 0xFFFFFFFF
    details = {i: d for i, r in enumerate(reports) if (d := detail_of(r)) is not None}
    core.emit(
        f.Finished(
            core.now, pilot.number, bag.number, numbers.tolist(), tasks.tolist(), attempts.np_granted[rows].tolist(),
            [r.wall for r in reports], [r.cpu for r in reports], [r.rss for r in reports], details,
        )
    )
    return True


def _all_plain(bag: BagState, pilot: PilotState, attempts, numbers, rows, refs, cls) -> bool:  # type: ignore[no-untyped-def]
    states = attempts.np_state[rows]
    tasks = refs & 0xFFFFFFFF
    t = bag.tasks
    return bool(
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


def detail_of(r: Report) -> f.Detail | None:
    if not (r.out or r.err or r.out64 or r.err64 or r.files or r.value or r.note or r.exit or r.signal or r.out_size
            or r.err_size):
        return None
    return f.Detail(
        r.exit, r.signal, _bytes(r.out, r.out64), _bytes(r.err, r.err64), r.out_size, r.err_size, r.files, r.value, r.note
    )


def _bytes(text: str, encoded: str) -> bytes:
    if not encoded:
        return text.encode("utf-8", "surrogatepass")
    try:
        return b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        return b""


def _reported(core: Core, row: int, r: Report) -> f.End:
    outcome = OUTCOME_CODE.get(r.o, O_FAILED)
    if outcome == O_LOST:  # a pilot cannot lose what it reports
        outcome = O_RETURNED
    return _end(core, row, outcome, r.why, wall=r.wall, cpu=r.cpu, rss=r.rss, detail=detail_of(r))


def lose(core: Core, row: int, why: str, present: bool, stays: bool, outcome: int = O_LOST) -> f.End:
    """The server gives an attempt up; `present`: it may have been running when its pilot died."""
    return _end(core, row, outcome, why, died=present, stays=stays)


def _end(
    core: Core, row: int, outcome: int, why: str, *, died: bool = False, stays: bool = False,
    wall: int = 0, cpu: int = 0, rss: int = 0, detail: f.Detail | None = None,
) -> f.End:
    attempts = core.state.attempts
    ref = attempts.task[row]
    bag = core.state.bags[ref >> 32]
    task = ref & 0xFFFFFFFF
    t = bag.tasks
    variant = t.variant[task]
    end = f.End(
        attempts.number[row], bag.number, task, attempts.generation[row], outcome, why, t.state[task], stays,
        t.failures[task], variant >> 4, variant & 15, t.deaths[task], attempts.granted[row], wall, cpu, rss, detail,
    )
    if end.generation == t.generation[task]:
        _verdict(core, bag, row, end, died)
    return end


def _verdict(core: Core, bag: BagState, row: int, end: f.End, died: bool) -> None:
    """Set what the task becomes.  `end` arrives with the task's present state and counters."""
    state = core.state.attempts.state[row]
    counts = state in (GRANTED, STARTED)
    if end.outcome == O_SUCCEEDED:
        if state != DROPPED and (end.verdict < SUCCEEDED or end.verdict in (FAILED, QUARANTINED)):
            end.verdict = SUCCEEDED
        return
    if end.verdict >= FIRST_FINAL or not counts:
        return  # decided already, or given up before: nothing more to lose
    if end.outcome == O_FAILED:
        _charge(core, bag, row, end)
    elif died:
        end.deaths = min(end.deaths + 1, 255)
    retries = bag.targets[bag.target_of(end.task)].shape.retries
    if bag.tasks.live[end.task] > 1:
        end.verdict = ACTIVE  # another attempt goes on
    elif end.failures > retries or end.overruns > MAX_OVERRUNS:
        end.verdict = FAILED
    elif end.deaths >= core.config.deaths:
        end.verdict = QUARANTINED
    else:
        end.verdict = READY


def _charge(core: Core, bag: BagState, row: int, end: f.End) -> None:
    """Count a failure where it belongs.  One under limits the task has outgrown meanwhile is not counted twice."""
    shape = bag.targets[bag.target_of(end.task)].shape
    cls = core.state.classes[core.state.attempts.cls[row]]
    if end.why == "time":
        end.overruns += cls.overruns == end.overruns
    elif end.why == "memory" and shape.memory and end.boosts < min(shape.memory_retries, 15):
        end.boosts += cls.boosts == end.boosts
    else:
        end.failures = min(end.failures + 1, 255)


def _cancel_stranded(core: Core, bags: dict[int, None]) -> None:
    for number in bags:
        cancel_stranded(core, core.state.bags[number])


def cancel_stranded(core: Core, bag: BagState) -> None:
    """Cancel what waits for something that will not succeed any more, so that nothing waits for ever (P4)."""
    runs = _stranded_targets(bag) if len(bag.targets) > 1 else []
    if bag.graph is not None and bag.counts[FAILED] + bag.counts[CANCELLED] + bag.counts[QUARANTINED]:
        runs += _stranded_tasks(bag)
    if runs:
        core.emit(f.TasksCancelled(core.now, bag.number, runs, "upstream"))
        cancel_stranded(core, bag)


def _stranded_targets(bag: BagState) -> f.Runs:
    doomed = {
        i for t in bag.targets if t.left and not t.unfinished and not bag.open for i in t.dependents
        if bag.targets[i].unfinished
    }
    return [(first, end - first) for first, target, end in spans(bag) if target in doomed and end > first]


def _stranded_tasks(bag: BagState) -> f.Runs:
    graph = bag.graph
    assert graph is not None
    n = bag.size
    states = bag.tasks.np_state[:n]
    failed = np.flatnonzero(states > SUCCEEDED)
    doomed: dict[int, None] = {}
    for task in failed.tolist():
        for after in graph.successors[graph.starts[task] : graph.starts[task + 1]].tolist():
            if states[after] < FIRST_FINAL:
                doomed[after] = None
    return runs_of(np.array(sorted(doomed), dtype=np.int64))


def runs_of(tasks: NDArray[np.int64]) -> f.Runs:
    """Sorted task numbers as (first, count)."""
    if not len(tasks):
        return []
    breaks = np.flatnonzero(np.diff(tasks) != 1) + 1
    return [(int(part[0]), len(part)) for part in np.split(tasks, breaks)]
