"""DAG files: what they say, where they are wrong, and that none of them gets the better of the reader."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from windfall.errors import BadInput, Mistakes, TooLarge
from windfall.model.templates.render import Renderer
from windfall.workflow.dagman import bag as dagbag, commands, lines as daglines, reader, rescue
from windfall.workflow.dagman.jobs import NodeJobs
from windfall.workflow.dagman.nodes import Graph
from windfall.workflow.dagman.submit_file import Values, read
from windfall.workflow.text import plain

TRUE = "executable = /bin/true\nqueue\n"
DIAMOND = "JOB A t.sub\nJOB B t.sub\nJOB C t.sub\nJOB D t.sub\nPARENT A CHILD B C\nPARENT B C CHILD D\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.sub").write_text(TRUE)
    return tmp_path


def load(folder: Path, text: str, name: str = "x.dag") -> Graph:
    (folder / name).write_text(text)
    return reader.load(folder / name)


def edges(graph: Graph) -> set[tuple[str, str]]:
    return {(graph.names[a], graph.names[b]) for a, b in graph.pairs}


def mistakes(folder: Path, text: str) -> list[tuple[str, str]]:
    """Line and column of each, and what is said."""
    with pytest.raises(BadInput) as caught:
        load(folder, text)
    each = caught.value.each if isinstance(caught.value, Mistakes) else [caught.value]
    return [(":".join(error.where.split(":")[1:]), error.message) for error in each]


# --- what it says ----------------------------------------------------------------------------------------------------


def test_diamond_has_its_edges_depth_and_width(folder: Path) -> None:
    graph = load(folder, DIAMOND)
    assert edges(graph) == {("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")}
    found = graph.requirements()
    assert (found["tasks"], found["edges"], found["depth"], found["width"]) == (4, 4, 3, 2)


def test_reader_takes_in_every_command_about_a_node(folder: Path) -> None:
    graph = load(folder, "\n".join((
        "# a comment", "job A t.sub dir sub noop", "JOB B t.sub DONE", "JOB C \\", "   t.sub",
        'VARS A one="1 \\"x\\"" two="\\\\"', 'VARS ALL_NODES three="$(JOB)"',
        "RETRY C 3 UNLESS-EXIT 2", "PRIORITY C -5", "CATEGORY C big", "MAXJOBS big 4", "ABORT-DAG-ON C 10 RETURN 1",
        "SCRIPT DEFER 4 60 PRE C pre.sh $JOB x", "SCRIPT POST C post.sh", "PRE_SKIP C 9",
        "CONFIG nothing", "FINAL F t.sub", "SCRIPT POST F post.sh",
    )))  # fmt: skip
    a, b, c = graph.nodes
    assert a.noop and a.folder == folder / "sub" and not a.done and b.done
    assert a.vars == [("one", '1 "x"', False), ("two", "\\", False), ("three", "$(JOB)", False)]
    assert (c.retries, c.unless, c.priority, c.category, c.abort, c.skip) == (3, 2, -5, "big", (10, 1), 9)
    assert c.pre and c.pre.program.text == "pre.sh" and c.pre.arguments == ["$JOB", "x"] and c.pre.defer == (4, 60)
    assert graph.most == {"big": 4} and graph.final and graph.final.post and graph.final.vars == []
    assert list(graph.notes) == ["CONFIG is ignored"]


def test_later_command_about_a_node_counts(folder: Path) -> None:
    graph = load(folder, "JOB A t.sub\nRETRY A 1\nRETRY ALL_NODES 2\nPRIORITY ALL_NODES 7\nPRIORITY A 8")
    assert (graph.nodes[0].retries, graph.nodes[0].priority) == (2, 8)


def test_splice_joins_the_graph_by_its_first_and_last_nodes(folder: Path) -> None:
    """A splice's ends are its first and last nodes; the same file twice is two graphs."""
    load(folder, DIAMOND + "MAXJOBS here 1\nMAXJOBS +all 3\nCATEGORY A here\nCATEGORY B +all", "inner.dag")
    graph = load(folder, "SPLICE X inner.dag\nSPLICE Y inner.dag\nPARENT X CHILD Y\nMAXJOBS X+here 9\nMAXJOBS +all 2")
    assert ("X+D", "Y+A") in edges(graph) and len(edges(graph)) == 9 and len(graph.nodes) == 8
    assert graph.most == {"X+here": 9, "Y+here": 1, "+all": 2}
    assert [node.category for node in graph.nodes[:2]] == ["X+here", "+all"]
    load(folder, "SPLICE I inner.dag\nJOB Z t.sub\nPARENT I CHILD Z", "middle.dag")
    graph = load(folder, "SPLICE M middle.dag\nJOB E t.sub\nPARENT M CHILD E")
    assert ("M+I+D", "M+Z") in edges(graph) and ("M+Z", "E") in edges(graph) and len(graph.nodes) == 6


def test_a_subdag_is_part_of_the_graph(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "t.sub").write_text(TRUE)
    load(folder / "in", "JOB S t.sub\nPRIORITY S 10", "sub.dag")
    graph = load(folder, "JOB A t.sub\nSUBDAG EXTERNAL B sub.dag DIR in\nPARENT A CHILD B\nPRIORITY B 100")
    assert edges(graph) == {("A", "B+S")} and graph.nodes[1].priority == 110 and graph.nodes[1].folder == folder / "in"
    done = load(folder, "SUBDAG EXTERNAL B sub.dag DIR in DONE\nJOB A t.sub")
    assert done.nodes[0].done and not done.nodes[1].done


