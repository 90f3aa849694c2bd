"""DAG files run as tasks of a real server: order, scripts, retries, giving up, the last node, rescue files."""

from __future__ import annotations

import itertools
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import CommandLine, until

SH = 'executable = /bin/sh\narguments = "-c \'$(do)\'"\noutput = $(JOB).out\nerror = $(JOB).err\n'


@pytest.fixture
def dag(windfall: CommandLine) -> CommandLine:
    windfall.write("sh.sub", SH)
    return windfall


def job(name: str, what: str = "echo $(JOB)", sub: str = "sh.sub") -> str:
    return f'JOB {name} {sub}\nVARS {name} do="{what}"\n'


def script(windfall: CommandLine, name: str, text: str) -> None:
    (windfall.folder / windfall.write(name, f"#!/bin/sh\n{text}\n")).chmod(0o755)


def rows_of(windfall: CommandLine, bag: int) -> dict[str, dict[str, Any]]:
    return {row["params"]["name"]: row for row in windfall.json("results", bag)}


def read(windfall: CommandLine, name: str) -> str:
    return (windfall.folder / name).read_text()


def test_files_go_from_node_to_node(dag: CommandLine) -> None:
    dag.write("take.sub", SH + "transfer_input_files = A.out, made/a.bin, local.txt\n")
    dag.write("make.sub", SH + "transfer_output_files = made/a.bin\n")
    dag.write("join.sub", "executable = join.sh\narguments = B.out C.out\ntransfer_input_files = B.out, C.out\n"
              "output = all.txt\nenvironment = \"WHO='two words'\"\ninput = local.txt\n")
    dag.write("local.txt", "local\n")
    script(dag, "join.sh", 'cat "$@" -; echo "$WHO"')
    dag.write("d.dag", job("A", "echo a; mkdir made; echo bin > made/a.bin", "make.sub")
              + job("B", "cat A.out a.bin local.txt; echo b", "take.sub") + job("C", "cat A.out; echo c", "take.sub")
              + "JOB D join.sub\nPARENT A CHILD B C\nPARENT B C CHILD D\n")
    done = dag.json("run", "d.dag")
    assert done["succeeded"] == 4 and "rescue" not in done
    assert read(dag, "all.txt") == "a\nbin\nlocal\nb\na\nc\nlocal\ntwo words\n" and read(dag, "made/a.bin") == "bin\n"
    rows = rows_of(dag, done["bag"])
    assert all(rows[b]["started"] >= rows[a]["ended"] for a, b in ("AB", "AC", "BD", "CD"))


def test_node_ends_with_the_exit_code_of_its_last_part(dag: CommandLine) -> None:
    """DAGMan's table: PRE, job and POST, each absent, well or failing; whoever depends on the node waits for that."""
    script(dag, "good.sh", "exit 0")
    script(dag, "bad.sh", "exit 4")
    lines, expected = [], {}
    for pre, middle, post in itertools.product("-SF", "SF", "-SF"):
        name = f"n{pre}{middle}{post}".replace("-", "_")
        lines += [job(name, "exit 0" if middle == "S" else "exit 3"), job(f"{name}_after"),
                  f"PARENT {name} CHILD {name}_after\n"]
        lines += [f"SCRIPT {kind} {name} {'good' if how == 'S' else 'bad'}.sh\n"
                  for kind, how in (("PRE", pre), ("POST", post)) if how != "-"]
        code = 4 if pre == "F" else 0 if post == "S" else 4 if post == "F" else 0 if middle == "S" else 3
        expected[name] = code
    dag.write("table.dag", "".join(lines))
    done = dag.json("run", "table.dag", code=1)
    rows = rows_of(dag, done["bag"])
    assert {name: rows[name]["exit"] for name in expected} == expected
    assert {name: rows[f"{name}_after"]["state"] for name in expected} == {
        name: "cancelled" if code else "succeeded" for name, code in expected.items()}


