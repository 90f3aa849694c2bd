"""Eligibility: may a pilot be granted a task of a class now?

Granting, stealing, fail-over, replicas and batches ask for the first clause that fails; `read/pilot_clauses.py` says a
sentence for each.  `invariants/waiting.py` keeps a second, plain reading, to check this one.

Three kinds of clauses:
  * of the pilot alone (`OF_PILOT`): no task goes to it while one of them fails;
  * of two classes (`OF_CLASSES`): a class of tasks against a class of pilots.  `State.cost_on` remembers their answer:
    a new one is tested there, too, or in `slots_on`, and named in `SAME_FOR_CLASS`;
  * of a class of tasks and this very pilot (`OF_TASKS`), in the order in which they are cheap to ask.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall.core.decide.grant.draft import Recipient
from windfall.core.decide.hosts import quarantine
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state.accounts import unaffordable
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.slots import nodes_suit
from windfall.core.state.world import TaskClass

Holds = Callable[[Recipient, TaskClass], bool]
Clause = tuple[str, Holds]  # its name; a plain pair, since each request unpacks several


# --- of the pilot alone -----------------------------------------------------------------------------------------------


def _server_has_disk(to: Recipient, cls: TaskClass | None = None) -> bool:
    return not to.state.disk_low


def _is_live(to: Recipient, cls: TaskClass | None = None) -> bool:
    return to.pilot.state == LIVE


def _is_heard(to: Recipient, cls: TaskClass | None = None) -> bool:
    """A pilot whose lease expired lists what it holds before it is granted anything."""
    return not to.pilot.lease_expired


def _is_well(to: Recipient, cls: TaskClass | None = None) -> bool:
    """A pilot whose scratch disk is full says so, and takes nothing."""
    return not to.pilot.trouble


# --- of two classes ---------------------------------------------------------------------------------------------------


def _serves_owner(to: Recipient, cls: TaskClass) -> bool:
    return to.state.serves(to.state.pilot_classes[to.pilot.cls], cls)


def _has_nodes(to: Recipient, cls: TaskClass) -> bool:
    return nodes_suit(to.state.pilot_classes[to.pilot.cls], cls)


def _has_cores(to: Recipient, cls: TaskClass) -> bool:
    return cls.cores <= to.pilot.cores


def _has_gpus(to: Recipient, cls: TaskClass) -> bool:
    return cls.gpus <= to.pilot.gpus


# --- of a class of tasks and this pilot -------------------------------------------------------------------------------


def _may_be_its_pilot(to: Recipient, cls: TaskClass) -> bool:
    """A pilot that was started for one task runs that task alone; a bag whose tasks have pilots of their own waits for
    these (`task_pilots.py`)."""
    if not to.pilot.intent:
        return cls.bag not in to.state.bags_with_task_pilots
    intent = to.state.intents[to.pilot.intent]
    if intent.task < 0:
        return cls.bag not in to.state.bags_with_task_pilots
    return intent.bag == cls.bag and to.task in (-1, intent.task)


def _is_its_site(to: Recipient, cls: TaskClass) -> bool:
    """Tasks that keep failing go to their bag's fail-over site."""
    return not (cls.to_fail_over_site and must_go_elsewhere(to.state, to.pilot.site, cls))


def _is_affordable(to: Recipient, cls: TaskClass) -> bool:
    """Do the bag's budget, its owner's allowance, the site's disk and `at-once` allow one more task?"""
    return not cls.is_accounted or to.affordable(cls) > 0


def _has_memory(to: Recipient, cls: TaskClass) -> bool:
    """A class of pilots may be said to have a little more memory than this pilot has."""
    return cls.memory <= to.pilot.memory


def _has_disk(to: Recipient, cls: TaskClass) -> bool:
    return cls.disk <= to.pilot.disk


def _has_time(to: Recipient, cls: TaskClass) -> bool:
    return to.left is None or (cls.least_time_left or 1) <= to.left


def _host_is_trusted(to: Recipient, cls: TaskClass) -> bool:
    """A quarantined host waits, then gets one task on probation; a host where a guest's tasks failed gets none of the
    guest's for a while."""
    state = to.state
    if to.pilot.row in state.quarantined and not quarantine.tasks_allowed(state, to.now, to.pilot):
        return False
    return not (state.guests_refused and quarantine.refuses_guest(state, to.now, to.pilot, cls))


def _policy_admits(to: Recipient, cls: TaskClass) -> bool:
    """Do the bag's `requirements` and `sites` match?"""
    return not cls.has_expressions or to.orders.admits(to.state, to.now, to.pilot, cls)


def _host_may_have_any(to: Recipient, cls: TaskClass) -> bool:
    return not cls.has_per_host or to.per_host_limit(cls) > 0


def _host_may_have_more(to: Recipient, cls: TaskClass) -> bool:
    return not cls.has_per_host or to.left_on_host(cls) > 0


OF_PILOT = (("server-disk", _server_has_disk), ("live", _is_live), ("heard", _is_heard), ("well", _is_well))
OF_CLASSES = (
    ("owner", _serves_owner),
    ("nodes", _has_nodes),
    ("cores", _has_cores),
    ("gpus", _has_gpus),
)
OF_TASKS = (
    ("task-pilot", _may_be_its_pilot),
    ("fail-over", _is_its_site),
    ("accounts", _is_affordable),
    ("memory", _has_memory),
    ("disk", _has_disk),
    ("time", _has_time),
    ("host", _host_is_trusted),
    ("policy", _policy_admits),
    ("per-host", _host_may_have_any),
    ("room", _host_may_have_more),
)
CLAUSES = (*OF_PILOT, *OF_CLASSES, *OF_TASKS)
"""All of them.  Whether a slot is free is a question of amount (`amount.py`), and comes after them."""


def without(*names: str) -> tuple[Clause, ...]:
    """Return `OF_TASKS` without the named clauses: those that the caller has asked already, or that time will lift."""
    return tuple((name, holds) for name, holds in OF_TASKS if name not in names)


def first_failing(to: Recipient, cls: TaskClass, clauses: tuple[Clause, ...] = OF_TASKS) -> str:
    """Return the name of the first clause that fails for a class of tasks; "" where all hold.

    `State.cost_on` remembers the clauses on two classes; they are gone through only to name the one that fails."""
    if not to.state.cost_on(to.state.pilot_classes[to.pilot.cls], cls):
        clauses = (*OF_CLASSES, *OF_TASKS)
    return first_of(to, cls, clauses)


def first_of(to: Recipient, cls: TaskClass, clauses: tuple[Clause, ...]) -> str:
    """Return the name of the first of these clauses that fails; "" where all hold."""
    for name, holds in clauses:
        if not holds(to, cls):
            return name
    return ""


def is_open(to: Recipient) -> bool:
    """May the pilot be granted anything at all?"""
    return _server_has_disk(to) and _is_live(to) and _is_heard(to) and _is_well(to)


SAME_FOR_CLASS = ("owner", "nodes", "cores", "gpus", "task-pilot", "fail-over")


def fails_whole_class(to: Recipient, cls: TaskClass, name: str) -> bool:
    """Does the clause that failed for this pilot fail for every pilot of its class, until something changes?"""
    return name in SAME_FOR_CLASS or (name == "accounts" and unaffordable(to.state, to.pilot, cls, to.now))
