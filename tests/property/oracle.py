"""The oracle: it judges the promises from outside the core, by durable facts, acknowledgements and what really ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from windfall.core.invariants.history import Witness
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, O_LOST, SUCCEEDED, TASK_STATES
from windfall.core.state.world import State

Ref = tuple[int, int, int]  # bag, task, generation


class Oracle:
    def __init__(self) -> None:
        self.witness = Witness()  # sees durable facts only
        self.generation: Counter[tuple[int, int]] = Counter()
        self.meant: dict[int, Ref] = {}  # attempt → what it was granted for
        self.given_up: dict[int, str] = {}  # attempt → why the server lost it
        self.first_lost: dict[int, str] = {}  # and why when it did so first
        self.ended: dict[Ref, str] = {}  # cancelled, removed: no result is wanted any more
        self.removed: dict[int, None] = {}
        self.external: dict[int, bool] = {}
        self.shapes: dict[int, list[f.TargetShape]] = {}
        self.running: dict[Ref, dict[int, None]] = {}  # what really runs now
        self.succeeded: dict[int, None] = {}  # attempts that really did
        self.done: dict[Ref, list[Callable[[], bool]]] = {}  # successes: does their pilot live?
        self.left: dict[Ref, tuple[int, Callable[[], bool]]] = {}  # successes on a site's disk: are they still there?
        self.failed: Counter[Ref] = Counter()  # executions that really did
        self.lies: list[str] = []
        self.calm = False  # nothing keeps sites from being looked through
        self.submitted: dict[str, tuple[int, int]] = {}  # acknowledged: key → (bag, tasks)
        self.appended: dict[str, tuple[int, int, int]] = {}  # key → (bag, first, count)
        self.named: dict[tuple[str, str], tuple[int, int]] = {}  # (site, nonce) of a pilot for one task → that task
        self.of_pilot: dict[int, tuple[str, str]] = {}
        self.told: dict[int, None] = {}  # bags whose tasks go to pilots that name them, and to no others
        self.over: dict[tuple[int, int], bool] = {}  # tasks → do they go to their bag's fail-over site now?
        self.fail_over: dict[int, tuple[str, str]] = {}  # bag → that site, and whose the bag is
        self.sites: dict[str, dict[str, Any]] = {}  # what is said of sites

    # --- facts that reached the disk -----------------------------------------------------------------------------

    def observe(self, facts: Iterable[f.Fact]) -> None:
        facts = list(facts)
        for fact in facts:
            if isinstance(fact, f.Granted):
                for group in fact.groups:
                    self._bound(fact.pilot, group)
                    self._strays(fact.pilot, group)
                    for attempt, task in zip(group.attempts, group.tasks, strict=True):
                        self.meant[attempt] = (group.bag, task, self.generation[group.bag, task])
            elif isinstance(fact, f.TasksRetried):
                for first, count in fact.runs:
                    self.generation.update((fact.bag, task) for task in range(first, first + count))
                    self.over.update(((fact.bag, task), False) for task in range(first, first + count))
            elif isinstance(fact, f.TasksCancelled):
                for first, count in fact.runs:
                    for task in range(first, first + count):
                        self.ended[fact.bag, task, self.generation[fact.bag, task]] = "cancelled"
            elif isinstance(fact, f.BagRemoved):
                self.removed[fact.bag] = None
            elif isinstance(fact, f.BagSubmitted):
                self.external[fact.bag] = fact.external
                self.fail_over[fact.bag] = fact.fail_over, fact.owner
                if fact.provision in ("msr", "broker"):
                    self.told[fact.bag] = None
                self.shapes[fact.bag] = fact.targets
            elif isinstance(fact, f.PilotEnrolled):
                self.of_pilot[fact.pilot] = (fact.site, fact.nonce)
            elif isinstance(fact, f.IntentsMade):
                self.named.update(((fact.site, i.nonce), (i.bag, i.task)) for i in fact.intents if i.task >= 0)
            elif isinstance(fact, f.SiteAdded | f.SiteDrained | f.SiteJudged | f.SiteNoted):
                self._note_site(fact)
            elif isinstance(fact, f.Finished):
                for attempt in fact.attempts:
                    self._believed(attempt)
            elif isinstance(fact, f.Ended):
                for end in fact.ends:
                    self._ended(end)
        self.witness.observe(facts)

    def _bound(self, pilot: int, group: f.Group) -> None:
        """Check that a pilot started for one task is granted that task only, and such a task only to its own pilots."""
        mine = self.named.get(self.of_pilot[pilot])
        if (mine is not None or group.bag in self.told) and mine not in [(group.bag, task) for task in group.tasks]:
            self.lies.append(f"rule 6: pilot {pilot}, which is for {mine}, was granted {group.bag}/{group.tasks}")

    def _note_site(self, fact: f.SiteAdded | f.SiteDrained | f.SiteJudged | f.SiteNoted) -> None:
        site = self.sites.setdefault(fact.name if isinstance(fact, f.SiteAdded) else fact.site, {})
        if isinstance(fact, f.SiteAdded):
            site["owners"] = [fact.owner, *fact.shared]
            site["limits"] = fact.limits or site.get("limits")
        elif isinstance(fact, f.SiteNoted):
            site["forsaken"] = site.get("forsaken") or "they go anywhere" in fact.says
        else:
            site["away"] = fact.on if isinstance(fact, f.SiteDrained) else fact.suspect

    def _strays(self, pilot: int, group: f.Group) -> None:
        """Check that failing tasks go to the fail-over site of their bag, and other tasks anywhere (G11)."""
        if any(self.over.get((group.bag, task), False) != group.to_fail_over_site for task in group.tasks):
            self.lies.append(
                f"G11: {group.bag}/{group.tasks} were granted as over={group.to_fail_over_site}, and are not"
            )
        (name, owner), (at, _) = self.fail_over[group.bag], self.of_pilot[pilot]
        if not group.to_fail_over_site or name == at:
            return
        site, shape = self.sites[name], self.shapes[group.bag][group.target]
        limits = site.get("limits")
        plain = shape.cores == 1 == shape.nodes and not (shape.whole or shape.memory or shape.disk or shape.limit)
        if group.bag in self.told if limits is None else not plain or limits.budget:
            return  # no pilot there may be able to hold the task
        if owner in site["owners"] and not site.get("away") and not site.get("forsaken"):
            self.lies.append(f"G11: {group.bag}/{group.tasks} keep failing, and were granted at {at}, not at {name}")

    def _ended(self, end: f.End) -> None:
        if end.outcome == O_LOST:
            self.given_up[end.attempt] = end.why
            self.first_lost.setdefault(end.attempt, end.why)
        if end.decides and end.verdict == SUCCEEDED:
            self._believed(end.attempt)
        ref = (end.bag, end.task, end.generation)
        if self.generation[end.bag, end.task] == end.generation:
            self.over[end.bag, end.task] = end.to_fail_over_site
        charged = end.failures + end.time_retries + end.memory_retries
        if self.generation[end.bag, end.task] == end.generation and charged > self.failed[ref]:
            self.lies.append(f"cost: task {ref} is charged {charged} failures, {self.failed[ref]} happened")

    def _believed(self, attempt: int) -> None:
        if attempt not in self.succeeded:
            self.lies.append(f"P1: attempt {attempt} never succeeded, but the server says so")

    # --- what really happened ------------------------------------------------------------------------------------

    def really(self, attempt: int, outcome: str, alive: Callable[[], bool]) -> None:
        if outcome == "succeeded":
            self.succeeded[attempt] = None
            self.done.setdefault(self.meant[attempt], []).append(alive)
        elif outcome == "failed" and attempt in self.meant:
            self.failed[self.meant[attempt]] += 1

    def kept(self, reports: Iterable[dict[str, object]], there: Callable[[], bool]) -> None:
        """Note that a pilot died and left these reports on its site's disk."""
        for report in reports:
            attempt: int = report["a"]  # type: ignore[assignment]
            if report.get("o", "succeeded") == "succeeded" and attempt in self.meant:
                self.left[self.meant[attempt]] = attempt, there

    # --- what the outside saw ------------------------------------------------------------------------------------

    def answered(self, reports: Iterable[dict[str, object]]) -> list[str]:
        """Check the reports of a request that the server has answered: each success is accepted by now, or unwanted."""
        said = []
        for report in reports:
            ref = self.meant.get(report["a"])  # type: ignore[call-overload]
            if report.get("o", "succeeded") != "succeeded":
                continue
            if ref is None:
                said.append(f"P2: attempt {report['a']} was answered, but no grant of it is on the disk")
            elif not self._settled(ref):
                said.append(f"P2: the success of attempt {report['a']} (task {ref}) was acknowledged and is lost")
        return said

    def _settled(self, ref: Ref) -> bool:
        bag, task, generation = ref
        stale = self.generation[bag, task] > generation
        return stale or ref in self.witness.accepted or ref in self.ended or bag in self.removed

    def starts(self, attempt: int) -> list[str]:
        """Check that this attempt may start."""
        said = []
        ref = self.meant.get(attempt)
        if ref is None:
            return [f"P2: attempt {attempt} runs, but no grant of it is on the disk"]
        if self.given_up.get(attempt) == "lease":
            said.append(f"rule 8: attempt {attempt} starts after the server gave it up for its lease")
        others = self.running.setdefault(ref, {})
        if self.external.get(ref[0]) and others:
            said.append(f"P1: attempt {attempt} of {ref}, with external effects, starts while {list(others)} runs")
        attempt_left, there = self.left.get(ref, (0, bool))
        if self.calm and there() and self.first_lost.get(attempt_left) == "gone":
            said.append(f"S5: {ref} runs again, and its result lies where attempt {attempt_left} was lost")
        if self.external.get(ref[0]) and any(alive() for alive in self.done.get(ref, ())):
            said.append(f"P1: {ref} runs again, its effects are external, and the pilot that did it lives to tell")
        others[attempt] = None
        return said

    def stops(self, attempt: int) -> None:
        ref = self.meant.get(attempt)
        if ref is not None:
            self.running.get(ref, {}).pop(attempt, None)

    def check(self, state: State) -> list[str]:
        """Return the broken promises so far; every bag and append that a client was acknowledged must be there."""
        said = list(self.lies)
        for key, (bag, tasks) in self.submitted.items():
            if bag in self.removed:
                continue
            if bag not in state.bags or state.bags[bag].key != key or state.bags[bag].size < tasks:
                said.append(f"P2: bag {bag} was acknowledged under {key} and is not there")
        for key, (bag, first, count) in self.appended.items():
            if bag not in self.removed and (bag not in state.bags or state.bags[bag].size < first + count):
                said.append(f"P2: tasks {first}+{count} were appended to bag {bag} under {key} and are not there")
        return said

    def final(self, state: State) -> list[str]:
        """Return the tasks that have not ended although all faults are healed and much time has passed."""
        said = []
        for bag in state.bags.values():
            for task in range(bag.size):
                if bag.tasks.state[task] < FIRST_FINAL:
                    where = TASK_STATES[bag.tasks.state[task]]
                    said.append(f"P4: task {bag.number}/{task} waits for ever ({where})")
        return said


