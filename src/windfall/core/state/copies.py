"""Copies: what tasks leave behind, where it lies, how large it is, and whence an attempt fetches what it reads.

Theory
  * A *place* is a site's disk where its hosts share one, else a host; or home, where the server is, outside all sites.
  * A task reads files from outside (home, or any site where they were staged before) and what the tasks before it have
    left.  What a success leaves is a copy at its pilot's place; a fetched one that is kept is a further copy.
  * With a grant the core decides for every input that is not at the pilot's place from which copy it comes: the
    cheapest by what it knows of links, then the one that fewest others read.  These *moves* are counted until the
    attempt ends.
  * A copy is gone on evidence: somebody says that the place is lost, or an attempt could not fetch it.  Where the last
    one is gone and somebody still needs it, the task that made it runs again, as a new generation, so that nothing
    waits for ever (P4).
  * Bags that do not speak of data have none of this: `BagState.data` is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, SUCCEEDED
from windfall.core.state.columns import Table
from windfall.core.state.fields import CHUNKED, INDEX
from windfall.core.state.graph import Pairs

if TYPE_CHECKING:
    from windfall.core.state.world import BagState, PilotState, State

HOME = "home"
ANY = "*"
UNKNOWN_LINK = (200, 10_000_000)  # ms a file, bytes a second, where nobody has measured
OUTSIDE = -1  # in place of the task that made it


class Columns(Table):
    """Of a bag that speaks of data; beside its tasks."""

    LAYOUT = (
        ("reads", np.int64),  # bytes from outside
        ("leaves", np.int64),
        ("since", np.int64),  # when it became ready, if that was after its target did
        ("read_files", np.int32),
        ("leave_files", np.int32),
        ("place", np.int32),  # where what it left lies: number of a place, 0: nowhere
    )
    reads: memoryview
    leaves: memoryview
    since: memoryview
    read_files: memoryview
    leave_files: memoryview
    place: memoryview
    np_since: NDArray[np.int64]
    np_place: NDArray[np.int32]


class Input(NamedTuple):
    task: int  # that made it, or OUTSIDE
    size: int
    files: int


@dataclass(slots=True)
class BagData:
    columns: Columns = field(metadata=CHUNKED)
    staged: list[str]  # sites
    stays: bool
    keeps: bool
    more: dict[int, list[int]] = field(default_factory=dict)  # task → further places
    released: dict[int, int] = field(default_factory=dict)  # target → when its prerequisites were done
    # the tasks before each, as compressed rows
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64), metadata=INDEX)
    before: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32), metadata=INDEX)

    def inputs(self, task: int) -> list[Input]:
        c = self.columns
        found = [Input(OUTSIDE, c.reads[task], c.read_files[task])] if c.read_files[task] else []
        if task + 1 < len(self.starts):
            for made in self.before[self.starts[task] : self.starts[task + 1]].tolist():
                if c.leave_files[made]:
                    found.append(Input(made, c.leaves[made], c.leave_files[made]))
        return found

    def places(self, task: int) -> list[int]:
        """Where its output lies, the place where it was made first."""
        first = self.columns.place[task]
        return [first, *self.more.get(task, ())] if first else []

    def add(self, task: int, place: int) -> None:
        if not self.columns.place[task]:
            self.columns.place[task] = place
            self.columns.dirty[task >> 16] = 1
        elif place not in self.places(task):
            self.more.setdefault(task, []).append(place)

    def drop(self, task: int, place: int) -> None:
        left = [each for each in self.places(task) if each != place]
        self.more.pop(task, None)
        self.columns.place[task] = left[0] if left else 0
        self.columns.dirty[task >> 16] = 1
        if left[1:]:
            self.more[task] = left[1:]

    def forget(self, task: int) -> None:
        self.columns.place[task] = 0
        self.columns.dirty[task >> 16] = 1
        self.more.pop(task, None)


# --- of a bag -------------------------------------------------------------------------------------------------------


def bag_data(shape: f.DataShape, tasks: int) -> BagData:
    columns = Columns(tasks)
    for name, kind in (("reads", "<i8"), ("leaves", "<i8"), ("read_files", "<i4"), ("leave_files", "<i4")):
        given = np.frombuffer(getattr(shape, name), dtype=kind)
        if len(given):
            getattr(columns, "np_" + name)[:tasks] = given
            columns.mark(0, tasks - 1)
    return BagData(columns, list(shape.staged), shape.stays, shape.keeps)


def link_up(data: BagData, pairs: Pairs, tasks: int) -> None:
    """Work out which tasks come before each."""
    order = np.argsort(pairs[:, 1], kind="stable")
    data.starts = np.zeros(tasks + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs[:, 1], minlength=tasks), out=data.starts[1:])
    data.before = pairs[order, 0].astype(np.int32)


def wrong_with(shape: f.DataShape, tasks: int) -> str:
    """A sentence, if its columns are not as long as the bag, or hold what cannot be."""
    for name, kind in (("reads", "<i8"), ("leaves", "<i8"), ("read_files", "<i4"), ("leave_files", "<i4")):
        given = getattr(shape, name)
        if given and len(given) != tasks * np.dtype(kind).itemsize:
            return f"data: {name} has {len(given)} bytes for {tasks} tasks"
        if given and int(np.frombuffer(given, dtype=kind).min()) < 0:
            return f"data: {name} has a negative number"
    return ""


# --- places and links -------------------------------------------------------------------------------------------------


def place_of(state: State, pilot: PilotState) -> str:
    """Where what a pilot leaves lies."""
    site = state.sites.get(pilot.site)
    return f"site {pilot.site}" if site is not None and site.shared_disk else f"host {pilot.site} {pilot.host}"


def site_of(place: str) -> str:
    """A place's site; home is its own."""
    return place.split(" ", 2)[1] if " " in place else place


