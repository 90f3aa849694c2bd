"""Bounds: no word of a pilot makes a column or a sum overflow."""

from __future__ import annotations

from tests.core.conftest import Bench, shape
from windfall.core.apply.hosts import MOST_COUNTED
from windfall.core.messages.bounds import MOST_CORE_MS, MOST_CORES, MOST_GRANTS, TEN_YEARS, add_core_ms
from windfall.core.messages.lifecycle import DRAINING


def test_ten_years_of_the_largest_installation_fit_63_bits() -> None:
    assert MOST_CORES * TEN_YEARS <= MOST_CORE_MS < 1 << 63
    assert add_core_ms(MOST_CORE_MS - 1, 1) == add_core_ms(MOST_CORE_MS, 1 << 70) == MOST_CORE_MS


def test_enrolment_bounds_the_cores_and_the_time_of_a_pilot(bench: Bench) -> None:
    pilot = bench.core.state.pilots[bench.pilot(1 << 40, nodes=1 << 40, left=1 << 60)]
    assert pilot.cores * pilot.nodes <= MOST_CORES and pilot.ends <= bench.now + TEN_YEARS
    pilot = bench.core.state.pilots[bench.pilot(128, nodes=10_000)]
    assert (pilot.cores, pilot.nodes) == (128, 10_000), "a large machine is taken at its word"


def test_counts_of_a_host_are_halved_before_their_columns_are_full(bench: Bench) -> None:
    bench.submit(shape(4))
    pilot = bench.pilot()
    row, hosts = bench.core.state.pilots[pilot].row, bench.core.state.hosts
    bench.report(pilot, bench.take(pilot, 1)[0][0], wall=5)
    hosts.attempts[row], hosts.failures[row], hosts.today[row] = MOST_COUNTED, MOST_COUNTED // 2, (1 << 32) - 1
    bench.report(pilot, bench.take(pilot, 1)[0][0], wall=5)
    assert (hosts.attempts[row], hosts.failures[row]) == (MOST_COUNTED // 2 + 1, MOST_COUNTED // 4)
    bench.report(pilot, bench.take(pilot, 1)[0][0], "failed", "exit", wall=5)
    assert hosts.failures[row] == MOST_COUNTED // 4 + 1


def test_pilot_whose_grants_can_be_numbered_no_more_is_drained(bench: Bench) -> None:
    bag = bench.submit(shape(3))
    pilot = bench.pilot()
    bench.core.state.pilots[pilot].granted = MOST_GRANTS - 1
    ((attempt, _),) = bench.take(pilot, 1)
    answer = bench.report(pilot, attempt, wall=5)
    assert answer.stop == "drain" and bench.core.state.pilots[pilot].state == DRAINING
    other = bench.pilot(2)
    assert len(bench.take(other, 2)) == 2, bench.explain(bag)
