"""Files of applications and components: both generations, hostile ones, and mistakes at their line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tests.workflow import papers
from windfall.errors import BadInput, Mistakes, WindfallError, from_wire
from windfall.workflow.components import xmlfile
from windfall.workflow.components.files import ComponentFile, load, loads
from windfall.workflow.yvetteml import ast


def wrong(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        loads(text.encode(), "app.query")
    return caught.value


# --- the paper's generation ------------------------------------------------------------------------------------------


def test_figure_2_as_printed_has_one_mistake_its_credentials() -> None:
    error = wrong(papers.FIGURE_2)
    assert not isinstance(error, Mistakes)
    assert error.where == "app.query:2:12" and error.text.split("\n")[1].index("^") == 4 + 11
    assert "credentials" in error.message and "windfall login" in error.hint
    assert "pass" not in error.message


def test_figure_2_is_read_without_its_credentials() -> None:
    file = loads(papers.without_credentials(papers.FIGURE_2).encode(), "figure2.query")
    assert file.application and file.application.name == "figure2"
    kinds = [type(each) for each in file.application.body]
    assert kinds == [ast.Assign] * 4 + [ast.Par, ast.Loop]


def test_components_of_the_paper_are_read() -> None:
    (abstract,) = loads(papers.without_credentials(papers.ABSTRACT).encode(), "a").components
    assert [(p.name, p.type, p.mode) for p in abstract.params] == [
        ("result", "Matrix", "out"), ("mat1", "Matrix", "in"), ("mat2", "Matrix", "in")]
    assert abstract.kind == "abstract" and abstract.description == "Product of two matrices"
    (impl,) = loads(papers.without_credentials(papers.IMPLEMENTATION).encode(), "a").components
    assert impl.abstract == "MatrixProduct" and impl.implementation
    assert impl.implementation.lang == "CXX" and "result = mat1 * mat2;" in impl.implementation.source
    assert "#include <matrix.h>" in impl.implementation.header


# --- the later generation --------------------------------------------------------------------------------------------

LATER = """<?xml version="1.0"?>
<application name="sums">
  <description>Adds</description>
  <params>
    <param name="n" type="integer" mode="in" value="4"/>
    <param name="data" type="real" mode="inout" collection="yes" size="2kB"/>
  </params>
  <graph>
    par (i := 1; n) do compute add(data[i], data[i], 1.0); enddo
  </graph>
</application>
"""


def test_application_file_gives_its_parameters() -> None:
    file = loads(LATER.encode(), "sums.query")
    assert file.application and file.application.description == "Adds" and file.notes == []
    n, data = file.application.params
    assert (n.type, n.value, n.size) == ("integer", "4", 8)
    assert (data.mode, data.collection, data.size) == ("inout", True, 2000)


def test_file_gives_an_implementation_and_a_graph() -> None:
    file = loads(b"""<yml-query>
      <component type="impl" name="add_impl" abstract="add">
        <impl lang="cxx" libs="m"><header>#include</header><source><![CDATA[a < b]]></source><footer>}</footer></impl>
      </component>
      <component type="graph" name="twice"><params><param name="x" type="real" mode="inout"/></params>
        <graph>compute add(x, x, x);</graph></component>
    </yml-query>""", "two.xml")
    impl, graph = file.components
    made = impl.implementation
    assert made and (made.lang, made.libs) == ("CXX", "m")
    assert (made.header, made.source, made.footer) == ("#include", "a < b", "}")
    assert graph.kind == "graph" and graph.body and graph.params[0].name == "x"


def test_a_bare_graph_is_an_application(tmp_path: Path) -> None:
    (tmp_path / "small.yvette").write_text("compute add(x, 1, 2);\r\n")
    file = load(tmp_path / "small.yvette")
    assert file.application and file.application.name == "small" and len(file.application.body) == 1


# --- where mistakes are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("graph", "where"), [
    ("x := ;", "3:6"),
    ("\n   x := ;", "4:9"),
    ("# é\n\n x :=\n;", "6:1"),
    ("# &lt;&#65;\n x := ;", "4:7"),
    ("# &lt;&#65;\r\n x := ;", "4:7"),
    ("<![CDATA[ x := ;]]>", "3:16"),
    ("# &amp; <!-- here --> b\n x :=\n ;", "5:2"),
])
def test_a_mistake_in_an_embedded_graph_is_shown_in_the_file(graph: str, where: str) -> None:
    text = f'<application name="a">\n<description/><graph\n>{graph}</graph></application>'
    line, column = map(int, where.split(":"))
    error = wrong(text)
    assert error.where == f"app.query:{line}:{column + (line == 3)}"
    assert error.text.split("\n")[0].rstrip() == text.replace("\r", "").split("\n")[line - 1].rstrip()


def test_everything_wrong_with_a_file_is_told_at_once() -> None:
    error = wrong("""<component type="abstract" name="9x">
  <param name="a" type="integer" mode="input"/>
  <param name="a" type="" collection="maybe" size="12"/>
  <parm name="b"/>
