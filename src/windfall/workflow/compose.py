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

A call is a task.  What it returns goes to the data it is sent to, or, where it is an argument of another call, to that
one alone.  A function travels as its own source: what it needs it imports inside.
"""

from __future__ import annotations

import ast as python
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import BadInput
from . import ast
from .building import Built, build
from .files import Application, Component, Implementation, Parameter
from .program import Program, Shelf, compile_application
from .streaming import cut
from .text import Source

TYPES: dict[Any, str] = {int: "integer", float: "real", str: "string"}
OUT = "returned"
OTHER = "Json"  # any type that is none of these travels as JSON


@dataclass(frozen=True)
class Named:
    """Data or an event, with its indices: `mat[1][2]`."""

    name: str
    indices: tuple[int, ...] = ()

    def __getitem__(self, index: int) -> Named:
        return Named(self.name, (*self.indices, index))

    def tree(self) -> ast.Name:
        return ast.Name(self.name, tuple(_constant(index) for index in self.indices))


def data(name: str) -> Named:
    return Named(name)


event = data


@dataclass(frozen=True)
class Call:
    made: Made
    arguments: tuple[Any, ...]
    out: Named | None = None

    def to(self, out: Named) -> Call:
        return Call(self.made, self.arguments, out)


@dataclass(frozen=True)
class Order:
    """`par` or `seq` of parts, or a `wait` or `notify`."""

    kind: str
    parts: tuple[Any, ...]


Part = Call | Order


def _parts(parts: tuple[Part | Iterable[Part], ...]) -> tuple[Part, ...]:
    found: list[Part] = []
    for each in parts:
        found += [each] if isinstance(each, (Call, Order)) else list(each)
    return tuple(found)


def par(*parts: Part | Iterable[Part]) -> Order:
    """Side by side."""
    return Order("par", _parts(parts))


def seq(*parts: Part | Iterable[Part]) -> Order:
    """One after the other."""
    return Order("seq", _parts(parts))


def wait(*events: Named) -> Order:
    return Order("wait", events)


def notify(*events: Named) -> Order:
    return Order("notify", events)


# --- components ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A function as a component: calling it makes a task, `function` is what it was."""

    function: Callable[..., Any]
    abstract: Component
    implementation: Component

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.abstract.name}(): {error}") from None
        bound.apply_defaults()
        return Call(self, tuple(bound.arguments.values()))


def component(function: Callable[..., Any]) -> Made:
    name = function.__name__
    hints = get_type_hints(function)
    inputs = [_parameter(each, hints.get(each)) for each in inspect.signature(function).parameters]
    returns = hints.get("return", object)
    outputs = [] if returns is type(None) else [_parameter(OUT, returns, "out")]
    if OUT in (each.name for each in inputs):
        raise BadInput(f"'{OUT}' is what a component's result is called", "give the parameter another name")
    words = ", ".join(each.name for each in inputs)
    source = f"{OUT} = {name}({words})" if outputs else f"{name}({words})"
    made = Implementation("PYTHON", source, _text(function))
    return Made(function, Component(name, "abstract", (*outputs, *inputs)),
                Component(f"{name}_python", "impl", abstract=name, implementation=made))


def _parameter(name: str, hint: Any, mode: str = "in") -> Parameter:
    members = get_origin(hint) is dict
    kind = get_args(hint)[1] if members else hint
    return Parameter(name, TYPES.get(kind, OTHER), mode, members)


def _text(function: Callable[..., Any]) -> str:
    """Its source, without decorators and annotations: those may name what is not there."""
    try:
        tree = python.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        raise BadInput(f"the source of '{function.__name__}' cannot be found", "put it into a file") from None
    top = tree.body[0]
    if not isinstance(top, python.FunctionDef):
        raise BadInput(f"'{function.__name__}' is no plain function", "def it")
    top.decorator_list, top.returns = [], None
    for argument in (*top.args.posonlyargs, *top.args.args, *top.args.kwonlyargs):
        argument.annotation = None
    return python.unparse(tree)


# --- the whole -------------------------------------------------------------------------------------------------------


class Workflow:
    def __init__(self, name: str, *parts: Part | Iterable[Part]) -> None:
        self.name = name
        self._components: dict[str, Component] = {}
        self._unnamed = 0
        self._body = tuple(self._block(seq(*parts)))

    def program(self) -> Program:
        return compile_application(Application(self.name, (), Source(self.name, "", []), self._body), self._shelf())

    def built(self) -> Built:
        """As a bag, with what it needs and where its results are."""
        return build(self.program(), self._shelf())

    def submit(self, client: Any) -> int:
        """Hand it to the server of a `Client`; the bag's number."""
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
        """Bring home the data that nobody reads, each as a file of its name."""
        built = self.built()
        found = cut(built.bag)
        wanted = {(each.task if found is None else int(found.numbers[each.task]), each.path): each.name
                  for each in built.results}
        return int(client.fetch_some(bag, wanted, directory))

    def _shelf(self) -> Shelf:
        return Shelf(self._components)

    def _block(self, part: Part) -> list[ast.Statement]:
        if isinstance(part, Call):
            return self._compute(part)
        if part.kind == "seq":
            return [statement for each in part.parts for statement in self._block(each)]
        if part.kind == "par":
            return [ast.Par(tuple(tuple(self._block(each)) for each in part.parts))] if part.parts else []
        if part.kind == "notify":
            return [ast.Notify(tuple(each.tree() for each in part.parts))]
        return [ast.Wait(each.tree()) for each in part.parts]

    def _compute(self, call: Call) -> list[ast.Statement]:
        """Calls among its arguments come before it."""
        before: list[ast.Statement] = []
        arguments: list[ast.Value] = []
        for argument in call.arguments:
            if isinstance(argument, Call):
                out = argument.out or self._fresh()
                before += self._compute(argument.to(out))
                arguments.append(out.tree())
            else:
                arguments.append(argument.tree() if isinstance(argument, Named) else _constant(argument))
        for each in (call.made.abstract, call.made.implementation):
            if self._components.setdefault(each.name, each) != each:
                raise BadInput(f"two components are called '{each.name}'", "give one of the functions another name")
        if call.made.abstract.params and call.made.abstract.params[0].mode == "out":
            arguments.insert(0, (call.out or self._fresh()).tree())
        return [*before, ast.Compute(call.made.abstract.name, tuple(arguments))]

    def _fresh(self) -> Named:
        self._unnamed += 1
        return Named("unnamed", (self._unnamed,))


def _constant(value: Any) -> ast.Value:
    if isinstance(value, int) and not isinstance(value, bool):
        return ast.Integer(value)
    if isinstance(value, float):
        return ast.Real(value)
    if isinstance(value, str):
        return ast.String(value)
    raise BadInput(f"{value!r:.60} cannot be an argument of a component",
                   "numbers, texts and data can; hand anything else over as data")
