"""The handover: output files of tasks, for the later tasks that take them (`Bag.flows`).

Rules
  * The journal records a task's output files with its success.  The handover caches those of the latest successes.  It
    listens to commits before any effect is released, so that the tasks after them can be granted in the same step.
  * The handover asks the views for files that are not cached, after a restart or in a very large bag.  Until the views
    answer, responses leave out the grants that need these files; the core resends them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.core.state.world import BagState
from windfall.errors import Unavailable
from windfall.server.dataflow.flows import File
from windfall.server.http.server import log
from windfall.server.views.projector import Projector
from windfall.server.writer import Writer

KEPT = 500_000  # tasks whose files are cached
AGAIN_S = 1.0


class Handover:
    def __init__(self, writer: Writer, projector: Projector) -> None:
        self._writer, self._projector = writer, projector
        self._kept: OrderedDict[tuple[int, int], list[File]] = OrderedDict()
        self.hands: Callable[[Any], bool] = lambda bag: False  # may an appended task take files of this bag's tasks?
        self._missing: dict[int, set[int]] = {}
        self._busy: dict[int, asyncio.Task[None]] = {}

    def commit(self, position: int, at: int, facts: list[f.Fact]) -> None:
        for fact in facts:
            if isinstance(fact, f.Finished):
                for place, detail in fact.details.items():
                    self._note(fact.bag, fact.tasks[place], detail)
            elif isinstance(fact, f.Ended):
                for end in fact.ends:
                    if end.decides and end.verdict == SUCCEEDED and end.detail is not None:
                        self._note(end.bag, end.task, end.detail)

    def _note(self, bag: int, task: int, detail: f.Detail) -> None:
        state = self._writer.state.bags.get(bag)
        if detail.files and state is not None and (state.graph is not None or (state.open and self.hands(state))):
            self._kept[bag, task] = detail.files
            self._trim()

    def _trim(self) -> None:
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def stop(self) -> None:
        for task in self._busy.values():
            task.cancel()

    def files(self, bag: BagState, tasks: list[int]) -> dict[int, list[File]]:
        """Return the output files of each task; raise Unavailable while the views are asked."""
        found = {task: files for task in tasks if (files := self._kept.get((bag.number, task))) is not None}
        if len(found) < len(tasks):
            self._missing.setdefault(bag.number, set()).update(task for task in tasks if task not in found)
            self._begin(bag.number)
            raise Unavailable("the files of earlier tasks are being looked up", "try again in a moment",
                              retry_after=AGAIN_S)
        return found

    def _begin(self, number: int) -> None:
        if number not in self._busy and not self._writer.closed:
            self._busy[number] = task = asyncio.get_running_loop().create_task(self._look_up(number))
            task.add_done_callback(lambda _: self._busy.pop(number))

    async def _look_up(self, number: int) -> None:
        while wanted := self._missing.pop(number, None):
            try:
                found = await self._projector.ask(partial(_left_by, bag=number, tasks=sorted(wanted)))
            except Exception as error:  # the core resends the grants, which start the next query
                log.error("cannot look up the output files of earlier tasks of bag %d: %s", number, error)
                return
            self._trim()  # before adding: one grant needs all files of this query together
            for task, files in found:
                self._kept[number, task] = files


def _left_by(views: Any, bag: int, tasks: list[int]) -> list[tuple[int, list[File]]]:
    found = []
    for task in tasks:
        rows = views.results(bag, task - 1, 1, "succeeded")
        if rows and rows[0].task == task:
            found.append((task, rows[0].files))
    return found
