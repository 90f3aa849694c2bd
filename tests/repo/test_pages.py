"""The pages name files, folders and functions of today's tree, docs/architecture.md above all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repo.source import ROOT, SRC

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
ARCHITECTURE = DOCS / "architecture.md"
SOURCES = SRC / "windfall"
PACKAGES = "|".join(sorted(path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_the_pages_exist(page: Path) -> None:
    text = page.read_text()
    near = ("agenda", "run", "build", "components", "dagman", "files", "graphs", "wfformat", "yvetteml")
    for name in re.findall(rf"`((?:{PACKAGES})/(?:[\w/]+\.(?:py|lark|sh)|[\w/]*/))`", text):
        assert (SOURCES / name).exists(), f"{page.name} names {name}"
    for name in re.findall(rf"`((?:{'|'.join(near)})/\w+\.py)`", text):  # on a page about one package
        assert [*SOURCES.glob(f"*/{name}")], f"{page.name} names {name}"
    for name in re.findall(r"`((?:scripts|examples|tests|bench|docs|src)/[\w./-]+)[` ]", text):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def section(title: str) -> str:
    return re.split(r"^## ", ARCHITECTURE.read_text().split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def path_of_one_task() -> list[tuple[str, list[str]]]:
    """Return the files on the path, each with the functions that the page names."""
    rows = re.findall(r"^\|[^|\n]*\| `([^`]*)` \|([^|\n]*)\|$", section("The path of one task"), re.MULTILINE)
    return [(file, re.findall(r"`(\w+)\(\)`", functions)) for file, functions in rows]


def test_architecture_lists_every_folder_of_the_source() -> None:
    folders = {str(path.parent.relative_to(SOURCES)) + "/" for path in SOURCES.rglob("*.py")} - {"./"}
    listed = re.findall(r"^\| `([\w/]+/)` \| [^|]+ \|", section("Folders"), re.MULTILINE)
    assert sorted(listed) == sorted(folders)


def test_path_of_one_task_takes_at_most_25_files() -> None:
    files = {file for file, _ in path_of_one_task()}
    assert 10 < len(files) <= 25
    assert f"through {len(files)} files" in section("The path of one task")


@pytest.mark.parametrize("file, functions", [pytest.param(*row, id=row[0]) for row in path_of_one_task()])
def test_path_of_one_task_names_functions_that_exist(file: str, functions: list[str]) -> None:
    tree = ast.parse((SOURCES / file).read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert functions and set(functions) <= defined


def questions() -> list[tuple[str, list[str]]]:
    """Return the rows of the index of questions: the file, and the names that each row leads to."""
    rows = re.findall(r"^\| [^|\n]+ \| `([^`]*)` \| ([^|\n]*) \|$", (DOCS / "where.md").read_text(), re.MULTILINE)
    return [(file, re.findall(r"`(\w+)`", names)) for file, names in rows]


def test_index_of_questions_names_functions_that_exist() -> None:
    assert len(questions()) > 150
    missing = []
    for file, names in questions():
        tree = ast.parse((SOURCES / file).read_text())
        defined = {node.name for node in ast.walk(tree)
                   if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        missing += [f"{file}: {name}" for name in names or ["no name"] if name not in defined]
    assert not missing


def test_index_of_questions_leads_to_every_decider() -> None:
    """Sessions hold memory and decide nothing; the grant's draft is a record."""
    deciders = {str(path.relative_to(SOURCES)) for path in (SOURCES / "core" / "decide").rglob("*.py")}
    known = {file for file, _ in questions()}
    assert [file for file in sorted(deciders - known)
            if not file.endswith(("/__init__.py", "/session.py", "/draft.py"))] == []
