"""Marks that tell the durable fields of a state record from the others.

A field without a mark is durable: only facts change it, the snapshot holds it and the fingerprint compares it.  So a
new durable field takes its declaration here, with a default, and a fact that sets it: a field in `messages/facts.py`,
which the handler in `apply/` copies.  The marks:

    CHUNKED   durable, and large: `persist/snapshot.py` keeps it in chunks of its own
    DERIVED   worked out from durable fields; a recovery must work out the same, and the fingerprint compares it
    INDEX     derived, and finds what other fields hold; the fingerprint does not repeat it
    SESSION   of this process: starts afresh after a recovery
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from functools import cache
from typing import Any, Final, get_type_hints

_KIND = "windfall.kind"
CHUNKED: Final[Mapping[str, str]] = {_KIND: "chunked"}
DERIVED: Final[Mapping[str, str]] = {_KIND: "derived"}
INDEX: Final[Mapping[str, str]] = {_KIND: "index"}
SESSION: Final[Mapping[str, str]] = {_KIND: "session"}


def kind(field: Field[Any]) -> str:
    return str(field.metadata.get(_KIND, "durable"))


@cache
def durable(record: type) -> tuple[str, ...]:
    """Return the names of the fields that a snapshot holds in the record itself."""
    return tuple(field.name for field in fields(record) if kind(field) == "durable")


@cache
def compared(record: type) -> tuple[str, ...]:
    """Return the names of the fields that must be the same after a recovery."""
    return tuple(field.name for field in fields(record) if kind(field) in ("durable", "chunked", "derived"))


@cache
def hints(record: type) -> dict[str, Any]:
    """Return the types of the durable fields."""
    every = get_type_hints(record)
    return {name: every[name] for name in durable(record)}
