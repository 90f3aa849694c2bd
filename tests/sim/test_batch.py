"""The model of a batch queue, against a published schedule and against the promises of its disciplines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from windfall.errors import BadInput
from windfall.sim.models import swf
from windfall.sim.models.batch import BatchQueue
from windfall.sim.models.swf import LogJob
from windfall.sim.replay import replay


def test_replay_gives_every_wait_of_published_easy_schedule(data: Path) -> None:
    jobs = swf.read(data / "swf" / "KTH-SP2-derived.swf.gz")
    with gzip.open(data / "swf" / "KTH-SP2-easy-reference.swf.gz", "rt") as file:
        rows = [line.split() for line in file if not line.startswith(";")]
    reference = {int(row[0]): float(row[2]) for row in rows}
    outcome = replay(jobs, 100, "easy")
    assert len(jobs) == len(reference) == 28_481
    assert {job.number: wait for job, wait in zip(jobs, outcome.waits, strict=True)} == reference
    assert round(outcome.mean_wait, 2) == 6836.87 and round(outcome.mean_bounded_slowdown, 4) == 92.5765


def test_jobs_of_equal_submit_time_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    line = "{} {} 0 5 2 -1 -1 2 5 -1 1 1 1 -1 -1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text("".join(line.format(*each) for each in ((9, 7), (10, 7), (2, 7), (11, 0))))
    assert [job.number for job in swf.read(tmp_path / "log.swf")] == [11, 2, 9, 10]


JOBS = st.lists(
    st.builds(
        lambda submit, run, procs, more: LogJob(0, float(submit), float(run), procs, float(run + more)),
        st.integers(0, 50), st.integers(1, 30), st.integers(1, 8), st.integers(0, 20),
    ),
    min_size=1, max_size=40,
).map(lambda jobs: sorted(jobs, key=lambda job: job.submit))


@given(JOBS)
def test_fcfs_starts_jobs_in_order_of_submission(jobs: list[LogJob]) -> None:
    waits = replay(jobs, 8, "fcfs").waits
    starts = [job.submit + wait for job, wait in zip(jobs, waits, strict=True)]
    assert starts == sorted(starts)


@settings(max_examples=200)
@given(JOBS, st.sampled_from(["fcfs", "easy"]))
def test_running_jobs_never_exceed_processors_of_machine(jobs: list[LogJob], discipline: str) -> None:
    waits = replay(jobs, 8, discipline).waits
    spans = [(job.submit + wait, job.submit + wait + job.run, job.procs) for job, wait in zip(jobs, waits, strict=True)]
    for begin, _, _ in spans:
        assert sum(procs for start, end, procs in spans if start <= begin < end) <= 8


def test_backfilled_job_does_not_delay_head_of_queue() -> None:
    queue = BatchQueue(10)
    assert queue.submit(0, "long", 6, 100) == ["long"]
    assert queue.submit(1, "head", 8, 50) == []
    assert queue.submit(2, "too long", 3, 200) == []
    assert queue.submit(3, "fits before", 3, 97) == ["fits before"]
    assert queue.end(99, "fits before") == []
    assert queue.end(100, "long") == ["head"]


def test_long_job_is_backfilled_into_processors_that_head_leaves_over() -> None:
    queue = BatchQueue(10)
    queue.submit(0, "long", 6, 100)
    queue.submit(1, "head", 8, 50)
    assert queue.submit(2, "small", 2, 10_000) == ["small"]
    assert queue.submit(3, "one more", 1, 10_000) == []


def test_cancelled_head_lets_next_job_start() -> None:
    queue = BatchQueue(10, "fcfs")
    queue.submit(0, "long", 6, 100)
    queue.submit(1, "head", 8, 50)
    assert queue.submit(2, "small", 2, 10) == []
    assert queue.cancel(3, "head") == ["small"]


def test_queue_refuses_too_wide_job_and_unknown_discipline() -> None:
    with pytest.raises(BadInput, match="12 processors on a machine of 10"):
        BatchQueue(10).submit(0, "wide", 12, 1)
    with pytest.raises(BadInput, match="discipline"):
        BatchQueue(10, "lottery")


@pytest.mark.parametrize(("line", "what"), [
    ("1 0 0 5 1", "18 numbers"),
    ("1 0 0 x 4 -1 -1 4 60 -1 -1 1 -1 -1 -1 -1 -1 -1", "numbers only"),
    ("1 -5 0 5 4 -1 -1 4 60 -1 -1 1 -1 -1 -1 -1 -1 -1", "negative"),
    ("1 nan 0 5 4 -1 -1 4 60 -1 -1 1 -1 -1 -1 -1 -1 -1", "out of bounds"),
    ("1 0 0 5 inf -1 -1 4 60 -1 -1 1 -1 -1 -1 -1 -1 -1", "out of bounds"),
])  # fmt: skip
def test_broken_line_of_log_is_reported_with_its_number(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "log.swf"
    path.write_text(f"; a header\n\n{line}\n")
    with pytest.raises(BadInput, match=what) as caught:
        swf.read(path)
    assert caught.value.where == f"{path}:3"


def test_damaged_gzip_log_is_reported_as_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(b"; nothing\n")[:-9])
    with pytest.raises(BadInput, match="cannot read"):
        swf.read(path)


def test_log_reader_skips_jobs_that_never_ran(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    never, ran = "1 0 0 -1 4 -1 -1 4 60 -1 -1 0", "2 9 0 5 -1 -1 -1 4 -1 -1 -1 1"
    path.write_text(f"{never} -1 -1 -1 -1 -1 -1\n{ran} -1 -1 -1 -1 -1 -1\n")
    assert swf.read(path) == [LogJob(2, 9.0, 5.0, 4, 5.0)]
