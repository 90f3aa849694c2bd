"""YvetteML as one would write it down first: one instance after the other, sets of predecessors, nothing clever."""

from __future__ import annotations

from typing import Any

from windfall.workflow.yvetteml import ast


class Wrong(Exception):
    pass


LOST = object()


class Naive:
    """Walks a program; `tasks` maps each task, as text, to its number; `before` the nodes that each node waits for."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.tasks: dict[int, str] = {}
        self.notified: dict[tuple[Any, ...], set[int]] = {}
        self.waits: list[tuple[int, tuple[Any, ...]]] = []

    def run(self, program: ast.Block) -> None:
        self.block(program, {}, set())
        for node, event in self.waits:
            if event not in self.notified:
                raise Wrong(f"{event} is never notified")
            self.before[node] |= self.notified[event]

    def node(self, before: set[int]) -> int:
        self.before.append(set(before))
        return len(self.before) - 1

    def block(self, block: ast.Block, env: dict[str, Any], before: set[int]) -> set[int]:
        for statement in block:
            before = self.statement(statement, env, before)
        return before

    def statement(self, node: ast.Statement, env: dict[str, Any], before: set[int]) -> set[int]:
        if isinstance(node, ast.Compute):
            number = self.node(before)
            values = ", ".join(str(self.value(each, env)) for each in node.arguments)
            self.tasks[number] = f"{node.component}({values})"
            return {number}
        if isinstance(node, ast.Assign):
            env[node.target.name] = self.value(node.value, env)
            return before
        if isinstance(node, ast.Wait):
            gate = self.node(before)
            names = [node.condition] if isinstance(node.condition, ast.Name) else [
                node.condition.first, *(each for _, each in node.condition.rest)]
            self.waits += [(gate, self.event(each, env)) for each in names]
            return {gate}
        if isinstance(node, ast.Notify):
            for each in node.events:
                self.notified.setdefault(self.event(each, env), set()).update(before)
            return before
        if isinstance(node, ast.If):
            return self.block(node.then if self.value(node.condition, env) else node.otherwise, env, before)
        if isinstance(node, ast.Par):
            ends = [self.block(branch, dict(env), before) for branch in node.branches]
            env.update(dict.fromkeys(_assigned(node), LOST))
            return {self.node(set().union(before, *ends))}
        return self.loop(node, env, before)

    def loop(self, node: ast.Loop, env: dict[str, Any], before: set[int]) -> set[int]:
        ends = set(before)
        outer = {each.name: env.get(each.name, KeyError) for each in node.iterators}
        kept = [values for values in self.iterations(node.iterators, dict(env))
                if not any(self.value(each[0], {**env, **values}) for each in node.excludes)]
        for values in kept:
            inner = {**env, **values}
            if node.parallel:
                ends |= self.block(node.body, inner, before)
            else:
                ends = self.block(node.body, inner, ends)
                env.update(inner)
                for name, value in outer.items():
                    if value is KeyError:
                        env.pop(name, None)
                    else:
                        env[name] = value
        if not node.parallel:
            return ends
        env.update(dict.fromkeys(_assigned(node), LOST))
        return {self.node(ends)}

    def iterations(self, iterators: tuple[ast.Iterator, ...], env: dict[str, Any]) -> list[dict[str, int]]:
        if not iterators:
            return [{}]
        head, *rest = iterators
        found = []
        for number in range(self.value(head.low, env), self.value(head.high, env) + 1):
            for more in self.iterations(tuple(rest), {**env, head.name: number}):
                found.append({head.name: number, **more})
        return found

    def event(self, node: ast.Name, env: dict[str, Any]) -> tuple[Any, ...]:
        return (node.name, *(self.value(each, env) for each in node.indices))

    def value(self, node: ast.Value, env: dict[str, Any]) -> Any:
        if isinstance(node, ast.Integer):
            return node.value
        if isinstance(node, ast.Name):
            if env.get(node.name, LOST) is LOST:
                raise Wrong(f"{node.name} has no value")
            return env[node.name]
        if isinstance(node, ast.Unary):
            value = self.value(node.operand, env)
            return not value if node.op == "not" else -value
        if isinstance(node, ast.Compare):
            a, b = self.value(node.left, env), self.value(node.right, env)
            return {"eq": a == b, "neq": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[node.op]
        total = self.value(node.first, env)
        for op, operand in node.rest:
            if op in ("and", "or") and total == (op == "or"):
                continue  # decided
            total = _apply(op, total, self.value(operand, env))
        return total

    # --- what it comes to ---------------------------------------------------------------------------------------------

    def ancestors(self) -> dict[int, set[int]]:
        """Return, for each node, all nodes before it."""
        found: dict[int, set[int]] = {}
        open_nodes: set[int] = set()

        def visit(node: int) -> set[int]:
            if node in open_nodes:
                raise Wrong("a cycle")
            if node not in found:
                open_nodes.add(node)
                found[node] = set().union(self.before[node], *(visit(each) for each in self.before[node]))
                open_nodes.remove(node)
            return found[node]

        for node in range(len(self.before)):
            visit(node)
        return found

    def order(self) -> dict[str, set[str]]:
        """Return, for each task, all tasks before it."""
        return {self.tasks[node]: {self.tasks[each] for each in all_before if each in self.tasks}
                for node, all_before in self.ancestors().items() if node in self.tasks}


def direct(order: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Pairs with nothing between."""
    return {(a, b) for b, before in order.items() for a in before if not any(a in order[c] for c in before)}


def depth(order: dict[str, set[str]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for task in sorted(order, key=lambda each: len(order[each])):
        levels[task] = max((levels[each] + 1 for each in order[task]), default=0)
    return levels


def _apply(op: str, a: Any, b: Any) -> Any:
    if op in ("/", "%"):
        if b == 0:
            raise Wrong("division by zero")
        quotient = int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if op == "/" else a - b * quotient
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "and": lambda: a and b,
            "or": lambda: a or b}[op]()


def _assigned(node: ast.Statement) -> set[str]:
    if isinstance(node, ast.Assign):
        return {node.target.name}
    if isinstance(node, ast.Par):
        return {name for branch in node.branches for each in branch for name in _assigned(each)}
    if isinstance(node, ast.If):
        return {name for each in (*node.then, *node.otherwise) for name in _assigned(each)}
    if isinstance(node, ast.Loop):
        return {name for each in node.body for name in _assigned(each)} - {each.name for each in node.iterators}
    return set()
