"""All instances at once give what one instance after the other gives; and the counts that others have published."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from tests.workflow import naive, papers
from tests.workflow.library import MATRICES, SORT, abstract, library, program_of
from tests.workflow.test_parse import blocks
from windfall.errors import BadInput
from windfall.workflow.components.files import Application, Component, Parameter, loads
from windfall.workflow.graphs.dag import reduction
from windfall.workflow.graphs.report import requirements
from windfall.workflow.text import plain
from windfall.workflow.yvetteml import ast, effort, unroll
from windfall.workflow.yvetteml.printer import show
from windfall.workflow.yvetteml.program import ComponentLibrary, Program, compile_application

# --- random programs -------------------------------------------------------------------------------------------------

COUNTS = ComponentLibrary(
    {f"T{n}": Component(f"T{n}", "abstract", tuple(Parameter(f"p{k}", "integer") for k in range(n))) for n in range(9)}
)


class Maker:
    """Draws a program whose tasks all differ: each is given its own number and every iterator around it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.calls = 0

    def pick(self, *choices: object) -> object:
        return self.draw(st.sampled_from(choices))

    def small(self, known: tuple[str, ...]) -> ast.Value:
        names = [*known, "x", "y"] if self.draw(st.booleans()) else list(known)
        value: ast.Value = ast.Integer(self.draw(st.integers(0, 3)))
        if names and self.draw(st.booleans()):
            value = ast.Name(self.draw(st.sampled_from(names)))
        if self.draw(st.integers(0, 3)) == 0:
            op = self.draw(st.sampled_from(["+", "-", "*", "/", "%"]))
            value = ast.Chain(value, ((op, ast.Integer(self.draw(st.integers(0, 3)))),))
        return value

    def condition(self, known: tuple[str, ...]) -> ast.Value:
        op = self.draw(st.sampled_from(["eq", "neq", "lt", "le", "gt", "ge"]))
        compared = ast.Compare(op, self.small(known), self.small(known))
        if self.draw(st.integers(0, 4)) == 0:
            word = self.draw(st.sampled_from(["and", "or"]))
            other = ast.Unary("not", ast.Compare("eq", self.small(known), self.small(known)))
            return ast.Chain(compared, ((word, other),))
        return compared

    def event(self, known: tuple[str, ...]) -> ast.Name:
        return ast.Name(self.draw(st.sampled_from(["e", "f"])), (self.small(known),))

    def compute(self, known: tuple[str, ...]) -> ast.Compute:
        self.calls += 1
        arguments = (ast.Integer(self.calls), *map(ast.Name, known))
        if self.draw(st.integers(0, 3)) == 0:
            arguments = (*arguments, self.small(known))
        return ast.Compute(f"T{len(arguments)}", arguments)

    def block(self, known: tuple[str, ...], deep: int) -> ast.Block:
        return tuple(self.statement(known, deep) for _ in range(self.draw(st.integers(0, 3))))

    def statement(self, known: tuple[str, ...], deep: int) -> ast.Statement:
        kinds = ["compute"] * 4 + ["assign", "assign", "wait", "notify", "notify"]
        kind = self.draw(st.sampled_from(kinds + ["par", "loop", "loop", "if"] * 2 * (deep < 3)))
        if kind == "compute":
            return self.compute(known)
        if kind == "assign":
            return ast.Assign(ast.Name(self.draw(st.sampled_from(["x", "y"]))), self.small(known))
        if kind == "wait":
            events = [self.event(known) for _ in range(self.draw(st.integers(1, 2)))]
            return ast.Wait(events[0] if len(events) == 1 else ast.Chain(events[0], (("and", events[1]),)))
        if kind == "notify":
            return ast.Notify(tuple(self.event(known) for _ in range(self.draw(st.integers(1, 2)))))
        if kind == "par":
            return ast.Par(tuple(self.block(known, deep + 1) for _ in range(self.draw(st.integers(1, 3)))))
        if kind == "if":
            return ast.If(self.condition(known), self.block(known, deep + 1), self.block(known, deep + 1))
        return self.loop(known, deep)

    def loop(self, known: tuple[str, ...], deep: int) -> ast.Loop:
        iterators = []
        for number in range(self.draw(st.integers(1, 2))):
            name = f"i{deep}{number}"
            iterators.append(ast.Iterator(name, self.small(known), self.small(known)))
            known = (*known, name)
        excludes = ((self.condition(known),),) if self.draw(st.integers(0, 3)) == 0 else ()
        return ast.Loop(self.draw(st.booleans()), tuple(iterators), excludes, self.block(known, deep + 1))


@st.composite
def programs(draw: st.DrawFn) -> ast.Block:
    maker = Maker(draw)
    start = (ast.Assign(ast.Name("x"), ast.Integer(1)), ast.Assign(ast.Name("y"), ast.Integer(2)))
    return (*(start if draw(st.integers(0, 4)) else ()), *maker.block((), 0), *maker.block((), 0))


