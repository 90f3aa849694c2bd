"""Data used out of order is told, and only that."""

from __future__ import annotations

import pytest

from tests.workflow import papers
from tests.workflow.library import MATRICES, abstract, program_of

PARTS = (abstract("put", "out N x") + abstract("get", "in N x") + abstract("add", "inout N x")
         + abstract("all", "in N* x") + abstract("split", "out N* x"))


def doubts(graph: str, params: str = "") -> list[str]:
    text = f"<application><params>{params}</params><graph>{graph}</graph></application>"
    return program_of(text, PARTS).doubts


@pytest.mark.parametrize("graph", [
    "compute put(a); compute get(a);",
    "par compute put(a); notify(e); // wait(e); compute get(a); endpar",
    "par (i:=1;3) do compute put(a[i]); compute get(a[i]); enddo",
    "seq (i:=1;3) do compute add(a); enddo compute get(a);",
    "seq (i:=1;3) do compute put(a); compute get(a); enddo",
    "compute split(s); par (i:=1;3) do compute get(s[i]); enddo",
    "compute add(new);",
    "par (i:=1;3) do compute put(a[i]); enddo compute all(a);",
    "par (i:=1;2) do compute put(a[i][1]); compute all(a[i]); compute put(a[i][2]); enddo",
])  # fmt: skip
def test_ordered_uses_of_data_raise_no_doubt(graph: str) -> None:
    assert doubts(graph) == []


def test_figure_2_raises_no_doubt() -> None:
    assert program_of(papers.without_credentials(papers.FIGURE_2), MATRICES).doubts == []


@pytest.mark.parametrize(("graph", "said"), [
    ("par compute put(a); // compute get(a); endpar", ":1:73: 'a' is read, and nothing makes that wait"),
    ("compute get(a); compute put(a);", "'a' is read, and nothing makes that wait"),
    ("par (i:=1;3) do compute put(b[i]); compute get(b[4-i]); enddo", ""),  # on a later level: not found
    ("par (i:=1;3) do if i gt 1 then compute get(a[i-1]); endif compute put(a[i]); enddo",
     "'a[1]' is read, and nothing makes that wait until it is written where i = 2"),
    ("par (i:=1;3) do compute put(a); enddo", "'a' is written by two tasks that nothing puts in order where i = 2"),
    ("par compute add(a); // compute add(a); endpar", "'a' is written by two tasks"),
    ("compute put(a[1]); par compute put(a[2]); // compute all(a); endpar",
     "'a' is read as a whole while a part of it is written; notify and wait do"),
    ("par (i:=1;2) do compute put(a[i][1]); par compute put(a[i][2]); // compute all(a[3-i]); endpar enddo",
     "'a[2]' is read as a whole while a part of it is written where i = 1"),
])  # fmt: skip
def test_unordered_uses_of_data_raise_a_doubt(graph: str, said: str) -> None:
    found = doubts(graph)
    assert len(found) == (1 if said else 0), found
    assert said in "".join(found)


def test_data_from_outside_may_be_read_at_any_time() -> None:
    graph = "compute get(a); compute put(a);"
    assert doubts(graph, '<param name="a" type="N" mode="inout"/>') == []
    assert doubts(graph, '<param name="a" type="N" mode="out"/>') != []


def test_number_of_doubts_is_bounded() -> None:
    assert len(doubts(" ".join(f"par compute put(a{n}); // compute get(a{n}); endpar" for n in range(40)))) == 20


def test_unwritten_out_parameter_raises_a_doubt() -> None:
    assert doubts("compute put(a);", '<param name="b" type="N" mode="out"/>') == [
        "app.query: 'b' is a parameter of mode out, and nothing writes it"]
    assert doubts("compute put(b);", '<param name="b" type="N" mode="out"/>') == []
    assert len(doubts("if 1 eq 2 then compute put(b); endif", '<param name="b" type="N" mode="out"/>')) == 1
