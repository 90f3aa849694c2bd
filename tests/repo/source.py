"""The source as syntax trees: its modules, their imports and their functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


@dataclass(frozen=True)
class Import:
    module: str  # who imports
    target: str  # what: a module, or a module and a name in it
    line: int
    lazy: bool  # inside a function
    typing_only: bool  # under `if TYPE_CHECKING`

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of all our modules by dotted name."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(), str(path))
    return found


def path_of(module: str) -> Path:
    base = SRC.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def package_of(module: str) -> str:
    """Return the package of a module: `windfall.core.apply.table` → `core`; a module directly in windfall is its
    own."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "windfall"


@cache
def imports() -> tuple[Import, ...]:
    return tuple(each for name, tree in trees().items() for each in _walk(name, tree, False, False))


def _walk(module: str, node: ast.AST, lazy: bool, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, alias.name, child.lineno, lazy, typing_only)
        elif isinstance(child, ast.ImportFrom):
            base = _base(module, child)
            for alias in child.names:
                yield Import(module, _resolve(base, alias.name), child.lineno, lazy, typing_only)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _walk(module, child, True, typing_only)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for part in child.body:
                yield from _walk(module, ast.Module([part], []), lazy, True)
            for part in child.orelse:
                yield from _walk(module, ast.Module([part], []), lazy, typing_only)
        else:
            yield from _walk(module, child, lazy, typing_only)


def _base(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    if path_of(module).name != "__init__.py":
        parts = parts[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _resolve(base: str, name: str) -> str:
    """Resolve `from a import b`: is b a module of ours, or a name in a?"""
    full = f"{base}.{name}"
    return full if full in trees() else base


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield module, node
