"""Copies: what lies where, whence it is fetched, and what happens when it is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.conftest import GONE_SILENT, Bench, granted, shape
from windfall.core.messages import effects as x, events as e, facts as f

WAN, LAN = (1_200, 500_000), (10, 100_000_000)
EDGES = np.array([(0, 2), (1, 3)], dtype="<i4").tobytes()  # two pipelines of two stages


def column(kind: str, *values: int) -> bytes:
    return np.array(values, dtype=kind).tobytes()


def data(**changes: Any) -> f.DataShape:
    """Both first stages read 1 kB from outside and leave 80 kB."""
    usual = {
        "reads": column("<i8", 1_000, 1_000, 0, 0), "read_files": column("<i4", 1, 1, 0, 0),
        "leaves": column("<i8", 80_000, 80_000, 0, 0), "leave_files": column("<i4", 1, 1, 0, 0),
    }
    return f.DataShape(**{**usual, **changes})


class DataBench(Bench):
    def __init__(self, **config: Any) -> None:
        super().__init__(prefetch=0, **config)
        self.do(e.KnowLink(0, "*", "*", *WAN))

    def host(self, name: str, site: str = "here", cores: int = 1) -> int:
        event = e.Enrol(0, site, f"n{self.core.state.next_pilot}", name, name, cores, 4 << 30, 0, 1 << 40, None,
                        b"token %d" % self.core.state.next_pilot)
        return int(self.do(event).pilot)

    def pipelines(self, select: str = "fcfs", shape_: f.DataShape | None = None, **more: Any) -> int:
        event = e.Submit(0, "ann", "bag", "", b"spec", [shape(4, expect=3_000)], False, select, False, EDGES,
                         data=shape_ or data(), data_selection=more.get("data_selection"))
        return int(self.do(event).value)

    def ask(self, pilot: int, **fields: Any) -> x.ExchangeReply:
        answer = self.exchange(pilot, want=1, **fields)
        assert isinstance(answer, x.ExchangeReply)
        return answer

    def places(self, bag: int, task: int) -> list[str]:
        held = self.core.state.bags[bag].data
        assert held is not None
        return [self.core.state.place_names[number] for number in held.places(task)]

    def run(self, pilot: int, **report: Any) -> int:
        """Take one task and bring it to its end."""
        ((attempt, task),) = granted(self.ask(pilot))
        self.report(pilot, attempt, **report)
        return task


@pytest.fixture
def bench() -> DataBench:
    return DataBench()


def moves(answer: x.ExchangeReply) -> list[tuple[int, str, int]]:
    return [(move.task, move.place, move.size) for move in answer.transfers]


def test_input_from_outside_comes_from_home(bench: DataBench) -> None:
    bench.pipelines()
    assert moves(bench.ask(bench.host("a"))) == [(-1, "home", 1_000)]


def test_what_was_staged_is_not_fetched(bench: DataBench) -> None:
    bench.pipelines(shape_=data(staged=["here"]))
    assert moves(bench.ask(bench.host("a"))) == []


def test_it_comes_from_the_nearest_place_where_it_was_staged(bench: DataBench) -> None:
    for name in ("far", "near"):
        bench.do(e.AddSite(0, name, "ann", "local"))
    bench.do(e.KnowLink(0, "near", "here", *LAN))
    bench.pipelines(shape_=data(staged=["far", "near"]))
    assert moves(bench.ask(bench.host("a"))) == [(-1, "site near", 1_000)]


def test_a_success_leaves_a_copy_where_it_ran(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    assert (bench.run(a), bench.run(b)) == (0, 1)
    assert bench.places(bag, 0) == ["host here a"] and bench.places(bag, 1) == ["host here b"]
    assert moves(bench.ask(b)) == [(0, "host here a", 80_000)]  # fcfs does not look where it lies
    assert moves(bench.ask(a)) == [(1, "host here b", 80_000)]


def test_hosts_of_a_site_may_share_a_disk(bench: DataBench) -> None:
    bench.do(e.AddSite(0, "cluster", "ann", "local", disk=True))
    bag, a, b = bench.pipelines(), bench.host("a", "cluster"), bench.host("b", "cluster")
    bench.run(a), bench.run(b)
    assert bench.places(bag, 0) == ["site cluster"]
    assert moves(bench.ask(b)) == []


def test_the_size_that_is_reported_stands(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a, left=(5_000, 2))
    bench.run(b)
    (move,) = bench.ask(b).transfers
    assert (move.task, move.size, move.files) == (0, 5_000, 2)
    assert bench.core.state.bags[bag].data is not None


@pytest.mark.parametrize("left", [(-1, 1), (1 << 61, 1), (5, 1 << 31), (5, -1)])
def test_a_size_that_cannot_be_is_not_believed(bench: DataBench, left: tuple[int, int]) -> None:
    bench.pipelines()
    a, b = bench.host("a"), bench.host("b")
    bench.run(a, left=left), bench.run(b)
    assert moves(bench.ask(b)) == [(0, "host here a", 80_000)]


def test_transfers_are_counted_until_the_attempt_ends(bench: DataBench) -> None:
    bag, a = bench.pipelines(), bench.host("a")
    ((attempt, _),) = granted(bench.ask(a))
    assert bench.core.state.readers_of == {"home": 1} and attempt in bench.core.state.transfers_of
    bench.report(a, attempt, "failed", "exit", exit=1)
    assert not bench.core.state.readers_of and not bench.core.state.transfers_of
    assert bench.task(bag) == "ready"


def test_a_grant_that_is_sent_again_says_again_what_to_fetch(bench: DataBench) -> None:
    bench.pipelines()
    a = bench.host("a")
    first = bench.ask(a)
    assert moves(bench.ask(a, ack=0)) == moves(first) != []


def test_what_was_fetched_and_kept_is_a_further_copy(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(shape_=data(keeps=True)), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    assert bench.run(b) == 2
    assert bench.places(bag, 0) == ["host here a", "host here b"]


def test_output_may_come_home(bench: DataBench) -> None:
    bag, a = bench.pipelines(shape_=data(stays=False)), bench.host("a")
    bench.run(a)
    assert bench.places(bag, 0) == ["home"]


def test_the_least_read_of_equal_copies_is_taken(bench: DataBench) -> None:
    """Three tasks read what task 0 left; the first of them has kept what it fetched."""
    edges = np.array([(0, 1), (0, 2), (0, 3)], dtype="<i4").tobytes()
    event = e.Submit(0, "ann", "bag", "", b"", [shape(4, expect=3_000)], False, "fcfs", False, edges,
                     data=data(read_files=b"", keeps=True))
    bag = int(bench.do(event).value)
    bench.run(bench.host("a")), bench.run(bench.host("b"))
    assert bench.places(bag, 0) == ["host here a", "host here b"]
    assert moves(bench.ask(bench.host("c"))) == [(0, "host here a", 80_000)]
    assert moves(bench.ask(bench.host("d"))) == [(0, "host here b", 80_000)]


# --- losses ----------------------------------------------------------------------------------------------------------


def test_what_is_lost_with_its_host_is_made_again(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "rswr" and bench.places(bag, 0) == []
    assert bench.run(b) == 0
    assert bench.tasks(bag) == "ssrr" and bench.places(bag, 0) == ["host here b"]


def test_what_nobody_needs_is_not_made_again(bench: DataBench) -> None:
    bag, a = bench.pipelines(), bench.host("a")
    for _ in range(4):
        bench.run(a)
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "ssss"


def test_a_second_copy_saves_the_work(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(shape_=data(keeps=True)), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, task),) = granted(bench.ask(b))
    held = bench.core.state.bags[bag].data
    assert held is not None and task == 2
    held.add(0, bench.core.state.places["host here b"])
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.task(bag, 0) == "succeeded" and bench.places(bag, 0) == ["host here b"]


def test_a_site_takes_all_its_hosts_with_it(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    bench.do(e.LosePlace(0, "here"))
    assert bench.tasks(bag) == "rrww"


def test_who_cannot_fetch_proves_that_the_copy_is_gone(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, task),) = granted(bench.ask(b))
    bench.report(b, attempt, "returned", "input")
    assert task == 2 and bench.tasks(bag) == "rswr"
    assert [bench.run(b), bench.run(b), bench.run(b)] == [0, 2, 3]
    assert bench.tasks(bag) == "ssss"


def test_what_runs_already_goes_on(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, _),) = granted(bench.ask(b))
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "rsar"
    bench.report(b, attempt)
    assert bench.task(bag, 2) == "succeeded"


def test_an_attempt_that_ends_badly_waits_for_what_it_reads(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, _),) = granted(bench.ask(b))
    bench.do(e.LosePlace(0, "here", "a"))
    bench.report(b, attempt, "failed", "exit", exit=1)
    assert bench.tasks(bag) == "rswr"


def test_a_task_that_is_tried_again_has_its_input_made_again(bench: DataBench) -> None:
    """The copy went when nobody needed it any more; the user's retry needs it."""
    bag, a = bench.pipelines(), bench.host("a")
    bench.run(a), bench.run(a)
    bench.do(e.Cancel(0, bag, [2]))
    bench.run(a)
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "sscs"
    bench.do(e.Retry(0, bag, [2]))
    assert bench.tasks(bag) == "rsws"