def test_scripts_get_the_values_of_dagman_macros(dag: CommandLine) -> None:
    script(dag, "pre.sh", 'echo "$@" > told.txt; [ "$1" != skipped ] || exit 9')
    script(dag, "post.sh", 'echo "$@" >> told.txt')
    dag.write("told.sub", SH + "transfer_output_files = told.txt\n")
    dag.write("told.dag", job("A", "kill -9 $$", "told.sub") + "SCRIPT PRE A pre.sh $JOB $MAX_RETRIES x=$JOB\n"
              "SCRIPT POST A post.sh $RETURN $PRE_SCRIPT_RETURN $JOB\nRETRY A 2\n"
              + 'JOB skipped sh.sub\nVARS skipped do="exit 1"\nSCRIPT PRE skipped pre.sh $JOB\nPRE_SKIP skipped 9\n'
              "JOB nothing gone.sub NOOP\nSCRIPT PRE nothing pre.sh now\n"
              "JOB before gone.sub DONE\nPARENT before CHILD A\n")
    done = dag.json("run", "told.dag")
    assert (done["tasks"], done["succeeded"]) == (3, 3)
    assert read(dag, "told.txt") == "A 2 x=$JOB\n-9 0 A\n" and read(dag, "skipped.out") == ""


def test_deferred_script_runs_again_later(dag: CommandLine) -> None:
    script(dag, "later.sh", "[ -e once ] || { touch once; exit 5; }; cat once")
    dag.write("later.dag", job("A", "ls once") + "SCRIPT DEFER 5 0 PRE A later.sh\n")
    assert dag.json("run", "later.dag")["succeeded"] == 1 and read(dag, "A.out") == "once\n"


