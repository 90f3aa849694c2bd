"""`BagHandle`: a bag on a server, with the requests about it as methods; `Results`: its rows, for a program or pandas.

    bag = client.submit("sweep.toml")
    frame = bag.wait().results().to_pandas()

A handle is the bag's number, so it can stand wherever a number can.  A terminal or a notebook that shows it asks the
server over a connection of its own, because it may do so at any moment and in any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.client.api import Api
from windfall.client.columns import MOMENTS, Names, captured, parameters
from windfall.client.table import BagTable, printable, table_of
from windfall.client.waiting import wait
from windfall.errors import BadInput, WindfallError

if TYPE_CHECKING:
    from windfall.client.types import BagInfo, Cause, Row, Statistics

SHOWN = 20  # rows in a notebook
PATIENCE = 2.0  # seconds that a terminal or a notebook waits for the server


class BagHandle(int):
    """A bag on a server; its value is the bag's number."""

    _api: Api
    _name: str

    def __new__(cls, api: Api, number: int, name: str = "") -> BagHandle:
        handle = super().__new__(cls, number)
        handle._api, handle._name = api, name
        return handle

    # --- looking -----------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        return int(self)

    @property
    def name(self) -> str:
        if not self._name:
            self._name = self.info()["name"]
        return self._name

    @property
    def state(self) -> str:
        return self.info()["state"]

    def info(self) -> BagInfo:
        """Return state, counts, times and use of the bag."""
        return self._api.bag(self.number)

    def explain(self, task: int | None = None) -> Explanation:
        """Return why the bag, or one of its tasks, is not running; `print` shows the reason in a sentence."""
        return Explanation(self._api.explain(self.number, task))

    def results(self, state: str = "") -> Results:
        """Return the rows of the tasks that have ended, or of those that ended in one state."""
        return Results(self._api, self.number, state)

    def logs(self, task: int | None = None, stream: str = "out") -> str:
        """Return the output of one task, or of all ended tasks, each below a line with its number."""
        if task is not None:
            return self._log(task, stream)
        return "".join(f"==> task {row['task']} <==\n{_with_line_end(self._log(row['task'], stream))}"
                       for row in self.results() if row["err_size" if stream == "err" else "out_size"])

    def _log(self, task: int, stream: str) -> str:
        return b"".join(self._api.log(self.number, task, stream)).decode("utf-8", "replace")

    def failures(self) -> list[Cause]:
        """Return why tasks failed, the commonest cause first."""
        return self._api.failures(self.number)

    def statistics(self) -> Statistics:
        """Return what the bag has used."""
        return self._api.statistics(self.number)

    # --- acting ------------------------------------------------------------------------------------------------

    def wait(self, on_update: Callable[[dict[str, int]], None] | None = None) -> BagHandle:
        """Wait until the bag has ended; return it."""
        wait(self._api, self.number, on_update)
        return self

    def fetch(self, directory: str | os.PathLike[str], files: str = "") -> int:
        """Bring the output files home; return how many."""
        from windfall.client.files.fetch import Destination, fetch

        return fetch(self._api, self.number, Destination(Path(directory)), files)

    def cancel(self, tasks: Iterable[int] | None = None) -> int:
        """Cancel all tasks, or these; return how many."""
        return self._api.cancel(self.number, tasks)

    def retry(self, tasks: Iterable[int] | None = None, *, cause: Mapping[str, Any] | None = None) -> int:
        """Run again all tasks that failed or were cancelled, these, or those of one cause; return how many."""
        return self._api.retry(self.number, tasks, cause=cause)

    def pause(self) -> None:
        self._api.pause(self.number)

    def unpause(self) -> None:
        self._api.unpause(self.number)

    def remove(self) -> None:
        self._api.remove(self.number)

    # --- showing -----------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return str(int(self))

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __repr__(self) -> str:
        try:
            return repr(self._table(0))
        except WindfallError as error:
            return f"<bag {self}: {printable(error.message)}>"

    def _repr_html_(self) -> str | None:
        try:
            return self._table(SHOWN)._repr_html_()
        except WindfallError:
            return None  # the notebook shows `repr`

    def _table(self, most: int) -> BagTable:
        with Api(self._api.profile, PATIENCE) as api:
            return table_of(api, self.number, most)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)  # a copy elsewhere has no connection


class Explanation(dict[str, Any]):
    """The answer of `explain` as the server sent it; as text, its summary."""

    def __str__(self) -> str:
        return "\n".join(map(printable, str(self.get("summary", "")).split("\n")))

    def __repr__(self) -> str:
        return str(self)


class Results:
    """The rows of a bag's ended tasks.  Each iteration asks the server anew, page by page."""

    def __init__(self, api: Api, bag: int, state: str = ""):
        self._api, self._bag, self._state = api, bag, state

    def __iter__(self) -> Iterator[Row]:
        return self._api.results(self._bag, self._state)

    def to_pandas(self) -> Any:
        """Return a data frame with a row per task and the columns of `windfall results --csv`.

        Moments are timestamps in UTC; durations are milliseconds, sizes bytes.
        """
        try:
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise BadInput("pandas is not installed here", "python -m pip install pandas") from None
        spec = self._api.spec(self._bag)
        names = Names(parameters(spec), captured(spec))
        frame = pandas.DataFrame(names.cells(self), columns=names.columns())
        for name in MOMENTS:
            frame[name] = pandas.to_datetime(frame[name], unit="ms", utc=True)
        return frame.set_index("task")

    def __repr__(self) -> str:
        rows = list(islice(self, SHOWN + 1))
        more = ", …" if len(rows) > SHOWN else ""
        return f"<results of bag {self._bag}: {', '.join(_in_words(row) for row in rows[:SHOWN]) or 'none yet'}{more}>"

    def _repr_html_(self) -> str:
        return BagTable(self._api.bag(self._bag), list(islice(self, SHOWN)))._repr_html_()


def _in_words(row: Row) -> str:
    return f"{row['task']} {row['state']}"


def _with_line_end(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
