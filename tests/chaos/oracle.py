"""The oracle: an independent client that submits work and writes down every acknowledgement.

Acknowledged facts must still be true at the end.  The oracle shares no state with the server: afterwards it reads the
journal's rows and counts accepted results itself.  Where flushes are counted, each acknowledgement must have had one
between request and answer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from windfall import Client
from windfall.errors import WindfallError
from windfall.model.spec import Bag, Items, Lines, Target

from .flushes import Flushes

SUCCEEDED, TASK_SUCCEEDED = 0, 4  # as they stand in the journal; written out, so that a change there is noticed


class Oracle:
    def __init__(
        self, profile: dict[str, str], tasks: int, each: int = 100, flushes: Flushes | None = None
    ) -> None:
        self.profile = profile
        self.flushes = flushes
        self.acknowledgements = 0
        self.total = tasks
        self.each = each
        self.acknowledged = 0  # tasks the server said it has
        self.seen: dict[int, int] = {}  # task → attempt of the result we were shown
        self.contradictions: list[str] = []
        self.bag = 0
        self.done = threading.Event()
        self.failure: BaseException | None = None

    def start(self) -> None:
        for work in (self.submit, self._watch):
            threading.Thread(target=self._guard, args=(work,), daemon=True).start()

    def _guard(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.failure = error
            self.done.set()

    def submit(self) -> None:
        """An open bag, appended to piece by piece; each piece under its own key, sent until acknowledged."""
        target = Target(source=Items(items=[]), retries=100, time=20_000)
        bag = Bag(name="chaos", open=True, targets=[target])
        self.bag = self._insist(lambda c: c.submit(bag, key="chaos-bag"))
        for first in range(0, self.total, self.each):
            lines = [command(task) for task in range(first, first + self.each)]
            source = Lines(text="\n".join(lines), count=len(lines))
            answer = self._insist(lambda c, s=source, f=first: c.append(self.bag, s, key=f"chaos-{f}"))
            if answer["first"] != first or answer["count"] != len(lines):
                self.contradictions.append(f"append of {first} was answered {answer}")
            self.acknowledged = first + len(lines)
            time.sleep(0.01)
        self._insist(lambda c: c.close_bag(self.bag))

    def _insist(self, ask: Any) -> Any:
        """Ask until it is acknowledged; what changes something is acknowledged only once it is flushed."""
        before = self.flushes.count() if self.flushes else 0
        answer = self._asked(ask)
        self.acknowledgements += 1
        if self.flushes and self.flushes.count() == before:
            self.contradictions.append(f"P2: acknowledged before anything was flushed: {answer}")
        return answer

    def _asked(self, ask: Any) -> Any:
        while True:
            try:
                with Client(self.profile, patience=0) as client:
                    return ask(client)
            except (WindfallError, OSError):
                time.sleep(0.1)

    def _watch(self) -> None:
        while not self.bag:
            time.sleep(0.01)
        position = 0
        while True:
            try:
                with Client(self.profile, patience=0) as client:
                    for update in client.watch(self.bag, position, rows=True):
                        position = update.get("position", position)
                        self._note(update.get("rows", ()))
                        if update.get("done"):
                            self.done.set()
                            return
            except (WindfallError, OSError):
                time.sleep(0.1)

    def _note(self, rows: Any) -> None:
        for row in rows:
            if row["state"] == "succeeded" and row["outcome"] == "succeeded":
                before = self.seen.setdefault(row["task"], row["attempt"])
                if before != row["attempt"]:
                    self.contradictions.append(f"task {row['task']}: first attempt {before}, then {row['attempt']}")


def command(task: int) -> str:
    """Return a command: most are instant, some long enough to be killed."""
    if task % 50 == 7:
        return f"sleep 0.2; echo {task}"
    if task % 10 == 3:
        return f"sleep 0.05; echo {task}"
    return f"/bin/echo {task}"


def accepted_in_journal(home: Path, bag: int) -> Counter[tuple[int, int]]:
    """Count how often each (task, generation) was accepted as succeeded, from the journal's facts.

    A second acceptance of a task counts, too; a retry by the user opens a new generation.
    """
    from windfall.core.messages import facts as f
    from windfall.store import codec
    from windfall.store.journal import Journal

    journal = Journal.open(home / "journal.db")
    try:
        return count_accepted((fact for _, _, body in journal.read(0) for fact in codec.decode(body)), bag, f)
    finally:
        journal.close()


def count_accepted(facts: Iterable[Any], bag: int, f: Any) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    generation: Counter[int] = Counter()
    for fact in facts:
        if isinstance(fact, f.TasksRetried) and fact.bag == bag:
            generation.update(task for first, count in fact.runs for task in range(first, first + count))
        elif isinstance(fact, f.Finished) and fact.bag == bag:
            counts.update((task, generation[task]) for task in fact.tasks)
        elif isinstance(fact, f.Ended):
            counts.update((end.task, end.generation) for end in fact.ends if end.bag == bag and accepts(end))
    return counts


def accepts(end: Any) -> bool:
    """Did this end of an attempt make its task succeed?"""
    return end.outcome == SUCCEEDED and end.verdict == TASK_SUCCEEDED and end.decides
