"""The summary names every cause with its count and a command that runs those again, and only those."""

import shlex

import pytest

from tests.live.real import CommandLine, serving
from tests.live.six_causes import walk
from windfall.cli.present import causes


@pytest.mark.slow
def test_two_thousand_tasks_fail_in_six_ways(tmp_path):
    with serving(tmp_path / "home", "--pilot"):
        walk(CommandLine(tmp_path / "home", tmp_path), 2000)


def cause(count=1, **fields):
    full = {"state": "failed", "why": "", "exit": 0, "signal": 0, "note": "", **fields}
    return {**full, "count": count, "tasks": [0], "retry": full}


def test_options_are_as_short_as_tells_causes_apart():
    """Every line that the summary prints chooses its own cause and no other."""
    missing = "the file out-#.txt is missing"
    found = [
        cause(why="exit", exit=3), cause(why="signal", signal=9), cause(why="output", note=missing),
        cause(why="output", exit=2, note=missing), cause(why="output", note="it isn't"), cause(why="gone"),
        cause(why="gone", state="quarantined"), cause(), cause(why="time", exit=1), cause(why="time"),
    ]
    said = [causes.options(each, found) for each in found]
    assert said[:3] == ["--why exit --exit 3", "--why signal --signal 9", f"--why output --exit 0 --note '{missing}'"]
    assert said[4] == '--why output --note "it isn\'t"'
    for options, wanted in zip(said, found, strict=True):
        given = shlex.split(options)
        asked = dict(zip((name[2:] for name in given[::2]), given[1::2], strict=True))
        fit = [each for each in found if all(str(each["retry"][name]) == value for name, value in asked.items())]
        assert fit == [wanted], options
