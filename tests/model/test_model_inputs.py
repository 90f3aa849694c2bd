"""Inputs of every kind, and their rendering for each task."""

import hashlib
import re
from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from windfall.errors import BadInput, TooLarge
from windfall.model.bagfile import reader
from windfall.model.checks.bag import RESULTS, validate
from windfall.model.spec import Bag, Capture, Check, Family, Input, Packed, Placed, Range, Sweep, Target, Values
from windfall.model.templates import families
from windfall.model.templates.render import Renderer

HASH = "ab" * 32


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def parse(tmp_path, inputs, more="", sweep='x = "1..2"\ny = ["a", "b"]\nname = "{y}-{x}"'):
    text = f"[bag]\ncommand = 'p'\n[task]\ninputs = {inputs!r}\n{more}\n[sweep]\n{sweep}\n"
    return reader.parse(text, "b.toml", tmp_path)


def test_family_has_every_file_once(tmp_path):
    for x in (1, 2):
        (tmp_path / f"data-{x}.dat").write_text(f"data {x}")
    (tmp_path / "data-2.dat").chmod(0o755)
    parsed = parse(tmp_path, ["data-{x}.dat -> in/{name}.dat"])
    target = parsed.bag.targets[0]
    assert target.families[0].files == {
        "data-1.dat": (sha("data 1"), 6, 0o644),
        "data-2.dat": (sha("data 2"), 6, 0o755),
    }
    assert set(parsed.uploads) == {sha("data 1"), sha("data 2")}
    renderer = Renderer(target)
    assert renderer.varies
    assert [renderer.inputs(index) for index in range(4)] == [
        [("in/a-1.dat", sha("data 1"), 6, 0o644)],
        [("in/b-1.dat", sha("data 1"), 6, 0o644)],
        [("in/a-2.dat", sha("data 2"), 6, 0o755)],
        [("in/b-2.dat", sha("data 2"), 6, 0o755)],
    ]


def test_missing_file_is_named_with_its_task(tmp_path):
    (tmp_path / "d-1-a").write_text("")
    (tmp_path / "d-1-b").write_text("")
    with pytest.raises(BadInput) as caught:
        parse(tmp_path, ["d-{x}-{y}"])
    assert "task 2: the input 'd-2-a' cannot be read" in caught.value.message
    assert caught.value.where == "b.toml:4"


def test_family_walks_only_the_axes_of_its_name(tmp_path):
    (tmp_path / "c-1").write_text("")
    sweep = 'x = "1..1"\ny = "1..10000000"'
    assert len(parse(tmp_path, ["c-{x}"], sweep=sweep).bag.targets[0].families[0].files) == 1
    with pytest.raises(TooLarge, match="10,000,000 files"):
        parse(tmp_path, ["c-{y}"], sweep=sweep)


@given(
    st.permutations(
        [Range(name="x", first=1, last=3), Values(name="y", values=["a", "b"]), Range(name="z", first=1, last=4)]
    )
)
def test_rendering_names_the_first_task_of_each_text(axes):
    target = Target(command="p {x} {y} {z}", source=Sweep(axes=axes))
    renderer = Renderer(target)
    for template in ("{x}", "{y}", "{z}{x}", "{x}{y}{z}", "k"):
        outputs = Renderer(Target(command="p", source=target.source, outputs=[template]))
        every = [outputs.outputs(index)[0] for index in range(renderer.count)]
        for task, (text,) in families.renderings(target.source, template):
            assert every.index(text) == task


