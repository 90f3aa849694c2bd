"""How the shell reads the place a parameter stands at, so that a value stays one word whatever is in it.

The command's text is read once, as the shell would: quotes, `$(…)`, comments, arithmetic.  Where a value could be made
safe, the place is named by its context; where it could not (in a here-document, in backquotes, after a backslash, in
$'…'), the template is refused with a way to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from windfall.errors import BadInput
from windfall.model.templates.template import Piece, Slot, quote_bare, quote_double, quote_single

BARE, SINGLE, DOUBLE, COMMENT, NUMBER = "", "'", '"', "#", "("
_ANSI, _BACK = "$'", "`"
_REFUSED = {
    _ANSI: ("inside $'…'", "use \"…\" or '…'"),
    _BACK: ("inside backquotes", "write $(…) instead"),
}
_HEREDOC = re.compile(r"<<-?[ \t]*(\\?[\w.-]+|'[^'\n]*'|\"[^\"\n]*\")")
_NUMBER = re.compile(r"[-+]?[0-9A-Za-z_.]+")


def in_context(template: list[Piece]) -> list[Piece]:
    """Say of every parameter how the shell will read the place it stands at."""
    reader = _ShellScanner()
    found: list[Piece] = []
    for piece in template:
        if isinstance(piece, Slot):
            found.append(Slot(piece.name, reader.place(piece.name)))
        else:
            reader.read(piece)
            found.append(piece)
    return found


class _ShellScanner:
    def __init__(self) -> None:
        self.mode = BARE
        self.around: list[str] = []  # what `)` returns to, innermost last
        self.escaped = False  # the last thing read was a backslash
        self.at_word = True  # a `#` here begins a comment
        self.documents: list[str] = []  # ends of here-documents that begin at the next line

    def place(self, name: str) -> str:
        if self.escaped:
            raise _unsafe(name, "after a backslash", "leave the backslash out: a value is escaped by itself")
        if self.documents:
            raise _unsafe(name, "behind the << of a here-document", "use printf '%s\\n' … | command")
        if self.mode in _REFUSED:
            raise _unsafe(name, *_REFUSED[self.mode])
        self.at_word = False
        return self.mode

    def read(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._step(text, at)

    def _step(self, text: str, at: int) -> int:
        """Read what is at `at`; returns where to go on."""
        char, mode = text[at], self.mode
        if self.escaped:
            self.escaped, self.at_word = False, False
        elif mode == COMMENT:
            self.mode = BARE if char == "\n" else COMMENT
            return at if char == "\n" else at + 1
        elif mode == SINGLE:
            self.mode = BARE if char == "'" else SINGLE
        elif char == "\\":
            self.escaped = True
        elif mode == _ANSI:
            self._close("'", char)
        elif mode == _BACK:
            self._close("`", char)
        elif char == "`":
            self.around.append(mode)
            self.mode = _BACK
        elif char == '"':
            self._double()
        elif mode != DOUBLE or char == "$":
            return self._bare(text, at)
        return at + 1

    def _close(self, end: str, char: str) -> None:
        if char == end:
            self.mode = self.around.pop()

    def _double(self) -> None:
        self.at_word = False
        if self.mode != NUMBER:  # there they mean nothing
            self.mode = BARE if self.mode == DOUBLE else DOUBLE

    def _bare(self, text: str, at: int) -> int:
        """Outside quotes, or at a `$` inside double ones."""
        char, word = text[at], self.at_word
        self.at_word = char in " \t\n;&|("
        if char == "$":
            return self._dollar(text, at)
        if char == "'" and self.mode == BARE:
            self.mode = SINGLE
        elif char == "(":
            self.around.append(self.mode)
        elif char == ")" and self.around:
            self.mode = self.around.pop()
        elif char == "#" and word and self.mode == BARE:
            self.mode = COMMENT
        elif char == "<" and self.mode == BARE and not text.startswith("<<<", at):
            return self._document(text, at)
        elif char == "<":
            return at + len("<<<") if text.startswith("<<<", at) else at + 1
        elif char == "\n" and self.documents:
            return self._skip(text, at + 1)
        return at + 1

    def _dollar(self, text: str, at: int) -> int:
        if text.startswith("$((", at):
            self.around += [self.mode, NUMBER]
            self.mode = NUMBER
            return at + 3
        if text.startswith("$(", at):
            self.around.append(self.mode)
            self.mode, self.at_word = BARE, True
            return at + 2
        if text.startswith("$'", at) and self.mode == BARE:
            self.around.append(self.mode)
            self.mode = _ANSI
            return at + 2
        return at + 1

    def _document(self, text: str, at: int) -> int:
        found = _HEREDOC.match(text, at)
        if found is None:
            if text.startswith("<<", at):
                self.documents.append("")  # its end is made of parameters: nothing after it can be trusted
            return at + 1
        self.documents.append(found[1].strip("'\"\\"))
        return found.end()

    def _skip(self, text: str, at: int) -> int:
        """Past the bodies of here-documents, or to the end of this piece: a parameter there is refused."""
        while self.documents:
            end = self.documents[0]
            found = re.compile(rf"^\t*{re.escape(end)}$", re.MULTILINE).search(text, at) if end else None
            if found is None:
                return len(text)
            self.documents.pop(0)
            at = found.end()
        return at


def _unsafe(name: str, where: str, instead: str) -> BadInput:
    return BadInput(f"{{{name}}} stands {where}, where no value is safe", instead, text=f"{{{name}}}")


def quote_comment(value: str) -> str:
    return value.replace("\n", " ").replace("\r", " ")


def quote_number(value: str) -> str:
    """In $((…)) the shell still runs what a value says; what is no number there is an error, not a command."""
    return value if _NUMBER.fullmatch(value) else "not a number"


QUOTING: dict[str, Callable[[str], str]] = {
    BARE: quote_bare, SINGLE: quote_single, DOUBLE: quote_double, COMMENT: quote_comment, NUMBER: quote_number,
}