def test_scripts_of_a_subdag_run_before_and_after_its_nodes(folder: Path) -> None:
    """Each is a node of its own, so that the order of lines, splices and rescue files treat it as any other."""
    (folder / "s.sh").write_text("")
    load(folder, DIAMOND, "inner.dag")
    load(folder, "JOB X t.sub\nSUBDAG EXTERNAL S inner.dag\nJOB Y t.sub\nPARENT X CHILD S\nPARENT S CHILD Y\n"
         "SCRIPT POST S s.sh no\nSCRIPT PRE S s.sh $JOB\nSCRIPT POST S s.sh $JOB\nPRIORITY S 3\n", "outer.dag")
    graph = load(folder, "SPLICE O outer.dag\nJOB Z t.sub\nPARENT O CHILD Z\n")
    found = edges(graph)
    assert {("O+X", "O+S++pre"), ("O+S++pre", "O+S+A"), ("O+S+D", "O+S++post"), ("O+S++post", "O+Y"),
            ("O+Y", "Z")} <= found and ("O+X", "O+S+A") not in found and len(found) == 4 + 5
    jobs = {job.node.name: job for job in NodeJobs(graph).all().values()}
    assert jobs["O+S++pre"].pre == jobs["O+S++post"].post == ["./s.sh", "O+S"] and not jobs["O+S++pre"].post
    assert jobs["O+S++post"].node.priority == 3
    rescue.write(graph, [name for name in graph.names if name != "O+S++post"], ["O+S++post"])
    assert (folder / "inner.dag.rescue001").read_text().endswith("DONE A\nDONE B\nDONE C\nDONE D\n")
    again = reader.load(folder / "x.dag")
    rescue.take_up(again)
    assert [node.name for node in again.nodes if not node.done] == ["O+S++post", "O+S++pre"]
    whole = load(folder, "SUBDAG EXTERNAL S inner.dag\nSCRIPT PRE S s.sh\nDONE S\n")
    assert all(node.done for node in whole.nodes) and len(whole.nodes) == 5


def test_category_of_a_subdag_holds_for_its_nodes(folder: Path) -> None:
    load(folder, "JOB A t.sub\nJOB B t.sub\nCATEGORY B own\nMAXJOBS own 1\n", "inner.dag")
    graph = load(folder, "SUBDAG EXTERNAL S inner.dag\nCATEGORY S big\nMAXJOBS big 2\nABORT-DAG-ON S 1 RETURN 7\n")
    assert [node.category for node in graph.nodes] == ["big", "S+own"] and graph.most["big"] == 2
    assert graph.subdags[0].abort == (1, 7) and graph.aborts == [graph.subdags[0]] and not graph.notes
    never = load(folder, "SUBDAG EXTERNAL S inner.dag\nABORT-DAG-ON S 3\n")
    assert any("acts on 0 and 1 only" in note for note in never.notes)


def test_pins_connect_the_nodes_of_two_splices(folder: Path) -> None:
    load(folder, "JOB A1 t.sub\nJOB A2 t.sub\nPIN_OUT A1 1\nPIN_OUT A2 2\n", "a.dag")
    load(folder, "PIN_IN B1 1\nPIN_IN B2 1\nPIN_IN B3 2\n" + "".join(f"JOB B{n} t.sub\n" for n in (1, 2, 3))
         + "PIN_OUT B1 1\nPIN_OUT B3 1\n", "b.dag")
    graph = load(folder, "CONNECT A B\nSPLICE A a.dag\nSPLICE B b.dag\n")
    assert edges(graph) == {("A+A1", "B+B1"), ("A+A1", "B+B2"), ("A+A2", "B+B3")}
    load(folder, "SPLICE A a.dag\nSPLICE B b.dag\nCONNECT A B\n", "deep.dag")
    assert ("D+A+A2", "D+B+B3") in edges(load(folder, "SPLICE D deep.dag\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CONNECT B A", "the pins of PIN_IN in 'A' do not match: 1 go out of 'B', 0 into 'A'"),
        ("CONNECT A A", "the pins of PIN_IN in 'A' do not match: 2 go out of 'A', 0 into 'A'"),
        ("CONNECT A C", "node 'C+C2' waits for no other node of its splice, and has no PIN_IN"),
        ("CONNECT A X", "'X' is not a splice"),
        ("CONNECT A Y", "there is no node 'Y'"),
        ("PIN_IN X 0", "'0' is not a whole number from 1 to 100,000"),
    ],
)
def test_pins_that_do_not_match_are_refused(folder: Path, text: str, said: str) -> None:
    load(folder, "JOB A1 t.sub\nJOB A2 t.sub\nPIN_OUT A1 1\nPIN_OUT A2 2\n", "a.dag")
    load(folder, "JOB B1 t.sub\nPIN_OUT B1 1\n", "b.dag")
    load(folder, "JOB C1 t.sub\nJOB C2 t.sub\nPIN_IN C1 1\nPIN_IN C1 2\n", "c.dag")
    splices = "".join(f"SPLICE {name.upper()} {name}.dag\n" for name in "abc")
    assert [message for _, message in mistakes(folder, f"{splices}JOB X t.sub\n{text}\n")] == [said]


def test_node_of_a_splice_has_a_name_outside_it(folder: Path) -> None:
    load(folder, DIAMOND, "inner.dag")
    graph = load(folder, 'SPLICE S inner.dag\nJOB E t.sub\nVARS S+A x="1"\nRETRY S+B 2\nPARENT S+B CHILD E\n')
    assert graph.nodes[0].vars == [("x", "1", False)] and graph.nodes[1].retries == 2
    assert ("S+B", "E") in edges(graph) and ("S+D", "E") not in edges(graph)


def test_noop_subdag_keeps_its_place_without_jobs(folder: Path) -> None:
    """The nodes of a NOOP SUBDAG keep their places in the order, but have neither jobs nor scripts."""
    (folder / "p.sh").write_text("")
    load(folder, DIAMOND + "SCRIPT PRE ALL_NODES p.sh\n", "inner.dag")
    graph = load(folder, "JOB X t.sub\nSUBDAG EXTERNAL S inner.dag NOOP\nJOB Y t.sub\n"
                 "PARENT X CHILD S\nPARENT S CHILD Y\n")
    assert all(node.noop and node.pre is None for node in graph.nodes if node.name.startswith("S+"))
    assert ("X", "S+A") in edges(graph) and ("S+D", "Y") in edges(graph)


