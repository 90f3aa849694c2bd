"""The pure machine of a tender: which commands orders come to, once each; and what is told until it is heard."""

from __future__ import annotations

from typing import Any

from windfall.core.messages.effects import SiteOrders
from windfall.core.messages.facts import Shape
from windfall.provision.order_book import Cancel, ListJobs, News, OrderBook, Submit, follows

ONE, FOUR = Shape(1), Shape(4)
NOTHING = News([], [], [], [], [])


class Bench:
    def __init__(self, **more: int) -> None:
        self.book = OrderBook(**more)
        self.number = 0

    def order(self, *start: Any, stop: Any = (), news: News = NOTHING, look: bool = False,
              number: int = 0) -> list[Any]:
        self.number = number or self.number + 1
        orders = SiteOrders(0, "c", self.number, self.number * 1000, list(start), list(stop), look)
        return self.book.answered(orders, news)


def _starts(*numbers: int, shape: Shape = ONE) -> list[tuple[str, Shape]]:
    return [(f"m-{number}", shape) for number in numbers]


def test_nonces_that_follow_each_other_are_one_submission() -> None:
    bench = Bench(most=100)
    made = bench.order(*_starts(8, 9, 10, 11), *_starts(12, shape=FOUR), *_starts(13, 15))
    assert made == [Submit(ONE, ("m-8", "m-9", "m-10", "m-11")), Submit(FOUR, ("m-12",)), Submit(ONE, ("m-13",)),
                    Submit(ONE, ("m-15",))]


def test_commands_hold_no_more_pilots_than_the_site_takes_at_once() -> None:
    assert [len(each.nonces) for each in Bench(most=3).order(*_starts(*range(1, 9)))] == [3, 3, 2]
    assert [len(each.jobs) for each in Bench(many=2).order(stop=[("m-1", "a"), ("m-2", "b"), ("m-3", "c")])] == [2, 1]


def test_nonce_follows_only_the_next_lower_number_of_its_mark() -> None:
    assert follows("m-9", "m-10") and not follows("m-9", "m-11") and not follows("m-9", "n-10")
    assert not follows("m-x", "m-y") and not follows("m-1", "m-1")


def test_an_order_is_carried_out_once_however_often_it_is_heard() -> None:
    bench = Bench(most=9)
    assert bench.order(*_starts(1, 2)) and not bench.order(*_starts(1, 2))
    bench.book.accepted({"m-1": "7_1", "m-2": "7_2"})
    assert not bench.order(*_starts(1, 2))
    assert bench.book.news().accepted == [("m-1", "7_1"), ("m-2", "7_2")], "said again, as it was not answered"


def test_refused_start_is_not_repeated_before_the_core_knows() -> None:
    bench = Bench()
    bench.order(*_starts(1))
    bench.book.refused(["m-1"], "full")
    assert not bench.order(*_starts(1)), "ordered before our word was heard"
    news = bench.book.news()
    assert news.refused == [("m-1", "full")]
    assert not bench.order(news=news) and bench.book.news() == NOTHING


def test_an_answer_that_was_overtaken_starts_nothing_again() -> None:
    bench = Bench()
    bench.order(*_starts(1), number=5)
    bench.book.accepted({"m-1": "7"})
    bench.order(news=bench.book.news(), number=7)
    assert bench.book.name("m-1") == "", "forgotten: the core has heard it"
    assert not bench.order(*_starts(1), number=6)
    assert bench.order(*_starts(2), number=8) == [Submit(ONE, ("m-2",))]


def test_a_stop_waits_for_the_submission_that_is_under_way() -> None:
    bench = Bench(most=9, many=9)
    bench.order(*_starts(1, 2, 3))
    assert not bench.order(stop=[("m-1", ""), ("m-2", "")])
    assert bench.book.accepted({f"m-{n}": f"7_{n}" for n in (1, 2, 3)}) == [Cancel((("m-1", ""), ("m-2", "")))]
    assert bench.book.name("m-1") == "7_1"


def test_stopped_start_is_left_out_of_its_submission() -> None:
    bench = Bench(most=9)
    (submit,) = bench.order(*_starts(1, 2, 3, 4))
    assert bench.book.still_wanted(submit) == [submit]
    assert not bench.order(stop=[("m-2", "")])
    assert bench.book.still_wanted(submit) == [Submit(ONE, ("m-1",)), Submit(ONE, ("m-3", "m-4"))]
    assert bench.book.news().stopped == [("m-2", "")]
    assert not bench.order(*_starts(1, 3, 4), news=bench.book.news())


def test_a_stop_that_did_not_work_can_be_ordered_again() -> None:
    bench = Bench(many=9)
    stop = [("m-1", "7"), ("m-2", "8")]
    (cancel,) = bench.order(stop=stop)
    assert not bench.order(stop=stop)
    bench.book.not_cancelled(cancel)
    assert bench.book.news().unstopped == stop
    assert bench.order(stop=stop, news=bench.book.news()) == [cancel]
    bench.book.cancelled(cancel)
    assert bench.book.news() == News([], [], stop, [], [])
    assert not bench.order(stop=stop), "told, and not heard yet"


def test_a_submission_without_an_answer_waits_for_a_listing() -> None:
    bench = Bench(most=9, many=9)
    (submit,) = bench.order(*_starts(1, 2, 3))
    bench.book.lost(submit)
    assert not bench.order(*_starts(1, 2, 3), stop=[("m-2", "")]), "neither again, nor stopped yet"
    assert bench.book.news() == NOTHING and bench.book.unsure
    assert bench.book.resolve({"m-2": "9_2", "x-1": "1"}, "not there") == [Cancel((("m-2", ""),))]
    news = bench.book.news()
    assert news.accepted == [("m-2", "9_2")] and news.refused == [("m-1", "not there"), ("m-3", "not there")]
    assert not bench.book.unsure


def test_listing_is_not_ordered_while_another_runs() -> None:
    bench = Bench()
    assert bench.order(look=True) == [ListJobs(1000)] and not bench.order(look=True)
    bench.book.listing_ended()
    assert bench.order(look=True) == [ListJobs(3000)]
