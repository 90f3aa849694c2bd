"""Workflows in Python: functions as components, composed by `par` and `seq`; the same graphs as YvetteML's.

    @component
    def half(x: float) -> float:
        return x / 2

    @component
    def total(parts: dict[int, float]) -> float:
        return sum(parts.values())

    part, result = data("part"), data("result")
    flow = Workflow("halves", seq(par(half(i).to(part[i]) for i in range(8)), total(part).to(result)))
    bag = flow.submit(Client())

A call is one task, wherever and however often the workflow uses it.  Its return value goes to the data named by `to`,
or to the calls of which the call is an argument.  A function travels as its own source, so it imports inside its body
whatever it needs.
"""

from __future__ import annotations

import ast as python
import builtins
import dis
import inspect
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from types import CodeType
from typing import Any, get_args, get_origin, get_type_hints

from windfall.errors import BadInput
from windfall.workflow.build.builder import Built, build
from windfall.workflow.build.streaming import cut
from windfall.workflow.components.files import NAME, Application, Component, Implementation, Parameter
from windfall.workflow.text import Source
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.parse import MAX_INTEGER, MAX_STRING
from windfall.workflow.yvetteml.program import ComponentLibrary, Program, compile_application

TYPES: dict[Any, str] = {int: "integer", float: "real", str: "string"}
OUT = "returned"
OTHER = "Json"  # a value of any other type travels as JSON
UNNAMED = "unnamed-result"  # a name that no user can give to data or an event
MAX_DEEP = 60  # levels of `par` in `par`


@dataclass(frozen=True)
class DataName:
    """Data or an event, with its indices: `mat[1][2]`."""

    name: str
    indices: tuple[int, ...] = ()

    def __getitem__(self, index: int) -> DataName:
        return DataName(self.name, (*self.indices, index))

    def tree(self) -> ast.Name:
        return ast.Name(self.name, tuple(_constant(index) for index in self.indices))


def data(name: str) -> DataName:
    if not NAME.fullmatch(name):
        raise BadInput(f"'{name:.60}' cannot be the name of data or of an event",
                       "letters, digits and _, and no digit first")
    return DataName(name)


event = data


@dataclass(frozen=True)
class ComponentCall:
    made: PythonComponent
    arguments: tuple[Any, ...]
    out: DataName | None = None

    def to(self, out: DataName) -> ComponentCall:
        return ComponentCall(self.made, self.arguments, out)


@dataclass(frozen=True)
class Composition:
    """`par` or `seq` of parts, or a `wait` or `notify`."""

    kind: str
    parts: tuple[Any, ...]


WorkflowPart = ComponentCall | Composition


def _parts(parts: tuple[WorkflowPart | Iterable[WorkflowPart], ...]) -> tuple[WorkflowPart, ...]:
    found: list[WorkflowPart] = []
    for each in parts:
        found += [each] if isinstance(each, (ComponentCall, Composition)) else list(each)
    return tuple(found)


def par(*parts: WorkflowPart | Iterable[WorkflowPart]) -> Composition:
    """Compose parts that run side by side."""
    return Composition("par", _parts(parts))


def seq(*parts: WorkflowPart | Iterable[WorkflowPart]) -> Composition:
    """Compose parts that run one after the other."""
    return Composition("seq", _parts(parts))


def wait(*events: DataName) -> Composition:
    return Composition("wait", events)


def notify(*events: DataName) -> Composition:
    return Composition("notify", events)


# --- components ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PythonComponent:
    """A function as a component: calling it makes a task; `function` is the original."""

    function: Callable[..., Any]
    abstract: Component
    implementation: Component

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> ComponentCall:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.abstract.name}(): {error}") from None
        bound.apply_defaults()
        return ComponentCall(self, tuple(bound.arguments.values()))


def component(function: Callable[..., Any]) -> PythonComponent:
    name = function.__name__
    hints = get_type_hints(function)
    inputs = [_parameter(each, hints.get(each)) for each in inspect.signature(function).parameters]
    returns = hints.get("return", object)
    outputs = [] if returns is type(None) else [_parameter(OUT, returns, "out")]
    if OUT in (each.name for each in inputs):
        raise BadInput(f"'{OUT}' is the name of a component's result", "give the parameter another name")
    words = ", ".join(_passed(each) for each in inspect.signature(function).parameters.values())
    source = f"{OUT} = {name}({words})" if outputs else f"{name}({words})"
    made = Implementation("PYTHON", source, _text(function))
    return PythonComponent(
        function,
        Component(name, "abstract", (*outputs, *inputs)),
        Component(f"{name}_python", "impl", abstract=name, implementation=made),
    )


