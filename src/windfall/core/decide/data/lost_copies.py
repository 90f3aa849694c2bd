"""Lost copies: evidence that copies are gone, and which tasks must run again because of it (P4)."""

from __future__ import annotations

import numpy as np

from windfall.core.messages import events as e, facts as f
from windfall.core.messages.runs import runs_of
from windfall.core.state.bag_data import HOME, OUTSIDE
from windfall.core.state.copies import at_place, missing
from windfall.core.state.world import BagState
from windfall.core.turn import Turn


def know_link(turn: Turn, event: e.KnowLink) -> None:
    if event.latency < 0 or event.rate <= 0:
        turn.refuse(event, "bad-input", f"a link of {event.latency} ms a file and {event.rate} bytes a second")
        return
    if turn.state.links.get((event.a, event.b)) != (event.latency, event.rate):
        turn.emit(f.LinkKnown(turn.now, event.a, event.b, event.latency, event.rate))
    turn.done(event)


def lose_place(turn: Turn, event: e.LosePlace) -> None:
    """Drop the copies of a host whose disk is gone; without a host, all copies of the site."""
    if event.host:
        places = [f"host {event.site} {event.host}"]
    else:
        mine = (f"site {event.site}", f"host {event.site} ")
        places = [name for name in turn.state.places if name == mine[0] or name.startswith(mine[1])]
    for place in places:
        lost = {bag.number: at_place(turn.state, bag, place) for bag in turn.state.bags.values()}
        _lose(turn, place, lost, event.why)
    turn.done(event)


def doubt_sources(turn: Turn, moves: list[tuple[int, f.Transfer]]) -> None:
    """Drop the copies from which attempts could not fetch their inputs."""
    found: dict[str, dict[int, list[int]]] = {}
    for bag, move in moves:
        data = turn.state.bags[bag].data
        if data is not None and move.task != OUTSIDE and turn.state.places.get(move.place, 0) in data.places(move.task):
            found.setdefault(move.place, {}).setdefault(bag, []).append(move.task)
    for place, lost in found.items():
        if place != HOME:
            _lose(turn, place, lost, "input")


def _lose(turn: Turn, place: str, lost: dict[int, list[int]], why: str) -> None:
    runs = [(bag, runs_of(np.array(sorted(set(tasks)), dtype=np.int64))) for bag, tasks in lost.items() if tasks]
    if not runs:
        return
    turn.emit(f.CopiesLost(turn.now, place, runs, why))
    for bag, _ in runs:
        rerun_makers(turn, turn.state.bags[bag])


def rerun_makers(turn: Turn, bag: BagState) -> None:
    """Run the makers of needed data again of which no copy is left."""
    if bag.data is not None and len(again := missing(bag)):
        turn.emit(f.TasksRetried(turn.now, bag.number, runs_of(again), why="copies"))
