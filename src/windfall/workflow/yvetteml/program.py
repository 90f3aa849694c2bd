"""A compiled program: tasks in columns, and edges, without knowledge of any middleware.

    program = compile_application(file.application, library)

The compiler checks everything before a program exists.  A task is a number; the program works out its component and
arguments on demand, a slice at a time, so the first task can run before the last is worked out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from windfall.errors import BadInput
from windfall.workflow.components.files import Application, Component, Parameter
from windfall.workflow.graphs.dag import Dag, DagShape, cycle, shape
from windfall.workflow.mistakes import MistakeLog
from windfall.workflow.yvetteml.calls import value_of
from windfall.workflow.yvetteml.edges import Wiring, place
from windfall.workflow.yvetteml.frame import Column, Ref, take
from windfall.workflow.yvetteml.names import Use, data_mistakes, meetings, unheard
from windfall.workflow.yvetteml.parse import MAX_INTEGER, MAX_STRING
from windfall.workflow.yvetteml.races import unordered, unwritten
from windfall.workflow.yvetteml.unroll import Unroller
from windfall.workflow.yvetteml.unrolled import Call, Library, Section, Unit

SLICE = 4096


@dataclass(frozen=True)
class Argument:
    name: str
    mode: str
    type: str
    value: int | float | str | None  # None: the argument is data
    data: str = ""  # `mat[1][2]`
    collection: bool = False


@dataclass(frozen=True)
class ProgramTask:
    number: int
    component: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        shown = (each.data or (f'"{each.value}"' if isinstance(each.value, str) else str(each.value))
                 for each in self.arguments)
        return f"{self.component}({', '.join(shown)})"


@dataclass(frozen=True)
class Program:
    application: Application
    calls: list[Call]
    sections: list[Section]
    units: list[Unit]
    tasks: int
    dag: Dag
    shape: DagShape
    doubts: list[str]  # constructs that the language allows but the user hardly means
    data: dict[tuple[int, str], list[Use]] = field(default_factory=dict)  # scope and name → its reads and writes

    @cached_property
    def nodes(self) -> np.ndarray:
        """The node of each task."""
        parts = [np.arange(call.node, call.node + call.n, dtype=np.int32) for call in self.calls]
        return np.concatenate([np.zeros(0, np.int32), *parts])

    @cached_property
    def levels(self) -> np.ndarray:
        """The level of each task, from 0."""
        return np.asarray(self.shape.level[self.nodes] - 1)

    def call_of(self, task: int) -> Call:
        return self.calls[bisect_right(self.calls, task, key=lambda call: call.first) - 1]

    def task(self, number: int) -> ProgramTask:
        call = self.call_of(number)
        return next(_tasks(call, number - call.first, number - call.first + 1))

    def stream(self) -> Iterator[ProgramTask]:
        """Yield all tasks by number; a slice is worked out when the iteration reaches it."""
        for call in self.calls:
            for begin in range(0, call.n, SLICE):
                yield from _tasks(call, begin, min(begin + SLICE, call.n))


def _tasks(call: Call, begin: int, end: int) -> Iterator[ProgramTask]:
    frame = call.frame.take(slice(begin, end), end - begin)
    bound = [(parameter, value_of(call.component.name, parameter, node, frame))
             for parameter, node in zip(call.component.params, call.arguments, strict=True)]
    for row in range(end - begin):
        yield ProgramTask(call.first + begin + row, call.component.name, tuple(_argument(p, b, row) for p, b in bound))


def _argument(parameter: Parameter, bound: Column | Ref, row: int) -> Argument:
    if isinstance(bound, Ref):
        scope, name = bound.key
        shown = ".".join(filter(None, [f"{scope}" if scope else "", name]))
        data = shown + "".join(f"[{take(each, row)}]" for each in bound.indices)
        return Argument(parameter.name, parameter.mode, parameter.type, None, data, collection=parameter.collection)
    value = take(bound.data, row)
    plain = value.item() if isinstance(value, np.generic) else value
    return Argument(parameter.name, parameter.mode, parameter.type, plain)


# --- compiling -------------------------------------------------------------------------------------------------------


class ComponentLibrary:
    """Components by name, from several places; the first that knows a name has it."""

    def __init__(self, *places: Mapping[str, Component]) -> None:
        self.places = places
        self.damaged: dict[str, BadInput] = {}  # name → why its file could not be read

    def _each(self, components: Mapping[str, Component]) -> Iterator[Component]:
        """Yield the components that can be read; one damaged file does not hide the others."""
        for name in components:
            try:
                yield components[name]
            except BadInput as error:
                self.damaged[name] = error

    def find(self, name: str) -> Component | None:
        return next((place[name] for place in self.places if name in place), None)

    def implementations(self, abstract: str) -> list[Component]:
        """Return a component's implementations, highest rank first; among equal ranks the first place's come first."""
        found: dict[str, Component] = {}
        for components in self.places:
            for each in self._each(components):
                if each.kind == "impl" and each.abstract == abstract:
                    found.setdefault(each.name, each)
        return sorted(found.values(), key=lambda each: -each.implementation.rank if each.implementation else 0)

    def names(self) -> list[str]:
        return sorted({each.name for found in self.places for each in self._each(found) if each.kind != "impl"})


def compile_application(application: Application, library: Library, given: Mapping[str, str] | None = None) -> Program:
    """Compile an application, given values of its parameters.  Raises BadInput, or Mistakes with all mistakes."""
    found = MistakeLog()
    unroller = Unroller(library, found)
    unroller.run(application, _values(application, given or {}))
    unheard(unroller.registry, found)
    data_mistakes(unroller.registry, {each.name: each for each in application.params}, found)
    found.tell()
    assert not unroller.left_out and not unroller.registry.excused, "something was left out, and nothing said about it"
    return _finished(application, unroller)


def _finished(application: Application, unroller: Unroller) -> Program:
    wiring, made = unroller.wiring, unroller.made
    for meeting in meetings(unroller.registry):
        use = meeting.sample
        gates = wiring.new(meeting.gates, f"event '{use.ref.key[1]}'", use.at, use.frame.none())
        wiring.edge(meeting.notifiers, gates[meeting.notified])
        wiring.edge(gates[meeting.waited], meeting.waiters)
    src, dst = wiring.edges()
    task = np.zeros(wiring.nodes, bool)
    for call in made.calls:
        task[call.node : call.node + call.n] = True
    dag = Dag(wiring.nodes, src, dst, task)
    levels = shape(dag)
    if len(levels.order) < dag.nodes:
        raise _circle(wiring, cycle(dag, levels))
    given = {each.name for each in application.params if each.mode != "out"}
    doubts = [*unwritten(unroller.registry, application), *unordered(unroller.registry, levels.level, given)]
    return Program(
        application=application, calls=made.calls, sections=made.sections, units=made.units, tasks=made.tasks,
        dag=dag, shape=levels, doubts=doubts, data=unroller.registry.data,
    )  # fmt: skip


def _circle(wiring: Wiring, nodes: list[int]) -> BadInput:
    """Report a circle at one of its waits; every circle has one."""
    steps = [(group, node) for node in nodes if (group := wiring.group(node)) is not None]
    begin = min(range(len(steps)), key=lambda number: (steps[number][0].what != "wait", steps[number][0].at))
    steps = steps[begin:] + steps[:begin]
    group, node = steps[0]
    told = [place(each, number) for each, number in steps[1:]]
    shown = told if len(told) < 6 else [*told[:3], "…", told[-1]]
    message = f"this wait waits for tasks that wait for it: a cycle{group.frame.where(node - group.first)}"
    return group.frame.source.mistake(group.at, message, "after it come: " + "; ".join(shown))


def _values(application: Application, given: Mapping[str, str]) -> dict[str, Column]:
    """Return the values of parameters, and of constants that the graph uses without declaring them."""
    params = {parameter.name: parameter for parameter in application.params}
    found = {name: _constant(name, text) for name, text in given.items()
             if name not in params and re.search(rf"(?<![\w.]){re.escape(name)}\b", application.source.text)}
    _require_inputs(application, params, given.keys() - found.keys())
    for parameter in application.params:
        text = given.get(parameter.name, parameter.value)
        if text is not None and parameter.mode == "in":
            found[parameter.name] = _value(parameter, text)
    return found


def _require_inputs(application: Application, params: Mapping[str, Parameter], names: Set[str]) -> None:
    """Refuse names that no parameter of mode in has."""
    for name in names:
        if name not in params or params[name].mode != "in":
            raise BadInput(f"'{application.name}' has no parameter '{name}' of mode in, and its graph does not use "
                           "such a constant" if name not in params else f"'{name}' is no parameter of mode in",
                           f"it has: {', '.join(p.name for p in application.params if p.mode == 'in') or 'none'}")


def _constant(name: str, text: str) -> Column:
    """Return a constant of the type that its text shows: a whole number, a number, or else a text."""
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None:
        raise BadInput(f"'{name[:60]}' cannot be the name of a constant", "letters, digits and _")
    kind = "integer" if re.fullmatch(r"[+-]?[0-9]+", text) else "string"
    if kind == "string" and re.fullmatch(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        kind = "real"
    return _value(Parameter(name=name, type=kind, mode="in"), text)


def _value(parameter: Parameter, text: str) -> Column:
    readers: dict[str, Any] = {"integer": int, "real": float, "string": str}
    try:
        data = readers[parameter.type](text)
        if len(text.encode()) > (MAX_STRING if parameter.type == "string" else 1000):
            raise ValueError
        if parameter.type != "string" and not abs(data) < (MAX_INTEGER if parameter.type == "integer" else inf):
            raise ValueError
    except (KeyError, ValueError):
        raise BadInput(f"'{text[:60]}' is not a value for '{parameter.name}', which is of type "
                       f"{parameter.type}") from None
    return Column(parameter.type, data)
