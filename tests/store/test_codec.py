"""Facts of every version come back as facts of today."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from windfall.core.messages.facts import FACTS, BagClosed, Detail, Finished
from windfall.errors import StoreCorrupt, StoreTooNew
from windfall.store.codec import UPCASTERS, Codec, decode, encode


def sample(kind: Any) -> Any:
    """Return some value of a type, so that these tests cover each new fact by themselves."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return sample(inner[0])
    if origin is list:
        return [sample(inner[0])]
    if origin is tuple:
        return tuple(sample(each) for each in inner)
    if origin is dict:
        return {sample(inner[0]): sample(inner[1])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{name: sample(hint) for name, hint in get_type_hints(kind).items() if not name.startswith("__")})
    return {int: 7, str: "text é", bytes: b"\xff\x00", bool: True, float: 1.5}[kind]


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_every_fact_comes_back_the_same(kind: Any) -> None:
    facts = [sample(kind), BagClosed(1, 2)]
    assert decode(encode(facts)) == facts


def test_tags_are_unique_and_versioned() -> None:
    tags = [kind.__struct_config__.tag for kind in FACTS]
    assert len(set(tags)) == len(tags)
    assert all(tag.rpartition("/")[2].isdigit() for tag in tags)
    assert not set(tags) & set(UPCASTERS)


def test_a_report_of_a_hundred_is_small() -> None:
    numbers = list(range(1000, 1100))
    fact = Finished(
        1_700_000_000_000,
        3,
        1,
        numbers,
        numbers,
        [1_700_000_000_000] * 100,
        [12] * 100,
        [3] * 100,
        [9 << 20] * 100,
        {0: Detail(out=b"x")},
    )
    assert len(encode([fact])) < 26 * 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93\x01",
        b"\x91\x90",
        b"\x91\x92\xacbag-closed/1\x01",
        b"\x91\x91\x05",
        b"\xc0",
        encode([BagClosed(1, 2)])[:-1],
    ],
)
def test_nonsense_is_corrupt(body: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        decode(body)


def test_a_fact_from_the_future_is_too_new() -> None:
    body = msgspec.msgpack.encode([["bag-closed/1", 1, 2], ["bag-painted/1", 1, 2, "blue"]])
    with pytest.raises(StoreTooNew, match="bag-painted/1"):
        decode(body)


class Moved(msgspec.Struct, array_like=True, tag="moved/3"):
    at: int
    x: int
    y: int
    z: int = 0


def test_old_facts_are_brought_up_step_by_step() -> None:
    codec = Codec(
        [Moved, BagClosed],
        {
            "moved/1": lambda old: ["moved/2", old[1], old[2], 0],
            "moved/2": lambda old: ["moved/3", old[1], old[2], old[3], 1],
        },
    )
    body = msgspec.msgpack.encode(
        [["moved/1", 5, 6], ["moved/2", 5, 6, 7], ["moved/3", 5, 6, 7], ["bag-closed/1", 1, 2]]
    )
    assert codec.decode(body) == [Moved(5, 6, 0, 1), Moved(5, 6, 7, 1), Moved(5, 6, 7), BagClosed(1, 2)]
