"""`Api`: one method for each request of the server's HTTP interface.  `Client` adds what takes several requests.

An `Api` holds one connection for calls and opens others for streams.  Use one per thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote, urlencode

from windfall.client.http import PATIENCE, Http
from windfall.client.numbers import with_numbers
from windfall.client.profile import Profile, find, from_fields
from windfall.errors import BadInput, NoServer, WindfallError

if TYPE_CHECKING:
    from windfall.client import types
    from windfall.client.extend import Extension
    from windfall.client.types import Row
    from windfall.model.spec import Bag, Part, Source

Json = dict[str, Any]
Upload = str | os.PathLike[str] | bytes  # a file, or its content
BagRef = int | str  # a bag's number, or its name

PAGE = 1000


class Api:
    def __init__(self, profile: Profile | Mapping[str, object] | None = None, patience: float = PATIENCE):
        if profile is None:
            profile = find()
        elif not isinstance(profile, Profile):
            profile = from_fields(dict(profile))
        self.profile = profile
        self._http = Http(profile, patience)
        self._idle: list[Http] = []  # connections whose stream has ended
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for http in self._idle:
            http.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- submitting ----------------------------------------------------------------------------------------

    def submitted(
        self, bag: Bag, uploads: Mapping[str, Upload] | None = None, key: str = ""
    ) -> types.Submitted:
        """Send the files that the server lacks, then the bag; return the server's answer.

        The same `key` gives the same bag.
        """
        self._upload_all(uploads)
        answer = self._http.post("/v1/bags", bag, key=key or new_key())
        return cast("types.Submitted", self._object(answer))

    def append(self, bag: BagRef, source: Source, target: str = "main", key: str = "") -> types.Appended:
        """Append tasks to an open bag."""
        body = {"target": target, "source": source}
        answer = self._http.post(f"{self._path(bag)}/tasks", body, key=key or new_key())
        return cast("types.Appended", self._object(answer))

    def append_part(self, bag: BagRef, part: Part, key: str = "") -> types.Appended:
        """Append tasks to any targets of an open bag, with their prerequisites; see `Part`."""
        answer = self._http.post(f"{self._path(bag)}/parts", part, key=key or new_key())
        return cast("types.Appended", self._object(answer))

    def close_bag(self, bag: BagRef) -> types.BagInfo:
        """Close an open bag: it takes no more tasks."""
        return self._act(bag, "close")

    def upload(self, sha: str, data: Upload) -> int:
        """Send a blob, a file or its content, unless the server has it; return the bytes sent."""
        return self._http.upload(sha, data)

    def download(self, sha: str, size: int) -> bytes:
        """Return the content of a blob."""
        import hashlib
        import io

        stream = io.BytesIO()
        self._http.download(sha, stream, size)
        if hashlib.sha256(stream.getbuffer()).hexdigest() != sha:
            raise WindfallError("the bytes that arrived do not fit their hash", "ask again")
        return stream.getvalue()

    def _upload_all(self, uploads: Mapping[str, Upload] | None) -> None:
        for sha, file in (uploads or {}).items():
            self._http.upload(sha, file)

    # --- looking -------------------------------------------------------------------------------------------

    def number_of(self, bag: BagRef) -> int:
        """Return the number of a bag that is named by number or name; of several with one name, the latest."""
        if isinstance(bag, int):
            return int(bag)
        if not isinstance(bag, str):
            raise BadInput(f"a bag is named by its number or its name, not by {bag!r:.60}",
                           "client.bags() lists both")
        if bag.isdecimal() and len(bag) < 19:
            return int(bag)
        bags = self.bags()
        named = [each["bag"] for each in bags if each["name"] == bag]
        if not named:
            from windfall.model.suggest import nearest

            names = {each["name"]: None for each in reversed(bags)}
            raise BadInput(f"there is no bag '{bag}'", nearest(bag, names) or "'windfall ls' lists the bags")
        return max(named)

    def health(self) -> types.Health:
        return cast("types.Health", self._get("/health"))

    def bags(self) -> list[types.BagSummary]:
        return list(self._get("/v1/bags")["bags"])

    def bag(self, bag: BagRef) -> types.BagInfo:
        return cast("types.BagInfo", self._get(f"{self._path(bag)}"))

    def spec(self, bag: BagRef) -> Bag:
        """Return the bag as it was submitted."""
        import msgspec

        from windfall.model.spec import Bag

        return msgspec.convert(self._get(f"{self._path(bag)}/spec"), Bag)

    def appended(self, bag: BagRef) -> list[Extension]:
        """Return, in order, the tasks and files that a bag was given after it was submitted."""
        import msgspec

        from windfall.client.extend import Extension

        extensions: list[Extension] = []
        path, after = self._path(bag), cast("int | None", 0)
        while after is not None:
            page = self._get(f"{path}/appended?after={after:d}")
            rows = [(row["target"], row["source"], row["files"], row["edges"], row["flows"])
                    for row in page["appended"]]
            extensions += msgspec.convert(rows, list[Extension])
            after = page["next"]
        return extensions

    def task(self, bag: BagRef, task: int) -> types.TaskInfo:
        found = cast("types.TaskInfo", self._get(f"{self._path(bag)}/tasks/{task:d}"))
        for attempt in found["attempts"]:
            with_numbers(attempt)
        return found

    def task_spec(self, bag: BagRef, task: int) -> Json:
        """Return all that a pilot is told of a task: command, files, environment, limits."""
        return self._get(f"{self._path(bag)}/tasks/{task:d}/spec")

    def explain(self, bag: BagRef, task: int | None = None) -> Json:
        """Return why a bag, or one of its tasks, is not running."""
        return self._get(f"{self._path(bag)}/explain" + ("" if task is None else f"?task={task:d}"))

    def statistics(self, bag: BagRef) -> types.Statistics:
        """Return what a bag has used: attempts, queuing, real and redundant time, speed-up, sites."""
        return cast("types.Statistics", self._get(f"{self._path(bag)}/statistics"))

    def failures(self, bag: BagRef) -> list[types.Cause]:
        """Return why tasks failed, the commonest cause first: count, some tasks, and the `cause` that `retry` takes."""
        return list(self._get(f"{self._path(bag)}/failures")["failures"])

    def usage(self, bags: bool = True) -> Json:
        """Return the bytes that files take, of each bag and, under a quota, of all; see the HTTP reference."""
        return self._get("/v1/usage" + ("" if bags else "?bags=0"))

    def free(self) -> int:
        """Delete the files on the server that no bag needs, such as those of removed bags; return the bytes freed."""
        return int(self._object(self._http.post("/v1/usage/free", {}, repeatable=True))["freed"])

    def running(self, bag: BagRef, most: int = PAGE) -> list[int]:
        """Return up to `most` tasks that have started, the one that has run longest first."""
        return list(self._get(f"{self._path(bag)}/running?limit={most:d}")["tasks"])

    def pilots(self) -> list[types.PilotInfo]:
        return list(self._get("/v1/pilots")["pilots"])

    def results(self, bag: BagRef, state: str = "", after: int = -1, page: int = PAGE) -> Iterator[Row]:
        """Yield one row per ended task, by task number; pages are requested as they are needed.

        A captured text that spells a number is that number.
        """
        return map(with_numbers, self.texts(bag, state, after, page))

    def texts(self, bag: BagRef, state: str = "", after: int = -1, page: int = PAGE) -> Iterator[Row]:
        """Yield the rows of `results` with captured values as the texts that were captured."""
        path, at = self._path(bag), cast("int | None", after)
        while at is not None:
            query = {"after": at, "limit": page, **({"state": state} if state else {})}
            answer = self._get(f"{path}/results?{urlencode(query)}")
            yield from answer["rows"]
            following = answer.get("next")
            at = following if following is None or following > at else None

    def story(self, bag: BagRef, task: int) -> Iterator[types.StoryLine]:
        """Yield every fact that touched a task, in order; pages are requested as they are needed."""
        path = f"{self._path(bag)}/tasks/{task:d}/story"
        after: str | None = ""
        while after is not None:
            answer = self._get(path + (f"?after={quote(after, safe='')}" if after else ""))
            yield from answer["lines"]
            after = answer.get("next")

    def log(self, bag: BagRef, task: int, stream: str = "out", follow: bool = False) -> Iterator[bytes]:
        """Yield what a task wrote; with `follow`, until it ends."""
        path = f"{self._path(bag)}/tasks/{task:d}/log?stream={quote(stream)}" + ("&follow=1" if follow else "")
        with self._http.sibling() as http:
            yield from http.chunks(path, follow)

    def watch(self, bag: BagRef, position: int = 0, rows: bool = False) -> Iterator[types.Update]:
        """Yield the changes of a bag as they happen, until the bag ends."""
        path = f"{self._path(bag)}/watch?from={position:d}" + ("&rows=1" if rows else "")
        http = self._idle.pop() if self._idle else self._http.sibling()
        try:
            for update in http.stream(path):
                for row in update.get("rows") or ():
                    with_numbers(row)
                yield update
        finally:
            if http.connected and not self._closed:
                self._idle.append(http)  # the next watch saves a handshake
            else:
                http.close()

    # --- acting --------------------------------------------------------------------------------------------

    def cancel(self, bag: BagRef, tasks: Iterable[int] | None = None, *, waiting: bool = False) -> int:
        """Cancel all tasks, or these; with `waiting`, only those that no pilot holds.  Return how many."""
        return self._on_tasks(bag, "cancel", tasks, waiting=waiting)

    def retry(self, bag: BagRef, tasks: Iterable[int] | None = None, *, cause: Mapping[str, Any] | None = None) -> int:
        """Run again: these tasks, those of one `cause` (see `failures`), or all that failed or were cancelled."""
        return self._on_tasks(bag, "retry", tasks, **(cause or {}))

    def pause(self, bag: BagRef) -> types.BagInfo:
        return self._act(bag, "pause")

    def unpause(self, bag: BagRef) -> types.BagInfo:
        return self._act(bag, "unpause")

    def remove(self, bag: BagRef) -> types.BagInfo:
        return self._act(bag, "remove")

    # --- sites and pilots ----------------------------------------------------------------------------------

    def sites(self) -> list[types.SiteInfo]:
        return list(self._get("/v1/sites")["sites"])

    def add_site(self, name: str, kind: str) -> types.SiteInfo:
        answer = self._http.post("/v1/sites", {"name": name, "kind": kind})
        return cast("types.SiteInfo", self._object(answer))

    def site(self, name: str) -> types.SiteInfo:
        return cast("types.SiteInfo", self._get(_site_path(name)))

    def drain_site(self, name: str, *, now: bool = False) -> types.SiteInfo:
        """Send no more work to a site.  Its pilots finish what they hold, or with `now` are stopped."""
        answer = self._http.post(f"{_site_path(name)}/drain", {"now": now}, repeatable=True)
        return cast("types.SiteInfo", self._object(answer))

    def undrain_site(self, name: str) -> types.SiteInfo:
        answer = self._http.post(f"{_site_path(name)}/undrain", {}, repeatable=True)
        return cast("types.SiteInfo", self._object(answer))

    def share_site(self, name: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> types.SiteInfo:
        """Let the users of `add` use a site, and those of `remove` no more; for an admin."""
        wanted = {"add": list(add), "remove": list(remove)}
        answer = self._http.post(f"{_site_path(name)}/share", wanted, repeatable=True)
        return cast("types.SiteInfo", self._object(answer))

    def remove_site(self, name: str) -> None:
        """Remove a site; the server refuses while the site has pilots."""
        self._http.delete(_site_path(name))

    def try_site(self, name: str) -> types.TrialMade:
        """Make tokens for one trial of a site: one for a user of that site alone, one for the trial's pilot."""
        return cast("types.TrialMade", self._object(self._http.post("/v1/trials", {"site": name})))

    def gone(self, pilot: int) -> None:
        """Report evidence that a pilot's processes are dead: its started tasks may start elsewhere now."""
        self._http.post(f"/v1/pilots/{pilot}/gone", {})

    # --- users and tokens ----------------------------------------------------------------------------------

    def tokens(self) -> list[Json]:
        return list(self._get("/v1/tokens")["tokens"])

    def add_token(self, scope: str, user: str = "", site: str = "", days: int | None = None) -> types.TokenMade:
        body = {"scope": scope, "user": user, "site": site, "days": days}
        answer = self._http.post("/v1/tokens", {k: v for k, v in body.items() if v not in ("", None)})
        return cast("types.TokenMade", self._object(answer))

    def remove_token(self, token_id: str) -> None:
        self._http.delete(f"/v1/tokens/{quote(str(token_id), safe='')}")

    def allowances(self) -> list[types.Allowance]:
        """Return the caller's monthly allowance and its use, and for an admin those of all users."""
        return list(self._get("/v1/allowances")["allowances"])

    def set_allowance(self, user: str, allowance: int) -> None:
        """Set a user's allowance, in ms of cores a month; -1 means none.  The user "*" is each without an own one."""
        self._http.post("/v1/allowances", {"user": user, "allowance": allowance})

    def set_weight(self, user: str, weight: int) -> None:
        """Set a user's part of shared sites, from 1 to 1,000."""
        self._http.post("/v1/weights", {"user": user, "weight": weight})

    # --- policies ------------------------------------------------------------------------------------------

    def set_budget(self, bag: BagRef, budget: int) -> None:
        """Limit the ms of cores that a bag's tasks may use together; 0 means no limit."""
        self._http.post(f"{self._path(bag)}/budget", {"budget": budget})

    def policy(self, bag: BagRef) -> types.PolicyInfo:
        """Return a bag's expressions, how many of its owner's hosts match now, and why the first other does not."""
        return cast("types.PolicyInfo", self._get(f"{self._path(bag)}/policy"))

    def set_policy(self, bag: BagRef, policy: Mapping[str, str | float | None]) -> types.PolicyInfo:
        """Change expressions of a bag from the next request of a pilot on; None, or "", takes one away."""
        from windfall.model.policies.expressions import named

        texts = {named(key): "" if value is None else str(value) for key, value in policy.items()}
        answer = self._http.post(f"{self._path(bag)}/policy", {"policy": texts}, repeatable=True)
        return cast("types.PolicyInfo", self._object(answer))

    def hosts(self, bag: BagRef | None = None) -> Iterator[types.HostInfo]:
        """Yield the hosts that serve the caller now, as expressions see them; with a bag, and its policies' verdict."""
        path, after = "/v1/hosts" if bag is None else f"{self._path(bag)}/hosts", -1
        while True:
            page = self._get(f"{path}?after={after:d}")
            yield from page["hosts"]
            if page["next"] is None:
                return
            after = page["next"]

    # --- inside --------------------------------------------------------------------------------------------

    def _path(self, bag: BagRef) -> str:
        return f"/v1/bags/{self.number_of(bag):d}"

    def _get(self, path: str) -> Json:
        return self._object(self._http.get(path))

    def _act(self, bag: BagRef, verb: str) -> types.BagInfo:
        answer = self._http.post(f"{self._path(bag)}/{verb}", {}, repeatable=True)
        return cast("types.BagInfo", self._object(answer))

    def _on_tasks(self, bag: BagRef, verb: str, tasks: Iterable[int] | None, **more: Any) -> int:
        count = 0
        for some in ({"tasks": None},) if tasks is None else _selections(tasks):
            # Cancelling or retrying the same tasks twice changes nothing.
            answer = self._http.post(f"{self._path(bag)}/{verb}", {**some, **more}, repeatable=True)
            count += int(self._object(answer)["count"])
        return count

    def _object(self, answer: Any) -> Json:
        if not isinstance(answer, dict):
            raise NoServer(f"{self.profile.server} answers, but it is not a Windfall server")
        return answer


def _site_path(name: str) -> str:
    return f"/v1/sites/{quote(name, safe='')}"


def _selections(tasks: Iterable[int]) -> Iterator[Json]:
    """Yield the tasks as ranges, in as many requests as are needed; at least one."""
    from windfall.model.spec import MAX_NAMED, MAX_SELECTED

    numbers = sorted(set(tasks))
    for at in range(0, max(len(numbers), 1), MAX_NAMED):
        ranges = _ranges(numbers[at : at + MAX_NAMED])
        for begin in range(0, max(len(ranges), 1), MAX_SELECTED):
            yield {"ranges": ranges[begin : begin + MAX_SELECTED]}


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each stretch of consecutive ones."""
    stretches = ([number for _, number in pairs]
                 for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    return [(stretch[0], stretch[-1]) for stretch in stretches]


def new_key() -> str:
    """Return a random idempotency key."""
    return os.urandom(16).hex()
