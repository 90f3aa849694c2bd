"""The record of a run: attempts, transfers, pilots and bags, folded from the core's facts, for tables and charts.

    record = Record()
    record.attach(world.server)
    world.run()
    record.summary(1)

Times are milliseconds of the simulation.  The numbers of a bag are those of the live server's statistics (S11).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import O_FAILED, O_SUCCEEDED, OUTCOMES, SUCCEEDED
from windfall.sim.models.server import Server


class AttemptRecord(NamedTuple):
    number: int
    bag: int
    task: int
    pilot: int
    granted: int
    start: int  # -1: no pilot has reported a start
    end: int
    outcome: int
    counts: int  # 1: its result is the result of its task


@dataclass
class PilotRecord:
    """The life of a pilot, from its enrolment to its end."""

    site: str
    host: str
    cores: int
    enrolled: int
    ended: int | None = None
    why: str = ""


@dataclass
class IntentRecord:
    """The life of an intent: when it was made, queued, running and ended; -1 for a step that never came."""

    site: str
    cores: int
    made: int
    queued: int = -1
    running: int = -1
    ended: int = -1
    why: str = ""


class TransferRecord(NamedTuple):
    """The files that an attempt was told to fetch from one place."""

    attempt: int
    bag: int
    task: int
    place: str
    site: str  # the site of the attempt's pilot
    at: int
    size: int
    files: int


@dataclass
class BagRecord:
    name: str
    submitted: int
    tasks: int
    targets: list[tuple[str, int, int]]  # name, first task, when they could start (-1: when others are done)
    ended: int = 0  # when the last of its tasks ended


COLUMNS = ("number", "bag", "task", "pilot", "granted", "start", "end", "outcome", "counts")


@dataclass
class Record:
    pilots: dict[int, PilotRecord] = field(default_factory=dict)
    bags: dict[int, BagRecord] = field(default_factory=dict)
    asked: dict[int, IntentRecord] = field(default_factory=dict)  # by the intent's number
    transfers: list[TransferRecord] = field(default_factory=list)
    done: int = 0  # tasks that have ended

    def __post_init__(self) -> None:
        self._columns = [array("q") for _ in COLUMNS]
        self._started: dict[int, int] = {}
        self._open: dict[int, int] = {}  # attempt that was given up and may still report → its row
        self._handlers: dict[type, Callable[[Any], None]] = {
            f.BagSubmitted: self._submitted, f.PilotEnrolled: self._enrolled, f.PilotEnded: self._pilot_ended,
            f.Started: self._begun, f.Finished: self._finished, f.Ended: self._ended, f.Granted: self._granted,
            f.IntentsMade: self._intended, f.IntentsAccepted: self._moved, f.IntentsRunning: self._moved,
            f.IntentsEnded: self._moved,
        }

    def attach(self, server: Server) -> None:
        """Take the facts of every step of `server` from now on."""
        server.observe(self.take)

    def take(self, facts: list[Any]) -> None:
        for fact in facts:
            handler = self._handlers.get(type(fact))
            if handler is not None:
                handler(fact)

    def __len__(self) -> int:
        return len(self._columns[0])

    def attempts(self) -> Iterator[AttemptRecord]:
        yield from map(AttemptRecord._make, zip(*self._columns, strict=True))

    # --- facts ------------------------------------------------------------------------------------------------------

    def _submitted(self, fact: f.BagSubmitted) -> None:
        first, targets = 0, []
        for target in fact.targets:
            targets.append((target.name, first, -1 if target.after or fact.edges else fact.at))
            first += target.count
        self.bags[fact.bag] = BagRecord(fact.name, fact.at, first, targets)

    def _enrolled(self, fact: f.PilotEnrolled) -> None:
        self.pilots[fact.pilot] = PilotRecord(fact.site, fact.host_name, fact.cores, fact.at)

    def _pilot_ended(self, fact: f.PilotEnded) -> None:
        if fact.pilot in self.pilots:
            self.pilots[fact.pilot].ended, self.pilots[fact.pilot].why = fact.at, fact.why

    def _intended(self, fact: f.IntentsMade) -> None:
        for intent in fact.intents:
            self.asked[intent.number] = IntentRecord(fact.site, intent.shape.cores, fact.at)

    def _moved(self, fact: f.IntentsAccepted | f.IntentsRunning | f.IntentsEnded) -> None:
        for number in fact.intents:
            asked = self.asked.get(number)
            if asked is None:
                continue
            if isinstance(fact, f.IntentsAccepted):
                asked.queued = fact.at
            elif isinstance(fact, f.IntentsRunning):
                asked.running = fact.at
            else:
                asked.ended, asked.why = fact.at, fact.why

    def _granted(self, fact: f.Granted) -> None:
        if not fact.transfers:
            return
        whose = {attempt: (group.bag, task) for group in fact.groups
                 for attempt, task in zip(group.attempts, group.tasks, strict=True)}
        site = self.pilots[fact.pilot].site
        self.transfers += [
            TransferRecord._make((move.attempt, *whose[move.attempt], move.place, site, fact.at, move.size, move.files))
            for move in fact.transfers]

    def _begun(self, fact: f.Started) -> None:
        for attempt in fact.attempts:
            self._started.setdefault(attempt, fact.at)

    def _finished(self, fact: f.Finished) -> None:
        starts = fact.starts or [0] * len(fact.attempts)
        lists = (fact.attempts, fact.tasks, fact.granted, fact.walls, starts)
        for attempt, task, granted, wall, reported in zip(*lists, strict=True):
            start = _start(reported, granted, fact.at - wall)
            self._started.pop(attempt, None)
            self._add((attempt, fact.bag, task, fact.pilot, granted, start, start + wall, O_SUCCEEDED, 1))
        self._tasks_over(fact.bag, fact.at, len(fact.tasks))

    def _ended(self, fact: f.Ended) -> None:
        for end in fact.ends:
            begun = self._started.get(end.attempt) if end.row_kept else self._started.pop(end.attempt, None)
            start, over = _span(end, fact.at, begun)
            counts = int(end.decides and end.verdict == SUCCEEDED)
            row = (end.attempt, end.bag, end.task, fact.pilot, end.granted, start, over, end.outcome, counts)
            self._add(row, end.row_kept)
            if end.decides:
                self._tasks_over(end.bag, fact.at, 1)

    def _tasks_over(self, bag: int, at: int, count: int) -> None:
        self.done += count
        self.bags[bag].ended = at

    def _add(self, fields: tuple[int, ...], stays: bool = False) -> None:
        """Add the fields of an attempt; one that was given up and reports after all overwrites its old row.

        `stays`: the attempt may still report.
        """
        row = self._open.pop(fields[0], None)
        if stays:
            self._open[fields[0]] = len(self) if row is None else row
        for column, value in zip(self._columns, fields, strict=True):
            if row is None:
                column.append(value)
            else:
                column[row] = value

    # --- summaries --------------------------------------------------------------------------------------------------

    def summary(self, *bags: int) -> dict[str, Any]:
        """Return the numbers of S11 of these bags together, as `statistics` of a live bag has them."""
        heads = {bag: self.bags[bag] for bag in bags}
        sums = _Sums(heads)
        for attempt in self.attempts():
            if attempt.bag in heads:
                sums.add(attempt, self.pilots.get(attempt.pilot))
        submitted = min(head.submitted for head in heads.values())
        ended = max(head.ended for head in heads.values())
        clock = max(0, ended - submitted)
        return {
            "bag": bags[0], "name": heads[bags[0]].name, "tasks": sum(head.tasks for head in heads.values()),
            "submitted": submitted, "ended": ended, "wall_clock": clock,
            "attempts": sums.attempts, "accepted": sums.accepted, "real": sums.real, "redundant": sums.redundant,
            "queuing_average": sums.queued / sums.accepted if sums.accepted else 0.0,
            "queuing_longest": sums.longest, "speed_up": sums.real / clock if clock else 0.0,
            "outcomes": sums.counts_by_outcome(), "failures": sums.outcomes[O_FAILED], "sites": sums.by_site(),
        }

    def summaries(self) -> list[dict[str, Any]]:
        """Return a summary per name; bags of one name are summed up together."""
        return [self.summary(*bags) for bags in self.named().values()]

    def named(self) -> dict[str, list[int]]:
        """Return the bags of each name."""
        found: dict[str, list[int]] = {}
        for number, bag in self.bags.items():
            found.setdefault(bag.name, []).append(number)
        return found

    @property
    def first(self) -> int:
        """Return when the first bag was submitted."""
        return min((bag.submitted for bag in self.bags.values()), default=0)

    @property
    def last(self) -> int:
        """Return when the last attempt ended."""
        return max(self._columns[6], default=0)


class _Sums:
    """The sums over the attempts of some bags."""

    def __init__(self, heads: dict[int, BagRecord]) -> None:
        self._firsts = {bag: [first for _, first, _ in head.targets] for bag, head in heads.items()}
        self._times = {bag: [at for _, _, at in head.targets] for bag, head in heads.items()}
        self.attempts = self.accepted = self.real = self.redundant = self.queued = self.longest = 0
        self.outcomes = [0] * len(OUTCOMES)
        self.sites: dict[str, tuple[int, int, int]] = {}

    def add(self, attempt: AttemptRecord, pilot: PilotRecord | None) -> None:
        wall = attempt.end - attempt.start if attempt.start >= 0 else 0
        self.attempts += 1
        self.outcomes[attempt.outcome] += 1
        if attempt.counts:
            self.accepted += 1
            self.real += wall
            waited = max(0, attempt.start - self._could_start(attempt))
            self.queued += waited
            self.longest = max(self.longest, waited)
        else:
            self.redundant += wall
        site = pilot.site if pilot else ""
        n, accepted, walls = self.sites.get(site, (0, 0, 0))
        self.sites[site] = (n + 1, accepted + attempt.counts, walls + wall)

    def counts_by_outcome(self) -> dict[str, int]:
        return {name: self.outcomes[code] for code, name in enumerate(OUTCOMES) if self.outcomes[code]}

    def by_site(self) -> list[dict[str, Any]]:
        """Return the sums of each site, the site with the most attempts first."""
        ordered = sorted(self.sites.items(), key=lambda item: (-item[1][0], item[0]))
        return [{"name": name, "attempts": n, "accepted": ok, "wall": wall} for name, (n, ok, wall) in ordered]

    def _could_start(self, attempt: AttemptRecord) -> int:
        """Return when the task could start: at the bag's submission, or at the grant if it waited for other tasks."""
        at = self._times[attempt.bag][bisect_right(self._firsts[attempt.bag], attempt.task) - 1]
        return at if at >= 0 else attempt.granted


def _start(reported: int, granted: int, guess: int) -> int:
    """Return the start that the pilot reported; if it reported none, `guess`, but not before the grant.

    0 means no report, except for an attempt that was granted at 0.
    """
    return reported if reported or not granted else max(granted, guess)


def _span(end: f.End, at: int, begun: int | None) -> tuple[int, int]:
    """Return when the attempt started and ended, as far as the server knows; -1 for an unknown start."""
    if end.wall:
        start = _start(end.start, end.granted, at - end.wall)
        return start, start + end.wall
    start = end.start or (begun if begun is not None else -1)
    return start, at
