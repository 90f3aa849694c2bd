"""A log of all mistakes in a workflow's files: the compiler reports them together, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from windfall.model import mistakes
from windfall.model.mistakes import KEPT
from windfall.workflow.text import Source

__all__ = ["KEPT", "MistakeLog", "nearest"]
NAMES = 2_000  # known names compared with a misspelt one


class MistakeLog(mistakes.MistakeLog):
    """The mistakes found so far, with places in the text of a source."""

    def add(self, source: Source, at: int, message: str, hint: str = "") -> None:
        self.keep(source.mistake(at, message, hint))


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the known name nearest to a word, or ""."""
    return "".join(get_close_matches(word[:200], list(islice(names, NAMES)), 1))
