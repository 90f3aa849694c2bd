"""Recovery: restore the core from snapshot and journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from windfall.core.config import Config
from windfall.core.persist.upgrades import VERSION
from windfall.core.step import Core
from windfall.errors import StoreCorrupt, StoreError, StoreTooNew, WindfallError
from windfall.server.clock import Clock
from windfall.store import codec, mark
from windfall.store.journal import Journal, Snapshot, name_commit

_DOCTOR = "'windfall doctor' says what can be saved; or restore the data directory from a backup"


def recover(path: Path, config: Config | None = None) -> tuple[Core, Journal, Clock]:
    """Open the journal, which keeps a second server out; restore the core from it; and start the clock after the last
    journaled time."""
    owner, seen = _place_of_views(path)
    if seen and not path.exists():
        raise StoreCorrupt(f"{path} is missing, and the views beside it had reached commit {seen}", _DOCTOR)
    journal = Journal.open(path)
    try:
        if owner == journal.identity and seen > journal.position:
            raise StoreCorrupt(f"{path} has lost {seen - journal.position} commits: the last good one is"
                               f" {name_commit(journal.position, journal.last_at())}, and the views beside it had"
                               f" reached commit {seen}", _DOCTOR)
        core = Core(config or Config())
        restore(core, journal)
        journal.numbers = core.numbers
        clock = Clock(journal.last_at())
        core.resume(clock.now())
        return core, journal, clock
    except BaseException:
        journal.close()
        raise


def _place_of_views(path: Path) -> tuple[str, int]:
    """Return the identity and the position of the journal that the views beside it tell of, where no mark does."""
    views = path.with_name("views.db")
    if mark.read(mark.mark_of(path)) is not None or not views.exists():
        return "", 0
    from windfall.store.views import place_of

    return place_of(views)


def restore(core: Any, journal: Journal) -> None:
    after = 0
    snapshot = journal.load_snapshot()
    if snapshot is not None:
        _load(core, snapshot)
        after = snapshot.position
    for _, _, body in journal.read(after):
        core.replay(codec.decode(body))


def _load(core: Any, snapshot: Snapshot) -> None:
    """Restore the core from a snapshot.  The snapshot's checksums are right, so a failure here means that another
    version of Windfall wrote it, or a bug."""
    try:
        core.restore(snapshot.meta, snapshot.chunks)
    except WindfallError:
        raise
    except Exception as error:  # an unknown layout may lead to any exception
        raise _unreadable(snapshot.meta, error) from error


def _unreadable(meta: bytes, error: Exception) -> StoreError:
    version = _version(meta)
    if version > VERSION:
        return StoreTooNew(
            f"the snapshot has version {version}; this Windfall knows up to {VERSION}",
            "start the newer Windfall that wrote it; nothing was changed",
        )
    return StoreCorrupt(
        f"the snapshot cannot be read: {type(error).__name__}: {error}",
        "nothing was changed; start the Windfall that wrote it, or restore the data directory from a backup",
    )


def _version(meta: bytes) -> int:
    try:
        found = msgspec.msgpack.decode(meta)["version"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return 0
    return found if isinstance(found, int) else 0
