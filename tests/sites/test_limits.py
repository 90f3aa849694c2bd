"""Several of a kind side by side, and what a site says when it has enough: back-pressure, told from other refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sites import systems
from tests.sites.systems import System
from tests.testbed.base import require
from windfall.errors import SiteRefused, SiteUnreachable
from windfall.sites.dialects import text
from windfall.sites.dialects.job import Shape

pytestmark = [pytest.mark.slow, pytest.mark.testbed]
MOST = 3

LIMITED: dict[str, Callable[[], System]] = {
    "slurm": lambda: systems.slurm("b", extra="JobSubmitPlugins=throttle",
                                   scheduler=f"jobs_per_user_per_hour={MOST}"),
    "gridengine": lambda: systems.gridengine("b", limit=MOST),
    "htcondor": lambda: systems.htcondor(extra=f"MAX_JOBS_PER_OWNER = {MOST}"),
}


@pytest.fixture(scope="module")
def free() -> Iterator[System]:
    require()
    made = systems.slurm("c", extra="EnforcePartLimits=ALL\nMessageTimeout=5")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module", params=list(LIMITED))
def limited(request: pytest.FixtureRequest) -> Iterator[System]:
    require()
    made = LIMITED[request.param]()
    try:
        yield made
    finally:
        made.close()


def test_too_many_jobs_are_back_pressure(limited: System, free: System) -> None:
    for _ in range(MOST):
        limited.submit(limited.job())
    with pytest.raises(SiteRefused) as refused:
        limited.submit(limited.job())
    assert refused.value.kind == text.LIMIT, refused.value.message
    assert len(limited.listed()) == MOST
    assert free.listed() == [], "another cluster has nothing to do with it"


@pytest.mark.parametrize(("fields", "kind"), [
    ({"shape": Shape(60, cores=1000)}, text.SHAPE), ({"shape": Shape(3600), "queue": "short"}, text.SHAPE),
    ({"count": 5000}, text.ARRAY), ({"queue": "nonsense"}, text.QUEUE),
])  # fmt: skip
def test_refusals_for_shape_array_and_queue_are_told_from_limits(
    free: System, fields: dict[str, Any], kind: str
) -> None:
    with pytest.raises(SiteRefused) as refused:
        free.submit(free.job(**fields))
    assert refused.value.kind == kind, refused.value.message


def test_a_controller_that_is_down_is_no_empty_listing(free: System) -> None:
    cluster = free.owner
    job = free.job()
    free.submit(job)
    free.until(lambda: free.said(job))
    cluster.stop_controller()
    try:
        with pytest.raises(SiteUnreachable):
            free.listed()
        with pytest.raises(SiteUnreachable):
            free.submit(free.job())
    finally:
        cluster.start_controller()
        free.until(cluster.answers)
    assert [each.nonce for each in free.listed(job)] == [job.nonce]
    free.cancel(free.listed(job))
    free.until(lambda: free.states(job) == {})
