"""Exchanges with pilots: grants and their acknowledgement, waiting polls, the census, epochs."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, Bench, answers, granted, shape
from windfall.core.messages import effects as x, events as e


def test_a_grant_is_sent_again_until_it_is_acknowledged(bench: Bench) -> None:
    bench.submit(shape(4))
    pilot = bench.pilot(2)
    first = bench.exchange(pilot, ack=0, want=2)
    again = bench.exchange(pilot, ack=0)
    assert again.grants == first.grants
    more = bench.exchange(pilot, ack=0, want=2)
    assert [number for number, _ in more.grants] == [1, 2]
    assert bench.exchange(pilot, ack=1).grants == more.grants[1:]
    assert bench.exchange(pilot, ack=2).grants == []


def test_a_grant_sent_again_leaves_out_what_has_ended(bench: Bench) -> None:
    bag = bench.submit(shape(2))
    pilot = bench.pilot(2)
    (a, _), (b, _) = bench.take(pilot, ack=0)
    bench.step(e.Cancel(0, bag, [0]))
    answer = bench.exchange(pilot, ack=0)
    assert granted(answer) == [(b, 1)] and answer.cancel == [a]


def test_waiting_poll_brings_what_another_request_of_the_pilot_was_granted(bench: Bench) -> None:
    """The answer to the poll may arrive before the other one."""
    pilot = bench.pilot(2)
    assert bench.exchange(pilot, ack=0, want=2, wait=9_000) is None
    bench.step(
        e.Submit(0, "ann", "b", "", b"", [shape(3, expect=10_000)], False, "fcfs", False),
        e.Exchange(0, pilot, 1, 99, want=1),
    )
    brief, parked = answers(bench.effects, pilot)
    assert [number for number, _ in brief.grants] == [1]
    assert [number for number, _ in parked.grants] == [1, 2]


def test_poll_without_a_fitting_task_is_answered_with_no_grant(bench: Bench) -> None:
    bench.submit(shape(1, cores=8))
    pilot = bench.pilot(1)
    assert bench.exchange(pilot, want=1).grants == []
    assert bench.exchange(pilot, want=1, wait=5_000) is None
    assert [answer.grants for answer in answers(bench.wait(5_000), pilot)] == [[]]


def test_poll_never_waits_longer_than_the_server_allows(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.exchange(pilot, want=1, wait=10_000_000)
    assert len(answers(bench.wait(20_000), pilot)) == 1


def test_a_poll_may_wait_for_as_long_again_from_when_its_pilot_was_heard(bench: Bench) -> None:
    """Another request of the pilot renews its lease, so its poll need not be answered with nothing."""
    pilot = bench.pilot()
    bench.exchange(pilot, want=1, wait=9_000)
    assert not answers(bench.wait(8_000), pilot)
    bench.exchange(pilot)
    assert not answers(bench.wait(8_900), pilot)
    assert len(answers(bench.wait(100), pilot)) == 1
    assert not answers(bench.wait(60_000), pilot)


def test_polls_whose_time_is_up_together_are_answered_in_one_step(bench: Bench) -> None:
    pilots = [bench.pilot() for _ in range(40)]
    for pilot in pilots:
        bench.exchange(pilot, want=1, wait=20_000)
        bench.now += 1
    steps = 0
    while any(bench.core.state.pilots[pilot].waiting_request for pilot in pilots):
        assert bench.wake_at is not None
        bench.now = bench.wake_at
        steps += any(isinstance(effect, x.ExchangeReply) for effect in bench.step())
    assert steps <= 2


def test_failed_task_goes_to_another_waiting_pilot_first(bench: Bench) -> None:
    bench.submit(shape(1))
    one, other = bench.pilot(), bench.pilot()
    ((attempt, _),) = bench.take(one)
    assert bench.exchange(other, want=1, wait=9_000) is None
    assert bench.exchange(one, want=1, reports=[e.Report(attempt, "failed", "exit")]).grants == []
    ((attempt, _),) = granted(answers(bench.effects, other)[0])
    assert bench.exchange(other, want=1, reports=[e.Report(attempt, "failed", "exit")]).grants


def test_a_newer_poll_replaces_an_older_one(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.exchange(pilot, want=1, wait=9_000)
    bench.exchange(pilot, want=1, wait=9_000)
    assert [answer.grants for answer in answers(bench.effects, pilot)] == [[]]
    bench.submit()
    assert len(answers(bench.effects, pilot)) == 1


def test_request_of_a_closed_connection_is_not_answered(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.exchange(pilot, want=1, wait=9_000)
    bench.step(e.DropRequest(0, pilot, bench.key))
    bag = bench.submit()
    assert answers(bench.effects, pilot) == [] and bench.task(bag) == "ready"


def test_a_drained_pilot_finishes_and_gets_nothing(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(3)), bench.pilot()
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, wait=9_000)
    bench.step(e.Drain(0, pilot))
    (told,) = answers(bench.effects, pilot)
    assert told.stop == "drain"
    answer = bench.exchange(pilot, want=3, reports=[e.Report(a), e.Report(b, "returned", "stop")])
    assert answer.grants == [] and bench.tasks(bag) == "srr"


def test_an_unknown_pilot_must_enrol(bench: Bench) -> None:
    assert bench.exchange(99).error == "unauthorised"
    assert bench.do(e.Enrol(0, "nowhere", "n", "h", "h", 1, 0, 0, 0, None, b"t")).error == "not-found"


def test_attempts_missing_from_a_census_are_lost_and_may_still_succeed(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot(2)
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, held=[b])
    assert bench.tasks(bag) == "ra"
    bench.report(pilot, a)  # the attempt travelled on the other connection
    assert bench.tasks(bag) == "sa"


def test_census_takes_back_no_unacknowledged_grant(bench: Bench) -> None:
    bag, pilot = bench.submit(), bench.pilot()
    bench.take(pilot, ack=0)
    bench.exchange(pilot, ack=0, held=[])
    assert bench.tasks(bag) == "a"


def test_attempt_of_a_lost_answer_takes_no_slot_of_its_pilot(bench: Bench) -> None:
    """The answer with the attempt was lost, its lease expired, and another host ran the task."""
    bag = bench.submit(shape(3, expect=60_000))
    deaf, other = bench.pilot(host="deaf"), bench.pilot(host="other")
    bench.exchange(deaf, want=1, ack=0)
    for _ in range(8):
        bench.wait(10_000)
        bench.exchange(other)
    [(attempt, task)] = bench.take(other, want=1)
    bench.wait(9_000)
    bench.report(other, attempt, wall=9_000)
    assert (task, bench.tasks(bag)) == (0, "srr")
    bench.exchange(deaf, ack=0, held=[])  # the pilot is back, and holds nothing
    census, given = False, []
    for _ in range(20):
        bench.wait(5_000)
        answer = bench.exchange(deaf, want=1, held=[] if census else None)
        census, given = answer.census, [*given, *granted(answer)]
        bench.exchange(other)
    assert given and bench.core.state.pilots[deaf].attempts_held == len(given)


def test_unknown_attempts_that_a_pilot_holds_are_cancelled(bench: Bench) -> None:
    pilot = bench.pilot()
    assert bench.exchange(pilot, held=[12345]).cancel == [12345]


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_a_superseded_epoch_may_report_but_gets_nothing(bench: Bench) -> None:
    bag, old = bench.submit(shape(3)), bench.pilot(nonce="n")
    (a, _), (_, _) = bench.take(old)
    bench.exchange(old, want=1, wait=9_000)
    new = bench.pilot(nonce="n")
    (told,) = answers(bench.effects, old)
    assert told.stop == "superseded" and bench.core.state.pilots[new].epoch == 2
    answer = bench.exchange(old, want=9, reports=[e.Report(a)])
    assert answer.grants == [] and bench.tasks(bag) == "sar"


def test_a_new_epoch_may_report_what_the_old_one_was_granted(bench: Bench) -> None:
    bag, old = bench.submit(shape(2)), bench.pilot(2, nonce="n")
    (a, _), (b, _) = bench.take(old)
    bench.exchange(old, started=[a, b])
    new = bench.pilot(2, nonce="n")
    answer = bench.exchange(new, ack=0, reports=[e.Report(a)], held=[b])
    assert answer.cancel == [] and bench.tasks(bag) == "sa"
    assert bench.core.state.attempts.pilot[bench.core.state.attempts.row(b)] == new
    assert (bench.core.state.pilots[old].attempts_held, bench.core.state.pilots[new].attempts_held) == (0, 1)
    bench.wait(GONE_SILENT)
    bench.exchange(new, held=[b])
    bench.report(new, b)
    assert bench.tasks(bag) == "ss"
    bench.restart()


def test_a_new_epoch_is_told_what_was_cancelled_meanwhile(bench: Bench) -> None:
    bag, old = bench.submit(), bench.pilot(nonce="n")
    (a, _), = bench.take(old)
    bench.step(e.Cancel(0, bag, None))
    new = bench.pilot(nonce="n")
    assert bench.exchange(new, ack=0, held=[a]).cancel == [a]
    bench.report(new, a, "cancelled", "cancel")
    assert bench.attempt(a) == "free"


def test_attempts_are_adopted_only_under_the_same_nonce(bench: Bench) -> None:
    bag, old = bench.submit(), bench.pilot(nonce="n")
    (a, _), = bench.take(old)
    twice = [bench.pilot(nonce="other") for _ in range(2)][1]
    bench.exchange(twice, ack=0, reports=[e.Report(a)], held=[a])
    assert bench.task(bag) == "active" and bench.attempt(a) == "granted"
    bench.pilot(nonce="n")
    bench.report(old, a)  # the old process, under its own token
    assert bench.task(bag) == "succeeded"


def test_old_epoch_does_not_adopt_from_a_new_one(bench: Bench) -> None:
    bag, old = bench.submit(), bench.pilot(nonce="n")
    new = bench.pilot(nonce="n")
    (a, _), = bench.take(new)
    bench.exchange(old, reports=[e.Report(a)], held=[a], started=[a])
    assert bench.task(bag) == "active"


def test_server_low_on_disk_grants_nothing(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot()
    (a, _), = bench.take(pilot, want=1)
    bench.step(e.DiskLow(0, True))
    answer = bench.exchange(pilot, want=1, reports=[e.Report(a)])
    assert answer.grants == [] and bench.tasks(bag) == "sr"


def test_waiting_pilot_is_granted_when_the_disk_has_room_again(bench: Bench) -> None:
    bench.step(e.DiskLow(0, True))
    bag, pilot = bench.submit(shape(1)), bench.pilot()
    assert bench.exchange(pilot, want=1, wait=10_000) is None
    bench.step(e.DiskLow(0, False))
    assert bench.tasks(bag) == "a"


def test_time_left_of_a_waiting_pilot_shrinks(bench: Bench) -> None:
    """A task that fitted the time left when the pilot's poll came may not fit any more."""
    pilot = bench.pilot(left=30_000)
    bench.exchange(pilot, want=1, wait=20_000, left=30_000)
    bench.wait(15_000)
    assert bench.tasks(bench.submit(shape(1, limit=20_000))) == "r"
    assert bench.tasks(bench.submit(shape(1, limit=10_000))) == "a"


