"""Scanner of shell commands: the shell's context at each parameter, so that any value stays one word.

The scanner reads a command's text once, as the shell would: quotes, `$(…)`, comments, arithmetic.  Where values can be
quoted, it notes the context; where they cannot (in a here-document, in backquotes, after a backslash, in $'…'), it
refuses the template with another way to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from windfall.errors import BadInput
from windfall.model.templates.template import Piece, Slot, quote_bare, quote_double, quote_single

BARE, SINGLE, DOUBLE, COMMENT, NUMBER = "", "'", '"', "#", "("
_ANSI, _BACK = "$'", "`"
_END_OF = {_ANSI: "'", _BACK: "`"}
_REFUSED = {
    _ANSI: ("inside $'…'", "use \"…\" or '…'"),
    _BACK: ("inside backquotes", "write $(…) instead"),
}
_HEREDOC = re.compile(r"<<-?[ \t]*(\\?[\w.-]+|'[^'\n]*'|\"[^\"\n]*\")")
_NUMBER = re.compile(r"[-+]?[0-9A-Za-z_.]+")


def in_context(template: list[Piece]) -> list[Piece]:
    """Return the template with the shell's context at every parameter."""
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
        self.around: list[str] = []  # the modes to which closing signs return, innermost last
        self.escaped = False  # the last character read was a backslash
        self.at_word = True  # a `#` here begins a comment
        self.documents: list[str] = []  # ends of here-documents that begin at the next line

    def place(self, name: str) -> str:
        if self.escaped:
            raise _unsafe(name, "after a backslash", "remove the backslash: Windfall escapes values itself")
        if self.documents:
            raise _unsafe(name, "after the << of a here-document", "use printf '%s\\n' … | command")
        if self.mode in _REFUSED:
            raise _unsafe(name, *_REFUSED[self.mode])
        self.at_word = False
        return self.mode

    def read(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._step(text, at)

    def _step(self, text: str, at: int) -> int:
        """Read the character at `at`; return where to go on."""
        char, mode = text[at], self.mode
        if self.escaped:
            self.escaped, self.at_word = False, False
        elif mode == COMMENT:
            if char == "\n":
                self.mode = BARE
                return at
        elif mode == SINGLE:
            if char == "'":
                self.mode = BARE
        elif char == "\\":
            self.escaped = True
        elif mode in _END_OF:
            self._close(_END_OF[mode], char)
        else:
            return self._unquoted(text, at)
        return at + 1

    def _unquoted(self, text: str, at: int) -> int:
        """Read a character that the shell interprets: outside quotes, or inside double ones."""
        char = text[at]
        if char == "`":
            self.around.append(self.mode)
            self.mode = _BACK
        elif char == '"':
            self._double()
        elif self.mode != DOUBLE or char == "$":
            return self._bare(text, at)
        return at + 1

    def _close(self, end: str, char: str) -> None:
        if char == end:
            self.mode = self.around.pop()

    def _double(self) -> None:
        self.at_word = False
        if self.mode != NUMBER:  # in arithmetic, quotes mean nothing
            self.mode = BARE if self.mode == DOUBLE else DOUBLE

    def _bare(self, text: str, at: int) -> int:
        """Read a character outside quotes, or a `$` inside double ones."""
        char, word = text[at], self.at_word
        self.at_word = char in " \t\n;&|("
        if char == "$":
            return self._dollar(text, at)
        if char == "<":
            return self._less(text, at)
        if char == "\n":
            return self._skip(text, at + 1)
        if char == "(":
            self.around.append(self.mode)
        elif char == ")":
            self.mode = self.around.pop() if self.around else self.mode
        elif self.mode == BARE:
            if char == "'":
                self.mode = SINGLE
            elif char == "#" and word:
                self.mode = COMMENT
        return at + 1

    def _less(self, text: str, at: int) -> int:
        if text.startswith("<<<", at):
            return at + len("<<<")
        return self._document(text, at) if self.mode == BARE else at + 1

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
                self.documents.append("")  # its end has parameters, so the scanner trusts no text after it
            return at + 1
        self.documents.append(found[1].strip("'\"\\"))
        return found.end()

    def _skip(self, text: str, at: int) -> int:
        """Skip the bodies of here-documents, or go to the end of this piece: a parameter there is refused."""
        while self.documents:
            end = self.documents[0]
            found = re.compile(rf"^\t*{re.escape(end)}$", re.MULTILINE).search(text, at) if end else None
            if found is None:
                return len(text)
            self.documents.pop(0)
            at = found.end()
        return at


def _unsafe(name: str, where: str, instead: str) -> BadInput:
    return BadInput(f"{{{name}}} is {where}, where no value can be quoted safely", instead, text=f"{{{name}}}")


def quote_comment(value: str) -> str:
    return value.replace("\n", " ").replace("\r", " ")


def quote_number(value: str) -> str:
    """Return a number; any other value becomes an error there, since in $((…)) the shell would run it."""
    return value if _NUMBER.fullmatch(value) else "not a number"


QUOTING: dict[str, Callable[[str], str]] = {
    BARE: quote_bare, SINGLE: quote_single, DOUBLE: quote_double, COMMENT: quote_comment, NUMBER: quote_number,
}
