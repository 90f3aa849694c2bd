"""Retention: evict the journal rows and blobs of removed bags, in small steps, while the server is idle.

Rules
  * The name of a pass over the journal says how far the pass goes and how many bags were gone when it began.  From the
    name, a restarted server tells whether to resume a pass or to begin one.
  * A step waits until the writer has done nothing for LOOK_S.  On a server that is never idle, a step runs after
    PATIENCE such waits.
  * A thread searches the disk for blobs.
  * Where an age is set (`keep`), the server removes each bag whose end and last change are longer ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from windfall.core.messages import events
from windfall.core.messages.facts import BagRemoved, Fact
from windfall.data.blobs import Blobs
from windfall.errors import WindfallError
from windfall.model.calls import blobs_in
from windfall.store.journal import Budget
from windfall.store.retention import DropRemovedBags

log = logging.getLogger("windfall.server")

START_S = 5.0  # after the start, so that retention does not slow down a short run
PAUSE_S = 2.0  # after a removal
LOOK_S = 0.02  # without a step of the core: the server counts as idle
PATIENCE = 50  # waits for an idle moment before a step runs all the same
STEP = Budget(rows=50, bytes=256 << 10)  # of the journal, per turn of the loop
DAY_S = 86_400.0
HOUR_S = 3_600.0
BLOB_AGE_S = 86_400.0  # for which a blob that no bag needs is kept: its bag may be on the way


class Retention:
    """`commit` listens to the writer; `start` resumes a pass that an earlier process left; `stop` cancels the rest."""

    def __init__(
        self, writer: Any, projector: Any, blobs: Callable[[], Blobs], also: Callable[[], set[str]] = set
    ) -> None:
        self._writer = writer
        self._projector = projector
        self._blobs = blobs
        self._also = also  # returns further blobs to keep, beside those of bags and results
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again = False
        self.keep = 0  # ms; 0: for ever
        self._hours: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(START_S, self._daily)
        if self.keep:
            self._hours = self._loop.call_later(START_S, self._hourly)

    def _hourly(self) -> None:
        self._hours = self._loop.call_later(HOUR_S, self._hourly)
        oldest = self._writer.clock.now() - self.keep
        for bag in list(self._writer.state.bags.values()):
            if bag.ended and max(bag.ended, bag.changed) < oldest and not self._writer.closed:
                log.info("bag %d of %s removed: it is older than the server keeps bags", bag.number, bag.owner)
                self._writer.put(events.Remove(0, bag.number, by="keep"))

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        if any(type(fact) is BagRemoved for fact in facts):
            self._ask_for_pass()

    def stop(self) -> None:
        for each in (self._task, self._timer, self._hours):
            if each is not None:
                each.cancel()

    # --- when -------------------------------------------------------------------------------------------------

    def _daily(self) -> None:
        self._timer = self._loop.call_later(DAY_S, self._daily)
        self._loop.run_in_executor(None, _drop_uploads, self._blobs)
        if self._unfinished():
            self._ask_for_pass()

    def _ask_for_pass(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run_passes())

    async def _run_passes(self) -> None:
        while self._again:
            await asyncio.sleep(PAUSE_S)
            self._again = False
            try:
                await self._shrink_journal()
                await self._drop_blobs()
            except WindfallError as error:
                log.error("removed bags still take disk space, retention failed: %s", error)

    async def _wait_until_idle(self) -> None:
        for _ in range(PATIENCE):
            before = self._writer.groups
            await asyncio.sleep(LOOK_S)
            if self._writer.groups == before:
                return

    # --- the journal ------------------------------------------------------------------------------------------

    def _removed_count(self) -> int:
        state = self._writer.state
        return int(state.next_bag - 1 - len(state.bags))

    def _unfinished(self) -> bool:
        """Do rows of removed bags still lie in the journal?"""
        name, ended = self._writer.journal.last_pass()
        return self._removed_count() != (_parse(name)[1] if ended else -1)

    def _next_pass(self) -> tuple[str, int]:
        """Return the name and end of the next pass: an interrupted one resumes if no bag was removed since."""
        name, ended = self._writer.journal.last_pass()
        upto, gone = _parse(name)
        if not ended and gone == self._removed_count():
            return name, upto
        self._writer.snapshot()  # a pass may change only rows before the last snapshot
        upto = self._writer.position
        return f"removed {upto} {self._removed_count()}", upto

    async def _shrink_journal(self) -> None:
        name, upto = self._next_pass()
        edit, journal = DropRemovedBags(dict.fromkeys(self._writer.state.bags)), self._writer.journal
        await self._wait_until_idle()
        while not self._writer.closed and journal.rewrite(upto, edit, STEP, name):
            await self._wait_until_idle()

    # --- file contents ----------------------------------------------------------------------------------------

    async def _drop_blobs(self) -> None:
        wanted = await self._projector.ask(lambda views: views.blobs())
        bags = list(self._writer.state.bags.values())
        wanted |= self._also()
        wanted.update(sha for bag in bags for files in bag.checkpoints.values() for _, sha, _, _ in files)
        specs = [bag.spec for bag in bags]
        appended = [more for bag in bags for more in bag.appended]
        await self._loop.run_in_executor(None, lambda: _drop_unwanted(self._blobs, wanted, specs, appended))


def _parse(name: str) -> tuple[int, int]:
    """Return from a pass's name how far it goes, and how many bags were gone when it began."""
    word, *numbers = name.split(" ")
    if word != "removed" or len(numbers) != 2:
        return 0, 0
    return int(numbers[0]), int(numbers[1])


