"""Losses: evidence that copies are gone, and what must run again because of it (P4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windfall.core.decide.exchange.verdicts import runs_of
from windfall.core.messages import events as e, facts as f
from windfall.core.state.copies import HOME, OUTSIDE, at_place, missing
from windfall.core.state.world import BagState

if TYPE_CHECKING:
    from windfall.core.step import Core


def know_link(core: Core, event: e.KnowLink) -> None:
    if event.latency < 0 or event.rate <= 0:
        core.refuse(event, "bad-input", f"a link of {event.latency} ms a file and {event.rate} bytes a second")
        return
    if core.state.links.get((event.a, event.b)) != (event.latency, event.rate):
        core.emit(f.LinkKnown(core.now, event.a, event.b, event.latency, event.rate))
    core.done(event)


def lose_place(core: Core, event: e.LosePlace) -> None:
    """A host's disk is gone; without a host, all that the site had."""
    if event.host:
        places = [f"host {event.site} {event.host}"]
    else:
        mine = (f"site {event.site}", f"host {event.site} ")
        places = [name for name in core.state.places if name == mine[0] or name.startswith(mine[1])]
    for place in places:
        lost = {bag.number: at_place(core.state, bag, place) for bag in core.state.bags.values()}
        _lose(core, place, lost, event.why)
    core.done(event)


def doubt(core: Core, moves: list[tuple[int, f.Move]]) -> None:
    """Attempts of these bags could not fetch what they read: what was to be copied from is not there."""
    found: dict[str, dict[int, list[int]]] = {}
    for bag, move in moves:
        data = core.state.bags[bag].data
        if data is not None and move.task != OUTSIDE and core.state.places.get(move.place, 0) in data.places(move.task):
            found.setdefault(move.place, {}).setdefault(bag, []).append(move.task)
    for place, lost in found.items():
        if place != HOME:
            _lose(core, place, lost, "input")


def _lose(core: Core, place: str, lost: dict[int, list[int]], why: str) -> None:
    runs = [(bag, runs_of(np.array(sorted(set(tasks)), dtype=np.int64))) for bag, tasks in lost.items() if tasks]
    if not runs:
        return
    core.emit(f.CopiesLost(core.now, place, runs, why))
    for bag, _ in runs:
        make_again(core, core.state.bags[bag])


def make_again(core: Core, bag: BagState) -> None:
    """Run again whoever made what is needed and lies nowhere."""
    if bag.data is not None and len(again := missing(bag)):
        core.emit(f.TasksRetried(core.now, bag.number, runs_of(again), why="copies"))
