"""Graphs as pictures: what is in them, and that other programs can read them."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.workflow import papers
from tests.workflow.library import MATRICES, abstract, program_of
from windfall.workflow.graphs import picture as pictures, sheet
from windfall.workflow.graphs.picture import Picture, dot, picture
from windfall.workflow.yvetteml.program import Program

FIGURE_2 = papers.without_credentials(papers.FIGURE_2)
LARGE = FIGURE_2.replace("div       := 2;", "div       := 20;")
PART = abstract("a", "in integer i") + abstract("b", "in integer i") + abstract("say", "in string s")


def small(graph: str) -> Program:
    return program_of(f"<application><graph><![CDATA[{graph}]]></graph></application>", PART)


def test_picture_shows_every_task_of_figure_2() -> None:
    found = picture(program_of(FIGURE_2, MATRICES))
    assert not found.summary and len(found.nodes) == 24 and len(found.arrows) == 33
    assert [len(row) for row in found.rows()] == [4, 4, 8] + [1] * 8
    titles = {found.sections[node.section][0] for node in found.nodes if node.section >= 0}
    assert titles == {"par, line 12", "par, line 21"}


def test_a_large_graph_is_summed_up_by_component_and_section() -> None:
    found = picture(program_of(LARGE, MATRICES), sheet.fits)
    assert found.summary
    assert [node.label for node in found.nodes] == [
        "MatrixLoad (400), par, line 12", "MatrixLoad (400), par, line 12", "MatrixProduct (8,000), par, line 21",
        "MatrixComp (8,000, in turn)"]
    assert found.arrows == [(0, 1), (1, 2), (2, 3), (3, 3)]


def test_groups_that_alternate_get_arrows_both_ways() -> None:
    found = pictures._groups(small("seq (i:=1;9) do compute a(i); compute b(i); enddo"), lambda call: (call.at,))
    assert found.arrows == [(0, 1), (1, 0)]
    assert sheet.draw(found).svg()


def test_the_smallest_groups_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_GROUPS", 1)
    monkeypatch.setattr(pictures, "MOST_TASKS", 1)
    found = picture(small("compute a(1); par (i:=1;5) do compute b(i); enddo"))
    assert [node.component for node in found.nodes] == ["b"] and found.left_out == 1
    assert "1 smaller groups are left out" in sheet.draw(found).svg()


@pytest.mark.parametrize("text", [FIGURE_2, LARGE], ids=["small", "large"])
def test_svg_and_png_show_every_node(text: str) -> None:
    found = picture(program_of(text, MATRICES), sheet.fits)
    drawn = sheet.draw(found)
    words = [each.text for each in ElementTree.fromstring(drawn.svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert len(words) == len(found.nodes) + 1
    with Image.open(io.BytesIO(drawn.png())) as image:
        assert image.size == (drawn.width * 2, drawn.height * 2)
    assert drawn.svg() == sheet.draw(found).svg()


def _dot_labels(found: Picture) -> list[str]:
    return re.findall(r'\[label="((?:\\.|[^"\\])*)"\]', dot(found))


def test_dot_has_a_label_per_task_and_a_cluster_per_section() -> None:
    found = picture(program_of(FIGURE_2, MATRICES))
    assert len(_dot_labels(found)) == 24 and dot(found).count(" -> ") == 33
    assert dot(found).count("subgraph cluster_") == 3
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=dot(found).encode(), check=True, capture_output=True)


def test_sections_in_sections_are_clusters_in_clusters() -> None:
    graph = """par (i := 1; 2) do
      par (j := 1; 2) do compute a(x[i][j]); enddo
      par compute a(y[i]); //
        par (j := 1; 2) do compute a(z[i][j]); enddo endpar
    enddo compute a(w);"""
    text = dot(picture(program_of(f"<application><graph>{graph}</graph></application>", abstract("a", "out N x"))))
    deep = {match[2]: len(match[1]) // 2 - 1 for match in re.finditer(r'^( *)[sn].*label="([^"]*)"', text, re.M)}
    assert deep == {
        "a(w)": 0, "par, line 1": 0, "par, line 2": 1, "par, line 3": 1, "par, line 4": 2, "a(y[1])": 2, "a(y[2])": 2,
        **{f"a({name}[{i}][{j}])": 2 + (name == "z") for name in "xz" for i in (1, 2) for j in (1, 2)},
    }  # fmt: skip
    assert text.count("{") == text.count("}") == 5


def test_texts_cannot_break_a_picture() -> None:
    found = picture(small('compute say("]; x [label=\\"<&>\\n");'))
    assert _dot_labels(found) == [r'say(\"]; x [label=\"<&>?\")']
    svg = sheet.draw(found).svg()
    assert any("<&>" in (each.text or "") for each in ElementTree.fromstring(svg).iter())


def test_empty_graph_gives_an_empty_picture() -> None:
    found = picture(small(""), sheet.fits)
    assert found.nodes == [] and sheet.draw(found).png()


def test_large_graph_is_summed_up_in_few_boxes() -> None:
    """Two thousand tasks side by side would be too wide; a chain of them too high."""
    for kind in ("par", "seq"):
        found = picture(small(f"{kind} (i:=1;2000) do compute a(i); enddo"), sheet.fits)
        assert found.summary and len(found.nodes) == 1
