"""Workflows in Python are the workflows of YvetteML."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workflow.library import abstract, program_of
from windfall.errors import BadInput
from windfall.workflow.building import build
from windfall.workflow.compose import Made, Workflow, component, data, event, notify, par, seq, wait
from windfall.workflow.gates import without_gates
from windfall.workflow.plan import plan
from windfall.workflow.program import Program


@component
def load(i: int, j: int) -> float:
    return i + j


@component
def product(a: float, b: float) -> float:
    return a * b


@component
def total(parts: dict[int, float]) -> float:
    return sum(parts.values())


def _another() -> Made:
    @component
    def load(x: int) -> int:
        return x

    return load


another = _another()
COMPONENTS = (abstract("load", "out real returned", "in integer i", "in integer j")
              + abstract("product", "out real returned", "in real a", "in real b")
              + abstract("total", "out real returned", "in real* parts"))
TEXT = """
par
  par (i := 1; 3)(j := 1; 3) do compute load(m[i][j], i, j); notify(loaded[i][j]); enddo
//
  par (i := 1; 3)(j := 1; 3) do wait(loaded[i][j] and loaded[j][i]); compute product(p[i][j], m[i][j], m[j][i]); enddo
endpar
seq (i := 1; 3) do compute total(sum[i], p[i]); enddo
"""


def composed() -> Workflow:
    m, p, loaded = data("m"), data("p"), event("loaded")
    every = [(i, j) for i in (1, 2, 3) for j in (1, 2, 3)]
    return Workflow(
        "w",
        par(
            par(seq(load(i, j).to(m[i][j]), notify(loaded[i][j])) for i, j in every),
            par(seq(wait(loaded[i][j], loaded[j][i]), product(m[i][j], m[j][i]).to(p[i][j])) for i, j in every),
        ),
        seq(total(p[i]).to(data("sum")[i]) for i in (1, 2, 3)),
    )


def shown(program: Program) -> set[tuple[str, str]]:
    """Edges by the names of the tasks."""
    edges, gates = without_gates(plan(program).dag, program.tasks)
    assert not gates
    names = [str(task) for task in program.stream()]
    return {(names[before], names[after]) for before, after in edges.tolist()}


def test_the_same_graph() -> None:
    mine, theirs = composed().program(), program_of(TEXT, COMPONENTS)
    assert mine.tasks == theirs.tasks == 21 and np.array_equal(np.sort(mine.levels), np.sort(theirs.levels))
    assert shown(mine) == shown(theirs)


def test_calls_of_calls() -> None:
    flow = Workflow("w", product(load(1, 2), product(load(3, 4), load(5, 6))).to(data("x")))
    built = flow.built()
    assert sum(1 for _ in flow.program().stream()) == 5 and [each.name for each in built.results] == ["x"]
    assert built.bag.flows is not None and len(built.bag.flows.before) == 4


def test_what_cannot_be_composed() -> None:
    with pytest.raises(BadInput, match="cannot be an argument"):
        Workflow("w", load(object(), 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"load\(\): missing"):
        load(1)
    with pytest.raises(BadInput, match="of type integer"):
        Workflow("w", load("a", 2)).program()

    with pytest.raises(BadInput, match="two components"):
        Workflow("w", load(1, 2), another(1))


def test_mistakes_speak_python() -> None:
    """There is no line of a program to point at, and no <params>."""
    m, e = data("m"), event("e")
    with pytest.raises(BadInput) as read:
        Workflow("w", load(1, 2).to(m[1][1]), product(m[1][1], m[1][2])).program()
    assert (read.value.where, read.value.text) == ("w", "")
    assert read.value.hint == "some call's result is to go there: ….to(m[1][2])"
    with pytest.raises(BadInput) as waited:
        Workflow("w", notify(e[1]), wait(e[2]), load(1, 2)).program()
    assert waited.value.hint == "what is notified is 'e[1]'"


def test_it_is_a_bag_like_any_other() -> None:
    flow = composed()
    assert flow.built().bag == build(flow.program(), flow._shelf()).bag
