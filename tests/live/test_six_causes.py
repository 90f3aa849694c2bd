"""The summary names every cause with its count and a command that runs those again, and only those."""

import pytest

from tests.live.real import CommandLine, serving
from tests.live.six_causes import walk
from windfall.cli import causes


@pytest.mark.slow
def test_two_thousand_tasks_fail_in_six_ways(tmp_path):
    with serving(tmp_path / "home", "--pilot"):
        walk(CommandLine(tmp_path / "home", tmp_path), 2000)


def test_a_note_is_one_cause_whatever_the_parameters():
    rows = [
        {"task": n, "state": "failed", "why": "output", "note": f"the file out-{n}-{c} b.txt is missing",
         "params": {"n": n, "c": f"{c} b", "o": f"out-{n}-{c} b.txt"}}
        for n in range(5) for c in "xy"
    ]  # fmt: skip
    (group,) = causes.grouped(rows)
    assert (group.cause.note, group.count) == ("the file * is missing", 10)
    assert group.cause.options() == "--why output --note 'the file * is missing'"


@pytest.mark.parametrize(("note", "text", "fits"), [
    ("the file * is missing", "the file a is missing", True),
    ("the file * is missing", "the file a is missing.", False),
    ("a.c", "abc", False),
    ("*" * 50, "anything\nat all", True),
    ("*a" * 30, "b" * 5000, False),
])  # fmt: skip
def test_choosing_by_note(note, text, fits):
    assert causes.Selector("output", None, None, note)({"why": "output", "note": text}) is fits
