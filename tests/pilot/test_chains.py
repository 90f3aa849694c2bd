"""Chains: one task at a time, in order, in one slot; tasks behind a failed one are returned."""

from hypothesis import given, settings, strategies as st

from tests.pilot.test_agenda import LEASE, agenda, answer, give, runs
from windfall.pilot.agenda.agenda import COALESCE_MS


def chain(number, *attempts, behind=None, bag=1, **spec):
    group = {"spec": dict(spec, bag=bag), "tasks": [[a, ["true"]] for a in attempts], "chain": number}
    if behind:
        group["behind"] = behind
    return group


def grant(number, *groups):
    return {"n": number, "groups": list(groups)}


def test_chain_uses_one_core_of_four():
    made = agenda(4)
    give(made, 0, grant(1, chain(7, *range(16))))
    for attempt in range(16):
        assert runs(made, attempt) == [attempt] and not runs(made, attempt)
        assert len(made.held()) == 16 - attempt
        made.task_ended(attempt, attempt, {"a": attempt})
    assert not made.holding() and not made.chains.chains


def test_two_chains_run_side_by_side_and_none_overtakes():
    made = agenda(2)
    give(made, 0, grant(1, chain(1, 1, 2, 3), chain(2, 11, 12), chain(3, 21)))
    assert runs(made, 0) == [1, 11]
    made.task_ended(5, 1, {"a": 1})
    assert runs(made, 5) == [2]                              # before 21, which waits for a slot
    made.task_ended(6, 11, {"a": 11, "o": "failed", "why": "exit"})
    assert runs(made, 6) == [12]                             # a failure is no reason to stop
    made.task_ended(7, 12, {"a": 12})
    assert runs(made, 7) == [21]


def test_same_number_in_another_bag_is_another_chain():
    made = agenda(2)
    give(made, 0, grant(1, chain(1, 1, 2), chain(1, 11, 12, bag=2)))
    assert runs(made, 0) == [1, 11]


def test_later_tasks_of_a_chain_join_it():
    made = agenda(2)
    give(made, 0, grant(1, chain(1, 1)))
    assert runs(made, 0) == [1]
    give(made, 1, grant(2, chain(1, 2)))
    assert runs(made, 1) == []
    made.task_ended(2, 1, {"a": 1})
    assert runs(made, 2) == [2]


def test_reports_of_a_chain_leave_together():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2, 3)))
    made.next_request(1)                                     # parked
    for attempt in (1, 2):
        assert runs(made, attempt) == [attempt]
        made.running(attempt, [attempt])
        made.task_ended(attempt, attempt, {"a": attempt})
        assert made.next_request(attempt + COALESCE_MS) is None
    assert runs(made, 3) == [3]
    made.running(3, [3])
    made.task_ended(9, 3, {"a": 3})
    assert [r["a"] for r in made.next_request(9)["reports"]] == [1, 2, 3]


def test_reports_of_a_chain_wait_at_most_a_third_of_a_lease():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2)))
    made.next_request(1)
    runs(made, 1)
    made.task_ended(10, 1, {"a": 1})
    runs(made, 10)
    made.running(11, [2])
    assert made.due(11) == 10 + LEASE // 3
    request = made.next_request(10 + LEASE // 3)
    assert [r["a"] for r in request["reports"]] == [1] and request["started"] == [2]


def test_failure_within_a_chain_is_reported_at_once():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2, 3)))
    made.next_request(1)
    runs(made, 1)
    made.task_ended(10, 1, {"a": 1})
    runs(made, 10)
    made.task_ended(20, 2, {"a": 2, "o": "failed", "why": "exit"})
    assert [r["a"] for r in made.next_request(20 + COALESCE_MS)["reports"]] == [1, 2]


def test_recall_and_cancel_reach_waiting_tasks_of_a_chain():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2, 3, 4)))
    assert runs(made, 0) == [1]
    request = made.next_request(300)
    made.answer_received(300, answer(request, recall=[3], cancel=[4]))
    assert {a: r["o"] for a, r in made.undelivered().items()} == {3: "returned", 4: "cancelled"}
    made.task_ended(301, 1, {"a": 1})
    assert runs(made, 301) == [2]