def test_pattern_brings_the_files_that_match_in_the_order_of_their_names(tmp_path):
    for name in ("data/b.csv", "data/a.csv", "data/.c.csv", "data/d.txt", "deep/er/e.csv", "odd[1].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    def paths(*inputs):
        return [each.path for each in parse(tmp_path, list(inputs)).bag.targets[0].inputs]

    assert paths("data/*.csv") == ["data/a.csv", "data/b.csv"]
    assert paths("./data/*.csv -> in/") == ["in/a.csv", "in/b.csv"]
    assert paths("**/*.csv") == ["data/a.csv", "data/b.csv", "deep/er/e.csv", "odd[1].csv"]
    assert paths("d*p") == ["deep/er/e.csv"]
    assert paths("odd[1].csv") == ["odd[1].csv"]
    assert paths("data/a.csv", "data/?.csv") == ["data/a.csv", "data/b.csv"]
    assert paths(f"{tmp_path}/data/*.csv") == ["a.csv", "b.csv"]


@pytest.mark.parametrize(("inputs", "says"), [
    (["a.csv", "none/*.csv"], "the input 'none/*.csv' matches no file"),
    (["{x}/*.csv"], "both parameters and wildcards"),
    (["*/same -> in"], "two inputs have the same path 'in/same'"),
])
def test_pattern_that_cannot_stand_for_inputs_is_an_error_with_its_line(tmp_path, inputs, says):
    (tmp_path / "a.csv").write_text("")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same").write_text(folder)
    with pytest.raises(BadInput, match=re.escape(says)) as caught:
        parse(tmp_path, inputs)
    assert caught.value.where == "b.toml:4"


def test_sweep_takes_the_files_that_match_in_the_order_of_their_names(tmp_path):
    for name in ("b.fq", "a.fq", "c.fa"):
        (tmp_path / name).write_text(name)
    parsed = parse(tmp_path, ["{x}"], sweep='x = "glob:*.fq"\n[[sweep.zip]]\ny = ["glob:*.f[aq]"]\nz = "1..3"')
    renderer = Renderer(parsed.bag.targets[0])
    assert [renderer.params(index) for index in (0, 5)] == [
        {"x": "a.fq", "y": "a.fq", "z": 1}, {"x": "b.fq", "y": "c.fa", "z": 3}]
    assert set(parsed.bag.targets[0].families[0].files) == {"a.fq", "b.fq"} and not parsed.hints
    parsed = reader.from_options("p {x}", ["x=glob:*.fq,glob:c*,d"], "p", {}, base=tmp_path)
    assert parsed.bag.targets[0].source.axes == [Values(name="x", values=["a.fq", "b.fq", "c.fa", "d"])]


def test_sweep_over_a_pattern_that_matches_nothing_is_an_error_with_its_line(tmp_path):
    with pytest.raises(BadInput, match=re.escape("'y': '*.fq' matches no file")) as caught:
        parse(tmp_path, [], sweep='x = 1\ny = "glob:*.fq"')
    assert caught.value.where == "b.toml:8"


@pytest.mark.parametrize(("value", "hint"), [
    ('"*.fq"', "for the files that match write glob:*.fq"), ('["a", "d/?.csv"]', "write glob:d/?.csv"),
    ('"1-3"', "for a range of numbers write 1..3"), ('"0:10"', "write 0..10"),
])
def test_value_that_looks_like_a_pattern_or_a_range_gets_a_hint(tmp_path, value, hint):
    (said,) = parse(tmp_path, [], sweep=f"x = {value}").hints
    assert said.startswith("b.toml:7: 'x' has the text") and hint in said
    (said,) = reader.from_options("p {x}", ["x=" + value.strip('[]"').replace('", "', ",")], "p", {}).hints
    assert said.startswith("'x' has the text") and hint in said


@pytest.mark.parametrize("value", ['"*"', '"2024-01"', '"3-1"', '"is it?  yes"', '"a-b"', '"1..3"', '"01-02"'])
def test_value_that_looks_like_nothing_else_gets_no_hint(tmp_path, value):
    assert not parse(tmp_path, [], sweep=f"x = {value}").hints


def test_directory_input_brings_all_files_below_it(tmp_path):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "b").write_text("b")
    (tmp_path / "src" / ".a").write_text("a")
    (tmp_path / "src" / "deep" / "c").write_text("c")
    (tmp_path / "empty").mkdir()
    inputs = parse(tmp_path, ["src", "./src/ -> bin"]).bag.targets[0].inputs
    names = [".a", "b", "deep/c"]
    assert [each.path for each in inputs] == [f"src/{n}" for n in names] + [f"bin/{n}" for n in names]
    assert [each.blob for each in inputs[:3]] == [sha("a"), sha("b"), sha("c")]
    for wrong, says in (("empty", "without files"), (".", "working directory"), ("../x", "cannot be read")):
        with pytest.raises(BadInput, match=says):
            parse(tmp_path, [wrong])


