"""Unroll a tree's loops and conditions into nodes, edges and calls, all instances of a statement at once.

Statements of a block follow each other; `par` runs its branches or iterations side by side; `wait` holds back the
statements after it in its block, `notify` comes after those before it in its block.  Nothing else orders tasks.

A variable has, in each instance, the value assigned last.  A value assigned in a `par` is not seen after it.  The
compiler walks iterations one by one only if an iteration of a `seq` reads a variable that the one before assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

import numpy as np

from windfall.errors import TooLarge
from windfall.workflow.components.files import Application, Component
from windfall.workflow.mistakes import MistakeLog, nearest
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.calls import Bound, bind, refer
from windfall.workflow.yvetteml.edges import Wiring, pick
from windfall.workflow.yvetteml.effort import Effort, EffortExceeded
from windfall.workflow.yvetteml.frame import Column, Data, Frame, Ref, StatementError, spread, take
from windfall.workflow.yvetteml.names import Registry, Use
from windfall.workflow.yvetteml.scope import assigned, carried, lost, mentioned, names_of
from windfall.workflow.yvetteml.unrolled import Call, Library, Section, Unit, Unrolled
from windfall.workflow.yvetteml.values import condition, evaluate, integer
from windfall.workflow.yvetteml.variables import merged

MAX_TASKS = 5_000_000
MAX_ROWS = 10_000_000  # iterations of one loop, over all its instances
MAX_WORK = 50_000_000  # iterations of all loops together
MAX_STEPS = 50_000  # iterations walked one by one
MAX_NESTED = 16  # levels of graph components in graph components
MAX_DEEP = 100  # levels of statements in statements, through graph components, too


class Unroller:
    def __init__(self, library: Library, found: MistakeLog) -> None:
        self.library, self.found = library, found
        self.wiring, self.registry, self.made = Wiring(), Registry(), Unrolled()
        self.left_out = False  # has a mistake left out a statement?
        self._work = self._steps = self._deep = 0
        self._near: dict[str, str] = {}  # unknown component → the nearest known one
        self._effort = Effort()
        self._inside: list[str] = []  # graph components being unrolled, from the outermost
        self._sections: dict[tuple[int, int, int], int] = {}

    def run(self, application: Application, values: dict[str, Column]) -> None:
        declared = {parameter.name: parameter for parameter in application.params}
        try:
            self.block(application.body, Frame(application.source, values=dict(values), declared=declared))
        except EffortExceeded as end:
            self.found.add(end.source, end.at, "the program is too large to be unrolled", "split it, or simplify it")
            self.found.tell()

    # --- blocks -----------------------------------------------------------------------------------------------------

    def block(self, block: ast.Block, frame: Frame) -> Data:
        """Unroll a block; return the node after which each instance goes on.  `frame` gets the final variables."""
        for waiting, statements in groupby(block, lambda each: isinstance(each, ast.Wait)):
            if waiting:
                waits = [each for each in statements if isinstance(each, ast.Wait)]
                self._effort.spend(waits[0], frame)
                self._waits(waits, frame)
            else:
                for statement in statements:
                    self._statement(statement, frame)
        return frame.entry

    def _statement(self, node: ast.Statement, frame: Frame) -> None:
        self._deep += 1
        try:
            self._follow(node, frame)
        except StatementError as stop:
            self._note(stop, frame)
            self._spoil(node, frame)
            if stop.report or not isinstance(node, ast.Compute):
                self._excuse(mentioned(node), frame)
        finally:
            self._deep -= 1

    def _follow(self, node: ast.Statement, frame: Frame) -> None:
        self._effort.spend(node, frame)
        if self._deep > MAX_DEEP:
            raise StatementError(
                node.at,
                f"nested more than {MAX_DEEP} deep, with the graph components around it",
                "let fewer of them call each other",
            )
        if isinstance(node, ast.Compute):
            self._compute(node, frame)
        elif isinstance(node, ast.Assign):
            self._assign(node, frame)
        elif isinstance(node, ast.Notify):
            self._notify(node, frame)
        elif isinstance(node, ast.Par):
            self._par(node, frame)
        elif isinstance(node, ast.Loop):
            self._loop(node, frame)
        elif isinstance(node, ast.If):
            self._if(node, frame)

    def _note(self, stop: StatementError, frame: Frame) -> None:
        if stop.report:
            self.found.add(frame.source, stop.at, *stop.report)

    def _spoil(self, node: ast.Statement, frame: Frame) -> None:
        """Mark variables assigned by a statement with a mistake as broken, so that no later complaint names them."""
        self.left_out = self.left_out or frame.n > 0
        for name in assigned((node,)):
            frame.values[name] = Column("broken", 0)

    def _excuse(self, names: Iterable[str], frame: Frame) -> None:
        """Excuse names that a statement with a mistake would have written; a frame without instances writes none."""
        for name in names if frame.n else ():
            self.registry.excused.add(frame.refs[name].key if name in frame.refs else (frame.scope, name))

    # --- variables --------------------------------------------------------------------------------------------------

    def _assign(self, node: ast.Assign, frame: Frame) -> None:
        name = node.target.name
        if node.target.indices:
            raise StatementError(
                node.at, "only plain names can be assigned", "indexed names are data, which components write"
            )
        if name in frame.iterators:
            raise StatementError(node.at, f"'{name}' is the loop's own, and cannot be assigned")
        if name in frame.refs:
            raise StatementError(node.at, f"'{name}' is data, which components write")
        column = evaluate(node.value, frame)
        if column.kind == "condition":
            raise StatementError(node.value.at, "a condition cannot be assigned", "use it in 'if'")
        frame.values[name] = column

    def _forget(self, node: ast.Loop | ast.Par, frame: Frame) -> None:
        for name, at in lost(node).items():
            frame.values[name] = Column("lost", 0, np.zeros(frame.n, bool), at=at)

    def _adopt(self, frame: Frame, inner: Frame, rows: np.ndarray, names: dict[str, int]) -> None:
        """Take over variables from `inner`, a part of the program that only `rows` of `frame` went through."""
        for name, at in names.items():
            if name in inner.values and len(rows):
                frame.values[name] = merged(name, at, frame, inner.values[name], rows)

    def _adopt_last(self, frame: Frame, inner: Frame, parents: np.ndarray, names: dict[str, int]) -> None:
        """Take over variables after a loop: each as the last iteration that assigned it has left it."""
        for name, at in names.items():
            if name in inner.values:
                known, gone = inner.values[name].states(inner.n)
                touched = np.flatnonzero(known | gone)
                owners = parents[touched]
                last = touched[np.append(owners[1:] != owners[:-1], True)] if len(touched) else touched
                if len(last):
                    frame.values[name] = merged(name, at, frame, inner.values[name].take(last), parents[last])

    # --- events -----------------------------------------------------------------------------------------------------

    def _waits(self, nodes: list[ast.Wait], frame: Frame) -> None:
        """Make one gate of several waits in a row."""
        try:
            events = [event for node in nodes for event in _events(node.condition)]
            uses = [(event, refer(event, frame)) for event in events]
        except StatementError as stop:
            self._note(stop, frame)
            self.left_out = self.left_out or frame.n > 0
            return
        kept = frame.only(())
        gate = self.wiring.new(frame.n, "wait", nodes[0].at, kept)
        self.wiring.edge(frame.entry, gate)
        for event, ref in uses:
            self.registry.wait(Use(ref, event.at, kept, gate))
        frame.entry = gate

    def _notify(self, node: ast.Notify, frame: Frame) -> None:
        kept = frame.only(())
        for event in node.events:
            self.registry.notify(Use(refer(event, frame), event.at, kept, frame.entry))

    # --- calls ------------------------------------------------------------------------------------------------------

    def _compute(self, node: ast.Compute, frame: Frame) -> None:
        component = self._component(node)
        bound = self._bound(component, node, frame)
        if component.kind == "graph":
            self._graph(component, node, bound, frame)
            return
        if self.made.tasks + frame.n > MAX_TASKS:
            raise TooLarge(f"the program unrolls to more than {MAX_TASKS:,} tasks", "split it")
        kept = frame.only(self._effort.names(node))
        nodes = self.wiring.new(frame.n, component.name, node.at, kept)
        self.wiring.edge(frame.entry, nodes)
        if frame.n:
            self.made.calls.append(Call(component, node.arguments, node.at, kept, first=self.made.tasks,
                                        node=int(nodes[0])))
        self.made.tasks += frame.n
        frame.entry = nodes

    def _bound(self, component: Component, node: ast.Compute, frame: Frame) -> list[Bound]:
        """Bind a call's arguments, and register the data among them whether the other arguments fit or not."""
        found = bind(component, node, frame, lambda stop: self._note(stop, frame))
        kept = frame.only(())
        for parameter, argument, value in zip(component.params, node.arguments, found, strict=True):
            if isinstance(value, Ref):
                note = self.registry.hand_over if component.kind == "graph" else self.registry.access
                note(Use(
                    ref=value, at=argument.at, frame=kept,
                    node=self.wiring.nodes,  # the call's tasks are the next nodes
                    mode=parameter.mode, type=parameter.type, collection=parameter.collection,
                    parameter=parameter.name,
                ))  # fmt: skip
        bad = [argument for argument, value in zip(node.arguments, found, strict=True) if value is None]
        if bad:
            self._excuse((name for each in bad for name in names_of(each)), frame)
            raise StatementError(node.at)
        return [each for each in found if each is not None]

    def _component(self, node: ast.Compute) -> Component:
        component = self.library.find(node.component)
        if component is None:
            if node.component not in self._near:
                self._near[node.component] = nearest(node.component, self.library.names())
            near = self._near[node.component]
            raise StatementError(
                node.at,
                f"there is no component '{node.component}'",
                f"did you mean '{near}'?"
                if near
                else "--components FILE says where it is; 'windfall component ls' lists those kept, "
                "'component add FILE' adds one",
            )
        if component.kind == "impl":
            raise StatementError(
                node.at, f"'{component.name}' is an implementation", f"compute what it implements: {component.abstract}"
            )
        return component

    def _graph(self, component: Component, node: ast.Compute, bound: list[Bound], frame: Frame) -> None:
        """Unroll a graph component in place of its call; the names inside are its own, except its parameters."""
        if component.name in self._inside:
            raise StatementError(
                node.at, f"'{component.name}' calls itself", " → ".join([*self._inside, component.name])
            )
        if len(self._inside) >= MAX_NESTED:
            raise StatementError(node.at, f"more than {MAX_NESTED} graph components in each other", "join some of them")
        assert component.source is not None
        pairs = list(zip((each.name for each in component.params), bound, strict=True))
        first = self.made.instances
        self.made.instances += frame.n
        self.made.units.append(Unit(component.name, node.at, frame.only(()), first, len(self.made.units) + 1))
        inner = Frame(
            source=component.source, n=frame.n,
            values={name: value for name, value in pairs if isinstance(value, Column)},
            refs={name: value for name, value in pairs if isinstance(value, Ref)},
            declared={each.name: each for each in component.params},
            scope=len(self.made.units), lead=np.arange(first, first + frame.n),
            entry=frame.entry, section=frame.section,
        )  # fmt: skip
        self._inside.append(component.name)
        frame.entry = self.block(component.body, inner)
        self._inside.pop()

    # --- side by side -----------------------------------------------------------------------------------------------

    def _section(self, node: ast.Par | ast.Loop, frame: Frame, branches: int) -> int:
        key = (node.at, id(frame.source), frame.scope)
        if key not in self._sections:
            self._sections[key] = len(self.made.sections)
            self.made.sections.append(Section(node.at, frame.only(()), frame.section, isinstance(node, ast.Loop)))
        number = self._sections[key]
        self.made.sections[number].branches += branches
        self.made.sections[number].instances += frame.n
        return number

    def _par(self, node: ast.Par, frame: Frame) -> None:
        section = self._section(node, frame, frame.n * len(node.branches))
        ends = [self.block(branch, frame.copy(section=section)) for branch in node.branches]
        gate = self.wiring.new(frame.n, "end of par", node.at, frame.only(()))
        for end in ends:
            self.wiring.edge(end, gate)
        frame.entry = gate
        self._forget(node, frame)

    def _par_loop(self, node: ast.Loop, frame: Frame, inner: Frame, parents: np.ndarray) -> None:
        inner.section = self._section(node, frame, inner.n)
        end = self.block(node.body, inner)
        gate = self.wiring.new(frame.n, "end of par", node.at, frame.only(()))
        self.wiring.edge(end, gate[parents])
        empty = np.flatnonzero(np.bincount(parents, minlength=frame.n) == 0)
        self.wiring.edge(take(frame.entry, empty), gate[empty])
        frame.entry = gate
        self._forget(node, frame)

    # --- one after the other ----------------------------------------------------------------------------------------

    def _loop(self, node: ast.Loop, frame: Frame) -> None:
        inner, parents = self._expand(node, frame)
        if node.parallel:
            self._par_loop(node, frame, inner, parents)
        elif not inner.n:
            self.block(node.body, inner)
        elif carried(node):
            self._steps_of(node, frame, inner, parents)
        else:
            self._seq_loop(node, frame, inner, parents)

    def _seq_loop(self, node: ast.Loop, frame: Frame, inner: Frame, parents: np.ndarray) -> None:
        names = _outside(node)
        for name in names:
            inner.values.pop(name, None)  # no iteration reads it before assigning it
        gates = self.wiring.new(inner.n, "iteration of seq", node.at, inner.only(()))
        inner.entry = gates
        ends = spread(self.block(node.body, inner), inner.n)
        begins = np.append(True, parents[1:] != parents[:-1])
        self.wiring.edge(take(frame.entry, parents[begins]), gates[begins])
        self.wiring.edge(ends[np.flatnonzero(~begins) - 1], gates[~begins])
        last = np.flatnonzero(np.append(begins[1:], True))
        frame.entry = pick(ends[last], frame.entry, parents[last], frame.n)
        self._adopt_last(frame, inner, parents, names)

    def _steps_of(self, node: ast.Loop, frame: Frame, inner: Frame, parents: np.ndarray) -> None:
        """Unroll a loop one iteration after the other, each in all instances of the loop."""
        names = _outside(node)
        counts = np.bincount(parents, minlength=frame.n)
        starts = np.cumsum(counts) - counts
        for number in range(int(counts.max())):
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise StatementError(
                    node.at,
                    f"more than {MAX_STEPS:,} iterations of loops that carry a variable along",
                    f"compute it from the iterator instead: {', '.join(carried(node))}",
                )
            live = np.flatnonzero(counts > number)
            step = inner.take(starts[live] + number, len(live))
            step.entry = take(frame.entry, live)
            for name in names:
                step.values.pop(name, None)
                if name in frame.values:
                    step.values[name] = frame.values[name].take(live)
            end = self.block(node.body, step)
            frame.entry = pick(end, frame.entry, live, frame.n)
            self._adopt(frame, step, live, names)

    def _expand(self, node: ast.Loop, frame: Frame) -> tuple[Frame, np.ndarray]:
        """Return a frame with an instance for each iteration, and the instance of `frame` each belongs to."""
        inner, parents, names = frame.copy(), np.arange(frame.n), self._effort.names(node)
        for each in node.iterators:
            if each.name in frame.refs:
                raise StatementError(
                    each.at, f"'{each.name}' is a parameter, and cannot count", "give the iterator another name"
                )
            rows, numbers = self._iterations(each, inner)
            self._effort.copy(node, inner, len(rows))
            inner, parents = inner.take(rows, len(rows), names), parents[rows]
            inner.values[each.name] = Column("integer", numbers)
            inner.iterators = (*(name for name in inner.iterators if name != each.name), each.name)
        for values in node.excludes:
            kept = np.flatnonzero(~spread(_unless_empty(inner, False, _excluded, node, values), inner.n))
            inner, parents = inner.take(kept, len(kept)), parents[kept]
        return inner, parents

    def _iterations(self, each: ast.Iterator, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        low, high = (spread(_unless_empty(frame, 0, integer, bound), frame.n) for bound in (each.low, each.high))
        counts = np.clip(high - low + 1, 0, MAX_ROWS + 1)
        total = int(counts.sum())
        if total > MAX_ROWS:
            raise StatementError(
                each.at, f"the loop goes through more than {MAX_ROWS:,} iterations", "split the program"
            )
        self._work += total
        if self._work - total > MAX_WORK:  # reported before
            raise StatementError(each.at)
        if self._work > MAX_WORK:
            raise StatementError(
                each.at, f"the loops go through more than {MAX_WORK:,} iterations", "split the program"
            )
        rows = np.repeat(np.arange(frame.n), counts)
        starts = np.cumsum(counts) - counts
        return rows, np.arange(total) - np.repeat(starts - low, counts)

    # --- conditions -------------------------------------------------------------------------------------------------

    def _if(self, node: ast.If, frame: Frame) -> None:
        truth = condition(node.condition, frame)
        if not isinstance(truth, np.ndarray):
            taken, other = (node.then, node.otherwise) if truth else (node.otherwise, node.then)
            self.block(other, frame.none())
            self.block(taken, frame)
            return
        self._effort.copy(node, frame, frame.n)
        names = self._effort.names(node)
        sides = [(block, rows, frame.take(rows, len(rows), names)) for block, rows in
                 ((node.then, np.flatnonzero(truth)), (node.otherwise, np.flatnonzero(~truth)))]
        for block, rows, inner in sides:
            frame.entry = pick(self.block(block, inner), frame.entry, rows, frame.n)
            self._adopt(frame, inner, rows, assigned(block))


def _outside(node: ast.Loop) -> dict[str, int]:
    """Return the names that a loop's body assigns, except its own iterators, and where."""
    return {name: at for name, at in assigned(node.body).items() if name not in {each.name for each in node.iterators}}


def _unless_empty(frame: Frame, otherwise: Data, function: Callable[..., Data], *arguments: object) -> Data:
    """Evaluate a function in a frame; return `otherwise` if it needs unknown values and the frame has no instance."""
    try:
        return function(*arguments, frame)
    except StatementError as stop:
        if frame.n or stop.report:
            raise
        return otherwise


def _excluded(node: ast.Loop, values: tuple[ast.Value, ...], frame: Frame) -> Data:
    """Evaluate an `exclude`: a condition, or a value for each iterator."""
    if len(values) == 1 and len(node.iterators) > 1:
        return condition(values[0], frame)
    if len(values) == 1 and evaluate(values[0], frame).kind == "condition":
        return condition(values[0], frame)
    if len(values) != len(node.iterators):
        raise StatementError(
            values[0].at,
            f"{len(values)} values for {len(node.iterators)} iterators",
            "exclude takes a condition, or one value for each iterator",
        )
    masks = [integer(value, frame) == frame.values[each.name].data for each, value in
             zip(node.iterators, values, strict=True)]
    return np.logical_and.reduce(masks)


def _events(node: ast.Value) -> list[ast.Name]:
    """Return the events of a wait such as `a and b[i]`; an `or` would leave the order open until the program runs."""
    if isinstance(node, ast.Name):
        return [node]
    if isinstance(node, ast.Chain) and node.rest[0][0] == "and":
        return [event for each in (node.first, *(operand for _, operand in node.rest)) for event in _events(each)]
    raise StatementError(node.at, "wait takes events, joined by 'and'", "'or' and 'not' are for 'if'")
