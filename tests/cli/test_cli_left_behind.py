"""A hint names files that a command uses, that lie here, and that no task will find."""

from __future__ import annotations

import pytest

from windfall.cli.submission.left_behind import hints
from windfall.model.bagfile import reader


def test_run_names_a_script_that_no_input_names(windfall):
    windfall.write("sim.py", "print(1)")
    done = windfall("run", "-n", "python3 sim.py {x}", "-s", "x=1..2")
    assert done.returncode == 0 and "without sim.py: --input sim.py" in done.stderr, done.stderr
    done = windfall("run", "-n", "python3 sim.py {x}", "-s", "x=1..2", "--input", "sim.py")
    assert done.returncode == 0 and done.stderr == ""


def test_bag_file_is_asked_for_files_beside_it(windfall):
    (windfall.folder / "sub").mkdir()
    windfall.write("sub/sim.py", "print(1)")
    file = windfall.write("sub/b.toml", '[bag]\nname = "b"\ncommand = "python3 ./sim.py"\n')
    assert 'inputs = ["sim.py"]' in windfall("run", "-n", file).stderr


@pytest.mark.parametrize(("command", "keys"), [
    ("cat a.txt", {"inputs": ["a.txt"]}),
    ("cat in/b.txt", {"inputs": ["in"]}),
    ("cat a.txt", {"inputs": ["in/b.txt -> a.txt"]}),
    ("echo > a.txt", {}),
    ("tool -o a.txt", {"outputs": ["a.txt"]}),
    ("cd /shared && cat a.txt", {}),
    ("cat ../a.txt /a.txt none.txt {{a.txt *.txt", {}),
    ("cat in 0.1", {}),
])
def test_no_hint_where_no_input_is_missing(tmp_path, command, keys):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "in/b.txt"):
        (tmp_path / name).write_text("x")
    parsed = reader.from_options(command, [], "b", keys, tmp_path)
    assert list(hints(parsed.bag, tmp_path)) == []


def test_vector_of_arguments_is_looked_at_too(tmp_path):
    (tmp_path / "my.R").write_text("x")
    parsed = reader.from_options(["Rscript", "my.R"], [], "b", {}, tmp_path)
    assert [text.count("my.R") for text in hints(parsed.bag, tmp_path)] == [3]


def test_sweep_over_files_without_an_input_gets_a_hint(windfall):
    windfall.write("a.fq", "A")
    assert "--input '{x}'" in windfall("run", "-n", "cat {x}", "-s", "x=glob:*.fq").stderr
    for given in ("{x}", "{x} -> in.fq", "a.fq"):
        done = windfall("run", "-n", "cat {x}", "-s", "x=glob:*.fq", "--input", given)
        assert (done.returncode, done.stderr) == (0, "")
    assert windfall("run", "-n", "cat {x}", "-s", "x=0.5,1.5").stderr == ""
