"""Batching: which tasks go together, to run one after the other in one slot of one pilot (T7).

Rules
  * A target may ask for batches of k: tasks i·k … i·k+k−1, counted within the target, are one batch.
  * A grant takes whole batches: all of a batch that is ready and of one class.  What came back singly (a failure, a
    lost pilot) goes again with whatever else of its batch is ready then, be it alone.
  * The last batch of an open bag may be incomplete.  It waits for more tasks for `patience` ms since the first of them
    came, then goes as it is.  Of a closed bag it goes at once.
  * What a pilot holds of one batch is a *chain*: it takes one slot, however many tasks it has.
  * A batch that is too long for a message goes in pieces.
  * A task that was present at the death of a pilot goes alone: the next death will tell who is to blame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core import facts as f

if TYPE_CHECKING:
    from windfall.core.engine import Core
    from windfall.core.state import BagState, PilotState, State, TargetState, TaskClass

NO_CHAIN = -1
_INDEX_BITS = 32  # of a chain's number; above them stands its target


def chain_of(bag: BagState, task: int) -> int:
    """The number, within the bag, of the chain that a task is part of."""
    target, index = bag.locate(task)
    batch = bag.targets[target].shape.batch
    return target << _INDEX_BITS | index // batch if batch > 1 else NO_CHAIN


def row_chain(state: State, row: int) -> int:
    """The chain of an attempt in play."""
    ref = state.attempts.task[row]
    chained = state.classes[state.attempts.cls[row]].batch > 1
    return chain_of(state.bags[ref >> 32], ref & 0xFFFFFFFF) if chained else NO_CHAIN


def chain_key(state: State, row: int) -> tuple[int, int]:
    """Equal for attempts of one chain, and for no others that one pilot holds."""
    chain = row_chain(state, row)
    return (state.attempts.task[row] >> 32, chain) if chain >= 0 else (0, row)


# --- the last batch of an open bag ----------------------------------------------------------------------------------


def waiting(bag: BagState, target: TargetState) -> range:
    """Tasks, counted within the target, that wait for their batch to fill."""
    shape = target.shape
    if not bag.open or shape.batch < 2 or not shape.patience:
        return range(0)
    return range(max(target.released, target.count - target.count % shape.batch), target.count)


def held_back(bag: BagState, cls: TaskClass) -> int:
    """How many of a class's ready tasks wait for their batch to fill."""
    if cls.batch < 2 or not bag.open or cls.overruns or cls.boosts:
        return 0
    backlog = cls.backlog
    return sum(backlog.is_ready(backlog.task_at(place)) for place in waiting(bag, bag.targets[cls.target]))


def arm(core: Core, bag: BagState) -> None:
    """Look again when the first of its incomplete batches has waited long enough."""
    due = [t.since + t.shape.patience for t in bag.targets if waiting(bag, t)]
    if due and not bag.armed:  # one that runs ends no later: whoever came first waits least
        bag.armed = True
        core.timer(min(due), "batch", bag.number)


def patience_over(core: Core, number: int) -> None:
    bag = core.state.bags.get(number)
    if bag is None:
        return
    bag.armed = False
    for target in bag.targets:
        if waiting(bag, target) and core.now >= target.since + target.shape.patience:
            core.emit(f.BatchReleased(core.now, number, target.index, target.count))
    arm(core, bag)


# --- taking whole batches -------------------------------------------------------------------------------------------


def take(core: Core, cls: TaskClass, units: int, want: int, budget: int) -> list[f.Group]:
    """Up to `units` batches of a class: the first whatever its length, more while tasks are wanted and a message holds
    them."""
    bag = core.state.bags[cls.bag]
    left = cls.ready - held_back(bag, cls)
    taken: dict[int, None] = {}
    apart: list[int] = []
    groups: list[f.Group] = []
    while len(groups) < units and left > 0 and (not groups or (want > 0 and budget > 0)):
        (head,) = cls.backlog.take(1)
        if head in taken:
            continue
        tasks = mates(bag, cls, head, taken)[: max(budget // cls.weight, 1)]
        if not tasks:
            apart.append(head)
            continue
        taken.update(dict.fromkeys(tasks))
        left -= len(tasks)
        want -= len(tasks)
        budget -= len(tasks) * cls.weight
        if head not in taken:
            apart.append(head)
        numbers = core.state.attempts.numbers(len(tasks))
        groups.append(f.Group(
            cls.bag, cls.target, cls.overruns, cls.boosts, tasks, numbers, chain_of(bag, head)))
    for task in apart:
        cls.backlog.put(task)
    return groups


def mates(bag: BagState, cls: TaskClass, head: int, taken: dict[int, None]) -> list[int]:
    """What is ready of a task's batch, in order, itself included; nothing where it waits for its batch to fill."""
    target, backlog = bag.targets[cls.target], cls.backlog
    place = backlog.position(head)
    stop = waiting(bag, target).start if waiting(bag, target) else target.count
    if place >= stop:
        return []
    first = place - place % cls.batch
    if bag.tasks.deaths[head]:
        return [head]
    tasks = [backlog.task_at(each) for each in range(first, min(first + cls.batch, stop))]
    return [task for task in tasks if backlog.is_ready(task) and task not in taken and not bag.tasks.deaths[task]]


# --- what a chain weighs --------------------------------------------------------------------------------------------


def shift(pilot: PilotState, key: tuple[int, int], cls: int, costs: dict[int, int], sign: int) -> int:
    """One attempt more, or one less, of a chain that the pilot holds: by how much that changes its load."""
    held = pilot.chains.setdefault(key, {})
    before = max((costs[number] for number in held), default=0)
    held[cls] = held.get(cls, 0) + sign
    if not held[cls]:
        del held[cls]
    if not held:
        del pilot.chains[key]
    return max((costs[number] for number in held), default=0) - before
