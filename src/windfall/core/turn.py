"""Turn: what a decider may see and do while the core takes a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windfall.core.config import Config
from windfall.core.decide.exchange.session import ExchangeSession
from windfall.core.decide.grant.session import GrantSession
from windfall.core.decide.hosts.session import HostSession
from windfall.core.decide.provision.session import ProvisionSession
from windfall.core.decide.replicas.session import ReplicaSession
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.state.world import State
from windfall.core.timers import Timers

Appliers = Mapping[type, Callable[[State, Any], None]]


class Turn:
    """A decider reads `state`, emits facts, which change it, and leaves effects for the driver.

    One turn serves all steps of a core.  What deciders keep in memory between steps is volatile: after a recovery the
    sessions start afresh.
    """

    __slots__ = (
        "_appliers", "config", "effects", "exchange", "facts", "grants", "hosts", "now", "provision", "replicas",
        "resumed", "state", "timers",
    )

    def __init__(self, config: Config, appliers: Appliers) -> None:
        self._appliers = appliers
        self.config = config
        self.state = State()
        self.now = 0
        self.resumed = 0  # when this process began
        self.facts: list[f.Fact] = []
        self.effects: list[x.Effect] = []
        self.timers = Timers()
        self.exchange = ExchangeSession()
        self.grants = GrantSession()
        self.replicas = ReplicaSession()
        self.hosts = HostSession()
        self.provision = ProvisionSession()

    def begin(self, now: int) -> None:
        """Begin a step."""
        state = self.state
        self.now = state.now = now if now > state.now else state.now
        self.facts, self.effects = [], []
        self.replicas.any_late, self.replicas.evaluated = (-1, False), 0

    def emit(self, fact: f.Fact) -> None:
        """Apply a fact to the state, and have it journaled."""
        self.facts.append(fact)
        self._appliers[type(fact)](self.state, fact)

    def done(self, event: e.Event, value: int = 0, extra: int = 0) -> None:
        self.effects.append(x.Done(event.key, value, extra))

    def refuse(self, event: e.Event, error: str, message: str, hint: str = "") -> None:
        self.effects.append(x.Refuse(event.key, error, message, hint))

    def grace_ends(self) -> int:
        """Return the time before which no attempt granted by an earlier process counts as late: the server may not have
        heard its pilot yet."""
        return self.resumed + self.config.lease + self.config.margin