def order_of(program: Program) -> set[tuple[str, str]]:
    names = {int(node): str(task) for node, task in zip(program.nodes, program.stream(), strict=True)}
    return {(names[a], names[b]) for a, b in reduction(program.dag, program.shape, pairs=True)[1]}


@settings(max_examples=300, deadline=None)
@given(programs())
def test_program_equals_a_walk_instance_by_instance(block: ast.Block) -> None:
    source = plain("random", show(block))
    slow, order = naive.Naive(), None
    try:
        slow.run(block)
        order = slow.order()
    except naive.Wrong:
        pass
    try:
        program = compile_application(Application("random", (), source, block), COUNTS)
    except BadInput:
        assert order is None
        return
    assert order is not None
    assert sorted(map(str, program.stream())) == sorted(order)
    assert order_of(program) == naive.direct(order)
    levels = naive.depth(order)
    assert {str(task): int(level) for task, level in zip(program.stream(), program.levels, strict=True)} == levels
    found = requirements(program)
    assert found["tasks"] == len(order) and found["edges"] == len(naive.direct(order))
    assert found["depth"] == found["critical_path"]["tasks"] == max(levels.values(), default=-1) + 1
    assert found["width"] == max((list(levels.values()).count(each) for each in levels.values()), default=0)


# --- published counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("div", "loads_", "products"), [(2, 8, 8), (3, 18, 27), (8, 128, 512)])
def test_figure_2_has_its_counts_for_several_divisions(div: int, loads_: int, products: int) -> None:
    text = papers.without_credentials(papers.FIGURE_2).replace("div       := 2;", f"div       := {div};")
    application = loads(text.encode(), "figure2.query").application
    assert application
    found = requirements(compile_application(application, library(MATRICES)))
    assert [(each["component"], each["tasks"]) for each in found["components"]] == [
        ("MatrixLoad", loads_), ("MatrixProduct", products), ("MatrixComp", products)]
    assert found["tasks"] == loads_ + 2 * products
    assert found["width"] == products and found["depth"] == 3 + products


def test_figure_2_has_its_edges_chain_and_sections() -> None:
    program = program_of(papers.without_credentials(papers.FIGURE_2), MATRICES)
    found = requirements(program)
    # 4 pairs of loads; 6 products wait for two loads and 2 for one; 8 products before the first of a chain of 8
    assert found["edges"] == 4 + 14 + 8 + 7
    assert found["critical_path"]["components"] == [
        {"component": "MatrixLoad", "tasks": 2}, {"component": "MatrixProduct", "tasks": 1},
        {"component": "MatrixComp", "tasks": 8}]
    sections = [(each["line"], each["kind"], each["parent"], each["branches"], each["tasks"])
                for each in found["sections"]]
    assert sections == [(11, "branches", None, 2, 16), (12, "loop", 0, 4, 8), (21, "loop", 0, 8, 8)]
    assert str(program.task(23)) == "MatrixComp(final, 2, 2, 4, 2, result[2][2][2])"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_blocked_matrix_product_has_its_published_counts(n: int) -> None:
    graph = f"""
        par (i:=1;{n})(j:=1;{n}) do
          par compute generate(A[i][j]); notify(gen[i][j]); // compute zero(C[i][j]); notify(clear[i][j]); endpar
        enddo
        par (i:=1;{n})(j:=1;{n}) do
          seq (k:=1;{n}) do compute multiply(C[i][j], A[i][k], A[k][j]); enddo
          compute store(C[i][j]);
        enddo"""
    parts = """<component type="abstract" name="generate"><param name="b" type="Block" mode="out"/></component>
        <component type="abstract" name="zero"><param name="b" type="Block" mode="out"/></component>
        <component type="abstract" name="store"><param name="b" type="Block" mode="in"/></component>
        <component type="abstract" name="multiply"><param name="c" type="Block" mode="inout"/>
          <param name="a" type="Block" mode="in"/><param name="b" type="Block" mode="in"/></component>"""
    found = requirements(program_of(f"<application><graph>{graph}</graph></application>", parts))
    assert found["tasks"] == 3 * n * n + n**3
    assert found["depth"] == n + 2


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_distributed_sort_has_its_published_counts(n: int) -> None:
    graph = f"""
        n := {n};
        par (i := 1; n) do
          compute DSortGenerator(block[i][0], 1000, 1.0);
          compute DSortSort(block[i][1], block[i][0]);
          notify(ready[i][1]);
        enddo
        par (i := 1; n)(j := i + 1; n) do
          compute DSortMerge(part[i][j], block[i][1], block[j][1]);
        enddo"""
    found = requirements(program_of(f"<application><graph>{graph}</graph></application>", SORT))
    assert found["tasks"] == 2 * n + n * (n - 1) // 2
    assert found["depth"] == 3


