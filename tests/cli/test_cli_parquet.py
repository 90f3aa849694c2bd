"""Parquet as another implementation reads it, and what all formats of `results` have in common."""

import random
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from tests.live.real import environment
from windfall.cli.present import parquet
from windfall.client import numbers
from windfall.errors import BadInput

CELLS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text())


def read(path):
    return pyarrow.parquet.read_table(path).to_pydict()


def as_text(value):
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CELLS, st.one_of(st.none(), st.integers(-9, 9))), max_size=40), st.integers(1, 9))
def test_parquet_file_gives_back_the_rows_written(tmp_path_factory, rows, size):
    path = tmp_path_factory.mktemp("p") / "r.parquet"
    before, parquet.ROWS = parquet.ROWS, size
    try:
        assert parquet.write(str(path), [("any", None), ("n", parquet.INT)], lambda: iter(rows)) == len(rows)
    finally:
        parquet.ROWS = before
    found = read(path)
    assert found["n"] == [n for _, n in rows]
    wanted = [cell for cell, _ in rows]
    assert found["any"] == wanted or found["any"] == list(map(as_text, wanted))


def test_a_column_widens_when_a_later_row_does_not_fit(tmp_path):
    path = str(tmp_path / "r.parquet")
    for last, kind in ((7, "int64"), (7.5, "double"), ("seven", "string")):
        values = [*range(parquet.ROWS + 5), last]
        parquet.write(path, [("x", None)], lambda: ([value] for value in values))
        table = pyarrow.parquet.read_table(path)
        assert (str(table.schema.field("x").type), table.num_rows) == (kind, len(values))
        assert table["x"][len(values) - 1].as_py() == last
    assert sorted(each.name for each in tmp_path.iterdir()) == ["r.parquet"]


def test_parquet_file_keeps_moments_and_many_columns(tmp_path):
    path, at = str(tmp_path / "r.parquet"), 1_700_000_000_123
    columns = [(f"c{n}", None) for n in range(100)] + [("when", parquet.MOMENT)]
    parquet.write(path, columns, lambda: iter([[*range(100), at], [*[None] * 100, None]]))
    found = read(path)
    assert found["c99"] == [99, None]
    assert found["when"][0].replace(tzinfo=UTC) == datetime.fromtimestamp(at / 1000, UTC)


@pytest.mark.parametrize(("text", "number"), [
    ("7", 7), ("-12", -12), ("007", "007"), ("1.50", 1.5), ("1e3", 1000.0), ("", ""), ("x", "x"), (None, None),
    ("1" * 30, float("1" * 30)), ("0.5", 0.5), ("0", 0), ("00.5", "00.5"),
])  # fmt: skip
def test_captured_text_becomes_the_number_that_it_spells(text, number):
    assert numbers.number(text) == number


def test_unwritable_parquet_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot write"):
        parquet.write(str(tmp_path / "no" / "r"), [("x", None)], lambda: iter([[1]]))


def test_results_are_written_to_a_parquet_file(windfall):
    done = windfall("run", "exit {code}", "-s", "code=0,3", "-s", "x=0.5,1", "--retries", "0", "--name", "pq")
    assert done.returncode == 1
    done = windfall("results", "pq", "--parquet", "r.parquet")
    assert (done.returncode, done.stdout) == (0, "4 rows in r.parquet\n"), done.stderr
    found = read(windfall.folder / "r.parquet")
    assert found["code"] == [0, 0, 3, 3] and found["exit"] == [0, 0, 3, 3]
    assert found["x"] == [0.5, 1.0, 0.5, 1.0] and found["state"] == ["succeeded"] * 2 + ["failed"] * 2
    assert found["started"][0].year >= 2024
    assert windfall.json("results", "pq", "--parquet", "f.parquet", "--state", "failed")["rows"] == 2


@pytest.mark.parametrize("option", ["--csv", "--json", "--jsonl", None])
def test_closed_pipe_ends_every_format_quietly(windfall, option):
    name = f"long{random.random()}"
    assert windfall("submit", ":", "-s", "x=1..20000", "--cores", "1000", "--name", name).returncode == 0
    assert windfall("cancel", name).returncode == 0
    command = [sys.executable, "-m", "windfall", "results", name, *([option] if option else [])]
    with subprocess.Popen(command, env=environment(windfall.home), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        assert p.stdout.readline()
        p.stdout.close()
        assert p.stderr.read() == b""
        assert p.wait(20) == 141
