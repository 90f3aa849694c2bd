"""A parser of arguments that raises BadInput.

It is given the terminal's width, since argparse would import shutil to find it out.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from windfall.errors import BadInput


def _width() -> int:
    try:
        return min(100, os.get_terminal_size(2).columns or 80)
    except OSError:
        return 100


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28, width=_width())


_UNKNOWN = "unrecognized arguments: "  # argparse's own words
_CHOICE = re.compile(r"argument .*: invalid choice: '([^']*)' \(choose from (.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        lists = f"'{self.prog} --help' lists its arguments and options"
        if message.startswith(_UNKNOWN):
            message, hint = self._unknown(message.removeprefix(_UNKNOWN).split(" ", 1)[0])
            raise BadInput(message, hint or lists)
        hint = ""
        if choice := _CHOICE.fullmatch(message):
            hint = _meant(choice[1], re.findall(r"[\w.-]+", choice[2]))
        raise BadInput(message, hint or lists)

    def _unknown(self, word: str) -> tuple[str, str]:
        """Return what is wrong with a word that no option and no argument takes, and the option that was meant."""
        option = word.partition("=")[0]
        if option.startswith("-"):
            return f"there is no option '{option}'", _meant(option, self._option_string_actions)
        return f"'{word}' is one argument too many", ""


def _meant(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known word nearest to an unknown one; "" if none is near."""
    from windfall.model.suggest import meant

    near = meant(word, [each for each in known if each != "-h"])
    return f"did you mean '{near}'?" if near else ""


def make(command: str, description: str, examples: str = "") -> Parser:
    parser = Parser(
        f"windfall {command}",
        description=description[0].upper() + description[1:] + ".",
        epilog=examples or None,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    return parser


def add_bag(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument(
        "bag", metavar="BAG", help="number of the bag, or its name, which means the latest bag of that name", **options
    )


def add_tasks(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("tasks", metavar="TASK", nargs="*", help=what + ": numbers, or ranges such as 5..9")


MAX_TASKS_NAMED = 1_000_000


def task_numbers(texts: list[str]) -> list[int] | None:
    """Return the task numbers that the texts name, [3, 5, 6, 7] for "3" and "5..7"; None, which means all, for none."""
    if not texts:
        return None
    found: list[int] = []
    for text in texts:
        first, dots, last = text.partition("..")
        if not (first.isdecimal() and (not dots or last.isdecimal()) and len(text) < 40):
            raise BadInput(f"'{text}' is not a task number", "tasks are numbered from 0: give 12, or 5..9")
        span = range(int(first), int(last if dots else first) + 1)
        if not span:
            raise BadInput(f"'{text}' is not a range of task numbers",
                           f"put the smaller number first: {int(last)}..{int(first)}")
        if len(span) + len(found) > MAX_TASKS_NAMED:
            raise BadInput(f"the task numbers name more than {MAX_TASKS_NAMED:,} tasks",
                           "give no number to mean all tasks")
        found.extend(span)
    return found


def task_number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise BadInput(f"'{text}' is not a task number", "tasks are numbered from 0")
    return int(text)
