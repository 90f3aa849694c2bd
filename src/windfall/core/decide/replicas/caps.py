"""Caps of replicas, as the bag's user has set them (`model/policies/replica_caps.py`), and the cost of replicas.

Rules
  * The cost of replicas is what attempts used in vain until another attempt ended their task; where a replica was
    faster, that is the time of the original.
  * Of several attempts in play all but the oldest are expected to be in vain.  Each of them is expected to need as long
    as such tasks usually take, or as long as it has run already.
"""

from __future__ import annotations

import numpy as np

from windfall.core.state.accounts import UNLIMITED, cores_used
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn
from windfall.model.policies import replica_caps
from windfall.model.policies.presets import BY_EXPRESSION, NONE, PRESETS, Preset
from windfall.model.policies.replica_caps import CAPS, COST, PER_TASK, SHARE
from windfall.model.units import format_core_time


def cap(bag: BagState, key: str, usual: int) -> int:
    """Return the bag's own cap, or else the usual one."""
    text = bag.policy.get(key)
    return usual if text is None else replica_caps.read(text, key)


def preset_of(bag: BagState) -> Preset:
    """Return the bag's preset, with the bag's own caps in the place of the preset's."""
    found = PRESETS.get(bag.replicate_setting, BY_EXPRESSION)
    return found._replace(per_task=cap(bag, PER_TASK, found.per_task), share=cap(bag, SHARE, found.share))


def effective_policy(bag: BagState) -> dict[str, str]:
    """Return the policies in force, `replicate` as submitted among them; `none` where no task can have a replica."""
    able = bag.may_run_twice and not (bag.classes and all(cls.in_chain for cls in bag.classes.values()))
    return {**bag.policy, "replicate": bag.replicate_setting if able else NONE}


def replicas_left(bag: BagState) -> int:
    """Count the replicas that the bag may still have."""
    share = cap(bag, SHARE, PRESETS.get(bag.replicate_setting, BY_EXPRESSION).share)
    return -(-bag.size * share // 100) - bag.replicas_granted


def why_capped(bag: BagState, task: int) -> str:
    """Name the cap that keeps a running task from one more attempt, if it is one that time does not lift."""
    if not bag.replicates:
        return ""
    own = {key: f"{key} = {text}" for key, text in bag.policy.items() if key in CAPS}
    setting, most = bag.replicate_setting, preset_of(bag)
    source = f"replicate = {setting}" if setting in PRESETS else "an expression"
    if most.per_task <= bag.tasks.live[task]:
        return f"{own.get(PER_TASK, source)} allows {most.per_task} of a task at a time"
    if replicas_left(bag) <= 0:
        allows = f"{own.get(SHARE, source)} allows no more for {bag.size} tasks"
        return f"the bag has had {bag.replicas_granted}, and {allows}"
    if cap(bag, COST, UNLIMITED) <= bag.replica_waste:
        return f"needless attempts have used {format_core_time(bag.replica_waste)}, and {own[COST]} allows no more"
    return ""


# --- cost -------------------------------------------------------------------------------------------------------------


def usual_time(state: State, cls: TaskClass) -> float:
    """Return the ms that such a task takes; 0: unknown."""
    return cls.mean or float(state.bags[cls.bag].targets[cls.target].shape.expect)


def core_ms_left(turn: Turn, bag: BagState) -> int:
    """Return the core-ms that more replicas may use."""
    if COST not in bag.policy:
        return UNLIMITED
    return cap(bag, COST, 0) - bag.replica_waste - expected_waste(turn, bag)


def expected_cost(state: State, cls: TaskClass, pilot: PilotState) -> int:
    """Return the core-ms that one more attempt should use; where nothing tells, more than any cap leaves."""
    usual = usual_time(state, cls) or cls.worst_case
    return cores_used(cls, pilot) * round(usual) if usual else UNLIMITED - 1


def expected_waste(turn: Turn, bag: BagState) -> int:
    """Return the core-ms that attempts in play are expected to use in vain."""
    state, attempts = turn.state, turn.state.attempts
    rows = attempts.in_play(bag.number)
    rows = rows[bag.tasks.np_live[attempts.tasks_of(rows)] > 1]
    oldest: dict[int, int] = {}
    total = 0
    for row in rows[np.lexsort((attempts.np_number[rows], attempts.np_granted[rows]))].tolist():
        if oldest.setdefault(attempts.task[row], row) != row:
            cls, pilot = state.classes[attempts.cls[row]], state.pilots[attempts.pilot[row]]
            ran = turn.now - attempts.granted[row]
            total += cores_used(cls, pilot) * round(max(ran, usual_time(state, cls) or cls.worst_case))
    return total
