"""How many tasks of a class a pilot's slots hold at once, for pilots that run and for shapes that may be started."""

from __future__ import annotations

from typing import Protocol


class Resources(Protocol):
    """The resources that a pilot class or a shape has, or that a task class needs."""

    @property
    def cores(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def gpus(self) -> int: ...
    @property
    def disk(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def whole(self) -> bool: ...


def nodes_suit(holder: Resources, needs: Resources) -> bool:
    """A task of several nodes needs a pilot of several.  A task of one node never gets such a pilot, for it would leave
    the other nodes idle; a task that asks for a whole node gets a pilot that has its node alone."""
    if needs.nodes > 1 or holder.nodes > 1:
        return 1 < needs.nodes <= holder.nodes
    return holder.whole or not needs.whole


def slots_on(holder: Resources, needs: Resources) -> int:
    """Count the tasks that the holder runs at once; 0: it can run none."""
    if not nodes_suit(holder, needs):
        return 0
    slots = holder.cores // needs.cores
    for need, has in ((needs.memory, holder.memory), (needs.gpus, holder.gpus), (needs.disk, holder.disk)):
        if need:
            slots = min(slots, has // need)
    return min(slots, 1) if needs.whole or needs.nodes > 1 else slots
