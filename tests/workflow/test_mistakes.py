"""Every mistake is caught at its line and column, before anything runs; all of them at once."""

from __future__ import annotations

import pytest

from tests.workflow.library import abstract, program_of
from windfall.errors import BadInput, Mistakes

PARTS = (
    abstract("load", "out Matrix m", "in string url", "in integer i")
    + abstract("product", "out Matrix r", "in Matrix a", "in Matrix b")
    + abstract("scale", "inout Matrix m", "in real by")
    + abstract("norm", "out real n", "in Matrix m")
    + abstract("count", "out integer n", "in Matrix m")
    + abstract("gather", "out Matrix all", "in Matrix* parts")
    + abstract("split", "out Matrix* parts", "in Matrix all")
    + '<component type="impl" name="load_cxx" abstract="load"><source lang="CXX"/></component>'
    + '<component type="graph" name="loop"><graph>compute loop();</graph></component>'
)
HEAD = "<application name='a'><params>{}</params><graph>\n"


def compiled(graph: str, params: str = "", **given: str) -> None:
    program_of(HEAD.format(params) + graph + "</graph></application>", PARTS, **given)


def mistakes(graph: str, params: str = "", **given: str) -> list[BadInput]:
    with pytest.raises(BadInput) as caught:
        compiled(graph, params, **given)
    return list(caught.value.each) if isinstance(caught.value, Mistakes) else [caught.value]


PARAM = '<param name="{}" type="{}" mode="{}" {}/>'

ONE = [
    # components and their parameters
    ('compute lod(m, "u", 1);', "1:9", "there is no component 'lod'", "did you mean 'load'?"),
    ("compute nothing_like_it(m);", "1:9", "there is no component", "component ls"),
    ('compute load_cxx(m, "u", 1);', "1:9", "'load_cxx' is an implementation", "load"),
    ('compute load(m, "u");', "1:9", "'load' takes 3 parameters (m, url, i), and 2 are given here", ""),
    ("compute load(m, 7, 1);", "1:17", "parameter 'url' of 'load' is of type string, and this is an integer", ""),
    ('compute load(m, "u", 1.5);', "1:22", "is of type integer, and this is a real number", ""),
    ('x := 3; compute load(x, "u", 1);', "1:22", "is written (out), and this is a value", "name for the data"),
    ('compute load(m, "u", 1); compute product(r, m, 3);', "1:48", "is of type Matrix, and this is an integer", ""),
    ('compute load(m, "u", 1); compute norm(n, m); compute scale(n, 1.0);', "1:60",
     "'n' is, by line 2, of type real, and Matrix is asked for here", ""),
    ("compute gather(m, 3);", "1:19", "is a collection, and this is a value", ""),
    # variables
    ('compute load(m, "u", x + 1);', "1:22", "'x' has no value here", "assign it before"),
    ("size := 4; par (i:=1;siez) do enddo", "1:22", "'siez' has no value here", "did you mean 'size'?"),
    ("par x := 1; // y := 2; endpar z := x;", "1:36", "'x' was assigned inside a 'par' (line 2)", "seen there only"),
    ("par (i:=1;2) do x := i; enddo y := x;", "1:36", "'x' was assigned inside a 'par'", ""),
    ("par (i:=1;3) do if i eq 2 then x := 1; endif y := x; enddo", "1:51", "'x' has no value where i = 1", ""),
    ('x := 1; y := x[1];', "1:14", "'x' is a value, and only data and events have indices", ""),
    ("x[1] := 2;", "1:1", "only plain names can be assigned", ""),
    ("par (i:=1;2) do i := 3; enddo", "1:17", "'i' is the loop's own", ""),
    ('if 1 eq 1 then x := 1; else x := "a"; endif par (i:=1;2) do if i eq 1 then x := "a"; endif enddo', "1:76",
     "'x' is a text here, and an integer otherwise", "two names"),
    ("x := 1 eq 1;", "1:6", "a condition cannot be assigned", ""),
    # kinds of values
    ('par (i:=1;"a") do enddo', "1:11", "an integer is asked for here, and this is a text", ""),
    ("if 1 then endif", "1:4", "a condition is asked for here, and this is an integer", "compare it"),
    ('if 1 eq "a" then endif', "1:4", "an integer cannot be compared with a text", ""),
    ('if "b" lt "a" then endif', "1:4", "neither is greater", "'eq'"),
    ("x := 1.5 + 1;", "1:6", "an integer is asked for here, and this is a real number", "are integers"),
    ("par (i:=0;2) do x := 4 / i; enddo", "1:26", "division by zero where i = 0", ""),
    ("x := 4611686018427387903 + 1;", "1:28", "too large", ""),
    ("par (i:=1;3) do x := 4611686018427387903 * i; enddo", "1:44", "too large where i = 2", ""),
    ("par (i:=1;2)(j:=1;2) exclude (1, 2, 3) do enddo", "1:31", "3 values for 2 iterators", "a condition, or"),
    # events
    ("wait(e);", "1:6", "'e' is waited for and never notified", "notify(e);"),
    ("par (i := 2; 3) do wait(e[i]); enddo", "1:25", "'e[2]' is waited for and never", "notify(e[2]);"),
    ("notify(evt[1]); wait(evt[2]);", "1:22", "'evt[2]' is waited for and never notified", "line 2 notifies 'evt[1]'"),
    ("notify(evt[1]); wait(evt);", "1:22", "'evt' is waited for and never notified", "line 2 notifies 'evt[1]'"),
    ("par par (i:=1;3) do notify(e[i]); enddo // par (i:=1;3) do wait(e[i+1]); enddo endpar", "1:65",
     "'e[4]' is waited for and never notified where i = 3", "notifies 'e[1]'"),
    ("par par (i:=1;9) do notify(e[i*i]); enddo // par (i:=1;9) do wait(e[i*i+(i/9)]); enddo endpar", "1:67",
     "'e[82]' is waited for and never notified where i = 9", ""),
    ("notify(loaded); wait(laoded);", "1:22", "never notified", "did you mean 'loaded'?"),
    ("notify(a, b); wait(a or b);", "1:20", "wait takes events, joined by 'and'", "'if'"),
    # cycles
    ("wait(e); notify(e);", "1:1", "a cycle", "event 'e', line 2"),
    ('par wait(a); compute load(m, "u", 1); notify(b); // wait(b); compute load(n, "u", 2); notify(a); endpar', "1:5",
     "a cycle", "load, line 2; event 'b', line 2; wait, line 2; load, line 2; event 'a', line 2"),
    ("seq (i:=1;3) do wait(e[i]); notify(e[i-1]); enddo notify(e[3]);", "1:17", "a cycle where i = 3", ""),
    # data
    ('compute load(a[1], "u", 1); compute norm(n, a[2]);', "1:45", "'a[2]' is read, and nothing writes it", "<params>"),
    ("compute norm(n, a);", "1:17", "'a' is read, and nothing writes it", "give it a value before (a := …;)"),
    ('par (i:=1;3) do compute load(a[i], "u", i); compute norm(n[i], a[i+1]); enddo', "1:64",
     "'a[4]' is read, and nothing writes it where i = 3", ""),
    ('compute load(a[1][1], "u", 1); compute norm(n, a[1]);', "1:48", "'a' has 1 indices here, and 2 in line 2", ""),
    ('compute load(a, "u", 1); compute gather(all, a);', "1:46", "'a' is one thing, and a collection is asked", ""),
    ("compute gather(all, a);", "1:21", "'a' is read, and nothing writes it", ""),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "where", "said", "hint"), ONE, ids=[graph[:40] for graph, *_ in ONE])
