"""`windfall user set`: an allowance, and a weight."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.real import CommandLine, Server
from windfall.cli.main import main

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("weight", ["0", "-1", "1001"])
def test_a_weight_out_of_bounds_is_refused_before_a_server_is_asked(capsys: pytest.CaptureFixture[str], weight: str,
                                                                    monkeypatch: pytest.MonkeyPatch,
                                                                    tmp_path: Path) -> None:
    monkeypatch.setenv("WINDFALL_HOME", str(tmp_path / "home"))
    assert main(["user", "set", "ada", f"--weight={weight}"]) == 2
    assert f"--weight {weight} is not a whole number from 1 to 1,000" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_weight_is_set_and_listed(windfall: CommandLine, server: Server) -> None:
    windfall("user", "add", "ada")
    assert windfall("user", "set", "ada", "--weight", "2").stdout == "ada: weight 2 at shared sites\n"
    both = windfall.json("user", "set", "ada", "--weight", "3", "--allowance", "1 core-hours")
    assert both == {"user": "ada", "allowance": 3_600_000, "weight": 3}
    assert {row["user"]: row.get("weight", 1) for row in windfall.json("user", "ls")}["ada"] == 3
    assert "weight" in windfall("user", "ls").stdout.splitlines()[0]
    assert windfall("user", "set", "ada").returncode == 2
