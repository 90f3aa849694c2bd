"""Applications of YvetteML, run for real: every language, types of one's own, collections, failures."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.real import CommandLine, environment
from windfall import Client
from windfall.workflow.build import compose, streaming

COMPILED = pytest.mark.needs("compilers")
HERE = f"{platform.system()}-{platform.machine()}".lower()


def param(text: str) -> str:
    """`in integer* n`; a star is a collection."""
    mode, kind, name = text.split()
    collection = ' collection="yes"' if kind.endswith("*") else ""
    return f'<param name="{name}" type="{kind.rstrip("*")}" mode="{mode}"{collection}/>'


def component(name: str, params: str, lang: str, source: str, header: str = "", more: str = "") -> str:
    declared = "".join(param(each) for each in params.split(", "))
    return (f'<component type="abstract" name="{name}"><params>{declared}</params></component>'
            + implementation(name, "Impl", lang, source, header, more))


def implementation(name: str, suffix: str, lang: str, source: str, header: str = "", more: str = "") -> str:
    return (f'<component type="impl" name="{name}_{suffix}" abstract="{name}"><impl lang="{lang}" {more}>'
            f"<header><![CDATA[{header}]]></header><source><![CDATA[{source}]]></source></impl></component>")


def application(graph: str, *components: str, params: str = "") -> str:
    declared = "".join(param(each) for each in params.split(", ")) if params else ""
    return (f'<yml-query>{"".join(components)}<application name="app"><params>{declared}</params>'
            f"<graph>{graph}</graph></application></yml-query>")


def run(windfall: CommandLine, text: str, *words: object, code: int = 0) -> dict:
    windfall.write("app.query", text)
    return windfall.json("run", "app.query", "-o", "out", *words, code=code)


def result(windfall: CommandLine, name: str) -> str:
    return (windfall.folder / "out" / name).read_text()


PAIR_C = """
typedef struct { long long a; double b; } Pair;
int param_import_Pair(Pair *p, const char *file) {
    FILE *in = fopen(file, "r");
    int n = in ? fscanf(in, "%lld %lf", &p->a, &p->b) : 0;
    if (in) fclose(in);
    return n == 2;
}
int param_export_Pair(const Pair *p, const char *file) {
    FILE *out = fopen(file, "w"); if (!out) return 0; fprintf(out, "%lld %.17g", p->a, p->b); return fclose(out) == 0;
}
"""
PAIR_CXX = """
struct Pair { long long a; double b; };
template <> bool param_import(Pair& p, char* file) { std::ifstream in(file); return bool(in >> p.a >> p.b); }
template <> bool param_export(const Pair& p, char* file) {
    std::ofstream out(file);
    return bool(out << p.a << ' ' << p.b);
}
"""
PAIR_PYTHON = """
def param_import_Pair(path):
    a, b = open(path).read().split()
    return int(a), float(b)

def param_export_Pair(value, path):
    with open(path, "w") as stream:
        stream.write("{} {}".format(*value))
