"""One answer never holds a task twice, whatever it was dealt between."""

from __future__ import annotations

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e


def test_a_task_that_was_cancelled_and_asked_for_again_is_dealt_once(bench: Bench) -> None:
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    bag = bench.submit(shape(3), external=True)
    small, large = bench.pilot(1, host="small"), bench.pilot(2, host="large")
    [(attempt, task)] = bench.take(small, want=1)
    bench.report(small, attempt, "returned", "stop")
    bench.do(e.Cancel(0, bag, [task]))
    bench.do(e.Retry(0, bag, [task]))
    bench.submit(shape(1, cores=2), owner="bob")
    given = [task for _, task in bench.take(large)]
    assert len(given) == 2 and len(set(given)) == 2, given