def _parameter(name: str, hint: Any, mode: str = "in") -> Parameter:
    members = get_origin(hint) is dict
    kind = get_args(hint)[1] if members else hint
    return Parameter(name, TYPES.get(kind, OTHER), mode, members)


def _passed(each: inspect.Parameter) -> str:
    """Return how the component's source passes a parameter on to the function."""
    if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
        raise BadInput(f"a component takes a fixed number of parameters, and no '{each}'", "name each of them")
    return f"{each.name}={each.name}" if each.kind is each.KEYWORD_ONLY else each.name


def _text(function: Callable[..., Any]) -> str:
    """Return a function's source without decorators, annotations and defaults, which may use names missing on the host.

    Defaults still count: `PythonComponent` applies them before the call travels."""
    try:
        tree = python.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        raise BadInput(f"the source of '{function.__name__}' cannot be found", "put it into a file") from None
    top = tree.body[0]
    if not isinstance(top, python.FunctionDef):
        raise BadInput(f"'{function.__name__}' is not a plain function", "define it with def")
    top.decorator_list, top.returns = [], None
    top.args.defaults, top.args.kw_defaults = [], [None] * len(top.args.kwonlyargs)
    for argument in (*top.args.posonlyargs, *top.args.args, *top.args.kwonlyargs):
        argument.annotation = None
    return python.unparse(tree)


def _refuse_outside(function: Callable[..., Any]) -> None:
    """Refuse a function that uses names from outside its body: they do not exist where it runs."""
    names = sorted(set(_outside(inspect.unwrap(function).__code__)) - {function.__name__, *vars(builtins)})
    if names:
        raise BadInput(f"'{function.__name__}' uses '{names[0]}', which is not there when it runs",
                       "a component travels alone: import or define inside it what it needs")


def _outside(code: CodeType) -> Iterator[str]:
    """Yield the names that the code, or a function inside it, takes from outside."""
    yield from code.co_freevars
    for inner in (code, *_inside(code)):
        steps = list(dis.get_instructions(inner))
        own = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
        yield from (step.argval for step in steps if step.opname == "LOAD_GLOBAL" and step.argval not in own)


def _inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)


# --- the whole -------------------------------------------------------------------------------------------------------