"""


@COMPILED
def test_value_passes_through_components_in_every_language(windfall: CommandLine) -> None:
    text = application(
        'compute First(p, 3, 0.5, "a,b \\"c\\" {d}"); compute Second(q, p); compute Third(r, q); compute Fourth(n, r);'
        "compute Fifth(text, n, r);",
        component("First", "out Pair p, in integer a, in real b, in string s", "PYTHON",
                  "  p = (a + len(s), b)", PAIR_PYTHON),
        component("Second", "out Pair q, in Pair p", "C", "q.a = 2 * p.a; q.b = p.b / 2;", PAIR_C),
        component("Third", "out Pair r, in Pair q", "CXX", "r = q; r.a += 1;", PAIR_CXX),
        component("Fourth", "out integer n, in Pair r", "SHELL", "set -- $(cat $r); echo $(($1 * 10)) > $n"),
        component("Fifth", "out string text, in integer n, in Pair r", "EXECUTABLE", "printf '%s:' {n} {r} > {text}"),
    )
    done = run(windfall, text)
    assert done["succeeded"] == done["tasks"] == 7 and done["files"] == 1
    a = 2 * (3 + len('a,b "c" {d}')) + 1
    assert result(windfall, "text") == f"{10 * a}:in/r:"


SUM = "total = sum(sum(index if isinstance(index, tuple) else (index,)) * value for index, value in all.items())"


@pytest.mark.parametrize("lang, source", [
    ("PYTHON", SUM),
    pytest.param("CXX", "for (auto& each : all) { long long n = 0; for (long long i : each.first) n += i;"
                        " total += n * each.second; }", marks=COMPILED),
    pytest.param("C", "size_t i; for (i = 0; i < all_count; ++i) { char *dot = strchr(all_index[i], '.');"
                      " total += (atoll(all_index[i]) + (dot ? atoll(dot + 1) : 0)) * all[i]; }", marks=COMPILED),
    ("SHELL", "t=0; for f in $all/*; do i=${f##*/}; set -- $(echo $i | tr . ' ');"
              " t=$((t + ($1 + ${2:-0}) * $(cat $f))); done; echo $t > $total"),
])  # fmt: skip
def test_collections_are_read_in_every_language(windfall: CommandLine, lang: str, source: str) -> None:
    text = application(
        "par (i := 1; 3)(j := 1; 2) do compute Make(x[i][j], i, j); enddo"
        " compute Sum(all, x); compute Sum(row, x[2]);",
        component("Make", "out integer value, in integer i, in integer j", "SHELL", "echo $((10 * i + j)) > $value"),
        component("Sum", "out integer total, in integer* all", lang, source))
    run(windfall, text)
    assert int(result(windfall, "all")) == sum((i + j) * (10 * i + j) for i in (1, 2, 3) for j in (1, 2))
    assert int(result(windfall, "row")) == 1 * 21 + 2 * 22


@pytest.mark.parametrize("lang, source", [
    ("PYTHON", "for i in range(1, n + 1):\n    parts[i] = i * i"),
    pytest.param("CXX", "for (long long i = 1; i <= n; ++i) parts[windfall_index(1, i)] = i * i;", marks=COMPILED),
    pytest.param("C", 'long long i; for (i = 1; i <= n; ++i) parts_put(i * i, "%lld", i);', marks=COMPILED),
    ("SHELL", "i=1; while [ $i -le $n ]; do echo $((i * i)) > $parts/$i; i=$((i + 1)); done"),
])  # fmt: skip
def test_a_whole_collection_is_written_and_its_members_picked(windfall: CommandLine, lang: str, source: str) -> None:
    text = application(
        "compute Split(x, 3); par (i := 1; 3) do compute Twice(y[i], x[i]); enddo compute Sum(s, x);",
        component("Split", "out integer* parts, in integer n", lang, source),
        component("Twice", "out integer y, in integer x", "SHELL", "echo $((2 * x)) > $y"),
        component("Sum", "out integer total, in integer* all", "PYTHON", SUM))
    done = run(windfall, text)
    assert [int(result(windfall, f"y[{i}]")) for i in (1, 2, 3)] == [2, 8, 18] and done["files"] == 4
    assert int(result(windfall, "s")) == 1 + 2 * 4 + 3 * 9


def test_reader_gets_the_value_of_its_own_iteration(windfall: CommandLine) -> None:
    """The first iteration reads an empty value."""
    text = application(
        "seq (i := 1; 4) do compute Add(log, i); compute Copy(seen[i], log); enddo",
        component("Add", "inout string log, in integer i", "SHELL", "printf '%s,' $i >> $log"),
        component("Copy", "out string to, in string log", "SHELL", 'printf %s "$log" > $to'))
    run(windfall, text)
    assert [result(windfall, f"seen[{i}]") for i in (1, 2, 3, 4)] == ["1,", "1,2,", "1,2,3,", "1,2,3,4,"]


def test_the_implementation_that_fits_the_host_runs(windfall: CommandLine) -> None:
    text = application(
        "compute Who(name);",
        component("Who", "out string name", "SHELL", "printf nobody > $name", "", 'platform="vms-vax"'),
        implementation("Who", "There", "EXECUTABLE", "no-such-program-here > {name}"),
        implementation("Who", "Here", "SHELL", "printf here > $name", "", f'platform="{HERE}"'))
    run(windfall, text)
    assert result(windfall, "name") == "here"


@COMPILED
def test_runnable_implementation_with_the_highest_rank_runs(windfall: CommandLine) -> None:
    """Implementations that cannot be compiled, or not on this host, are passed over."""
    text = application(
        "compute Who(name);",
        component("Who", "out string name", "SHELL", "printf shell > $name"),
        implementation("Who", "Broken", "C", "no such thing", "", 'rank="30"'),
        implementation("Who", "Far", "C", 'name = "far";', "", 'rank="20" platform="vms-vax"'),
        implementation("Who", "Good", "C", 'name = "good";', "", 'rank="+10"'),
        implementation("Who", "Last", "SHELL", "printf last > $name", "", 'rank="-1"'))
    done = run(windfall, text)
    assert done["tasks"] == done["succeeded"] == 4 and result(windfall, "name") == "good"
    assert "is for vms-vax" in windfall("logs", done["bag"], 2, "--err").stdout
    run(windfall, text.replace('rank="+10"', 'rank="-2"'))
    assert result(windfall, "name") == "shell"


@pytest.mark.parametrize("lang, source", [
    pytest.param("C", 'all[0] += 5; all_put(70, "%s", "7");', marks=COMPILED),
    pytest.param("CXX", "all.begin()->second += 5; all[windfall_index(1, 7)] = 70;", marks=COMPILED),
    ("SHELL", "echo $(($(cat $all/1) + 5)) > $all/1; echo 70 > $all/7"),
    ("PYTHON", "all[1] += 5; all[7] = 70"),
])  # fmt: skip
def test_inout_collection_keeps_members_that_are_not_changed(windfall: CommandLine, lang: str, source: str) -> None:
    """The component changes one member and adds another."""
    windfall.write("one.txt", "1")
    windfall.write("two.txt", "2")
    text = application(
        "compute Change(x); compute Sum(s, x);", component("Change", "inout integer* all", lang, source),
        component("Sum", "out integer total, in integer* all", "PYTHON", SUM), params="inout integer* x, out integer s")
    run(windfall, text, "--data", "x[1]=one.txt", "--data", "x[2]=two.txt")
    assert int(result(windfall, "s")) == 1 * (1 + 5) + 2 * 2 + 7 * 70


def test_log_says_why_no_implementation_fits(windfall: CommandLine) -> None:
    who = component("Who", "out string name", "SHELL", "x", "", 'platform="vms-vax"')
    text = application("compute Who(name);", who)
    done = run(windfall, text, code=1)
    said = windfall("logs", done["bag"], 0, "--err").stdout
    assert "no implementation runs here" in said and "is for vms-vax" in said


def test_failed_branch_cancels_only_its_dependents(windfall: CommandLine) -> None:
    text = application(
        "par (i := 1; 3) do compute Half(a[i], i); compute Next(b[i], a[i]); enddo",
        component("Half", "out integer a, in integer i", "SHELL", "[ $i -ne 2 ]; echo $i > $a"),
        component("Next", "out integer b, in integer a", "SHELL", "echo $((a + 1)) > $b"))
    done = run(windfall, text, code=1)
    assert (done["succeeded"], done["failed"], done["cancelled"]) == (4, 1, 1)
    assert [result(windfall, f"b[{i}]") for i in (1, 3)] == ["2\n", "4\n"]


@COMPILED
def test_log_shows_why_a_source_does_not_compile(windfall: CommandLine) -> None:
    text = application("compute Bad(a);", component("Bad", "out integer a", "CXX", "a = no_such_thing;"))
    done = run(windfall, text, code=1)
    assert done["cancelled"] == 1 and "no_such_thing" in windfall("logs", done["bag"], 1, "--err").stdout


def test_collection_file_that_is_not_named_by_an_index_fails_the_task(windfall: CommandLine) -> None:
    text = application("compute Split(x);", component("Split", "out integer* parts", "SHELL", "echo 1 > $parts/one"))
    done = run(windfall, text, code=1)
    assert "'one' is not" in windfall("logs", done["bag"], 0, "--err").stdout


def test_collection_is_read_with_its_changes_and_text_may_be_empty(windfall: CommandLine) -> None:
    text = application(
        'compute Split(s); compute Add(s[1], 100); compute All(r, s); compute Say(t, ""); compute SayPy(u, "");',
        component("Split", "out integer* s", "SHELL", "for k in 1 2 3; do echo $k > $s/$k; done"),
        component("Add", "inout integer x, in integer n", "SHELL", "echo $(( $(cat $x) + n )) > $x.new; mv $x.new $x"),
        component("All", "out string o, in integer* s", "SHELL", "cat $s/* > $o"),
        component("Say", "out string o, in string t", "SHELL", "echo \"[$t]\" > $o"),
        component("SayPy", "out string o, in string t", "PYTHON", "o = f'[{t}]'"))
    run(windfall, text)
    assert [result(windfall, name) for name in "rtu"] == ["101\n2\n3\n", "[]\n", "[]"]


@pytest.mark.parametrize(("command", "said"), [
    ("cat {t} > log.txt", "writes to something other than an out parameter"),
    ("cat > {t}", "other than an out parameter"),
    ("cat {t} >{o}", "writes to something other than"), ("cat 'x", "No closing quotation"), (" ", "has no program"),
    ("cat {x}", "uses {x}, which is not a parameter"),
])  # fmt: skip
def test_wrong_command_of_a_component_is_refused_before_it_runs(windfall: CommandLine, command: str, said: str) -> None:
    windfall.write("app.query", application('compute Run(o, "t");', component(
        "Run", "out string o, in string t", "EXECUTABLE", command)))
    done = windfall("run", "app.query")
    assert done.returncode == 2 and said in done.stderr and "app.query:1: " in done.stderr, done.stderr


def test_dry_run_shows_the_command_of_a_component(windfall: CommandLine) -> None:
    windfall.write("app.query", application("compute Make(x, 7);", component(
        "Make", "out integer x, in integer n", "SHELL", "echo $n > $x")))
    done = windfall("run", "app.query", "--dry-run")
    assert done.returncode == 0 and "/bin/sh .component/run.sh '' 7" in done.stdout, done.stdout


def test_parameters_take_data_from_files_and_values_from_options(windfall: CommandLine) -> None:
    windfall.write("one.txt", "1")
    windfall.write("two.txt", "2")
    sums = component("Sum", "out integer total, in integer* all, in real f", "PYTHON", f"{SUM}; total = int(total * f)")
    text = application("compute Sum(s, x, f);", sums, params="in integer* x, in real f, out integer s")
    run(windfall, text, "--data", "x[3]=one.txt", "--data", "x[4]=two.txt", "--set", "f=2")
    assert result(windfall, "s") == str(2 * (3 * 1 + 4 * 2))
    for words, said in (
        (["--set", "f=1"], "the data for 'x' is missing"),
        (["--set", "f=1", "--data", "y=one.txt"], "is missing"),
        (["--set", "f=1", "--data", "x[1]=one.txt", "--data", "z=one.txt"], "takes no data for 'z'"),
        (["--set", "f=1", "--data", "x[1]=none.txt"], "none.txt cannot be read"),
        (["--data", "x[1]=one.txt"], "'f'"),
    ):
        done = windfall("run", "app.query", *words)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_mistakes_in_an_application_are_refused_before_anything_runs(windfall: CommandLine) -> None:
    make = component("Make", "out integer x", "SHELL", "echo 1 > $x")
    use = component("Use", "out integer y, in integer x", "SHELL", "echo $x > $y")
    abstract = '<component type="abstract" name="None"><param name="x" type="integer" mode="out"/></component>'
    for text, said in (
        (application("compute None(x);", abstract), "no component implements None"),
        (application("compute Use(y, x); compute Make(x);", make, use), "'x' is read before anything has written it"),
        (application("", make), "has no 'compute' statement"),
        (application("compute Make(x);", component("Make", "out integer x", "EXECUTABLE", "echo {y}")), "uses {y}"),
        (application("compute Make(x);", component("Make", "out integer x", "SHELL", "", "", 'rank="best"')),
         "'best' is not a rank"),
    ):
        windfall.write("app.query", text)
        done = windfall("run", "app.query")
        assert done.returncode == 2 and said in done.stderr, done.stderr


CHAIN = "par (i := 1; 3) do compute Half(a[i], i); compute Next(b[i], a[i]); enddo compute Sum(s, b);"


def chain(half: str, following: str = "echo $((a + 1)) > $b") -> str:
    return application(
        CHAIN, component("Half", "out integer a, in integer i", "SHELL", half),
        component("Next", "out integer b, in integer a", "SHELL", following),
        component("Sum", "out integer total, in integer* all", "PYTHON", "total = sum(all.values())"))


def rerun(windfall: CommandLine, text: str, code: int = 0) -> tuple[int, dict]:
    """How many ran, and what was said."""
    windfall.write("app.query", text)
    done = windfall.json("rerun", "app.query", "--name", "again", "-o", "out", code=code)
    return done["tasks"], done


def test_rerun_runs_only_tasks_that_failed_or_changed(windfall: CommandLine) -> None:
    broken = chain("[ $i -ne 2 ]; echo $i > $a")
    assert run(windfall, broken, "--name", "again", code=1)["succeeded"] == 4
    ran, _ = rerun(windfall, broken, code=1)
    assert ran == 3  # the one that fails, and the two that wait for it
    assert windfall.json("rerun", "again", "-o", "out", code=1)["tasks"] == 3  # a bag's name does, too
    ran, _ = rerun(windfall, chain("echo $i > $a"))
    assert ran == 7 and result(windfall, "s") == "9"  # another command: all of them
    assert rerun(windfall, chain("echo $i > $a"))[0] == 0
    ran, _ = rerun(windfall, chain("echo $i > $a", "echo $((a + 2)) > $b"))
    assert ran == 4 and result(windfall, "s") == "12"  # what makes `a` has not changed
    (windfall.folder / "out" / "s").unlink()
    ran, done = rerun(windfall, chain("echo $i > $a"))
    assert ran == 0 and done["files"] == 1 and result(windfall, "s") == "9"  # as it was two runs ago


def test_application_runs_without_a_server(alone: CommandLine) -> None:
    text = application("compute Make(x, 5);", component("Make", "out integer x, in integer n", "SHELL", "echo $n > $x"))
    assert json.dumps(run(alone, text)["succeeded"]) == "1" and result(alone, "x") == "5\n"


@compose.component
def half(x: int) -> float:
    import math

    return math.floor(x) / 2


@compose.component
def pairs(parts: dict[int, float], label: str) -> dict[int, list]:
    return {index: [label, value] for index, value in parts.items()}


@compose.component
def joined(some: dict[int, list], one: list) -> list:
    return sorted(some.values()) + [one]


@pytest.mark.parametrize("size", [streaming.PART, 1])
def test_python_functions_run_as_components(windfall: CommandLine, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The workflow runs as one bag, and sent part by part."""
    monkeypatch.setattr(streaming, "PART", size)
    part, two, end = map(compose.data, ("part", "two", "end"))
    flow = compose.Workflow(
        "halves", compose.par(half(i).to(part[i]) for i in range(3)), pairs(part, "x").to(two),
        joined(two, two[1]).to(end))
    profile = json.loads((windfall.home / "server.json").read_text())
    with Client(profile) as client:
        bag = flow.submit(client)
        assert client.wait(bag)["state"] == "succeeded"
        assert flow.fetch(client, bag, windfall.folder / "out") == 1
    assert json.loads(result(windfall, "end")) == [["x", 0.0], ["x", 0.5], ["x", 1.0], ["x", 0.5]]