def test_a_late_result_of_the_old_generation_changes_nothing(bench: DataBench) -> None:
    bag, a = bench.pipelines(), bench.host("a")
    ((attempt, _),) = granted(bench.ask(a))
    bench.now += GONE_SILENT
    bench.step()
    b = bench.host("b")
    assert bench.run(b) == 0
    bench.do(e.LosePlace(0, "here", "b"))
    assert bench.task(bag) == "ready"
    bench.report(a, attempt)
    assert bench.task(bag) == "ready"


def test_barriers_close_again(bench: DataBench) -> None:
    first, second = shape(2, expect=3_000), shape(2, name="parse", after=[0], expect=600)
    event = e.Submit(0, "ann", "bag", "", b"", [first, second], False, "fcfs", False, EDGES, data=data())
    bag = int(bench.do(event).value)
    a, b = bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    assert bench.core.state.bags[bag].targets[1].pending == 0
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.core.state.bags[bag].targets[1].pending == 1
    assert [bench.run(b) for _ in range(3)] == [0, 2, 3]
    assert bench.tasks(bag) == "ssss"


@pytest.mark.parametrize("how", ["journal", "snapshot"])
def test_all_of_it_survives(bench: DataBench, how: str) -> None:
    bag, a, b = bench.pipelines(shape_=data(keeps=True, staged=["there"])), bench.host("a"), bench.host("b")
    bench.run(a, left=(7, 3)), bench.run(b)
    ((attempt, _),) = granted(bench.ask(b))
    saved = bench.snapshot() if how == "snapshot" else None
    bench.report(b, attempt)
    bench.ask(a)
    bench.do(e.LosePlace(0, "here", "a"))
    bench.restart(saved)
    assert bench.places(bag, 0) == ["host here b"] and bench.core.state.readers_of == {"host here b": 1}


def test_a_bag_without_data_stores_nothing(bench: DataBench) -> None:
    bag = bench.submit(shape(3))
    bench.run(bench.host("a"))
    assert bench.core.state.bags[bag].data is None and len(bench.core.state.places) == 1


def test_columns_of_another_length_are_refused(bench: DataBench) -> None:
    event = e.Submit(0, "ann", "bag", "", b"", [shape(4)], False, "fcfs", False, EDGES,
                     data=data(reads=b"12345678"))
    assert "reads has 8 bytes for 4 tasks" in bench.do(event).message
    event.data = data(leave_files=column("<i4", 1, -1, 0, 0))
    assert "negative" in bench.do(event).message
    assert "bad-input" in bench.do(e.KnowLink(0, "a", "b", 5, 0)).error
