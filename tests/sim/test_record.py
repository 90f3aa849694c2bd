"""The record of a run and its files: the numbers add up, the pictures are real, the same seed gives the same bytes."""

from __future__ import annotations

import csv
import json
import random
import xml.etree.ElementTree as ET
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from PIL import Image

from windfall.core.config import Config
from windfall.core.messages.lifecycle import O_LOST
from windfall.errors import Unwritable
from windfall.sim import pages, plots
from windfall.sim.experiments.base import Figure, Series
from windfall.sim.play import Run
from windfall.sim.record import Record
from windfall.sim.scenario import parse
from windfall.sim.world import Work, World


def played(seed: int = 3, tasks: int = 120, fails: float = 0.05) -> tuple[World, Record]:
    world, record = World(seed, Config(deaths=200)), Record()
    record.attach(world.server)
    world.site("here")
    world.site("there")
    world.pilots("here", 3, cores=2, loses=0.1, latency=40)
    world.pilots("there", 2, speed=2.0, latency=150)
    world.submit(Work(tasks, lambda _task, draw: round(draw.expovariate(1 / 100_000)) + 1, fails=fails, retries=50))
    world.run()
    return world, record


def test_summary_agrees_with_recorded_attempts() -> None:
    world, record = played()
    found = record.summary(1)
    attempts = list(record.attempts())
    assert found["accepted"] == 120 == sum(each.counts for each in attempts)
    assert {each.task for each in attempts if each.counts} == set(range(120))
    assert found["attempts"] == len(attempts) == sum(found["outcomes"].values()) == world.tally.attempts
    assert found["outcomes"]["lost"] > 0 and found["failures"] == found["outcomes"]["failed"] > 0
    assert found["real"] == sum(each.end - each.start for each in attempts if each.counts)
    assert found["ended"] <= world.engine.now
    assert found["speed_up"] == pytest.approx(found["real"] / found["wall_clock"])
    assert {site["name"] for site in found["sites"]} == {"here", "there"}
    assert sum(site["wall"] for site in found["sites"]) == found["real"] + found["redundant"]


def test_attempts_lie_within_their_pilots_lives_and_slots() -> None:
    _, record = played()
    for attempt in record.attempts():
        life = record.pilots[attempt.pilot]
        assert life.enrolled <= attempt.granted <= attempt.end
        assert attempt.granted <= attempt.start <= attempt.end or (attempt.start == -1 and attempt.outcome == O_LOST)
        assert life.ended is None or attempt.end <= life.ended
    most = max(y for series in pages.running(record) if series.name == "here" for y in series.y)
    assert most == 6  # three hosts of two cores


def test_waits_count_from_when_task_could_start() -> None:
    world, record = World(), Record()
    record.attach(world.server)
    world.site("here")
    world.pilots("here", 1)
    world.submit(Work(3, lambda _task, _draw: 60_000))
    world.run()
    found = record.summary(1)
    assert found["queuing_longest"] == pytest.approx(120_000, abs=1_000)
    assert found["queuing_average"] == pytest.approx(60_000, abs=1_000)
    assert found["wall_clock"] == pytest.approx(180_000, abs=1_000) and found["redundant"] == 0


def hand(text: str) -> Run:
    run = Run(parse(text), 1)
    run.play()
    return run


def spans(run: Run) -> list[tuple[int, int, int, str]]:
    return [(each.task, each.start, each.end, run.record.pilots[each.pilot].host)
            for each in run.record.attempts() if each.start >= 0]


def test_four_tasks_run_two_by_two_on_two_hosts() -> None:
    run = hand('[hosts.a]\ncount = 2\n[bags.b]\ntasks = 4\nduration = "10s"')
    assert sorted(spans(run)) == [
        (0, 0, 10_000, "a-1"), (1, 0, 10_000, "a-2"), (2, 10_000, 20_000, "a-1"), (3, 10_000, 20_000, "a-2")]


def test_batch_runs_without_gaps_from_start() -> None:
    run = hand('[hosts.a]\n[bags.b]\ntasks = 3\nduration = "10s"\nbatch = 3')
    assert sorted(spans(run)) == [(n, n * 10_000, (n + 1) * 10_000, "a-1") for n in range(3)]
    assert run.record.summary(1)["queuing_average"] == 10_000


def test_fast_host_steals_task_that_slow_host_holds() -> None:
    """Tasks take 20 s or 5 s: the slow host runs one, the fast host four, though the slow one was granted two."""
    run = hand('[hosts.slow]\nspeed = 0.5\n[hosts.fast]\nspeed = 2\n[bags.b]\ntasks = 5\nduration = "10s"')
    assert run.record.summary(1)["wall_clock"] == pytest.approx(20_000, abs=10)