def test_nodes_of_a_subdag_keep_their_own_names_unless_two_clash(folder: Path) -> None:
    """Nodes of a SUBDAG are named as in its own file, nodes of a splice in full, and two of one name also in full."""
    for name, job in (("one.dag", "P"), ("two.dag", "Q"), ("three.dag", "Q")):
        (folder / name).write_text(f"JOB {job} t.sub\nSPLICE S inner.dag\n" if job == "P" else f"JOB {job} t.sub\n")
    (folder / "inner.dag").write_text("JOB I t.sub\n")
    graph = load(folder, "SUBDAG EXTERNAL A one.dag\nSUBDAG EXTERNAL B two.dag\nSUBDAG EXTERNAL C three.dag\n")
    assert {node.name: node.called for node in graph.nodes} == {
        "A+P": "P", "A+S+I": "S+I", "B+Q": "B+Q", "C+Q": "C+Q"}


def test_included_files_and_inline_descriptions_are_read(folder: Path) -> None:
    (folder / "more.inc").write_text("JOB B common\nPARENT A CHILD B\n")
    graph = load(folder, "JOB A {\n  executable = /bin/echo\n  arguments = a\n}\n"
                 "SUBMIT-DESCRIPTION common {\n executable = /bin/echo\n arguments = $(JOB)\n}\nINCLUDE more.inc\n")
    assert edges(graph) == {("A", "B")}
    jobs = NodeJobs(graph).all()
    assert [jobs[0].run, jobs[1].run] == [["/bin/echo", "a"], ["/bin/echo", "B"]]


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("JOB A", "1:6", "JOB is incomplete"),
        ("JOB A t.sub\nJOB A t.sub", "2:5", "the name 'A' is taken"),
        ("JOB A+B t.sub", "1:5", "'A+B' cannot be the name"),
        ("JOB child t.sub", "1:5", "'child' cannot be the name"),
        ("JOB A t.sub HUH", "1:13", "'HUH' is not understood"),
        ("JOB A t.sub\nPARENT A CHILD B", "2:16", "there is no node 'B'"),
        ("JOB A t.sub\nPARENT A", "2:9", "PARENT is incomplete"),
        ("JOB A t.sub\nRETRY A x", "2:9", "'x' is not a whole number"),
        ("JOB A t.sub\nCATEGORY A " + "c" * 300, "2:12", "cannot be the name of a category"),
        ("JOB A t.sub\nRETRY A 1 UNTIL 2", "2:11", "'UNTIL' is not understood"),
        ("JOB A t.sub\nVARS A b=c", "2:8", "this is not MACRO"),
        ('JOB A t.sub\nVARS A b="c" d', "2:14", "this is not MACRO"),
        ('JOB A t.sub\nVARS A queue="1"', "2:8", "cannot begin with 'queue'"),
        ("JOB A t.sub\nJOBS B t.sub", "2:1", "there is no command 'JOBS'"),
        ("JOB A t.sub\nSERVICE B t.sub", "2:1", "SERVICE is not supported"),
        ("SPLICE S x.dag", "1:10", "includes itself"),
        ("JOB A t.sub\nSPLICE S gone.dag", "2:10", "there is no file"),
        ("FINAL F t.sub\nFINAL G t.sub", "2:1", "there is a FINAL node already"),
        ("FINAL F t.sub\nJOB A t.sub\nPARENT A CHILD F", "3:16", "the FINAL node comes after all"),
        ("FINAL F t.sub\nRETRY F 2", "2:7", "RETRY does not apply to the FINAL node"),
        ("JOB A {\nexecutable = x", "1:7", "has no end"),
        ("JOB A t.sub\nSCRIPT AFTER A p", "2:8", "'AFTER' is not understood"),
        ("JOB A t.sub\nJOB B t.sub\nPARENT A CHILD B\nPARENT B CHILD A", "2:5", "in a circle: B → A → B"),
    ],
)
def test_mistakes_have_a_place(folder: Path, text: str, where: str, said: str) -> None:
    found = mistakes(folder, text)
    assert len(found) == 1 and found[0][0] == where and said in found[0][1], found


def test_wrong_commands_for_splices_and_subdags_are_refused(folder: Path) -> None:
    load(folder, DIAMOND, "inner.dag")
    for kind, more in (("SPLICE S inner.dag", ["2:7", "3:6", "4:12"]), ("SUBDAG EXTERNAL S inner.dag", [])):
        found = mistakes(folder, f'{kind}\nRETRY S 1\nVARS S a="b"\nSCRIPT PRE S p\nPRE_SKIP S 1\n')
        assert [where for where, _ in found] == [*more, "5:10"]


def test_variables_of_a_subdag_reach_no_node(folder: Path) -> None:
    """DAGMan gives them to the job that runs the inner DAG, which makes nothing of them."""
    load(folder, DIAMOND, "inner.dag")
    graph = load(folder, 'SUBDAG EXTERNAL S inner.dag\nVARS S a="b"\n')
    assert not any(node.vars for node in graph.nodes) and any("VARS of a SUBDAG" in note for note in graph.notes)


def test_a_splice_without_nodes_has_no_place_in_the_order(folder: Path) -> None:
    """B would not wait for A: DAGMan refuses that, too."""
    (folder / "empty.dag").write_text("# nothing\n")
    text = "JOB A t.sub\nJOB B t.sub\nSPLICE S empty.dag\nPARENT A CHILD S\nPARENT S CHILD B\n"
    found = mistakes(folder, text)
    assert [where for where, _ in found] == ["4:16", "5:8"] and "has no nodes" in found[0][1]
    assert len(load(folder, "JOB A t.sub\nSPLICE S empty.dag\n").nodes) == 1


def test_exit_codes_below_zero_mean_signals(folder: Path) -> None:
    graph = load(folder, "JOB A t.sub\nRETRY A 5000 UNLESS-EXIT -15\nABORT-DAG-ON A -9\nJOB a.b t.sub\n"
                 "RETRY a.b 1 UNLESS-EXIT -1001\n")
    assert (graph.nodes[0].unless, graph.nodes[0].abort, graph.nodes[0].retries) == (143, (137, None), 1000)
    assert any("more than 1,000 times" in note for note in graph.notes)
    targets = dagbag.parsed(graph).bag.targets
    assert [target.check.hopeless for target in targets] == [[137, 143], []]


def test_value_continues_over_several_lines(folder: Path) -> None:
    graph = load(folder, 'JOB A t.sub\nVARS A a="one \\\n   two" \\\n b="x\\"\\\\y"\n')
    assert [(name, value) for name, value, _ in graph.nodes[0].vars] == [("a", "one two"), ("b", 'x"\\y')]


