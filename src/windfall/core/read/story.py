"""The story of one task: every fact that touched it, each as one sentence, in the order of the journal.

`story` takes facts and a `Protagonist`, which remembers between calls which attempts and pilots' jobs of the task are
in play, so that a long journal can be read in pieces.  The function reads no state: a fact says all that happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import (
    ACTIVE,
    FAILED,
    O_CANCELLED,
    O_FAILED,
    O_LOST,
    O_RETURNED,
    O_SUCCEEDED,
    QUARANTINED,
    READY,
    SUCCEEDED,
    TASK_STATES,
    VALIDATING,
    WAITING,
)
from windfall.model.units import format_core_time, format_duration, plural

MOST_FOLLOWED = 64  # attempts whose later facts are told; a task seldom has more than two in play

WHY = {
    "exit": "its command failed", "signal": "a signal killed it", "time": "it ran past its time limit",
    "memory": "it ran out of memory", "disk": "it ran out of disk",
    "output": "an output is missing, or did not pass its check", "start": "it could not be started",
    "program": "its program is missing from its directory, or not executable",
    "input": "an input could not be had", "gone": "its pilot is dead", "lease": "its pilot's lease expired",
    "silence": "its time limit and a lease passed without a word from its pilot",
    "recall": "the server took it back for another pilot", "behind": "the attempt before it did not succeed",
    "stop": "its pilot had to stop", "refused": "the pilot refused it", "cancel": "the server cancelled it",
    "silent": "its pilot fell silent", "requeued": "the batch system put its pilot's job back into the queue",
}  # fmt: skip
"""Reasons of ends of attempts that have a sentence of their own."""

NOW = {
    READY: "the task is ready again", WAITING: "the task waits for other tasks", FAILED: "the task has failed",
    ACTIVE: "another attempt of the task goes on", SUCCEEDED: "the task has succeeded",
    QUARANTINED: "the task is quarantined: it was at repeated deaths of pilots",
    VALIDATING: "other attempts must confirm the result",
}  # fmt: skip


class StoryLine(msgspec.Struct):
    """A fact that touched a task.  None: the fact names no attempt, pilot, site or host."""

    at: int
    kind: str
    text: str
    attempt: int | None = None
    pilot: int | None = None
    site: str | None = None
    host: str | None = None


class Protagonist(msgspec.Struct):
    """The task that a story follows, its attempts in play (by pilot), and open intents to start a pilot for it."""

    bag: int
    task: int
    target: int
    attempts: dict[int, int] = {}
    intents: list[int] = []

    def follow(self, attempt: int, pilot: int) -> None:
        self.attempts[attempt] = pilot
        while len(self.attempts) > MOST_FOLLOWED:
            del self.attempts[next(iter(self.attempts))]


def story(facts: Iterable[f.Fact], who: Protagonist) -> list[StoryLine]:
    """Select the facts that touched a task, and phrase each of them."""
    lines: list[StoryLine] = []
    for fact in facts:
        tell = _TELLERS.get(type(fact))
        if tell is not None:
            lines += tell(fact, who)
    return lines


# --- the bag ---------------------------------------------------------------------------------------------------------


def _submitted(fact: f.BagSubmitted, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag and who.task < sum(target.count for target in fact.targets):
        name = fact.targets[who.target].name
        text = f"{fact.owner} submitted bag {who.bag}, with this task in target '{name}'"
        yield StoryLine(fact.at, "submitted", text)


def _appended(fact: f.TasksAppended | f.PartAppended, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag and fact.first <= who.task < fact.first + fact.count:
        text = f"{plural(fact.count, 'task')} came to the bag, this one among them"
        yield StoryLine(fact.at, "appended", text)


def _closed(fact: f.BagClosed, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag:
        away = "the bag was closed to more tasks, because its client had been away for too long"
        text = away if fact.by == f.ABSENT else f"{_somebody(fact.by)} closed the bag to more tasks"
        yield StoryLine(fact.at, "closed", text)


def _paused(fact: f.BagPaused, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag:
        kind, did = ("paused", "paused the bag") if fact.paused else ("unpaused", "let the paused bag go on")
        yield StoryLine(fact.at, kind, f"{_somebody(fact.by)} {did}")


def _policy_set(fact: f.PolicySet, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag:
        policy = "; ".join(f"{key} = {text}" for key, text in fact.policy.items()) or "none"
        yield StoryLine(fact.at, "policy", f"{_somebody(fact.by)} changed the bag's policies to: {policy}")


def _budget_set(fact: f.BudgetSet, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag:
        budget = f"set the bag's budget to {format_core_time(fact.budget)}" if fact.budget else "took the budget away"
        yield StoryLine(fact.at, "budget", f"{_somebody(fact.by)} {budget}")


def _aged(fact: f.BagAged, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag:
        order = "the bag has waited long, and goes before its owner's other bags" if fact.first else (
            "the bag goes in its usual order again")
        yield StoryLine(fact.at, "aged", order)


def _gathered(fact: f.InputsGathered, who: Protagonist) -> Iterator[StoryLine]:
    if (fact.bag, fact.target) == (who.bag, who.target):
        yield StoryLine(fact.at, "gathered", "the output files that the task takes as inputs are at hand")


def _batch_released(fact: f.BatchReleased, who: Protagonist) -> Iterator[StoryLine]:
    if (fact.bag, fact.target) == (who.bag, who.target):
        yield StoryLine(fact.at, "released", "the target's last batch has waited long enough, and goes incomplete")


def _cancelled(fact: f.TasksCancelled, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag and _within(fact.runs, who.task):
        why = {"upstream": "a task that it waits for did not succeed", "gather": "its input files cannot be brought"}
        text = f"{_somebody(fact.by)} cancelled the task" if fact.why == "user" else (
            f"the task was cancelled: {why.get(fact.why, fact.why)}")
        yield StoryLine(fact.at, "cancelled", text + (f" ({fact.note})" if fact.note else ""))


def _retried(fact: f.TasksRetried, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag and _within(fact.runs, who.task):
        text = "the task must run again: its output is gone, and another task needs it" if fact.why == "copies" else (
            f"{_somebody(fact.by)} asked to run the task again")
        yield StoryLine(fact.at, "retried", text)


def _revised(fact: f.BagRevised, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag:
        kept = "; the task keeps its result of before" if _within(fact.outdated, who.task) else ""
        yield StoryLine(fact.at, "revised", f"{_somebody(fact.by)} had the bag's files read again{kept}")


def _copies_lost(fact: f.CopiesLost, who: Protagonist) -> Iterator[StoryLine]:
    if any(bag == who.bag and _within(runs, who.task) for bag, runs in fact.lost):
        yield StoryLine(fact.at, "copy-lost", f"the copy of the task's output at {fact.place} is gone: {fact.why}")


# --- attempts --------------------------------------------------------------------------------------------------------


def _granted(fact: f.Granted, who: Protagonist) -> Iterator[StoryLine]:
    for group in fact.groups:
        if group.bag == who.bag and who.task in group.tasks:
            attempt = group.attempts[group.tasks.index(who.task)]
            what = "a replica of the task" if who.attempts else "the task"
            extra = [f"{f.time_factor(group.time_retries)} times its time limit"] * (group.time_retries > 0)
            extra += [f"{2**group.memory_retries} times its memory"] * (group.memory_retries > 0)
            text = f"{what} was granted to pilot {fact.pilot}" + (f", with {' and '.join(extra)}" if extra else "")
            who.follow(attempt, fact.pilot)
            yield StoryLine(fact.at, "granted", text, attempt, fact.pilot)


def _adopted(fact: f.Adopted, who: Protagonist) -> Iterator[StoryLine]:
    for attempt in [attempt for attempt in who.attempts if attempt in fact.attempts]:
        who.follow(attempt, fact.pilot)
        text = f"pilot {fact.pilot}, which enrolled again, took over the attempt"
        yield StoryLine(fact.at, "adopted", text, attempt, fact.pilot)


def _started(fact: f.Started, who: Protagonist) -> Iterator[StoryLine]:
    for attempt in [attempt for attempt in who.attempts if attempt in fact.attempts]:
        text = f"pilot {fact.pilot} reported that the attempt runs"
        yield StoryLine(fact.at, "started", text, attempt, fact.pilot)


def _finished(fact: f.Finished, who: Protagonist) -> Iterator[StoryLine]:
    if fact.bag == who.bag and who.task in fact.tasks:
        place = fact.tasks.index(who.task)
        attempt = fact.attempts[place]
        who.attempts.pop(attempt, None)
        text = f"the attempt succeeded after {format_duration(fact.walls[place])}; the task has succeeded"
        yield StoryLine(fact.at, "finished", text, attempt, fact.pilot)


def _ended(fact: f.Ended, who: Protagonist) -> Iterator[StoryLine]:
    for end in fact.ends:
        if (end.bag, end.task) == (who.bag, who.task):
            if not end.row_kept:  # else a late report is welcome
                who.attempts.pop(end.attempt, None)
            text = f"{_phrase_end(end)}; {_phrase_verdict(end)}"
            yield StoryLine(fact.at, _KIND_OF_END[end.outcome], text, end.attempt, fact.pilot)


_KIND_OF_END = {
    O_SUCCEEDED: "finished", O_FAILED: "ended", O_CANCELLED: "ended", O_RETURNED: "returned", O_LOST: "lost"
}  # fmt: skip


def _phrase_end(end: f.End) -> str:
    took = f" after {format_duration(end.wall)}" if end.wall else ""
    if end.outcome == O_SUCCEEDED:
        return f"the attempt succeeded{took}"
    if end.outcome == O_CANCELLED:
        return f"the pilot stopped the attempt{took}, as the server had asked"
    did = {O_FAILED: f"the attempt failed{took}", O_RETURNED: f"the attempt came back unfinished{took}"}
    return f"{did.get(end.outcome, 'the attempt was given up as lost')}: {_phrase_reason(end)}"


def _phrase_reason(end: f.End) -> str:
    detail = end.detail or f.Detail()
    if end.why == "exit":
        text = f"exit code {detail.exit}"
    elif end.why == "signal":
        text = f"signal {detail.signal} killed it"
    else:
        text = WHY.get(end.why, end.why or "no reason was given")
    return f"{text} ({detail.note})" if detail.note not in text else text


def _phrase_verdict(end: f.End) -> str:
    if end.verdict < SUCCEEDED or end.decides:
        return NOW.get(end.verdict, f"the task is {TASK_STATES[end.verdict]}")
    return f"that changes nothing: the task had ended before as {TASK_STATES[end.verdict]}"


# --- pilots ----------------------------------------------------------------------------------------------------------


def _draining(fact: f.PilotDraining, who: Protagonist) -> Iterator[StoryLine]:
    for attempt in [attempt for attempt, pilot in who.attempts.items() if pilot == fact.pilot]:
        text = f"pilot {fact.pilot} was told to leave once its attempts have ended"
        yield StoryLine(fact.at, "draining", text, attempt, fact.pilot)


def _pilot_ended(fact: f.PilotEnded, who: Protagonist) -> Iterator[StoryLine]:
    for attempt in [attempt for attempt, pilot in who.attempts.items() if pilot == fact.pilot]:
        text = f"pilot {fact.pilot} has ended: {WHY.get(fact.why, fact.why) or 'no reason was given'}"
        yield StoryLine(fact.at, "pilot-ended", text, attempt, fact.pilot)


def _requested(fact: f.IntentsMade, who: Protagonist) -> Iterator[StoryLine]:
    for intent in fact.intents:
        if (intent.bag, intent.task) == (who.bag, who.task):
            who.intents.append(intent.number)
            text = f"a pilot for this task alone is to start at {fact.site}"
            yield StoryLine(fact.at, "requested", text, site=fact.site)


def _accepted(fact: f.IntentsAccepted, who: Protagonist) -> Iterator[StoryLine]:
    for intent, job in zip(fact.intents, fact.ids, strict=True):
        if intent in who.intents:
            text = f"the batch system of {fact.site} took the task's pilot as job {job}"
            yield StoryLine(fact.at, "queued", text, site=fact.site)


def _request_over(fact: f.IntentsEnded, who: Protagonist) -> Iterator[StoryLine]:
    for intent in [intent for intent in who.intents if intent in fact.intents]:
        who.intents.remove(intent)
        text = f"the job of the task's pilot at {fact.site} is over: {fact.why}"
        yield StoryLine(fact.at, "job-over", text, site=fact.site)


def _within(runs: f.Runs, task: int) -> bool:
    return any(first <= task < first + count for first, count in runs)


def _somebody(by: str) -> str:
    return by or "the server"


_TELLERS: dict[type, Callable[[Any, Protagonist], Iterator[StoryLine]]] = {
    f.BagSubmitted: _submitted, f.TasksAppended: _appended, f.PartAppended: _appended, f.BagClosed: _closed,
    f.BagPaused: _paused, f.PolicySet: _policy_set, f.BudgetSet: _budget_set, f.BagAged: _aged,
    f.InputsGathered: _gathered, f.BatchReleased: _batch_released, f.TasksCancelled: _cancelled,
    f.TasksRetried: _retried, f.BagRevised: _revised, f.CopiesLost: _copies_lost, f.Granted: _granted,
    f.Adopted: _adopted, f.Started: _started, f.Finished: _finished, f.Ended: _ended, f.PilotDraining: _draining,
    f.PilotEnded: _pilot_ended, f.IntentsMade: _requested, f.IntentsAccepted: _accepted,
    f.IntentsEnded: _request_over,
}  # fmt: skip
