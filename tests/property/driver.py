"""The server without its sockets: decide, append, flush, release, over a disk that loses rows that were not flushed.

The driver does what `server/writer.py` and `server/recovery.py` do, in the same order, by the server's own clock.  It
may die between any two steps, and always dies when the disk is full.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.core.config import Config
from windfall.core.invariants.moves import StatesBefore
from windfall.core.invariants.promises import check_all
from windfall.core.messages import events as e
from windfall.core.messages.facts import Fact
from windfall.core.persist.fingerprint import differences, fingerprint
from windfall.core.step import Core
from windfall.core.turn import Turn
from windfall.server.clock import Clock
from windfall.store import codec

from .clocks import Steady, rate

if TYPE_CHECKING:
    from .world import World

CONFIG = Config(
    lease=10_000, margin=1_000, park=4_000, idle=1 << 40, silence=60_000, prefetch=6_000, prefetch_most=4,
    forget=200_000, provision=500, landing=5_000, listing=4_000,
    parting=300, suspect=12_000, blackout=10_000, quarantine=5_000,
    salvage=20_000, fail_over=30_000, worth=1_500, surplus=2_000,
)
IDLE = 15_000  # where batch systems start pilots, they leave when there is nothing to do
Callback = Callable[[Any], None]


class Died(Exception):
    """The server's process was killed here."""


class WatchedTurn(Turn):
    """A turn that checks every fact's moves against the lifecycle tables."""

    strange: list[str]

    def emit(self, fact: Fact) -> None:
        moves = StatesBefore(self.state)
        super().emit(fact)
        self.strange = [*getattr(self, "strange", ()), *moves.broken(self.state)]


class Disk:
    """A journal and a snapshot, which hold what was written only after the flush."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.cache: list[bytes] = []
        self.snapshot: tuple[int, bytes] | None = None
        self.chunks: dict[str, bytes] = {}
        self.flushes = 0
        self.full = False

    def append(self, body: bytes) -> None:
        self.cache.append(body)

    def flush(self) -> list[bytes]:
        if self.full:
            raise Died
        fresh, self.cache = self.cache, []
        self.rows += fresh
        self.flushes += 1
        return fresh

    def forget(self) -> None:
        self.cache.clear()

    def save(self, meta: bytes, chunks: dict[str, bytes], drop: list[str]) -> None:
        """Save a snapshot in one transaction, by exact names, as `store/journal.py` does."""
        for name in drop:
            self.chunks.pop(name, None)
        self.chunks.update(chunks)
        self.snapshot = (len(self.rows), meta)


class Server:
    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = Disk()
        self.steady = Steady(lambda: world.now, rate(world.random, world.plan.skew))
        self.wall_off = self.noticed = 0  # ms that the wall clock is off, and was when it was read last
        self.clock = self._new_clock(0)
        self.low = False  # on disk: it is asked not to grant anything
        self.config = dataclasses.replace(CONFIG, idle=IDLE) if world.plan.sites else CONFIG
        self.core: Core | None = Core(self.config, WatchedTurn)
        self.inbox: list[e.Event] = []
        self.waiting: dict[int, Callback] = {}
        self.key = 0
        self.scheduled = False
        self.crashes = 0
        self.life = 0
        self.ahead = False  # memory knows more than the disk

    @property
    def up(self) -> bool:
        return self.core is not None

    @property
    def now(self) -> int:
        return self.clock.now()

    def _new_clock(self, last: int) -> Clock:
        if self.wall_off != self.noticed:  # wall times are over for us sooner, or later, than for a site
            self.noticed = self.wall_off
            for job in [job for site in self.world.sites.values() for job in site.jobs.values()]:
                job.belied = True
        return Clock(
            last, lambda: (self.world.now + self.wall_off) * 1_000_000, lambda: self.steady.now() * 1_000_000
        )

    def report_disk(self, low: bool) -> None:
        """Tell the core whether the disk is low, as `server/files/disk_guard.py` does."""
        self.low = low
        if self.up:
            self.put(e.DiskLow(0, low))

    # --- in -----------------------------------------------------------------------------------------------------

    def put(self, event: e.Event, callback: Callback | None = None) -> int:
        self.key += 1
        event.key = self.key
        if callback is not None:
            self.waiting[self.key] = callback
        self.inbox.append(event)
        self.kick()
        return self.key

    def kick(self) -> None:
        if not self.scheduled and self.up:
            self.scheduled = True
            self.world.after(0, self._turn_of(self.life))

    def _turn_of(self, life: int) -> Callable[[], None]:
        return lambda: self.turn() if life == self.life else None

    # --- a turn --------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        self.scheduled = False
        try:
            self._turn()
        except Died:
            self.die()

    def _turn(self) -> None:
        assert self.core is not None
        group, self.inbox = self.inbox, []
        self._may_die()
        self.ahead = True
        step = self.core.step(self.now, group)
        self.ahead = bool(step.facts)
        self._may_die()
        if step.facts:
            self.commit(step.facts)
        self.check()
        for effect in step.effects:
            callback = self.waiting.pop(effect.key, None)
            if callback is not None:
                callback(effect)
            self._may_die()
        if step.wake_at is not None:
            self.world.after(self.steady.true_wait(max(step.wake_at - self.now, 0)), self._wake_of(self.life))

    def _wake_of(self, life: int) -> Callable[[], None]:
        return lambda: self.kick() if life == self.life else None

    def commit(self, facts: list[Fact]) -> None:
        self.disk.append(codec.encode(facts))
        self._may_die()
        self.flush()
        self._may_die()

    def flush(self) -> None:
        for body in self.disk.flush():
            self.world.oracle.observe(codec.decode(body))
        self.ahead = False

    def check(self) -> None:
        assert self.core is not None
        self.world.blame(getattr(self.core.turn, "strange", []))
        self.world.blame(check_all(self.core.turn, self.world.oracle.witness))
        self.world.blame(self.world.oracle.check(self.core.state))

    # --- death and recovery --------------------------------------------------------------------------------------

    def _may_die(self) -> None:
        if self.world.chance(self.world.crash_rate / 10):
            raise Died

    def die(self) -> None:
        """Kill the server as by kill -9: it loses its memory and all unflushed rows, and connections break."""
        if not self.up:
            return
        self.life += 1
        self.crashes += 1
        before = None if self.ahead else fingerprint(self.core.state)
        self.ahead = False
        self.core, self.inbox, self.waiting, self.scheduled = None, [], {}, False
        self.disk.forget()
        self.world.connections_break()
        self.world.after(self.world.random.choice((1, 200, 4_000, 15_000)), lambda: self.recover(before))

    def recover(self, before: dict[str, Any] | None) -> None:
        core = Core(self.config, WatchedTurn)
        after = 0
        if self.disk.snapshot is not None:
            after, meta = self.disk.snapshot
            core.restore(meta, dict(self.disk.chunks))
        for body in self.disk.rows[after:]:
            core.replay(codec.decode(body))
        self.clock = self._new_clock(core.state.now)
        core.resume(self.now)
        self.core = core
        self.check()
        if before is not None:
            self.world.blame([f"P2: recovery changed {part}" for part in differences(before, fingerprint(core.state))])
        if self.low:
            self.report_disk(True)
        self.kick()

    def snapshot(self) -> None:
        if self.core is not None and not self.disk.cache and not self.disk.full:
            meta, chunks, drop = self.core.snapshot()
            self.disk.save(meta, chunks, drop)
            self.core.saved()
