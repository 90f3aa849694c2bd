"""The clauses between a task and one pilot: a sentence for each clause of `decide/grant/eligibility.py`."""

from __future__ import annotations

from collections.abc import Callable

from windfall.core.config import Config
from windfall.core.decide.grant import fair_share, nearest_data, per_host
from windfall.core.decide.grant.amount import FULL, room, units_for
from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.decide.grant.eligibility import CLAUSES, first_failing
from windfall.core.decide.grant.grant import is_kept_empty
from windfall.core.decide.grant.host_orders import Entry
from windfall.core.decide.grant.order import ranked, reasons
from windfall.core.decide.hosts.quarantine import refuses_guest
from windfall.core.expressions.classads import format_value
from windfall.core.read.phrases import ClauseReport, clause, keeps_failing, spell
from windfall.core.read.site_clauses import over_limit
from windfall.core.state.capacity import fail_over_site
from windfall.core.state.host_table import why_waiting
from windfall.core.state.world import BagState, TaskClass
from windfall.model.units import format_size, plural

MOST_BEFORE = 100  # classes before a task's own that are looked at

Say = Callable[[Recipient, TaskClass, bool], list[ClauseReport]]


def pilot_clauses(to: Recipient, cls: TaskClass, config: Config) -> list[ClauseReport]:
    """Report every clause of granting for the recipient's task.  A clause that says nothing of this task is left out
    where it holds."""
    found = [each for name, holds in CLAUSES for each in SAY[name](to, cls, holds(to, cls))]
    found.append(_free(to, cls, config))
    if cls.by_data:
        found.append(_data(to, cls))
    return found


# --- one function per clause ------------------------------------------------------------------------------------------


def _only_if_failing(name: str, says: Callable[[Recipient, TaskClass], str]) -> Say:
    return lambda to, cls, holds: [] if holds else [clause(name, False, says(to, cls))]