def number_of(state: State, place: str) -> int:
    number = state.places.get(place)
    if number is None:
        number = state.places[place] = len(state.place_names)
        state.place_names.append(place)
    return number


def transfer(state: State, source: str, dest: str, size: int, files: int) -> int:
    """ms that files take between two sites, by what is known of links."""
    links = state.links
    link = links.get((source, dest)) or links.get((dest, source)) or links.get((ANY, ANY)) or UNKNOWN_LINK
    return files * link[0] + size * 1000 // max(link[1], 1)


def sources(state: State, bag: BagState, item: Input) -> list[str]:
    """Places that have it."""
    assert bag.data is not None
    if item.task == OUTSIDE:
        return [HOME, *(f"site {name}" for name in bag.data.staged)]
    return [state.place_names[number] for number in bag.data.places(item.task)]


def is_at(bag: BagState, item: Input, places: list[str], place: str) -> bool:
    """Staged files are on every host of their site."""
    if item.task == OUTSIDE:
        return bag.data is not None and site_of(place) in bag.data.staged
    return place in places


# --- with a grant -----------------------------------------------------------------------------------------------------


def plan_transfers(state: State, pilot: PilotState, groups: list[f.Group]) -> list[f.Transfer]:
    """What the attempts of a grant have to fetch, and whence."""
    made: list[f.Transfer] = []
    place = ""
    for group in groups:
        bag = state.bags[group.bag]
        if bag.data is None:
            continue
        place = place or place_of(state, pilot)
        for attempt, task in zip(group.attempts, group.tasks, strict=True):
            for item in bag.data.inputs(task):
                found = sources(state, bag, item)
                if found and not is_at(bag, item, found, place):
                    best = min(found, key=lambda each: _cost(state, each, place, item))
                    made.append(f.Transfer(attempt, best, item.task, item.size, item.files))
    return made


def _cost(state: State, source: str, dest: str, item: Input) -> tuple[int, int]:
    return transfer(state, site_of(source), site_of(dest), item.size, item.files), state.readers_of.get(source, 0)


def note_transfers(state: State, made: list[f.Transfer]) -> None:
    for move in made:
        state.transfers_of.setdefault(move.attempt, []).append(move)
        state.readers_of[move.place] = state.readers_of.get(move.place, 0) + 1


def end_transfers(state: State, attempt: int) -> list[f.Transfer]:
    """The attempt is over: so are its transfers."""
    ended = state.transfers_of.pop(attempt, [])
    for move in ended:
        state.readers_of[move.place] -= 1
        if not state.readers_of[move.place]:
            del state.readers_of[move.place]
    return ended


def note_success(
    state: State, bag: BagState, task: int, pilot: PilotState, left: tuple[int, int] | None, fetched: list[f.Transfer]
) -> None:
    """What a success leaves lies at its pilot's place from now on; what it fetched, too, where that is kept."""
    data = bag.data
    assert data is not None
    if left is not None:
        data.columns.leaves[task], data.columns.leave_files[task] = left
        data.columns.dirty[task >> 16] = 1
    here = number_of(state, place_of(state, pilot))
    if data.columns.leave_files[task]:
        data.forget(task)
        data.add(task, here if data.stays else number_of(state, HOME))
    if data.keeps:
        for move in fetched:
            if move.task != OUTSIDE and data.places(move.task):
                data.add(move.task, here)


# --- losses -----------------------------------------------------------------------------------------------------------


def at_place(state: State, bag: BagState, place: str) -> list[int]:
    """Tasks that have a copy of their output there."""
    number = state.places.get(place, 0)
    if bag.data is None or not number:
        return []
    found = np.flatnonzero(bag.data.columns.np_place[: bag.size] == number).tolist()
    return sorted({*found, *(task for task, more in bag.data.more.items() if number in more)})


def missing(bag: BagState) -> NDArray[np.int64]:
    """Tasks that must run again: what they left is gone, and needed by one that has not ended or must run again."""
    assert bag.data is not None
    pairs = bag.pairs
    states = bag.tasks.np_state[: bag.size]
    gone = (states == SUCCEEDED) & (bag.data.columns.np_place[: bag.size] == 0)
    gone &= np.frombuffer(bag.data.columns.leave_files, dtype=np.int32)[: bag.size] > 0
    again = np.zeros(bag.size, dtype=bool)
    again[pairs[(states < FIRST_FINAL)[pairs[:, 1]] & gone[pairs[:, 0]], 0]] = True
    line = np.flatnonzero(again).tolist()
    while line:  # each once, however long the chain
        task = line.pop()
        for made in bag.data.before[bag.data.starts[task] : bag.data.starts[task + 1]].tolist():
            if gone[made] and not again[made]:
                again[made] = True
                line.append(made)
    found: NDArray[np.int64] = np.flatnonzero(again)
    return found
