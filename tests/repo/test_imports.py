"""The import table: which package may import which.  The folders are the architecture; this test keeps them so.

`server` and `sim` are siblings, two drivers of one core.  What ships to clusters (`wire`, `pilot`, `errors`) is Python
3.6 and the standard library.  The core is pure: it reads no clock, opens nothing, and walks everything in a defined
order.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.repo.source import Import, imports, package_of, path_of, trees

# --- the table ----------------------------------------------------------------------------------------------

ANY = ("*",)
HERE = ("pilot.run.job", "pilot.files.packed", "pilot.run.spawn", "pilot.files.staging",
        "pilot.run.environment_modules")  # retry --here
SERVER = ("model", "wire", "core", "pilot", "workflow", "sites", "market", "data", "store", "provision")

MAY_IMPORT: dict[str, tuple[str, ...]] = {  # of ours; `errors`, and one's own package, always
    "windfall": ("client",),  # the package itself, lazily
    "__main__": ("cli.main",),
    "errors": (),
    "model": ("wire.patterns",),
    "wire": (),
    "core": ("model",),
    "pilot": ("wire",),
    "workflow": ("model", "data"),
    "sites": ("model",),
    "market": ("model",),
    "data": ("model",),
    "store": ("model", "core.messages"),
    "provision": ("model", "sites", "client", "wire", "pilot.bundle", "core.messages"),
    "client": ("model", "data", "wire.archive", "wire.patterns"),
    "client.session": ("server.embedded",),  # finds a server, or starts one in this process
    "sim": ("core", "model", "wire", "workflow", "market", "pilot.agenda", "provision.order_book"),
    "server": SERVER,
    "cli": ("client", "model", "data", "workflow", "sim", "pilot.main", "pilot.bundle", "server.main",
            "server.local.doctor",
            "sites", "provision", *HERE),
    "console": (),
}
"""A row names a package, or one module of it that may import more than the rest."""

LAZILY = {
    "windfall": ("client",),
    "client": ("server.embedded",),
    "cli": ("workflow", "sim", "pilot.main", "pilot.bundle", "server.main", "server.local.doctor", "sites", "provision",
            *HERE),
}
"""Imported only inside functions, so that starting the command line does not load them."""

OUTSIDE: dict[str, tuple[str, ...]] = {  # beside the standard library
    "windfall": (), "__main__": (), "errors": (), "wire": (), "pilot": (), "data": (), "console": (),
    "model": ("msgspec",),
    "core": ("msgspec", "numpy", "highspy", "classad2"),
    "store": ("msgspec",),
    "client": ("msgspec", "cloudpickle", "pandas"),
    "cli": ("msgspec",),
    "sites": ("asyncssh",),
    "workflow": ("lark", "numpy", "msgspec", "PIL"),
}  # fmt: skip


def _matches(target: str, allowed: tuple[str, ...]) -> bool:
    inner = target.removeprefix("windfall").removeprefix(".")
    return any(inner == each or inner.startswith(each + ".") for each in allowed)


def _ours() -> Iterator[tuple[str, Import]]:
    for each in imports():
        if each.target.startswith("windfall."):  # the package itself holds the version, which all may know
            yield package_of(each.module), each


def test_every_package_has_a_line_in_the_table() -> None:
    assert {package_of(module) for module in trees()} <= set(MAY_IMPORT)


def test_packages_import_only_what_the_table_allows() -> None:
    wrong = [str(each) for package, each in _ours()
             if package_of(each.target) != package and not _matches(each.target, _row(package, each.module))]
    assert wrong == []


def _row(package: str, module: str) -> tuple[str, ...]:
    own = MAY_IMPORT.get(module.removeprefix("windfall."), ())
    return ("errors", *MAY_IMPORT[package], *own)


def test_entry_points_of_other_packages_are_imported_lazily() -> None:
    wrong = [str(each) for package, each in _ours()
             if _matches(each.target, LAZILY.get(package, ())) and not (each.lazy or each.typing_only)]
    assert wrong == []


def test_packages_import_only_the_listed_libraries() -> None:
    wrong = []
    for each in imports():
        top = each.target.split(".")[0]
        allowed = OUTSIDE.get(package_of(each.module), ANY)
        if top not in sys.stdlib_module_names and top != "windfall" and allowed != ANY and top not in allowed:
            wrong.append(str(each))
    assert wrong == []


IN_CORE = ("messages", "state", "expressions", "apply", "persist", "decide", "read", "invariants")
MAY_IMPORT_IN_CORE: dict[str, tuple[str, ...]] = {  # folders of the core; one's own, always
    "messages": (),
    "state": ("messages",),
    "expressions": ("messages", "state"),
    "apply": ("messages", "state", "expressions"),
    "persist": ("messages", "state", "apply"),
    "decide": ("messages", "state", "expressions"),
    "read": ("messages", "state", "expressions", "decide"),
    "invariants": IN_CORE,
}
"""Folding and recovery never decide, so a new policy cannot rewrite the past."""


def test_folders_of_the_core_import_only_what_the_table_allows() -> None:
    wrong = []
    for each in imports():
        importer, target = _core_folder(each.module), _core_folder(each.target)
        if importer in IN_CORE and target in IN_CORE and target not in (importer, *MAY_IMPORT_IN_CORE[importer]):
            wrong.append(str(each))
    assert wrong == []


def _core_folder(module: str) -> str:
    return module.removeprefix("windfall.core.").split(".")[0] if module.startswith("windfall.core.") else ""


def test_modules_import_each_other_without_cycles() -> None:
    """Typing-only and lazy imports count: a reader has to follow them as well."""
    knots = {tuple(module.removeprefix("windfall.") for module in knot) for knot in find_knots(_import_graph())}
    assert knots == set()


def _import_graph() -> dict[str, list[str]]:
    """Return the modules that each module imports.  A package's own modules may import the package."""
    graph: dict[str, list[str]] = {module: [] for module in trees()}
    for _, each in _ours():
        if each.target in graph and not each.module.startswith(each.target + ".") and each.target != each.module:
            graph[each.module].append(each.target)
    return graph


