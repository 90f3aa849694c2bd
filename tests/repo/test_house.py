"""House rules that a script can check: size and shape of code, and sentences that begin without a subject.

Each check returns the places that break its rule.  CEILINGS says how many such places are allowed; lower a ceiling
whenever places disappear, and never raise one.  A place is a hint to look at: mend the code, not only its wording.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePath

import pytest

from tests.repo.source import ROOT, SRC, functions, trees

MAX_NAMES_IN_FOLDER = 15
MAX_BRANCHES = 10
MAX_POSITIONAL = 5
MAX_PARAMETERS = 5
MAX_MODULES_OF_ONE_CLASS_NAME = 2
MAX_WORDS_OF_CHANGELOG_ENTRY = 40

NO_SUBJECT = re.compile(
    r"(what|who|whoever|whatever|whom|whose|which|whichever|it|they|he|she|his|their|its|them|that|those|these|there"
    r"|one|ones|of|nobody|nothing|somebody|something|somewhere|everybody|everything|others|another|some|so|as|where"
    r"|wherever|when|once|all that|only what|none)\b", re.IGNORECASE,
)  # fmt: skip
"""First words of a docstring that names no subject: pronouns, relative clauses, `Of`."""

NO_SUBJECT_IN_TEST = re.compile(
    r"test_(what|who|whoever|whatever|whom|whose|which|where|it|its|they|that|those|these|there|of|so|some|nobody"
    r"|nothing|somebody|something|others?|another|one|no_more|none|not|only|or|and|but|than|if|as|to|in|on|by|with"
    r"|without|from|for|at)(_|$)"
)
MIN_WORDS_OF_TEST_NAME = 3

BANNED = {
    "poor": "starved_pilots", "lit": "last_active_ms", "stirred": "recheck_waiting or sites_with_orders",
    "stir": "recheck_withheld", "frugal": "disk_low", "barren": "no_match_at_version", "stinted": "has_allowance",
    "capped": "has_per_host", "ruled": "has_expressions", "vain": "fail_over_misses", "lasts": "worst_case_ms",
    "thought": "mean_at_last_scan", "crowd": "concurrency_group", "crowds": "running_in_group",
    "overruns": "time_retries", "boosts": "memory_retries", "lifted": "aged_since", "doubled": "replica_waste_ms",
    "shunned": "guests_refused", "strays": "unknown_attempts or unknown_jobs", "surplus": "overloaded_pilots",
    "feed_parked": "grant_to_waiting", "rich": "donor", "redeem": "clear_strikes", "restand": "restore_barred",
    "homeward": "outputs", "purse": "accounts", "said": "what was said: text, answer, reason",
    "whence": "source or directory",
}  # fmt: skip
"""Identifiers that name a mood or a riddle, each with the name to use."""


def crowded_folders() -> Iterator[str]:
    """Yield the folders of the source that hold more than fifteen modules and folders."""
    names: dict[PurePath, set[str]] = defaultdict(set)
    for path in SRC.rglob("*.py"):
        place = PurePath(path.relative_to(SRC))
        for parent, child in zip(place.parents, (place, *place.parents), strict=False):
            names[parent].add(child.name)
    for folder, inside in names.items():
        if (count := len(inside - {"__init__.py"})) > MAX_NAMES_IN_FOLDER:
            yield f"{folder}: {count} names"


def subjectless_docstrings() -> Iterator[str]:
    """Yield the docstrings whose first sentence has no noun as its subject."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if NO_SUBJECT.match(text) and not text.endswith("?"):
                    yield f"{module}:{getattr(node, 'lineno', 1)}: {text[:90]}"


def vague_test_names() -> Iterator[str]:
    """Yield the tests whose name has fewer than three words or begins without a subject."""
    for path, node in _test_functions():
        if NO_SUBJECT_IN_TEST.match(node.name) or node.name.count("_") < MIN_WORDS_OF_TEST_NAME:
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"