def test_failed_node_is_retried_unless_its_exit_code_forbids_it(dag: CommandLine, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    tries.mkdir()
    count = f"mktemp {tries}/$(JOB).XXXXXX > /dev/null"
    third = f"{count}; test `ls {tries}/third.* | wc -l` = 3"
    dag.write("r.dag", job("never", f"{count}; exit 1") + job("hopeless", f"{count}; exit 7")
              + job("third", third) + "RETRY ALL_NODES 2 UNLESS-EXIT 7\n")
    done = dag.json("run", "r.dag", code=1)
    found = [len(list(tries.glob(f"{name}.*"))) for name in ("never", "hopeless", "third")]
    assert found == [3, 1, 3] and done["succeeded"] == 1
    assert sorted(cause["exit"] for cause in done["causes"]) == [1, 7]


def test_node_with_the_retry_macro_is_retried_in_a_new_bag(dag: CommandLine) -> None:
    """Nodes that have failed for good stay failed, and so do their dependents; done nodes do not run twice."""
    script(dag, "say.sh", 'echo "$@" >> said.txt; test "$1" = "$2"')
    dag.write("say.sub", SH + "transfer_output_files = said.txt\n")
    dag.write("took.sub", SH + "transfer_input_files = said.txt, once.out\n")
    dag.write("again.dag", job("once", "echo once; mktemp -u XXXXXX") + job("post", "exit 3", "say.sub")
              + "RETRY post 2\nSCRIPT POST post say.sh $RETRY $MAX_RETRIES $RETURN\n"
              + 'JOB vars sh.sub\nVARS vars number="$(RETRY)" do="echo $(number); test $(number) = 1"\nRETRY vars 3\n'
              + job("bad", "exit 1") + job("behind") + "PARENT bad CHILD behind\nPARENT once CHILD post\n"
              + job("took", "cat said.txt once.out", "took.sub") + "PARENT post once CHILD took\n"
              + 'JOB hopeless sh.sub\nVARS hopeless do="exit $(RETRY)7"\nRETRY hopeless 5 UNLESS-EXIT 17\n')
    done = dag.json("run", "again.dag", code=1)
    assert done["rounds"] == 3 and read(dag, "vars.out") == "1\n" and read(dag, "said.txt") == "2 2 3\n"
    assert read(dag, "took.out") == "2 2 3\n" + read(dag, "once.out")
    written = read(dag, "again.dag.rescue001")
    assert set(re.findall(r"^DONE (\w+)", written, re.MULTILINE)) == {"once", "post", "vars", "took"}
    assert "# Nodes that failed: 2\n" in written
    refused = dag("submit", "again.dag", "--fresh")
    assert refused.returncode == 2 and "$RETRY" in refused.stderr
    assert "-o does not go" in dag("run", "again.dag", "-o", "elsewhere").stderr


def test_subdag_is_retried_as_a_whole_without_its_done_nodes(dag: CommandLine, tmp_path: Path) -> None:
    """Done nodes of the SUBDAG do not run again; in the outer rescue file the SUBDAG is one node."""
    tries = tmp_path / "tries"
    tries.mkdir()
    count = f"mktemp {tries}/$(JOB).XXXXXX > /dev/null"
    dag.write("in.dag", job("P", count) + job("Q", f"{count}; test `ls {tries}/Q.* | wc -l` -ge $(least)")
              + 'VARS Q least="4"\nRETRY Q 1\nPARENT P CHILD Q\n')
    dag.write("u.dag", job("A", count) + "SUBDAG EXTERNAL B in.dag\n" + job("C", count)
              + "PARENT A CHILD B\nPARENT B CHILD C\nRETRY B 1\n")
    done = dag.json("run", "u.dag")
    assert done["rounds"] == 2 and "rescue" not in done
    found = {name: len(list(tries.glob(f"{name}.*"))) for name in "APQC"}
    assert found == {"A": 1, "P": 1, "Q": 4, "C": 1}
    assert re.findall("^DONE.*", read(dag, "in.dag.rescue001"), re.MULTILINE) == ["DONE P"]
    dag.write("in.dag", read(dag, "in.dag").replace('"4"', '"9"'))
    assert dag.json("run", "u.dag", "--fresh", code=1)["rounds"] == 2
    assert re.findall("^DONE.*", read(dag, "u.dag.rescue001"), re.MULTILINE) == ["DONE A"]
    assert read(dag, "in.dag.rescue003").endswith("DONE P\n")
    last = dag.json("run", "u.dag")  # it goes on after eight tries
    assert last["tasks"] == 2 and "rounds" not in last


def test_interrupted_run_writes_a_rescue_file(dag: CommandLine) -> None:
    dag.write("left.dag", job("A") + job("B", "sleep 600") + job("C") + "PARENT A CHILD B\nPARENT B CHILD C\n")
    running = dag.start("run", "left.dag")
    try:
        until(lambda: any(bag["name"] == "left" and bag["counts"]["succeeded"] for bag in dag.json("ls")))
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130 and "left.dag.rescue001" in said and "cancel the bag first" in said
    assert read(dag, "left.dag.rescue001").endswith("\nDONE A\n") and read(dag, "A.out") == "A\n"
    dag("cancel", "left")
    dag.write("left.dag", read(dag, "left.dag").replace("sleep 600", "true"))
    assert dag.json("run", "left.dag")["tasks"] == 2


def test_abort_cancels_the_rest_and_runs_the_final_node(dag: CommandLine) -> None:
    """ABORT-DAG-ON cancels all other nodes; the FINAL node gets DAG_STATUS and FAILED_COUNT."""
    dag.write("last.sub", "executable = /bin/echo\narguments = $(DAG_STATUS) $(FAILED_COUNT)\noutput = last.txt\n")
    text = job("stop", "sleep 1; exit 10") + job("long", "sleep 600") + job("after") + (
        "PARENT long CHILD after\nRETRY stop 5\nABORT-DAG-ON stop 10 RETURN 3\n")
    dag.write("stop.dag", text)
    done = dag.json("run", "stop.dag", code=3)
    assert done["aborted"] == "stop" and done["cancelled"] == 2 and done["failed"] == 1
    assert done["rescue"].endswith("stop.dag.rescue001")
    dag.write("last.dag", text + "FINAL last last.sub\n")
    done = dag.json("run", "last.dag")
    assert done["final"] == "succeeded" and read(dag, "last.txt") == "3 1\n"
    assert done["rescue"].endswith("last.dag.rescue001"), "as DAGMan: it has ended well, and there is a rest to run"


def test_node_succeeds_when_all_its_queued_jobs_have(dag: CommandLine) -> None:
    dag.write("a.dat", "1")
    dag.write("b.dat", "2")
    dag.write("many.sub", "executable = /bin/sh\narguments = \"-c 'test ! -e $Fn(file).no && cat $(file)'\"\n"
              "transfer_input_files = $(file) $(more)\noutput = $Fn(file).out\nmore =\nqueue file matching *.dat\n")
    dag.write("many.dag", "JOB A many.sub\n" + job("B", "cat a.out b.out", "take.sub") + "PARENT A CHILD B\n")
    dag.write("take.sub", SH + "transfer_input_files = a.out, b.out\n")
    done = dag.json("run", "many.dag")
    assert (done["tasks"], done["succeeded"]) == (3, 3) and read(dag, "B.out") == "12"
    dag.write("many.sub", read(dag, "many.sub").replace("test ! -e $Fn(file).no", "test $(file) != b.dat"))
    done = dag.json("run", "many.dag", code=1)
    assert (done["succeeded"], done["failed"], done["cancelled"]) == (1, 1, 1)
    assert not re.search("^DONE", read(dag, "many.dag.rescue001"), re.MULTILINE)


def test_scripts_of_a_subdag_run_as_nodes_of_the_dag(dag: CommandLine, tmp_path: Path) -> None:
    script(dag, "note.sh", f'echo "$@" >> {tmp_path}/noted')
    dag.write("in.dag", job("I", f"echo inside >> {tmp_path}/noted"))
    dag.write("out.dag", "SUBDAG EXTERNAL S in.dag\nSCRIPT PRE S note.sh before $JOB\n"
              "SCRIPT POST S note.sh after $RETURN\n" + job("last", f"echo last >> {tmp_path}/noted")
              + "PARENT S CHILD last\n")
    assert dag.json("run", "out.dag")["succeeded"] == 4
    assert (tmp_path / "noted").read_text() == "before S\ninside\nafter 0\nlast\n"


def test_failed_subdag_aborts_the_dag_when_nothing_in_it_is_left_to_run(dag: CommandLine, tmp_path: Path) -> None:
    dag.write("in.dag", job("bad", "exit 4") + job("slow", f"sleep 2; touch {tmp_path}/ran") + job("next")
              + "PARENT bad CHILD next\n")
    dag.write("out.dag", "SUBDAG EXTERNAL S in.dag\n" + job("long", "sleep 600") + "ABORT-DAG-ON S 1 RETURN 9\n")
    done = dag.json("run", "out.dag", code=9)
    assert done["aborted"] == "S" and (done["failed"], done["succeeded"], done["cancelled"]) == (1, 1, 2)
    assert (tmp_path / "ran").exists()
    dag.write("good.dag", job("fine"))
    dag.write("enough.dag", "SUBDAG EXTERNAL S good.dag\n" + job("long", "sleep 600") + "ABORT-DAG-ON S 0\n")
    assert dag.json("run", "enough.dag")["aborted"] == "S"


def test_abort_with_code_zero_is_a_success(dag: CommandLine) -> None:
    """DAGMan's ABORT-DAG-ON 0: what is found is enough.  It ends with 0, and leaves no rescue file."""
    dag.write("enough.dag", job("found") + job("long", "sleep 600") + "ABORT-DAG-ON found 0\n")
    done = dag.json("run", "enough.dag")
    assert done["aborted"] == "found" and (done["succeeded"], done["cancelled"]) == (1, 1)
    assert not list(dag.folder.glob("*.rescue*"))


def test_negative_exit_code_means_a_signal(dag: CommandLine, tmp_path: Path) -> None:
    """-9 means killed by signal 9: of the job, and of a script."""
    tries = tmp_path / "tries"
    tries.mkdir()
    script(dag, "killed.sh", "kill $$")
    count = f"mktemp {tries}/$(JOB).XXXXXX > /dev/null"
    dag.write("sig.dag", job("job", f"{count}; kill -9 $$") + job("post", count) + "SCRIPT POST post killed.sh\n"
              "RETRY job 3 UNLESS-EXIT -9\nRETRY post 3 UNLESS-EXIT -15\n")
    assert dag.json("run", "sig.dag", code=1)["failed"] == 2
    assert len(list(tries.glob("*"))) == 2
    dag.write("stop.dag", job("A", "kill -9 $$") + job("long", "sleep 600") + "ABORT-DAG-ON A -9 RETURN 4\n")
    assert dag.json("run", "stop.dag", code=4)["aborted"] == "A"


def test_submit_file_with_the_retry_macro_is_retried_in_a_new_bag(dag: CommandLine) -> None:
    what = "echo $(RETRY); test $(RETRY) = 1"
    dag.write("try.sub", f"executable = /bin/sh\noutput = t.out\narguments = \"-c '{what}'\"\n")
    dag.write("try.dag", "JOB A try.sub\nRETRY A 3\n")
    assert dag.json("run", "try.dag")["rounds"] == 2 and read(dag, "t.out") == "1\n"


def test_node_and_file_names_may_look_like_options(dag: CommandLine) -> None:
    dag.write("dash.sub", "executable = /bin/echo\narguments = x\noutput = -n/-c\nerror = -r.err\n")
    dag.write("bad.sub", "executable = /bin/sh\narguments = -c false\noutput = -f\n")
    dag.write("dash.dag", "JOB -A dash.sub\nJOB -B bad.sub\nJOB a.b bad.sub DONE\n")
    done = dag.json("run", "dash.dag", code=1)
    assert (done["succeeded"], done["failed"]) == (1, 1) and read(dag, "-n/-c") == "x\n"


def test_failed_final_node_fails_the_dag(dag: CommandLine) -> None:
    dag.write("f.dag", job("A") + job("L", "cat A.out; exit 6").replace("JOB L", "FINAL L"))
    done = dag("run", "f.dag")
    assert done.returncode == 1 and "final node L: failed" in done.stderr
    assert read(dag, "f.dag.rescue001").endswith("DONE A\n")
    again = dag.json("run", "f.dag", code=1)
    assert (again["tasks"], again["final"], again["rescue"][-3:]) == (1, "failed", "002"), "all others are done"
    dag.write("f.dag", read(dag, "f.dag").replace("cat A.out; exit 6", "echo $(DAG_STATUS)"))
    last = dag.json("run", "f.dag")
    assert (last["tasks"], last["final"]) == (1, "succeeded") and "rescue" not in last
    assert read(dag, "L.out") == "0\n"
    dag.write("only.dag", job("L").replace("JOB L", "FINAL L"))
    assert dag.json("run", "only.dag")["final"] == "succeeded"


def test_rescue_file_leaves_only_unfinished_nodes_to_run(dag: CommandLine) -> None:
    """The second run uses files that the first has left; its rescue file includes the first one."""
    dag.write("take.sub", SH + "transfer_input_files = A.out\n")
    text = job("A") + job("B", "cat A.out; {}", "take.sub") + job("C", "cat A.out", "take.sub") + job("D", "{}") + (
        "PARENT A CHILD B C\nPARENT B C CHILD D\n")
    dag.write("d.dag", text.format("exit 1", "exit 1"))
    assert dag.json("run", "d.dag", code=1)["succeeded"] == 2
    dag.write("d.dag", text.format("true", "exit 1"))
    second = dag.json("run", "d.dag", code=1)
    assert (second["tasks"], second["succeeded"], second["rescue"][-3:]) == (2, 1, "002")
    assert read(dag, "B.out") == "A\n"
    dag.write("d.dag", text.format("true", "true"))
    third = dag.json("run", "d.dag")
    assert (third["tasks"], third["succeeded"]) == (1, 1)
    assert dag.json("run", "d.dag", "--fresh")["tasks"] == 4


def test_unwritable_rescue_file_does_not_hide_the_summary(dag: CommandLine) -> None:
    """The summary and the JSON tell how the nodes ended."""
    name = "n" * 240 + ".dag"
    dag.write(name, job("A") + job("B", "exit 1"))
    done = dag("run", name, "--json")
    assert done.returncode == 1 and "cannot write a rescue file" in done.stderr
    assert '"succeeded": 1' in done.stdout and '"failed": 1' in done.stdout and '"rescue"' not in done.stdout


def test_category_limit_holds_across_splices_and_submit_files(dag: CommandLine) -> None:
    """No two of a category that may have one at once, though it is in two splices and two submit files."""
    dag.write("more.sub", SH + "request_disk = 1M\n")
    names = [f"n{number}" for number in range(4)]
    jobs = (job(name, "sleep 0.2", sub) for name, sub in zip(names, ["sh.sub", "more.sub"] * 2, strict=True))
    dag.write("in.dag", "".join(jobs) + "CATEGORY ALL_NODES +one\n")
    dag.write("c.dag", "SPLICE S in.dag\nSPLICE T in.dag\nMAXJOBS +one 1\n")
    rows = sorted(rows_of(dag, dag.json("run", "c.dag")["bag"]).values(), key=lambda row: row["started"])
    assert len(rows) == 8 and all(a["ended"] <= b["started"] for a, b in itertools.pairwise(rows))


def test_node_finds_files_in_the_folder_of_its_splice(dag: CommandLine) -> None:
    for name in ("one", "two"):
        (dag.folder / name).mkdir()
        dag.write(f"{name}/own.txt", f"{name}\n")
        dag.write(f"{name}/read.sub", SH + "transfer_input_files = own.txt\n")
    dag.write("one/inner.dag", job("X", "cat own.txt", "read.sub"))
    dag.write("f.dag", 'SPLICE S inner.dag DIR one\nJOB Y read.sub DIR two\nVARS Y do="cat own.txt"\n'
              "PARENT S CHILD Y\n")
    assert dag.json("run", "f.dag")["succeeded"] == 2
    assert read(dag, "one/S+X.out") == "one\n" and read(dag, "two/Y.out") == "two\n"


def test_wrong_options_and_commands_of_dag_files_are_refused(dag: CommandLine) -> None:
    dag.write("a.dag", job("A") + "ABORT-DAG-ON A 1\n")
    dag.write("m.dag", job("A") + "FOO\n")
    for words, said in (
        (["submit", "a.dag"], "windfall run a.dag"),
        (["run", "a.dag", "--stand-ins"], "recorded"),
        (["run", "x", "--fresh"], "--fresh is for DAG files"),
        (["run", "m.dag"], "m.dag:3:1: there is no command 'FOO'"),
        (["compile", "m.dag"], "m.dag:3:1: there is no command 'FOO'"),
        (["run", "gone.dag"], "cannot read gone.dag"),
    ):
        done = dag(*words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
    assert "A" in dag("run", "a.dag", "--dry-run").stdout and not list(dag.folder.glob("*.out"))
    assert dag.json("compile", "a.dag")["tasks"] == 1 and "digraph" in dag("graph", "a.dag").stdout


def test_submitted_dag_runs_without_its_command(dag: CommandLine) -> None:
    dag.write("alone.dag", job("A") + job("B") + "PARENT A CHILD B\n")
    bag = dag.json("submit", "alone.dag")["bag"]
    until(lambda: dag.json("show", bag)["state"] == "succeeded", 60)


@pytest.mark.parametrize("seed", range(3))
def test_random_graph_runs_in_order_and_failures_cancel_only_dependents(dag: CommandLine, seed: int) -> None:
    """A node starts after all its parents have succeeded; a failed node cancels its descendants only."""
    draw = random.Random(seed)
    names = [f"n{number}" for number in range(30)]
    before = {name: draw.sample(names[:at], min(at, draw.choice((0, 1, 1, 2, 3)))) for at, name in enumerate(names)}
    bad = set(draw.sample(names, 4))
    dag.write("g.dag", "".join(job(name, "exit 1" if name in bad else "exit 0") for name in names)
              + "".join(f"PARENT {' '.join(each)} CHILD {name}\n" for name, each in before.items() if each))
    rows = rows_of(dag, dag.json("run", "g.dag", code=1)["bag"])
    expected: dict[str, str] = {}
    for name in names:
        spoilt = any(expected[each] != "succeeded" for each in before[name])
        expected[name] = "cancelled" if spoilt else "failed" if name in bad else "succeeded"
    assert {name: row["state"] for name, row in rows.items()} == expected
    ran = [name for name in names if expected[name] != "cancelled"]
    assert all(rows[name]["started"] >= rows[each]["ended"] for name in ran for each in before[name])
