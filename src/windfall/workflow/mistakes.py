"""All that is wrong is found before anything runs, and told at once."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from windfall.errors import BadInput, Mistakes
from windfall.workflow.text import Source

MOST = 50  # told of one file
KEPT = 100  # then nothing more is looked for
NAMES = 2_000  # among which the nearest is looked for


class MistakeLog:
    """What has been found so far; the same mistake at the same place is kept once."""

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
        """Raises what there is, in the order of the file."""
        errors = sorted(self.each.values(), key=lambda error: _order(error.where))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            said = f"{len(errors)} mistakes" + (" or more" if len(errors) >= KEPT else "")
            more = f"; the first {MOST} are shown" if len(errors) > MOST else ""
            raise Mistakes(said + more, each=errors[:MOST])


def nearest(word: str, names: Iterable[str]) -> str:
    """The name that was perhaps meant, or nothing."""
    return "".join(get_close_matches(word[:200], list(islice(names, NAMES)), 1))


def _order(where: str) -> tuple[str, int, int]:
    """What was made in Python has no lines."""
    file, *place = where.rsplit(":", 2)
    return (file, int(place[0]), int(place[1])) if len(place) == 2 else (where, 0, 0)
