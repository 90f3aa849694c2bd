"""A log of all mistakes in a user's files, so that a reader can report them together, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from windfall.errors import BadInput, Mistakes

MOST = 50  # mistakes shown
KEPT = 100  # mistakes collected; then the search stops

_PLACE = re.compile(r"(.*?)(?::(\d{1,12}))?(?::(\d{1,12}))?", re.DOTALL)


class MistakeLog:
    """The mistakes found so far; the same mistake at the same place is kept once."""

    def __init__(self, kept: int = KEPT, file: str = "") -> None:
        self.each: dict[tuple[str, str], BadInput] = {}
        self.kept, self.file = kept, file

    def __len__(self) -> int:
        return len(self.each)

    def keep(self, error: BadInput) -> None:
        self.each.setdefault((error.where, error.message), error)
        if len(self.each) >= self.kept:
            self.tell()

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Keep a mistake that is raised inside, and go on after the block."""
        try:
            yield
        except Mistakes:
            raise
        except BadInput as error:
            self.keep(error)

    def tell(self) -> None:
        """Raise all mistakes found so far, in the order of the file; return if there are none."""
        errors = sorted(self.each.values(), key=lambda error: _order(error.where))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            count = f"{len(errors)} mistakes" + (" or more" if len(errors) >= self.kept else "")
            more = f"; the first {MOST} are shown" if len(errors) > MOST else ""
            raise Mistakes(count + more, each=errors[:MOST], where=self.file)


def _order(where: str) -> tuple[str, int, int]:
    """Sort by file, line and column; a workflow composed in Python has no lines."""
    found = _PLACE.fullmatch(where)
    return (found[1], int(found[2] or 0), int(found[3] or 0)) if found else (where, 0, 0)