def test_site_inputs_are_placed_not_uploaded(tmp_path):
    target = parse(tmp_path, ["site:/ref/{y}.bin -> ref-{x}.bin", "site:/ref/all"]).bag.targets[0]
    renderer = Renderer(target)
    assert renderer.placed(3) == [("ref-2.bin", "/ref/b.bin"), ("", "/ref/all")]
    for wrong in ("site:re/f", "site:", "site:/a -> ../b"):
        with pytest.raises(BadInput):
            parse(tmp_path, [wrong])


def test_doubled_braces_stand_for_braces_in_file_names(tmp_path):
    (tmp_path / "a{b}").write_text("x")
    assert parse(tmp_path, ["a{{b}}"]).bag.targets[0].inputs[0].path == "a{b}"


def test_all_that_is_templated():
    source = Sweep(axes=[Values(name="x", values=["it's", "b"])])
    target = Target(
        command="p",
        source=source,
        checkpoint=["state-{x}"],
        capture=[Capture(name="v", pattern="(a)", file="{x}.txt")],
        check=Check(command="validate {x} > log"),
    )
    renderer = Renderer(target)
    assert renderer.checkpoint(1) == ["state-b"]
    assert renderer.capture(0) == [("v", "(a)", "it's.txt")]
    assert renderer.check_command(0) == "validate 'it'\"'\"'s' > log"
    assert Renderer(Target(command="p", check=Check(command=["v", "{{x}}"]))).check_command(0) == ["v", "{x}"]
    assert Renderer(Target(command="p")).check_command(0) == ""
    for fields in (
        {"checkpoint": ["{x}"]},
        {"capture": [Capture(name="v", pattern="a", file="{x}")]},
        {"check": Check(command=["{x}"])},
        {"placed": [Placed(path="", there="/{x}")]},
        {"families": [Family(path="f", source="{x}", files={})]},
    ):
        assert Renderer(Target(command="p", source=source, **fields)).varies
    assert not Renderer(Target(command="p {x}", source=source, checkpoint=["s"])).varies


def test_outputs_of_another_target():
    files = {"main": ["a.txt", "b c.txt"], "other": []}
    source = Sweep(axes=[Range(name="x", first=1, last=2)])

    def commands(command):
        target = Target(command=command, takes=["main", "other"], source=source)
        return Renderer(target).commands(range(2), outputs=files)

    assert commands("cat {main.outputs} {x}") == [["cat", "a.txt", "b c.txt", n] for n in "12"]
    assert commands("cat {main.outputs}") == [["cat", "a.txt", "b c.txt"]] * 2
    assert commands("cat {main.outputs} {other.outputs} > o{x}") == [f"cat a.txt 'b c.txt'  > o{n}" for n in "12"]
    assert commands(["m", "{x}", "{main.outputs}", "{other.outputs}", "z"]) == [
        ["m", n, "a.txt", "b c.txt", "z"] for n in "12"
    ]
    for wrong in (
        "cat x{main.outputs}",
        "cat '{main.outputs}' > x",
        'cat "{main.outputs}" > x',
        ["a", "{main.outputs}x"],
    ):
        with pytest.raises(BadInput):
            commands(wrong)


def test_takes_are_filled_in_and_must_be_waited_for(tmp_path):
    text = "[bag]\ncommand='p'\n[task]\noutputs=['o']\n[targets.t]\nafter = ['main']\ncommand = 'q {main.outputs}'\n"
    assert reader.parse(text).bag.targets[1].takes == ["main"]
    with pytest.raises(BadInput, match="does not wait"):
        reader.parse(text.replace("after = ['main']\n", ""), "b.toml")
    with pytest.raises(BadInput, match="does not wait"):
        validate(Bag(name="b", targets=[Target(command="p"), Target(name="t", command="q", takes=["main"])]))
    with pytest.raises(BadInput):
        validate(Bag(name="b", targets=[Target(command="p"), Target(name="t", command="q {main.outputs}")]))


