"""Facts to bytes and back.

A journal row holds a list of facts, MessagePack, each an array that begins with its tag, "kind/version".  Facts of
today decode in one pass.  Where a tag is no longer today's, `UPCASTERS` turns the array of the old fact into that of
its successor, again and again until it is; a tag that nobody knows comes from the future.
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
    """Of a set of fact classes; the module's `encode` and `decode` are those of `FACTS`."""

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
                "the data was written by something else, or damaged; restore it from a backup",
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
