"""Workflows in Python are the workflows of YvetteML."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workflow.library import abstract, program_of
from windfall.errors import BadInput
from windfall.workflow.build.builder import build
from windfall.workflow.build.compose import PythonComponent, Workflow, component, data, event, notify, par, seq, wait
from windfall.workflow.graphs.gates import without_gates
from windfall.workflow.graphs.plan import plan
from windfall.workflow.yvetteml.program import Program


@component
def load(i: int, j: int) -> float:
    return i + j


@component
def product(a: float, b: float) -> float:
    return a * b


@component
def total(parts: dict[int, float]) -> float:
    return sum(parts.values())


def _another() -> PythonComponent:
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


def test_composed_workflow_has_the_graph_of_its_yvetteml() -> None:
    mine, theirs = composed().program(), program_of(TEXT, COMPONENTS)
    assert mine.tasks == theirs.tasks == 21 and np.array_equal(np.sort(mine.levels), np.sort(theirs.levels))
    assert shown(mine) == shown(theirs)


def test_nested_calls_become_tasks_that_pass_data() -> None:
    flow = Workflow("w", product(load(1, 2), product(load(3, 4), load(5, 6))).to(data("x")))
    built = flow.built()
    assert sum(1 for _ in flow.program().stream()) == 5 and [each.name for each in built.results] == ["x"]
    assert built.bag.flows is not None and len(built.bag.flows.before) == 4


def test_arguments_of_a_call_go_side_by_side() -> None:
    flow = Workflow("w", product(load(1, 2), product(load(3, 4), load(5, 6))).to(data("x")))
    assert sorted(flow.program().levels.tolist()) == [0, 0, 0, 1, 2]


def test_a_call_is_one_task_however_often_it_is_used() -> None:
    once = load(1, 2)
    for tasks, *parts in (
        (2, product(once, once)), (2, once, product(once, once)), (2, product(once, 1.0), once),
        (2, par(once, once, product(1.0, once))), (4, par(product(once, load(3, 4)), product(once, 2.0))),
    ):  # fmt: skip
        assert Workflow("w", *parts).program().tasks == tasks
    shared = Workflow("w", par(product(once, 1.0).to(data("x")), product(once, 2.0).to(data("y")))).built()
    assert shared.bag.flows is not None and len(shared.bag.flows.before) == 2
    assert sorted(each.name for each in shared.results) == ["x", "y"]


def test_wrong_names_of_data_are_refused() -> None:
    for name in ("unnamed-result", "../x", "", "a b"):
        with pytest.raises(BadInput, match="cannot be the name"):
            data(name)


def test_workflow_built_in_a_loop_is_not_deep() -> None:
    flow, call = seq(load(0, 0)), load(0, 0)
    for number in range(3000):
        flow, call = seq(flow, load(number, 1)), product(call, 1.0)
    assert Workflow("w", flow).program().tasks == 3001
    assert Workflow("w", call).program().levels.max() == 3000
    deep = par(load(0, 0))
    for _ in range(100):
        deep = par(deep, load(1, 1))
    with pytest.raises(BadInput, match="more than 60 deep"):
        Workflow("w", deep)


def test_numpy_numbers_are_accepted_as_arguments() -> None:
    flow = Workflow("w", [product(np.float32(0.5), load(*np.array([1, i]))).to(data("x")[i]) for i in np.arange(3)])
    assert [str(task) for task in flow.program().stream()][-1] == "product(x[2], 0.5, unnamed-result[5])"


SIZE = 3


def test_function_with_names_from_outside_is_refused() -> None:
    @component
    def uses(x: int) -> int:
        return [x * SIZE for _ in range(2)][0]

    @component
    def defaults(x: int, y: int = SIZE, *, z: int = SIZE + 1) -> int:
        import math as value

        return value.gcd(x, y) + z if x else defaults(x)  # type: ignore[no-any-return]

    with pytest.raises(BadInput, match="'uses' uses 'SIZE', which is not there when it runs"):
        Workflow("w", uses(1))
    assert Workflow("w", defaults(6)).program().tasks == 1
    names: dict[str, int] = {}
    exec(f"{defaults.implementation.implementation.header}\nx, y, z = 6, 3, 4\n"  # type: ignore[union-attr]
         f"{defaults.implementation.implementation.source}", names)  # type: ignore[union-attr]
    assert names["returned"] == 7
    with pytest.raises(BadInput, match="a fixed number of parameters"):
        component(lambda *x: x)


def test_wrong_arguments_of_components_are_refused() -> None:
    with pytest.raises(BadInput, match="cannot be an argument"):
        Workflow("w", load(object(), 2))  # type: ignore[arg-type]
    for number in (1 << 62, float("nan"), "x" * 100_001):
        with pytest.raises(BadInput, match="cannot be an argument"):
            Workflow("w", load(number, 2))
    with pytest.raises(TypeError, match=r"load\(\): missing"):
        load(1)
    with pytest.raises(BadInput, match="of type integer"):
        Workflow("w", load("a", 2)).program()

    with pytest.raises(BadInput, match="two components"):
        Workflow("w", load(1, 2), another(1))


def test_hints_for_mistakes_speak_python() -> None:
    """There is no line of a program to point at, and no <params>."""
    m, e = data("m"), event("e")
    with pytest.raises(BadInput) as read:
        Workflow("w", load(1, 2).to(m[1][1]), product(m[1][1], m[1][2])).program()
    assert (read.value.where, read.value.text) == ("w", "")
    assert read.value.hint == "some call's result is to go there: ….to(m[1][2])"
    with pytest.raises(BadInput) as waited:
        Workflow("w", notify(e[1]), wait(e[2]), load(1, 2)).program()
    assert waited.value.hint == "what is notified is 'e[1]'"


class Taker:
    """A client whose `submit` does nothing."""

    def submit(self, *_: object) -> int:
        return 7


def test_unordered_writes_are_warned_about() -> None:
    x = data("x")
    with pytest.warns(UserWarning, match="^w: 'x' is written by two tasks that nothing puts in order; notify and wait"):
        assert Workflow("w", par(load(1, 2).to(x), load(3, 4).to(x))).submit(Taker()) == 7


def test_composed_workflow_builds_the_bag_of_its_program() -> None:
    flow = composed()
    assert flow.built().bag == build(flow.program(), flow._shelf()).bag
