"""Graphs that are sent part by part: what comes of the parts is what was cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.workflow.test_running import built
from windfall.model.checks.bag import validate
from windfall.model.checks.parts import check_part
from windfall.model.spec import Bag, Flows, Items, Policy, Range, Sweep, Table, Target
from windfall.model.templates.render import Renderer, source_count
from windfall.workflow.build.streaming import CutBag, cut, whole


def table(*rows: str) -> Sweep:
    return Sweep(axes=[Table(columns=["x"], text="\n".join(rows), count=len(rows))])


def later(found: CutBag) -> list[Any]:
    """Return the parts as a server gives them back."""
    return [SimpleNamespace(target=piece.target, source=piece.source, edges=[] if at else part.edges,
                            flows=None if at else part.flows)
            for part in found.parts for at, piece in enumerate(part.pieces)]


def rows(bag: Bag) -> list[tuple[str, dict[str, Any]]]:
    return [(target.name, {name: str(value) for name, value in Renderer(target).params(at).items()})
            for target in bag.targets for at in range(source_count(target.source))]


def handed(flows: Flows | None) -> set[tuple[Any, ...]]:
    if flows is None:
        return set()
    return {(before if before >= 0 else flows.blobs[-1 - before], flows.names[name], after, flows.names[place])
            for before, name, after, place in zip(flows.before, flows.name, flows.after, flows.place, strict=True)}


def same(one: Bag, other: Bag) -> None:
    assert rows(one) == rows(other) and set(one.edges) == set(other.edges)
    assert handed(one.flows) == handed(other.flows)


@st.composite
def bags(draw: Any) -> Bag:
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    total, order = sum(counts), None
    order = draw(st.permutations(range(total)))  # before → after along this, so there is no circle
    pairs = st.tuples(st.integers(0, total - 1), st.integers(0, total - 1)).filter(lambda pair: pair[0] < pair[1])
    edges = draw(st.lists(pairs, max_size=20, unique=True)) if total > 1 else []
    flows = draw(st.lists(st.tuples(pairs, st.integers(0, 2)), max_size=10, unique=True)) if total > 1 else []
    blobs = draw(st.lists(st.tuples(st.integers(0, total - 1), st.integers(0, 1)), max_size=4, unique=True))
    columns: dict[str, list[int]] = {name: [] for name in ("before", "name", "after", "place")}
    for (before, after), place in flows:
        for name, value in zip(columns, (order[before], 0, order[after], 1 + place), strict=True):
            columns[name].append(value)
    for after, blob in blobs:
        for name, value in zip(columns, (-1 - blob, 0, after, 4 + blob), strict=True):
            columns[name].append(value)
    taken = list(zip(columns["after"], columns["place"], strict=True))
    kept = [at for at, place in enumerate(taken) if taken.index(place) == at]
    columns = {name: [values[at] for at in kept] for name, values in columns.items()}
    names = ["out", "a", "b", "c", "d", "e"]
    return Bag(
        name="any", edges=[(order[before], order[after]) for before, after in edges],
        targets=[Target(name=f"t{at}", command=["run", "{x}"], outputs=["out"], source=_source(at, count))
                 for at, count in enumerate(counts)],
        flows=Flows(names=names, blobs=[("a" * 64, 1, 1), ("b" * 64, 2, 2)], **columns) if kept else None)


def _source(at: int, count: int) -> Sweep:
    if at % 2:
        return Sweep(axes=[Range(name="x", first=1, last=count)])
    return table(*(f'"{at},{number}"' for number in range(count)))


@settings(max_examples=150, deadline=None)
@given(bags(), st.integers(1, 8))
def test_parts_join_to_the_whole_bag(bag: Bag, size: int) -> None:
    validate(bag)
    found = cut(bag, size)
    if found is None:
        assert sum(source_count(target.source) for target in bag.targets) <= size
        return
    validate(found.bag)
    assert (found.bag.flows.blobs if found.bag.flows else None) == (bag.flows.blobs if bag.flows else None)
    assert found.bag.open and sum(source_count(target.source) for target in found.bag.targets) == size
    parts = list(found.parts)
    place = [number for number, target in enumerate(bag.targets) for _ in range(source_count(target.source))]
    there = {int(number): place[task] for task, number in enumerate(found.numbers)}
    for part in parts:
        check_part(part, found.bag.targets, lambda task: (there[task], 0))
    again, numbers = whole(found.bag, later(CutBag(found.bag, found.numbers, iter(parts))))
    assert not again.open
    mine = np.argsort(found.numbers).tolist()  # the server's number → ours
    position = {number: at for at, number in enumerate(numbers)}
    to = {mine[number]: position[number] for number in numbers}
    assert [rows(bag)[task] for task in sorted(to, key=to.__getitem__)] == rows(again)
    assert {(to[before], to[after]) for before, after in bag.edges} == set(again.edges)
    assert {(to.get(before, before), name, to[after], at) for before, name, after, at in handed(bag.flows)} == handed(
        again.flows)


GRAPH = """<application><graph>par (i := 1; 30) do compute Make(x[i], i); enddo
    par (i := 1; 30) do compute Copy(y[i], x[i], i); enddo compute Sum(z, y, 1);</graph></application>"""


def test_an_application_is_cut_along_its_levels() -> None:
    bag = built(GRAPH).bag
    found = cut(bag, 10)
    assert found is not None
    assert [source_count(target.source) for target in found.bag.targets] == [10, 0, 0]
    parts = list(found.parts)
    assert [[piece.target for piece in part.pieces] for part in parts] == (
        [["Make"]] * 2 + [["Copy"]] * 3 + [["Sum"]])
    assert [part.first for part in parts] == [10, 20, 30, 40, 50, 60]
    assert found.bag.flows is not None


@pytest.mark.parametrize("change", [
    {"open": True}, {"policy": Policy(batch=5)}, {"policy": Policy(select="sjf")},
    {"targets": [Target(command="a {x}", source=table("1", "2", "3"), outputs=["{x}"])]},
    {"targets": [Target(source=Items(items=["a", "b", "c"]))]},
    {"targets": [Target(name="a", command="a {x}", source=table("1", "2")),
                 Target(name="b", command="b {x}", after=["a"], source=table("1", "2"))]},
])  # fmt: skip
def test_bag_that_cannot_be_cut_is_sent_whole(change: dict[str, Any]) -> None:
    bag = Bag(name="any", targets=[Target(command="a {x}", source=table("1", "2", "3"))])
    assert cut(bag, 1) is not None
    assert cut(msgspec.structs.replace(bag, **change), 1) is None


def test_a_bag_that_was_extended_is_left_as_it_was_submitted() -> None:
    bag = Bag(name="any", targets=[Target(command="a {x}", source=Sweep(axes=[Range(name="x", first=1, last=2)]))])
    assert whole(bag, []) == (bag, [0, 1])
    more = SimpleNamespace(target="main", source=table("3"), edges=[], flows=None)
    assert whole(bag, [more]) == (bag, [0, 1])
