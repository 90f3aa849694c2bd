"""The gatherer: output files of one target become inputs of another (`{main.outputs}`).

Rules
  * A target is done only when all its tasks have succeeded, and a success is final.  So the journal alone determines a
    target's output files.  The gatherer asks the views for them, and the views answer only once they have folded in
    the commit that ended the target.  The lists are not journaled; the gatherer makes them again after a restart.
  * The core holds the tasks back until their files are listed.  After a restart, grants wait for the lists.
  * A file lies at `main/INDEX/PATH`, where INDEX is its task's number within its target.  The file `main.outputs` lists
    all these paths, one per line, in the order of tasks.
  * Too many files, or a command too long for any system, end the tasks at once, with a note about what to do.
  * The gatherer repeats any other failure, at growing intervals, while the bag exists: no other code would.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from windfall.core.messages import events
from windfall.core.messages.facts import Fact
from windfall.core.state.world import BagState
from windfall.data.blobs import Blobs
from windfall.errors import BadInput, Unavailable
from windfall.model.templates.template import taken_path
from windfall.server.grants import Renderings
from windfall.server.http.server import log
from windfall.server.views import rows
from windfall.server.views.projector import Projector
from windfall.server.writer import Writer

MAX_FILES = 100_000  # inputs of one task
MAX_COMMAND = 128 << 10  # bytes
KEPT_FILES = 1_000_000  # cached, of all targets together; others are gathered again on demand
PAGE = 1_000
AGAIN_S = 1.0
AGAIN_MOST_S = 60.0

File = tuple[str, str, int, int]  # path, blob, size, mode


class TargetOutputs(NamedTuple):
    """The output files that the tasks of one target take."""

    paths: dict[str, list[str]]  # by the producing target
    inputs: list[File]
    blobs: set[str]  # of the inputs, for quick look-ups


class Gatherer:
    """`commit` listens to the writer; the renderings call `find`."""

    def __init__(
        self, writer: Writer, projector: Projector, renderings: Renderings, blobs: Callable[[], Blobs]
    ) -> None:
        self._writer = writer
        self._projector = projector
        self._renderings = renderings
        self._blobs = blobs
        self._kept: OrderedDict[tuple[int, int], TargetOutputs] = OrderedDict()
        self._files = 0  # of all that is kept
        self._busy: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._interested = {bag.number for bag in writer.state.bags.values() if _gathers(bag)}

    def start(self) -> None:
        """Gather again after a restart: tasks that take the files may be granted already."""
        for number in self._interested:
            for target in self._writer.state.bags[number].targets:
                if target.shape.gathers and not target.pending and target.not_ended:
                    self._begin(number, target.index)

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        for number in rows.touched(facts):
            bag = self._writer.state.bags.get(number)
            if bag is None:
                self._forget(number)
            elif number in self._interested or (bag.targets[-1].index and _gathers(bag)):
                self._interested.add(number)
                self._begin_ready(number)

    def stop(self) -> None:
        for task in self._busy.values():
            task.cancel()

    def list_blobs(self) -> set[str]:
        """Return the blobs of the lists `NAME.outputs`, which no bag or result names."""
        return {file[1] for taken in self._kept.values() for file in taken.inputs if file[0].endswith(".outputs")}

    def find(self, bag: BagState, target: int) -> TargetOutputs:
        """Return the output files that a target takes; raise Unavailable while they are being gathered."""
        taken = self._kept.get((bag.number, target))
        if taken is None:
            self._begin(bag.number, target)
            raise Unavailable("the files of earlier tasks are being gathered", "try again in a moment",
                              retry_after=AGAIN_S)
        self._kept.move_to_end((bag.number, target))
        return taken

    # --- when ----------------------------------------------------------------------------------------------------

    def _begin_ready(self, number: int) -> None:
        bag = self._writer.state.bags[number]
        for target in bag.targets:
            if target.inputs_pending and not target.pending and target.not_ended:
                self._begin(number, target.index)

    def _begin(self, number: int, target: int) -> None:
        place = (number, target)
        if place not in self._busy and not self._writer.closed:
            task = asyncio.get_running_loop().create_task(self._gather(*place))
            self._busy[place] = task
            task.add_done_callback(lambda _: self._busy.pop(place))

    def _forget(self, number: int) -> None:
        self._interested.discard(number)
        for place in [place for place in self._kept if place[0] == number]:
            self._files -= len(self._kept.pop(place).inputs)

    # --- how -----------------------------------------------------------------------------------------------------

    async def _gather(self, number: int, target: int) -> None:
        wait = AGAIN_S
        while (bag := self._writer.state.bags.get(number)) is not None and not self._writer.closed:
            try:
                await self._deliver(bag, target)
                return
            except Exception as error:  # the target's tasks wait for nothing else
                log.error("the files for target %d of bag %d could not be gathered, next try in %d s: %r",
                          target, number, wait, error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, AGAIN_MOST_S)

    async def _deliver(self, bag: BagState, target: int) -> None:
        """Gather a target's files, keep them, and tell the core; end the target's tasks if they cannot be taken."""
        try:
            taken = await self._collect(bag, target)
        except BadInput as error:
            log.warning("bag %d: %s", bag.number, error)
            await self._writer.do(events.InputsGathered(0, bag.number, target, refused=str(error)))
            return
        if bag.number in self._writer.state.bags:
            self._keep((bag.number, target), taken)
            self._renderings.forget(bag.number)  # it may have the files that were taken before a rerun
            await self._writer.do(events.InputsGathered(0, bag.number, target))

    def _keep(self, place: tuple[int, int], taken: TargetOutputs) -> None:
        if (old := self._kept.pop(place, None)) is not None:
            self._files -= len(old.inputs)
        self._kept[place] = taken
        self._files += len(taken.inputs)
        while len(self._kept) > 1 and self._files > KEPT_FILES:
            self._files -= len(self._kept.popitem(last=False)[1].inputs)

    async def _collect(self, bag: BagState, target: int) -> TargetOutputs:
        rendering = self._renderings.of(bag)
        names = [each.name for each in rendering.spec.targets]
        taken = TargetOutputs({}, [], set())
        for name in rendering.spec.targets[target].takes:
            upstream = names.index(name)
            makes = bool(rendering.spec.targets[upstream].outputs)
            files = await self._projector.ask(partial(_outputs, bag=bag, target=upstream)) if makes else []
            _place(taken, name, files)
            if len(taken.inputs) > MAX_FILES:
                raise _too_many(name)
            body = "".join(f"{path}\n" for path in taken.paths[name]).encode()
            loop = asyncio.get_running_loop()
            sha = await loop.run_in_executor(None, _store, self._blobs, bag.owner, body)
            taken.inputs.append((f"{name}.outputs", sha, len(body), 0o644))
            taken.blobs.add(sha)
        _check_length(rendering.renderer(target).command(0, taken.paths), rendering.spec.targets[target].takes)
        return taken


def _gathers(bag: BagState) -> bool:
    return any(target.shape.gathers for target in bag.targets)


def _too_many(name: str) -> BadInput:
    return BadInput(f"with those of '{name}', a task would take more than {MAX_FILES} output files",
                    "let the earlier tasks write fewer, larger files, or merge them in two steps")


def _check_length(command: Any, takes: list[str]) -> None:
    words = [command] if isinstance(command, str) else command
    if sum(len(word.encode()) + 1 for word in words) > MAX_COMMAND:
        raise BadInput(f"the command is longer than {MAX_COMMAND >> 10} kB with the names of all output files in it",
                       f"read them, one path a line, from the file {takes[0]}.outputs beside them")


def _outputs(views: Any, bag: BagState, target: int) -> list[tuple[int, list[File]]]:
    """Return each task's number within its target and its files, in order; stop after MAX_FILES files."""
    found: list[tuple[int, list[File]]] = []
    count = 0
    for row in _rows(views, bag, target):
        found.append((bag.locate(row.task)[1], row.files))
        count += len(row.files)
        if count > MAX_FILES:
            break
    return sorted(found)


def _rows(views: Any, bag: BagState, target: int) -> Iterator[Any]:
    after = -1
    while page := views.results(bag.number, after, PAGE, "succeeded"):
        yield from (row for row in page if bag.target_of(row.task) == target)
        after = page[-1].task


def _place(taken: TargetOutputs, name: str, files: list[tuple[int, list[File]]]) -> None:
    paths = taken.paths[name] = []
    for index, made in files:
        for path, sha, size, mode in made:
            if not _harmless(path):
                raise BadInput(f"the output file {path[:100]!r} of '{name}' cannot become an input of another task",
                               "name it by a path below the task's directory, without control characters")
            paths.append(taken_path(name, index, path))
            taken.inputs.append((paths[-1], sha, size, mode))
            taken.blobs.add(sha)


def _harmless(path: str) -> bool:
    """Does the path lie below the task's directory, and fit on one line of a list?"""
    parts = PurePosixPath(path).parts
    return bool(parts) and path.isprintable() and not path.startswith("/") and ".." not in parts


def _store(blobs: Callable[[], Blobs], owner: str, body: bytes) -> str:
    return blobs().put(owner, body)
