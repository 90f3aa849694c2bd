"""Arguments of a `compute`: values and data, checked against the component's declared parameters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windfall.workflow.components.files import Component, Parameter
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.frame import Column, Frame, Ref, StatementError
from windfall.workflow.yvetteml.values import SPELT, evaluate, integer

FITS = {"integer": ("integer", "real"), "real": ("real",), "string": ("string",)}

Bound = Column | Ref


def refer(node: ast.Name, frame: Frame) -> Ref:
    """Return the data or event that a name means in a frame."""
    indices = tuple(integer(each, frame) for each in node.indices)
    if node.name in frame.refs:
        base = frame.refs[node.name]
        return Ref(base.key, base.indices + indices)
    return Ref((frame.scope, node.name), ((frame.lead, *indices) if frame.scope else indices))


def bind(
    component: Component, node: ast.Compute, frame: Frame, note: Callable[[StatementError], None]
) -> list[Bound | None]:
    """Bind an argument to each parameter; one that does not fit is passed to `note` and bound to None."""
    params = component.params
    if len(params) != len(node.arguments):
        takes = f"{len(params)} parameter{'s' * (len(params) != 1)} ({', '.join(each.name for each in params)})"
        raise StatementError(node.at, f"'{component.name}' takes {takes}, and {len(node.arguments)} are given here")
    bound: list[Bound | None] = []
    for parameter, argument in zip(params, node.arguments, strict=True):
        try:
            bound.append(value_of(component.name, parameter, argument, frame))
        except StatementError as stop:
            note(stop)
            bound.append(None)
    return bound


def _data_for(component: str, parameter: Parameter, node: ast.Name, frame: Frame) -> Ref:
    owned = frame.declared.get(node.name)
    if owned is not None and owned.mode == "in" and parameter.mode != "in":
        raise StatementError(
            node.at,
            f"'{component}' would write '{node.name}', which is a parameter of mode in",
            'declare it with mode="inout", or write to another name',
        )
    return refer(node, frame)


def value_of(component: str, parameter: Parameter, node: ast.Value, frame: Frame) -> Bound:
    """Bind an argument to one parameter; raise StatementError if it does not fit."""
    if isinstance(node, ast.Name) and node.name not in frame.values:
        return _data_for(component, parameter, node, frame)
    column = evaluate(node, frame)
    what = f"parameter '{parameter.name}' of '{component}'"
    if parameter.mode != "in":
        raise StatementError(
            node.at, f"{what} is written ({parameter.mode}), and this is a value", "give a name for the data"
        )
    if parameter.collection:
        raise StatementError(node.at, f"{what} is a collection, and this is a value", "give the name of indexed data")
    if parameter.type not in FITS.get(column.kind, ()):
        raise StatementError(node.at, f"{what} is of type {parameter.type}, and this is {SPELT[column.kind]}")
    if parameter.type == "real" and column.kind == "integer":
        return Column("real", np.asarray(column.data, float) if isinstance(column.data, np.ndarray) else
                      float(column.data))
    return column
