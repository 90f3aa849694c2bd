"""Homes with flipped bits, cut and deleted files: each outcome is words, or the whole truth.

    python -m tests.live.damaged_homes [CASES] [FIRST SEED]     (scripts/soak damage; default: 2000 cases)

A case damages one file of the home of a killed server, and lets what starts from that home read it: recovery, views,
the TLS pair, and then the doctor.  Nothing may end in another exception than a WindfallError with a hint, and nothing
that is said to be whole may differ from the truth.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from windfall.core.persist.fingerprint import differences, fingerprint
from windfall.core.persist.snapshot import rebuild
from windfall.core.step import Core
from windfall.errors import WindfallError
from windfall.server.http import tls
from windfall.server.local import doctor
from windfall.server.local.data_folder import Home
from windfall.server.recovery import restore
from windfall.server.views.projector import Projector
from windfall.store.journal import Journal

SRC = str(Path(__file__).resolve().parents[2] / "src")
FILES = ("journal.db", "journal.db-wal", "journal.mark", "views.db", "tls/key.pem", "tls/certificate.pem")


def make(home: Path) -> None:
    """Make a home with ended bags, a snapshot, a log that was never folded in, views, and a TLS pair."""
    def windfall(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "windfall", *arguments], check=True, capture_output=True, timeout=120,
                       env=environment)

    environment = {**os.environ, "PYTHONPATH": SRC, "WINDFALL_HOME": str(home)}
    windfall("run", "-q", "echo {x}", "--sweep", "x=1..6", "--name", "first", "-o", str(home.with_suffix(".out")))
    journal, core = Journal.open(home / "journal.db"), Core()
    restore(core, journal)
    meta, chunks, drop = core.snapshot()
    journal.save_snapshot(journal.position, meta, chunks, drop)
    journal.close()
    server = subprocess.Popen([sys.executable, "-m", "windfall", "serve", "--listen", "127.0.0.1:0", "--pilot"],
                              env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        assert any("serving at" in line for line in server.stderr)
        windfall("run", "-q", "echo {x}", "--sweep", "x=1..4", "--name", "second", "-o", f"{home}.second")
        windfall("submit", "sleep 99", "--name", "third")
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


class Truth:
    """A home's state and results, as an undamaged copy gives them."""

    def __init__(self, home: Path) -> None:
        core, journal = _restored(home)
        self.state = fingerprint(core.state)
        self.bags = sorted(core.state.bags)
        self.next_bag = core.state.next_bag
        self.rows = _rows(home, journal, self.bags)
        journal.close()
        self.certificate = tls.context(home / "tls")[1]


def _restored(home: Path) -> tuple[Core, Journal]:
    journal = Journal.open(home / "journal.db")
    try:
        core = Core()
        restore(core, journal)
        rebuild(core.state)
    except BaseException:
        journal.close()
        raise
    return core, journal


def _rows(home: Path, journal: Journal, bags: list[int]) -> list[Any]:
    async def ask() -> list[Any]:
        projector = Projector(home / "views.db", journal)
        try:
            return [await projector.ask(lambda views, bag=bag: views.results(bag)) for bag in bags]
        finally:
            await projector.close()

    return asyncio.run(ask())


# --- damage -----------------------------------------------------------------------------------------------------

def damage(path: Path, dice: random.Random) -> str:
    """Damage a file; return how."""
    body = bytearray(path.read_bytes())
    kind = dice.choice(("flip", "flip", "flip", "flips", "cut", "zeros", "noise", "delete", "empty"))
    place = dice.randrange(min(len(body), 100) if dice.random() < 0.3 else len(body))
    length = min(dice.choice((1, 16, 512, 4096)), len(body) - place)
    if kind == "flip":
        body[place] ^= 1 << dice.randrange(8)
    elif kind == "flips":
        for _ in range(dice.randrange(2, 20)):
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
    elif kind == "cut":
        del body[place:]
    elif kind == "zeros":
        body[place : place + length] = bytes(length)
    elif kind == "noise":
        body[place : place + length] = dice.randbytes(length)
    elif kind == "empty":
        body.clear()
    path.unlink()
    if kind != "delete":
        path.write_bytes(body)
        path.chmod(0o600)
    return f"{kind} of {path.name} at {place}"


# --- outcomes ---------------------------------------------------------------------------------------------------

def check(home: Path, truth: Truth, views_damaged: bool) -> str:
    """Read a damaged home, and have the doctor mend it; return the outcome in a word.  Raise where truth was lost."""
    outcome = "whole"
    for read in (_check_state, _check_tls):
        try:
            read(home, truth, views_damaged)
        except WindfallError as error:
            assert error.message and error.hint, f"no words: {error!r}"
            outcome = "refused"
    return f"{outcome}, {_check_doctor(home, truth)}"


def _check_state(home: Path, truth: Truth, views_damaged: bool) -> None:
    core, journal = _restored(home)
    try:
        assert differences(truth.state, fingerprint(core.state)) == [], "another state, without a word"
        if not views_damaged:  # SQLite cannot know of a flipped bit in a row of the views; the doctor compares them
            assert _rows(home, journal, truth.bags) == truth.rows, "other results, without a word"
        else:
            _rows(home, journal, truth.bags)
    finally:
        journal.close()


def _check_tls(home: Path, truth: Truth, views_damaged: bool) -> None:
    assert (home / "tls").is_dir() and tls.context(home / "tls")[1] == truth.certificate, "another certificate"


def _check_doctor(home: Path, truth: Truth) -> str:
    there = Home(home)
    doctor.examine(there)
    try:
        said, word = doctor.mend(there, cut=False), "repaired"
        assert not said.lost
    except WindfallError as error:
        assert error.hint
        said, word = doctor.mend(there, cut=True), "cut"
        assert said.lost and said.kept
    core, journal = _restored(home)
    try:
        rows = _rows(home, journal, truth.bags)
        if word == "repaired":
            assert differences(truth.state, fingerprint(core.state)) == [], "not all was repaired"
            assert rows == truth.rows, "results were not repaired"
        assert core.state.next_bag >= truth.next_bag, "a bag's number is given twice"
    finally:
        journal.close()
    again = [each.says for each in doctor.examine(there) if each.remedy and each.part in ("journal", "views")]
    assert not again, again
    return word


def run(cases: int, first: int = 1) -> dict[str, int]:
    """Run the cases; return how often each outcome came.  Print the seed of a failure, and raise."""
    outcomes: dict[str, int] = {}
    with TemporaryDirectory(prefix="windfall-damage-") as name:
        whole = Path(name) / "home"
        make(whole)
        copy = Path(name) / "copy"
        shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("socket*"))
        truth = Truth(copy)
        for seed in range(first, first + cases):
            shutil.rmtree(copy)
            shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("socket*"))
            dice = random.Random(seed)
            file = FILES[seed % len(FILES)]
            how = damage(copy / file, dice)
            try:
                outcome = check(copy, truth, file.startswith("views"))
            except BaseException:
                print(f"seed {seed}: {how}", file=sys.stderr)
                raise
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


if __name__ == "__main__":
    try:
        print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
