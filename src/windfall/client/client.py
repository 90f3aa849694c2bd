"""`Client`: what a program of the user's calls.

    from windfall import Client
    client = Client()                       # finds the server of this home
    bag = client.submit(*load("sweep.toml"))
    client.wait(bag)
    for row in client.results(bag): ...

A client holds one connection for calls and opens others for what streams.  Use one per thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from windfall.client.http import PATIENCE, Http
from windfall.client.profile import Profile, find, from_fields
from windfall.errors import BadInput, Conflict, NoServer, WindfallError

if TYPE_CHECKING:
    from windfall.client import types
    from windfall.client.extend import Extension
    from windfall.client.table import Table
    from windfall.client.types import Row
    from windfall.model.spec import Bag, Part, Source

Json = dict[str, Any]
Upload = str | os.PathLike[str] | bytes  # a file, or what is in it

FINAL = ("succeeded", "failed", "cancelled")
"""States in which a bag changes no more by itself."""

PAGE = 1000


class Client:
    def __init__(self, profile: Profile | Mapping[str, object] | None = None, patience: float = PATIENCE):
        if profile is None:
            profile = find()
        elif not isinstance(profile, Profile):
            profile = from_fields(dict(profile))
        self.profile = profile
        self._http = Http(profile, patience)
        self._calls: Any = None
        self._spare: list[Http] = []  # connections whose stream came to its end
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for http in self._spare:
            http.close()
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- submitting ----------------------------------------------------------------------------------------

    def submit(self, bag: Bag, uploads: Mapping[str, Upload] | None = None, key: str = "") -> int:
        """Send the files the server lacks, then the bag; returns its number.  The same `key` again is the same bag."""
        return int(self.submitted(bag, uploads, key)["bag"])

    def submitted(
        self, bag: Bag, uploads: Mapping[str, Upload] | None = None, key: str = ""
    ) -> types.Submitted:
        """As `submit`; returns all the server says."""
        import msgspec

        for sha, file in (uploads or {}).items():
            self._http.upload(sha, file)
        answer = self._http.call("POST", "/v1/bags", raw=msgspec.json.encode(bag), key=key or new_key())
        return cast("types.Submitted", self._object(answer))

    def append(self, bag: int, source: Source, target: str = "main", key: str = "") -> types.Appended:
        """More tasks for an open bag."""
        body = {"target": target, "source": source}
        answer = self._http.call("POST", f"{_of(bag)}/tasks", body, key=key or new_key())
        return cast("types.Appended", self._object(answer))

    def append_part(self, bag: int, part: Part, key: str = "") -> types.Appended:
        """More tasks for an open bag, of any of its targets, with what they wait for; see `Part`."""
        import msgspec

        path = f"{_of(bag)}/parts"
        answer = self._http.call("POST", path, raw=msgspec.json.encode(part), key=key or new_key())
        return cast("types.Appended", self._object(answer))

    def extend(
        self, bag: int, wanted: Bag, uploads: Mapping[str, Upload] | None = None
    ) -> dict[str, int]:
        """Run the points of a sweep that the bag has not had yet; returns how many there are of each target."""
        from windfall.client.extend import extensions

        added: dict[str, int] = {}
        had, seen = self.spec(bag), -1
        while True:
            appended = self.appended(bag)
            found = list(extensions(had, appended, wanted))
            if seen < 0 and found:
                for sha, file in (uploads or {}).items():
                    self._http.upload(sha, file)
            try:
                self._extend(bag, found, len(appended), added)
                return added
            except Conflict:
                if len(appended) == seen:
                    raise  # nobody was faster: it is something else
                seen = len(appended)

    def _extend(self, bag: int, found: list[Extension], seen: int, added: dict[str, int]) -> None:
        """Refused where somebody else added something that we have not seen."""
        import msgspec

        from windfall.model.templates.render import source_count

        for count, each in enumerate(found):
            message = {"target": each.target, "source": each.source, "files": each.files, "seen": seen + count}
            self._http.call("POST", f"{_of(bag)}/extend", raw=msgspec.json.encode(message), key=new_key())
            added[each.target] = added.get(each.target, 0) + source_count(each.source)

    def close_bag(self, bag: int) -> types.BagInfo:
        """Nothing more will be appended."""
        return self._act(bag, "close")

    # --- looking -------------------------------------------------------------------------------------------

    def health(self) -> types.Health:
        return cast("types.Health", self._get("/health"))

    def bags(self) -> list[types.BagSummary]:
        return list(self._get("/v1/bags")["bags"])

    def bag(self, bag: int) -> types.BagInfo:
        return cast("types.BagInfo", self._get(f"{_of(bag)}"))

    def spec(self, bag: int) -> Bag:
        """The bag as it was submitted."""
        import msgspec

        from windfall.model.spec import Bag

        return msgspec.convert(self._get(f"{_of(bag)}/spec"), Bag)

    def appended(self, bag: int) -> list[Extension]:
        """What a bag was given after it was submitted, in order."""
        import msgspec

        from windfall.client.extend import Extension

        found: list[Extension] = []
        after: int | None = 0
        while after is not None:
            page = self._get(f"{_of(bag)}/appended?after={after:d}")
            rows = [(row["target"], row["source"], row["files"], row["edges"], row["flows"])
                    for row in page["appended"]]
            found += msgspec.convert(rows, list[Extension])
            after = page["next"]
        return found

    def task(self, bag: int, task: int) -> types.TaskInfo:
        return cast("types.TaskInfo", self._get(f"{_of(bag)}/tasks/{task:d}"))

    def task_spec(self, bag: int, task: int) -> Json:
        """All that a pilot is told of a task: command, files, environment, limits."""
        return self._get(f"{_of(bag)}/tasks/{task:d}/spec")

    def explain(self, bag: int, task: int | None = None) -> Json:
        """Why it is not running."""
        return self._get(f"{_of(bag)}/explain" + ("" if task is None else f"?task={task:d}"))

    def statistics(self, bag: int) -> types.Statistics:
        """What it took: attempts, queuing, real and redundant time, speed-up, sites."""
        return cast("types.Statistics", self._get(f"{_of(bag)}/statistics"))

    def failures(self, bag: int) -> list[types.Cause]:
        """Why tasks stand failed, the commonest cause first: counts, some tasks, and what `retry` takes as `cause`."""
        return list(self._get(f"{_of(bag)}/failures")["failures"])

    def usage(self, bags: bool = True) -> Json:
        """What files take, in bytes: of each bag, and where there is a quota, all together; see the HTTP reference."""
        return self._get("/v1/usage" + ("" if bags else "?bags=0"))

    def running(self, bag: int, most: int = PAGE) -> list[int]:
        """Tasks that have been started, those first that have run longest."""
        return list(self._get(f"{_of(bag)}/running?limit={most:d}")["tasks"])

    def pilots(self) -> list[types.PilotInfo]:
        return list(self._get("/v1/pilots")["pilots"])

    def sites(self) -> list[types.SiteInfo]:
        return list(self._get("/v1/sites")["sites"])

    def results(self, bag: int, state: str = "", after: int = -1, page: int = PAGE) -> Iterator[Row]:
        """One row per ended task, by task number; pages are asked for as they are needed."""
        at: int | None = after
        while at is not None:
            query = {"after": at, "limit": page, **({"state": state} if state else {})}
            answer = self._get(f"{_of(bag)}/results?{urlencode(query)}")
            yield from answer["rows"]
            following = answer.get("next")
            at = following if following is None or following > at else None

    def table(self, bag: int, most: int = 20) -> Table:
        """A bag and its first results, as a notebook shows them."""
        from itertools import islice

        from windfall.client.table import Table

        return Table(self.bag(bag), list(islice(self.results(bag, page=max(1, min(most, PAGE))), most)))

    def log(self, bag: int, task: int, stream: str = "out", follow: bool = False) -> Iterator[bytes]:
        """What the task wrote; with `follow`, until it ends."""
        path = f"{_of(bag)}/tasks/{task:d}/log?stream={quote(stream)}" + ("&follow=1" if follow else "")
        with self._http.sibling() as http:
            answer = http.open(path)
            while data := answer.read():
                yield data

    # --- waiting -------------------------------------------------------------------------------------------

    def watch(self, bag: int, position: int = 0, rows: bool = False) -> Iterator[types.Update]:
        """What happens to a bag, as it happens; ends when the bag does."""
        path = f"{_of(bag)}/watch?from={position:d}" + ("&rows=1" if rows else "")
        http = self._spare.pop() if self._spare else self._http.sibling()
        try:
            yield from http.stream(path)
        finally:
            if http.connected and not self._closed:
                self._spare.append(http)  # a handshake saved for the next one
            else:
                http.close()

    def wait(self, bag: int, on_update: Callable[[dict[str, int]], None] | None = None) -> types.BagInfo:
        """Until nothing is left to do; returns the bag.  Goes on by itself over a restart of the server."""
        while True:
            now = self.bag(bag)
            if on_update:
                on_update(now["counts"])
            if now["state"] in FINAL:
                return now
            update: types.Update = {}
            try:
                for update in self.watch(bag, int(now.get("position", 0))):
                    if on_update and update.get("counts"):
                        on_update(update["counts"])
                    if update.get("done"):
                        break
            except NoServer:
                pass  # the next question is asked with patience, and says so if nothing answers
            time.sleep(0 if update.get("done") else 0.05)

    # --- acting --------------------------------------------------------------------------------------------

    def cancel(self, bag: int, tasks: Iterable[int] | None = None, *, waiting: bool = False) -> int:
        """All, or these; with `waiting` only what no pilot has.  Returns how many."""
        return self._on_tasks(bag, "cancel", tasks, waiting=waiting)

    def retry(self, bag: int, tasks: Iterable[int] | None = None, *, cause: Mapping[str, Any] | None = None) -> int:
        """Run again: these, or those of one `cause` (see `failures`), or all that failed or were cancelled."""
        return self._on_tasks(bag, "retry", tasks, **(cause or {}))

    def pause(self, bag: int) -> types.BagInfo:
        return self._act(bag, "pause")

    def unpause(self, bag: int) -> types.BagInfo:
        return self._act(bag, "unpause")

    def remove(self, bag: int) -> types.BagInfo:
        return self._act(bag, "remove")

    # --- files ---------------------------------------------------------------------------------------------

    def fetch(
        self, bag: int, directory: str | os.PathLike[str], on_file: Callable[[Path], None] | None = None,
        files: str = "", on_problem: Callable[[int, str, WindfallError], None] | None = None,
    ) -> int:  # fmt: skip
        """Bring the output files home; returns how many.  What is there already, unchanged, is left alone.

        A file that cannot be brought does not keep the others out: on_problem(task, path, error) is told of it, or the
        first such error is raised when all others are there.

        `files` is a template of where each lands, such as "{target}/{task}/{path}"; parameters can be in it too.
        """
        from windfall.client.files.fetch import fetch

        return fetch(self, self._http, bag, Path(directory), on_file, files, on_problem)

    def fetch_some(
        self, bag: int, wanted: Mapping[tuple[int, str], str], directory: str | os.PathLike[str],
        on_file: Callable[[Path], None] | None = None,
        on_problem: Callable[[int, str, WindfallError], None] | None = None,
    ) -> int:  # fmt: skip
        """As `fetch`, but only these: (task, output) → where in the directory it lands."""
        from windfall.client.files.fetch import fetch_some

        return fetch_some(self, self._http, bag, wanted, Path(directory), on_file, on_problem)

    def upload(self, sha: str, data: bytes) -> int:
        """Send a blob, unless it is there; returns the bytes sent."""
        return self._http.upload(sha, data)

    # --- Python calls --------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run one Python call on a pilot and return what it returns, or raise what it raises."""
        if self._calls is None:
            from windfall.client.functions.calls import Calls

            self._calls = Calls(self)
        return self._calls.call(function, args, kwargs)

    # --- tokens --------------------------------------------------------------------------------------------

    def add_site(self, name: str, kind: str) -> types.SiteInfo:
        answer = self._http.call("POST", "/v1/sites", {"name": name, "kind": kind})
        return cast("types.SiteInfo", self._object(answer))

    def site(self, name: str) -> types.SiteInfo:
        return cast("types.SiteInfo", self._get(f"/v1/sites/{quote(name, safe='')}"))

    def drain_site(self, name: str, *, now: bool = False) -> types.SiteInfo:
        """Nothing more is sent there; pilots finish what they have, or with `now` are stopped."""
        answer = self._http.call("POST", f"/v1/sites/{quote(name, safe='')}/drain", {"now": now}, repeatable=True)
        return cast("types.SiteInfo", self._object(answer))

    def undrain_site(self, name: str) -> types.SiteInfo:
        answer = self._http.call("POST", f"/v1/sites/{quote(name, safe='')}/undrain", {}, repeatable=True)
        return cast("types.SiteInfo", self._object(answer))

    def share_site(self, name: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> types.SiteInfo:
        """Who may use it, too, and who no more; for an admin."""
        path, wanted = f"/v1/sites/{quote(name, safe='')}/share", {"add": list(add), "remove": list(remove)}
        answer = self._http.call("POST", path, wanted, repeatable=True)
        return cast("types.SiteInfo", self._object(answer))

    def remove_site(self, name: str) -> None:
        """Refused while it has pilots."""
        self._http.call("DELETE", f"/v1/sites/{quote(name, safe='')}")

    def try_site(self, name: str) -> types.TrialMade:
        """Tokens for one trial of a site: a user for it alone, and what lets its pilot in."""
        return cast("types.TrialMade", self._object(self._http.call("POST", "/v1/trials", {"site": name})))

    def gone(self, pilot: int) -> None:
        """Evidence that a pilot's processes are dead: what it had started may start elsewhere now."""
        self._http.call("POST", f"/v1/pilots/{pilot}/gone", {})

    def tokens(self) -> list[Json]:
        return list(self._get("/v1/tokens")["tokens"])

    def add_token(self, scope: str, user: str = "", site: str = "", days: int | None = None) -> types.TokenMade:
        body = {"scope": scope, "user": user, "site": site, "days": days}
        answer = self._http.call("POST", "/v1/tokens", {k: v for k, v in body.items() if v not in ("", None)})
        return cast("types.TokenMade", self._object(answer))

    def allowances(self) -> list[types.Allowance]:
        """What may be used in a month at sites that count, and was: one's own; for an admin everybody's."""
        return list(self._get("/v1/allowances")["allowances"])

    def set_allowance(self, user: str, allowance: int) -> None:
        """Ms of cores a month; -1: none.  "*" is everybody who has none of his own."""
        self._http.call("POST", "/v1/allowances", {"user": user, "allowance": allowance})

    def set_weight(self, user: str, weight: int) -> None:
        """Of 1 to 1,000: his part where several share a site."""
        self._http.call("POST", "/v1/weights", {"user": user, "weight": weight})

    def set_budget(self, bag: int, budget: int) -> None:
        """Ms of cores that its tasks may use together; 0: as many as there are."""
        self._http.call("POST", f"{_of(bag)}/budget", {"budget": budget})

    def policy(self, bag: int) -> types.PolicyInfo:
        """Its expressions; of the hosts that serve its owner now, how many match, and why the first does not."""
        return cast("types.PolicyInfo", self._get(f"{_of(bag)}/policy"))

    def hosts(self, bag: int | None = None) -> Iterator[types.HostInfo]:
        """Those that serve one now, as expressions see them; with a bag, what its policies make of each."""
        path, after = "/v1/hosts" if bag is None else f"{_of(bag)}/hosts", -1
        while True:
            page = self._get(f"{path}?after={after:d}")
            yield from page["hosts"]
            if page["next"] is None:
                return
            after = page["next"]

    def set_policy(self, bag: int, policy: Mapping[str, str | float | None]) -> types.PolicyInfo:
        """Change some of its expressions, obeyed from the next request of a pilot on; None, or "", takes one away."""
        from windfall.model.policies.expressions import named

        texts = {named(key): "" if value is None else str(value) for key, value in policy.items()}
        answer = self._http.call("POST", f"{_of(bag)}/policy", {"policy": texts}, repeatable=True)
        return cast("types.PolicyInfo", self._object(answer))

    def remove_token(self, token_id: str) -> None:
        self._http.call("DELETE", f"/v1/tokens/{quote(str(token_id), safe='')}")

    # --- inside --------------------------------------------------------------------------------------------

    def _get(self, path: str) -> Json:
        return self._object(self._http.call("GET", path))

    def _act(self, bag: int, verb: str) -> types.BagInfo:
        answer = self._http.call("POST", f"{_of(bag)}/{verb}", {}, repeatable=True)
        return cast("types.BagInfo", self._object(answer))

    def _on_tasks(self, bag: int, verb: str, tasks: Iterable[int] | None, **more: Any) -> int:
        body: Json = {"tasks": None if tasks is None else list(tasks), **more}
        # Repeating either changes nothing: what is cancelled stays so, what waits again is not waiting twice.
        return int(self._object(self._http.call("POST", f"{_of(bag)}/{verb}", body, repeatable=True))["count"])

    @staticmethod
    def _object(answer: Any) -> Json:
        if not isinstance(answer, dict):
            raise NoServer("what answers is not a Windfall server")
        return answer


def _of(bag: int) -> str:
    """Where a bag is."""
    try:
        return f"/v1/bags/{bag:d}"
    except (TypeError, ValueError):
        said = f"a bag goes by its number, not by {bag!r:.60}"
        raise BadInput(said, "client.bags() lists numbers and names") from None


def new_key() -> str:
    """An idempotency key nobody else will think of."""
    return os.urandom(16).hex()