def long_positional_calls() -> Iterator[str]:
    """Yield the calls that pass more than five arguments without naming them."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and len(node.args) > MAX_POSITIONAL:
                yield f"{module}:{node.lineno}: {ast.unparse(node.func)[:60]} ({len(node.args)})"


def long_signatures() -> Iterator[str]:
    """Yield the functions that take six or more parameters."""
    for module, node in functions():
        count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
        if count > MAX_PARAMETERS:
            yield f"{module}:{node.lineno}: {node.name} ({count})"


def branchy_functions() -> Iterator[str]:
    """Yield the functions that branch more than ten times."""
    for module, node in functions():
        if (count := sum(map(_branches, ast.walk(node)))) > MAX_BRANCHES:
            yield f"{module}:{node.lineno}: {node.name} ({count})"


def repeated_class_names() -> Iterator[str]:
    """Yield the class names that stand in more than two modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    for name, found in modules.items():
        if len(found) > MAX_MODULES_OF_ONE_CLASS_NAME:
            yield f"{name}: {', '.join(found)}"


def banned_identifiers() -> Iterator[str]:
    """Yield the uses of the banned identifiers, one per module and name."""
    for module, tree in trees().items():
        names = {name for node in ast.walk(tree) for name in _identifiers(node)} | set(module.split("."))
        yield from (f"{module}: {name} → {BANNED[name]}" for name in sorted(names & set(BANNED)))


def long_changelog_entries() -> Iterator[str]:
    """Yield the changelog entries of more than forty words."""
    for entry in re.split(r"^- ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        text = re.split(r"\n\n|\n#", entry)[0]
        if len(text.split()) > MAX_WORDS_OF_CHANGELOG_ENTRY:
            yield " ".join(text.split())[:90]


CEILINGS: dict[Callable[[], Iterator[str]], int] = {
    crowded_folders: 0,
    subjectless_docstrings: 11,
    vague_test_names: 0,
    long_positional_calls: 0,
    long_signatures: 27,
    branchy_functions: 22,
    repeated_class_names: 0,
    banned_identifiers: 16,
    long_changelog_entries: 0,
}


@pytest.mark.parametrize(("check", "ceiling"), CEILINGS.items(), ids=[check.__name__ for check in CEILINGS])
def test_house_rule_is_broken_no_more_often_than_its_ceiling(check: Callable[[], Iterator[str]], ceiling: int) -> None:
    places = sorted(check())
    shown = "\n".join(places)
    assert len(places) <= ceiling, f"{check.__doc__}\n{len(places)} places, the ceiling is {ceiling}:\n{shown}"


def test_each_test_name_is_used_once_per_file() -> None:
    counts = Counter((path, node.name) for path, node in _test_functions() if node.col_offset == 0)
    assert [f"{path.name}: {name}" for (path, name), count in counts.items() if count > 1] == []


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    kinds = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.Assert)
    return int(isinstance(node, kinds))


def _identifiers(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name


@cache
def _test_functions() -> tuple[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef], ...]:
    return tuple(
        (path, node)
        for path in sorted((ROOT / "tests").rglob("test_*.py")) for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    )


# --- the checks themselves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["What a pilot holds.", "Of a bag.", "It has waited.", "One per site.", "Nobody is."])
def test_docstring_without_a_subject_is_recognised(text: str) -> None:
    assert NO_SUBJECT.match(text)


@pytest.mark.parametrize("text", ["Return the bag.", "Offer work.", "Sometimes slow.", "Iterate over the sites."])
def test_docstring_with_a_subject_or_verb_is_accepted(text: str) -> None:
    assert not NO_SUBJECT.match(text)


def test_branches_of_a_function_include_nested_expressions() -> None:
    code = "def f(x):\n    if x and x > 1 or x < 0:\n        return [y for y in x if y]\n    return 1 if x else 2"
    assert sum(map(_branches, ast.walk(ast.parse(code)))) == 5
