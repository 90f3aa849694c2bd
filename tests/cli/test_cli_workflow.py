"""`windfall compile` and `windfall component`, as processes of their own; no server is started for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.real import CommandLine
from tests.workflow import papers
from tests.workflow.library import MATRICES

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "matrix"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    (tmp_path / "work").mkdir()
    return CommandLine(tmp_path / "home", tmp_path / "work")


def test_compile_prints_tasks_depth_width_and_longest_chain(line: CommandLine) -> None:
    done = line("compile", str(EXAMPLE / "product.query"), "--components", str(EXAMPLE), "--set", "div=3", "--json")
    found = json.loads(done.stdout)
    assert (found["tasks"], found["depth"], found["width"]) == (18 + 27 + 27, 30, 27)
    text = line("compile", str(EXAMPLE / "product.query"), "--components", str(EXAMPLE)).stdout
    assert text.startswith("product: 24 tasks, 33 edges, depth 11, width 8\nlongest chain: MatrixLoad ×2 → ")
    assert not (line.home / "server.json").exists()


def test_figure_2_compiles_without_its_credentials(line: CommandLine) -> None:
    """The printed listing has one mistake, its credentials, whether its components are known or not."""
    (line.folder / "figure2.query").write_text(papers.FIGURE_2)
    (line.folder / "parts.xml").write_text(f"<yml-query>{MATRICES}</yml-query>")
    for more in ([], ["--components", "parts.xml"]):
        done = line("compile", "figure2.query", *more, "--json")
        assert done.returncode == 2
        error = json.loads(done.stdout)["error"]
        assert error["where"] == "figure2.query:2:12" and "mistakes" not in error and "token" in error["hint"]
    (line.folder / "figure2.query").write_text(papers.without_credentials(papers.FIGURE_2))
    found = json.loads(line("compile", "figure2.query", "--components", "parts.xml", "--json").stdout)
    assert (found["tasks"], found["edges"], found["depth"], found["width"]) == (24, 33, 11, 8)


def test_compile_prints_all_mistakes_with_their_places(line: CommandLine) -> None:
    (line.folder / "bad.query").write_text("<application><graph>\ncompute nope(x);\nwait(e);\n</graph></application>")
    done = line("compile", "bad.query")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "windfall: bad.query:2:9: there is no component 'nope'",
        "    compute nope(x);",
        "            ^",
        "  hint: --components FILE says where it is; 'windfall component ls' lists those kept, 'component add FILE' "
        "adds one",
        "bad.query:3:6: 'e' is waited for and never notified",
        "    wait(e);",
        "         ^",
        "  hint: somewhere else: notify(e);",
        "2 mistakes",
    ]
    found = json.loads(line("compile", "bad.query", "--json").stdout)["error"]["mistakes"]
    assert [each["where"] for each in found] == ["bad.query:2:9", "bad.query:3:6"]


@pytest.mark.parametrize(("arguments", "said"), [
    (["compile", "none.query"], "cannot read none.query"),
    (["compile", str(EXAMPLE / "components.xml")], "holds components, but no application"),
    (["compile", str(EXAMPLE / "product.query"), "--set", "div"], "it takes NAME=VALUE"),
    (["compile", str(EXAMPLE / "product.query"), "--set", "x=1"], "has no parameter 'x'"),
    (["component", "add"], "takes files"),
    (["component", "ls", "x"], "takes no name"),
    (["component", "show", "Nope"], "there is no component 'Nope'"),
    (["component", "show", "Nope@x"], "is not NAME or NAME@VERSION"),
])
def test_compile_and_component_refuse_wrong_arguments(line: CommandLine, arguments: list[str], said: str) -> None:
    done = line(*arguments)
    assert done.returncode == 2 and said in done.stderr


def test_catalogue_keeps_components_until_they_are_removed(line: CommandLine) -> None:
    assert "no components yet" in line("component", "ls").stdout
    added = line("component", "add", str(EXAMPLE / "components.xml")).stdout.splitlines()
    assert added[0] == "MatrixLoad, version 1" and len(added) == 6
    assert "is there already" in line("component", "add", str(EXAMPLE / "components.xml")).stdout
    rows = json.loads(line("component", "ls", "--json").stdout)
    assert [(row["component"], row["version"], row["type"]) for row in rows] == [
        ("MatrixComp", 1, "abstract"), ("MatrixComp_Impl", 1, "impl"), ("MatrixLoad", 1, "abstract"),
        ("MatrixLoad_Impl", 1, "impl"), ("MatrixProduct", 1, "abstract"), ("MatrixProduct_Impl", 1, "impl")]
    assert json.loads(line("compile", str(EXAMPLE / "product.query"), "--json").stdout)["tasks"] == 24
    assert 'name="MatrixLoad"' in line("component", "show", "MatrixLoad@1").stdout
    assert line("component", "rm", "MatrixLoad").stdout == "MatrixLoad: removed version 1\n"
    done = line("compile", str(EXAMPLE / "product.query"))
    assert done.returncode == 2 and "there is no component 'MatrixLoad'" in done.stderr


def test_compile_and_graph_read_wfformat(line: CommandLine) -> None:
    tasks = [{"name": f"t_{n}", "id": f"t_{n}", "parents": [f"t_{n - 1}"] * (n > 0), "children": []} for n in range(3)]
    body = {"name": "w", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": tasks}}}
    (line.folder / "w.json").write_text(json.dumps(body))
    found = line.json("compile", "w.json", "--json")
    assert (found["tasks"], found["edges"], found["depth"], found["width"]) == (3, 2, 3, 1)
    assert line("compile", "w.json").stdout.startswith("w: 3 tasks, 2 edges, depth 3, width 1\nlongest chain: t ×3\n")
    assert "recorded" not in line("compile", "w.json").stdout
    runs = [{"id": f"t_{n}", "runtimeInSeconds": 30.5} for n in range(3)]
    body["workflow"]["execution"] = {  # type: ignore[index]
        "makespanInSeconds": 100, "executedAt": "2024-01-01T00:00:00Z", "tasks": runs}
    (line.folder / "w.json").write_text(json.dumps(body))
    text = line("compile", "w.json").stdout
    assert "recorded: 1m31s along the chain that takes longest" in text and text.rstrip().endswith("0 B     1m31s")
    assert line("graph", "w.json").stdout.count(" -> ") == 2
    done = line("compile", "w.json", "--set", "n=1")
    assert done.returncode == 2 and "for applications of YvetteML" in done.stderr


def test_graph_is_drawn_as_dot_svg_and_png(line: CommandLine) -> None:
    app = [str(EXAMPLE / "product.query"), "--components", str(EXAMPLE)]
    assert line("graph", *app).stdout.startswith('digraph "product" {')
    for name, begins in (("a.svg", b"<svg"), ("a.png", b"\x89PNG"), ("a.dot", b"digraph")):
        done = line("graph", *app, "-o", name)
        assert done.returncode == 0 and f"{name}: 24 boxes" in done.stderr
        assert (line.folder / name).read_bytes().startswith(begins)
    found = line.json("graph", *app, "--json", "--set", "div=20")
    assert found["summary"] and [node["tasks"] for node in found["nodes"]] == [400, 400, 8000, 8000]
    done = line("graph", *app, "-o", "a.gif")
    assert done.returncode == 2 and "does not end with .dot" in done.stderr


def test_damaged_component_is_reported_and_others_are_used(line: CommandLine) -> None:
    line("component", "add", str(EXAMPLE / "components.xml"))
    kept = line.home / "components"
    (kept / "MatrixComp_Impl" / "1.xml").write_text("<half of a fi")
    rows = {row["component"]: row for row in json.loads(line("component", "ls", "--json").stdout)}
    assert rows["MatrixComp_Impl"]["type"] == "damaged" and rows["MatrixLoad_Impl"]["type"] == "impl"
    line.write("one.query", '<application><graph>compute MatrixLoad(m, "a", 1, 1, 1, 1);</graph></application>')
    done = line("run", "one.query", "--dry-run")
    assert done.returncode == 0 and "'MatrixComp_Impl' in the catalogue is damaged" in done.stderr
    assert line("component", "rm", "MatrixComp_Impl").returncode == 0


@pytest.mark.parametrize("suffix", [".query", ".xml", ".yml"])
def test_application_file_is_known_by_its_suffix(line: CommandLine, suffix: str) -> None:
    line.write(f"one{suffix}", '<application><graph>compute MatrixLoad(m, "a", 1, 1, 1, 1);</graph></application>')
    done = line("run", f"one{suffix}", "--components", str(EXAMPLE), "--dry-run")
    assert done.returncode == 0 and done.stdout.startswith("one: 2 tasks")