def test_macros_of_a_script_are_known_in_any_case(folder: Path) -> None:
    (folder / "s.sh").write_text("")
    graph = load(folder, "JOB A t.sub\nSCRIPT POST A s.sh $job $Node x$JOB $return $Retry $HOME\n")
    words = NodeJobs(graph).all()[0].post
    assert words == ["./s.sh", "A", "A", "'x$JOB'", '"$RETURN"', "0", "'$HOME'"] and graph.nodes[0].asks
    named = NodeJobs(load(folder, "JOB $RETURN t.sub\nSCRIPT POST $RETURN s.sh $JOB $RETURN\n")).all()[0].post
    assert named == ["./s.sh", "'$RETURN'", '"$RETURN"'], "a node may be called what a shell would fill in"


def test_node_whose_submit_file_uses_retry_is_attended(folder: Path) -> None:
    (folder / "r.sub").write_text("executable = /bin/echo\narguments = $(Retry) $(JOB)\n")
    graph = load(folder, "JOB A r.sub\nJOB B t.sub\nRETRY ALL_NODES 2\n")
    jobs = NodeJobs(graph).all()
    assert jobs[0].run == ["/bin/echo", "0", "A"] and [node.asks for node in graph.nodes] == [True, False]
    assert graph.attended


def test_reader_reports_at_most_fifty_mistakes(folder: Path) -> None:
    assert len(mistakes(folder, "\n".join(["RETRY"] * 20_000))) == 50


def test_files_that_include_each_other_are_refused(folder: Path) -> None:
    load_ = [f"SPLICE S {(number + 1) % 3}.dag" for number in range(3)]
    for number, text in enumerate(load_):
        (folder / f"{number}.dag").write_text(text)
    with pytest.raises(BadInput, match="includes itself"):
        reader.load(folder / "0.dag")
    (folder / "i.dag").write_text("INCLUDE j.dag")
    (folder / "j.dag").write_text("INCLUDE i.dag")
    with pytest.raises(BadInput, match="includes itself"):
        reader.load(folder / "i.dag")


def test_nests_are_bounded(folder: Path) -> None:
    for number in range(40):
        (folder / f"{number}.dag").write_text(f"SPLICE S {number + 1}.dag")
    with pytest.raises(BadInput, match="more than 32 deep"):
        reader.load(folder / "0.dag")
    for number in range(30):  # 2 to the 30th files, if it were followed
        (folder / f"{number}.dag").write_text(f"SPLICE S {number + 1}.dag\nSPLICE T {number + 1}.dag")
    (folder / "30.dag").write_text("JOB A t.sub")
    with pytest.raises(TooLarge, match="more than 10,000 files"):
        reader.load(folder / "0.dag")


def test_repeated_reading_of_files_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of comments, spliced ten thousand times, is ten gigabytes to be read."""
    monkeypatch.setattr(reader, "MAX_TEXT", 1 << 20)
    (folder / "long.dag").write_text("# nothing\n" * 10_000)
    for line in ("INCLUDE long.dag", "SPLICE S{} long.dag"):
        text = "JOB A t.sub\n" + "".join(line.format(number) + "\n" for number in range(20))
        with pytest.raises(TooLarge, match="1 MiB in all"):
            load(folder, text)


@pytest.mark.parametrize(("line", "bound"), [('VARS ALL_NODES a="1" b="2"', "MAX_GIVEN"),
                                             ("RETRY ALL_NODES 1", "MAX_BY_ALL_NODES")])
def test_commands_for_all_nodes_are_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, bound: str
) -> None:
    monkeypatch.setattr(commands, bound, 1_000)
    jobs = "".join(f"JOB n{number} t.sub\n" for number in range(100))
    load(folder, jobs + f"{line}\n" * 5)
    with pytest.raises(TooLarge):
        load(folder, jobs + f"{line}\n" * 11)


def test_length_of_a_line_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daglines, "MAX_LINE", 1_000)
    load(folder, "#" * 2_000 + "\nJOB A t.sub\n")
    with pytest.raises(TooLarge, match="has a line"):
        load(folder, "JOB A t.sub\nJOB B t.sub\nPARENT " + "A " * 1_000 + "CHILD B\n")


def test_edges_are_bounded(folder: Path) -> None:
    names = " ".join(f"n{number}" for number in range(3_000))
    jobs = "\n".join(f"JOB n{number} t.sub" for number in range(3_000))
    with pytest.raises(TooLarge, match="edges"):
        load(folder, f"{jobs}\nPARENT {names} CHILD {names}")


# --- submit descriptions ---------------------------------------------------------------------------------------------


def values(text: str, **given: str) -> Values:
    return Values(read(plain("x.sub", text)), given, [])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("one two", ["one", "two"]),
        ('one \\"two\\"', ["one", '"two"']),
        ("""\"one 'two  words' three\"""", ["one", "two  words", "three"]),
        ("""\"it''s ""quoted"" 'don''t'\"""", ["its", '"quoted"', "don't"]),
        ("\"a'b c'd ''\"", ["ab cd", ""]),
        ("", []),
    ],
)
def test_arguments_are_split_by_the_rules_of_condor(written: str, meant: list[str]) -> None:
    assert values(f"arguments = {written}").arguments() == meant


