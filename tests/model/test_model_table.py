"""CSV files: fields come back unchanged, and a million rows cost little beside their text."""

import csv
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from windfall.errors import BadInput
from windfall.model.bagfile import reader
from windfall.model.checks.bag import validate
from windfall.model.spec import Bag, Sweep, Table, Target
from windfall.model.templates import table
from windfall.model.templates.render import Renderer, Space, lean

FIELDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8) | st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "a,b", ' "x" ', "", "007", "\ufeff", "\u2028", "'"]
)


def write(path, rows, **options):
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, **options).writerows(rows)
    return path


@st.composite
def tables(draw):
    width = draw(st.integers(1, 5) | st.just(100))
    row = st.lists(FIELDS, min_size=width, max_size=width)
    return [f"c{n}" for n in range(width)], draw(st.lists(row, min_size=1, max_size=6))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), st.sampled_from([{}, {"delimiter": ";"}, {"quoting": csv.QUOTE_ALL}]))
@example((["c0"], [[""]]), {})
@example((["c0", "c1"], [["", '"'], ["\r", "\n"]]), {})
def test_csv_file_reads_back_unchanged(tmp_path, made, options):
    header, rows = made
    file = write(tmp_path / "p.csv", [header, *rows], **options)
    found = table.read(file, "p.csv", delimiter=options.get("delimiter", ","))
    assert (found.columns, found.count) == (header, len(rows))
    table.check_table(found)
    columns = Space(Sweep(axes=[found])).columns
    assert [columns[name].texts(range(len(rows))) for name in header] == [list(column) for column in zip(*rows)]
    assert [columns[header[-1]].values((n,))[0] for n in range(len(rows))] == [row[-1] for row in rows]


def test_bag_file_with_a_csv_table_is_read(tmp_path):
    (tmp_path / "p.csv").write_bytes('\ufeffx;the label;skip\r\n007;"a;b\nc";0\r\n\r\n2;it\'s;0\r\n'.encode())
    text = """[bag]
command = "p {x} {label} {k}"
[sweep]
k = "1..2"
[sweep.csv]
file = "p.csv"
columns = ["x", "the label -> label"]
delimiter = ";"
"""
    bag = reader.parse(text, "b.toml", tmp_path).bag
    renderer = Renderer(bag.targets[0])
    assert renderer.commands(range(4)) == [
        ["p", "007", "a;b\nc", "1"], ["p", "2", "it's", "1"], ["p", "007", "a;b\nc", "2"], ["p", "2", "it's", "2"]]
    assert renderer.params(1) == {"k": 1, "x": "2", "label": "it's"}


@pytest.mark.parametrize(
    ("data", "where", "says"),
    [
        (b"", "p.csv", "empty"),
        (b"a,b\n", "p.csv", "no rows"),
        (b"a,,c\n1,2,3\n", "p.csv:1", "column 2 has no name"),
        (b"a,b,a\n1,2,3\n", "p.csv:1", "two columns are called 'a'"),
        (b"a,b\n1,2\n1\n", "p.csv:3", "row 2 has 1 fields, the header has 2"),
        (b'a,b\n"1\n\n",2\n1,2,3\n', "p.csv:5", "row 2 has 3 fields"),
        (b'a,b\n1,"2"x\n', "p.csv:2", "not CSV"),
        (b'a,b\n1,"2\n', "p.csv:2", "not CSV"),
        (b"a,b\n1,\xff\n", "p.csv", "UTF-8"),
        (b"a b\n1\n", "b.toml:4", "the column 'a b' cannot be the name"),
        (b"command\n" + b"x" * (1 << 21) + b"\n", "p.csv:2", "not CSV"),
    ],
)
def test_invalid_csv_file_is_refused_with_file_and_row(tmp_path, data, where, says):
    (tmp_path / "p.csv").write_bytes(data)
    with pytest.raises(BadInput) as caught:
        reader.parse("[bag]\ncommand = 'p'\n[sweep.csv]\nfile = 'p.csv'\n", "b.toml", tmp_path)
    assert (caught.value.where, says in caught.value.message) == (where, True), str(caught.value)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("columns = ['y']", "no column 'y'"),
        ("columns = ['x', 'x']", "given twice"),
        ("delimiter = ';;'", "one character"),
        ("delimiter = '\"'", "one character"),
        ("colums = ['x']", "no key 'colums'"),
        ("columns = 3", "list of texts"),
    ],
)
def test_invalid_keys_of_a_csv_table_are_refused(tmp_path, keys, says):
    (tmp_path / "p.csv").write_text("x\n1\n")
    with pytest.raises(BadInput, match=says) as caught:
        reader.parse(f"[bag]\ncommand = 'p'\n[sweep.csv]\nfile = 'p.csv'\n{keys}\n", "b.toml", tmp_path)
    assert caught.value.where.startswith("b.toml:")


