"""Grant whole batches, and the stages of pipelines that go along with them (rules: `state/chains.py`)."""

from __future__ import annotations

from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.decide.grant.eligibility import first_failing, without
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import WAITING
from windfall.core.state.chains import batch_mates, chain_of
from windfall.core.state.world import BagState, TaskClass
from windfall.core.turn import Turn

ASKED_OF_FOLLOWERS = without("accounts", "host", "per-host", "room")  # the head of the batch was asked


def set_batch_timer(turn: Turn, bag: BagState) -> None:
    """Set a timer for the first incomplete batch that will have waited long enough."""
    due = [t.filling_since + t.shape.patience for t in bag.targets if bag.filling(t)]
    if due and not bag.batch_timer_set:  # a timer that runs fires no later: the batch that came first waits least
        bag.batch_timer_set = True
        turn.timers.add(min(due), "batch", bag.number)


def patience_over(turn: Turn, number: int) -> None:
    """Release the incomplete batches that have waited long enough."""
    bag = turn.state.bags.get(number)
    if bag is None:
        return
    bag.batch_timer_set = False
    for target in bag.targets:
        if bag.filling(target) and turn.now >= target.filling_since + target.shape.patience:
            turn.emit(f.BatchReleased(turn.now, number, target.index, target.count))
    set_batch_timer(turn, bag)


def take(turn: Turn, draft: GrantDraft, cls: TaskClass, units: int) -> list[f.Group]:
    """Take up to `units` batches of a class: the first whatever its length, more while the draft wants tasks and the
    message holds them."""
    bag = turn.state.bags[cls.bag]
    want, budget = draft.want, draft.bytes_left
    left = cls.ready - bag.held_back(cls)
    taken: dict[int, None] = {}
    apart: list[int] = []
    groups: list[f.Group] = []
    while units > 0 and left > 0 and (not groups or (want > 0 and budget > 0)):
        (head,) = cls.backlog.take(1)
        if head in taken:
            continue
        tasks = batch_mates(bag, cls, head, taken)[: max(budget // cls.message_bytes, 1)]
        if not tasks:
            apart.append(head)
            continue
        taken.update(dict.fromkeys(tasks))
        left -= len(tasks)
        if head not in taken:
            apart.append(head)
        first = cls.group(tasks, turn.state.attempts.numbers(len(tasks)), chain_of(bag, head))
        made = [first, *_followers(draft.recipient, bag, first)]
        groups += made
        units -= 1
        want -= sum(len(group.tasks) for group in made)
        budget -= sum(len(group.tasks) * cls.message_bytes for group in made)
    for task in apart:
        cls.backlog.put(task)
    return groups


def _followers(to: Recipient, bag: BagState, first: f.Group) -> list[f.Group]:
    """Return the stages that go along behind these tasks, one group each.  The batch's price has paid for them."""
    made: list[f.Group] = []
    group = first
    while (index := bag.targets[group.target].next_stage) >= 0 and not bag.targets[index].waits:
        cls = bag.classes[index, 0]
        step = bag.runs[index][0] - bag.runs[group.target][0]  # from a task to the one of the next stage
        pairs = [(task + step, number) for task, number in zip(group.tasks, group.attempts, strict=True)
                 if _goes_along(bag, task + step)]
        if not pairs or first_failing(to, cls, ASKED_OF_FOLLOWERS):
            break
        tasks, behind = [task for task, _ in pairs], [number for _, number in pairs]
        group = cls.group(tasks, to.state.attempts.numbers(len(tasks)), first.chain, behind)
        made.append(group)
    return made


def _goes_along(bag: BagState, task: int) -> bool:
    """Does the task wait for the stage before it alone, and has it neither failed nor seen a pilot's death?"""
    t = bag.tasks
    waits = bag.graph is not None and t.state[task] == WAITING and bag.graph.pending[task] == 1
    return waits and not t.variant[task] and not t.deaths[task]
