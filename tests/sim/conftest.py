"""Real logs from the folder $WINDFALL_DATA; tests that need them are skipped, with a reason, where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    given = os.environ.get("WINDFALL_DATA")
    folder = Path(given) if given else Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        if given:
            pytest.fail(f"WINDFALL_DATA names {folder}, which is not there")
        pytest.skip("needs the data set that WINDFALL_DATA names")
    return folder