class Workflow:
    def __init__(self, name: str, *parts: WorkflowPart | Iterable[WorkflowPart]) -> None:
        self.name = name
        self._components: dict[str, Component] = {}
        self._out: dict[int, DataName] = {}  # call in the graph → the data that gets its result
        self._events = 0
        self._done: dict[int, DataName] = {}  # call that others wait for → the event it notifies
        whole = seq(*parts)
        self._uses = Counter(map(id, _calls(whole)))
        self._body = tuple(self._block(whole))

    def program(self) -> Program:
        return self._program

    @cached_property
    def _program(self) -> Program:
        return compile_application(Application(self.name, (), Source(self.name, "", []), self._body), self._shelf())

    def built(self) -> Built:
        """Return the workflow as a bag, with its uploads and its results."""
        return self._built

    @cached_property
    def _built(self) -> Built:
        return build(self._program, self._shelf())

    def _doubt(self) -> None:
        for doubt in self._program.doubts:
            warnings.warn(doubt, stacklevel=3)

    def submit(self, client: Any) -> int:
        """Submit the workflow to the server of a `Client` and return the bag's number; warn of each doubt."""
        self._doubt()
        built = self.built()
        found = cut(built.bag)
        if found is None:
            return int(client.submit(built.bag, built.uploads))
        bag = int(client.submit(found.bag, built.uploads))
        for part in found.parts:
            client.append_part(bag, part)
        client.close_bag(bag)
        return bag

    def fetch(self, client: Any, bag: int, directory: str | Path) -> int:
        """Fetch the data that no task reads, each as a file of its own name."""
        built = self.built()
        found = cut(built.bag)
        wanted = {(each.task if found is None else int(found.numbers[each.task]), each.path): each.name
                  for each in built.results}
        return int(client.fetch_some(bag, wanted, directory))

    def _shelf(self) -> ComponentLibrary:
        return ComponentLibrary(self._components)

    def _block(self, part: WorkflowPart, deep: int = 0) -> list[ast.Statement]:
        """Turn a part into statements; nested `seq` are flattened, so a loop may nest them as deep as it likes."""
        if deep > MAX_DEEP:
            raise BadInput(f"'par' in 'par', more than {MAX_DEEP} deep", "collect what goes side by side in a list")
        found: list[ast.Statement] = []
        left = [part]
        while left:
            each = left.pop()
            if isinstance(each, ComponentCall):
                found += self._compute(each)
            elif each.kind == "seq":
                left += reversed(each.parts)
            elif each.kind == "par":
                branches = tuple(tuple(self._block(branch, deep + 1)) for branch in each.parts)
                found += [ast.Par(branches)] if branches else []
            elif each.kind == "notify":
                found.append(ast.Notify(tuple(event.tree() for event in each.parts)))
            else:
                found += [ast.Wait(event.tree()) for event in each.parts]
        return found

    def _compute(self, call: ComponentCall) -> list[ast.Statement]:
        """Add a call, and the calls among its arguments at any depth, which run side by side where they can."""
        new = self._new(call)
        if not new:
            return [ast.Wait(self._done[id(call)].tree())]
        chain = all(sum(isinstance(each, ComponentCall) for each in one.arguments) < 2 for one in new)
        if chain:
            here = {id(one) for one in new}
            return [statement for one in new for statement in self._one(one, here, id(one) in self._done)]
        for one in new[:-1]:
            self._has_event(one)
        return [ast.Par(tuple(tuple(self._one(one, set(), id(one) in self._done)) for one in new))]

    def _new(self, call: ComponentCall) -> list[ComponentCall]:
        """Return the call and the calls it needs that are not in the graph yet, each after those it needs."""
        found: list[ComponentCall] = []
        left = [(call, False)]
        while left:
            each, ready = left.pop()
            if id(each) in self._out:
                continue
            if ready:
                found.append(each)
                self._out[id(each)] = each.out or self._fresh()
                if self._uses[id(each)] > 1:
                    self._has_event(each)
            else:
                left.append((each, True))
                left += [
                    (argument, False) for argument in reversed(each.arguments) if isinstance(argument, ComponentCall)
                ]
        return found

    def _one(self, call: ComponentCall, here: set[int], told: bool) -> list[ast.Statement]:
        """Return the statements of one task; calls in `here` precede it in the same block and need no event."""
        waits: list[ast.Statement] = []
        arguments: list[ast.Value] = []
        for argument in call.arguments:
            if isinstance(argument, ComponentCall):
                arguments.append(self._out[id(argument)].tree())
                waits += [] if id(argument) in here else [ast.Wait(self._done[id(argument)].tree())]
            else:
                arguments.append(argument.tree() if isinstance(argument, DataName) else _constant(argument))
        self._add(call.made)
        if call.made.abstract.params and call.made.abstract.params[0].mode == "out":
            arguments.insert(0, self._out[id(call)].tree())
        compute = ast.Compute(call.made.abstract.name, tuple(arguments))
        return [*waits, compute, *([ast.Notify((self._done[id(call)].tree(),))] if told else [])]

    def _add(self, made: PythonComponent) -> None:
        if made.abstract.name not in self._components:
            _refuse_outside(made.function)
        for each in (made.abstract, made.implementation):
            if self._components.setdefault(each.name, each) != each:
                raise BadInput(f"two components are called '{each.name}'", "give one of the functions another name")

    def _has_event(self, call: ComponentCall) -> None:
        if id(call) not in self._done:
            self._events += 1
            self._done[id(call)] = DataName(UNNAMED, (self._events,))

    def _fresh(self) -> DataName:
        return DataName(UNNAMED, (len(self._out) + 1,))


def _calls(part: WorkflowPart) -> Iterator[ComponentCall]:
    """Yield each call as often as it is used, but its arguments only once however often the call is used."""
    left: list[Any] = [part]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if isinstance(each, ComponentCall):
            yield each
            if id(each) not in seen:
                seen.add(id(each))
                left += each.arguments
        elif isinstance(each, Composition) and each.kind in ("par", "seq"):
            left += each.parts


def _constant(value: Any) -> ast.Value:
    if isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) < MAX_INTEGER:
        return ast.Integer(int(value))
    if isinstance(value, Real) and not isinstance(value, Integral) and isfinite(value):
        return ast.Real(float(value))
    if isinstance(value, str) and len(value.encode(errors="replace")) <= MAX_STRING:
        return ast.String(value)
    raise BadInput(f"{value!r:.60} cannot be an argument of a component",
                   "numbers, texts and data can; hand anything else over as data")
