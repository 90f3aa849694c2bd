"""Verdicts: what the end of an attempt makes of its task.

Rules
  * The first valid success of the task's present generation is its result, however late it comes (P1); a second
    one, a duplicate or a replica's, never counts twice.
  * Only *failed* costs the task: bad exits and bad output count against `retries`, duration failures against
    `time_retries` (`time_factor` triples the limit each time), out-of-memory against `memory_retries`, each with twice
    the memory, and after these, or for a task that states no memory, against `retries`.  An exit code in
    `exits_not_retried` costs all remaining retries.
  * A task that keeps failing goes to its bag's fail-over site, if one is named (G11): from its second failure, or
    pilot's death, on, or with its last retry; and stays bound to it in this generation.
  * *Returned*, *cancelled* and *lost* cost nothing; but a task present at three deaths of pilots is quarantined
    (a poison task).
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.core.decide.exchange.stranded import cancel_if_stranded
from windfall.core.decide.grant import fail_over
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import (
    ACTIVE,
    DROPPED,
    FAILED,
    FIRST_FINAL,
    GRANTED,
    NOT_RETRIED,
    O_FAILED,
    O_LOST,
    O_SUCCEEDED,
    QUARANTINED,
    READY,
    STARTED,
    SUCCEEDED,
    WAITING,
)
from windfall.core.state import accounts
from windfall.core.state.load import OUTSTANDING
from windfall.core.state.world import BagState
from windfall.core.turn import Turn

FAIL_OVER_AFTER = 2  # failures and deaths of pilots after which a task goes to its bag's fail-over site
MAX_FAILURES = 0xFFFF  # what the column holds


def record_ends(turn: Turn, pilot: int, ends: Iterable[f.End]) -> None:
    """Journal the ends of a pilot's attempts, as one fact where that is possible.

    `ends` is lazy: where other attempts of the same task are in play, each end is judged after the one before it
    has taken effect.
    """
    if turn.state.quarantined and turn.state.pilots[pilot].row in turn.state.quarantined:
        turn.state.version += 1  # its host may have one task again
    together: list[f.End] = []
    unsuccessful: dict[tuple[int, int], list[int]] = {}  # (bag, target) where tasks ended → those without success
    failing_over: dict[int, None] = {}  # bags with tasks that go to their fail-over sites
    for end in ends:
        bag = turn.state.bags[end.bag]
        if end.to_fail_over_site and end.verdict < FIRST_FINAL:
            failing_over[end.bag] = None
        _note_final(bag, end, unsuccessful)
        if bag.tasks.live[end.task] > 1 or bag.tasks.flags[end.task] & OUTSTANDING:
            turn.emit(f.Ended(turn.now, pilot, [end]))
        else:
            together.append(end)
    if together:
        turn.emit(f.Ended(turn.now, pilot, together))
    for (number, target), failed in unsuccessful.items():
        cancel_if_stranded(turn, turn.state.bags[number], target, failed)
    for number in failing_over:
        fail_over.note_moved(turn, turn.state.bags[number])


def _note_final(bag: BagState, end: f.End, unsuccessful: dict[tuple[int, int], list[int]]) -> None:
    """Note a task that ends now, and whether it has succeeded, where other tasks may wait for it."""
    if (bag.graph is not None or len(bag.targets) > 1) and end.verdict >= FIRST_FINAL > bag.tasks.state[end.task]:
        failed = unsuccessful.setdefault((end.bag, bag.target_of(end.task)), [])
        if end.verdict != SUCCEEDED:
            failed.append(end.task)


def lose(turn: Turn, row: int, why: str, died: bool, row_kept: bool, outcome: int = O_LOST) -> f.End:
    """Return the end of an attempt that the server gives up.

    `died` says that it may have been running when its pilot died; `row_kept` that a late report is still welcome.
    """
    end = end_of(turn, row, outcome, why)
    end.row_kept = row_kept
    end.charged = 0 if row_kept else accounts.elapsed(turn.state, row, turn.now)
    judge(turn, row, end, died=died)
    return end


def end_of(turn: Turn, row: int, outcome: int, why: str) -> f.End:
    """Return an attempt's end with the task's present state and counters, to be judged."""
    attempts = turn.state.attempts
    bag, task = turn.state.bag_of(row), attempts.task_of(row)
    t = bag.tasks
    time_retries, memory_retries, fails_over = f.unpack_variant(t.variant[task])
    return f.End(
        attempts.number[row], bag.number, task, attempts.generation[row], outcome, why=why, verdict=t.state[task],
        row_kept=False, failures=t.failures[task], time_retries=time_retries, memory_retries=memory_retries,
        deaths=t.deaths[task], granted=attempts.granted[row], wall=0, cpu=0, rss=0, to_fail_over_site=fails_over,
    )


def judge(turn: Turn, row: int, end: f.End, died: bool) -> None:
    """Set the state and the counters of the task after this end, and whether this end decides the task.

    `died` says that the attempt may have been running when its pilot, or the part of it that ran it, died.
    """
    bag = turn.state.bags[end.bag]
    before, state = end.verdict, turn.state.attempts.state[row]
    if end.generation == bag.tasks.generation[end.task]:
        if end.outcome == O_SUCCEEDED:
            if state != DROPPED and (before < SUCCEEDED or before in (FAILED, QUARANTINED)):
                end.verdict = SUCCEEDED
        elif before < FIRST_FINAL and (died or state in (GRANTED, STARTED)):
            _judge_unsuccessful(turn, row, end, died)
    end.decides = before != end.verdict >= FIRST_FINAL


def _judge_unsuccessful(turn: Turn, row: int, end: f.End, died: bool) -> None:
    """Count an end without success, and say whether the task is tried again, where, or failed for good."""
    bag = turn.state.bags[end.bag]
    shape = bag.targets[bag.target_of(end.task)].shape
    if end.outcome == O_FAILED:
        _count_failure(turn, row, end, shape)
    elif died:
        end.deaths = min(end.deaths + 1, 255)
    if bag.fail_over and not end.to_fail_over_site:
        end.to_fail_over_site = _keeps_failing(end, shape.retries)
    if bag.tasks.live[end.task] > (turn.state.attempts.state[row] in (GRANTED, STARTED)):
        end.verdict = ACTIVE  # another attempt goes on
    elif end.failures > shape.retries or end.time_retries > shape.time_retries:
        end.verdict = FAILED
    elif end.deaths >= turn.config.deaths:
        end.verdict = QUARANTINED
    else:  # copies of what it reads may have been lost meanwhile: then their makers run first
        blocked = bag.graph is not None and bag.graph.blocked(end.task, end.task + 1).size
        end.verdict = WAITING if blocked else READY


def _keeps_failing(end: f.End, retries: int) -> bool:
    return end.failures + end.deaths >= FAIL_OVER_AFTER or 0 < retries <= end.failures


def _count_failure(turn: Turn, row: int, end: f.End, shape: f.TargetShape) -> None:
    """Count a failure against the counter of its kind.

    Where the task has outgrown the attempt's limit of time or memory meanwhile, its failure was counted before.
    """
    cls = turn.state.classes[turn.state.attempts.cls[row]]
    if end.why == "time":
        end.time_retries += cls.time_retries == end.time_retries
    elif end.why == "memory" and shape.memory and end.memory_retries < min(shape.memory_retries, 15):
        end.memory_retries += cls.memory_retries == end.memory_retries
    elif end.why == NOT_RETRIED or (
            end.why == "exit" and end.detail is not None and end.detail.exit in shape.exits_not_retried):
        end.failures = MAX_FAILURES
    else:
        end.failures = min(end.failures + 1, MAX_FAILURES)
