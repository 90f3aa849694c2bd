"""The codec: facts to bytes and back.

A journal row holds a list of facts in MessagePack; each fact is an array that begins with its tag, "kind/version".
Current facts decode in one pass.  For a fact of an older version, `UPCASTERS` turns its array into that of the next
version, until the tag is current; an unknown tag comes from a newer Windfall.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, cast

import msgspec

from windfall.core.messages.facts import FACTS, Fact
from windfall.errors import StoreCorrupt, StoreTooNew

Upcaster = Callable[[list[Any]], list[Any]]

UPCASTERS: dict[str, Upcaster] = {}  # by the old tag


class Codec:
    """The codec of a set of fact classes; the module's `encode` and `decode` are those of `FACTS`."""

    def __init__(self, facts: Sequence[type[Any]], upcasters: Mapping[str, Upcaster]) -> None:
        self._kind = list[Union[tuple(facts)]]  # type: ignore[misc]  # noqa: UP007  (made at run time)
        self._decoder = msgspec.msgpack.Decoder(self._kind)
        self._tags = frozenset(fact.__struct_config__.tag for fact in facts)
        self._upcasters = upcasters
        self.encode: Callable[[Sequence[Any]], bytes] = msgspec.msgpack.Encoder().encode

    def decode(self, body: bytes) -> list[Any]:
        try:
            return cast("list[Any]", self._decoder.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._decode_old(body, error)

    def _decode_old(self, body: bytes, error: Exception) -> list[Any]:
        try:
            arrays = msgspec.msgpack.decode(body, type=list[list[Any]])
            return cast("list[Any]", msgspec.convert([self._upcast(array) for array in arrays], self._kind))
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError, TypeError) as second:
            raise StoreCorrupt(
                f"a journal row does not hold facts: {error}",
                "another program wrote it, or it is damaged; restore the data directory from a backup",
            ) from second

    def _upcast(self, array: list[Any]) -> list[Any]:
        while array[0] not in self._tags:
            if not isinstance(array[0], str):
                raise TypeError("a fact begins with its tag")
            if array[0] not in self._upcasters:
                raise StoreTooNew(
                    f"the journal holds facts of the kind {array[0]!r}, which this Windfall does not know",
                    "start the newer Windfall that wrote it; nothing was changed",
                )
            array = self._upcasters[array[0]](array)
        return array


_CODEC = Codec(FACTS, UPCASTERS)


def encode(facts: Sequence[Fact]) -> bytes:
    return _CODEC.encode(facts)


def decode(body: bytes) -> list[Fact]:
    return _CODEC.decode(body)
