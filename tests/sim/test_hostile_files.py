"""Malicious or meaningless files are refused in good time."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from windfall.errors import BadInput
from windfall.sim import scenario
from windfall.sim.models import swf


def test_log_header_gives_processors_before_nodes(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text("; MaxNodes: 16\n; MaxProcs: 64\n")
    assert swf.processors(log) == 64
    log.write_text("; MaxNodes: 16\n")
    assert swf.processors(log) == 16


def test_log_of_comments_is_refused_beyond_line_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swf, "MAX_JOBS", 1_000)
    log = tmp_path / "log.swf.gz"
    log.write_bytes(gzip.compress(b"; x\n" * 20_000))
    assert swf.processors(log) is None
    with pytest.raises(BadInput, match="too long") as found:
        swf.read(log)
    assert found.value.where.endswith("log.swf.gz:1001")


def test_absurd_deviation_of_background_load_is_refused() -> None:
    text = """[sites.c]
processors = 4
background = { busy = 0.5, deviation = 999 }
[bags.b]
duration = "5min"
"""
    with pytest.raises(BadInput, match="deviation") as found:
        scenario.parse(text)
    assert found.value.where == "scenario:3"