def test_mistake_is_found_at_its_line_and_column(graph: str, where: str, said: str, hint: str) -> None:
    (found,) = mistakes(graph)
    line, column = map(int, where.split(":"))
    assert found.where == f"app.query:{line + 1}:{column}"
    assert said in found.message and hint in found.hint, (found.message, found.hint)
    shown, caret = found.text.split("\n")
    offset = caret.index("^") - 4
    assert shown[offset:].startswith(graph[column - 1 : column + 5])


def test_all_mistakes_are_told_at_once_and_in_order() -> None:
    found = mistakes('compute lod(m, "u", 1);\ncompute load(m, 7, x);\npar (i:=1;n) do compute nope(); enddo\n'
                     "wait(e);\ny := 1 / 0;\nz := y;")
    assert [(each.where.removeprefix("app.query:"), each.message[:50]) for each in found] == [
        ("2:9", "there is no component 'lod'"),
        ("3:17", "parameter 'url' of 'load' is of type string, and t"),
        ("3:20", "'x' is read, and nothing writes it"),
        ("4:11", "'n' has no value here"),
        ("5:6", "'e' is waited for and never notified"),
        ("6:10", "division by zero"),
    ]


def test_graph_component_that_calls_itself_is_refused() -> None:
    (found,) = mistakes("compute loop();")
    assert "'loop' calls itself" in found.message and found.hint == "loop → loop"
    assert found.where.startswith("parts.xml:1:")


def test_a_mistake_in_a_loop_is_told_once() -> None:
    assert len(mistakes("x := 0; seq (i:=1;100) do x := x + 1; compute nope(x); enddo")) == 1


def test_code_that_never_runs_is_checked() -> None:
    for graph in ("par (i:=2;1) do compute nope(i); enddo", "if 1 eq 2 then compute nope(1); endif",
                  "seq (i:=2;1) do compute nope(i); enddo"):
        assert "no component 'nope'" in mistakes(graph)[0].message


def test_code_that_never_runs_may_lack_values() -> None:
    compiled("if 1 eq 2 then x := 1; endif if 1 eq 2 then y := x / 0; wait(e[y]); endif par (i:=2;1)(j:=x;y) do enddo")


