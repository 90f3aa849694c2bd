"""`windfall simulate --replay` of a bag that real pilots have run for a real server."""

from __future__ import annotations

import json

import pytest

from tests.live.real import CommandLine

BAG = """
[bag]
name = "{name}"
command = "sleep 0.0{{x}}"
[sweep]
x = [5, 1, 9, 3, 7, 2, 8, 4, 6, 1, 9, 2]
[targets.then]
after = ["main"]
command = "sleep 0.02"
"""
MORE = '[hosts.lab]\ncount = 12\ncores = 1\nlatency = "5ms"\n'


@pytest.fixture
def played(windfall):
    windfall.write("bag.toml", BAG.format(name="again"))
    return windfall.json("run", "bag.toml")["bag"]


def test_replay_as_it_was_takes_the_recorded_times(windfall, played):
    found = windfall.json("simulate", "--replay", played)
    rows = windfall.json("results", played)
    walls = [row["wall"] for row in rows]
    assert found["tasks"] == 13 == found["replayed"]["accepted"] and found["what_if"] is None
    assert found["recorded"]["real"] == sum(walls) == found["replayed"]["real"]
    # Two stages, one task in the second: at least the longest of the first, at most one task after the other.
    first, last = walls[:12], walls[12]
    assert max(first) + last <= found["replayed"]["wall_clock"] <= sum(walls) + 5_000
    assert found["difference"] == pytest.approx(found["replayed"]["wall_clock"] / found["recorded"]["wall_clock"] - 1)


def test_replay_at_other_sites_shows_what_would_have_happened(windfall, played):
    windfall.write("more.toml", MORE)
    found = windfall.json("simulate", "--replay", "again", "--sites", "more.toml", "--select", "sjf")
    walls = [row["wall"] for row in windfall.json("results", played)]
    assert found["what_if"]["accepted"] == 13 and found["what_if"]["sites"][0]["name"] == "lab"
    assert max(walls[:12]) + walls[12] <= found["what_if"]["wall_clock"] < max(walls[:12]) + walls[12] + 5_000
    told = windfall("simulate", "--replay", "again", "--sites", "more.toml", "-o", "out").stdout
    assert "recorded" in told and "as it was" in told and "what if" in told
    assert (windfall.folder / "out" / "what-if" / "gantt.svg").exists()


def test_export_is_replayed_on_another_machine(windfall, tmp_path, played):
    assert windfall("simulate", "--export", played, "-o", "bag.json").returncode == 0
    here = windfall.json("simulate", "--replay", played)
    data = (windfall.folder / "bag.json").read_text()
    (tmp_path / "elsewhere").mkdir()
    elsewhere = CommandLine(tmp_path / "no-home", tmp_path / "elsewhere")
    elsewhere.write("bag.json", data)
    assert elsewhere.json("simulate", "--replay", "bag.json") == here
    assert json.loads(windfall("simulate", "--export", played).stdout) == json.loads(data)


@pytest.mark.parametrize(("change", "says"), [
    (lambda data: "", "not an export of a bag"),
    (lambda data: data.replace("windfall-replay/1", "windfall-replay/9"), "format"),
    (lambda data: data.replace('"then"', '"them"', 1), "'then', which the bag does not have"),
    (lambda data: data.replace('"bag"', '"bug"', 1), "not an export of a bag"),
    (lambda data: json.dumps({**json.loads(data), "tasks": []}), "nothing ran"),
    (lambda data: json.dumps({**json.loads(data), "tasks": json.loads(data)["tasks"][1:]}), "cannot be played again"),
    (lambda data: json.dumps({**json.loads(data), "pilots": [["s", "h", 0, 0, 0, None]]}), "cannot have 0 cores"),
])  # fmt: skip
def test_damaged_export_is_refused(windfall, played, change, says):
    data = windfall("simulate", "--export", played).stdout
    windfall.write("bad.json", change(data))
    done = windfall("simulate", "--replay", "bad.json")
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_replay_refuses_options_that_do_not_fit(windfall, played):
    for arguments, says in (
        (("--replay", played, "--provision", "msr"), "--provision needs sites"),
        (("--replay", played, "--select", "luck"), "luck"),
        (("--select", "sjf"), "not one thing to simulate"),
        (("--export", played, "--select", "sjf"), "--select goes with --replay"),
        (("--replay", "nothing-like-it"), "there is no bag"), (("--replay", "gone.json"), "cannot read the export"),
    ):  # fmt: skip
        done = windfall("simulate", *arguments)
        assert done.returncode == 2 and says in done.stderr, (arguments, done.stderr)


def test_replay_refuses_a_bag_that_still_runs(windfall):
    bag = windfall.json("submit", "sleep 60")["bag"]
    done = windfall("simulate", "--replay", bag)
    assert done.returncode == 2 and "has not ended" in done.stderr
    windfall("cancel", bag)