# --- variables, graph components, bounds -----------------------------------------------------------------------------


def tasks(graph: str, parts: str = "") -> list[str]:
    ones = "".join(abstract(f"t{n}", *(f"in integer p{k}" for k in range(n))) for n in (1, 2, 3))
    program = program_of(f"<application><graph>{graph}</graph></application>", ones + parts)
    return [str(task) for task in program.stream()]


def test_a_variable_is_carried_along_a_seq() -> None:
    assert tasks("x := 1; seq (i:=1;4) do compute t1(x); x := x * 2; enddo compute t1(x);") == [
        "t1(1)", "t1(2)", "t1(4)", "t1(8)", "t1(16)"]
    assert tasks("a := 0; b := 1; seq (i:=1;5) do c := a + b; a := b; b := c; enddo compute t1(b);") == ["t1(8)"]


def test_variable_belongs_to_its_iteration() -> None:
    assert tasks("par (i:=1;3) do k := i * i; compute t2(i, k); enddo") == ["t2(1, 1)", "t2(2, 4)", "t2(3, 9)"]
    assert tasks("seq (i:=1;3) do if i eq 2 then k := 7; else k := i; endif compute t1(k); enddo") == [
        "t1(1)", "t1(7)", "t1(3)"]


def test_iterators_may_depend_on_those_before_and_exclude() -> None:
    assert tasks("par (i:=1;3)(j:=i;3) exclude (i eq j) do compute t2(i, j); enddo") == [
        "t2(1, 2)", "t2(1, 3)", "t2(2, 3)"]
    assert tasks("par (i:=1;2)(j:=1;2) exclude (1, 2) exclude (2, 1) do compute t2(i, j); enddo") == [
        "t2(1, 1)", "t2(2, 2)"]
    assert tasks("par (i:=1;4) exclude (2) do compute t1(i); enddo") == ["t1(1)", "t1(3)", "t1(4)"]
    assert tasks("par (i:=3;1) do compute t1(i); enddo") == []


def test_conditions_are_decided_from_left_to_right() -> None:
    assert tasks("par (i:=0;6) do if i neq 0 and 6 % i eq 0 then compute t1(i); endif enddo") == [
        "t1(1)", "t1(2)", "t1(3)", "t1(6)"]
    assert tasks("par (i:=0;3) do if i eq 0 or 6 / i gt 2 then compute t1(i); endif enddo") == [
        "t1(0)", "t1(1)", "t1(2)"]
    assert tasks("if 1 eq 2 and nothing eq 1 / 0 then else compute t1(1); endif") == ["t1(1)"]
    assert tasks("if 1 eq 1 or 1 / 0 eq 1 and 2 eq 3 then compute t1(1); endif") == ["t1(1)"]
    with pytest.raises(BadInput, match="a condition is asked for here"):
        tasks("if 1 eq 2 and 7 then endif")
    with pytest.raises(BadInput, match="division by zero where i = 2"):
        tasks("par (i:=0;3) do if i gt 0 and 1 / (i - 2) eq 1 then endif enddo")


def test_division_rounds_towards_zero() -> None:
    assert tasks("seq (i:=-3;3) do compute t3(i, i / 2, i % 2); enddo") == [
        f"t3({i}, {int(i / 2)}, {i - 2 * int(i / 2)})" for i in range(-3, 4)]
    assert tasks("compute t2(-7 / 2, -7 % -2);") == ["t2(-3, -1)"]


PAIR = """<component type="graph" name="pair"><params><param name="r" type="N" mode="out"/>
    <param name="n" type="integer"/><param name="in" type="N" collection="yes"/></params>
    <graph>compute make(half[1], n); compute make(half[2], n + 1); par // wait(go); compute join(r, half[1], in[n]);
    // notify(go); endpar</graph></component>
""" + abstract("make", "out N o", "in integer n") + abstract("join", "out N o", "in N a", "in N b")


def test_a_graph_component_is_expanded_in_its_place() -> None:
    graph = "par (i:=1;2) do compute make(src[i], i); compute pair(out[i], i, src); enddo"
    program = program_of(f"<application><graph>{graph}</graph></application>", PAIR)
    assert [str(task) for task in program.stream()] == [
        "make(src[1], 1)", "make(src[2], 2)", "make(1.half[0][1], 1)", "make(1.half[1][1], 2)",
        "make(1.half[0][2], 2)", "make(1.half[1][2], 3)", "join(out[1], 1.half[0][1], src[1])",
        "join(out[2], 1.half[1][1], src[2])"]
    found = requirements(program)
    assert found["units"] == [{"component": "pair", "instances": 2}]
    assert found["depth"] == 4 and found["edges"] == 6


