"""Grants and their acknowledgement, parked polls, recalls, epochs."""

from __future__ import annotations

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


def test_a_parked_poll_is_sent_what_others_of_the_pilot_were_granted_meanwhile(bench: Bench) -> None:
    """Its answer may be the first one that arrives."""
    pilot = bench.pilot(2)
    assert bench.exchange(pilot, ack=0, want=2, wait=9_000) is None
    bench.step(
        e.Submit(0, "ann", "b", "", b"", [shape(3, expect=10_000)], False, "fcfs", False),
        e.Exchange(0, pilot, 1, 99, want=1),
    )
    brief, parked = answers(bench.effects, pilot)
    assert [number for number, _ in brief.grants] == [1]
    assert [number for number, _ in parked.grants] == [1, 2]


def test_nothing_for_you_yet_is_an_answer(bench: Bench) -> None:
    bench.submit(shape(1, cores=8))
    pilot = bench.pilot(1)
    assert bench.exchange(pilot, want=1).grants == []
    assert bench.exchange(pilot, want=1, wait=5_000) is None
    assert [answer.grants for answer in answers(bench.wait(5_000), pilot)] == [[]]


def test_a_poll_is_never_parked_longer_than_the_server_wants(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.exchange(pilot, want=1, wait=10_000_000)
    assert len(answers(bench.wait(20_000), pilot)) == 1


def test_a_poll_may_wait_for_as_long_again_from_when_its_pilot_was_heard(bench: Bench) -> None:
    """What is said beside it keeps the lease alive: no reason to answer the poll with nothing."""
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


def test_who_has_failed_a_task_is_the_last_to_try_it_again(bench: Bench) -> None:
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


def test_work_wakes_as_many_as_it_needs(bench: Bench) -> None:
    pilots = [bench.pilot() for _ in range(3)]
    for pilot in pilots:
        bench.exchange(pilot, want=4, wait=9_000)
    bench.submit(shape(2))
    woken = [effect.pilot for effect in bench.effects if isinstance(effect, x.ExchangeReply)]
    assert woken == pilots[:2]


def test_only_those_who_can_use_it_are_woken(bench: Bench) -> None:
    small, large = bench.pilot(1), bench.pilot(4)
    for pilot in (small, large):
        bench.exchange(pilot, want=4, wait=9_000)
    bench.submit(shape(1, cores=4))
    assert not answers(bench.effects, small) and answers(bench.effects, large)


def test_reports_feed_the_poll_that_is_parked_beside_them(bench: Bench) -> None:
    """A full pilot has parked; what it reports on its other connection makes room."""
    bag, pilot = bench.submit(shape(9, expect=10_000)), bench.pilot()
    (first, _), = bench.take(pilot)
    assert bench.exchange(pilot, want=9, wait=9_000) is None
    answer = bench.report(pilot, first, wall=10_000)
    assert len(granted(answer)) == 1 and bench.tasks(bag)[:3] == "sar"


def test_who_is_full_again_does_not_stand_in_line(bench: Bench) -> None:
    """Or every task that becomes ready would be offered to all that are busy."""
    bench.submit(shape(9, expect=10_000))
    pilot = bench.pilot()
    line = bench.core.state.pilot_classes[bench.core.state.pilots[pilot].cls].waiting
    (first, _), = bench.take(pilot)
    bench.exchange(pilot, want=9, wait=9_000)
    assert not line
    assert len(granted(bench.report(pilot, first, wall=10_000))) == 1
    assert bench.core.state.pilots[pilot].waiting_request is not None and not line


def test_a_class_that_is_used_up_unblocks_those_behind_it(bench: Bench) -> None:
    """Half a pilot waits behind a task that needs a whole one; when another pilot takes that, it may go on."""
    half, other = bench.pilot(2), bench.pilot(2)
    bench.submit(shape(1, expect=10_000))
    bench.take(half, want=1)
    large, small = bench.submit(shape(1, cores=2, expect=10_000)), bench.submit(shape(1, expect=10_000))
    assert bench.exchange(half, want=1, wait=9_000) is None
    bench.take(other, want=1)
    assert (bench.task(large), bench.task(small)) == ("active", "active")
    assert len(answers(bench.effects, half)) == 1


def test_a_closed_connection_is_not_answered(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.exchange(pilot, want=1, wait=9_000)
    bench.step(e.DropRequest(0, pilot, bench.key))
    bag = bench.submit()
    assert answers(bench.effects, pilot) == [] and bench.task(bag) == "ready"


def test_prefetched_tasks_are_recalled_for_an_idle_pilot(bench: Bench) -> None:
    bag, rich, poor = bench.submit(shape(5, expect=100)), bench.pilot(), bench.pilot()
    held = bench.take(rich)
    assert len(held) == 5
    bench.exchange(rich, started=[held[0][0]], wait=9_000)
    assert bench.exchange(poor, want=3, wait=9_000) is None
    (told,) = answers(bench.effects, rich)
    assert told.recall and set(told.recall) <= {attempt for attempt, _ in held[1:]}
    bench.exchange(rich, reports=[e.Report(attempt, "returned", "recall") for attempt in told.recall])
    (fed,) = answers(bench.effects, poor)
    assert granted(fed) and bench.tasks(bag).count("a") + bench.tasks(bag).count("r") == 5


def test_a_pilot_whose_poll_is_parked_becomes_idle_by_a_report_and_something_is_recalled_for_it(bench: Bench) -> None:
    bench.submit(shape(3, expect=100))
    (mine, _), *_ = bench.take(poor := bench.pilot(), want=1)
    held = bench.take(rich := bench.pilot())
    bench.exchange(rich, started=[held[0][0]], wait=9_000)
    assert bench.exchange(poor, want=3, wait=9_000) is None and not answers(bench.effects, rich)
    bench.report(poor, mine)
    (told,) = answers(bench.effects, rich)
    assert told.recall == [held[1][0]]


def test_what_was_recalled_does_not_go_back_to_whom_it_was_recalled_from(bench: Bench) -> None:
    bag, rich, poor = bench.submit(shape(2, expect=100)), bench.pilot(), bench.pilot()
    (runs, _), (spare, _) = bench.take(rich)
    bench.exchange(rich, started=[runs], wait=9_000)
    bench.exchange(poor, want=3, wait=9_000)
    bench.exchange(rich, want=3, reports=[e.Report(spare, "returned", "recall")])
    (fed,) = answers(bench.effects, poor)
    assert len(granted(fed)) == 1 and bench.tasks(bag) == "aa"


def test_a_recall_that_comes_too_late_is_forgotten(bench: Bench) -> None:
    bench.submit(shape(2, expect=100))
    rich, poor = bench.pilot(), bench.pilot()
    (a, _), (b, _) = bench.take(rich)
    bench.exchange(poor, want=3, wait=9_000)
    assert bench.exchange(rich).recall == [b]
    assert bench.exchange(rich, started=[a, b]).recall == []


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


def test_what_the_pilot_does_not_hold_goes_back(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot(2)
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, held=[b])
    assert bench.tasks(bag) == "ra"
    bench.report(pilot, a)  # it travelled on the other connection
    assert bench.tasks(bag) == "sa"


def test_a_census_does_not_take_back_what_it_cannot_know_of(bench: Bench) -> None:
    bag, pilot = bench.submit(), bench.pilot()
    bench.take(pilot, ack=0)
    bench.exchange(pilot, ack=0, held=[])
    assert bench.tasks(bag) == "a"


def test_strays_are_to_be_dropped(bench: Bench) -> None:
    pilot = bench.pilot()
    assert bench.exchange(pilot, held=[12345]).cancel == [12345]


# --- epochs ------------------------------------------------------------------------------------------------------


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


def test_only_the_same_lineage_adopts(bench: Bench) -> None:
    bag, old = bench.submit(), bench.pilot(nonce="n")
    (a, _), = bench.take(old)
    twice = [bench.pilot(nonce="other") for _ in range(2)][1]
    bench.exchange(twice, ack=0, reports=[e.Report(a)], held=[a])
    assert bench.task(bag) == "active" and bench.attempt(a) == "granted"
    bench.pilot(nonce="n")
    bench.report(old, a)  # the old process, under its own token
    assert bench.task(bag) == "succeeded"


def test_an_old_epoch_does_not_take_from_a_new_one(bench: Bench) -> None:
    bag, old = bench.submit(), bench.pilot(nonce="n")
    new = bench.pilot(nonce="n")
    (a, _), = bench.take(new)
    bench.exchange(old, reports=[e.Report(a)], held=[a], started=[a])
    assert bench.task(bag) == "active"


def test_low_on_disk_nothing_new_is_granted(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot()
    (a, _), = bench.take(pilot, want=1)
    bench.step(e.DiskLow(0, True))
    answer = bench.exchange(pilot, want=1, reports=[e.Report(a)])
    assert answer.grants == [] and bench.tasks(bag) == "sr"


def test_with_room_again_who_waits_is_granted(bench: Bench) -> None:
    bench.step(e.DiskLow(0, True))
    bag, pilot = bench.submit(shape(1)), bench.pilot()
    assert bench.exchange(pilot, want=1, wait=10_000) is None
    bench.step(e.DiskLow(0, False))
    assert bench.tasks(bag) == "a"


def test_a_parked_pilot_grows_older(bench: Bench) -> None:
    """What would have fitted its remaining time when it parked may not fit any more."""
    pilot = bench.pilot(left=30_000)
    bench.exchange(pilot, want=1, wait=20_000, left=30_000)
    bench.wait(15_000)
    assert bench.tasks(bench.submit(shape(1, limit=20_000))) == "r"
    assert bench.tasks(bench.submit(shape(1, limit=10_000))) == "a"


def test_classes_of_pilots_that_were_forgotten_are_forgotten(bench: Bench) -> None:
    for number in range(1, 20):
        pilot = bench.pilot(cores=number)
        bench.exchange(pilot, bye="stopped")
    assert len(bench.core.state.pilot_classes) == 19
    stays = bench.pilot(cores=7)
    bench.wait(86_400_001)
    state = bench.core.state
    assert list(state.pilots) == [stays] and len(state.pilot_classes) == len(state.shapes) == 1
    bench.submit(shape(8))
    assert len(bench.take(bench.pilot(cores=8))) == 8  # one that comes later has a class of its own
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))  # each moves to another
    assert len(state.pilot_classes) == 2 and all(pc.owners == ("ann", "bob") for pc in state.pilot_classes.values())
    bench.restart(bench.snapshot())
    assert len(bench.core.state.pilot_classes) == 2
