"""The answer in the making: the pilot that may be granted tasks, and what it has been given so far."""

from __future__ import annotations

import msgspec

from windfall.core.decide.grant import per_host
from windfall.core.decide.grant.host_orders import HostOrders
from windfall.core.messages import facts as f
from windfall.core.state.accounts import Affordable
from windfall.core.state.world import PilotState, State, TaskClass
from windfall.core.turn import Turn

MOST_GROUPS = 64  # in one answer


class Recipient(msgspec.Struct, gc=False):
    """A pilot that may be granted tasks, and the groups of tasks that its answer holds already."""

    state: State
    now: int
    orders: HostOrders
    pilot: PilotState
    left: int | None  # ms until its wall time ends; None: it has none
    groups: list[f.Group] = []
    task: int = -1  # the one task asked about; -1: any task of a class
    _accounts: Affordable | None = None
    _accounted: int = -1  # groups that the accounts include
    _held: per_host.Held | None = None

    def affordable(self, cls: TaskClass) -> int:
        """Count the tasks of a class, or batches, that budget, allowance and disk pay for after this draft's groups."""
        return self.accounts().most(cls)

    def accounts(self) -> Affordable:
        if self._accounts is None or self._accounted != len(self.groups):
            self._accounts = Affordable(self.state, self.pilot, self.now, self.groups)
            self._accounted = len(self.groups)
        return self._accounts

    def move_here(self, group: f.Group) -> None:
        """Reckon with tasks that another pilot has given back already, and that this one is granted."""
        accounts, bag = self.accounts(), self.state.bags[group.bag]
        accounts.take(bag.classes[group.target, group.variant], len(group.tasks))
        self.groups.append(group)
        self._accounted = len(self.groups)

    def left_on_host(self, cls: TaskClass) -> int:
        """Count the tasks of a class that the host may still hold under `per-host`, beside the groups."""
        if not cls.has_per_host:
            return per_host.NO_LIMIT
        most = self.per_host_limit(cls)
        if most >= per_host.NO_LIMIT:
            return most
        if self._held is None:
            self._held = per_host.Held(self.state, self.pilot.row)
        return most - self._held.of(cls.bag) - sum(len(group.tasks) for group in self.groups if group.bag == cls.bag)

    def per_host_limit(self, cls: TaskClass) -> int:
        ad = self.orders.published(self.state, self.now, self.pilot)
        return per_host.limit(self.state, self.now, self.pilot, cls, ad)


class GrantDraft(msgspec.Struct, gc=False):
    """The answer as one walk over classes makes it, and what the walk may still add."""

    recipient: Recipient
    want: int  # tasks
    load: int  # thousandths of a core that the pilot will carry
    bytes_left: int  # of the message
    prefetch_allowed: bool  # may the pilot hold more than it can run at once?
    cut_short: bool = False  # prefetching stopped: a class had more tasks than the pilot was given
    any_suitable: bool = False  # was there a class that pilots of this kind can run?
    bags_by_data: dict[int, None] = {}  # bags that have chosen by where their data lies

    @property
    def groups(self) -> list[f.Group]:
        return self.recipient.groups

    def is_full(self) -> bool:
        """Has the answer all the tasks that the pilot wants, or that a message holds?"""
        return self.want <= 0 or self.bytes_left <= 0 or len(self.recipient.groups) >= MOST_GROUPS

    def count_tasks(self) -> int:
        return sum(len(group.tasks) for group in self.recipient.groups)


def recipient_of(turn: Turn, pilot: PilotState, left: int | None) -> Recipient:
    return Recipient(turn.state, turn.now, turn.grants.orders, pilot, left)
