"""Templates: text with `{parameter}` in it, `{{` and `}}` for the braces themselves.

A template is compiled once into pieces.  A command given as one string means what it would mean to `/bin/sh
-c`; a value put into it stays one word, whatever is in it: each place knows how the shell reads it
(`model/templates/shell.py`), and the value is escaped for that, if it needs it.  Where the text uses nothing of the
shell's, it is split into an argument vector here, which means the same and spares a shell per task.
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
                f"{{{excerpt(name)}}}: of another target there are only its output files",
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
    """The target whose output files `{name.outputs}` stands for; empty where it is an ordinary parameter."""
    match = _TAKEN.fullmatch(name)
    return match[1] if match else ""


def taken_path(target: str, index: int, path: str) -> str:
    """Where an output file of another target's task lies for the task that takes it."""
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
"""Words that a shell treats itself when they come first."""

_PLAIN = re.compile(r"[\w@%+:,./=\- \t]*", re.ASCII)
_SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def plain(text: str) -> bool:
    """No character that a shell would do anything about, quotes included."""
    return _PLAIN.fullmatch(text) is not None


def split(line: str) -> list[str] | str:
    """A command without parameters: its words if no shell is needed to tell them, else itself."""
    if _PLAIN.fullmatch(line):
        words = line.split()
        if words and words[0] not in SHELL_WORDS and "=" not in words[0]:
            return words
        return line
    vector = as_vector([line]) if "'" in line or '"' in line else None
    return line if vector is None else ["".join(str(piece) for piece in word) for word in vector]


def as_vector(template: list[Piece]) -> list[list[Piece]] | None:
    """The template's words where it uses nothing of the shell's but spaces and simple quotes, else None."""
    words: list[list[Piece]] = []
    inside = False  # of a word
    quote = ""
    for piece in template:
        if isinstance(piece, Slot):
            if not inside:
                words.append([])
            words[-1].append(Slot(piece.name))
            inside = True
            continue
        for char in piece:
            if quote:
                if char == quote:
                    quote = ""
                elif quote == '"' and char in "\\$`":
                    return None
                else:
                    _add(words[-1], char)
            elif char in " \t":
                inside = False
            else:
                if not inside:
                    words.append([])
                    inside = True
                if char in "'\"":
                    quote = char
                elif plain(char):
                    _add(words[-1], char)
                else:
                    return None
    return None if quote or not words or not _is_program(words[0]) else words


def _add(word: list[Piece], char: str) -> None:
    if word and isinstance(word[-1], str):
        word[-1] += char
    else:
        word.append(char)


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
