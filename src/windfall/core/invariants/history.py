"""Promises about history: a witness watches the facts go by, and remembers what the state need not.

`Witness.broken` collects the sentences of the promises that facts broke: P1 (one result), P5 (inputs before a grant),
T7 (batches), T8 (pipelines), Y (prerequisites), and the rules 7 and 8 of docs/explanation/testing-under-faults.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, O_SUCCEEDED, SUCCEEDED
from windfall.core.state.graph import as_pairs


class GrantedTask(NamedTuple):
    """The pilot that holds an attempt, and the task and generation that it was granted for."""

    pilot: int
    bag: int
    task: int
    generation: int


class Witness:
    """Remembers which results were accepted, and which pilot was granted each attempt."""

    def __init__(self) -> None:
        self.accepted: dict[tuple[int, int, int], int] = {}  # (bag, task, generation) → attempt
        self.generation: Counter[tuple[int, int]] = Counter()
        self.granted: dict[int, GrantedTask] = {}  # by attempt
        self.takes: dict[int, bool] = {}  # pilot → may be granted something
        self.newest: dict[tuple[str, str], int] = {}
        self.saved: dict[tuple[int, int], list[tuple[str, str, int, int]]] = {}  # task → its newest checkpoint
        self.held: set[tuple[int, int]] = set()  # (bag, target) whose files have not been gathered
        self.batches: dict[tuple[int, int], BatchHistory] = {}
        self.before: dict[tuple[int, int], list[int]] = {}  # task → tasks that it waits for, of bags that are `ordered`
        self.ordered: set[int] = set()
        self.suspects: set[str] = set()
        self.broken: list[str] = []

    def observe(self, facts: Iterable[f.Fact]) -> None:
        for fact in facts:
            note = _NOTES.get(type(fact))
            if note is not None:
                note(self, fact)

    # --- bags --------------------------------------------------------------------------------------------------

    def note_submission(self, fact: f.BagSubmitted) -> None:
        self.held.update((fact.bag, place) for place, shape in enumerate(fact.targets) if shape.gathers)
        first = 0
        # else what is read may be lost again
        if fact.data is None and all(shape.previous_stage < 0 for shape in fact.targets):
            self.ordered.add(fact.bag)
        self._note_edges(fact.bag, fact.edges)
        for place, shape in enumerate(fact.targets):
            batches = self.batches[fact.bag, place] = BatchHistory(shape, fact.open)
            batches.grow(first, shape.count)
            first += shape.count

    def note_append(self, fact: f.TasksAppended) -> None:
        self.batches[fact.bag, fact.target].grow(fact.first, fact.count)

    def note_part(self, fact: f.PartAppended) -> None:
        first = fact.first
        self._note_edges(fact.bag, fact.edges)
        for target, count in fact.pieces:
            self.batches[fact.bag, target].grow(first, count)
            first += count

    def _note_edges(self, bag: int, edges: bytes) -> None:
        for before, after in as_pairs(edges).tolist() if bag in self.ordered else ():
            self.before.setdefault((bag, after), []).append(before)

    def note_close(self, fact: f.BagClosed) -> None:
        for (number, _), batches in self.batches.items():
            batches.open = batches.open and number != fact.bag

    def note_release(self, fact: f.BatchReleased) -> None:
        self.batches[fact.bag, fact.target].released = fact.count

    def note_inputs(self, fact: f.InputsGathered) -> None:
        self.held.discard((fact.bag, fact.target))

    def note_cancelled(self, fact: f.TasksCancelled) -> None:
        for first, count in fact.runs:
            for task in range(first, first + count):
                self.saved.pop((fact.bag, task), None)

    def note_retried(self, fact: f.TasksRetried) -> None:
        for first, count in fact.runs:
            self.generation.update((fact.bag, task) for task in range(first, first + count))

    # --- sites and pilots --------------------------------------------------------------------------------------

    def note_site(self, fact: f.SiteJudged) -> None:
        (self.suspects.add if fact.suspect else self.suspects.discard)(fact.site)

    def check_intents(self, fact: f.IntentsMade) -> None:
        if fact.site in self.suspects:
            self.broken.append(f"rule 7: {fact.site} does not answer, and more is to be sent there")

    def note_pilot(self, fact: f.PilotEnrolled) -> None:
        self.takes[fact.pilot] = True
        self.takes[self.newest.get((fact.site, fact.nonce), 0)] = False
        self.newest[fact.site, fact.nonce] = fact.pilot

    def note_leaving(self, fact: f.PilotDraining | f.PilotEnded) -> None:
        self.takes[fact.pilot] = False

    # --- grants ------------------------------------------------------------------------------------------------

    def check_grant(self, fact: f.Granted) -> None:
        if not self.takes.get(fact.pilot):
            self.broken.append(f"rule 8: pilot {fact.pilot} was granted work after its epoch was over")
        given = Counter((group.bag, task) for group in fact.groups for task in group.tasks)
        self.broken += [f"P1: task {bag}/{task} was granted {n} times in one answer"
                        for (bag, task), n in given.items() if n > 1]
        for group in fact.groups:
            if (group.bag, group.target) in self.held:
                self.broken.append(f"P5: target {group.target} of bag {group.bag} was granted before its files")
            self.broken += self.batches[group.bag, group.target].problems(group)
            self.broken += self._granted_before_stage(fact, group)
            self.broken += self._granted_before_prerequisites(group)
            self._note_granted(fact.pilot, group)

    def _note_granted(self, pilot: int, group: f.Group) -> None:
        for attempt, task in zip(group.attempts, group.tasks, strict=True):
            if attempt in self.granted:
                self.broken.append(f"P1: attempt {attempt} was granted twice")
            self.granted[attempt] = GrantedTask(pilot, group.bag, task, self.generation[group.bag, task])

    def _granted_before_prerequisites(self, group: f.Group) -> list[str]:
        return [
            f"Y: task {group.bag}/{task} was granted before {before} had succeeded"
            for task in group.tasks for before in self.before.get((group.bag, task), ())
            if (group.bag, before, self.generation[group.bag, before]) not in self.accepted
        ]

    def _granted_before_stage(self, fact: f.Granted, group: f.Group) -> list[str]:
        """Stages of a pipeline: the one before is done, or goes along to the same pilot (T8)."""
        stage = self.batches[group.bag, group.target]
        if stage.behind < 0:
            return []
        before = list(self.batches[group.bag, stage.behind].tasks)
        along = {number: task for other in fact.groups if (other.bag, other.target) == (group.bag, stage.behind)
                 for number, task in zip(other.attempts, other.tasks, strict=True)}
        broken = []
        for place, task in enumerate(group.tasks):
            needs = before[stage.tasks[task]]
            done = (group.bag, needs, self.generation[group.bag, needs]) in self.accepted
            if not done and not (group.prerequisites and along.get(group.prerequisites[place]) == needs):
                broken.append(f"T8: task {group.bag}/{task} was granted, and the stage before it was not")
        return broken

    def note_adopted(self, fact: f.Adopted) -> None:
        for attempt in fact.attempts:
            self.granted[attempt] = self.granted[attempt]._replace(pilot=fact.pilot)

    # --- results -----------------------------------------------------------------------------------------------

    def check_finished(self, fact: f.Finished) -> None:
        for attempt, task in zip(fact.attempts, fact.tasks, strict=True):
            result = GrantedTask(fact.pilot, fact.bag, task, self.generation[fact.bag, task])
            self._accept(attempt, result)
            self.saved.pop((fact.bag, task), None)

    def check_ended(self, fact: f.Ended) -> None:
        for end in fact.ends:
            self._note_saved(end)
            if not end.decides or end.verdict != SUCCEEDED:
                continue
            if end.outcome == O_SUCCEEDED:
                self._accept(end.attempt, GrantedTask(fact.pilot, end.bag, end.task, end.generation))
            else:
                self.broken.append(f"P1: task {end.bag}/{end.task} succeeded without a success")

    def _note_saved(self, end: f.End) -> None:
        if end.generation != self.generation[end.bag, end.task]:
            return
        if end.verdict >= FIRST_FINAL or end.why == "input":
            self.saved.pop((end.bag, end.task), None)
        elif end.detail is not None and end.detail.saved:
            self.saved[end.bag, end.task] = end.detail.saved

    def _accept(self, attempt: int, result: GrantedTask) -> None:
        pilot, bag, task, generation = result
        if (bag, task, generation) in self.accepted:
            self.broken.append(f"P1: task {bag}/{task} has two results in generation {generation}")
        if generation != self.generation[bag, task]:
            self.broken.append(f"P1: task {bag}/{task} took a result of generation {generation}, which is over")
        if self.granted.get(attempt) != result:
            self.broken.append(f"P1: attempt {attempt} of pilot {pilot} was never granted for task {bag}/{task}")
        self.accepted[bag, task, generation] = attempt


class BatchHistory:
    """The batches of a target, as the facts have told them (T7)."""

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
        broken = []
        if places[-1] >= full:
            broken.append(f"T7: task {group.bag}/{group.tasks[-1]} was granted before its batch was full")
        if places != sorted(places) or places[0] // self.size != places[-1] // self.size or group.chain < 0:
            broken.append(f"T7: tasks {group.tasks} of bag {group.bag} were granted together, and are not one batch")
        return broken


_NOTES: dict[type, Callable[[Witness, Any], None]] = {
    f.BagSubmitted: Witness.note_submission, f.TasksAppended: Witness.note_append, f.PartAppended: Witness.note_part,
    f.BagClosed: Witness.note_close, f.BatchReleased: Witness.note_release, f.InputsGathered: Witness.note_inputs,
    f.TasksCancelled: Witness.note_cancelled, f.TasksRetried: Witness.note_retried, f.SiteJudged: Witness.note_site,
    f.IntentsMade: Witness.check_intents, f.PilotEnrolled: Witness.note_pilot, f.PilotDraining: Witness.note_leaving,
    f.PilotEnded: Witness.note_leaving, f.Granted: Witness.check_grant, f.Adopted: Witness.note_adopted,
    f.Finished: Witness.check_finished, f.Ended: Witness.check_ended,
}