def test_submit_file_gives_values_sizes_and_counts() -> None:
    found = values(
        "Executable = $(program)\nprogram=prog-$(version)\n# no\nenvironment = A=1;B=x y\nrequest_memory=2\n"
        "request_disk = 1GB\nrequest_cpus = $(cpus:3)\noutput = out.\\\n  txt\nqueue 1\n", version="2",
    )  # fmt: skip
    assert found.get("executable") == "prog-2" and found.environment() == {"A": "1", "B": "x y"}
    assert (found.size("request_memory", "M"), found.size("request_disk", "K")) == (2 << 20, 1 << 30)
    assert found.count("request_cpus", 1) == 3 and found.get("output") == "out.    txt".replace("    ", "   ")


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("a = $(b)\nb = $(a)", "a", "expand without end"),
        ("a = $(b)$(b)\nb = $(a)$(a)", "a", "expand without end"),
        ("a = " + "$(" * 60 + "x" + ")" * 60 + "\nx = x", "a", "expand without end"),
        ("\n".join(f"m{n} = $(m{n + 1})$(m{n + 1})" for n in range(40)) + "\nm40 = x", "m0", "expand without end"),
        ("a = $(b)$(b)\nb = $(c)$(c)\nc = $(d)$(d)\nd = " + "x" * 500_000, "a", "expand without end"),
        ("a = $(nope)", "a", "no macro 'nope'"),
        ("a = $$(Memory)", "a", "a value of HTCondor's machines"),
        ("a = $INT(x)", "a", "not known here"),
    ],
)
def test_impossible_macros_are_refused(text: str, name: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        values(text).get(name)
    assert said in caught.value.message and caught.value.where.startswith("x.sub:1:")


def test_macros_expand_inside_names_of_macros() -> None:
    found = values("a = $(x$(n))$(y:$(n))\nn = 1\nx1 = $(z)\nz = $(DOLLAR)(z) $(dollar:)$(n)", n="9")
    assert found.get("a") == "$(z) $11" and found.get("n") == "1"


def test_many_macros_take_no_longer_than_their_text() -> None:
    """The reader works out each macro once, though a merge of many files uses it thousands of times."""
    text = ", ".join(f"$(folder)/part-{number}" for number in range(20_000))
    began = time.process_time()
    found = values(f"folder = $(base)/x\nbase = {'b' * 20}\ntransfer_input_files = {text}\n")
    assert found.listed("transfer_input_files")[-1] == "b" * 20 + "/x/part-19999"
    assert time.process_time() - began < 2


def test_macro_in_its_own_value_means_the_old_value() -> None:
    found = values("x = a\nX = $(x) b\nx = $( x ) c\ny = <$(y)>\nz = $(z:none)\nw = $(w)!\nw = $(w)?", y="given")
    assert [found.get(name) for name in "xyzw"] == ["a b c", "<given>", "none", "!?"]
    after = Values(read(plain("x.sub", "x = $(x) b")), {"x": "a"}, [("X", "$(x) c"), ("x", "$(x) d")])
    assert after.get("x") == "a b c d"


def test_macros_that_double_themselves_are_bounded() -> None:
    began = time.process_time()
    with pytest.raises(BadInput, match="expand without end") as caught:
        values("x = aaaa\n" + "x = $(x)$(x)\n" * 100)
    assert caught.value.where.startswith("x.sub:")
    with pytest.raises(BadInput, match="grow to more than 64 MiB"):
        values(f"x = {'a' * 500_000}\n" + "x = $(x) a\n" * 1_000)
    with pytest.raises(BadInput, match="expand without end"):
        values("x = " + "$(x)" * 10_000, x="a" * 10_000)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$CHOICE(IsWindows, /bin/echo, appendmsg)", "/bin/echo"),
        ("$CHOICE(two, list)", "c"),
        ("$CHOICE(1,$(list))x", "bx"),
        ("$SUBSTR(name, 2)|$SUBSTR(name,0,-2)|$SUBSTR(name,1,3)", "cdef|abcd|bcd"),
        ("$SUBSTR(name,-1)|$SUBSTR(name,4,-3)|", "f||"),
        ("$BASENAME(file) $BASENAME($(file),.tar.gz) $DIRNAME(file)", "b.tar.gz b /d/a/"),
        ("$Fp(file) $Fd(file) $Fdb(file) $Fn(file) $Fx(file) $Fxb(file)", "/d/a/ a/ a b.tar .gz gz"),
        ("$Fnx(/t/e.exe) $F(file) $Fq(file) $Fqan(file) $Fn(a/b)", "e.exe /d/a/b.tar.gz \"/d/a/b.tar.gz\" 'b.tar' b"),
    ],
)
def test_functions_of_macros_give_what_condor_gives(text: str, found: str) -> None:
    given = {"iswindows": "0", "two": "2", "list": "a, b, c", "name": "abcdef", "file": "/d/a/b.tar.gz"}
    assert values(f"v = {text}", **given).get("v") == found


@pytest.mark.parametrize(
    ("text", "said"),
    [("$CHOICE(3,a,b)", "has no item 3"), ("$CHOICE(x,a,b)", "'x' is not a whole number"),
     ("$SUBSTR(x)", "takes a macro's name"), ("$RANDOM_CHOICE(1,2)", "not known here"), ("$Ff(x)", "not known here")],
)  # fmt: skip
def test_wrong_functions_of_macros_are_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match="x.sub:1:1") as caught:
        values(f"v = {text}").get("v")
    assert said in caught.value.message


QUEUES = [
    ("queue", ["0/0/"]),
    ("queue 3", ["0/0/", "1/1/", "2/2/"]),
    ("queue $(count)", ["0/0/", "1/1/"]),
    ("queue x in (a, b c)", ["0/0/a", "1/0/b", "2/0/c"]),
    ("Queue 2 x IN a,b", ["0/0/a", "1/1/a", "2/0/b", "3/1/b"]),
    ("queue 1 x in [1:] (\na\nb\n# no\nc, d\n)", ["0/0/b", "1/0/c", "2/0/d"]),
    ("queue x matching files *.dat", ["0/0/a.dat", "1/0/b.dat"]),
    ("queue x matching dirs [::2] d*, *.dat", ["0/0/d"]),
    ("queue y,x from (\n1, -a -b 26\n2 z\n)", ["0/0/-a -b 26", "1/0/z"]),
    ("queue x from [0:4:2] list.txt", ["0/0/one 1", "1/0/three 3"]),
    ("queue\nx = later\nqueue 2", ["0/0/", "1/0/later", "2/1/later"]),
]