@pytest.mark.parametrize(
    ("columns", "text", "count"),
    [
        (["a"], "1\n2", 3),
        (["a"], "1\n2", 1),
        (["a"], "1\n\n2", 3),
        (["a"], "", 1),
        (["a", "b"], "1,2\n3", 2),
        (["a"], '"', 1),
        (["a"], '"x', 1),
        (["a"], 'x"y', 1),
        (["a"], '"x"y', 1),
        (["a"], '"x"', 1),  # quoted without need
        (["a", "b"], '1,"2\n3', 2),
        (["a"], "1\r", 1),
        (["a"], "1\0", 1),
        ([], "1", 1),
        (["a", "a"], "1,2", 1),
        (["a b"], "1", 1),
        (["a"], "1", -1),
        (["a"], "1", 10**12),
    ],
)
def test_invalid_table_from_a_client_is_refused(columns, text, count):
    target = Target(command="p", source=Sweep(axes=[Table(columns=columns, text=text, count=count)]))
    with pytest.raises(BadInput):
        validate(Bag(name="b", targets=[target]))


def test_renderer_reads_table_text_from_shared_bytes():
    source = Sweep(axes=[Table(columns=["x"], text="\n".join(f"value-{n}" for n in range(1000)), count=1000)])
    shared = b"something" + source.axes[0].text.encode() + b"else"
    renderer = Renderer(Target(command="p {x}", source=source), shared)
    assert renderer._columns["x"].rows.text.obj is shared
    assert renderer.command(999) == ["p", "value-999"]
    assert lean(source).axes[0].text == "" and lean(source).axes[0].count == 1000


ROWS = 1_000_000


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    file = tmp_path_factory.mktemp("million") / "p.csv"
    with open(file, "w") as stream:
        stream.write("n,label\n")
        stream.writelines(f'{n},"row, {n}"\n' if n % 100 == 0 else f"{n},row {n}\n" for n in range(ROWS))
    return file


@pytest.mark.slow
def test_reading_a_million_rows_holds_little_beside_the_text(million):
    """Reading holds the text, and for a moment a second copy; no other memory grows with the rows."""
    tracemalloc.start()
    try:
        found = table.read(Path(million), "p.csv")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.count == ROWS
    assert peak < 2.5 * len(found.text) + (8 << 20)


SUBMIT = """
import resource, sys
from pathlib import Path
from windfall.model import bagfile
from windfall.model.templates.render import Renderer
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bag = bagfile.parse("[bag]\\ncommand='p {n} {label}'\\n[sweep.csv]\\nfile='p.csv'", "b.toml", Path(sys.argv[1])).bag
renderer = Renderer(bag.targets[0])
print(renderer.count, renderer.command(999_900)[2], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_bag_of_a_million_rows_is_parsed_in_bounded_memory(million):
    done = subprocess.run([sys.executable, "-c", SUBMIT, str(Path(million).parent)], capture_output=True, text=True,
                          env={"PYTHONPATH": ":".join(sys.path)}, timeout=60)
    assert done.returncode == 0, done.stderr
    count, label, kilobytes = done.stdout.split("\x20", 1)[0], done.stdout, int(done.stdout.split()[-1])
    assert count == str(ROWS) and "row, 999900" in label
    assert kilobytes * 1024 < 6 * Path(million).stat().st_size + 8 * ROWS + (16 << 20)
