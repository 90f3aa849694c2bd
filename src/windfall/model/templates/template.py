"""Templates: text with `{parameter}` in it, `{{` and `}}` for the braces themselves.

A template is compiled once into pieces.  A command given as one string has the meaning that `/bin/sh -c` gives it; a
value put into it stays one word: the scanner (`model/templates/shell.py`) notes the shell's context at each parameter,
and values are quoted for it.  A text that uses no feature of the shell is split into an argument vector here, which
means the same and saves a shell per task.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from windfall.errors import BadInput


class Slot(NamedTuple):
    """The place of a parameter; `context`, in shell templates only, is how the shell reads it (`shell.py`)."""

    name: str
    context: str = ""


Piece = str | Slot

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def pieces(text: str) -> list[Piece]:
    """Cut a template at its parameters.  No two literals are neighbours."""
    found: list[Piece] = []
    literal, at = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[at : token.start()]
        at = token.end()
        if token[0] in ("{{", "}}"):
            literal += token[0][0]
            continue
        if literal:
            found.append(literal)
            literal = ""
        found.append(_slot(token, text))
    literal += text[at:]
    return [*found, literal] if literal else found


def _slot(token: re.Match[str], text: str) -> Slot:
    name = token[1]
    if name is None:
        raise BadInput(
            f"a single '{token[0]}' in a template",
            "write {{ and }} for braces, {name} for a parameter",
            text=excerpt(text),
        )
    if re.fullmatch(r"[\w-]+\.[\w-]+", name):
        if not taken_target(name):
            raise BadInput(
                f"{{{excerpt(name)}}}: a command can use only the output files of another target",
                f"write {{{name.partition('.')[0]}.outputs}}",
                text=excerpt(text),
            )
        return Slot(name)
    if not NAME.fullmatch(name):
        raise BadInput(
            f"{{{excerpt(name)}}} is not a parameter",
            "write {{ and }} for braces that the command needs",
            text=excerpt(text),
        )
    return Slot(name)


_TAKEN = re.compile(rf"({NAME.pattern})\.outputs")


def taken_target(name: str) -> str:
    """Return the target whose output files `{name.outputs}` stands for; "" for an ordinary parameter."""
    match = _TAKEN.fullmatch(name)
    return match[1] if match else ""


def taken_path(target: str, index: int, path: str) -> str:
    """Return the path of another target's output file for the task that takes it."""
    return f"{target}/{index}/{path}"


def names(template: list[Piece]) -> list[str]:
    return [piece.name for piece in template if isinstance(piece, Slot)]


def excerpt(text: str, most: int = 100) -> str:
    line = text.splitlines()[0] if text.strip() else text
    return line if len(line) <= most else line[: most - 3] + "..."


# --- the shell -------------------------------------------------------------------------------------------------

SHELL_WORDS = frozenset(
    [
        "!",
        "{",
        "}",
        "[[",
        "]]",
        "case",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
        ".",
        ":",
        "[",
        "alias",
        "bg",
        "bind",
        "break",
        "builtin",
        "caller",
        "cd",
        "command",
        "compgen",
        "complete",
        "continue",
        "declare",
        "dirs",
        "disown",
        "echo",
        "enable",
        "eval",
        "exec",
        "exit",
        "export",
        "false",
        "fc",
        "fg",
        "getopts",
        "hash",
        "help",
        "history",
        "jobs",
        "kill",
        "let",
        "local",
        "logout",
        "mapfile",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readarray",
        "readonly",
        "return",
        "set",
        "shift",
        "shopt",
        "source",
        "suspend",
        "test",
        "times",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "wait",
    ]
)
"""Words that a shell interprets itself at the start of a command."""

_PLAIN = re.compile(r"[\w@%+:,./=\- \t]*", re.ASCII)
_SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def plain(text: str) -> bool:
    """Is every character one that a shell does not interpret, quotes included?"""
    return _PLAIN.fullmatch(text) is not None


def split(line: str) -> list[str] | str:
    """Return the words of a command without parameters; the command itself if only a shell can split it."""
    if _PLAIN.fullmatch(line):
        words = line.split()
        if words and words[0] not in SHELL_WORDS and "=" not in words[0]:
            return words
        return line
    vector = as_vector([line]) if "'" in line or '"' in line else None
    return line if vector is None else ["".join(str(piece) for piece in word) for word in vector]


def as_vector(template: list[Piece]) -> list[list[Piece]] | None:
    """Return the template's words if it uses only spaces and simple quotes of the shell's features, else None."""
    splitter = _WordSplitter()
    for piece in template:
        if isinstance(piece, Slot):
            splitter.begin_word().append(Slot(piece.name))
        elif not splitter.take(piece):
            return None
    words = splitter.words
    return None if splitter.quote or not words or not _is_program(words[0]) else words


class _WordSplitter:
    """Splits a command at spaces, as a shell does; simple quotes keep a word together."""

    def __init__(self) -> None:
        self.words: list[list[Piece]] = []
        self.inside = False  # the last word may go on
        self.quote = ""  # the quote that is open

    def begin_word(self) -> list[Piece]:
        """Return the word that goes on here, or a new one."""
        if not self.inside:
            self.words.append([])
            self.inside = True
        return self.words[-1]

    def take(self, text: str) -> bool:
        """Take the next part of the command; return False if it has a character that only a shell can interpret."""
        at = 0
        while at < len(text):
            run = _RUNS[self.quote].match(text, at)
            if run is None:
                return False
            self._take_run(run[0])
            at = run.end()
        return True

    def _take_run(self, run: str) -> None:
        if run == self.quote:
            self.quote = ""
        elif self.quote:
            _add(self.words[-1], run)
        elif run[0] in " \t":
            self.inside = False
        else:
            word = self.begin_word()
            if run in ("'", '"'):
                self.quote = run
            else:
                _add(word, run)


_RUNS = {
    "": re.compile(r"[ \t]+|[\w@%+:,./=-]+|['\"]", re.ASCII),
    "'": re.compile(r"[^']+|'"),
    '"': re.compile(r'[^"\\$`]+|"'),
}
"""Characters that a command can have next, by the quote that is open."""


def _add(word: list[Piece], text: str) -> None:
    if word and isinstance(word[-1], str):
        word[-1] += text
    else:
        word.append(text)


def _is_program(first: list[Piece]) -> bool:
    if len(first) != 1 or not isinstance(first[0], str):
        return False
    return bool(first[0]) and first[0] not in SHELL_WORDS and "=" not in first[0]


def quote_bare(value: str) -> str:
    return value if _SAFE.fullmatch(value) else "'" + value.replace("'", "'\"'\"'") + "'"


def quote_single(value: str) -> str:
    return value.replace("'", "'\"'\"'") if "'" in value else value


def quote_double(value: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", value)
