"""A log of all mistakes in a user's files: the compiler reports them together, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from windfall.errors import BadInput, Mistakes
from windfall.workflow.text import Source

MOST = 50  # mistakes shown
KEPT = 100  # mistakes collected; then the search stops
NAMES = 2_000  # known names compared with a misspelt one


class MistakeLog:
    """The mistakes found so far; the same mistake at the same place is kept once."""

    def __init__(self) -> None:
        self.each: dict[tuple[str, str], BadInput] = {}

    def __bool__(self) -> bool:
        return bool(self.each)

    def add(self, source: Source, at: int, message: str, hint: str = "") -> None:
        self.keep(source.mistake(at, message, hint))

    def keep(self, error: BadInput) -> None:
        self.each.setdefault((error.where, error.message), error)
        if len(self.each) >= KEPT:
            self.tell()

    def tell(self) -> None:
        """Raise all mistakes found so far, in the order of the file; return if there are none."""
        errors = sorted(self.each.values(), key=lambda error: _order(error.where))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            count = f"{len(errors)} mistakes" + (" or more" if len(errors) >= KEPT else "")
            more = f"; the first {MOST} are shown" if len(errors) > MOST else ""
            raise Mistakes(count + more, each=errors[:MOST])


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the known name nearest to a word, or ""."""
    return "".join(get_close_matches(word[:200], list(islice(names, NAMES)), 1))


def _order(where: str) -> tuple[str, int, int]:
    """Sort by file, line and column; a workflow composed in Python has no lines."""
    file, *place = where.rsplit(":", 2)
    return (file, int(place[0]), int(place[1])) if len(place) == 2 else (where, 0, 0)
