"""Commands of a target's tasks: a template filled from columns, or the lines or items of its source."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from windfall.errors import BadInput
from windfall.model.spec import Items, Lines, Source, Sweep
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import Column, Template, fill
from windfall.model.templates.shell import in_context

Command = str | list[str]
Taken = Mapping[str, Sequence[str]]  # target → the paths of its output files for the task


class Vector:
    """A command as a list of templates, one per word.  `{main.outputs}` becomes as many words as there are files."""

    def __init__(self, words: list[Template], columns: dict[str, Column]):
        self.columns = columns
        self.words = words
        self.fixed = not any(tpl.names(word) for word in words)
        self.literal = ["".join(map(str, word)) for word in words] if self.fixed else []
        self.taking = {at: target for at, word in enumerate(words) if (target := _taken(word))}

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        if self.fixed:
            return [self.literal] * len(indices)
        rows = map(list, zip(*(self._word(at, indices) for at in range(len(self.words))), strict=False))
        return [self._spread(row, taken) for row in rows] if self.taking else list(rows)

    def _word(self, at: int, indices: Sequence[int]) -> Iterable[str]:
        """Return a word's text for every task; a fixed word repeats without end."""
        word = self.words[at]
        if at in self.taking:
            return [""] * len(indices)
        return fill(word, self.columns, indices, shell=False) if tpl.names(word) else repeat("".join(map(str, word)))

    def _spread(self, row: list[str], taken: Taken) -> Command:
        spread: list[str] = []
        for at, word in enumerate(row):
            spread += taken.get(self.taking[at], ()) if at in self.taking else [word]
        return spread


def _taken(word: Template) -> str:
    """Return the target whose files a word stands for, or ""."""
    found = [tpl.taken_target(name) for name in tpl.names(word)]
    if any(found) and len(word) > 1:
        raise BadInput(
            f"{{{next(filter(None, found))}.outputs}} is many files and must be a word of its own",
            "put a space before and after it",
            text="".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in word)[:100],
        )
    return found[0] if found else ""


class Shell:
    """A command as one template, for `/bin/sh -c`."""

    def __init__(self, template: Template, columns: dict[str, Column]):
        self.template, self.columns = in_context(template), columns
        self.taking = [name for name in tpl.names(template) if tpl.taken_target(name)]
        for piece in self.template:
            if isinstance(piece, tpl.Slot) and piece.context and tpl.taken_target(piece.name):
                raise BadInput(
                    f"{{{piece.name}}} is many files and must not stand inside quotes",
                    "remove the quotes: Windfall quotes the names as they need it",
                    text=f"{{{piece.name}}}",
                )

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        if not self.taking:
            return list(fill(self.template, self.columns, indices, shell=True))
        template = [self._filled(piece, taken) for piece in self.template]
        return list(fill(template, self.columns, indices, shell=True))

    def _filled(self, piece: tpl.Piece, taken: Taken) -> tpl.Piece:
        if isinstance(piece, str) or piece.name not in self.taking:
            return piece
        return " ".join(map(tpl.quote_bare, taken.get(tpl.taken_target(piece.name), ())))


class LineCommands:
    """The lines of a source as commands: the text, and where each line ends, 8 bytes a task.

    If the text is part of `shared`, bytes that the caller keeps anyway, this reads it there instead of copying it.
    """

    def __init__(self, source: Lines, shared: bytes = b""):
        self.text: bytearray | memoryview = bytearray()
        self.more = bytearray()  # the lines appended later
        self.ends = array("Q")
        self.own = 0  # tasks whose text is in `text`
        if source.count:
            data = source.text.encode()
            at = shared.find(data) if shared else -1
            self.text = memoryview(shared)[at : at + len(data)] if at >= 0 else bytearray(data)
            self._index(data, 0)
            self.own = len(self.ends)

    def _index(self, data: bytes, base: int) -> None:
        self.ends.extend(base + match.start() for match in re.finditer(b"\n", data))
        self.ends.append(base + len(data))

    def extend(self, source: Source) -> None:
        if not isinstance(source, Lines):
            raise BadInput("only lines can be appended to tasks that are lines")
        if not source.count:
            return
        data = source.text.encode()
        self._index(data, len(self.more))
        self.more += data + b"\n"

    @property
    def count(self) -> int:
        return len(self.ends)

    def lines(self, indices: Sequence[int]) -> list[str]:
        ends, own = self.ends, self.own
        return [
            str((self.text if i < own else self.more)[ends[i - 1] + 1 if i not in (0, own) else 0 : ends[i]], "utf-8")
            for i in indices
        ]

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        return list(map(tpl.split, self.lines(indices)))


class ItemCommands:
    def __init__(self, source: Items, call: bool):
        self.items, self.call = list(source.items), call

    def extend(self, source: Source) -> None:
        if isinstance(source, Sweep):
            raise BadInput("a sweep cannot be appended to items")
        if isinstance(source, Items):
            self.items.extend(source.items)
        elif source.count:
            self.items.extend(source.text.split("\n"))

    @property
    def count(self) -> int:
        return len(self.items)

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        items = self.items
        return [items[i] for i in indices] if self.call else [tpl.split(items[i]) for i in indices]
