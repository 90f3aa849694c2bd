"""What keeps a bag from running, in one line: the server's `explain`, and what to do about it here."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import shown
from windfall.errors import WindfallError

if TYPE_CHECKING:
    from windfall.cli.connect import Session
    from windfall.cli.watch.progress import Progress

PATIENCE = 5.0  # seconds without an active task before one asks why
FAILURES = 10.0  # seconds between looks at why tasks fail
AGAIN = 60.0  # seconds before one asks again


def no_pilot(found: dict[str, Any]) -> bool:
    """Is it that there is no pilot at all?"""
    sites = found.get("sites") or []
    return bool(sites) and all(
        not clause.get("holds") and clause.get("clause") == "pilots"
        for site in sites
        for clause in site.get("clauses") or ()
    )


def reason(found: dict[str, Any], remedy: str) -> str:
    """`remedy`: what to do where no pilot is connected."""
    if no_pilot(found):
        return f"no pilot is connected: {remedy}"
    summary = shown(found.get("summary"), 500)
    return f"nothing can run: {_failing(found)}" if summary.startswith("no pilot can run it") else summary


def _failing(found: dict[str, Any]) -> str:
    """`needs 1000 cores, the pilot has 2`; where there are several sites, with those of which it is true."""
    sites = found.get("sites") or []
    said: dict[str, list[str]] = {}
    for site in sites:
        for clause in site.get("clauses") or ():
            if clause.get("holds"):
                continue
            name, says = str(clause.get("clause")), shown(clause.get("says"), 200)
            if name in ("cores", "gpus"):
                says = says.replace(",", f" {name},", 1).replace("the pilot has", "the largest pilot has")
            else:
                says = f"{name}: {says}"
            said.setdefault(says, []).append(str(site.get("site")))
    return "; ".join(f"{', '.join(names)}: {says}" if len(sites) > 1 else says for says, names in said.items())


class Watchman:
    """Speaks up when nothing of a bag has been active for a while, then once a minute; knows why tasks fail.

    A thread with a connection of its own, since the one that waits hears nothing when nothing happens.
    """

    def __init__(self, session: Session, bag: int, progress: Progress):
        self._session, self._bag, self._progress = session, bag, progress
        self._idle_since: float | None = time.monotonic()
        self._stop = threading.Event()
        self._counts: dict[str, int] = {}
        self._commonest = ""
        progress.why = lambda: self._commonest
        threading.Thread(target=self._watch, name="watchman", daemon=True).start()

    def __call__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._progress(counts)
        if counts.get("active"):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        quiet_until = look_at = 0.0
        while not self._stop.wait(1.0):
            now, since = time.monotonic(), self._idle_since
            if self._counts.get("active"):
                self._progress(self._counts)  # so that rate and ETA live on when nothing is heard
            if self._counts.get("failed") and now >= look_at and not self._progress.quiet:
                look_at = now + FAILURES
                self._look()
            if since is not None and now - since >= PATIENCE and now >= quiet_until:
                quiet_until = now + AGAIN
                self._speak()

    def _speak(self) -> None:
        from windfall.client.client import Client

        try:
            with Client(self._session.client.profile, patience=0) as client:
                found = client.explain(self._bag)
        except WindfallError:
            return  # the one that waits will say so
        if found.get("state") in ("waiting", "ready") and not self._stop.is_set():
            text = reason(found, self._remedy())
            self._progress.say(f"{self._progress.name}: {text}   (windfall explain {self._bag})")

    def _look(self) -> None:
        from windfall.cli.present.causes import says
        from windfall.client.client import Client

        try:
            with Client(self._session.client.profile, patience=0) as client:
                causes = client.failures(self._bag)
        except WindfallError:
            return
        if causes:
            self._commonest = f"mostly: {says(causes[0])}" if len(causes) > 1 else says(causes[0])

    def _remedy(self) -> str:
        if self._session.embedded is not None:
            return "that of this command is still starting"
        return "start one with 'windfall serve --pilot' or 'windfall pilot --ticket FILE'"
