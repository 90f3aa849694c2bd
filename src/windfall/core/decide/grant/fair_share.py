"""Fairness (A11): whose task goes first where several owners share a site, and no bag waits for ever.

Rules
  * A site's slots are shared between the owners that it serves by their weights: whoever has the fewest cores in use
    there for his weight is served first.  What one answer hands out is dealt in the same way, so that a large pilot is
    shared, too.  What an owner cannot use goes to the others; nothing is taken from anybody who runs.  While several
    have something for a pilot nothing is sent ahead: one's short tasks would keep another's out for ever.
  * Everybody's weight is 1 unless an admin has said otherwise.  What is used at other sites counts for nothing.
  * Within one owner rank is strict: his order is his own matter, and nobody else's rank or priority touches it.
  * A bag that had tasks ready and was given to nobody for a stated time (`Config.ageing`, a day) is *lifted*: it goes
    before all other bags of its owner, whatever their rank, until none of its tasks is ready, or that time has passed
    again and it has had some.  Lifted ones go in the order in which they came.  So every bag's turn comes: after that
    time, and what was lifted before it.

  * Where another's narrow tasks would take, one by one, the room that a wide one waits for, its bag being lifted has a
    host run empty for it (`grant.is_kept_empty`).

Dealing costs a walk over the classes for each owner, once more whenever some cannot use their part, and once for what
is left then.  It is done only for pilots that serve several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from windfall.core.messages import facts as f
from windfall.core.state.world import PilotState, State

if TYPE_CHECKING:
    from windfall.core.decide.grant.draft import GrantDraft
    from windfall.core.decide.grant.host_orders import Entry
    from windfall.core.turn import Turn

USUAL_WEIGHT = 1
LOOKS = 24  # in the time after which a bag is lifted

Room = Callable[[int, int], int]  # class, load → thousandths of a core that the pilot would take of it
Walk = Callable[[list["Entry"], int, int], tuple[int, int]]  # classes, most tasks, load → tasks taken, the load then


# --- between owners ---------------------------------------------------------------------------------------------------


def weight(state: State, owner: str) -> int:
    return state.weights.get(owner, USUAL_WEIGHT)


def by_owner(state: State, pilot: PilotState, ready: list[Entry]) -> dict[str, list[Entry]]:
    """What such a pilot could run, each owner's in his own order."""
    pc = state.pilot_classes[pilot.cls]
    found: dict[str, list[Entry]] = {}
    for entry in ready:
        cls = state.classes[entry[1]]
        if state.cost_on(pc, cls):
            found.setdefault(state.bags[cls.bag].owner, []).append(entry)
    return found


def divide(draft: GrantDraft, of: dict[str, list[Entry]], room: Room, walk: Walk) -> int:
    """Divide the pilot's room between the owners: to each his part; while some cannot use theirs, to each of the others
    his part of the rest; then to any owner with a use for what is left.  Return the load that the pilot will carry."""
    state, pilot, want = draft.recipient.state, draft.recipient.pilot, draft.want
    load = pilot.load
    use = dict(state.sites[pilot.site].cores_in_use)
    sharing, rest = list(of), False
    while sharing:
        owners = sorted(sharing, key=lambda owner: use.get(owner, 0) / weight(state, owner))
        left = max(room(of[owner][0][1], load) for owner in owners)
        parts = _parts([(use.get(owner, 0), weight(state, owner)) for owner in owners], left)
        sated = []
        for owner, part in zip(owners, parts, strict=True):
            cost = max(state.cost_on(state.pilot_classes[pilot.cls], state.classes[of[owner][0][1]]), 1)
            most = want if rest else min(-(-part // cost), want)
            if most > 0:
                before = load
                taken, load = walk(of[owner], most, load)
                use[owner] = use.get(owner, 0) + load - before
                want -= taken
                sated += [owner] if taken < most else []
        if rest:
            break
        rest = not sated or len(sated) == len(sharing)
        sharing = list(of) if rest else [owner for owner in sharing if owner not in sated]
    return load


def _parts(have: list[tuple[int, int]], more: int) -> list[int]:
    """Deal out so much that in the end all have the same for their weight, as far as it goes: (use, weight) each, the
    least for its weight first."""
    used = weights = 0
    level = 0.0
    for n, (use, weighs) in enumerate(have):
        used, weights = used + use, weights + weighs
        level = (used + more) / weights
        if n + 1 == len(have) or level <= have[n + 1][0] / have[n + 1][1]:
            break
    return [max(round(level * weighs - use), 0) for use, weighs in have]


# --- ageing -----------------------------------------------------------------------------------------------------------


def arm(turn: Turn) -> None:
    """Look at how long bags have waited, while there are any."""
    if not turn.grants.ageing_timer and any(not bag.ended for bag in turn.state.bags.values()):
        turn.grants.ageing_timer = turn.now + max(turn.config.ageing // LOOKS, 1)
        turn.timers.add(turn.grants.ageing_timer, "age", 0)


def age_due(turn: Turn, _: int) -> None:
    turn.grants.ageing_timer = 0
    for bag in list(turn.state.bags.values()):
        waits = any(cls.on_ready_list for cls in bag.classes.values())
        if waits and not bag.aged_since and turn.now - bag.last_granted >= turn.config.ageing:
            turn.emit(f.BagAged(turn.now, bag.number, True))
        elif bag.aged_since and (
            not waits or (bag.last_granted > bag.aged_since and turn.now - bag.aged_since >= turn.config.ageing)
        ):
            turn.emit(f.BagAged(turn.now, bag.number, False))
    arm(turn)
