"""A plan has the order of its program with fewer gates."""

from __future__ import annotations

from hypothesis import given, settings

from tests.workflow import papers
from tests.workflow.library import MATRICES, abstract, program_of
from tests.workflow.test_unroll import COUNTS, PAIR, programs
from windfall.errors import BadInput
from windfall.workflow.components.files import Application
from windfall.workflow.graphs.dag import reduction, shape
from windfall.workflow.graphs.plan import plan
from windfall.workflow.text import plain
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.printer import show
from windfall.workflow.yvetteml.program import compile_application


@settings(max_examples=200, deadline=None)
@given(programs())
def test_plan_keeps_the_order_of_the_program(block: ast.Block) -> None:
    try:
        program = compile_application(Application("random", (), plain("random", show(block)), block), COUNTS)
    except BadInput:
        return
    made = plan(program)
    numbers = {node: number for number, node in enumerate(program.nodes.tolist())}
    pairs = {(numbers[a], numbers[b]) for a, b in reduction(program.dag, program.shape, pairs=True)[1]}
    found = shape(made.dag)
    assert len(found.order) == made.dag.nodes
    assert set(reduction(made.dag, found, pairs=True)[1]) == pairs
    assert (found.level[: made.tasks] - 1).tolist() == program.levels.tolist()
    assert [made.components[each] for each in made.component] == [task.component for task in program.stream()]
    before, after = made.dag.pending(), [0] * made.dag.nodes
    for node in made.dag.src.tolist():
        after[node] += 1
    assert all(before[node] > 1 and after[node] > 1 for node in range(made.tasks, made.dag.nodes))


def test_plan_of_figure_2_has_its_components_and_sections() -> None:
    made = plan(program_of(papers.without_credentials(papers.FIGURE_2), MATRICES))
    assert made.components == ["MatrixLoad", "MatrixProduct", "MatrixComp"]
    assert made.component.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert made.section.tolist() == [1] * 8 + [2] * 8 + [-1] * 8
    assert made.dag.pending()[:8].tolist() == [0] * 4 + [1] * 4


def test_barriers_keep_their_gate() -> None:
    made = plan(program_of("<application><graph>par (i:=1;100) do compute a(i); enddo par (i:=1;100) do compute a(i); "
                           "enddo</graph></application>", abstract("a", "in integer i")))
    assert made.dag.nodes == 201 and len(made.dag.src) == 200


def test_plan_numbers_the_instances_of_graph_components() -> None:
    graph = "par (i:=1;2) do compute make(src[i], i); compute pair(out[i], i, src); enddo"
    made = plan(program_of(f"<application><graph>{graph}</graph></application>", PAIR))
    assert made.unit.tolist() == [-1, -1, 0, 1, 0, 1, 0, 1]
