"""Print a graph as text; parsing the text gives the same tree."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.workflow.yvetteml import ast

STEP = "  "


def show(block: ast.Block) -> str:
    return "".join(line + "\n" for line in _block(block, ""))


def _block(block: ast.Block, indent: str) -> Iterator[str]:
    for statement in block:
        yield from _statement(statement, indent)


def _statement(node: ast.Statement, indent: str) -> Iterator[str]:
    if isinstance(node, ast.Par):
        yield from _par(node, indent)
    elif isinstance(node, ast.Loop):
        yield f"{indent}{'par' if node.parallel else 'seq'} {_head(node)}do"
        yield from _block(node.body, indent + STEP)
        yield f"{indent}enddo"
    elif isinstance(node, ast.If):
        yield from _if(node, indent)
    else:
        yield f"{indent}{_simple(node)};"


def _simple(node: ast.Assign | ast.Wait | ast.Notify | ast.Compute) -> str:
    if isinstance(node, ast.Assign):
        return f"{value(node.target)} := {value(node.value)}"
    if isinstance(node, ast.Wait):
        return f"wait({value(node.condition)})"
    if isinstance(node, ast.Notify):
        return f"notify({', '.join(map(value, node.events))})"
    return f"compute {node.component}({', '.join(map(value, node.arguments))})"


def _par(node: ast.Par, indent: str) -> Iterator[str]:
    yield f"{indent}par"
    for number, branch in enumerate(node.branches):
        if number:
            yield f"{indent}//"
        yield from _block(branch, indent + STEP)
    yield f"{indent}endpar"


def _head(node: ast.Loop) -> str:
    parts = [f"({each.name} := {value(each.low)}; {value(each.high)})" for each in node.iterators]
    parts += [f"exclude ({', '.join(map(value, each))})" for each in node.excludes]
    return "".join(part + " " for part in parts)


def _if(node: ast.If, indent: str) -> Iterator[str]:
    yield f"{indent}if {value(node.condition)} then"
    yield from _block(node.then, indent + STEP)
    if node.otherwise:
        yield f"{indent}else"
        yield from _block(node.otherwise, indent + STEP)
    yield f"{indent}endif"


def value(node: ast.Value, least: int = 0) -> str:
    """Print a value, in parentheses if it binds less than `least`."""
    text, strength = _bare(node)
    return f"({text})" if strength < least else text


def _bare(node: ast.Value) -> tuple[str, int]:
    if isinstance(node, (ast.Integer, ast.Real)):
        return repr(node.value), ast.ATOM
    if isinstance(node, ast.String):
        return _quoted(node.value), ast.ATOM
    if isinstance(node, ast.Name):
        return node.name + "".join(f"[{value(each)}]" for each in node.indices), ast.ATOM
    if isinstance(node, ast.Unary):
        strength = ast.SIGN if node.op == "-" else ast.STRENGTH["not"]
        return ("-" if node.op == "-" else "not ") + value(node.operand, strength), strength
    if isinstance(node, ast.Compare):
        strength = ast.STRENGTH[node.op]
        return f"{value(node.left, strength + 1)} {node.op} {value(node.right, strength + 1)}", strength
    strength = ast.STRENGTH[node.rest[0][0]]
    rest = "".join(f" {op} {value(each, strength + 1)}" for op, each in node.rest)
    return value(node.first, strength + 1) + rest, strength


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'
