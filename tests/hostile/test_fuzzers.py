"""A short run of each fuzzer of the API; `scripts/soak hostile` runs the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import boundaries, by_document, liars, raw_bytes
from tests.hostile.ground import ground


@pytest.mark.parametrize(("fuzzer", "requests"), [(boundaries, 400), (raw_bytes, 40), (liars, 300),
                                                     (by_document, 700)],
                         ids=["boundaries", "raw_bytes", "liars", "by_document"])
def test_no_request_of_a_fuzzer_meets_an_internal_error(fuzzer, requests: int, tmp_path: Path) -> None:
    with ground(tmp_path / "home") as made:
        assert fuzzer.run(made, requests) == requests