def test_task_over_its_limit_is_retried_with_three_times_the_limit() -> None:
    run = hand('[hosts.a]\n[bags.b]\nduration = "10s"\ntime = "5s"')
    assert spans(run) == [(0, 0, 5_000, "a-1"), (0, 5_000, 15_000, "a-1")]
    found = run.record.summary(1)
    assert (found["failures"], found["redundant"], found["real"]) == (1, 5_000, 10_000)


def test_charts_begin_at_first_submission_and_sort_hosts_by_number(tmp_path: Path) -> None:
    run = hand('[hosts.a]\ncount = 11\n[bags.b]\nsubmit = "1d"\ntasks = 11\nduration = "10min"')
    pages.write(run.record, tmp_path)
    words = [each.text or "" for each in ET.parse(tmp_path / "gantt.svg").iter() if each.tag.endswith("text")]
    assert [word for word in words if word.startswith("a-")] == [f"a-{n}" for n in range(1, 12)]
    assert "time since the first submission (min)" in words and "1440" not in words
    bars = [each for each in ET.parse(tmp_path / "gantt.svg").iter() if each.get("fill") == plots.colour(0)]
    assert min(float(each.get("width", 0)) for each in bars[:11]) > 300


def test_written_files_hold_all_attempts_and_charts(tmp_path: Path) -> None:
    _, record = played()
    pages.write(record, tmp_path)
    with (tmp_path / "attempts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(record) and {row["outcome"] for row in rows} == {"succeeded", "failed", "lost"}
    assert json.loads((tmp_path / "bags.json").read_text())[0]["accepted"] == 120
    with (tmp_path / "completion.csv").open() as file:
        assert [row["tasks"] for row in csv.DictReader(file)][-1] == "120.0"
    for name in ("gantt", "running", "completion"):
        tree = ET.parse(tmp_path / f"{name}.svg").getroot()
        image = Image.open(tmp_path / f"{name}.png")
        assert image.size == (2 * int(tree.get("width", 0)), 2 * int(tree.get("height", 0)))
        assert len(image.convert("RGB").getcolors(1 << 20) or ()) > 5
    bars = [each for each in ET.parse(tmp_path / "gantt.svg").iter() if each.get("fill") == plots.colour(0)]
    assert len(bars) == 120 + 1  # and one in the legend


def test_same_seed_writes_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        pages.write(played(7)[1], tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 11 and files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_gantt_of_hundred_thousand_attempts_stays_small() -> None:
    draw = random.Random(1)
    rows = []
    for host in range(1000):
        bars, at = [], 0.0
        for _ in range(100):
            at += draw.uniform(1, 5)
            bars.append(plots.Bar(at, at + 20, "#000000"))
            at += 20
        rows.append(plots.GanttRow(f"host {host}", f"site {host // 500}", bars))
    sheet = plots.gantt("large", rows, 2600.0)
    assert len(sheet.svg()) < 2 << 20 and len(sheet.png()) < 2 << 20
    assert "site 1 1…13" in sheet.svg()


def test_summed_up_rows_are_shaded_by_their_busy_share() -> None:
    half = [plots.GanttRow(str(n), "s", [plots.Bar(0, 100 if n % 2 else 50, "#000000")]) for n in range(400)]
    (row, *_) = plots._summed_up(half, 100.0)
    assert [(bar.start, bar.end) for bar in row.bars] == [(0.0, 50.0), (50.0, pytest.approx(100.0))]
    assert row.bars[0].fill == plots.colour(0)
    assert row.bars[1].fill == plots._mixed(plots.colour(0), 0.4)  # two of the five slots that a row stands for


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_ticks_are_few_and_within_axis(low: float, span: float) -> None:
    found = plots.ticks(low, low + span)
    assert 1 <= len(found) <= 14 and all(low - span * 0.01 <= tick <= low + span * 1.01 for tick in found)


def test_charts_draw_infinite_values_and_names_with_markup() -> None:
    figure = Figure("a < b & c", "x", "y", [Series("nothing", [], []), Series("one", [3.0], [float("inf")]),
                                            Series("flat", [1.0, 2.0], [0.0, float("nan")])])
    sheet = plots.lines(figure)
    assert "a &lt; b &amp; c" in sheet.svg() and ET.fromstring(sheet.svg()) is not None
    Image.open(BytesIO(sheet.png())).verify()


def test_empty_record_is_written_with_charts(tmp_path: Path) -> None:
    pages.write(Record(), tmp_path / "deep" / "er")
    assert (tmp_path / "deep" / "er" / "gantt.png").exists()


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="cannot write"):
        pages.write(Record(), tmp_path / "file")


def test_figures_of_experiment_are_written_as_data_and_pictures(tmp_path: Path) -> None:
    pages.write_figures([Figure("t", "hosts", "s", [Series("DC", [2, 4], [10.0, 6.0])])], tmp_path)
    assert (tmp_path / "figure-1.csv").read_text() == "hosts,name,s\n2,DC,10.0\n4,DC,6.0\n"
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".svg", ".png"}
