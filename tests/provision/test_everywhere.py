"""Every kind of site at once, and everything that can go wrong there.  `scripts/soak sites` plays it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.provision import everywhere
from tests.testbed.base import require

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


def test_bag_completes_on_all_systems_while_they_and_the_server_restart(tmp_path: Path) -> None:
    require()
    everywhere.run(tmp_path, 1600, 0.4, 120)