@pytest.mark.parametrize(("text", "jobs"), QUEUES)
def test_queue_makes_a_task_of_each_job(folder: Path, text: str, jobs: list[str]) -> None:
    (folder / "d").mkdir()
    for name in ("b.dat", "a.dat"):
        (folder / name).write_text("")
    (folder / "list.txt").write_text("one 1\n\n# no\ntwo 2\nthree 3\n")
    (folder / "q.sub").write_text(f"executable = /bin/echo\ncount = 2\narguments = $(Process)/$(Step)/$(x:)\n{text}\n")
    found = NodeJobs(load(folder, "JOB A q.sub\n"))
    assert [" ".join(job.run[1:]) for job in found.all().values()] == jobs
    names = [job.name for job in found.each.values()]
    assert names == (["A"] if len(jobs) == 1 else [f"A+{number}" for number in range(len(jobs))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queue many", "is not understood here"), ("queue 1000000", "at most 100,000 jobs"),
        ("queue x! in a", "'x!' is not understood"), ("queue x from gone.txt", "cannot read"),
        ("queue x from ls |", "does not run a command"), ("queue x in [0:1:0] a", "is not a slice"),
        ("queue x matching *.gone", "queues no job"), ("queue x in (\na", "have no end"),
        ("queue " + "a " * 50_000 + "!", "is not understood"), ("queue $(gone)", "no macro 'gone'"),
        ("queue 1000 x in " + "a " * 1_000, "at most 100,000 jobs"),
    ],
)  # fmt: skip
def test_impossible_queue_is_refused_with_its_place(folder: Path, text: str, said: str) -> None:
    (folder / "q.sub").write_text(f"executable = /bin/echo\n{text}\n")
    with pytest.raises(BadInput, match=r"q\.sub:2:1") as caught:
        NodeJobs(load(folder, "JOB A q.sub\n")).all()
    assert said in caught.value.message


def test_nodes_wait_for_all_jobs_of_the_nodes_before(folder: Path) -> None:
    (folder / "q.sub").write_text("executable = /bin/echo\noutput = $(JOB)-$(Process).txt\nqueue 2\n")
    (folder / "take.sub").write_text("executable = /bin/cat\ntransfer_input_files = A-0.txt, A-1.txt\nqueue\n")
    (folder / "s.sh").write_text("")
    graph = load(folder, "JOB A q.sub\nJOB B q.sub\nJOB C take.sub\nPARENT A CHILD B\nPARENT B CHILD C\n"
                 "SCRIPT PRE B s.sh\nSCRIPT POST B s.sh\nRETRY B 2\n")
    found = NodeJobs(graph)
    jobs = found.all()
    names = {job.number: job.name for job in jobs.values()}
    assert {(names[a], names[b]) for a, b in found.edges()} == {
        ("A+0", "B++pre"), ("A+1", "B++pre"), ("B++pre", "B+0"), ("B++pre", "B+1"), ("B+0", "B++post"),
        ("B+1", "B++post"), ("B++post", "C")}
    assert [(job.name, job.pre, job.post) for job in jobs.values() if job.pre or job.post] == [
        ("B++pre", ["./s.sh"], []), ("B++post", [], ["./s.sh"])]
    bag = dagbag.parsed(graph).bag
    assert sum(each.count for each in map(Renderer, bag.targets)) == 7 and graph.parts["B++pre"] == "B"
    with pytest.raises(BadInput, match="PRE_SKIP cannot skip them"):
        NodeJobs(load(folder, "JOB B q.sub\nSCRIPT PRE B s.sh\nPRE_SKIP B 1\n")).all()


@pytest.mark.parametrize("text", ["if defined x\nendif", "include : f", "just words"])
def test_description_with_conditions_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read(plain("x.sub", f"executable = x\n{text}\n"))


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_node_reads_files_of_the_nodes_that_make_them(folder: Path) -> None:
    made = "executable = /bin/sh\noutput = o/$(JOB).txt\ntransfer_output_files = deep/d.bin\n"
    (folder / "make.sub").write_text(made)
    (folder / "take.sub").write_text("executable = run.sh\ntransfer_input_files = o/A.txt, d.bin, here.txt\n")
    (folder / "run.sh").write_text("")
    (folder / "here.txt").write_text("")
    jobs = NodeJobs(load(folder, "JOB A make.sub\nJOB B take.sub\nPARENT A CHILD B")).all()
    assert jobs[0].outputs() == ["o/A.txt", "deep/d.bin"]
    assert {place: what.name if hasattr(what, "node") else str(what) for place, what in jobs[1].reads.items()} == {
        "run.sh": str(folder / "run.sh"), "A.txt": "o/A.txt", "d.bin": "deep/d.bin",
        "here.txt": str(folder / "here.txt"),
    }  # fmt: skip
    bag = dagbag.parsed(load(folder, "JOB A make.sub\nJOB B take.sub\nPARENT A CHILD B")).bag
    assert bag.flows is not None and sum(number >= 0 for number in bag.flows.before) == 2


@pytest.mark.parametrize(
    ("sub", "said"),
    [
        ("", "has no executable"),
        ("executable = gone.sh", "there is no program"),
        ("executable = /bin/sh\ntransfer_input_files = gone.txt", "not here and no earlier node leaves"),
        ("executable = /bin/sh\ntransfer_input_files = http://x/y", "cannot be sent along"),
        ("executable = /bin/sh\noutput = ../../out", "outside the folder"),
        ("executable = /bin/sh\ninitialdir = /tmp", "outside the folder"),
        ("executable = /bin/sh\nuniverse = docker", "universe 'docker'"),
        ("executable = /bin/sh\nrequest_memory = ifThenElse(x, 1, 2)", "is not a size"),
        ("executable = /bin/sh\nrequest_cpus = many", "is not a whole number"),
        ("executable = /bin/sh\narguments = \"'x\"", "a single quote is not closed"),
        ("executable = /bin/sh\nenvironment = nonsense", "is not NAME=VALUE"),
    ],
)
def test_impossible_jobs_are_refused_with_their_place(folder: Path, sub: str, said: str) -> None:
    (folder / "bad.sub").write_text(sub + "\n")
    with pytest.raises(BadInput) as caught:
        NodeJobs(load(folder, "JOB A bad.sub\n")).all()
    assert said in caught.value.message and caught.value.where.count(":") == 2


