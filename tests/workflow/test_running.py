"""Properties of every application that runs: the order of tasks, the data they read, the reach of a failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.core.conftest import Bench
from tests.workflow.library import abstract
from windfall.client.columns import parameters
from windfall.core.decide.requests.intake import submission
from windfall.errors import BadInput
from windfall.model.checks.bag import validate
from windfall.model.spec import Bag
from windfall.model.templates.render import Renderer, source_count
from windfall.workflow.build.builder import Built, build
from windfall.workflow.components.files import loads
from windfall.workflow.graphs import gates
from windfall.workflow.graphs.dag import Dag
from windfall.workflow.graphs.gates import GATES, without_gates
from windfall.workflow.yvetteml.program import ComponentLibrary, compile_application

PARTS = "".join(
    abstract(name, *params) + f'<component type="impl" name="{name}I" abstract="{name}"><impl lang="SHELL">'
    "<source>true</source></impl></component>"
    for name, params in {
        "Make": ("out integer x", "in integer n"), "Copy": ("out integer x", "in integer y", "in integer n"),
        "Add": ("inout integer x", "in integer n"), "Sum": ("out integer x", "in integer* all", "in integer n"),
        "Split": ("out integer* all", "in integer n"), "Grow": ("inout integer* all", "in integer n"),
    }.items()
)  # fmt: skip


def shelf() -> ComponentLibrary:
    return ComponentLibrary(
        {each.name: each for each in loads(f"<yml-query>{PARTS}</yml-query>".encode(), "p.xml").components}
    )


def built(text: str) -> Built:
    application = loads(text.encode(), "app").application
    assert application
    return build(compile_application(application, shelf()), shelf())


def named(bag: Bag) -> list[tuple[str, str]]:
    """Component and number of each task."""
    found = []
    for target in bag.targets:
        renderer = Renderer(target)
        found += [(target.name, str(renderer.params(at).get("n"))) for at in range(source_count(target.source))]
    return found


# --- order -----------------------------------------------------------------------------------------------------------


edges_ = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=60)


def reach(nodes: int, pairs: np.ndarray) -> np.ndarray:
    found = np.eye(nodes, dtype=bool)
    for before, after in sorted(map(tuple, pairs.tolist()), reverse=True):
        found[before] |= found[after]
    return found


@given(edges_, st.integers(1, 15), st.booleans())
def test_removing_gates_keeps_the_order_of_tasks(pairs: list[tuple[int, int]], tasks: int, few: bool) -> None:
    """Nodes in an order of their own, so that gates stand anywhere; some gates stay where few edges are wanted."""
    shuffled = np.random.default_rng(tasks).permutation(15)
    along = np.array([(a, b) for a, b in pairs if a < b], np.int64).reshape(-1, 2)
    before = reach(15, along)[np.ix_(np.argsort(shuffled), np.argsort(shuffled))]
    edges = shuffled[along]
    old = gates.FEW, gates.TIMES
    gates.FEW, gates.TIMES = (old if few else (1, 0))
    try:
        made, kept = without_gates(Dag(15, edges[:, 0], edges[:, 1], np.arange(15) < tasks), tasks)
    finally:
        gates.FEW, gates.TIMES = old
    after = np.eye(tasks + kept, dtype=bool)
    for _ in range(tasks + kept):
        for a, b in made.tolist():
            after[a] |= after[b]
    assert np.array_equal(before[:tasks, :tasks], after[:tasks, :tasks])


def test_many_sections_of_middling_width_become_few_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate of 30 to 30 becomes 900 edges: not every one of a thousand."""
    monkeypatch.setattr(gates, "MOST", 10_000)
    bag = built("seq (i := 1; 1000) do par (j := 1; 30) do compute Make(x[i][j], i); enddo enddo").bag
    assert bag.targets[-1].name == GATES
    assert len(bag.edges) < 10_000 + 60 * 1000


# --- data ------------------------------------------------------------------------------------------------------------


steps = st.lists(st.one_of(
    st.tuples(st.just("Make"), st.integers(1, 4), st.just(0)), st.tuples(st.just("Add"), st.integers(1, 4), st.just(0)),
    st.tuples(st.just("Copy"), st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.sampled_from(["Sum", "Split", "Grow"]), st.just(9), st.just(0)),
), max_size=25)  # fmt: skip


@given(steps)
@settings(max_examples=60, deadline=None)
def test_each_task_reads_what_was_written_last(chosen: list[tuple[str, int, int]]) -> None:
    """Held against whoever walks through the program with a table of who wrote what."""
    lines, expected = [], set()
    whole: tuple[str, str] | None = None  # who wrote all of it last
    wrote: dict[int, tuple[str, str]] = {}  # who wrote what since
    for number, (kind, one, other) in enumerate(chosen):
        me = (kind, str(number))
        if (kind == "Copy" and not (whole or other in wrote)) or (kind == "Sum" and not (whole or wrote)):
            continue
        if kind in ("Sum", "Grow"):
            expected |= {(writer, me, f"in/all/{index}") for index, writer in wrote.items()}
            expected |= {(whole, me, "in/all.tar")} if whole else set()
        elif kind == "Copy":
            expected.add((wrote[other], me, "in/y") if other in wrote else (whole, me, "in/y.tar"))
        elif kind == "Add" and (whole or one in wrote):
            expected.add((wrote[one], me, "in/x") if one in wrote else (whole, me, "in/x.tar"))
        if kind in ("Split", "Grow"):
            whole, wrote = me, {}
            lines.append(f"compute {kind}(x, {number});")
        elif kind == "Sum":
            lines.append(f"compute Sum(s[{number}], x, {number});")
        else:
            wrote[one] = me
            lines.append(f"compute {kind}(x[{one}]{f', x[{other}]' if kind == 'Copy' else ''}, {number});")
    if not lines:
        return
    every = built("\n".join(lines))
    bag = every.bag
    validate(bag)
    flows, names = bag.flows, named(bag)
    found = set() if flows is None else {(names[a], names[b], flows.names[place]) for a, b, place in
                                         zip(flows.before, flows.after, flows.place, strict=True)}
    assert found == expected
    standing = {(names[each.task], each.name) for each in every.results if each.name.startswith("x")}
    read = {writer for writer, _, _ in expected}
    assert standing == ({(writer, f"x[{index}]") for index, writer in wrote.items() if writer not in read}
                        | ({(whole, "x")} if whole and whole not in read else set()))


