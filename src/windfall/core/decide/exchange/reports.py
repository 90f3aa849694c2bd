"""Reports: ends of attempts as pilots tell them, and what the server makes of them.

Rules
  * What an attempt saved before it was ended early is there for the next one (Y15); a success, a bad exit or a task
    that names no checkpoint files leaves nothing behind.
  * Times are a pilot's word: an impossible one is brought between the grant and now, with a lease to spare.
  * Deduplication: a report is ignored if its attempt was not granted to this pilot, or was reported before.  An attempt
    that was given up as lost may still succeed.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator

import numpy as np

from windfall.core.decide.data.lost_copies import doubt_sources
from windfall.core.decide.exchange.stranded import cancel_if_stranded
from windfall.core.decide.exchange.verdicts import end_of, judge, record_ends
from windfall.core.decide.hosts import quarantine
from windfall.core.decide.hosts.session import Failure
from windfall.core.messages import facts as f
from windfall.core.messages.events import Report
from windfall.core.messages.lifecycle import (
    ACTIVE,
    GRANTED,
    NO_HOST_FAULT,
    O_FAILED,
    O_LOST,
    O_RETURNED,
    O_SUCCEEDED,
    OUTCOME_CODE,
    STARTED,
)
from windfall.core.state import accounts
from windfall.core.state.columns import FEW, ROW_MASK, TASK_MASK
from windfall.core.state.world import PilotState, TaskClass
from windfall.core.turn import Turn


def take_reports(turn: Turn, pilot: PilotState, reports: list[Report]) -> list[Report]:
    """Journal what a pilot reports: plain successes together, in columns; otherwise each report is judged on its own.
    Return those that were judged.

    Failures may mark the pilot's host, and inputs that could not be fetched the copies they were to come from."""
    not_fetched = _not_fetched(turn, pilot, reports) if turn.state.transfers_of else []
    judged = [] if _record_plain_successes(turn, pilot, reports) else reports
    if judged:
        record_ends(turn, pilot.number, _reported_ends(turn, pilot, judged))
    if not_fetched:
        doubt_sources(turn, not_fetched)
    if turn.hosts.failures_in_report:
        quarantine.note_failures(turn, pilot)
    elif turn.state.quarantined and turn.state.hosts.success[pilot.row] == turn.now:
        quarantine.clear_strikes(turn, pilot)
    return judged


def _not_fetched(turn: Turn, pilot: PilotState, reports: list[Report]) -> list[tuple[int, f.Transfer]]:
    """Return the transfers, each with its bag, of the attempts that failed because an input could not be fetched."""
    attempts, failed = turn.state.attempts, []
    for report in reports:
        row = attempts.row(report.a) if report.why == "input" and report.o != "succeeded" else -1
        if row >= 0 and attempts.pilot[row] == pilot.number:
            failed += [(attempts.bag_of(row), transfer) for transfer in turn.state.transfers_of.get(report.a, ())]
    return failed


# --- plain successes ------------------------------------------------------------------------------------------------


def _record_plain_successes(turn: Turn, pilot: PilotState, reports: list[Report]) -> bool:
    """Journal the reports as one `Finished`, if all are successes of one class that nothing is special about."""
    state, attempts = turn.state, turn.state.attempts
    row = reports[0].a & ROW_MASK
    cls = state.classes.get(attempts.cls[row]) if row < attempts.rows else None
    if cls is None:
        return False
    bag = state.bags[cls.bag]
    if bag.targets[cls.target].shape.outputs and not all(r.files for r in reports):
        return False
    fact = f.Finished(turn.now, pilot.number, bag.number, [], [])
    fill = _fill_by_arrays if len(reports) > FEW else _fill
    if not fill(turn, fact, cls, reports):
        return False
    turn.emit(fact)
    cancel_if_stranded(turn, bag, cls.target, [])
    return True


def _fill(turn: Turn, fact: f.Finished, cls: TaskClass, reports: list[Report]) -> bool:
    """Put the reports into the columns of the fact while each is plain: its task's first success, by its only attempt,
    and of the class.  Return True if all were."""
    attempts, t = turn.state.attempts, turn.state.bags[cls.bag].tasks
    rows, of, pilot, latest = attempts.rows, cls.number, fact.pilot, fact.at + turn.config.lease
    for i, r in enumerate(reports):
        number = r.a
        row = number & ROW_MASK
        if row >= rows or attempts.number[row] != number or attempts.cls[row] != of or r.o != "succeeded":
            return False
        if attempts.pilot[row] != pilot or not GRANTED <= attempts.state[row] <= STARTED:
            return False
        task = attempts.task[row] & TASK_MASK
        if t.state[task] != ACTIVE or t.live[task] != 1 or t.flags[task]:
            return False
        if t.generation[task] != attempts.generation[row]:
            return False
        fact.attempts.append(number)
        fact.tasks.append(task)
        _add_columns(fact, i, r, attempts.granted[row], latest)
    return len(fact.tasks) == 1 or len(set(fact.tasks)) == len(fact.tasks)


def _add_columns(fact: f.Finished, place: int, r: Report, granted: int, latest: int) -> None:
    """Append what one success reports of itself.  It cannot have run for longer than until `latest`."""
    wall, start = r.wall, r.t0
    fact.granted.append(granted)
    fact.walls.append(wall if wall + granted <= latest else latest - granted)
    fact.cpus.append(r.cpu)
    fact.rss.append(r.rss)
    fact.starts.append(_start(start, granted, fact.at) if start else 0)
    if (detail := detail_of(r)) is not None:
        fact.details[place] = detail
    if r.left is not None and (kept := _left_in_place(r)) is not None:
        fact.left_in_place[place] = kept