def test_reader_reports_all_mistakes_of_submit_files(folder: Path) -> None:
    """Mistakes that only follow from another are left out, such as unknown outputs of a wrong node."""
    (folder / "a.sub").write_text("output = $(gone)\n")
    (folder / "b.sub").write_text("executable = /bin/sh\nuniverse = grid\nrequest_cpus = x\narguments = \"'x\"\n"
                                  "transfer_input_files = A.out\ninput = s3://x\n")
    (folder / "c.sub").write_text("executable\nif x\nqueue (\n")
    (folder / "d.sub").write_text("transfer_input_files = http://x/y\n")
    with pytest.raises(Mistakes) as caught:
        NodeJobs(load(folder, "JOB A a.sub\nJOB B b.sub\nJOB C c.sub\nJOB D d.sub\nPARENT A CHILD B\n")).all()
    found = [error.where.rpartition("/")[2].rpartition(":")[0] for error in caught.value.each]
    assert found == ["a.sub:1", "b.sub:2", "b.sub:3", "b.sub:4", "c.sub:1", "c.sub:2", "c.sub:3", "d.sub:1", "d.sub:1"]


@pytest.mark.parametrize("text", ["JOB n{} bad.sub\n", "JOB n{} named\n"])
def test_wrong_description_is_read_once_for_all_nodes(folder: Path, text: str) -> None:
    bad = "nonsense\n" + "# and much of it\n" * 20_000
    (folder / "bad.sub").write_text(bad)
    graph = load(folder, f"SUBMIT-DESCRIPTION named {{\n{bad}}}\n" + "".join(map(text.format, range(1_000))))
    began = time.process_time()
    with pytest.raises(BadInput, match="not 'name = value'"):
        NodeJobs(graph).all()
    assert time.process_time() - began < 5


def test_folder_with_a_pipe_cannot_be_sent(folder: Path) -> None:
    """The reader of a pipe would wait for ever."""
    (folder / "d").mkdir()
    os.mkfifo(folder / "d" / "pipe")
    (folder / "d.sub").write_text("executable = /bin/sh\ntransfer_input_files = d\n")
    with pytest.raises(BadInput, match="pipe' is not a plain file") as caught:
        dagbag.parsed(load(folder, "JOB A d.sub\n"))
    assert caught.value.where.endswith("d.sub:2:1")


def test_final_node_is_checked_before_the_first_node_runs(folder: Path) -> None:
    """The FINAL node may read files that other nodes will leave."""
    (folder / "make.sub").write_text("executable = /bin/sh\noutput = $(JOB).txt\n")
    (folder / "last.sub").write_text("executable = /bin/sh\narguments = $(DAG_STATUS)\ntransfer_input_files = A.txt\n")
    (folder / "bad.sub").write_text("executable = gone.sh\nrequest_cpus = x\ntransfer_input_files = B.txt\n")
    assert len(NodeJobs(load(folder, "JOB A make.sub\nFINAL F last.sub\n")).all()) == 1
    with pytest.raises(Mistakes) as caught:
        NodeJobs(load(folder, "JOB A make.sub\nFINAL F bad.sub\n")).all()
    assert [error.where.split(":")[-2] for error in caught.value.each] == ["1", "2", "3"]
    with pytest.raises(BadInput, match="there is no submit file"):
        dagbag.parsed(load(folder, "JOB A make.sub\nFINAL F gone.sub\n"))


def test_every_node_knows_how_its_dag_is(folder: Path) -> None:
    (folder / "s.sh").write_text("")
    (folder / "d.sub").write_text("executable = /bin/echo\narguments = $(DAG_STATUS) $(FAILED_COUNT) x$(DAGManJobId)\n"
                                  "environment = N=$(DAGManJobId)\noutput = $(output_).txt\n")
    graph = load(folder, 'JOB A d.sub\nSCRIPT PRE A s.sh $DAG_STATUS $FAILED_COUNT $DAGID\n'
                 'VARS A output_="$(JOB)"\nVARS A job="$(JOB)"\n')
    (target,) = dagbag.parsed(graph).bag.targets
    command = Renderer(target).params(0)["command"]
    assert "/bin/echo 0 0" in command and "./s.sh 0 0" in command and command.count("$WINDFALL_BAG") == 3
    graph.bag = 17
    assert NodeJobs(graph).all()[0].run[-1] == "x17"
    (folder / "d.sub").write_text("executable = /bin/echo\noutput = out.$(DAGManJobId)\n")
    with pytest.raises(BadInput, match="has no value yet in 'output'"):
        NodeJobs(load(folder, "JOB A d.sub\n")).all()


def test_missing_file_is_reported_once_for_all_nodes(folder: Path) -> None:
    (folder / "in.sub").write_text("executable = gone.sh\ntransfer_input_files = gone.txt\n")
    (folder / "also.sub").write_text("executable = ./gone.sh\ninput = gone.txt\n")
    nodes = "".join(f"JOB N{each} in.sub\nJOB M{each} also.sub\nJOB L{each} gone.sub\n" for each in range(20))
    with pytest.raises(BadInput, match=f"^[^\n]*: there is no submit file {folder}/gone.sub"):
        NodeJobs(load(folder, nodes)).all()
    with pytest.raises(Mistakes) as caught:
        NodeJobs(load(folder, nodes.replace("gone.sub", "t.sub"))).all()
    assert sorted(error.message[:20] for error in caught.value.each) == ["node 'N0' reads 'gon", "there is no program "]


def test_missing_splice_is_the_only_mistake(folder: Path) -> None:
    assert [said for _, said in mistakes(folder, "JOB A t.sub\nSPLICE S gone.dag\nSUBDAG EXTERNAL D gone.dag\n"
                                         "PARENT A CHILD S\nPARENT S CHILD D\nRETRY D 2\n")] == [
        f"there is no file {folder}/gone.dag"] * 2


def test_missing_submit_file_is_refused_with_its_place(folder: Path) -> None:
    with pytest.raises(BadInput, match="there is no submit file") as caught:
        NodeJobs(load(folder, "JOB A t.sub\nJOB B gone.sub\n")).all()
    assert caught.value.where.endswith("x.dag:2:7")


# --- rescue files ----------------------------------------------------------------------------------------------------