def test_code_that_never_runs_notifies_no_event() -> None:
    for graph in ("seq (i:=2;1) do notify(e[i / 0]); enddo", "if 1 eq 2 then notify(e[y]); endif"):
        assert "'e[1]' is waited for and never notified" in mistakes(graph + " wait(e[1]);")[0].message


@pytest.mark.parametrize("graph", [
    'par (i:=1;2) do compute load(p[i], "u", i); enddo compute gather(all, p); compute scale(all, 2);',
    'compute load(a, "u", 1); compute split(s, a); compute norm(n, s[1]); compute norm(k, s[2]);',
    'par (i:=1;2)(j:=1;2) do compute load(p[i][j], "u", i); enddo compute gather(all, p[2]);',
    "compute scale(fresh, 1.0);",
    "notify(e); wait(e); wait(e);",
    'compute load(m, "u", -1); compute count(n, m); compute norm(r, m);',
])  # fmt: skip
def test_correct_graphs_compile_without_mistakes(graph: str) -> None:
    compiled(graph)


# --- an application's own parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("params", "graph", "said"), [
    (("n", "integer", "in", ""), "par (i:=1;n) do enddo", "'n' has no value here"),
    (("m", "Matrix", "in", ""), "compute scale(m, 1.0);", "'scale' would write 'm', which is a parameter of mode in"),
    (("m", "Vector", "in", ""), "compute norm(n, m);", "'m' is declared as of type Vector, and Matrix is asked for"),
    (("m", "Matrix", "in", ""), "compute norm(n, m[1]);", "'m' is no collection"),
    (("m", "Matrix", "in", 'collection="yes"'), "compute norm(n, m);", "'m' is a collection: say which of it"),
    (("m", "Matrix", "in", ""), "compute gather(n, m);", "'m' is one thing"),
    (("m", "Matrix", "out", ""), "compute norm(n, m);", "'m' is read, and nothing writes it"),
])
def test_wrong_use_of_parameters_is_reported(params: tuple[str, ...], graph: str, said: str) -> None:
    (found,) = mistakes(graph, PARAM.format(*params))
    assert said in found.message


def test_correct_use_of_parameters_compiles() -> None:
    many = PARAM.format("m", "Matrix", "in", 'collection="yes"') + PARAM.format("n", "integer", "in", 'value="3"')
    compiled("par (i:=1;n) do compute norm(r[i], m[i]); enddo compute gather(all, m);", many)
    compiled("compute scale(m, x);", PARAM.format("m", "Matrix", "inout", "") + PARAM.format("x", "real", "in", ""))
    compiled("par (i:=1;n) do enddo", PARAM.format("n", "integer", "in", ""), n="4")


@pytest.mark.parametrize(("given", "said"), [
    ({"n": "four"}, "'four' is not a value for 'n', which is of type integer"),
    ({"n": "9" * 30}, "is not a value for 'n'"),
    ({"k": "1"}, "has no parameter 'k'"),
    ({"m": "1"}, "is not a value for 'm', which is of type Matrix"),
])
def test_values_of_the_wrong_type_are_refused(given: dict[str, str], said: str) -> None:
    params = PARAM.format("n", "integer", "in", "") + PARAM.format("m", "Matrix", "in", "")
    (found,) = mistakes("", params, **given)
    assert said in found.message


def test_graph_component_cannot_count_to_data() -> None:
    parts = abstract("put", "out integer m") + """<component type="graph" name="g"><params>
        <param name="n" type="integer"/></params><graph>par (i := 1; n) do enddo</graph></component>"""
    with pytest.raises(BadInput) as caught:
        program_of("<application><graph>compute put(x); compute g(x);</graph></application>", parts)
    assert "'n' has no value here" in caught.value.message and "--set" not in caught.value.hint
    assert "to use it here, give a value" in caught.value.hint


def test_data_of_another_type_is_not_handed_to_a_graph_component() -> None:
    parts = (abstract("put", "out M m") + abstract("get", "in M m") + '<component type="graph" name="both"><params>'
             '<param name="a" type="M"/><param name="b" type="V"/></params><graph>compute get(a); compute get(b);'
             "</graph></component>")
    with pytest.raises(BadInput) as caught:
        program_of("<application><graph>compute put(x); compute put(y);\ncompute both(x, y);</graph></application>",
                   parts)
    assert caught.value.where == "app.query:2:17"
    assert "'y' is, by line 1, of type M, and V is asked for here" in str(caught.value)


def test_a_mistake_inside_a_graph_component_is_shown_there() -> None:
    parts = ('<component type="graph" name="outer"><param name="n" type="integer"/>\n<graph>\n  compute nope(n);\n'
             "</graph></component>")
    with pytest.raises(BadInput) as caught:
        program_of("<application><graph>compute outer(1);</graph></application>", parts)
    assert caught.value.where == "parts.xml:3:11"
