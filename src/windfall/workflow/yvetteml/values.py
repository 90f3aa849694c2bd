"""Evaluate expressions in all instances of a frame at once.

Arithmetic is that of 62-bit integers.  A larger result and a division by zero are mistakes, reported with the instance
in which they happen.  `/` and `%` round towards zero.
"""

from __future__ import annotations

import numpy as np

from windfall.workflow.mistakes import nearest
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.frame import Column, Data, Frame, StatementError, first
from windfall.workflow.yvetteml.parse import MAX_INTEGER
from windfall.workflow.yvetteml.scope import names_of

SPELT = {"integer": "an integer", "real": "a real number", "string": "a text", "condition": "a condition"}


def evaluate(node: ast.Value, frame: Frame) -> Column:
    if isinstance(node, ast.Integer):
        return Column("integer", node.value)
    if isinstance(node, ast.Real):
        return Column("real", node.value)
    if isinstance(node, ast.String):
        return Column("string", node.value)
    if isinstance(node, ast.Name):
        return _read(node, frame)
    if isinstance(node, ast.Unary):
        return _unary(node, frame)
    if isinstance(node, ast.Compare):
        return _compare(node, frame)
    return _logic(node, frame) if node.rest[0][0] in ("and", "or") else _arithmetic(node, frame)


def integer(node: ast.Value, frame: Frame) -> Data:
    return _of_kind(node, frame, "integer")


def condition(node: ast.Value, frame: Frame) -> Data:
    return _of_kind(node, frame, "condition")


def _of_kind(node: ast.Value, frame: Frame, kind: str) -> Data:
    column = evaluate(node, frame)
    if column.kind != kind:
        hint = "compare it, as in i % 2 eq 0" if kind == "condition" else "indices, bounds and arithmetic are integers"
        raise StatementError(node.at, f"{SPELT[kind]} is asked for here, and this is {SPELT[column.kind]}", hint)
    return column.data


# --- names ---------------------------------------------------------------------------------------------------------


def _read(node: ast.Name, frame: Frame) -> Column:
    column = frame.values.get(node.name)
    if column is not None and node.indices and column.kind in SPELT:
        raise StatementError(node.at, f"'{node.name}' is a value, and only data and events have indices")
    if not frame.n and (column is None or column.kind not in SPELT):  # never reached, perhaps nor its assignment
        raise StatementError(node.at)
    if column is None:
        raise StatementError(node.at, f"'{node.name}' has no value here", _unknown(node, frame))
    if column.kind == "broken":  # reported before
        raise StatementError(node.at)
    _require_value(node, column, frame)
    return column


def _require_value(node: ast.Name, column: Column, frame: Frame) -> None:
    """Refuse a variable that has lost its value, or has none in some instances."""
    if column.kind == "lost":
        line, _ = frame.source.place(column.at)
        raise StatementError(
            node.at,
            f"'{node.name}' was assigned inside a 'par' (line {line}), and has no one value after it",
            "what is assigned in parallel is seen there only",
        )
    if column.known is not None and not column.known.all():
        row = first(~column.known)
        raise StatementError(
            node.at, f"'{node.name}' has no value{frame.where(row)}", "it is assigned under another condition"
        )


def _unknown(node: ast.Name, frame: Frame) -> str:
    if node.name in frame.refs:
        return "it is a parameter, and data is given for it, known when it runs; to use it here, give a value"
    if node.name in frame.declared:
        return f"it is a parameter, known when it runs; to use it here, give it before: --set {node.name}=…"
    near = nearest(node.name, frame.values)
    return f"did you mean '{near}'?" if near else f"assign it before: {node.name} := …; or give it: --set {node.name}=…"


# --- arithmetic ----------------------------------------------------------------------------------------------------


def _unary(node: ast.Unary, frame: Frame) -> Column:
    if node.op == "not":
        data = condition(node.operand, frame)
        return Column("condition", ~data if isinstance(data, np.ndarray) else not data)
    column = evaluate(node.operand, frame)
    if column.kind == "real":
        return Column("real", -column.data)
    return Column("integer", -integer(node.operand, frame))


def _arithmetic(node: ast.Chain, frame: Frame) -> Column:
    total = integer(node.first, frame)
    for op, operand in node.rest:
        total = _apply(op, total, integer(operand, frame), operand, frame)
    return Column("integer", total)


def _apply(op: str, left: Data, right: Data, node: ast.Value, frame: Frame) -> Data:
    if op in ("/", "%"):
        return _divide(op, left, right, node, frame)
    if op == "*" and (isinstance(left, np.ndarray) or isinstance(right, np.ndarray)):
        _within(np.multiply(left, right, dtype=float) / 1.5, node, frame)  # int64 would wrap around
    result = left + right if op == "+" else left - right if op == "-" else left * right
    _within(result, node, frame)
    return result


def _within(result: Data, node: ast.Value, frame: Frame) -> None:
    bad = abs(result) >= MAX_INTEGER
    if np.any(bad):
        _reached(node, frame)
        most = f"integers go to {MAX_INTEGER - 1:,}"
        raise StatementError(node.at, f"the number becomes too large{frame.where(_row(bad))}", most)


def _divide(op: str, left: Data, right: Data, node: ast.Value, frame: Frame) -> Data:
    zero = right == 0
    if np.any(zero):
        _reached(node, frame)
        raise StatementError(node.at, f"division by zero{frame.where(_row(zero))}")
    quotient = abs(left) // abs(right)
    if isinstance(quotient, np.ndarray):
        quotient = np.where((np.asarray(left) < 0) != (np.asarray(right) < 0), -quotient, quotient)
    elif (left < 0) != (right < 0):
        quotient = -quotient
    return quotient if op == "/" else left - right * quotient


def _reached(node: ast.Value, frame: Frame) -> None:
    if not frame.n:
        raise StatementError(node.at)


def _row(mask: Data) -> int:
    return first(mask) if isinstance(mask, np.ndarray) else 0


# --- conditions ----------------------------------------------------------------------------------------------------


def _logic(node: ast.Chain, frame: Frame) -> Column:
    """Evaluate operands from left to right, in undecided instances: `i neq 0 and n % i eq 0` never divides by 0."""
    total = condition(node.first, frame)
    for op, operand in node.rest:
        undecided = total == (op == "and")
        if isinstance(undecided, np.ndarray):
            rows = np.flatnonzero(undecided)
            total = np.array(total)
            total[rows] = _asked(operand, frame.take(rows, len(rows), set(names_of(operand))))
        elif undecided:
            total = condition(operand, frame)
        else:
            _asked(operand, frame.none())
    return Column("condition", total)


def _asked(node: ast.Value, frame: Frame) -> Data:
    """Evaluate a condition; return False if it needs unknown values and the frame has no instance."""
    try:
        return condition(node, frame)
    except StatementError as stop:
        if frame.n or stop.report:
            raise
        return False


def _compare(node: ast.Compare, frame: Frame) -> Column:
    left, right = evaluate(node.left, frame), evaluate(node.right, frame)
    if left.kind != right.kind or left.kind == "condition":
        raise StatementError(node.at, f"{SPELT[left.kind]} cannot be compared with {SPELT[right.kind]}")
    if left.kind == "string" and node.op not in ("eq", "neq"):
        raise StatementError(node.at, "texts are equal or not, and neither is greater", "use 'eq' or 'neq'")
    a, b = left.data, right.data
    results = {"eq": a == b, "neq": a != b}
    if node.op not in results:
        results |= {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    result = results[node.op]
    return Column("condition", result.astype(bool) if isinstance(result, np.ndarray) else bool(result))
