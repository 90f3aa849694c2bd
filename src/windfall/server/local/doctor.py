"""`windfall doctor`: whether a home is sound, and what can be done where it is not.

Rules
  * Without an order the doctor changes nothing, but for upgrading a journal of an older layout, as any start does.
  * `repair` does what loses nothing.  `cut` ends the journal at its last good commit, says what is lost, and skips the
    numbers that lost commits may have given.  Either keeps a copy of the files that it replaces.
  * The doctor holds the journal's lock, so no server runs meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from windfall.core.messages import facts as f
from windfall.core.start_time import date_of
from windfall.core.state.world import State
from windfall.core.step import Core
from windfall.errors import StoreCorrupt, StoreError, TrustError
from windfall.server.local.data_folder import Home, user
from windfall.server.recovery import recover, restore
from windfall.store import codec, mark, salvage
from windfall.store.journal import Journal, create, name_commit
from windfall.store.locking import Lock
from windfall.store.views import Views, discard

MARGIN = 1_000  # numbers that are skipped beyond those that the mark or the views tell of
ATTEMPTS_MARGIN = 1 << 20  # uses of a row of the attempts
BACK = 60_000  # ms by which the journal must be ahead to be set back
NAMED = 20  # bags that a list of losses names


@dataclass
class Finding:
    """A part of the home, in a sentence; `remedy` is empty where all is well."""

    part: str
    says: str
    remedy: str = ""


@dataclass
class Outcome:
    """The doctor's work: what it did, what is lost, and where the damaged files lie."""

    did: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    kept: str = ""


# --- looking ----------------------------------------------------------------------------------------------------

def examine(home: Home) -> list[Finding]:
    """Return what there is to say of each part of a home."""
    try:
        found = _examine_journal(home)
    except StoreCorrupt as error:
        found = [Finding("journal", error.message, _prospects(home))]
    return [*found, *_examine_tls(home)]


def _examine_journal(home: Home) -> list[Finding]:
    if not home.journal.exists() and not salvage.reached(home.journal):
        return [Finding("journal", "there is none yet")]
    core, journal, clock = recover(home.journal)
    try:
        journal.check_history()
        at = name_commit(journal.position, journal.last_at())
        found = [Finding("journal", f"all commits read back, the last is {at}; {len(core.state.bags)} bags")]
        times = Finding("clock", clock.problem, "windfall doctor --clock") if clock.problem else Finding(
            "clock", "this machine's clock and the journal agree")
        return [*found, times, _examine_views(home, journal)]
    finally:
        journal.close()


def _examine_views(home: Home, journal: Journal) -> Finding:
    """Compare the views with what the journal makes: a flipped bit in a row has no other sign."""
    if not home.views.exists():
        return Finding("views", "the next server makes them")
    with _work(home) as work:
        views = Views.open(work / "views.db", journal.identity)
        try:
            upto = _position(home.views)
            for seq, _, body in journal.read(0, upto):
                if seq <= upto:
                    views.project(seq, codec.decode(body))
            views.project(upto, [])
            views.flush()
            same = _rows(work / "views.db") == _rows(home.views)
        except sqlite3.Error:
            same = False
        finally:
            views.abandon()
    if same:
        return Finding("views", "they agree with the journal")
    return Finding("views", "they differ from the journal", "windfall doctor --repair has them made again")


def _examine_tls(home: Home) -> list[Finding]:
    if not (home.tls.is_dir() and any(home.tls.iterdir())):
        return []
    from windfall.server.http import tls

    try:
        tls.context(home.tls)
    except TrustError as error:
        return [Finding("tls", error.message, error.hint)]
    return [Finding("tls", "key and certificate are a pair")]


def _prospects(home: Home) -> str:
    """Say what `repair` or `cut` would make of a damaged journal."""
    with _work(home) as work:
        reading = salvage.read(home.journal, work)
    if reading is None or not reading.last[0]:
        return ("no commit can be saved: restore the home from a backup; or windfall doctor --cut begins an empty"
                " journal, and gives no number twice")
    if _is_whole(home, reading):
        return "windfall doctor --repair recovers every commit"
    lost = max(salvage.reached(home.journal) - reading.last[0], len(reading.later))
    return (f"the last good commit is {name_commit(*reading.last)}, and {lost or 'some'} after it are lost: restore the"
            " home from a backup; or windfall doctor --cut ends the journal there, and lists what is lost")


def _is_whole(home: Home, reading: salvage.Reading) -> bool:
    return not reading.later and not reading.gaps and reading.last[0] >= salvage.reached(home.journal)


# --- mending ----------------------------------------------------------------------------------------------------

def mend(home: Home, cut: bool) -> Outcome:
    """Repair the home; with `cut`, end a journal that has lost commits at its last good one."""
    try:
        return _mend_views(home)
    except StoreCorrupt as error:
        return _mend_journal(home, cut, error)


def _mend_views(home: Home) -> Outcome:
    bad = [each for each in _examine_journal(home) if each.remedy and each.part == "views"]
    if not bad:
        return Outcome(["nothing needs repair"])
    aside = salvage.copy_aside(home.path)
    discard(home.views)
    return Outcome(["the next server makes the views again"], kept=str(aside))


def _mend_journal(home: Home, cut: bool, damage: StoreError) -> Outcome:
    lock = Lock.take(home.journal.with_suffix(".lock"))
    try:
        with _work(home) as work:
            reading = salvage.read(home.journal, work)
            whole = reading is not None and _is_whole(home, reading)
            if not whole and not cut:
                raise StoreCorrupt(damage.message, _prospects(home))
            return _replace(home, reading, work / "fresh.db", whole)
    finally:
        lock.release()


