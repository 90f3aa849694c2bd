"""Leaving a bag that goes on: after Ctrl-C, or when `--timeout` has passed; say what it leaves behind."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windfall.cli.present.output import shown
from windfall.errors import BadInput, TimedOut, WindfallError
from windfall.model.units import format_duration, parse_duration, plural

if TYPE_CHECKING:
    from windfall.cli.connect import Session
    from windfall.client.types import PilotInfo

NAMED = 5  # jobs of a site that are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", metavar="DURATION", type=_timeout,
                        help="leave the bag, which goes on, if it has not ended by then (exit code 124)")


def _timeout(text: str) -> int:
    try:
        found = parse_duration(text, "--timeout")
    except BadInput as error:
        raise argparse.ArgumentTypeError(error.message) from None
    if found <= 0:
        raise argparse.ArgumentTypeError("it must be above 0")
    return found


@contextmanager
def deadline(ms: int | None) -> Iterator[None]:
    """Raise TimedOut in the main thread when so many milliseconds have passed."""
    if ms is None:
        yield
        return

    def over(_number: int, _frame: object) -> None:
        raise TimedOut(f"the bag has not ended within {format_duration(ms)}", "windfall wait goes on watching it")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, ms / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def holders(session: Session) -> str:
    """Say which pilots of batch systems still hold cores, by the names of their jobs; "" if none does."""
    try:
        sites = {site["site"]: site for site in session.client.sites() if site["kind"] != "local"}
        pilots = [pilot for pilot in session.client.pilots()
                  if not pilot["ended"] and pilot["nonce"] and pilot["site"] in sites]
        queued = sum(site["queued"] for site in sites.values())
    except WindfallError:
        return ""
    if not pilots and not queued:
        return ""
    by_site: dict[str, list[PilotInfo]] = {}
    for pilot in pilots:
        by_site.setdefault(pilot["site"], []).append(pilot)
    held = "; ".join(_held(site, at) for site, at in by_site.items()) or "none"
    waiting = f"; waiting: {plural(queued, 'job')} of pilots in batch queues" if queued else ""
    return f"  cores still held: {held}{waiting}\n  give them back: windfall site drain SITE --now"


def _held(site: str, pilots: list[PilotInfo]) -> str:
    cores = sum(pilot["cores"] for pilot in pilots)
    names = ", ".join(f"wf{shown(pilot['nonce'], 60)}" for pilot in pilots[:NAMED])
    more = f" and {len(pilots) - NAMED:,} others" if len(pilots) > NAMED else ""
    return f"{shown(site, 60)}: {plural(cores, 'core')} ({names}{more})"
