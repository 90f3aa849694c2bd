"""The same promises of every dialect, kept by the real system behind it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator

import pytest

from tests.sites.systems import RUN, SYSTEMS, System
from tests.testbed.base import require
from windfall.errors import SiteRefused
from windfall.sites.dialects.job import ENDED, HELD, QUEUED, RUNNING, Job, Shape

pytestmark = [pytest.mark.slow, pytest.mark.testbed]
QUEUELESS = ("ssh", "local")


@pytest.fixture(scope="module", params=list(SYSTEMS))
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    require()
    made = SYSTEMS[request.param]()
    try:
        made.doomed = _doomed(made)  # its time runs out while the other tests go on
        yield made
    finally:
        made.close()


def _doomed(system: System) -> Job:
    job = system.job(300, shape=Shape(system.limits.walltime), grace=system.limits.grace)
    system.submit(job)
    return job


@pytest.fixture
def running(system: System) -> Iterator[Job]:
    """A job that runs, and goes when the test is over."""
    job = system.job()
    system.submit(job)
    system.until(lambda: system.states(job).get(job.nonce) == RUNNING and system.said(job))
    yield job
    system.cancel(system.listed(job))


def _needs_arrays(system: System) -> None:
    if not system.arrays:
        pytest.skip("PBS's commands over Slurm list a waiting array as one job")


def test_job_is_listed_from_its_submission_to_its_end(system: System) -> None:
    job = system.job(1.5, variables=(("GREETING", "it's $HOME, \"quoted\" \\ `here` | & ; *"),),
                     setup=("GREETED=\"$GREETING too\"; export GREETED",))
    id = system.submit(job)
    assert [(each.nonce, each.id) for each in system.listed(job)] == [(job.nonce, *system.dialect.names(job, id))], (
        "listed as soon as it is submitted")
    system.until(lambda: "ended" in system.said(job))
    system.until(lambda: system.states(job) == {})
    assert all(each.state == ENDED for each in system.listed(job))
    assert system.said(job) == ["started", "ended"]


def test_a_job_sees_exactly_what_was_said(system: System) -> None:
    value = "it's $HOME, \"quoted\" \\ `here` | & ; * %d %% $(x) ü"
    job = system.job(0, variables=(("GREETING", value),), setup=('GREETED="$GREETING too"; export GREETED',))
    system.submit(job)
    about = system.place / system.folder / f"about-{job.nonce}"
    environ = system.until(lambda: about.exists() and about.stat().st_size and json.loads(about.read_text())["environ"])
    assert environ["GREETING"] == value and environ["GREETED"] == value + " too"
    assert environ["WINDFALL_NONCE"] == job.nonce


def test_an_array_is_one_submission(system: System) -> None:
    _needs_arrays(system)
    job = system.job(count=6)
    names = system.dialect.names(job, system.submit(job))
    assert {each.nonce: each.id for each in system.listed(job)} == dict(zip(job.nonces, names, strict=True))
    system.until(lambda: all(system.said(job, index) for index in range(6)))
    assert {path.name for path in (system.place / system.folder).glob(f"about-{RUN}*")} >= {
        f"about-{nonce}" for nonce in job.nonces}, "each knows who it is"
    kept = job.nonces[2]
    system.cancel([each for each in system.listed(job) if each.nonce != kept])
    system.until(lambda: list(system.states(job)) == [kept])
    system.cancel(system.listed(job))
    system.until(lambda: system.states(job) == {})


def test_a_running_job_is_cancelled_and_told(system: System, running: Job) -> None:
    system.cancel(system.listed(running))
    system.until(lambda: system.states(running) == {})
    system.until(lambda: len(system.said(running)) == 2)
    assert system.said(running)[1] in ("SIGTERM", "SIGUSR2")


def test_cancelling_an_ended_job_is_no_error(system: System, running: Job) -> None:
    listed = system.listed(running)
    system.cancel(listed)
    system.until(lambda: system.states(running) == {})
    system.cancel(listed)


def test_the_start_of_a_job_is_known(system: System, running: Job) -> None:
    if system.name == "torque":
        pytest.skip("PBS's commands over Slurm do not tell it")
    about = system.place / system.folder / f"about-{running.nonce}"
    began = system.until(lambda: about.exists() and about.stat().st_mtime)
    start = system.until(lambda: system.listed(running)[0].start)
    assert abs(start - began) < 120


def test_a_queued_job_is_cancelled(system: System) -> None:
    if system.name in QUEUELESS:
        pytest.skip("has no queue")
    full = system.many(20)
    system.until(lambda: sum(state == RUNNING for job in full for state in system.states(job).values()) >= 2)
    waiting = system.job()
    system.submit(waiting)
    assert system.states(waiting) == {waiting.nonce: QUEUED}
    system.cancel(system.listed(waiting))
    system.until(lambda: system.states(waiting) == {})
    assert system.said(waiting) == [], "it never ran"
    _all_cancelled(system, full)


def _all_cancelled(system: System, jobs: list[Job]) -> None:
    nonces = {nonce for job in jobs for nonce in job.nonces}
    system.cancel([each for each in system.listed() if each.nonce in nonces and each.state != ENDED])
    system.until(lambda: not [each for each in system.listed() if each.nonce in nonces and each.state != ENDED], 90)


def test_two_hundred_jobs_are_one_listing(system: System) -> None:
    count = 20 if system.name in QUEUELESS or not system.arrays else 200  # there they all run, or are all submitted
    jobs = system.many(count)
    nonces = [nonce for job in jobs for nonce in job.nonces]
    listed = [each for each in system.listed() if each.nonce in nonces and each.state != ENDED]
    assert sorted(each.nonce for each in listed) == sorted(nonces) and len({each.id for each in listed}) == count
    assert len(system.dialect.cancel(each.id for each in listed)) == 1
    _all_cancelled(system, jobs)


def test_a_refused_job_says_why(system: System) -> None:
    if not system.limits.refuses:
        pytest.skip("refuses nothing")
    job = system.job(**system.limits.refuses)
    with pytest.raises(SiteRefused) as refused:
        system.submit(job)
    assert refused.value.kind in ("queue", "shape") and refused.value.hint
    assert system.listed(job) == []


def test_scripts_and_logs_are_nobody_elses(system: System, running: Job) -> None:
    folder = system.place / system.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.glob("*.sh"):
        assert not path.stat().st_mode & 0o077


def test_room_is_told(system: System, running: Job) -> None:
    room = system.dialect.roomed(system.do(system.channel.say(system.dialect.room(""))))
    if system.name == "torque":
        return  # its nodes are told in words of its own
    assert room.total and room.free is not None and 0 <= room.free <= room.total
    assert room.queued is not None


def test_a_wall_time_ends_with_a_signal(system: System) -> None:
    if system.name == "torque":
        pytest.skip("PBS's commands over Slurm send it after a minute: scripts/soak lengthy")
    _signalled(system)


@pytest.mark.lengthy
def test_a_wall_time_of_minutes_ends_with_a_signal(system: System) -> None:
    if system.name != "torque":
        pytest.skip("has shorter ones")
    _signalled(system)


def _signalled(system: System) -> None:
    job = system.doomed
    system.until(lambda: len(system.said(job)) == 2, system.limits.wait)
    assert system.said(job)[1] in ("SIGTERM", "SIGUSR2")
    system.until(lambda: system.states(job) == {}, 30)


def test_contract_jobs_are_never_held(system: System) -> None:
    assert [each for each in system.listed() if each.state == HELD] == []