def _owner(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    calls = to.state.bags[cls.bag].targets[cls.target].shape.call
    owner = to.state.pilot_classes[to.pilot.cls].owners[0]
    says = f"the pilot is {owner}'s" + ("; calls go to pilots of your own only" if calls else "")
    return [clause("owner", holds, says)]


def _nodes(to: Recipient, cls: TaskClass) -> str:
    if cls.nodes > 1:
        return f"needs {cls.nodes} nodes, the pilot has {to.pilot.nodes}"
    if to.pilot.nodes > 1:
        return f"needs one node; the pilot has {to.pilot.nodes} and takes only tasks of several"
    return "needs a whole node; the pilot shares its node with other jobs"


def _cores(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    return [clause("cores", holds, f"needs {cls.cores}, the pilot has {to.pilot.cores}")]


def _gpus(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    return [clause("gpus", holds, f"needs {cls.gpus}, the pilot has {to.pilot.gpus}")]


def _task_pilot(to: Recipient, cls: TaskClass) -> str:
    intent = to.state.intents.get(to.pilot.intent)
    if intent is not None and intent.task >= 0:
        return f"the pilot was started for task {intent.task} of bag {intent.bag}, and runs that task alone"
    policy = to.state.bags[cls.bag].provision
    return f"provision = {policy} starts a pilot of its own for each task; other pilots get none of them"


def _fail_over(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    only = fail_over_site(to.state, cls)
    if only is None:
        return []
    return [clause("fail-over", holds, fail_over_text(to.state.bags[cls.bag], to.task, only.name, holds))]


def fail_over_text(bag: BagState, task: int, site: str, is_here: bool) -> str:
    return f"{keeps_failing(bag, task)} and {'comes here' if is_here else f'goes to {site}'} now"


def _accounts(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    if holds:
        return []
    lacking = over_limit(to.state, to.state.sites[to.pilot.site], cls, to.now)
    return [lacking or clause("means", False, "what it may use at worst is more than is left")]


def _memory(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    return [clause("memory", holds, _sizes("memory", cls.memory, to.pilot.memory))]


def _disk(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    return [clause("disk", holds, _sizes("disk", cls.disk, to.pilot.disk))]


def _sizes(what: str, needs: int, has: int) -> str:
    if not needs:
        return f"no {what} requested; the pilot has {format_size(has)}"
    wanted, there = format_size(needs), format_size(has)
    return f"needs {wanted}, has {there}" if wanted != there else f"needs {needs:,} bytes, has {has:,}"


def _time(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    left = "the pilot has no end" if to.left is None else f"{spell(to.left)} left"
    needs = f"needs {spell(cls.least_time_left)}" if cls.least_time_left else "no time limit set"
    return [clause("time", holds, f"{needs}, {left}" if cls.least_time_left else f"{needs}; {left}")]


def _host(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    state, pilot = to.state, to.pilot
    if until := state.quarantined.get(pilot.row):
        says = f"host {pilot.host_name} is {why_waiting(state, pilot.row) or 'in doubt'}"
        says += f"; it is given nothing for {spell(until - to.now)}, then one task" if until > to.now else ""
        return [clause("host", holds, says)]
    if refuses_guest(state, to.now, pilot, cls):
        left = spell(state.guests_refused[pilot.row, state.bags[cls.bag].owner] - to.now)
        says = f"your last tasks on host {pilot.host_name} failed; it is given none of yours for {left}"
        return [clause("host", False, says)]
    return []


def _policy(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    """Report each of the bag's expressions by its own name, and what its rank comes to."""
    if not cls.has_expressions:
        return []
    site = to.state.sites[to.pilot.site]
    found = [clause(key, not why, why or "it matches")
             for key, why in reasons(to.state, to.now, cls, site, to.pilot)]
    if not holds and all(each["holds"] for each in found):
        found.append(clause("policy", False, "the host's published values did not match; they are renewed in a minute"))
    if "rank" in to.state.bags[cls.bag].policy:
        rank, why = ranked(to.state, to.now, cls, to.pilot)
        says = f"it counts as 0, for {why}" if why else f"it is {format_value(rank)} there"
        found.append(clause("rank", True, says))
    return found


def _per_host(to: Recipient, cls: TaskClass) -> str:
    return per_host.why_none(to.state, to.now, to.pilot, cls)


def _room_on_host(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    if not cls.has_per_host or (most := to.per_host_limit(cls)) < 1:
        return []
    if most >= per_host.NO_LIMIT:
        why = per_host.why_no_limit(to.state, to.now, to.pilot, cls)
        return [clause("room", holds, "no limit there" + (f", for {why}" if why else ""))]
    held = per_host.held(to.state, cls.bag, to.pilot.row)
    return [clause("room", holds, f"at most {most} of the bag on one host, there are {held}")]


def _heard(to: Recipient, cls: TaskClass, holds: bool) -> list[ClauseReport]:
    return [clause("heard", holds, f"last heard {spell(to.now - to.pilot.heard)} ago")]


SAY: dict[str, Say] = {
    "server-disk": _only_if_failing("server-disk", lambda to, cls: to.state.disk_problem or "the disk of the "
                                    "server is nearly full, and nothing new is granted"),
    "live": _only_if_failing("live", lambda to, cls: "the pilot finishes what it holds and then leaves"),
    "heard": _heard,
    "well": _only_if_failing("well", lambda to, cls: f"the pilot takes no tasks: {to.pilot.trouble}"),
    "owner": _owner,
    "nodes": _only_if_failing("nodes", _nodes),
    "cores": _cores,
    "gpus": _gpus,
    "task-pilot": _only_if_failing("task-pilot", _task_pilot),
    "fail-over": _fail_over,
    "accounts": _accounts,
    "memory": _memory,
    "disk": _disk,
    "time": _time,
    "host": _host,
    "policy": _policy,
    "per-host": _only_if_failing("per-host", _per_host),
    "room": _room_on_host,
}
"""How each clause is said; a clause of granting that is missing here is an error."""


# --- after the clauses: is a slot free, and does the bag want it there? -----------------------------------------------


def _free(to: Recipient, cls: TaskClass, config: Config) -> ClauseReport:
    """Does the pilot have a slot free, or may it hold the task until one is?"""
    state, pilot = to.state, to.pilot
    held = f"it holds {plural(pilot.attempts_held, 'task')}"
    cost = state.cost_on(state.pilot_classes[pilot.cls], cls)
    if not cost:
        return clause("free", pilot.load < pilot.cores * 1000, held)
    by_owner = fair_share.by_owner(state, pilot, _order(to))
    if len(by_owner) > 1 and is_kept_empty(to, by_owner):
        return clause("free", False, f"{held}, and runs empty for a bag that has waited for long")
    may_prefetch = len(by_owner) < 2 and pilot.row not in state.quarantined
    draft = GrantDraft(recipient=to, want=1, load=pilot.load, bytes_left=config.message, prefetch_allowed=may_prefetch)
    if _units(draft, cls, config) <= 0:
        return clause("free", False, f"{held}, all its slots are taken")
    if first := _before(draft, cls, by_owner.get(state.bags[cls.bag].owner, []), config):
        return clause("free", False, f"{held}, and bag {first.bag}, which goes first, waits for room there")
    if room(to, pilot.load, cls, cost) > 0:
        return clause("free", True, held)
    return {**clause("free", True, f"{held}, all its slots are taken; it may be sent more ahead"), "ahead": True}


def _units(draft: GrantDraft, cls: TaskClass, config: Config) -> int:
    """Count the tasks of a class that a grant would bring; less than 1 without room, whatever else stands between."""
    to = draft.recipient
    cost = to.state.cost_on(to.state.pilot_classes[to.pilot.cls], cls)
    if cls.by_data:
        return room(to, draft.load, cls, cost)
    return units_for(config, draft, cls, cost)


def _before(draft: GrantDraft, cls: TaskClass, order: list[Entry], config: Config) -> TaskClass | None:
    """Return a class that comes before this one and lacks room on the pilot: nothing overtakes it there."""
    to = draft.recipient
    for _, number in order[:MOST_BEFORE]:
        first = to.state.classes[number]
        if first is cls:
            return None
        if not first_failing(to, first) and _units(draft, first, config) == FULL:
            return first
    return None


def _order(to: Recipient) -> list[Entry]:
    state = to.state
    return to.orders.order(state, to.now, to.pilot) if state.ready_with_expressions else state.ready


def _data(to: Recipient, cls: TaskClass) -> ClauseReport:
    """Is the task better off on this pilot than on the one that is expected to ask next?"""
    bag = to.state.bags[cls.bag]
    assert bag.data_selection is not None
    expected = nearest_data.outlook(to, bag)
    costs = nearest_data.weigh(to, bag, [to.task], expected)
    rank = nearest_data.priority(to, bag, [to.task], expected)
    fetch = costs.here / max(bag.data_selection.penalty, 1e-9) / 1000
    if not bag.data_selection.withhold or rank >= 0:
        return clause("data", True, f"bringing its data there takes {fetch:.1f} s")
    says = f"bringing its data there takes {fetch:.1f} s; {costs.where} is expected to ask in {costs.wait / 1000:.1f} s"
    return clause("data", False, f"{says}, and is waited for (priority {rank:.0f}, it grows while the task waits)")