def _fill_by_arrays(turn: Turn, fact: f.Finished, cls: TaskClass, reports: list[Report]) -> bool:
    """Do the same as `_fill` by arrays, which is faster from `FEW` reports on."""
    for r in reports:
        if r.o != "succeeded":
            return False
    attempts, t = turn.state.attempts, turn.state.bags[cls.bag].tasks
    numbers = np.array([r.a for r in reports], dtype=np.int64)
    rows = numbers & ROW_MASK
    if int(rows.max()) >= attempts.rows or not (attempts.np_cls[rows] == cls.number).all():
        return False
    states, tasks = attempts.np_state[rows], attempts.tasks_of(rows)
    plain = (
        (attempts.np_number[rows] == numbers).all()
        and (attempts.np_pilot[rows] == fact.pilot).all()
        and ((states == GRANTED) | (states == STARTED)).all()
        and (t.np_state[tasks] == ACTIVE).all()
        and (t.np_live[tasks] == 1).all()
        and not t.np_flags[tasks].any()
        and (t.np_generation[tasks] == attempts.np_generation[rows]).all()
        and len(np.unique(rows)) == len(rows)
    )
    if plain:
        fact.attempts, fact.tasks = numbers.tolist(), tasks.tolist()
        latest = fact.at + turn.config.lease
        for i, (r, granted) in enumerate(zip(reports, attempts.np_granted[rows].tolist(), strict=True)):
            _add_columns(fact, i, r, granted, latest)
    return bool(plain)


# --- each report on its own -----------------------------------------------------------------------------------------


def _reported_ends(turn: Turn, pilot: PilotState, reports: list[Report]) -> Iterator[f.End]:
    attempts, number = turn.state.attempts, pilot.number
    reported: dict[int, None] = {}
    for report in reports:
        attempt = report.a
        row = attempts.row(attempt)
        if row >= 0 and attempts.pilot[row] == number and attempt not in reported:
            reported[attempt] = None
            yield end_by_report(turn, row, report)


def end_by_report(turn: Turn, row: int, report: Report) -> f.End:
    """Return the end that a report makes of an attempt, judged."""
    outcome = OUTCOME_CODE.get(report.o, O_FAILED)
    if outcome == O_LOST:  # a pilot cannot lose what it reports
        outcome = O_RETURNED
    if outcome == O_SUCCEEDED and not report.files and _needs_files(turn, row):
        outcome, report.why = O_FAILED, "output"
        report.note = "; ".join(filter(None, [report.note, "the outputs never arrived"]))
    granted = turn.state.attempts.granted[row]
    end = end_of(turn, row, outcome, report.why)
    end.wall, end.cpu, end.rss = min(report.wall, turn.now - granted + turn.config.lease), report.cpu, report.rss
    end.start, end.left_in_place = _start(report.t0, granted, turn.now), _left_in_place(report)
    end.detail = detail_of(report, saves=bool(report.saved) and _saves(turn, row, outcome, report.why))
    # "gone": the part of the pilot that ran it died.  Count that against every task it ran; otherwise a task that
    # kills its pilot is retried without end.
    judge(turn, row, end, died=outcome == O_RETURNED and report.why == "gone")
    if outcome == O_FAILED and report.why not in NO_HOST_FAULT:
        attempts = turn.state.attempts
        cls = turn.state.classes[attempts.cls[row]]
        turn.hosts.failures_in_report.append(Failure(cls, attempts.grant[row], end.wall))
    end.charged = accounts.charge(turn.state, row, end.wall)
    return end


def _needs_files(turn: Turn, row: int) -> bool:
    """Are there outputs that a success must have brought?"""
    cls = turn.state.classes[turn.state.attempts.cls[row]]
    bag = turn.state.bags.get(cls.bag)
    return bag is not None and bag.targets[cls.target].shape.outputs


def _saves(turn: Turn, row: int, outcome: int, why: str) -> bool:
    """Are the checkpoint files of this attempt good for the next one?

    They are if it was ended early, by the server or by its limit; after a bad exit nobody knows.
    """
    early = outcome == O_RETURNED or (outcome == O_FAILED and why == "time")
    bag, task = turn.state.bag_of(row), turn.state.attempts.task_of(row)
    shape = bag.targets[bag.target_of(task)].shape
    return early and shape.checkpoint and bag.tasks.generation[task] == turn.state.attempts.generation[row]


# --- what a report says ---------------------------------------------------------------------------------------------


def detail_of(r: Report, saves: bool = False) -> f.Detail | None:
    """Return the part of a report that most reports do not have, or None.

    `saves` says that the checkpoint files it names are kept for the next attempt.
    """
    saved = r.saved if saves else []
    if not (r.out or r.err or r.out64 or r.err64 or r.files or r.value or r.note or r.exit or r.signal or r.out_size
            or r.err_size or r.values or saved or r.scratch):  # every report: `any` would take twice as long
        return None
    return f.Detail(
        r.exit, r.signal, _bytes(r.out, r.out64), _bytes(r.err, r.err64), out_size=r.out_size, err_size=r.err_size,
        files=r.files, value=r.value, note=r.note, values=r.values, saved=saved, scratch=r.scratch,
    )


def _bytes(text: str, encoded: str) -> bytes:
    if not encoded:
        return text.encode("utf-8", "surrogatepass")
    try:
        return b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        return b""


def _left_in_place(r: Report) -> tuple[int, int] | None:
    """Return the bytes and files that the report says were left in place, if that can be true."""
    if r.left is None or not (0 <= r.left[0] < 1 << 60 and 0 <= r.left[1] < 1 << 31):
        return None
    return r.left


def _start(reported: int, granted: int, now: int) -> int:
    """Bring a start by the pilot's clock, which may be wrong, between the grant and now; 0 says that none is known."""
    return min(max(reported, granted), now) if reported else 0
