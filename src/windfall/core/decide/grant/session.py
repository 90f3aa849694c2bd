"""What granting keeps from one step to the next; volatile."""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.core.decide.grant.host_orders import HostOrders
from windfall.core.messages import facts as f


@dataclass(slots=True)
class GrantSession:
    orders: HostOrders = field(default_factory=HostOrders)
    grants_this_step: dict[int, tuple[int, list[f.Group]]] = field(default_factory=dict)  # by pilot
    starved_pilots: dict[int, int] = field(default_factory=dict)  # pilots that got nothing in this step → their want
    withheld_from: dict[int, None] = field(default_factory=dict)  # pilots that ready tasks were withheld from
    recheck_waiting: bool = False  # a pilot that waits may be granted now what was withheld from it
    some_waiting_unasked: bool = False  # not every pilot that waits was offered what is ready
    version_offered: int = 0  # `State.version` when the pilots that wait were asked last,
    listing_offered: int = 0  # and `State.listing`
    looks: dict[int, int] = field(default_factory=dict)  # bag → when to look at what it withholds again
    moving_over: dict[int, None] = field(default_factory=dict)  # bags with tasks that wait, for their fail-over sites
    ageing_timer: int = 0  # when to look at how long bags have waited; 0: nothing is planned
