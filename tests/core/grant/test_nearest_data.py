"""Data-conscious selection: tasks go to the hosts of their data, and are withheld from others for a while (T9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.conftest import GONE_SILENT, answers, granted, shape
from tests.core.data_bench import DataBench, column, data
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.grant.draft import recipient_of
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.facts import DataSelection
from windfall.core.messages.lifecycle import SUCCEEDED

GAP = 5_000  # between two requests of a host


@pytest.fixture
def bench() -> DataBench:
    return DataBench()


def submit(bench: DataBench, **changes: Any) -> int:
    return bench.pipelines("data-conscious", data_selection=f.DataSelection(**changes))


def warm(bench: DataBench) -> tuple[int, int]:
    """Enrol hosts a and b and let each ask three times, so that the core knows how often they ask."""
    a, b = bench.host("a"), bench.host("b")
    for _ in range(3):
        bench.exchange(a, want=1), bench.exchange(b, want=1)
        bench.now += GAP
    return a, b


def run_first(bench: DataBench, a: int, b: int) -> None:
    (one,), (two,) = granted(bench.ask(a)), granted(bench.ask(b))
    assert (one[1], two[1]) == (0, 1)
    bench.now += GAP
    bag = bench.core.state.next_bag - 1
    bench.do(e.Pause(0, bag, True))  # the hosts ask, and get nothing yet
    bench.ask(a, reports=[e.Report(one[0])]), bench.ask(b, reports=[e.Report(two[0])])
    bench.do(e.Pause(0, bag, False))


def prepared(**changes: Any) -> tuple[DataBench, int, int, int]:
    """Return a bench whose hosts a and b ask every five seconds; task 2 reads data on a, task 3 data on b."""
    bench = DataBench(park=60_000)
    helper = bench.pipelines("data-conscious", data_selection=f.DataSelection())
    bench.do(e.Pause(0, helper, True))
    a, b = warm(bench)
    bag = submit(bench, **changes)
    run_first(bench, a, b)
    return bench, bag, a, b


def test_a_task_goes_where_its_data_lies() -> None:
    bench, _, a, b = prepared()
    answer = bench.ask(b)
    assert granted(answer)[0][1] == 3 and not answer.transfers
    assert granted(bench.ask(a))[0][1] == 2


def test_remote_task_is_withheld_while_the_host_of_its_data_is_expected() -> None:
    bench, bag, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    bench.submit(shape(priority=1))
    (other,) = granted(bench.ask(a))
    bench.now += 1_000
    c = bench.host("c")
    assert granted(bench.ask(c)) == []
    said = bench.explain(bag, 2)
    assert "withheld" in said and "host here a is expected to ask in 4.0 s" in said
    bench.report(a, other[0])
    assert granted(bench.ask(a))[0][1] == 2


def test_remote_task_is_granted_where_withholding_is_off() -> None:
    bench, _, a, b = prepared(withhold=False)
    assert granted(bench.ask(b))[0][1] == 3
    answer = bench.ask(bench.host("c"))
    assert granted(answer)[0][1] == 2 and answer.transfers[0].place == "host here a"


def test_remote_task_is_granted_where_the_penalty_of_a_transfer_is_small() -> None:
    """The transfer takes 1.36 s and the host of the data is expected in four seconds, so fetching is quicker."""
    bench, _, a, b = prepared(penalty=1.0)
    assert granted(bench.ask(b))[0][1] == 3
    bench.now += 1_000
    assert granted(bench.ask(bench.host("c")))[0][1] == 2


def test_withheld_task_is_granted_when_the_expected_pilot_is_gone() -> None:
    bench, _, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    c = bench.host("c")
    assert bench.exchange(c, want=1, wait=20_000) is None
    (answer,) = answers(bench.step(e.Gone(0, a)), c)
    assert granted(answer)[0][1] == 2


def test_withheld_task_is_granted_when_the_expected_pilot_is_silent() -> None:
    bench, _, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    bench.now += GONE_SILENT - 2_000
    c = bench.host("c")
    assert bench.exchange(c, want=1, wait=20_000) is None
    assert [task for answer in answers(bench.wait(5_000), c) for _, task in granted(answer)] == [2]


def test_host_whose_pilot_left_is_expected_back_for_20_seconds() -> None:
    bench, _, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    bench.exchange(a, bye="idle")
    c = bench.host("c")
    assert bench.exchange(c, want=1, wait=60_000) is None
    assert bench.wait(19_000) == []
    assert [task for answer in answers(bench.wait(2_000), c) for _, task in granted(answer)] == [2]


def test_withheld_task_is_granted_elsewhere_once_it_has_waited_long_enough() -> None:
    """25 × 1.36 s of transfer are 3,400 units; each latency in the queue makes up for one."""
    bench, bag, a, b = prepared(latency=2, unit=10)
    assert granted(bench.ask(b))[0][1] == 3
    c = bench.host("c")
    assert bench.exchange(c, want=1, wait=20_000) is None
    since = bench.core.state.bags[bag].data.columns.since[2]  # type: ignore[union-attr]
    seen = answers(bench.wait(20_000), c)
    assert [task for answer in seen for _, task in granted(answer)] == [2]
    at = bench.core.state.attempts.granted[bench.core.state.attempts.row(granted(seen[0])[0][0])]
    assert at - since == 2 * 25 * 1_360 // 10


def test_withheld_task_does_not_wake_the_core_in_a_loop() -> None:
    bench, _, a, b = prepared(latency=20, unit=10)
    assert granted(bench.ask(b))[0][1] == 3
    assert bench.exchange(bench.host("c"), want=1, wait=20_000) is None
    steps = 0
    end = bench.now + 15_000
    while bench.wake_at is not None and bench.wake_at <= end:
        bench.now = max(bench.now, bench.wake_at)
        bench.step()
        steps += 1
    assert steps < 10


def test_pilot_is_granted_a_task_that_becomes_ready_beside_a_withheld_one() -> None:
    """The class stays on the ready list all the time, because another of its tasks is withheld."""
    bench, _, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    bag = submit(bench)
    bench.do(e.Pause(0, 2, True))
    c = bench.host("c")
    ((attempt, task),) = granted(bench.ask(c))
    assert task == 0
    bench.now += 100
    assert bench.exchange(c, reports=[e.Report(attempt)]) is not None
    assert bench.core.state.bags[bag].counts[SUCCEEDED] == 1
    assert sorted(task for _, task in granted(bench.ask(c))) in ([1], [2])


def test_waiting_pilot_gets_a_task_whose_data_lies_on_its_host_before_others() -> None:
    bench, _, a, b = prepared()
    bench.do(e.Pause(0, 2, True))
    c = bench.host("c")
    for pilot in (c, a, b):
        assert bench.exchange(pilot, want=1, wait=20_000) is None
    bench.do(e.Pause(0, 2, False))
    assert [granted(x)[0][1] for x in answers(bench.effects, a) + answers(bench.effects, b)] == [2, 3]
    assert not answers(bench.effects, c)


def test_tasks_of_other_bags_are_granted_while_one_is_withheld() -> None:
    bench, _, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    other = bench.submit()
    answer = bench.ask(bench.host("c"))
    assert answer.grants[0][1][0].bag == other


def test_grant_considers_only_as_many_candidates_as_the_bag_says() -> None:
    bench, _, a, b = prepared(candidates=1)
    assert granted(bench.ask(b)) == []  # task 2 is first in the queue, and its data is not on b
    assert granted(bench.ask(a))[0][1] == 2
    assert granted(bench.ask(b))[0][1] == 3


def test_pilot_with_several_slots_is_granted_several_tasks() -> None:
    bench, _, a, b = prepared(withhold=False)
    wide = bench.host("a", cores=4)
    answer = bench.exchange(wide, want=8)
    assert answer is not None and [task for _, task in granted(answer)] == [2, 3]
    assert [move.task for move in answer.transfers] == [1]


def test_pilot_at_the_site_of_another_owner_is_granted_nothing() -> None:
    bench, _, a, b = prepared()
    bench.do(e.AddSite(0, "bobs", "bob", "local"))
    bench.do(e.KnowLink(0, "here", "bobs", 0, 1 << 40))
    stranger = bench.host("z", "bobs")
    assert bench.exchange(stranger, want=1, wait=20_000) is None
    assert granted(bench.ask(b))[0][1] == 3


def test_restarted_core_expects_no_host() -> None:
    bench, bag, a, b = prepared()
    assert granted(bench.ask(b))[0][1] == 3
    c = bench.host("c")
    assert granted(bench.ask(c)) == []
    bench.restart(bench.snapshot())
    assert granted(bench.ask(c))[0][1] == 2


def test_bag_without_data_is_granted_in_queue_order(bench: DataBench) -> None:
    event = e.Submit(0, "ann", "bag", "", b"", [f.TargetShape("main", 5, [], 1, 0, 0, 0, 0, 9, 1, False, 3, 0, 0)],
                     False, "data-conscious", False, data_selection=f.DataSelection())
    bench.do(event)
    a, b = bench.host("a"), bench.host("b")
    taken = []
    for pilot in (a, b, b, a, b):
        ((attempt, task),) = granted(bench.ask(pilot))
        taken.append(task)
        bench.now += 300
        bench.report(pilot, attempt)
    assert taken == [0, 1, 2, 3, 4]


def test_task_with_a_large_input_is_withheld_longer() -> None:
    small = data(leaves=column("<i8", 1, 1, 0, 0))
    big = data(leaves=column("<i8", 1 << 33, 1 << 33, 0, 0))
    waits = []
    for shape_ in (small, big):
        bench = DataBench()
        bench.do(e.KnowLink(0, "*", "*", 10, 500_000))
        bench.pipelines("data-conscious", data_selection=f.DataSelection())
        a, b = warm_up_on(bench)
        bench.pipelines("data-conscious", shape_, data_selection=f.DataSelection())
        run_first(bench, a, b)
        assert granted(bench.ask(b))[0][1] == 3
        waits.append(granted(bench.ask(bench.host("c"))))
    assert len(waits[0]) == 1 and waits[1] == []


def warm_up_on(bench: DataBench) -> tuple[int, int]:
    bench.do(e.Pause(0, 1, True))
    return warm(bench)


def test_batch_is_granted_whole_where_most_of_its_data_lies() -> None:
    """Submit batches of two first stages and of two second stages, which read what the first have left."""
    bench = DataBench()
    helper = bench.pipelines("data-conscious", data_selection=f.DataSelection())
    bench.do(e.Pause(0, helper, True))
    a, b = warm(bench)
    first, second = shape(4, expect=3_000, batch=2), shape(4, name="parse", after=[0], expect=600, batch=2)
    edges = np.array([(task, task + 4) for task in range(4)], dtype="<i4").tobytes()
    four, none = [80_000] * 4, [0] * 4
    shape_ = f.DataShape(leaves=column("<i8", *four, *none), leave_files=column("<i4", *[1] * 4, *none))
    bench.do(e.Submit(0, "ann", "bag", "", b"", [first, second], False, "data-conscious", False, edges, data=shape_,
                      data_selection=f.DataSelection()))
    for pilot in (a, b):
        held = granted(bench.ask(pilot))
        assert [task for _, task in held] == ([0, 1] if pilot == a else [2, 3])
        bench.now += GAP
        bench.exchange(pilot, reports=[e.Report(attempt) for attempt, _ in held])
    answer = bench.ask(b)
    assert (
        [task for _, task in granted(answer)] == [6, 7] and answer.grants[0][1][0].chain >= 0 and not answer.transfers
    )
    assert [task for _, task in granted(bench.ask(a))] == [4, 5]


def test_request_weighs_as_many_tasks_as_the_bag_has_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(tasks: int, candidates: int) -> int:
        bench = DataBench()
        bench.do(e.Submit(0, "ann", "bag", "", b"", [shape(tasks, expect=9)], False, "data-conscious", False,
                          data_selection=f.DataSelection(candidates=candidates)))
        host = bench.host("a")
        bench.counting = True
        assert granted(bench.ask(host))[0][1] == 0
        return bench.calls

    assert calls(5_000, 20) < calls(500, 20) + 20
    per_candidate = (calls(500, 40) - calls(500, 20)) / 20
    assert 1 <= per_candidate < calls(500, 20) / 20, "each candidate costs the same"


def test_arrivals_of_hosts_long_gone_are_forgotten() -> None:
    bench, _, a, b = prepared()
    bench.exchange(a, bye="stopped")
    assert ("here", "a") in bench.core.state.arrivals
    bench.wait(2 * 86_400_000)
    assert ("here", "a") not in bench.core.state.arrivals and ("here", "b") not in bench.core.state.arrivals


def test_outlook_leaves_out_the_host_that_asks() -> None:
    """Otherwise data on the host's own disk would seem to cost little later, and older tasks would go first."""
    bench, bag, a, _ = prepared()
    state = bench.core.state
    to = recipient_of(bench.core.turn, state.pilots[a], None)
    assert list(nearest_data.outlook(to, state.bags[bag]).places) == ["host here b"]


def test_arrivals_of_a_host_are_forgotten_with_its_pilot(bench: DataBench) -> None:
    bench.do(
        e.Submit(
            0, "ann", "bag", "", b"spec", [shape(9)], False, "data-conscious", False, data_selection=DataSelection()
        )
    )
    pilot = bench.pilot()
    bench.take(pilot)
    bench.exchange(pilot, bye="idle")
    assert bench.core.state.arrivals
    bench.wait(2 * 86_400_000)
    assert not bench.core.state.arrivals
