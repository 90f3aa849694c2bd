"""`Client`: the methods that a user's program calls.

    from windfall import Client
    client = Client()                       # finds the server of this home
    bag = client.submit("sweep.toml")
    for row in bag.wait().results(): ...

A bag goes by its number, by its name, or by the handle that `submit` and `find` return.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from windfall.client.api import Api, BagRef, Upload, new_key
from windfall.client.http import PATIENCE
from windfall.client.profile import Profile
from windfall.client.waiting import wait
from windfall.errors import Conflict, WindfallError

if TYPE_CHECKING:
    from windfall.client import types
    from windfall.client.extend import Extension
    from windfall.client.handle import BagHandle
    from windfall.client.table import BagTable
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Bag


class Client(Api):
    def __init__(self, profile: Profile | Mapping[str, object] | None = None, patience: float = PATIENCE):
        super().__init__(profile, patience)
        self._calls: Any = None

    def close(self) -> None:
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        super().close()

    # --- bags ----------------------------------------------------------------------------------------------

    def submit(
        self, bag: Bag | Parsed | str | os.PathLike[str], uploads: Mapping[str, Upload] | None = None, key: str = ""
    ) -> BagHandle:
        """Submit a `Bag`, a bag file by its path, or what `bagfile.load` returned; return the bag.

        Files that the server lacks are sent first.  The same `key` gives the same bag.
        """
        from windfall.client.files.submission import ready
        from windfall.client.handle import BagHandle

        wanted, files = ready(bag)
        answer = self.submitted(wanted, {**files, **(uploads or {})}, key)
        return BagHandle(self, answer["bag"], wanted.name)

    def find(self, bag: BagRef) -> BagHandle:
        """Return a bag by its number or its name; of several with one name, the latest."""
        from windfall.client.handle import BagHandle

        found = self.bag(bag)
        return BagHandle(self, found["bag"], found["name"])

    def extend(
        self, bag: BagRef, wanted: Bag, uploads: Mapping[str, Upload] | None = None
    ) -> dict[str, int]:
        """Run the points of a sweep that the bag has not had yet; return their number by target."""
        from windfall.client.extend import extensions

        added: dict[str, int] = {}
        bag = self.number_of(bag)
        submitted, seen = self.spec(bag), -1
        while True:
            appended = self.appended(bag)
            new = list(extensions(submitted, appended, wanted))
            if seen < 0 and new:
                self._upload_all(uploads)
            try:
                self._send_extensions(bag, new, len(appended), added)
                return added
            except Conflict:
                if len(appended) == seen:
                    raise  # nobody else has extended the bag since: the conflict has another cause
                seen = len(appended)

    def _send_extensions(self, bag: BagRef, extensions: list[Extension], seen: int, added: dict[str, int]) -> None:
        """Send extensions; the server refuses them if it has more than the `seen` earlier ones."""
        from windfall.model.templates.render import source_count

        for count, each in enumerate(extensions):
            message = {"target": each.target, "source": each.source, "files": each.files, "seen": seen + count}
            self._http.post(f"{self._path(bag)}/extend", message, key=new_key())
            added[each.target] = added.get(each.target, 0) + source_count(each.source)

    def rerun(
        self, bag: BagRef, wanted: Bag | Parsed | str | os.PathLike[str] | None = None, which: str = "",
        dry: bool = False,
    ) -> types.RerunDone:
        """Run again the tasks that failed or that a change concerns; keep the rest, and the tasks' numbers.

        `wanted` is the bag as its files say now, or its file's path; `which` may be "failed", "changed" or "all".
        With `dry` nothing starts, and the answer tells what would.
        """
        from windfall.client.files.submission import ready

        now, files = ready(wanted) if wanted is not None else (None, {})
        if not dry:
            self._upload_all(files)
        body = {"bag": now, "which": which, "dry": dry}
        return cast("types.RerunDone", self._object(self._http.post(f"{self._path(bag)}/rerun", body)))

    def wait(self, bag: BagRef, on_update: Callable[[dict[str, int]], None] | None = None) -> types.BagInfo:
        """Wait until a bag has ended, over restarts of the server, too; return the bag."""
        return wait(self, self.number_of(bag), on_update)

    def table(self, bag: BagRef, most: int = 20) -> BagTable:
        """Return a bag and its first results, for a notebook to show."""
        from windfall.client.table import table_of

        return table_of(self, bag, most)

    # --- files ---------------------------------------------------------------------------------------------

    def fetch(
        self, bag: BagRef, directory: str | os.PathLike[str], on_file: Callable[[Path], None] | None = None,
        files: str = "", on_problem: Callable[[int, str, WindfallError], None] | None = None,
    ) -> int:  # fmt: skip
        """Bring the output files home; return how many.  Files that are there already, unchanged, stay.

        A file that cannot be brought does not keep the others out: `on_problem(task, path, error)` hears of it.
        Without `on_problem` the first such error is raised when all other files are there.

        `files` is a template of where each file lands, such as "{target}/{task}/{path}"; it may name parameters.
        """
        from windfall.client.files.fetch import Destination, fetch

        return fetch(self, self.number_of(bag), Destination(Path(directory), on_file, on_problem), files)

    def fetch_some(
        self, bag: BagRef, wanted: Mapping[tuple[int, str], str], directory: str | os.PathLike[str],
        on_file: Callable[[Path], None] | None = None,
        on_problem: Callable[[int, str, WindfallError], None] | None = None,
    ) -> int:  # fmt: skip
        """Bring home only the files of `wanted`: (task, output) → where in the directory the file lands."""
        from windfall.client.files.fetch import Destination, fetch_some

        return fetch_some(self, self.number_of(bag), Destination(Path(directory), on_file, on_problem), wanted)

    # --- Python calls --------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run one Python call on a pilot; return its value, or raise what it raised."""
        if self._calls is None:
            from windfall.client.functions.calls import CallBag

            self._calls = CallBag(self)
        return self._calls.call(function, args, kwargs)