X = Sweep(axes=[Range(name="x", first=1, last=2)])
BAD = [
    Target(command="p", source=X, families=[Family(path="f", source="{x}", files={"1": (HASH, 1, 0o644)})]),
    Target(
        command="p", source=X, families=[Family(path="f", source="{x}", files={"1": ("zz", 1, 0), "2": (HASH, 1, 0)})]
    ),
    Target(command="p", source=X, families=[Family(path="f", source="a", files={"a": (HASH, -1, 0)})]),
    Target(command="p", source=X, families=[Family(path="../{x}", source="a", files={"a": (HASH, 1, 0)})]),
    Target(
        command="p",
        source=Sweep(axes=[Values(name="x", values=["../b"])]),
        families=[Family(path="{x}", source="a", files={"a": (HASH, 1, 0)})],
    ),
    Target(command="p", source=X, families=[Family(path="{y}", source="a", files={"a": (HASH, 1, 0)})]),
    Target(command="p", inputs=[Input(path="f", blob=HASH, size=1)], placed=[Placed(path="f", there="/f")]),
    Target(command="p", placed=[Placed(path="/f", there="/f")]),
    Target(command="p", placed=[Placed(path="f", there="f/g")]),
    Target(command="p", checkpoint=["../x"]),
    Target(command="p", checkpoint=["x", "x"]),
    Target(command="p", modules=["; rm -rf x"]),
    Target(command="p", modules=["m"] * 101),
    Target(command="p", container="-v /:/host"),
    Target(command="p", container="a\nb"),
    Target(command="p", scratch="always"),
    Target(command="p", packed=Packed(blob="x", size=1, python="3.11")),
    Target(command="p", packed=Packed(blob=HASH, size=1, python="; x")),
    Target(command="p", capture=[Capture(name="exit", pattern="a")]),
    Target(command="p", capture=[Capture(name="a b", pattern="a")]),
    Target(command="p", capture=[Capture(name="a", pattern="(")]),
    Target(command="p", capture=[Capture(name="a", pattern="")]),
    Target(command="p", capture=[Capture(name="a", pattern="x" * 5000)]),
    Target(command="p", capture=[Capture(name="a", pattern="x", file="/etc/passwd")]),
    Target(command="p", capture=[Capture(name="a", pattern="x")] * 2),
    Target(command="p", source=X, capture=[Capture(name="x", pattern="x")]),
    Target(command="p", check=Check(schema="{")),
    Target(command="p", check=Check(schema='{"format": "date"}')),
    Target(command="p", check=Check(command="{y}")),
    Target(command="p", check=Check(command="\0")),
    Target(command="p", check=Check(command=[])),
]


@pytest.mark.parametrize("target", BAD)
def test_the_server_refuses(target):
    with pytest.raises(BadInput):
        validate(Bag(name="b", targets=[target]))


def test_names_of_results_are_taken():
    from windfall.client.columns import TAKEN

    assert TAKEN <= set(RESULTS)


# --- order ---------------------------------------------------------------------------------------------------------

ENTRIES = [
    'x = "1..3"',
    "y = ['a', 'b c']",
    'out = "r-{y}-{x}"',
    "z = { sample = 'uniform(0, 1)', n = 2 }",
    "u = 5",
    "zip = [{ p = [1, 2], q = [3, 4] }]",
    "latin = { n = 2, s = 'normal(0, 1)', t = 'integer(1, 9)' }",
]


@settings(max_examples=60, deadline=None)
@given(st.permutations(ENTRIES))
def test_rendering_does_not_depend_on_the_order_of_keys(entries):
    head = "[bag]\ncommand = 'p {x} {y} {z} {u} {p} {q} {s} {t} > {out}'\n[sweep]\n"
    renderers = [Renderer(reader.parse(head + "\n".join(order)).bag.targets[0]) for order in (ENTRIES, entries)]
    first, second = (renderer.commands(range(renderer.count)) for renderer in renderers)
    assert sorted(first) == sorted(second) and len(set(first)) == len(first) == 3 * 2 * 2 * 2 * 2


def test_the_order_of_tables_changes_nothing():
    parts = ["[bag]\ncommand = 'p {x}'", "[sweep]\nx = '1..3'", "[task]\ncores = 2\nretries = 1", "[check]\nexit = [0]"]
    bags = [reader.parse("\n".join(order)).bag for order in permutations(parts)]
    assert all(bag == bags[0] for bag in bags)
