"""The end of a pilot: what counts as evidence that it is dead, and what a batch system only believes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.conftest import HOUR, Bench, shape
from tests.core.provision.tender import LANDING, Tender, bag, site
from windfall.core.messages import events as e
from windfall.sites.dialects import htcondor, lsf, pbs, slurm
from windfall.sites.dialects.job import ENDED, RUNNING, Answer
from windfall.sites.dialects.table import DIALECTS, dialect

NONCE = "intent-1"


def begin(bench: Bench, *, external: bool = True, tasks: int = 1) -> tuple[Tender, int, int]:
    """Start tasks on a pilot that a batch system runs; return its tender, the bag and the pilot."""
    site(bench)
    number = bag(bench, shape(tasks, expect=HOUR), external=external)
    tender = Tender(bench)
    bench.wait(LANDING)
    tender.work()
    pilot = tender.begin(NONCE)
    bench.exchange(pilot, started=[attempt for attempt, _ in bench.take(pilot, left=HOUR)])
    bench.wait(60_000)
    tender.tell()
    return tender, number, pilot


def vanish(bench: Bench, **more: Any) -> tuple[Tender, int, int]:
    """Do the same, and drop the pilot's job from the listings."""
    tender, number, pilot = begin(bench, **more)
    del tender.jobs[NONCE]
    tender.list_twice()
    return tender, number, pilot


def listing(system: str, state: str) -> str:
    """Return the listing of a batch system that has our job in this state."""
    return {
        "slurm": f"7|{state}|1794758400|1|None|wf{NONCE}\n",
        "gridengine": f"<job_info><job_list><JB_job_number>7</JB_job_number><JB_name>wf{NONCE}</JB_name>"
                      f"<state>{state}</state></job_list></job_info>",
        "htcondor": json.dumps([{"ClusterId": 7, "ProcId": 0, "JobBatchName": f"wf{NONCE}",
                                 "JobStatus": int(state) if state.isdigit() else 0}]),
        "pbs": f"Job Id: 7.s\n    Job_Name = wf{NONCE}\n    job_state = {state}\n",
        "torque": f"Job Id: 7.s\n    Job_Name = wf{NONCE}\n    job_state = {state}\n",
        "lsf": f"7|0|{state}|1|-|-|wf{NONCE}\n",
        "ssh": f"{NONCE}|{state}|0\nend\n",
        "local": f"{NONCE}|{state}|0\nend\n",
    }[system]


NOTHING = {"gridengine": "<job_info></job_info>", "ssh": "end\n", "local": "end\n"}
STATES = {  # every state that a dialect knows, and some that it takes for another
    "slurm": [*sorted(slurm._ENDED), "PD", "RQ", "RH", "RF", "RD", "SE", "CG", "R", "S"],
    "gridengine": ["qw", "hqw", "Eqw", "Rq", "Rr", "dr", "t", "r", "u"],
    "htcondor": [*map(str, htcondor._STATES)],
    "pbs": [*pbs._STATES], "torque": [*pbs._STATES], "lsf": [*lsf._STATES, "RUN", "UNKWN", "ZOMBI", "USUSP"],
    "ssh": ["E", "R"], "local": ["E", "R"],
}
CASES = [(system, state) for system, states in STATES.items() for state in ["", *states]]


@pytest.mark.parametrize(("system", "state"), CASES, ids=[f"{s}-{state or 'missing'}" for s, state in CASES])
def test_no_state_of_a_job_ends_attempts_with_external_effects(bench: Bench, system: str, state: str) -> None:
    said = listing(system, state) if state else NOTHING.get(system, "")
    jobs = [job for job in dialect(system).listed(Answer(0, said, "")) if job.state != ENDED]
    assert [job.nonce for job in jobs] in ([], [NONCE])
    tender, number, pilot = begin(bench)
    tender.jobs.pop(NONCE)
    tender.jobs.update({job.nonce: (f"job-{NONCE}", job.state == RUNNING) for job in jobs})
    tender.list_twice()
    bench.wait(10 * HOUR)
    assert bench.task(number) == "active"
    bench.step(e.Gone(0, pilot))
    assert bench.task(number) == "ready"