def test_pilot_classes_are_forgotten_with_their_pilots(bench: Bench) -> None:
    for number in range(1, 20):
        pilot = bench.pilot(cores=number)
        bench.exchange(pilot, bye="stopped")
    assert len(bench.core.state.pilot_classes) == 19
    stays = bench.pilot(cores=7)
    bench.wait(86_400_001)
    state = bench.core.state
    assert list(state.pilots) == [stays] and len(state.pilot_classes) == len(state.shapes) == 1
    bench.submit(shape(8))
    assert len(bench.take(bench.pilot(cores=8))) == 8  # a later pilot has a class of its own
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))  # each pilot moves to another class
    assert len(state.pilot_classes) == 2 and all(pc.owners == ("ann", "bob") for pc in state.pilot_classes.values())
    bench.restart(bench.snapshot())
    assert len(bench.core.state.pilot_classes) == 2


@pytest.mark.parametrize("nonce", ["intent-²", "intent-" + "9" * 5_000, "intent-", "-1", "intent--1", "intent-٣"])
def test_pilot_may_enrol_with_any_text_as_its_nonce(bench: Bench, nonce: str) -> None:
    assert bench.pilot(nonce=nonce)


def test_pilot_in_trouble_is_granted_nothing_until_it_is_well(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot()
    answer = bench.exchange(pilot, want=1, trouble="its disk is full")
    assert answer.grants == [] and bench.tasks(bag) == "rr"
    assert bench.exchange(pilot, want=1, wait=10_000, trouble="its disk is full") is None
    bench.exchange(pilot, trouble="")
    assert "a" in bench.tasks(bag)
