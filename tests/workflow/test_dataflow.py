"""Programs with data, events, loops and graph components, held against one that walks them instance by instance.

Where all uses of a thing are in order, whoever reads it gets what was written last.  Where they are not, he gets
something that was written by what does not come after him; and whatever is read is waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from tests.workflow.naive import Naive, Wrong
from windfall.errors import BadInput
from windfall.model.checks.bag import validate
from windfall.workflow.build.builder import build
from windfall.workflow.components.files import Application, Component, Implementation, Parameter
from windfall.workflow.graphs.gates import without_gates
from windfall.workflow.graphs.plan import plan
from windfall.workflow.text import plain
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.printer import show
from windfall.workflow.yvetteml.program import ComponentLibrary, Program, compile_application

N = Parameter("n", "integer")
OUT, INOUT, IN = Parameter("x", "T", "out"), Parameter("x", "T", "inout"), Parameter("y", "T")
ALL = Parameter("all", "T", "in", collection=True)
PARTS = {
    "Make": (OUT, N), "Add": (INOUT, N), "Copy": (OUT, IN, N), "Sum": (OUT, ALL, N),
}  # fmt: skip
ABSTRACT = {name: Component(name, "abstract", params) for name, params in PARTS.items()}
MADE = {f"{name}I": Component(f"{name}I", "impl", abstract=name, implementation=Implementation("SHELL", "true"))
        for name in PARTS}
GRAPH_PARAMS = (Parameter("o", "T", "out"), Parameter("s", "T", "in", collection=True), Parameter("k", "integer"))


class Walk(Naive):
    """Also knows what each task reads and writes; graph components are walked where they are called."""

    def __init__(self, shelf: ComponentLibrary) -> None:
        super().__init__()
        self.shelf = shelf
        self.scopes: list[tuple[int, dict[str, tuple[Any, ...]]]] = [(0, {})]
        self.instances = 0
        self.uses: list[tuple[int, str, str, tuple[Any, ...]]] = []  # node, mode, parameter, thing

    def thing(self, node: ast.Name, env: dict[str, Any]) -> tuple[Any, ...]:
        indices = tuple(self.value(each, env) for each in node.indices)
        scope, refs = self.scopes[-1]
        return (*refs[node.name], *indices) if node.name in refs else (scope, node.name, *indices)

    def event(self, node: ast.Name, env: dict[str, Any]) -> tuple[Any, ...]:
        return (self.scopes[-1][0], *super().event(node, env))

    def statement(self, node: ast.Statement, env: dict[str, Any], before: set[int]) -> set[int]:
        if not isinstance(node, ast.Compute):
            return super().statement(node, env, before)
        component = self.shelf.find(node.component)
        assert component is not None
        if component.kind == "graph":
            return self.graph(component, node, env, before)
        number = self.node(before)
        for parameter, argument in zip(component.params, node.arguments, strict=True):
            if parameter is N:
                self.tasks[number] = f"{component.name} {self.value(argument, env)}"
            else:
                assert isinstance(argument, ast.Name)
                mode = "all" if parameter.collection else parameter.mode
                self.uses.append((number, mode, parameter.name, self.thing(argument, env)))
        return {number}

    def graph(self, component: Component, node: ast.Compute, env: dict[str, Any], before: set[int]) -> set[int]:
        out, some, number = node.arguments
        assert isinstance(out, ast.Name) and isinstance(some, ast.Name)
        self.instances += 1
        refs = {"o": self.thing(out, env), "s": self.thing(some, env)}
        self.scopes.append((self.instances, refs))
        try:
            return self.block(component.body, {"k": self.value(number, env)}, before)
        finally:
            self.scopes.pop()


class Maker:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.number = draw, 0

    def integer(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def index(self, known: tuple[str, ...]) -> ast.Value:
        value: ast.Value = ast.Integer(self.integer(0, 2))
        if known and self.integer(0, 2):
            value = ast.Name(self.draw(st.sampled_from(known)))
            if not self.integer(0, 2):
                value = ast.Chain(value, ((self.draw(st.sampled_from("+-")), ast.Integer(1)),))
        return value

    def item(self, known: tuple[str, ...]) -> ast.Name:
        return ast.Name(self.draw(st.sampled_from("xz")), (self.index(known),))

    def own(self, known: tuple[str, ...]) -> ast.Value:
        """Return a number that no other statement has, and that differs between iterations."""
        self.number += 1
        own: ast.Value = ast.Integer(1000 * self.number)
        for each, times in zip(known, (1, 10), strict=False):
            own = ast.Chain(own, (("+", ast.Chain(ast.Name(each), (("*", ast.Integer(times)),))),))
        return own

    def task(self, name: str, known: tuple[str, ...]) -> ast.Compute:
        second = {"Copy": (self.item(known),), "Sum": (ast.Name(self.draw(st.sampled_from("xz"))),)}.get(name, ())
        return ast.Compute(name, (self.item(known), *second, self.own(known)))

    def statement(self, known: tuple[str, ...], deep: int, graphs: list[str]) -> ast.Statement:
        kinds = ["Make", "Make", "Add", "Copy", "Copy", "Sum", "wait", "notify", *graphs]
        kind = self.draw(st.sampled_from(kinds + ["par", "loop", "if"] * (3 * (deep < 2))))
        if kind in PARTS:
            return self.task(kind, known)
        if kind in graphs:
            return ast.Compute(kind, (self.item(known), ast.Name(self.draw(st.sampled_from("xz"))), self.own(known)))
        if kind == "wait":
            return ast.Wait(ast.Name("e", (self.index(known),)))
        if kind == "notify":
            return ast.Notify((ast.Name("e", (self.index(known),)),))
        if kind == "par":
            return ast.Par(tuple(self.block(known, deep + 1, graphs) for _ in range(self.integer(1, 3))))
        if kind == "if":
            compared = ast.Compare(self.draw(st.sampled_from(["eq", "lt"])), self.index(known), self.index(known))
            return ast.If(compared, self.block(known, deep + 1, graphs), self.block(known, deep + 1, graphs))
        name = "ij"[len([each for each in known if each in "ij"])]
        inner = ast.Iterator(name, ast.Integer(self.integer(0, 1)), ast.Integer(self.integer(0, 2)))
        return ast.Loop(self.draw(st.booleans()), (inner,), (), self.block((*known, name), deep + 1, graphs))

    def block(self, known: tuple[str, ...], deep: int, graphs: list[str]) -> ast.Block:
        return tuple(self.statement(known, deep, graphs) for _ in range(self.integer(0, 3)))

    def graph(self) -> ast.Block:
        """Return the body of a graph component, which uses its parameters, data and events."""
        o, k, one = ast.Name("o"), ast.Name("k"), ast.Integer(1)
        own = [("Make", (ast.Name("x", (k,)),)), ("Copy", (o, ast.Name("x", (k,)))), ("Sum", (o, ast.Name("s"))),
               ("Copy", (ast.Name("z", (one,)), ast.Name("s", (one,)))), ("Copy", (o, ast.Name("z", (one,)))),
               ("Add", (o,))]
        found: list[ast.Statement] = []
        for number in self.draw(st.lists(st.integers(0, len(own) + 1), max_size=5)):
            if number >= len(own):
                found.append([ast.Notify((ast.Name("e", (one,)),)), ast.Wait(ast.Name("e", (one,)))][number - len(own)])
            else:
                name, arguments = own[number]
                which = ast.Chain(k, (("+", ast.Integer(1_000_000 * (len(found) + 1))),))
                found.append(ast.Compute(name, (*arguments, which)))
        half = len(found) // 2
        return (ast.Par((tuple(found[:half]), tuple(found[half:]))),) if self.draw(st.booleans()) else tuple(found)

    def start(self) -> ast.Block:
        """Most things are there, and some events have happened."""
        number = ast.Chain(ast.Integer(500), (("+", ast.Name("i")),))
        loop = [ast.Compute("Make", (ast.Name("x", (ast.Name("i"),)), number)),
                ast.Compute("Make", (ast.Name("z", (ast.Name("i"),)), ast.Chain(number, (("+", ast.Integer(100)),)))),
                *([ast.Notify((ast.Name("e", (ast.Name("i"),)),))] if self.draw(st.booleans()) else [])]
        around = ast.Iterator("i", ast.Unary("-", ast.Integer(1)), ast.Integer(self.integer(1, 3)))
        return (ast.Loop(True, (around,), (), tuple(loop)),)


@st.composite
def programs(draw: st.DrawFn) -> tuple[ast.Block, ast.Block]:
    maker = Maker(draw)
    start = maker.start() if draw(st.integers(0, 5)) else ()
    return (*start, *maker.block((), 0, ["G"]), *maker.block((), 0, ["G"])), maker.graph()


def lasts(walk: Walk, before: dict[int, set[int]]) -> tuple[dict[tuple[int, str], set[int]], set[tuple[int, str]]]:
    """Return the writers of each read, and the reads whose writer the program leaves open."""
    writes: dict[tuple[Any, ...], list[int]] = {}
    for node, mode, _, thing in walk.uses:
        if mode in ("out", "inout"):
            writes.setdefault(thing, []).append(node)
    found: dict[tuple[int, str], set[int]] = {}
    unsure: set[tuple[int, str]] = set()
    for node, mode, parameter, thing in walk.uses:
        if mode == "out":
            continue
        data_histories = [each for each in writes if each[: len(thing)] == thing] if mode == "all" else [thing]
        key, found[node, parameter] = (node, parameter), set()
        for each in data_histories:
            others = [writer for writer in writes.get(each, []) if writer != node]
            every = [*others, node]
            if any(a not in before[b] and b not in before[a] for a in every for b in every if a != b):
                unsure.add(key)
            earlier = [writer for writer in others if writer in before[node]]
            found[key] |= {writer for writer in earlier if not any(writer in before[other] for other in earlier)}
    return found, unsure


def compiled(block: ast.Block, shelf: ComponentLibrary) -> Program:
    return compile_application(Application("random", (), plain("random", show(block)), block), shelf)


def shelf_of(graph: ast.Block) -> ComponentLibrary:
    text = plain("graph", show(graph))
    return ComponentLibrary({**ABSTRACT, **MADE, "G": Component("G", "graph", GRAPH_PARAMS, source=text, body=graph)})


@settings(max_examples=200, deadline=None)
@given(programs())
def test_every_task_reads_what_was_written_last_before_it(made: tuple[ast.Block, ast.Block]) -> None:
    block, graph = made
    shelf = shelf_of(graph)
    walk = Walk(shelf)
    before: dict[int, set[int]] | None = None
    try:
        walk.run(block)
        before = walk.ancestors()
    except Wrong:
        pass
    try:
        program = compiled(block, shelf)
    except BadInput as error:
        if before is not None:  # then it is about data: something is read that nobody writes
            assert "nothing writes it" in str(error), str(error)
        return
    assert before is not None and program.tasks == len(walk.tasks)
    try:
        bag = build(program, shelf).bag
    except BadInput as error:
        assert "read before anything has written it" in str(error) and not program.tasks == 0
        found, _ = lasts(walk, before)
        assert any(not writers for writers in found.values())
        return
    if program.tasks:
        validate(bag)
    _compare(program, walk, before)


def _compare(program: Program, walk: Walk, before: dict[int, set[int]]) -> None:
    """Match tasks by their places within a call: program and walk number its instances alike."""
    from windfall.workflow.graphs.dataflow import data_histories

    reads: dict[tuple[int, str], set[int]] = {}
    for thing in data_histories(program):
        for flow in thing.flows:
            for write, read in zip(flow.write.tolist(), flow.read.tolist(), strict=True):
                use = flow.reads.uses[flow.reads.use[read]]
                reads.setdefault((int(flow.reads.task[read]), use.parameter), set()).add(int(flow.writes.task[write]))
    numbers = _matched(program, walk)
    expected, unsure = lasts(walk, before)
    for key, writers in expected.items():
        node, parameter = key
        mine = reads.get((numbers[node], parameter), set())
        if key not in unsure:
            assert mine == {numbers[each] for each in writers}, (walk.tasks[node], parameter)
        for each in mine:
            assert numbers[node] != each
    later = {numbers[node]: {numbers[each] for each in all_before if each in numbers}
             for node, all_before in before.items() if node in numbers}
    for (task, _), writers in reads.items():
        assert not any(task in later[each] for each in writers), "reads what comes after it"
    _no_circle(program, reads)


def _matched(program: Program, walk: Walk) -> dict[int, int]:
    """Nodes of the walk → tasks of the program, by what each is given."""
    given: dict[str, list[int]] = {}
    for task in program.stream():
        shown = " ".join(str(each.value) for each in task.arguments if each.name == "n")
        given.setdefault(f"{task.component} {shown}", []).append(task.number)
    found: dict[int, int] = {}
    for node, text in walk.tasks.items():
        (found[node],) = given[text]
    return found


def _no_circle(program: Program, reads: dict[tuple[int, str], set[int]]) -> None:
    edges, gates = without_gates(plan(program).dag, program.tasks)
    pairs = {tuple(pair) for pair in edges.tolist()} | {(a, task) for (task, _), every in reads.items() for a in every}
    count = program.tasks + gates
    reach = np.zeros((count, count), bool)
    for a, b in pairs:
        reach[a, b] = True
    for _ in range(count):
        reach |= (reach.astype(np.int32) @ reach.astype(np.int32)) > 0
    assert not reach.diagonal().any()
