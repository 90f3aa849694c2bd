"""Graphs: text → tree → text, and what is said about text that is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from windfall.errors import BadInput
from windfall.workflow.text import plain
from windfall.workflow.yvetteml import ast, parse as parsing
from windfall.workflow.yvetteml.parse import KEYWORDS, parse
from windfall.workflow.yvetteml.printer import show


def tree(text: str) -> ast.Block:
    return parse(plain("graph", text))


def wrong(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        tree(text)
    return caught.value


# --- text → tree → text → tree ---------------------------------------------------------------------------------------

names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,8}\Z").filter(lambda word: word not in KEYWORDS)
atoms = st.one_of(
    st.integers(0, 1 << 61).map(ast.Integer),
    st.floats(0, allow_infinity=False).map(abs).map(ast.Real),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12).map(ast.String),
    names.map(ast.Name),
)


def _chains(inner: st.SearchStrategy[ast.Value]) -> st.SearchStrategy[ast.Value]:
    rests = [st.lists(st.tuples(st.sampled_from(ops), inner), min_size=1, max_size=3)
             for ops in (["+", "-"], ["*", "/", "%"], ["and"], ["or"])]
    return st.builds(ast.Chain, inner, st.one_of(rests).map(tuple))


def _larger(inner: st.SearchStrategy[ast.Value]) -> st.SearchStrategy[ast.Value]:
    return st.one_of(
        _chains(inner),
        st.builds(ast.Unary, st.sampled_from(["-", "not"]), inner),
        st.builds(ast.Compare, st.sampled_from(["eq", "neq", "lt", "le", "gt", "ge"]), inner, inner),
        _named(inner),
    )


def _named(inner: st.SearchStrategy[ast.Value]) -> st.SearchStrategy[ast.Name]:
    return st.builds(ast.Name, names, st.lists(inner, max_size=3).map(tuple))


values = st.recursive(atoms, _larger, max_leaves=6)
indexed = _named(st.one_of(atoms, values))
simple = st.one_of(
    st.builds(ast.Assign, indexed, values),
    st.builds(ast.Wait, values),
    st.builds(ast.Notify, st.lists(indexed, min_size=1, max_size=3).map(tuple)),
    st.builds(ast.Compute, names, st.lists(values, max_size=3).map(tuple)),
)


def _compound(inner: st.SearchStrategy[ast.Statement]) -> st.SearchStrategy[ast.Statement]:
    block = st.lists(inner, max_size=3).map(tuple)
    iterators = st.lists(st.builds(ast.Iterator, names, values, values), min_size=1, max_size=2).map(tuple)
    excludes = st.lists(st.lists(values, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)
    return st.one_of(
        st.builds(ast.Par, st.lists(block, min_size=1, max_size=3).map(tuple)),
        st.builds(ast.Loop, st.booleans(), iterators, excludes, block),
        st.builds(ast.If, values, block, block),
    )


blocks = st.lists(st.recursive(simple, _compound, max_leaves=5), max_size=4).map(tuple)


@settings(max_examples=80, deadline=None)
@given(blocks)
def test_printed_graph_parses_to_the_same_tree(block: ast.Block) -> None:
    text = show(block)
    assert tree(text) == block
    assert show(tree(text)) == text


# --- no text hangs it or makes it crash ------------------------------------------------------------------------------

words = st.sampled_from([*KEYWORDS, "x", "y1", "12", "1.5", '"t"', ":=", ";", "(", ")", "[", "]", ",", "//", "+", "-",
                         "*", "/", "%", "#", "\n", "@", '"'])


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(words, max_size=60).map(" ".join)))
def test_any_text_is_a_graph_or_a_mistake_with_its_place(text: str) -> None:
    try:
        block = tree(text)
    except BadInput as error:
        file, line, column = error.where.split(":")
        assert file == "graph" and int(line) >= 1 and int(column) >= 1
        assert error.text.endswith("^")
    else:
        assert tree(show(block)) == block


@pytest.mark.parametrize("text", [
    "(" * 5000, "x := " + "(" * 5000, "x := " + "-" * 5000 + "1;", "x := " + "not " * 5000 + "1;",
    "par " * 5000, "seq (i:=1;2) do " * 5000, "if 1 eq 1 then " * 5000, "x := a" + "[a" * 5000,
])  # fmt: skip
def test_depth_is_bounded(text: str) -> None:
    assert "deep" in wrong(text).message or "does not belong" in wrong(text).message


def test_a_long_sum_is_not_deep() -> None:
    (statement,) = tree("x := 1" + " + 1" * 20_000 + ";")
    assert isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Chain)
    assert len(statement.value.rest) == 20_000


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_TEXT", 50)
    assert "longer than 50" in wrong("# " + "-" * 50).message
    monkeypatch.setattr(parsing, "MAX_TOKENS", 7)
    assert "more than 7 words" in wrong("x := 1; y := 2;").message


# --- the language ----------------------------------------------------------------------------------------------------


def test_operators_bind_by_their_strength() -> None:
    (statement,) = tree("x := not a eq 1 + 2 * 3 and b or c;")
    one, two, three = ast.Integer(1), ast.Integer(2), ast.Integer(3)
    total = ast.Chain(one, (("+", ast.Chain(two, (("*", three),))),))
    compared = ast.Unary("not", ast.Compare("eq", ast.Name("a"), total))
    both = ast.Chain(compared, (("and", ast.Name("b")),))
    assert statement == ast.Assign(ast.Name("x"), ast.Chain(both, (("or", ast.Name("c")),)))


def test_comments_and_extra_semicolons_are_skipped() -> None:
    assert tree("# all of it\nx := 1; # and this\n;; par // endpar; seq (i:=1;2) do enddo if 1 eq 1 then endif;") == (
        ast.Assign(ast.Name("x"), ast.Integer(1)), ast.Par(((), ())),
        ast.Loop(False, (ast.Iterator("i", ast.Integer(1), ast.Integer(2)),), (), ()),
        ast.If(ast.Compare("eq", ast.Integer(1), ast.Integer(1)), ()),
    )


def test_a_branch_is_not_a_division() -> None:
    assert tree("par x := 4/2; // y := 1; endpar") == (
        ast.Par(((ast.Assign(ast.Name("x"), ast.Chain(ast.Integer(4), (("/", ast.Integer(2)),))),),
                 (ast.Assign(ast.Name("y"), ast.Integer(1)),))),
    )


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "where", "said", "hint"), [
    ("x := 1;\n then y := 2;", "2:2", "'then' does not belong here", "'then' belongs to an 'if'"),
    ("seq (i:=1;2) do\n  compute A(x);\n", "2:16", "'enddo' is missing", "the loop that begins at line 1, column 1"),
    ("par\n  seq (i:=1;2) do\n    compute A(x);\nendpar", "4:1", "'endpar' does not belong here, but 'enddo'",
     "the loop that begins at line 2, column 3 has no 'enddo'"),
    ("par compute A(x); // compute B(x); enddo", "1:36", "'enddo' does not belong here", "has no 'endpar'"),
    ("if 1 eq 1 then", "1:15", "'endif' is missing", "the 'if' that begins at line 1, column 1 has no 'endif'"),
    ("enddo", "1:1", "'enddo' does not belong here", "nothing is open"),
    ("compute A(x) compute B(x);", "1:14", "but ';'", "statements end with ';'"),
    ("par (i := 1, n) do compute A(x); enddo", "1:12", "but ';'", "as in (i := 1; n)"),
    ("comput A(x);", "1:8", "'A' does not belong here", "did you mean 'compute'"),
    ("x = 1;", "1:3", "'=' does not belong here", "':=' assigns"),
    ('x := "open;\n', "1:6", "this text is not closed", "same line"),
    ("x := (1 + 2;", "1:12", "';' does not belong here, but ')'", ""),
    ("x := 9999999999999999999;", "1:6", "too large", ""),
    ("x := 1e999;", "1:6", "too large", ""),
    ("x := 1 eq 2 eq 3;", "1:13", "'eq' does not belong here", ""),
    ("par (i:=1) do enddo", "1:10", "')' does not belong here, but ';'", ""),
    ("", "", "", ""),
])  # fmt: skip
def test_mistakes_are_shown_where_they_are(text: str, where: str, said: str, hint: str) -> None:
    if not text:
        assert tree(text) == ()
        return
    error = wrong(text)
    assert error.where == f"graph:{where}"
    assert said in error.message and hint in error.hint
    line, column = map(int, where.split(":"))
    shown, caret = error.text.split("\n")
    assert shown == text.split("\n")[line - 1]
    assert caret == " " * (4 + column - 1) + "^"


@pytest.mark.parametrize(("text", "said", "hint"), [
    ("x\u00a0:= 1;", "'\\xa0' does not belong", "plain space"),
    ("x\u200b := 1;", "'\\u200b' does not belong", "plain space"),
    ("x := \u201ca\u201d;", "\u201c", 'plain quotes: "…"'), ("x := 'a';", '"\'" does not belong here', "plain quotes"),
])  # fmt: skip
def test_look_alike_letters_get_a_hint(text: str, said: str, hint: str) -> None:
    error = wrong(text)
    assert said in error.message and hint in error.hint


def test_the_caret_of_a_long_line_is_shown() -> None:
    error = wrong("x := " + "1 + " * 100 + "@;")
    shown, caret = error.text.split("\n")
    assert shown[caret.index("^") - 4] == "@" and len(shown) <= 100