# --- whole applications ----------------------------------------------------------------------------------------------


Shape = int | tuple[str, list]  # a task, or ("par" | "seq", parts)
shapes = st.recursive(st.just(0), lambda inner: st.tuples(
    st.sampled_from(["par", "seq"]), st.lists(inner, min_size=1, max_size=4)), max_leaves=14)  # fmt: skip


def written(shape: Shape, names: list[int], order: set[tuple[int, int]]) -> tuple[str, list[int]]:
    """Return the shape as a program; add to `order` the pairs of tasks that the language puts in order."""
    if isinstance(shape, int):
        names.append(len(names))
        return f"compute Make(x[{names[-1]}], {names[-1]});", [names[-1]]
    parts = [written(part, names, order) for part in shape[1]]
    if shape[0] == "seq":
        order |= {(a, b) for at, (_, late) in enumerate(parts) for _, early in parts[:at] for a in early for b in late}
        return "".join(text for text, _ in parts), [task for _, tasks in parts for task in tasks]
    return "par " + " // ".join(text for text, _ in parts) + " endpar; ", [task for _, tasks in parts for task in tasks]


@given(shapes, st.data())
@settings(max_examples=60, deadline=None)
def test_tasks_start_in_order_and_failure_cancels_only_dependents(shape: Shape, data: st.DataObject) -> None:
    order: set[tuple[int, int]] = set()
    names: list[int] = []
    text, _ = written(shape, names, order)
    bag = built(text).bag
    assert all(target.name != GATES for target in bag.targets)
    failing = data.draw(st.sets(st.sampled_from(names), max_size=3))
    bench = Bench()
    number = int(bench.do(submission(0, "ann", bag)).value)
    began = play(bench, failing, data)
    spoilt = {b for a, b in order if a in failing}
    assert set(began) == set(names) - spoilt
    assert all(a in began[b] for a, b in order if b in began)
    assert bench.core.state.bags[number].ended


def play(bench: Bench, failing: set[int], data: st.DataObject) -> dict[int, set[int]]:
    """Run four tasks at a time, which end in any order; return for each started task those that had succeeded."""
    pilot = bench.pilot(cores=4)
    began: dict[int, set[int]] = {}
    held: list[tuple[int, int]] = []
    good: set[int] = set()
    while True:
        work = bench.take(pilot, want=4 - len(held), held=[attempt for attempt, _ in held]) if len(held) < 4 else []
        held += work
        for _, task in work:
            began.setdefault(task, set(good))
        if not held:
            return began
        attempt, task = held.pop(data.draw(st.integers(0, len(held) - 1)))
        if task in failing:
            bench.report(pilot, attempt, "failed", "exit")
        else:
            good.add(task)
            bench.report(pilot, attempt, files=[("out/x", "0" * 64, 1, 0o644)])


@pytest.mark.parametrize("name", ["x[a]", "x[1", "x[]", "x[1]y", "x[\uff11]", "x[../y]", "", "x [1]", "x[1][-]"])
def test_wrong_name_of_data_is_refused(name: str) -> None:
    text = '<application><params><param name="x" type="integer" collection="yes"/></params><graph>' + (
        "compute Sum(s, x, 1);</graph></application>")
    application = loads(text.encode(), "app").application
    assert application
    program = compile_application(application, shelf())
    with pytest.raises(BadInput, match="is not the name of data"):
        build(program, shelf(), {name: Path(__file__)})
    assert build(program, shelf(), {"x[-1]": Path(__file__)}).bag.flows


@pytest.mark.parametrize(("lang", "name"), [
    ("CXX", "class"), ("CXX", "int"), ("C", "int"), ("PYTHON", "lambda"), ("C", "windfall_count"),
])  # fmt: skip
def test_keyword_as_a_parameter_name_is_refused(lang: str, name: str) -> None:
    made = '<component type="impl" name="AI" abstract="A"><impl lang="LANG"><source/></impl></component>'
    parts = abstract("A", f"in integer {name}") + made + "<application><graph>compute A(1);</graph></application>"
    for other in (lang, "SHELL"):
        file = loads(f"<yml-query>{parts.replace('LANG', other)}</yml-query>".encode(), "a.query")
        found = ComponentLibrary({each.name: each for each in file.components})
        assert file.application
        program = compile_application(file.application, found)
        if other == "SHELL":
            assert build(program, found).bag.targets
            return
        with pytest.raises(BadInput, match=f"'{name}' cannot be a variable in {other}"):
            build(program, found)


def test_results_have_columns_for_values_alone() -> None:
    """Data is a file, not a value, and a component that nothing differs in is only counted."""
    text = "par (i := 1; 3) do compute Make(x[i], i); enddo seq (i := 1; 2) do compute Sum(s[i], x, 4); enddo"
    assert parameters(built(text).bag) == ["n"]
    assert parameters(built("compute Make(x[1], 7);").bag) == ["n"]
