"""APST's task files, one task per line."""

import pytest

from windfall.errors import BadInput
from windfall.model.bagfile import apst
from windfall.model.checks.bag import validate
from windfall.model.templates.render import Renderer

TASKS = """\
# two tasks and a half
blast seq1.fa; echo {x} "a ; b" > r1.txt ; in: seq1.fa, db/nt.idx -> nt.idx ; out: r1.txt, log ; cost: 3.5

  blast seq2.fa ; in: seq1.fa -> seq2.fa ; out: r2.txt
echo "it's" , done
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "db").mkdir()
    (tmp_path / "seq1.fa").write_text("ACGT")
    (tmp_path / "db" / "nt.idx").write_text("index")
    return tmp_path


def test_apst_file_becomes_one_task_per_line(folder):
    (folder / "blast.apst").write_text(TASKS)
    parsed = apst.load(folder / "blast.apst", task={"memory": "2GB", "retries": 1})
    validate(parsed.bag)
    target = parsed.bag.targets[0]
    assert (parsed.bag.name, target.resources.memory, target.retries) == ("blast", 2 * 10**9, 1)
    renderer = Renderer(target)
    assert renderer.commands(range(3)) == [
        ["/bin/sh", "-c", 'blast seq1.fa; echo {x} "a ; b" > r1.txt'],
        ["/bin/sh", "-c", "blast seq2.fa"],
        ["/bin/sh", "-c", 'echo "it\'s" , done'],
    ]
    assert [renderer.outputs(n) for n in range(3)] == [["r1.txt", "log"], ["r2.txt"], []]
    assert [[each[0] for each in renderer.inputs(n)] for n in range(3)] == [["seq1.fa", "nt.idx"], ["seq2.fa"], []]
    assert renderer.inputs(1)[0][1:] == renderer.inputs(0)[0][1:]
    assert renderer.costs(range(3)) == [3.5, 1.0, 1.0]
    assert len(parsed.uploads) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("p ; in: nothing.dat", "'nothing.dat' cannot be read"),
        ("p ; in: seq1.fa -> ../x", "working directory"),
        ("p ; in: -> x", "not an input file"),
        ("p ; in: a,,b", "entries"),
        ("p ; in:", "entries"),
        ("p ; out: /etc/x", "working directory"),
        ("p ; out: r.txt @stay", "left in place"),
        ("p ; cost: much", "one number"),
        ("p ; cost: 1, 2", "one number"),
        ("p ; cost: nan", "one number"),
        ("p ; cost: 1 ; cost: 2", "twice"),
        ("p ; inn: a", "no part '; inn:'"),
        ("p\0", "NUL"),
        (" ; in: seq1.fa", "no command"),
    ],
)
def test_invalid_line_is_refused_with_its_number(folder, line, says):
    with pytest.raises(BadInput, match=says) as caught:
        apst.parse(f"# comment\n{line}\n", "t.apst", folder, "t", {})
    assert caught.value.where == "t.apst:2"


def test_file_without_tasks_is_refused(folder):
    with pytest.raises(BadInput, match="no tasks"):
        apst.parse("# nothing\n\n", "t.apst", folder, "t", {})
