"""A task's story: which facts touch a task, and what their sentences say."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, Bench, shape
from windfall.core.messages import events as e, facts as f
from windfall.core.read.story import Protagonist, StoryLine, story
from windfall.store import codec


def told(bench: Bench, bag: int, task: int = 0, pieces: bool = False) -> list[StoryLine]:
    """Return the story of a task; with `pieces`, read commit by commit, as pages of a long journal are."""
    who = Protagonist(bag, task, bench.core.state.bags[bag].target_of(task))
    commits = [codec.decode(body) for body in bench.journal]
    if pieces:
        return [line for facts in commits for line in story(facts, who)]
    return story([fact for facts in commits for fact in facts], who)


def kinds(lines: list[StoryLine]) -> list[str]:
    return [line.kind for line in lines]


@pytest.mark.parametrize("pieces", [False, True])
def test_story_follows_a_task_from_submission_to_success(bench: Bench, pieces: bool) -> None:
    bag = bench.submit(shape(3))
    pilot = bench.pilot()
    attempts = {task: attempt for attempt, task in bench.take(pilot)}
    bench.exchange(pilot, started=[attempts[1]])
    bench.report(pilot, attempts[1], wall=2_000)
    lines = told(bench, bag, 1, pieces)
    assert kinds(lines) == ["submitted", "granted", "started", "finished"]
    assert [line.attempt for line in lines[1:]] == [attempts[1]] * 3 and {line.pilot for line in lines[1:]} == {pilot}
    assert lines[0].text == f"ann submitted bag {bag}, with this task in target 'main'"
    assert lines[-1].text == "the attempt succeeded after 2s; the task has succeeded"


def test_story_leaves_out_other_tasks_and_bags(bench: Bench) -> None:
    bag, other = bench.submit(shape(2, cores=1)), bench.submit(shape(2))
    pilot = bench.pilot(cores=8)
    granted = bench.take(pilot, want=1)
    assert [task for _, task in granted] == [0]
    bench.do(e.Cancel(0, other, None))
    bench.report(pilot, granted[0][0])
    assert kinds(told(bench, bag, 1)) == ["submitted"]


def test_story_says_why_an_attempt_failed_and_that_its_task_is_tried_again(bench: Bench) -> None:
    bag = bench.submit(shape(retries=1))
    pilot = bench.pilot()
    for _ in range(2):
        [(attempt, _)] = bench.take(pilot)
        bench.report(pilot, attempt, "failed", "exit", exit=3, wall=1_000)
    lines = [line for line in told(bench, bag) if line.kind == "ended"]
    assert [line.text for line in lines] == [
        "the attempt failed after 1s: exit code 3; the task is ready again",
        "the attempt failed after 1s: exit code 3; the task has failed",
    ]


def test_story_tells_of_a_lost_attempt_and_its_late_result(bench: Bench) -> None:
    bag = bench.submit(shape(limit=60_000))
    pilot = bench.pilot()
    [(attempt, _)] = bench.take(pilot)
    bench.wait(GONE_SILENT)
    bench.report(pilot, attempt, wall=500)
    lines = told(bench, bag)
    assert kinds(lines) == ["submitted", "granted", "lost", "finished"]
    assert lines[2].text == (
        "the attempt was given up as lost: its pilot's lease expired; the task is ready again")
    assert lines[3].text.endswith("the task has succeeded") and lines[3].attempt == attempt


def test_story_tells_what_users_did_to_the_bag(bench: Bench) -> None:
    bag = bench.submit(shape(2, limit=60_000), open=True)
    bench.append(bag, 3)
    bench.do(e.Pause(0, bag, True, by="ann"))
    bench.do(e.Pause(0, bag, False, by="ann"))
    bench.do(e.SetPolicy(0, bag, {"rank": "Host.Cores"}, by="ann"))
    bench.do(e.SetBudget(0, bag, 7_200_000, by="ann"))
    bench.do(e.Close(0, bag, by="ann"))
    bench.do(e.Cancel(0, bag, [3], by="ann"))
    bench.do(e.Retry(0, bag, [3], by="ann"))
    lines = told(bench, bag, 3)
    assert kinds(lines) == ["appended", "paused", "unpaused", "policy", "budget", "closed", "cancelled", "retried"]
    assert lines[3].text == "ann changed the bag's policies to: rank = Host.Cores"
    assert lines[4].text == "ann set the bag's budget to 2 core-hours"
    assert lines[6].text == "ann cancelled the task" and lines[7].text == "ann asked to run the task again"


def test_story_says_that_a_task_was_cancelled_for_one_that_failed(bench: Bench) -> None:
    edges = (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    bag = bench.submit(shape(2, retries=0), edges=edges)
    pilot = bench.pilot()
    [(attempt, _)] = bench.take(pilot)
    bench.report(pilot, attempt, "failed", "exit", exit=1)
    assert told(bench, bag, 1)[-1].text == "the task was cancelled: a task that it waits for did not succeed"


def test_story_names_replicas_and_adoptions(bench: Bench) -> None:
    bag = bench.submit(shape(2))
    who = Protagonist(bag, 0, 0)
    facts = [
        f.Granted(1, 7, 1, [f.Group(bag, 0, 0, 0, tasks=[1, 0], attempts=[11, 12])]),
        f.Granted(2, 8, 1, [f.Group(bag, 0, 1, 2, tasks=[0], attempts=[13])]),
        f.Adopted(3, 9, [12, 99]), f.Started(4, 9, [12]), f.PilotDraining(5, 9),
    ]
    lines = story(facts, who)
    assert [(line.kind, line.attempt, line.pilot) for line in lines] == [
        ("granted", 12, 7), ("granted", 13, 8), ("adopted", 12, 9), ("started", 12, 9), ("draining", 12, 9)]
    assert lines[0].text == "the task was granted to pilot 7"
    assert lines[1].text == (
        "a replica of the task was granted to pilot 8, with 3 times its time limit and 4 times its memory")


def test_story_tells_of_the_pilot_requested_for_one_task() -> None:
    wanted = f.Intent(5, "intent-5", f.Shape(), 0, bag=1, task=4)
    facts = [
        f.IntentsMade(1, "c1", [f.Intent(4, "intent-4", f.Shape(), 0), wanted]),
        f.IntentsAccepted(2, "c1", [4, 5], ["71", "72"]), f.IntentsEnded(3, "c1", [5], [0], "ran"),
    ]
    lines = story(facts, Protagonist(1, 4, 0))
    assert kinds(lines) == ["requested", "queued", "job-over"] and {line.site for line in lines} == {"c1"}
    assert lines[1].text == "the batch system of c1 took the task's pilot as job 72"


def test_every_reason_and_state_has_a_sentence(bench: Bench) -> None:
    end = f.End(1, 1, 0, 0, 4, "silent", 0, True, 0, 0, 0, 0, 0, 0, 0, 0)
    for verdict in range(8):
        for outcome in range(5):
            end.verdict, end.outcome = verdict, outcome
            [line] = story([f.Ended(1, 2, [end])], Protagonist(1, 0, 0))
            assert line.text.count(";") >= 1 and "None" not in line.text

