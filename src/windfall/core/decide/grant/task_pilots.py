"""Grant to a pilot that was started for one task (the policies `msr` and `broker`): that task, or nothing any more."""

from __future__ import annotations

from windfall.core.decide.grant.draft import Recipient
from windfall.core.decide.grant.eligibility import first_failing
from windfall.core.decide.grant.nearest_data import drain_pilot
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import READY
from windfall.core.state import chains
from windfall.core.state.world import PilotState, State
from windfall.core.turn import Turn


def is_task_pilot(state: State, pilot: PilotState) -> bool:
    return bool(pilot.intent) and state.intents[pilot.intent].task >= 0


def draft_task(turn: Turn, to: Recipient) -> list[f.Group]:
    """Return the task that the pilot was started for; nothing where it is not ready or may not go there.

    A pilot that holds nothing, and gets nothing, has no purpose any more and drains."""
    state = turn.state
    intent = state.intents[to.pilot.intent]
    bag = state.bags.get(intent.bag)
    if bag is not None and bag.tasks.state[intent.task] == READY:
        cls = bag.classes[bag.target_of(intent.task), bag.tasks.variant[intent.task]]
        if cls.on_ready_list and not first_failing(to, cls):
            return [cls.group([intent.task], state.attempts.numbers(1), chains.chain_of(bag, intent.task))]
    if not to.pilot.attempts_held:
        drain_pilot(turn, to.pilot)
    return []
