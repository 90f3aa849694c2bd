"""The session of granting: volatile state, kept from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.core.decide.grant.host_orders import HostOrders
from windfall.core.messages import facts as f


@dataclass(slots=True)
class GrantSession:
    orders: HostOrders = field(default_factory=HostOrders)
    grants_this_step: dict[int, tuple[int, list[f.Group]]] = field(default_factory=dict)  # by pilot
    starved_pilots: dict[int, int] = field(default_factory=dict)  # pilots that got nothing in this step → their want
    withheld_from: dict[int, None] = field(default_factory=dict)  # waiting pilots that a bag withholds its tasks from
    recheck_waiting: bool = False  # a waiting pilot may be granted tasks that were withheld from it
    some_waiting_unasked: bool = False  # some waiting pilots were not offered the ready tasks
    version_offered: int = 0  # `State.version` when the waiting pilots were last offered tasks,
    listing_offered: int = 0  # and `State.ready_version`
    withheld_timers: dict[int, int] = field(default_factory=dict)  # bag → when to check again what it withholds
    # bags with a timer for tasks that are bound to their fail-over site
    moving_over: dict[int, None] = field(default_factory=dict)
    ageing_timer: int = 0  # when to check how long bags have waited; 0: no timer
