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

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, SUCCEEDED
from windfall.core.state.bag_data import HOME, OUTSIDE, Input
from windfall.core.state.world import BagState, PilotState, State

ANY = "*"
UNKNOWN_LINK = (200, 10_000_000)  # ms a file, bytes a second, where nobody has measured


# --- places and links -------------------------------------------------------------------------------------------------


def place_of(state: State, pilot: PilotState) -> str:
    """Return the place where a pilot's outputs lie: its site's shared disk, or its host."""
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
    """List the files that the attempts of a grant must fetch, and from which copy each."""
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
    """Note the copies that a success makes at its pilot's place: its output, and fetched files that its bag keeps."""
    data = bag.data
    assert data is not None
    if left is not None:
        data.columns.leaves[task], data.columns.leave_files[task] = left
        data.columns.touch(task)
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