def find_knots(graph: dict[str, list[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    knots: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                knots.append(sorted(stack[start:]))
            del stack[start:]

    for node in graph:
        if node not in index:
            visit(node)
    return knots


@pytest.mark.parametrize(("graph", "knots"), [
    ({"a": ["b"], "b": ["c"], "c": []}, []),
    ({"a": ["b"], "b": ["a", "c"], "c": []}, [["a", "b"]]),
    ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a", "e"], "e": ["d"]}, [["a", "b", "c"], ["d", "e"]]),
])  # fmt: skip
def test_find_knots_returns_every_cycle(graph: dict[str, list[str]], knots: list[list[str]]) -> None:
    assert find_knots(graph) == knots


# --- what ships to clusters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [m for m in trees() if package_of(m) in ("wire", "pilot", "errors")])
def test_pilot_code_parses_as_python_3_6(module: str) -> None:
    ast.parse(path_of(module).read_text(), feature_version=(3, 6))
    for node in ast.walk(trees()[module]):
        assert not isinstance(node, (ast.NamedExpr, ast.Match)), f"{module}:{node.lineno}"
        assert not (isinstance(node, ast.JoinedStr) and _has_equals(node)), f"{module}:{node.lineno}"
        assert not (isinstance(node, ast.ImportFrom) and node.module == "__future__"
                    and any(alias.name == "annotations" for alias in node.names)), f"{module}:{node.lineno}: 3.7"


def _has_equals(node: ast.JoinedStr) -> bool:
    return any(isinstance(part, ast.FormattedValue) and ast.unparse(part).endswith("=}") for part in node.values)


NEWER = {  # standard library modules newer than 3.6; pilot code imports them with getattr or try, if at all
    "dataclasses", "contextvars", "graphlib", "zoneinfo", "tomllib", "importlib.metadata", "importlib.resources",
}  # fmt: skip


def test_pilot_code_imports_no_module_newer_than_3_6() -> None:
    assert [str(each) for each in imports()
            if package_of(each.module) in ("wire", "pilot", "errors") and each.target in NEWER] == []


# --- dialects of sites ---------------------------------------------------------------------------------------

DIALECTS = ("job", "text", "script", "slurm", "gridengine", "htcondor", "pbs", "torque", "lsf", "bare", "table")
WORDS_ONLY = {
    "__future__", "typing", "collections.abc", "dataclasses", "itertools", "difflib", "re", "shlex", "json",
    "xml.parsers.expat", "calendar", "datetime",
}  # fmt: skip


def test_dialects_import_only_text_modules() -> None:
    wrong = [str(each) for each in imports() if each.module.removeprefix("windfall.sites.dialects.") in DIALECTS
             and each.target.split(".")[0] != "windfall" and each.target not in WORDS_ONLY]
    assert wrong == []
    assert {f"windfall.sites.dialects.{name}" for name in DIALECTS} <= set(trees())


# --- purity of the core -------------------------------------------------------------------------------------

PURE = {
    "__future__", "typing", "collections", "collections.abc", "dataclasses", "enum", "bisect", "heapq", "itertools",
    "functools", "operator", "math", "struct", "array", "base64", "binascii", "zlib", "msgspec", "numpy",
    "numpy.typing", "fractions", "highspy", "classad2",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "hash", "id"}
IMPURE_ATTRIBUTES = {"random", "fromfile", "tofile", "memmap", "load", "save", "loadtxt", "savetxt"}  # of numpy
CORE = [module for module in trees() if package_of(module) == "core"]


def test_core_imports_only_pure_modules() -> None:
    wrong = [str(each) for each in imports() if package_of(each.module) == "core"
             and each.target.split(".")[0] != "windfall" and each.target not in PURE]
    assert wrong == []


def test_classads_module_alone_imports_classad2() -> None:
    theirs = ("classad2", "classad", "htcondor2", "htcondor")
    users = [each for each in imports() if each.target.split(".")[0] in theirs]
    assert {each.module for each in users} == {"windfall.core.expressions.classads"}
    assert all(each.lazy for each in users)


@pytest.mark.parametrize("module", CORE)
def test_core_calls_nothing_impure(module: str) -> None:
    wrong = []
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            wrong.append(f"{module}:{node.lineno} calls {node.func.id}")
        if (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
                and node.attr in IMPURE_ATTRIBUTES):
            wrong.append(f"{module}:{node.lineno} uses numpy.{node.attr}")
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.Global)):
            wrong.append(f"{module}:{node.lineno} {type(node).__name__}")
    assert wrong == []


@pytest.mark.parametrize("module", CORE)
def test_core_never_iterates_over_a_set(module: str) -> None:
    """The order of a set depends on its history, so two replays could differ.  `sorted(…)` and `in` are fine."""
    wrong = [f"{module}:{line}" for line in walked_sets(trees()[module])]
    assert wrong == []


def walked_sets(tree: ast.AST) -> list[int]:
    """Return the lines where code iterates over a set in the set's own order."""
    sets = {name for node in ast.walk(tree) for name in _named_sets(node)}
    walked = []
    for node in ast.walk(tree):
        for each in _walked(node):
            if _is_set(each) or (isinstance(each, (ast.Name, ast.Attribute)) and ast.unparse(each) in sets):
                walked.append(each.lineno)
    return walked


def _named_sets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign) and _is_set(node.value):
        yield from (ast.unparse(target) for target in node.targets)
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(("set", "frozenset")):
        yield ast.unparse(node.target)
    if isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation).startswith(("set", "frozenset")):
        yield node.arg


def _walked(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.For, ast.comprehension)):
        yield node.iter
    if isinstance(node, ast.Starred):
        yield node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id in ("list", "tuple", "iter", "enumerate", "map", "zip", "filter", "next", "reversed"):
            yield from node.args
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        if node.func.attr == "pop":
            yield node.func.value


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_set(node.left) or _is_set(node.right)
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return called or isinstance(node, (ast.Set, ast.SetComp))


@pytest.mark.parametrize("code", [
    "for x in {1, 2}: pass", "[x for x in set(y)]", "s = {1}\nfor x in s: pass", "list({1} | t)",
    "def f(s: set[int]): [*s]", "s = set()\ns.pop()",
])  # fmt: skip
def test_walked_sets_finds_every_iteration_over_a_set(code: str) -> None:
    assert walked_sets(ast.parse(code))


@pytest.mark.parametrize("code", ["x in {1, 2}", "sorted({1, 2})", "s = [1]\nfor x in s: pass", "len({1})"])
def test_walked_sets_ignores_membership_and_sorting(code: str) -> None:
    assert not walked_sets(ast.parse(code))
