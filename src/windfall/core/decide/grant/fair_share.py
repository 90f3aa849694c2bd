"""Fair share (A11): whose task goes first where several owners share a site; and ageing, against starvation.

Rules
  * The owners that a site serves share its slots by weight: the owner with the fewest cores in use there per weight
    goes first.  The tasks of one answer are divided in the same way, so that a large pilot is shared, too.  A part that
    an owner cannot use goes to the others; running tasks keep their slots.  While several owners have tasks for a pilot
    the pilot prefetches nothing: one owner's short tasks would keep another's out for ever.
  * An owner's weight is 1 unless an admin sets it.  Use at other sites does not count.
  * Rank and priority order the bags of one owner, and touch nobody else's.
  * A bag with ready tasks that got no grant for a stated time (`Config.ageing`, a day) is *aged*: it goes before all
    other bags of its owner, whatever their rank, until none of its tasks is ready, or until it has had grants and that
    time has passed again.  Aged bags go in the order in which they came.  So no bag starves.
  * The narrow tasks of another owner could take, one by one, the room that a wide task waits for.  For an aged bag a
    host runs empty instead (`grant.is_kept_empty`).

Dividing costs a walk over the classes for each owner, once more whenever some owners cannot use their part, and once
for the rest.  Only pilots that serve several owners pay for it.
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
CHECKS_PER_PERIOD = 24  # in the time after which a bag is aged

Room = Callable[[int, int], int]  # class, load → thousandths of a core that the pilot would take of it
Walk = Callable[[list["Entry"], int, int], tuple[int, int]]  # classes, most tasks, load → tasks taken, the load then


# --- between owners ---------------------------------------------------------------------------------------------------


def weight(state: State, owner: str) -> int:
    return state.weights.get(owner, USUAL_WEIGHT)


def by_owner(state: State, pilot: PilotState, ready: list[Entry]) -> dict[str, list[Entry]]:
    """Return the entries that such a pilot could run, by owner, each owner's in the owner's order."""
    pc = state.pilot_classes[pilot.cls]
    found: dict[str, list[Entry]] = {}
    for entry in ready:
        cls = state.classes[entry[1]]
        if state.cost_on(pc, cls):
            found.setdefault(state.bags[cls.bag].owner, []).append(entry)
    return found


def divide(draft: GrantDraft, of: dict[str, list[Entry]], room: Room, walk: Walk) -> int:
    """Divide the pilot's room between the owners; return the load that the pilot will carry.

    Each owner gets a part.  While some owners cannot use theirs, the others get parts of the rest; what is left then
    goes to any owner that has a use for it."""
    state, pilot, want = draft.recipient.state, draft.recipient.pilot, draft.want
    load = pilot.load
    use = dict(state.sites[pilot.site].cores_in_use)
    sharing, rest = list(of), False
    while sharing:
        owners = sorted(sharing, key=lambda owner: use.get(owner, 0) / weight(state, owner))
        left = max(room(of[owner][0][1], load) for owner in owners)
        parts = _equal_levels([(use.get(owner, 0), weight(state, owner)) for owner in owners], left)
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


def _equal_levels(have: list[tuple[int, int]], more: int) -> list[int]:
    """Divide `more` so that in the end all have the same use per weight, as far as it goes.

    `have`: (use, weight) of each owner, the least use per weight first."""
    used = weights = 0
    level = 0.0
    for n, (use, weighs) in enumerate(have):
        used, weights = used + use, weights + weighs
        level = (used + more) / weights
        if n + 1 == len(have) or level <= have[n + 1][0] / have[n + 1][1]:
            break
    return [max(round(level * weighs - use), 0) for use, weighs in have]


# --- ageing -----------------------------------------------------------------------------------------------------------


def set_ageing_timer(turn: Turn) -> None:
    """Check how long bags have waited, while there are any."""
    if not turn.grants.ageing_timer and any(not bag.ended for bag in turn.state.bags.values()):
        turn.grants.ageing_timer = turn.now + max(turn.config.ageing // CHECKS_PER_PERIOD, 1)
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
    set_ageing_timer(turn)
