"""Bounds of texts, numbers and lists."""

from __future__ import annotations

from collections.abc import Iterable

from windfall.errors import BadInput, TooLarge
from windfall.model.spec import MAX_TEXT
from windfall.model.templates import template as tpl


def check_text(text: str, what: str) -> None:
    if len(text) > MAX_TEXT:
        raise TooLarge(f"{what} has {len(text):,} characters; at most {MAX_TEXT:,}")
    check_clean(text, what)


def check_clean(text: str, what: str) -> None:
    if "\0" in text:
        raise BadInput(f"{what} contains a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{what} is not valid text") from None


def within(number: int, least: int, most: int, what: str) -> None:
    if isinstance(number, bool) or not least <= number <= most:
        raise BadInput(f"{what} must be {least} to {most}, not {number}")


def at_most(count: int, most: int, what: str) -> None:
    if count > most:
        raise TooLarge(f"{count:,} {what}; at most {most:,}")


def distinct(names: Iterable[str], message: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(message.format(tpl.excerpt(name)), text=tpl.excerpt(name))
        seen.add(name)
