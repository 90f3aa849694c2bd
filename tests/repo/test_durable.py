"""Deciders emit facts and change nothing durable themselves: only `core/apply` does, through `core/state`.

The check finds every assignment to, deletion from, and changing call on a field that a state record declares without
the mark SESSION (`core/state/fields.py`), and every write into a column.  The receiver's annotation tells its record,
or else its name: in the core a `pilot` is a PilotState.  For other receivers the field's name decides, if only durable
fields bear it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from tests.repo.source import trees
from windfall.core.state import world
from windfall.core.state.columns import Attempts, Hosts, Table, Tasks
from windfall.core.state.fields import kind

DECIDE = [module for module in trees() if module.startswith("windfall.core.decide.")]
CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "sort", "update",
}  # fmt: skip
RECORDS: dict[str, Any] = {  # by the name of a variable, or of the field that holds the record
    "state": world.State, "bag": world.BagState, "pilot": world.PilotState, "site": world.SiteState,
    "cls": world.TaskClass, "target": world.TargetState, "intent": world.IntentState, "pc": world.PilotClass,
    "token": world.TokenState, "attempts": Attempts, "tasks": Tasks, "t": Tasks, "a": Attempts,
}  # fmt: skip
HELD_BY: dict[str, Any] = {  # by the field of the state that holds many of them
    "bags": world.BagState, "pilots": world.PilotState, "sites": world.SiteState, "classes": world.TaskClass,
    "targets": world.TargetState, "intents": world.IntentState, "pilot_classes": world.PilotClass,
}  # fmt: skip


def _marks(record: Any) -> dict[str, bool]:
    """Return the fields, or columns, of a record, and whether each is durable."""
    if isinstance(record, type) and issubclass(record, Table):
        return {prefix + name: True for name, _ in record.LAYOUT for prefix in ("", "np_")}
    return {field.name: kind(field) != "session" for field in fields(record)} if is_dataclass(record) else {}


@cache
def only_durable_names() -> frozenset[str]:
    """Return the names that durable fields bear, and no session, draft or message."""
    durable: set[str] = set()
    other: set[str] = set()
    for module in trees():
        if module.startswith("windfall.core.state."):
            for record in vars(import_module(module)).values():
                if isinstance(record, type) and (is_dataclass(record) or issubclass(record, Table)):
                    for name, is_durable in _marks(record).items():
                        (durable if is_durable else other).add(name)
        elif module in DECIDE or module.startswith("windfall.core.messages."):
            other.update(_attributes(trees()[module]))
    return frozenset(durable - other)


def _attributes(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the fields of a module's classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target).removeprefix("self.")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node.attr


def durable_writes(tree: ast.AST) -> list[str]:
    """Return `line: target` of every write to a durable field."""
    return [
        f"{node.lineno}: {ast.unparse(target)}"
        for function in ast.walk(tree) if isinstance(function, ast.FunctionDef)
        for node, target in _writes(function) if _is_durable(target, function)
    ]  # fmt: skip


def _is_durable(target: ast.Attribute, function: ast.FunctionDef) -> bool:
    receiver = target.value
    if isinstance(receiver, ast.Attribute) and receiver.attr != "state" and ast.unparse(receiver.value) == "turn":
        return False  # a session of the turn
    if ast.unparse(receiver) in ("self", "turn") or ast.unparse(receiver).endswith(".session"):
        return False
    record = _record(receiver, function)
    return _marks(record).get(target.attr, False) if record is not None else target.attr in only_durable_names()


def _record(receiver: ast.expr, function: ast.FunctionDef) -> Any:
    if isinstance(receiver, ast.Subscript) and isinstance(receiver.value, ast.Attribute):
        return HELD_BY.get(receiver.value.attr)
    name = receiver.attr if isinstance(receiver, ast.Attribute) else ast.unparse(receiver)
    for arg in [*function.args.args, *function.args.kwonlyargs]:
        if arg.arg == name and arg.annotation is not None:
            return getattr(world, ast.unparse(arg.annotation), RECORDS.get(name))
    if name == "hosts" and ast.unparse(receiver) == "state.hosts":
        return Hosts
    return RECORDS.get(name)


def _writes(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt | ast.expr, ast.Attribute]]:
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            targets = [node.func.value] if isinstance(node.func.value, (ast.Attribute, ast.Subscript)) else []
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                while isinstance(each, ast.Subscript):
                    each = each.value
                if isinstance(each, ast.Attribute) and isinstance(node, (ast.stmt, ast.expr)):
                    yield node, each


@pytest.mark.parametrize("module", DECIDE)
def test_decider_assigns_to_no_durable_field(module: str) -> None:
    assert [f"{module}:{text}" for text in durable_writes(trees()[module])] == []


@pytest.mark.parametrize("code", [
    "def f(bag): bag.budget = 1", "def f(turn): turn.state.next_bag += 1", "def f(state): del state.bags[1]",
    "def f(state): state.keys.pop('x')", "def f(attempts): attempts.state[3] = 0", "def f(t): t.np_state[1:2] = 4",
    "def f(cls): cls.time_retries, x = 1, 2", "def f(other): other.core_ms_used = 1",
    "def f(x: PilotState): x.granted = 5", "def f(turn): turn.state.bags[1].counts[2] -= 1",
])  # fmt: skip
def test_durable_writes_finds_every_write(code: str) -> None:
    assert len(durable_writes(ast.parse(code))) == 1


@pytest.mark.parametrize("code", [
    "def f(pilot): pilot.heard = 1", "def f(turn): turn.provision.changed = True", "def f(bag): return bag.budget",
    "def f(state): return sorted(state.bags)", "def f(self): self.bags = {}", "def f(budget): budget = 1",
])  # fmt: skip
def test_durable_writes_ignores_sessions_and_readers(code: str) -> None:
    assert durable_writes(ast.parse(code)) == []