# --- in a thread ------------------------------------------------------------------------------------------------

class _Input(msgspec.Struct):
    blob: str = ""


class _Family(msgspec.Struct):
    files: dict[str, tuple[str, int, int]] = {}


class _Target(msgspec.Struct):
    inputs: list[_Input] = []
    families: list[_Family] = []
    packed: _Input | None = None


class _Flows(msgspec.Struct):
    blobs: list[tuple[str, int, int]] = []


class _Inputs(msgspec.Struct):
    """The input blobs of a bag's specification; the decoder skips all other fields."""

    targets: list[_Target] = []
    flows: _Flows | None = None


_decode_inputs = msgspec.msgpack.Decoder(_Inputs).decode


def inputs_of(spec: bytes) -> set[str]:
    found, inputs = blobs_in(spec), _decode_inputs(spec)
    if inputs.flows is not None:
        found.update(blob for blob, _, _ in inputs.flows.blobs)
    for target in inputs.targets:
        found.update(each.blob for each in target.inputs)
        found.update(blob for family in target.families for blob, _, _ in family.files.values())
        if target.packed is not None:
            found.add(target.packed.blob)
    return found


class _AppendBlobs(msgspec.Struct, array_like=True):
    target: int
    source: msgspec.Raw
    files: list[dict[str, tuple[str, int, int]]] = []
    edges: msgspec.Raw = msgspec.Raw()
    flows: _Flows | None = None


_decode_append_blobs = msgspec.msgpack.Decoder(_AppendBlobs).decode


def _appended_blobs(packed: bytes) -> set[str]:
    found, more = blobs_in(packed), _decode_append_blobs(packed)
    found.update(blob for files in more.files for blob, _, _ in files.values())
    if more.flows is not None:
        found.update(blob for blob, _, _ in more.flows.blobs)
    return found


def _drop_unwanted(
    blobs: Callable[[], Blobs], wanted: set[str], specs: Iterable[bytes], appended: Iterable[bytes]
) -> None:
    for spec in specs:
        wanted |= inputs_of(spec)
    for more in appended:
        wanted |= _appended_blobs(more)
    blobs().delete_unreferenced(lambda owner, sha: sha in wanted, BLOB_AGE_S)


def _drop_uploads(blobs: Callable[[], Blobs]) -> None:
    try:
        freed = blobs().delete_stale_uploads()
    except OSError as error:
        log.error("abandoned uploads still take disk space: %s", error)
    else:
        if freed:
            log.info("%d bytes of abandoned uploads deleted", freed)
