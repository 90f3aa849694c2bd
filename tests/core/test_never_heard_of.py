"""An attempt that its pilot never heard of."""

from __future__ import annotations

from tests.core.conftest import Bench, granted, shape


def test_what_a_pilot_never_got_takes_no_place_there(bench: Bench) -> None:
    """The answer that granted it was lost, its lease ran out, another host did the task."""
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
    bench.exchange(deaf, ack=0, held=[])  # it is back, and holds nothing
    census, given = False, []
    for _ in range(20):
        bench.wait(5_000)
        answer = bench.exchange(deaf, want=1, held=[] if census else None)
        census, given = answer.census, [*given, *granted(answer)]
        bench.exchange(other)
    assert given and bench.core.state.pilots[deaf].attempts_held == len(given)