def test_an_integer_for_a_real_parameter_is_real() -> None:
    parts = abstract("r", "in real x") + """<component type="graph" name="g"><params><param name="x" type="real"/>
        </params><graph>if x lt 2.5 then compute r(x); endif</graph></component>"""
    program = program_of("<application><graph>par (i := 1; 4) do compute g(i); enddo compute r(7);</graph>"
                         "</application>", parts)
    assert [str(task) for task in program.stream()] == ["r(1.0)", "r(2.0)", "r(7.0)"]


def test_event_happens_when_all_its_notifiers_have_notified() -> None:
    program = program_of("<application><graph>par par (i:=1;3) do compute a(x[i]); notify(e); enddo // wait(e); "
                         "compute a(y); endpar</graph></application>",
                         '<component type="abstract" name="a"><param name="o" type="N" mode="out"/></component>')
    assert requirements(program)["edges"] == 3


def test_requirements_sum_up_bytes_per_component() -> None:
    parts = """<component type="abstract" name="a"><param name="o" type="M" mode="out" size="1kB"/>
        <param name="n" type="integer"/><param name="s" type="string"/></component>
        <component type="abstract" name="b"><param name="m" type="M" mode="inout"/></component>"""
    graph = 's := "é"; par (i:=1;3) do if i gt 1 then s := "abcd"; endif compute a(x[i], i, s); compute b(x[i]); enddo'
    found = requirements(program_of(f"<application><graph>{graph}</graph></application>", parts))
    assert [(each["bytes_in"], each["bytes_out"]) for each in found["components"]] == [(3 * 8 + 2 + 4 + 4, 3000),
                                                                                      (None, None)]


def test_graph_that_is_too_large_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="more than 10,000,000 iterations"):
        tasks("par (i:=1;1000000000)(j:=1;1000000000) do compute t1(i); enddo")
    with pytest.raises(BadInput, match="more than 10,000,000 iterations"):
        tasks("par (i:=1;1000) do par (j:=1;1000) do par (k:=1;1000) do enddo enddo enddo")
    monkeypatch.setattr(unroll, "MAX_WORK", 50)
    with pytest.raises(BadInput, match="the loops go through more than 50 iterations"):
        tasks("par (i:=1;30) do enddo par (i:=1;30) do enddo")
    monkeypatch.undo()
    monkeypatch.setattr(unroll, "MAX_TASKS", 10)
    with pytest.raises(BadInput, match="more than 10 tasks"):
        tasks("par (i:=1;11) do compute t1(i); enddo")
    monkeypatch.setattr(unroll, "MAX_STEPS", 10)
    with pytest.raises(BadInput, match="more than 10 iterations of loops that carry"):
        tasks("x := 0; seq (i:=1;11) do x := x + i; enddo")


@pytest.mark.parametrize("graph", [
    "par (i:=1;1000) do " + "x := i * 3; " * 100 + "enddo", "par (i:=1;1000) do x := i" + " + i" * 200 + "; enddo",
    "x := 0; seq (i:=1;40) do " + "x := x + 1; " * 40 + "enddo",
    "seq (i:=1;1000) do wait(e[i*i+i]); notify(e[i*i+i+1]); enddo " * 20,
    "compute twice0(); " * 10,
], ids=["statements", "terms", "steps", "events", "graphs"])  # fmt: skip
def test_effort_is_bounded(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MOST", 200_000)
    twice = "".join(f'<component type="graph" name="twice{n}"><graph>{f"compute twice{n + 1}(); " * 2}</graph>'
                    "</component>" for n in range(12))
    twice += '<component type="graph" name="twice12"><graph/></component>'
    with pytest.raises(BadInput, match="too large to be unrolled"):
        tasks(graph, twice)


@settings(max_examples=60, deadline=None)
@given(blocks)
def test_any_graph_compiles_or_is_a_mistake(block: ast.Block) -> None:
    parts = ComponentLibrary(
        {name: Component(name, "abstract", (Parameter("p", "integer"),)) for name in ("A", "a", "x", "_")}
    )
    try:
        program = compile_application(Application("any", (), plain("any", show(block)), block), parts)
    except BadInput as error:
        assert str(error)
    else:
        assert requirements(program)["tasks"] == len(list(program.stream()))


def test_tasks_are_worked_out_in_slices() -> None:
    """The first task can be read before the last is worked out."""
    program = program_of("<application><graph>par (i:=1;100000) do compute t1(i); enddo</graph></application>",
                         '<component type="abstract" name="t1"><param name="p" type="integer"/></component>')
    stream = program.stream()
    assert [str(next(stream)) for _ in range(3)] == ["t1(1)", "t1(2)", "t1(3)"]
    assert str(program.task(99_999)) == "t1(100000)"
    assert program.dag.pending().max() == 100_000 and len(program.nodes) == 100_000
