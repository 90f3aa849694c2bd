"""From snapshot and journal back to a core that serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windfall.core.engine import Config, Core
from windfall.server.clock import Clock
from windfall.store import codec
from windfall.store.journal import Journal


def recover(path: Path, config: Config | None = None) -> tuple[Core, Journal, Clock]:
    """Opens the journal (and so keeps a second server out), folds what is in it, and lets time go on."""
    journal = Journal.open(path)
    try:
        core = Core(config or Config())
        restore(core, journal)
        clock = Clock(journal.last_at())
        core.resume(clock.now())
        return core, journal, clock
    except BaseException:
        journal.close()
        raise


def restore(core: Any, journal: Journal) -> None:
    after = 0
    snapshot = journal.load_snapshot()
    if snapshot is not None:
        core.restore(snapshot.meta, snapshot.chunks)
        after = snapshot.position
    for _, _, body in journal.read(after):
        core.replay(codec.decode(body))
