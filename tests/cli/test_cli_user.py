"""`windfall user set`: an allowance, and a weight."""

from __future__ import annotations

import pytest

from tests.live.real import CommandLine, Server

pytestmark = pytest.mark.slow


def test_a_weight_is_set_and_listed(windfall: CommandLine, server: Server) -> None:
    windfall("user", "add", "ada")
    assert windfall("user", "set", "ada", "--weight", "2").stdout == "ada: weight 2 at shared sites\n"
    both = windfall.json("user", "set", "ada", "--weight", "3", "--allowance", "1 core-hours")
    assert both == {"user": "ada", "allowance": 3_600_000, "weight": 3}
    assert {row["user"]: row.get("weight", 1) for row in windfall.json("user", "ls")}["ada"] == 3
    assert "weight" in windfall("user", "ls").stdout.splitlines()[0]
    assert windfall("user", "set", "ada", "--weight", "0").returncode == 2
    assert windfall("user", "set", "ada").returncode == 2
