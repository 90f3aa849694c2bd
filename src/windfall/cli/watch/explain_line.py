"""Say in one line why a bag does not run (from the server's `explain`), and what to do about it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import shown
from windfall.errors import WindfallError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windfall.cli.connect import Session
    from windfall.cli.watch.progress import Progress
    from windfall.client.types import SiteInfo

PATIENCE = 5.0  # seconds without an active task before the watchman asks the server why
FAILURES = 10.0  # seconds between requests for the causes of failures
AGAIN = 60.0  # seconds between two explanations
RUNNING = 3.0  # seconds between counts of the tasks that run
MOST_RUNNING = 1_000  # beyond that, all active tasks are shown together
NAMED = 3  # sites that are named
HEALTH = 5.0  # seconds between two questions about the server's health


def no_pilot(found: dict[str, Any]) -> bool:
    """Does every site fail the clause `pilots`, and no other?"""
    sites = found.get("sites") or []
    return bool(sites) and all(
        not clause.get("holds") and clause.get("clause") == "pilots"
        for site in sites
        for clause in site.get("clauses") or ()
    )


def starting(sites: Iterable[SiteInfo]) -> list[str]:
    """Return the sites where the server itself starts pilots: those with a file, and so with limits."""
    return [shown(site["site"], 60) for site in sites if site["limits"].get("pilots") and not site["drained"]]


def reason(found: dict[str, Any], remedy: str) -> str:
    """Return why the bag does not run; `remedy` says what to do if no pilot is connected."""
    if no_pilot(found) and not found.get("problem"):
        return f"no pilot is connected: {remedy}"
    summary = shown(found.get("summary"), 500)
    return f"nothing can run: {_failing(found)}" if summary.startswith("no pilot can run it") else summary


def _failing(found: dict[str, Any]) -> str:
    """Return the clauses that fail, as `needs 1000 cores, the largest pilot has 2`; if several, name the sites."""
    sites = found.get("sites") or []
    sites_by_clause: dict[str, list[str]] = {}
    for site in sites:
        for clause in site.get("clauses") or ():
            if clause.get("holds"):
                continue
            name, says = str(clause.get("clause")), shown(clause.get("says"), 200)
            if name in ("cores", "gpus"):
                says = says.replace(",", f" {name},", 1).replace("the pilot has", "the largest pilot has")
            else:
                says = f"{name}: {says}"
            sites_by_clause.setdefault(says, []).append(str(site.get("site")))
    return "; ".join(f"{', '.join(names)}: {says}" if len(sites) > 1 else says
                     for says, names in sites_by_clause.items())  # fmt: skip


class Watchman:
    """Explains once a minute why no task of the bag is active; finds the commonest cause of failures; tells what keeps
    the server from working as it should.

    The watchman has a thread and a connection of its own: the connection that waits for news hears nothing while
    nothing happens.
    """

    def __init__(self, session: Session, bag: int, progress: Progress):
        self._session, self._bag, self._progress = session, bag, progress
        self._idle_since: float | None = time.monotonic()
        self._stop = threading.Event()
        self._counts: dict[str, int] = {}
        self._commonest = ""
        self._count_at = 0.0
        self._problems: list[str] = []
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
        quiet_until, causes_at, health_at = self._begin(), 0.0, 0.0
        while not self._stop.wait(1.0):
            now, since = time.monotonic(), self._idle_since
            if self._counts.get("active"):
                self._count_running(now)
                self._progress(self._counts)  # rate and ETA change even without news
            if self._counts.get("failed") and now >= causes_at and not self._progress.quiet:
                causes_at = now + FAILURES
                self._find_commonest()
            if now >= health_at:
                health_at = now + HEALTH
                self._tell_problems()
            if since is not None and now - since >= PATIENCE and now >= quiet_until:
                quiet_until = now + AGAIN
                self._explain()

    def _count_running(self, now: float) -> None:
        """Ask how many of the active tasks have started, now and then, for people who watch."""
        if self._progress.quiet or now < self._count_at:
            return
        self._count_at = now + RUNNING
        from windfall.client.client import Client

        try:
            with Client(self._session.client.profile, patience=0) as client:
                found = len(client.running(self._bag, MOST_RUNNING))
        except WindfallError:
            return  # the connection that waits for the bag will report it
        self._progress.running = found if found < MOST_RUNNING else None

    def _begin(self) -> float:
        """Say at once that no pilot is connected to a separate server; return when to explain again."""
        said = self._session.separate and not self._counts.get("active") and self._explain(only_without_pilot=True)
        return time.monotonic() + AGAIN if said else 0.0

    def _tell_problems(self) -> None:
        from windfall.client.client import Client

        try:
            with Client(self._session.client.profile, patience=0) as client:
                found = client.health()["problems"]
        except WindfallError:
            return  # the connection that waits for the bag will report it
        for problem in found:
            if problem not in self._problems and not self._stop.is_set():
                self._progress.say(f"the server reports: {shown(problem, 500)}")
        self._problems = found

    def _explain(self, only_without_pilot: bool = False) -> bool:
        """Say why nothing runs; return whether there was anything to say."""
        from windfall.client.client import Client

        try:
            with Client(self._session.client.profile, patience=0) as client:
                found, coming = client.explain(self._bag), starting(client.sites())
        except WindfallError:
            return False  # the connection that waits for the bag will report it
        waits = found.get("state") in ("waiting", "ready") and not self._stop.is_set()
        if not waits or (only_without_pilot and (coming or not no_pilot(found))):
            return False
        text = reason(found, self._remedy(coming))
        self._progress.say(f"{self._progress.name}: {text}   (windfall explain {self._bag})")
        return True

    def _find_commonest(self) -> None:
        from windfall.cli.present.causes import says
        from windfall.client.client import Client

        try:
            with Client(self._session.client.profile, patience=0) as client:
                causes = client.failures(self._bag)
        except WindfallError:
            return
        if causes:
            self._commonest = f"mostly: {says(causes[0])}" if len(causes) > 1 else says(causes[0])

    def _remedy(self, coming: list[str]) -> str:
        if self._session.embedded is not None:
            return "this command's own pilot is still starting"
        if coming:
            return (f"the server starts some at {', '.join(coming[:NAMED])}; "
                    f"'windfall site show {coming[0]}' says how far it is")
        return "start one with 'windfall serve --pilot' or 'windfall pilot --ticket FILE'"
