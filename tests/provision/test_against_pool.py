"""The same short tasks as jobs of a real HTCondor pool and through pilots there: both ways do all of them.  Which is
faster, and by how much, is for `bench/pool.py` to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.provision import shorts
from tests.testbed.base import require

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


def test_short_tasks_directly_and_through_pilots(tmp_path: Path) -> None:
    require()
    seen = shorts.run(tmp_path, 40)
    assert min(seen.direct.seconds, seen.pilots.seconds) > seen.least, "nobody sleeps faster"
