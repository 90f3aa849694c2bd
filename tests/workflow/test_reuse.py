"""The remainder of a bag: tasks that must run again, in their old order, with no more edges than before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.workflow.test_running import Shape, built, shapes, written
from windfall.model.spec import Bag
from windfall.model.templates.render import Renderer, source_count
from windfall.workflow.build.builder import Built
from windfall.workflow.build.reuse import File, done_by, remainder
from windfall.workflow.graphs import gates
from windfall.workflow.graphs.gates import GATES

FILE: list[File] = [("out/x", "0" * 64, 1, 0o644)]


def words(bag: Bag) -> list[str]:
    """Return a description of each task that is the same in every bag."""
    found = []
    for target in bag.targets:
        renderer = Renderer(target)
        found += [f"{target.name} {sorted(renderer.params(at).items())}" for at in range(source_count(target.source))]
    return found


def order(bag: Bag, wanted: set[str]) -> set[tuple[str, str]]:
    """Return the pairs of wanted tasks of which the first comes before the second."""
    names = words(bag)
    before = np.eye(len(names), dtype=bool)
    for _ in names:
        for a, b in bag.edges:
            before[b] |= before[a]
    return {(names[a], names[b]) for b, a in np.argwhere(before).tolist() if a != b and {names[a], names[b]} <= wanted}


@given(shapes, st.data())
@settings(max_examples=80, deadline=None)
def test_remaining_tasks_keep_their_order(shape: Shape, data: st.DataObject) -> None:
    text, _ = written(shape, [], set())
    old = gates.FEW, gates.TIMES
    gates.FEW, gates.TIMES = data.draw(st.sampled_from([old, (1, 0)]))
    try:
        bag = built(text).bag
    finally:
        gates.FEW, gates.TIMES = old
    names = words(bag)
    succeeded = data.draw(st.sets(st.integers(0, len(names) - 1)))
    left = remainder(bag, done_by(1, bag, dict.fromkeys(succeeded, FILE)))
    kept = {name for task, name in enumerate(names) if task not in succeeded}
    if left.bag is None:
        assert not {name for name in kept if not name.startswith(GATES)}
        return
    assert {name for name in words(left.bag) if not name.startswith(GATES)} == {
        name for name in kept if not name.startswith(GATES)}
    assert order(left.bag, kept) == order(bag, kept)


def wide(number: int) -> Built:
    return built(f"par (i := 1; 300) do compute Make(x[i], i + {number}); enddo "
                 f"par (i := 1; 300) do compute Make(y[i], i + {number} + 1000); enddo")


def test_gate_stays_between_wide_sections_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's command has run before, but the tasks that it waits for have not."""
    monkeypatch.setattr("windfall.workflow.build.reuse.MAX_BRIDGED", 10_000)
    before, now = wide(0).bag, wide(5000).bag
    assert before.targets[-1].name == now.targets[-1].name == GATES
    left = remainder(now, done_by(1, before, dict.fromkeys(range(601), FILE)))
    assert left.bag is not None and len(left.bag.edges) == 600 and left.bag.targets[-1].name == GATES


def test_reached_gate_is_not_run_again() -> None:
    bag = wide(0).bag
    left = remainder(bag, done_by(1, bag, {task: FILE for task in range(601) if task not in (300, 305)}))
    assert left.bag is not None and [target.name for target in left.bag.targets] == ["Make"]
    assert remainder(bag, done_by(1, bag, dict.fromkeys(range(601), FILE))).bag is None
