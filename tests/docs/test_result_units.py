"""The page on results states the unit of every column that is a time or a size."""

import pytest

from tests.repo.source import ROOT
from windfall.client.columns import FIELDS

MEASURES = ("granted", "started", "ended", "wall", "cpu", "rss", "out_size", "err_size")


@pytest.mark.parametrize("column", MEASURES)
def test_results_page_states_the_unit_of_every_measure(column):
    assert column in FIELDS
    page = (ROOT / "docs" / "howto" / "results.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and f"`{column}`" in line.split("|")[1]]
    assert len(rows) == 1 and ("milliseconds" in rows[0] or "bytes" in rows[0])