def _replace(home: Home, reading: salvage.Reading | None, fresh: Path, whole: bool) -> Outcome:
    if reading is None:
        create(fresh)
    else:
        salvage.write(reading, fresh, new_identity=not whole)
    core, journal = Core(), Journal.open(fresh)
    try:
        restore(core, journal)
        last = journal.position, journal.last_at()
        if not whole:
            _skip_numbers(home, core, journal)
        lost = [] if whole else _lost(home, core.state, reading, last[0])
    finally:
        journal.close()
    aside = salvage.copy_aside(home.path)
    salvage.install(fresh, home.journal)
    if not whole:
        discard(home.views)
    did = f"every commit is recovered, the last is {name_commit(*last)}" if whole else (
        f"the journal ends at {name_commit(*last)}" if last[0] else "the journal is empty")
    return Outcome([did], lost, str(aside))


def _skip_numbers(home: Home, core: Core, journal: Journal) -> None:
    """Commit what makes sure that no number of a lost commit is given again, and a snapshot after the gap."""
    told, state = mark.read(mark.mark_of(home.journal)), core.state
    numbers = told.numbers if told is not None else mark.NONE
    bag, pilot, intent = (max(pair) + MARGIN for pair in zip(numbers, core.numbers(), strict=True))
    seen = _largest_bag(home.views)
    fact = f.NumbersSkipped(
        max(journal.last_at(), state.now, told.at if told is not None else 0), next_bag=max(bag, seen + MARGIN),
        next_pilot=pilot, next_intent=intent, attempt_base=state.attempt_base + ATTEMPTS_MARGIN)
    journal.skip_to(salvage.reached(home.journal))
    core.replay([fact])
    journal.numbers = core.numbers
    position = journal.append(fact.at, codec.encode([fact]))
    meta, chunks, drop = core.snapshot()
    journal.save_snapshot(position, meta, chunks, drop)


# --- the clock --------------------------------------------------------------------------------------------------

def set_clock(home: Home) -> Outcome:
    """Have the journal go on at the time of this machine's clock, which a person says is right."""
    core, journal, clock = recover(home.journal)
    try:
        wall, before = time.time_ns() // 1_000_000, max(journal.last_at(), core.state.now)
        if not clock.problem and before - wall < BACK:
            return Outcome([f"the clock agrees with the journal, whose last commit is of {date_of(before)}"])
        aside = salvage.copy_aside(home.path)
        if before > wall:
            journal.date_back(wall)
        fact = f.ClockSet(wall, before, user())
        core.replay([fact])
        position = journal.append(wall, codec.encode([fact]))
        meta, chunks, drop = core.snapshot()
        journal.save_snapshot(position, meta, chunks, drop)
    finally:
        journal.close()
    moved = "; what was dated later moves back by as much" if before > wall else ""
    return Outcome([f"time goes on at {date_of(wall)}, after {date_of(before)}{moved}"], kept=str(aside))


# --- losses -----------------------------------------------------------------------------------------------------

def _lost(home: Home, state: State, reading: salvage.Reading | None, last: int) -> list[str]:
    """Return what the lost commits held, as far as the views and good rows beyond the cut tell."""
    reached = salvage.reached(home.journal)
    says = [f"{reached - last} commits, up to commit {reached}" if reached > last else "commits, nobody knows how many"]
    if reading is not None and reading.gaps:
        says.append(f"results in {reading.gaps} commits before the last snapshot, for people; tasks keep their state")
    bags = {fact.bag: fact.name for row in (reading.later if reading is not None else ())
            for fact in codec.decode(row.body) if isinstance(fact, f.BagSubmitted)}
    ends: list[tuple[int, int]] = []
    try:
        with closing(sqlite3.connect(home.views)) as views:
            bags.update(views.execute("SELECT bag, name FROM bag WHERE NOT removed").fetchall())
            ends = views.execute("SELECT bag, count(*) FROM attempt WHERE seq > ? GROUP BY bag", (last,)).fetchall()
    except sqlite3.Error:
        says.append("views.db tells nothing of what was in them")
    gone = [f"bag {number} ({name})" for number, name in sorted(bags.items()) if number not in state.bags]
    says += gone[:NAMED] + ([f"and {len(gone) - NAMED} more bags"] if len(gone) > NAMED else [])
    says += [f"{count} ends of attempts of bag {bag}: these tasks run again"
             for bag, count in ends if bag in state.bags]
    return says


def _largest_bag(views: Path) -> int:
    try:
        with closing(sqlite3.connect(views)) as connection:
            return int(connection.execute("SELECT coalesce(max(bag), 0) FROM bag").fetchone()[0])
    except (sqlite3.Error, TypeError, ValueError):
        return 0


# --- small ------------------------------------------------------------------------------------------------------

@contextmanager
def _work(home: Home) -> Iterator[Path]:
    with TemporaryDirectory(prefix="doctor-", dir=home.path) as name:
        yield Path(name)


def _position(views: Path) -> int:
    with closing(sqlite3.connect(views)) as connection:
        return int(connection.execute("SELECT position FROM place").fetchone()[0])


def _rows(views: Path) -> list[list[tuple[object, ...]]]:
    """Return the rows of the bags that are not removed, and of the pilots."""
    kept = "bag IN (SELECT bag FROM bag WHERE NOT removed)"
    with closing(sqlite3.connect(views)) as connection:
        return [connection.execute(query).fetchall() for query in (
            f"SELECT * FROM attempt WHERE {kept}", f"SELECT * FROM detail WHERE {kept} ORDER BY attempt",
            f"SELECT * FROM span WHERE {kept}", f"SELECT * FROM bag WHERE {kept}", "SELECT * FROM pilot",
            f"SELECT * FROM usage WHERE {kept} ORDER BY 1, 2")]
