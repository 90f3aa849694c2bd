"""Replicas: one more attempt of a running task, for a pilot that has nothing else to do (speculative execution; G6,
GridBot's algorithm 2).

Rules
  * A bag gets replicas only while none of its tasks is ready: a task that nobody runs comes first.
  * Stragglers come in this order: the task with the fewest attempts, then the one that has run longest (`scan.py`).
  * No host runs a task twice at a time; a pilot at another site comes before one at the same site.  Of several bags the
    one goes first whose tasks would go first if they were ready.
  * A preset, or the caps of the bag's own, bound the attempts of one task, the replicas of the bag, and their cost
    (`caps.py`).
  * A task with external effects never runs twice; tasks in batches or pipelines have no replicas.
  * The first good result wins and cancels the other attempts (`exchange/verdicts.py`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.decide.grant.fair_share import weight
from windfall.core.decide.replicas.caps import expected_cost, preset_of, replicas_left
from windfall.core.decide.replicas.scan import is_unchanged, only_runs, rank_late, scan
from windfall.core.decide.replicas.session import LateTask, ReplicaScan
from windfall.core.messages import facts as f
from windfall.core.state.accounts import UNLIMITED
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn
from windfall.model.policies.presets import PRESETS

Room = Callable[[Recipient, TaskClass, int], int]  # (pilot, class, load) → tasks of the class that the pilot can begin


def add_replicas(turn: Turn, draft: GrantDraft, room: Room) -> None:
    """Add replicas to the draft, as many as its pilot can run at once."""
    for bag in _in_order(turn, draft.recipient.pilot):
        found = scan(turn, bag)
        if found.late:
            _add_from_bag(turn, draft, bag, found, room)


def _add_from_bag(turn: Turn, draft: GrantDraft, bag: BagState, found: ReplicaScan, room: Room) -> None:
    state, to, groups = turn.state, draft.recipient, draft.groups
    pilot = to.pilot
    most = min(draft.want, len(groups) + replicas_left(bag))
    full: set[int] = set()  # classes of which the pilot can have no more
    for each in _for_host(found.late, pilot):
        if len(groups) >= most:
            return
        cls = each.cls
        if cls.number in full or not is_unchanged(bag, each):
            continue  # only the first of the list is dropped when its task changes
        cost = expected_cost(state, cls, pilot) if found.core_ms_left < UNLIMITED else 0
        if cost > found.core_ms_left or room(to, cls, draft.load) <= 0:
            full.add(cls.number)
            continue
        groups.append(cls.group([each.task], state.attempts.numbers(1)))
        draft.load += state.cost_on(state.pilot_classes[pilot.cls], cls)
        found.core_ms_left -= cost
        found.late.remove(each)
        if bag.replicate_setting in PRESETS and not found.has_more:  # late tasks that the scan left out come first
            _list_again(bag, found, each, pilot)


def _list_again(bag: BagState, found: ReplicaScan, each: LateTask, pilot: PilotState) -> None:
    """The task may have yet another attempt elsewhere, after the tasks that have fewer."""
    if each.live + 1 < preset_of(bag).per_task:
        hosts, sites, tries = (*each.hosts, pilot.row), (*each.sites, pilot.site), each.tries + 1 & 0xFFFF
        insort(found.late, each._replace(hosts=hosts, sites=sites, live=each.live + 1, tries=tries), key=rank_late)


def _for_host(late: list[LateTask], pilot: PilotState) -> Iterator[LateTask]:
    """Yield the tasks that the pilot's host does not run; of those with equally few attempts, tasks that run at other
    sites first."""
    here: list[LateTask] = []
    for each in [each for each in late if pilot.row not in each.hosts]:
        if here and here[0].live != each.live:
            yield from here
            here = []
        if pilot.site in each.sites:
            here.append(each)
        else:
            yield each
    yield from here


# --- which bags offer replicas ----------------------------------------------------------------------------------------


def any_late(turn: Turn) -> bool:
    """Does any bag offer a replica?  The answer stands until the step has another fact, for many waiting pilots ask."""
    known, found = turn.replicas.any_late
    if known != len(turn.facts):
        found = any(_offers(turn, bag) for bag in _bags(turn.state))
        turn.replicas.any_late = (len(turn.facts), found)
    return found


def hosts_running_all_late(turn: Turn) -> dict[int, None]:
    """Return the hosts that run every late task: none of them can get a replica."""
    found: dict[int, None] | None = None
    for bag in _bags(turn.state):
        for each in scan(turn, bag).late:
            found = {row: None for row in each.hosts if found is None or row in found}
            if not found:
                return {}
    return found or {}


def forget_scans(turn: Turn, groups: list[f.Group]) -> None:
    """Drop what is known of these groups' bags: a task was granted and has not started, so the bag offers nothing."""
    for group in groups:
        turn.replicas.kept_scans.pop(group.bag, None)
        turn.replicas.scans.pop(group.bag, None)


def _offers(turn: Turn, bag: BagState) -> bool:
    return bool(scan(turn, bag).late) and replicas_left(bag) > 0


def _in_order(turn: Turn, pilot: PilotState) -> list[BagState]:
    """Return the bags that offer replicas, in the order of fair share and of rank at the pilot."""
    state = turn.state
    found = [bag for bag in _bags(state) if _offers(turn, bag)]
    if len(found) < 2:
        return found
    in_use, orders = state.sites[pilot.site].cores_in_use, turn.grants.orders

    def place(bag: BagState) -> tuple[float, object]:
        share = in_use.get(bag.owner, 0) / weight(state, bag.owner)
        return share, orders.place(state, turn.now, pilot, scan(turn, bag).late[0].cls)

    return sorted(found, key=place)


def _bags(state: State) -> Iterator[BagState]:
    return (bag for number in state.replicating if only_runs(bag := state.bags[number]))