</component>""")
    assert isinstance(error, Mistakes)
    assert [each.where.removeprefix("app.query:") for each in error.each] == [
        "1:28", "2:34", "3:3", "3:10", "3:27", "3:46", "4:3"]
    assert "did you mean <param>?" in str(error) and "7 mistakes" in str(error)
    assert len(error.to_wire()["error"]["mistakes"]) == 7
    again = from_wire(error.to_wire())  # lines and carets come along
    assert str(again) == str(error) and isinstance(again, Mistakes)


@pytest.mark.parametrize(("text", "said"), [
    ("<component name='a'/>", "type"),
    ("<component type='impl' name='a'><source lang='CXX'/></component>", "which component"),
    ("<component type='impl' name='a' abstract='b'/>", "has no <source>"),
    ("<component type='impl' name='a' abstract='b'><source lang='COBOL'/></component>", "'COBOL' is not known"),
    ("<component type='graph' name='a'/>", "needs one <graph>"),
    ("<application/>", "needs one <graph>"),
    ("<application><graph/><source/></application>", "has 2"),
    ("<yml-query/>", "<yml-query> is empty"),
    ("<yml-query><application><graph/></application><application><graph/></application></yml-query>", "a second"),
    ("<project/>", "<project> is not known"),
    ("<yml-query><component type='abstract' name='a'/><component type='abstract' name='a'/></yml-query>", "twice"),
    ("<application><graph></application>", "not XML"),
    ("<application><graph>a < b</graph></application>", "not XML"),
    ("<a", "not XML"),
])
def test_wrong_application_and_component_files_are_refused(text: str, said: str) -> None:
    assert said in wrong(text).message


@pytest.mark.parametrize("text", [
    "<component type='abstract' name='a'/>\n<component type='abstract' name='b'/>",
    "<components><component type='abstract' name='a'/></components>",
])
def test_several_components_belong_in_a_query(text: str) -> None:
    assert "inside one <yml-query>" in wrong(text).hint


def test_unknown_attribute_is_noted() -> None:
    file = loads(b'<application name="a" colour="blue"><graph/></application>', "a.query")
    assert file.notes == ["a.query:1:23: attribute 'colour' of <application> is unknown and ignored"]


# --- hostile files ---------------------------------------------------------------------------------------------------

BILLION = """<?xml version="1.0"?>
<!DOCTYPE application [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<application><graph>&b;</graph></application>"""


@pytest.mark.parametrize("text", [
    BILLION, '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "<!DOCTYPE a><application><graph/></application>",
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><application><graph>&x;</graph></application>',
])
def test_document_types_and_entities_are_refused(text: str) -> None:
    assert "refused" in wrong(text).message


def test_unknown_entities_are_refused() -> None:
    assert "undefined entity" in wrong("<application><graph>&x;</graph></application>").message


def test_depth_number_and_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "too deep" in wrong("<a>" * 40).message
    monkeypatch.setattr(xmlfile, "MAX_ELEMENTS", 100)
    assert "too many" in wrong("<a>" + "<b/>" * 100).message
    monkeypatch.setattr(xmlfile, "MAX_FILE", 100)
    assert "larger" in wrong("<a>" + " " * 100).message


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.lists(st.sampled_from([
    b"<application>", b"</application>", b"<graph>", b"</graph>", b"<component type='graph' name='x'>", b"</component>",
    b"<yml-query>", b"</yml-query>", b"<param name='a' type='b'/>", b"x := 1;", b"<![CDATA[", b"]]>", b"&lt;", b"<!--",
    b"-->", b"<?xml version='1.0' encoding='utf-16'?>", b"\xff\xfe", b"<a b='c'", b">", b"\x00",
]), max_size=12).map(b"".join)))
def test_any_bytes_are_a_file_or_a_mistake(data: bytes) -> None:
    try:
        assert isinstance(loads(data, "x"), ComponentFile)
    except WindfallError:
        pass


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        load(tmp_path / "none")