def test_every_dialect_has_a_row_of_states() -> None:
    assert STATES.keys() == DIALECTS.keys()


def test_missing_job_frees_the_attempts_that_may_run_twice(bench: Bench) -> None:
    _, plain, _ = vanish(bench, external=False)
    assert bench.task(plain) == "ready"


def test_missing_job_frees_its_slot_though_its_tasks_wait_for_evidence(bench: Bench) -> None:
    tender, number, pilot = vanish(bench)
    assert not bench.core.state.intents
    further = bag(bench, shape(1, expect=HOUR))
    tender.work()
    assert list(tender.jobs) == ["intent-2"], "another pilot may be started"
    second = tender.begin("intent-2")
    ((_, task),) = bench.take(second, left=HOUR)
    assert task == 0 and bench.task(further) == "active" and bench.task(number) == "active"


def test_pilot_in_doubt_that_lives_brings_its_tasks_to_their_ends_and_leaves(bench: Bench) -> None:
    _, number, pilot = vanish(bench)
    answer = bench.exchange(pilot)
    assert answer.census and answer.stop == "drain"
    ((attempt, _),) = held(bench, pilot)
    assert bench.exchange(pilot, held=[attempt]).cancel == []
    bench.report(pilot, attempt)
    assert bench.task(number) == "succeeded"
    bench.exchange(pilot, bye="stopped")
    assert bench.core.state.pilots[pilot].why == "stopped"


def test_goodbye_of_a_pilot_in_doubt_is_evidence(bench: Bench) -> None:
    _, number, pilot = vanish(bench)
    bench.exchange(pilot, bye="stopped")
    assert bench.task(number) == "ready"


def test_doubt_outlives_a_restart(bench: Bench) -> None:
    _, number, pilot = vanish(bench)
    bench.restart()
    bench.wait(10 * HOUR)
    assert bench.task(number) == "active"
    bench.step(e.Gone(0, pilot))
    assert bench.task(number) == "ready"


def test_pilot_in_doubt_ends_with_the_last_task_that_it_holds(bench: Bench) -> None:
    _, number, pilot = vanish(bench)
    bench.step(e.Cancel(0, number, [0]))
    bench.wait(HOUR)
    assert bench.core.state.pilots.get(pilot) is None or bench.core.state.pilots[pilot].why == "gone"


def test_pilot_that_comes_back_under_the_same_nonce_frees_no_external_effects(bench: Bench) -> None:
    tender, number, pilot = begin(bench)
    again = bench.pilot(nonce=NONCE, site="c1", left=HOUR)  # its job was put back into the queue, and began again
    bench.exchange(again, held=[], want=1, left=HOUR)
    bench.exchange(again, bye="stopped")
    del tender.jobs[NONCE]
    tender.list_twice()
    bench.wait(10 * HOUR)
    assert bench.task(number) == "active"
    bench.step(e.Gone(0, pilot))
    assert bench.task(number) == "ready"


def test_stopped_job_is_no_evidence(bench: Bench) -> None:
    tender, number, pilot = begin(bench)
    tender.jobs[NONCE] = (f"job-{NONCE}", False)
    tender.list()
    assert tender.orders.stop == [(NONCE, f"job-{NONCE}")] and bench.core.state.pilots[pilot].doubt == "requeued"
    tender.work(stopped=tender.orders.stop)
    assert not bench.core.state.intents and bench.core.state.pilots[pilot].doubt == "stopped"
    bench.wait(10 * HOUR)
    assert bench.task(number) == "active"


def test_word_that_is_not_proven_frees_no_external_effects(bench: Bench) -> None:
    number = bench.submit(external=True)
    pilot = bench.pilot()
    bench.take(pilot)
    bench.step(e.Gone(0, pilot, "gone", proven=False))
    bench.wait(10 * HOUR)
    assert bench.task(number) == "active"


def held(bench: Bench, pilot: int) -> list[tuple[int, int]]:
    attempts = bench.core.state.attempts
    return [(attempts.number[row], attempts.task_of(row)) for row in attempts.of_pilot(pilot).tolist()]