def test_rescue_files_are_numbered_and_applied(folder: Path) -> None:
    graph = load(folder, DIAMOND)
    assert rescue.newest(graph.file) is None
    first = rescue.write(graph, ["A"], ["B"])
    assert first.name == "x.dag.rescue001" and "# Nodes that failed: 1\n#   B,<ENDLIST>" in first.read_text()
    second = rescue.write(graph, ["A", "C"], [])
    assert second.name == "x.dag.rescue002" and rescue.newest(graph.file) == second
    again = load(folder, DIAMOND)
    assert rescue.apply(again, second) == 2 and [node.done for node in again.nodes] == [True, False, True, False]
    (folder / "x.dag.rescue003").write_text("DONE A\nDONE Q\nPARENT A CHILD B\nRETRY B 4\n")
    with pytest.raises(Mistakes) as caught:
        rescue.apply(again, folder / "x.dag.rescue003")
    assert [error.where.rsplit(":", 2)[1] for error in caught.value.each] == ["2", "3"]
    (folder / "x.dag.rescue999").write_text("")
    assert rescue.write(graph, [], []).name == "x.dag.rescue999"


def test_pipes_and_directories_are_no_rescue_files(folder: Path) -> None:
    """The reader of a pipe of that name would wait for ever."""
    graph = load(folder, DIAMOND)
    (folder / "x.dag.rescue001").write_text("DONE A\n")
    os.mkfifo(folder / "x.dag.rescue002")
    (folder / "x.dag.rescue003").mkdir()
    assert rescue.take_up(graph) == [folder / "x.dag.rescue001"]
    assert [node.done for node in graph.nodes] == [True, False, False, False]
    assert rescue.write(graph, ["A"], []).name == "x.dag.rescue004"
    (folder / "x.dag.rescue004").unlink()
    (folder / "x.dag.rescue001").write_text("# by another version\nRETRY B 5000 UNLESS-EXIT -9\nDONE A\n")
    assert rescue.take_up(load(folder, DIAMOND))


def test_a_subdag_has_a_rescue_file_of_its_own(folder: Path) -> None:
    """As with DAGMan, the outer rescue file has the SUBDAG as one node."""
    (folder / "in").mkdir()
    for where, name, text in (
        (folder / "in", "deep.dag", "JOB Z t.sub\nJOB Y t.sub"),
        (folder / "in", "sub.dag", "JOB P t.sub\nJOB Q t.sub\nSPLICE R deep.dag\nSUBDAG EXTERNAL S deep.dag"),
    ):
        (where / "t.sub").write_text(TRUE)
        (where / name).write_text(text)
    text = "JOB A t.sub\nSUBDAG EXTERNAL B sub.dag DIR in\nRETRY B 2\nSUBDAG EXTERNAL C two.dag\n"
    (folder / "two.dag").write_text("JOB X t.sub\n")
    graph = load(folder, text)
    rescue.write(graph, ["A", "B+P", "B+R+Z", "B+S+Z", "C+X"], ["B+Q", "B+S+Y"])

    def lines(name: str) -> list[str]:
        return [line for line in (folder / name).read_text().splitlines() if line and not line.startswith("#")]

    assert lines("x.dag.rescue001") == ["DONE A", "DONE C"]
    assert "# Total number of Nodes: 3" in (folder / "x.dag.rescue001").read_text()
    assert lines("in/sub.dag.rescue001") == ["DONE P", "DONE R+Z"] and lines("in/deep.dag.rescue001") == ["DONE Z"]
    assert "#   Q,S,<ENDLIST>" in (folder / "in" / "sub.dag.rescue001").read_text()
    assert not (folder / "two.dag.rescue001").exists()
    again = load(folder, text)
    assert len(rescue.take_up(again)) == 3
    assert [node.name for node in again.nodes if not node.done] == ["B+Q", "B+R+Y", "B+S+Y"]
    (folder / "x.dag.rescue002").write_text("DONE B\nRETRY B 1\n")
    third = load(folder, text)
    rescue.take_up(third)
    assert [node.name for node in third.nodes if not node.done] == ["A", "C+X"] and third.units["B"].retries == 1


def test_two_subdags_of_one_file_share_no_rescue_file(folder: Path) -> None:
    (folder / "sub.dag").write_text("JOB P t.sub\nJOB Q t.sub\n")
    text = "SUBDAG EXTERNAL B sub.dag\nSUBDAG EXTERNAL C sub.dag\nPARENT B CHILD C\n"
    rescue.write(load(folder, text), ["B+P", "B+Q", "C+P"], ["C+Q"])
    assert not list(folder.glob("sub.dag.rescue*"))
    again = load(folder, text)
    rescue.take_up(again)
    assert [node.name for node in again.nodes if not node.done] == ["C+Q"]


# --- anything at all -------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    "JOB A B C t.sub PARENT CHILD VARS x=\"1\" RETRY 2 SPLICE inner.dag SUBDAG EXTERNAL FINAL DONE NOOP DIR . SCRIPT "
    "PRE POST HOLD DEFER MAXJOBS CATEGORY +c PRIORITY -1 ABORT-DAG-ON RETURN UNLESS-EXIT ALL_NODES { } \\ # INCLUDE "
    "x.dag \" PRE_SKIP SUBMIT-DESCRIPTION = é \x00".split(" ")
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(WORDS, max_size=6), max_size=8))
def test_reader_survives_random_dag_files(folder: Path, text: list[list[str]]) -> None:
    (folder / "inner.dag").write_text("JOB I t.sub\nJOB J t.sub\nPARENT I CHILD J\n")
    try:
        graph = load(folder, "\n".join(map(" ".join, text)))
        NodeJobs(graph).all()
    except BadInput as error:
        assert error.message


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab=$():\"' \n\\#{}queuif0,;", max_size=120))
def test_reader_survives_random_submit_files(text: str) -> None:
    try:
        found = values("arguments = x\n" + text)
        for name in found.description.entries:
            found.get(name)
        found.arguments(), found.environment(), found.size("a", "M")
    except BadInput as error:
        assert error.message


def test_a_large_file_is_read_in_time(folder: Path) -> None:
    draw = random.Random(1)
    jobs = [f'JOB n{number} t.sub\nVARS n{number} k="{number}"' for number in range(20_000)]
    pairs = [f"PARENT n{draw.randrange(number)} CHILD n{number}" for number in range(1, 20_000)]
    graph = load(folder, "\n".join([*jobs, *pairs]))
    assert len(graph.nodes) == 20_000 and len(dagbag.parsed(graph).bag.edges) == 19_999
