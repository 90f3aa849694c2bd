"""Variables that a block assigns and reads: these tell which ones a loop carries from one iteration to the next."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.workflow.yvetteml import ast


def assigned(block: ast.Block) -> dict[str, int]:
    """Return the names that a block assigns, and where; a name assigned in a `par` has no value after it."""
    found: dict[str, int] = {}
    for node in block:
        if isinstance(node, ast.Assign):
            found.setdefault(node.target.name, node.at)
        elif isinstance(node, ast.If):
            found = {**assigned(node.then), **assigned(node.otherwise), **found}
        elif isinstance(node, ast.Loop) and not node.parallel:
            inside = {name: at for name, at in assigned(node.body).items() if name not in _own(node)}
            found = {**inside, **found}
        elif isinstance(node, (ast.Loop, ast.Par)):
            found = {**lost(node), **found}
    return found


def lost(node: ast.Loop | ast.Par) -> dict[str, int]:
    """Return the names assigned in a `par`, which have no single value afterwards, and where."""
    bodies = (node.body,) if isinstance(node, ast.Loop) else node.branches
    own = _own(node) if isinstance(node, ast.Loop) else ()
    return {name: at for body in bodies for name, at in assigned(body).items() if name not in own}


def carried(loop: ast.Loop) -> list[str]:
    """Return the names that an iteration may read as the iteration before has left them."""
    reads: set[str] = set()
    _reads(loop.body, set(_own(loop)), reads)
    return sorted(reads & set(assigned(loop.body)))


def occurring(node: ast.Statement) -> Iterator[str]:
    """Yield every name in a statement, also those only assigned."""
    yield from mentioned(node)
    yield from assigned_anywhere(node)


def assigned_anywhere(node: ast.Statement) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        yield node.target.name
    for block in inside(node):
        for each in block:
            yield from assigned_anywhere(each)


def mentioned(node: ast.Statement) -> Iterator[str]:
    """Yield every name read in a statement, at any depth."""
    for value in values_of(node):
        yield from names_of(value)
    for block in inside(node):
        for each in block:
            yield from mentioned(each)


def inside(node: ast.Statement) -> tuple[ast.Block, ...]:
    """Return the blocks inside a statement."""
    if isinstance(node, ast.Par):
        return node.branches
    if isinstance(node, ast.Loop):
        return (node.body,)
    return (node.then, node.otherwise) if isinstance(node, ast.If) else ()


def _own(loop: ast.Loop) -> tuple[str, ...]:
    return tuple(each.name for each in loop.iterators)


def _reads(block: ast.Block, known: set[str], reads: set[str]) -> set[str]:
    """Add to `reads` the names read before they are surely assigned; return those surely assigned after the block."""
    for node in block:
        for value in values_of(node) if not isinstance(node, ast.Loop) else ():
            reads |= set(names_of(value)) - known
        if isinstance(node, ast.Assign):
            known = known | {node.target.name}
        elif isinstance(node, ast.If):
            known = _reads(node.then, known, reads) & _reads(node.otherwise, known, reads)
        elif isinstance(node, ast.Loop):
            _loop_reads(node, known, reads)
        elif isinstance(node, ast.Par):
            for branch in node.branches:
                _reads(branch, known, reads)
    return known


def _loop_reads(node: ast.Loop, known: set[str], reads: set[str]) -> None:
    for each in node.iterators:
        reads |= {*names_of(each.low), *names_of(each.high)} - known
        known = known | {each.name}
    for values in node.excludes:
        for value in values:
            reads |= set(names_of(value)) - known
    _reads(node.body, known, reads)


def values_of(node: ast.Statement) -> tuple[ast.Value, ...]:
    """Return the values of a statement itself, not those of the statements inside it."""
    if isinstance(node, ast.Assign):
        return (node.value, *node.target.indices)
    if isinstance(node, ast.Compute):
        return node.arguments
    if isinstance(node, (ast.Wait, ast.If)):
        return (node.condition,)
    if isinstance(node, ast.Loop):
        bounds = tuple(bound for each in node.iterators for bound in (each.low, each.high))
        return bounds + tuple(value for values in node.excludes for value in values)
    return node.events if isinstance(node, ast.Notify) else ()


def names_of(node: ast.Value) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.name
        for index in node.indices:
            yield from names_of(index)
    elif isinstance(node, ast.Unary):
        yield from names_of(node.operand)
    elif isinstance(node, ast.Compare):
        yield from names_of(node.left)
        yield from names_of(node.right)
    elif isinstance(node, ast.Chain):
        yield from names_of(node.first)
        for _, operand in node.rest:
            yield from names_of(operand)
