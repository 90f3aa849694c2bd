"""Files made to keep the compiler busy, or to let it grow: each is read or refused in a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.workflow.library import abstract, program_of
from windfall.errors import BadInput, Mistakes, TooLarge
from windfall.workflow.build import builder
from windfall.workflow.build.builder import build
from windfall.workflow.components.files import loads
from windfall.workflow.graphs.picture import LONGEST, picture
from windfall.workflow.graphs.report import requirements
from windfall.workflow.yvetteml import effort, unroll
from windfall.workflow.yvetteml.program import ComponentLibrary, compile_application

SECONDS = 15.0  # of the processor; each took minutes, or gigabytes
ONE = abstract("t", "in integer p")


def application(graph: str) -> str:
    return f"<application><graph>{graph}</graph></application>"


def timed(function: Callable[[], object]) -> None:
    began = time.process_time()
    function()
    assert time.process_time() - began < SECONDS


def refused(function: Callable[[], object], said: str) -> None:
    def wrong() -> None:
        with pytest.raises(BadInput, match=said):
            function()

    timed(wrong)


def test_many_unknown_attributes_are_read_in_time() -> None:
    many = " ".join(f'a{number}="x"' for number in range(60_000))
    timed(lambda: loads(f"<application {many}><graph/></application>".encode(), "f"))
    assert len(loads(f"<application {many}><graph/></application>".encode(), "f").notes) == 20


def test_many_mistakes_on_a_long_line_are_reported_in_time() -> None:
    text = "<yml-query>" + "<bogus/>" * 19_000 + "x" * 3_000_000 + "</yml-query>"
    refused(lambda: loads(text.encode(), "f"), "100 mistakes or more; the first 50 are shown")


def test_many_components_are_read_in_time() -> None:
    text = "<yml-query>" + "".join(abstract(f"c{number}") for number in range(15_000)) + "</yml-query>"
    timed(lambda: loads(text.encode(), "f"))


def test_many_unknown_components_are_refused_in_time() -> None:
    calls = "".join(f"compute a{number}x();" for number in range(30_000))
    parts = "".join(abstract(f"b{number}x") for number in range(4_000))
    refused(lambda: program_of(application(calls), parts), "did you mean")


def test_unknown_component_in_every_iteration_is_refused_in_time() -> None:
    parts = "".join(abstract(f"b{number}x") for number in range(1_500))
    refused(lambda: program_of(application("x := 0; seq (i := 1; 5000) do x := x + 1; compute a7x(); enddo"), parts),
            "did you mean 'b7x'")


@pytest.mark.parametrize("what", ["if i gt 3 then endif ", "compute t(i); ", "par (j := 1; 2) do enddo "])
def test_copies_of_many_variables_count_as_effort(what: str) -> None:
    """A statement copies the variables that it sees."""
    graph = "par (i := 1; 1000) do " + "".join(f"x{n} := i; " for n in range(4_000)) + what * 12_000 + "enddo"
    refused(lambda: program_of(application(graph), ONE), "too large to be unrolled")


def test_columns_of_many_iterations_count_as_effort() -> None:
    """Eighty columns of ten million numbers."""
    names = [f"x{number}" for number in range(80)]
    graph = ("par (i := 1; 100) do " + "".join(f"{name} := i; " for name in names)
             + f"par (j := 1; 100000) do y := {' + '.join(names)}; enddo enddo")
    refused(lambda: program_of(application(graph), ONE), "too large to be unrolled")


def test_variables_that_a_loop_does_not_use_cost_it_nothing() -> None:
    names = "".join(f"x{number} := i; " for number in range(80))
    graph = f"par (i := 1; 100) do {names} par (j := 1; 20000) do compute t(j); enddo enddo"
    assert program_of(application(graph), ONE).tasks == 2_000_000


def test_many_shared_variables_cost_little() -> None:
    names = "".join(f"x{number} := {number}; " for number in range(8_000))
    assert program_of(application(names + "compute t(x7);"), ONE).tasks == 1


def test_depth_through_graph_components_is_bounded() -> None:
    parts = "".join(
        f'<component type="graph" name="g{n}"><graph>{"if 1 eq 1 then " * 60} compute g{n + 1}(); {"endif " * 60}'
        "</graph></component>" for n in range(14))  # fmt: skip
    refused(lambda: program_of(application("compute g0();"), parts + '<component type="graph" name="g14"><graph/>'
                               "</component>"), "nested more than 100 deep")


def test_nesting_of_graph_components_is_bounded() -> None:
    parts = "".join(f'<component type="graph" name="g{n}"><graph>compute g{n + 1}();</graph></component>'
                    for n in range(unroll.MAX_NESTED)) + '<component type="graph" name="g16"><graph/></component>'
    refused(lambda: program_of(application("compute g0();"), parts), "more than 16 graph components in each other")


TEXTS = abstract("s", "in string p") + ('<component type="impl" name="sI" abstract="s"><impl lang="SHELL">'
                                        "<source>true</source></impl></component>")


def test_long_texts_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: program_of(application(f'compute s("{"x" * 100_001}");'), TEXTS), "longer than 100,000 bytes")
    long = [letter * 90_000 for letter in "xy"]
    graph = (f'par (i := 1; 9000) do if i % 2 eq 0 then a := "{long[0]}"; else a := "{long[1]}"; endif '
             'compute s(a); enddo')
    file = loads(f"<yml-query>{TEXTS}</yml-query>".encode(), "parts")
    shelf = ComponentLibrary({each.name: each for each in file.components})
    found = loads(application(graph).encode(), "app").application
    assert found is not None
    program = compile_application(found, shelf)
    timed(lambda: requirements(program))
    assert requirements(program)["components"][0]["bytes_in"] == 9_000 * 90_000
    with pytest.raises(TooLarge, match="hand long texts over as data"):
        build(program, shelf)
    monkeypatch.setattr(builder, "MAX_LETTERS", 1 << 40)
    few = program_of(application(graph.replace("9000", "90", 1)), TEXTS)
    assert max(len(node.label) for node in picture(few).nodes) == LONGEST


def test_long_value_of_a_parameter_is_kept_whole() -> None:
    text = '<application><params><param name="v" type="string"/></params><graph>compute s(v);</graph></application>'
    assert program_of(text, TEXTS, v="x" * 5_000).task(0).arguments[0].value == "x" * 5_000
    with pytest.raises(BadInput, match="is not a value for 'v'"):
        program_of(text, TEXTS, v="x" * 100_001)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "0" * 2_000 + "1"])
def test_numbers_that_no_program_can_read_are_refused(value: str) -> None:
    text = '<application><params><param name="v" type="real"/></params><graph>compute r(v);</graph></application>'
    with pytest.raises(BadInput, match="is not a value for 'v'"):
        program_of(text, abstract("r", "in real p"), v=value)


def test_a_mistake_is_still_found_near_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit bounds effort, not the number of mistakes."""
    with pytest.raises(Mistakes) as caught:
        program_of(application("compute no(1); " * 3 + "compute t(q); " * 3), ONE)
    assert len(caught.value.each) == 6
    monkeypatch.setattr(effort, "MAX_CELLS", 100)
    with pytest.raises(BadInput, match="too large"):
        program_of(application("par (i := 1; 11) do x := i; par (j := 1; 10) do compute t(x); enddo enddo"), ONE)
