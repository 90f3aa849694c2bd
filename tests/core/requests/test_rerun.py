"""Running again: which tasks start again after a change, and which keep their results."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.core.conftest import PATIENT, Bench, shape
from windfall.core.messages import effects as x, events as e, facts as f


@pytest.fixture
def bench() -> Bench:
    return Bench(**PATIENT)


def rerun(bench: Bench, bag: int, which: str = "", **change: Any) -> Any:
    """Ask to run a bag again; `concerned`, `targets` and `spec` describe the change."""
    state = bench.core.state.bags[bag]
    if change:
        change = {"spec": b"mended", "targets": [target.shape for target in state.targets],
                  "seen": (state.revised, len(state.appended)), **change}
    return bench.do(e.Rerun(0, bag, which, by="ann", **change))


def work(bench: Bench, pilot: int, failing: tuple[int, ...] = ()) -> list[int]:
    """Let a pilot run all that is ready, without retries; return the tasks that it ran."""
    ran = []
    while answer := bench.exchange(pilot, want=1_000):
        tasks = [(attempt, task) for _, groups in answer.grants for group in groups
                 for attempt, task in zip(group.attempts, group.tasks, strict=True)]
        if not tasks:
            break
        ran += [task for _, task in tasks]
        bench.exchange(pilot, reports=[
            e.Report(attempt, "failed", "exit", exit=1) if task in failing else e.Report(attempt)
            for attempt, task in tasks])
    return sorted(ran)


def ended(bench: Bench, *targets: f.TargetShape, failing: tuple[int, ...] = (), **more: Any) -> tuple[int, int]:
    bag, pilot = bench.submit(*targets, **more), bench.pilot(cores=100)
    work(bench, pilot, failing)
    return bag, pilot


def edges(*pairs: tuple[int, int]) -> bytes:
    return np.array(pairs, dtype="<i4").tobytes()


def test_rerun_starts_failed_and_appended_tasks_again_and_keeps_the_rest(bench: Bench) -> None:
    bag, pilot = ended(bench, shape(4, retries=0), failing=(1, 3))
    bench.do(e.Append(0, "ann", bag, 0, 2, "", b"source", extends=True))
    work(bench, pilot, failing=(5,))
    assert bench.tasks(bag) == "sfsfsf"
    assert rerun(bench, bag).value == 3
    assert bench.tasks(bag) == "srsrsr" and work(bench, pilot) == [1, 3, 5]
    assert bench.tasks(bag) == "ssssss" and rerun(bench, bag).value == 0


def test_rerun_of_a_change_starts_what_it_concerns_and_what_failed(bench: Bench) -> None:
    bag, pilot = ended(bench, shape(5, retries=0), failing=(4,))
    assert rerun(bench, bag, concerned=[(0, 2)]).value == 3
    assert bench.core.state.bags[bag].spec == b"mended"
    assert work(bench, pilot) == [0, 1, 4]


def test_rerun_of_failed_tasks_leaves_the_others_outdated(bench: Bench) -> None:
    bag, pilot = ended(bench, shape(4, retries=0), failing=(1,))
    answer = rerun(bench, bag, "failed", concerned=[(0, 4)])
    assert (answer.value, answer.extra) == (1, 3)
    assert work(bench, pilot) == [1]
    snapshot = bench.snapshot()
    bench.restart()
    bench.restart(snapshot)
    assert rerun(bench, bag).value == 3, "no all-clear while results of the former files stay"
    assert bench.tasks(bag) == "rsrr"
    work(bench, pilot)
    assert rerun(bench, bag).value == 0


def test_rerun_of_what_changed_leaves_failures_that_the_change_does_not_concern(bench: Bench) -> None:
    bag, pilot = ended(bench, shape(4, retries=0), failing=(0, 3))
    assert rerun(bench, bag, "changed", concerned=[(2, 2)]).value == 2
    assert work(bench, pilot) == [2, 3] and bench.tasks(bag) == "fsss"


def test_rerun_of_all_starts_every_task_again(bench: Bench) -> None:
    bag, pilot = ended(bench, shape(3))
    assert rerun(bench, bag, "all").value == 3 and work(bench, pilot) == [0, 1, 2]


def test_change_stays_unknown_while_nothing_starts_again(bench: Bench) -> None:
    bag, _ = ended(bench, shape(2))
    assert rerun(bench, bag, "failed", concerned=[(0, 2)]).value == 0
    assert bench.core.state.bags[bag].spec == b"spec" and bench.facts == []
    assert rerun(bench, bag, concerned=[]).value == 0
    assert bench.core.state.bags[bag].spec == b"mended", "a limit that no result depends on holds from now on"


def test_tasks_after_one_that_starts_again_start_again_too(bench: Bench) -> None:
    bag, pilot = ended(bench, shape(5), edges=edges((0, 1), (1, 2), (3, 4)))
    assert rerun(bench, bag, concerned=[(0, 1)]).value == 3
    assert bench.tasks(bag) == "rwwss"
    bench.restart(bench.snapshot())
    assert work(bench, bench.pilot(cores=9)) == [0, 1, 2] and bench.tasks(bag) == "sssss"


def test_target_that_takes_files_gathers_them_again(bench: Bench) -> None:
    bag = bench.submit(shape(3, name="a"), shape(2, name="b", after=[0], gathers=True), shape(1, name="c", after=[1]))
    pilot = bench.pilot(cores=9)
    work(bench, pilot)
    bench.step(e.InputsGathered(0, bag, 1))
    work(bench, pilot)
    assert rerun(bench, bag, concerned=[(1, 1)]).value == 4
    assert work(bench, pilot) == [1], "the files of target a are gathered anew first"
    bench.step(e.InputsGathered(0, bag, 1))
    assert work(bench, pilot) == [3, 4, 5] and bench.tasks(bag) == "ssssss"


def test_new_resources_hold_for_what_starts_again(bench: Bench) -> None:
    bag, _ = ended(bench, shape(2, retries=0), failing=(1,))
    assert rerun(bench, bag, targets=[shape(2, retries=0, cores=4, limit=5_000)]).value == 1
    assert bench.take(bench.pilot(cores=2, nonce="small", host="other")) == []
    bench.restart(bench.snapshot())
    assert [task for _, task in bench.take(bench.pilot(cores=4, nonce="big", host="third"))] == [1]


def test_rerun_of_a_bag_that_runs_is_refused(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(3, retries=0)), bench.pilot()
    ((attempt, _),) = bench.take(pilot, 1)
    refused = rerun(bench, bag, concerned=[(0, 3)])
    assert isinstance(refused, x.Refuse) and "still runs, with 3 tasks to go" in refused.message
    bench.step(e.Cancel(0, bag, None))
    assert "have not stopped yet" in rerun(bench, bag, targets=[shape(3, retries=0, cores=2)]).message
    assert rerun(bench, bag, concerned=[(0, 3)]).value == 3, "an attempt that stops does not matter for another script"
    bench.report(pilot, attempt)
    assert bench.tasks(bag) == "rrr", "its result is of the generation before"


def test_change_that_was_worked_out_too_early_is_refused(bench: Bench) -> None:
    bag, _ = ended(bench, shape(2))
    assert "has changed meanwhile" in rerun(bench, bag, concerned=[(0, 2)], seen=(0, 1)).message
    assert "other targets" in rerun(bench, bag, concerned=[(0, 2)], targets=[shape(3)]).message
    assert "chooses no tasks" in rerun(bench, bag, "some").message


def random_bag(bench: Bench, rng: random.Random) -> int:
    """Submit tasks in one target with edges, or in targets that wait for one another and gather files."""
    if rng.random() < 0.5:
        count = rng.randint(1, 8)
        pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.3]
        return bench.submit(shape(count, retries=0), edges=edges(*pairs) if pairs else b"")
    shapes = [shape(rng.randint(1, 3), name=str(place), retries=0, gathers=place > 0 and rng.random() < 0.5,
                    after=sorted(rng.sample(range(place), rng.randint(0, min(place, 2))))) for place in range(4)]
    for each in shapes:
        each.gathers = each.gathers and bool(each.after)
    return bench.submit(*shapes)


def settle(bench: Bench, bag: int, rng: random.Random, chance: float) -> None:
    """Let a new pilot run the bag to its end; a task fails with this chance."""
    pilot = bench.pilot(cores=64, host=f"h{bench.now}")
    state = bench.core.state.bags[bag]
    for _ in range(50):
        for target in state.targets:
            if target.inputs_pending and not target.pending:
                bench.step(e.InputsGathered(0, bag, target.index))
        work(bench, pilot, tuple(task for task in range(state.size) if rng.random() < chance))
        if not state.not_ended():
            break
    assert not state.not_ended()
    bench.exchange(pilot, bye="idle")


@pytest.mark.parametrize("seed", range(30))
def test_random_reruns_keep_every_promise_and_end_with_all_tasks_done(seed: int) -> None:
    rng, bench, kept = random.Random(seed), Bench(**PATIENT), dict[str, bytes]()
    bag = random_bag(bench, rng)
    settle(bench, bag, rng, 0.3)
    for turn in range(8):
        state = bench.core.state.bags[bag]
        first = rng.randrange(state.size)
        shapes = [msgspec.structs.replace(each.shape, cores=rng.randint(1, 3)) for each in state.targets]
        before, outdated = bench.tasks(bag), state.tasks.np_flags[: state.size].tolist()
        answer = rerun(bench, bag, rng.choice(["", "failed", "changed", "all"]), spec=b"spec %d" % turn, targets=shapes,
                       concerned=[(first, rng.randint(1, state.size - first))])
        assert answer.value == sum(letter in "rw" for letter in bench.tasks(bag)), (before, outdated)
        if rng.random() < 0.5:
            position, meta, chunks = bench.snapshot()
            kept |= chunks  # a snapshot has only chunks that changed since the last one
            bench.restart((position, meta, kept))
        if answer.value:
            settle(bench, bag, rng, 0.2)
    while rerun(bench, bag).value:
        settle(bench, bag, rng, 0)
    state = bench.core.state.bags[bag]
    assert set(bench.tasks(bag)) == {"s"} and not state.tasks.np_flags[: state.size].any()