def test_recall_does_not_split_a_chain_that_has_begun():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2, 3), chain(2, 11, 12)))
    assert runs(made, 0) == [1]
    request = made.next_request(300)
    made.answer_received(300, answer(request, recall=[1, 2, 3, 11, 12]))
    assert sorted(made.undelivered()) == [11, 12]
    made.task_ended(301, 1, {"a": 1})
    assert runs(made, 301) == [2]


def test_recalled_chain_that_has_not_started_goes_back_whole():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2, 3)))
    assert runs(made, 0) == [1]
    request = made.next_request(300)
    made.answer_received(300, answer(request, recall=[1, 2, 3]))
    made.given_back(301, [1])
    assert {a: r["why"] for a, r in made.undelivered().items()} == {1: "recall", 2: "recall", 3: "recall"}
    assert not made.holding() and not made.chains.chains


def test_leaving_pilot_returns_the_waiting_tasks_of_a_chain():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2, 3)))
    assert runs(made, 0) == [1]
    made.stop(5)
    assert sorted(made.undelivered()) == [2, 3] and made.held() == [1]


def test_dependent_task_starts_only_after_success():
    made = agenda(4)
    give(made, 0, grant(1, chain(1, 1), chain(1, 2, behind=[1]), chain(1, 3, behind=[2])))
    assert runs(made, 0) == [1]
    made.process_ended(5, 1)                                       # its files are still under way
    assert runs(made, 5) == []
    made.task_ended(6, 1, {"a": 1})
    assert runs(made, 6) == [2]
    made.task_ended(7, 2, {"a": 2, "o": "failed", "why": "exit"})
    assert runs(made, 7) == [] and not made.holding()
    assert made.undelivered()[3] == {"a": 3, "o": "returned", "why": "behind"}


def test_batch_of_pipelines_runs_stage_by_stage():
    made = agenda()
    give(made, 0, grant(1, chain(1, 1, 2), chain(1, 11, 12, behind=[1, 2])))
    assert runs(made, 0) == [1]
    made.task_ended(1, 1, {"a": 1, "o": "failed", "why": "exit"})
    assert made.undelivered()[11]["why"] == "behind"
    assert runs(made, 1) == [2]
    made.task_ended(2, 2, {"a": 2})
    assert runs(made, 2) == [12]


def test_task_behind_an_unknown_attempt_is_returned():
    made = agenda()
    give(made, 0, grant(1, chain(1, 2, behind=[1])))
    assert runs(made, 0) == [] and made.undelivered()[2]["why"] == "behind"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_events_keep_the_rules_of_chains(data):
    """Random grants, ends, cancellations: never two of a chain at once, never out of order, no task lost."""
    made = agenda(data.draw(st.integers(1, 3)))
    running, now, number, ended = {}, 0, 0, []
    place = {}
    for _ in range(data.draw(st.integers(1, 40))):
        now += 300
        act = data.draw(st.sampled_from(["grant", "end", "end", "recall", "vacate"]))
        unplaced = [a for a in made.held() if made.unplaced(a)]
        if act == "grant":
            number += 1
            key, size = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
            first = 100 * number
            behind = [None] + [first + i for i in range(size - 1)] if data.draw(st.booleans()) else None
            place.update((first + i, key) for i in range(size))
            request = made.next_request(now)
            if request is None:
                number -= 1
                continue
            made.answer_received(now, answer(request, grants=[grant(number, chain(key, *range(first, first + size),
                                                                                 behind=behind))]))
        elif act == "end" and running:
            attempt = data.draw(st.sampled_from(sorted(running)))
            del running[attempt]
            made.task_ended(now, attempt, {"a": attempt, "o": data.draw(st.sampled_from(["succeeded", "failed"]))})
            ended.append(attempt)
        elif act == "vacate" and running:
            made.process_ended(now, data.draw(st.sampled_from(sorted(running))))
        elif act == "recall" and unplaced:
            request = made.next_request(now)
            if request is not None:
                made.answer_received(now, answer(request, recall=[data.draw(st.sampled_from(sorted(unplaced)))]))
        running.update((attempt, place[attempt]) for attempt in runs(made, now))
        there = [place[a] for a in made.placed]
        assert len(there) == len(set(there)), "two of a chain at once"
        assert not made.chains.problem() and not made.seats.problem()
        assert set(running) <= set(made.held())