def test_python_example_of_the_how_to_runs(windfall: CommandLine) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "halves.py"
    page = (example.parents[1] / "docs" / "howto" / "workflows.md").read_text()
    assert example.read_text().split('"""\n\n', 1)[1] in page
    done = subprocess.run([sys.executable, example], cwd=windfall.folder, env=environment(windfall.home), timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (windfall.folder / "halves.results" / "result").read_text() == "14.0"


@COMPILED
def test_a_source_is_compiled_once_for_all_applications(windfall: CommandLine) -> None:
    thrice = component("Thrice", "out integer y, in integer x", "CXX", "y = 3 * x;", "// once for all")
    one = application("compute Thrice(a, 1);", thrice)
    two = application("compute Thrice(a, 2); compute Thrice(b, a);", thrice)
    assert run(windfall, one)["tasks"] == 2 and run(windfall, two)["tasks"] == 2
    assert result(windfall, "b") == "18"
    assert "3 tasks\n  1 program reused from the cache\n" in windfall("run", "app.query").stderr
    kept = windfall.home / "compiled.json"
    known = json.loads(kept.read_text())
    kept.write_text(json.dumps({key: ["0" * 64, size] for key, (_, size) in known.items()}))
    assert run(windfall, two)["tasks"] == 3, "the server does not have that"
    kept.write_text("{")
    assert run(windfall, two)["tasks"] == 3 and json.loads(kept.read_text())


def test_set_gives_a_graph_its_constants(windfall: CommandLine) -> None:
    """A name that the graph does not use is refused: it may be misspelt."""
    params = '<param name="i" type="integer" mode="in"/><param name="r" type="real" mode="out"/>'
    windfall.write("f.xml", f'<component type="abstract" name="f"><params>{params}</params></component>')
    windfall.write("loop.query", "par (i := 0; n - 1) do\n  compute f(i * step, a[i]);\nenddo\n")
    compile_ = ("compile", "loop.query", "--components", "f.xml")
    assert windfall.json(*compile_, "--set", "n=3", "--set", "step=2")["tasks"] == 3
    for options, said in (
        ([], "--set n=…"), (["--set", "n=3", "--set", "stap=2"], "its graph does not use such a constant"),
        (["--set", "n=x", "--set", "step=2"], "this is a text"), (["--set", "n=3", "--set", "a=2"], "loop.query:2"),
    ):
        done = windfall(*compile_, *options)
        assert done.returncode == 2 and said in done.stderr, done.stderr
