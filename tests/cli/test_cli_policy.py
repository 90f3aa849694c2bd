"""`windfall policy`: needs no server to say whether an expression is one."""

from __future__ import annotations

import json

import pytest

from windfall.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["policy", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_an_expression(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--check", "Host.Memory >= 4000 && Tail")
    assert code == 0
    assert out == ("it comes to true or false, and speaks of Host.Memory, Bag.Tail\n"
                   "it can be: requirements, rank\n")
    code, out, _ = said(capsys, "--check", "Concurrency=2 * Host.NumCpus", "--json")
    assert code == 0
    assert json.loads(out) == {"expression": "2 * Host.NumCpus", "type": "number", "attributes": ["Host.Cores"],
                               "policies": ["rank", "per-host", "attempt-deadline"]}


def test_what_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "--check", "Host.Cores > 1 && Host.Memry > 4")
    assert code == 2
    assert err == ("windfall: column 19: there is no attribute 'Host.Memry'\n"
                   "    Host.Cores > 1 && Host.Memry > 4\n"
                   "                      ^\n"
                   "  hint: did you mean Host.Memory?\n")
    code, out, err = said(capsys, "--check", "rank=Host.Name", "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert error["code"] == "bad-input" and "rank must come to a number" in error["message"]
    assert said(capsys, "--check", "Host.Memory == 4")[0] == 0  # no policy called Host.Memory is asked for
    assert said(capsys, "--check", "rang = 4")[0] == 2
    assert said(capsys)[0] == 2


def test_attributes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--attributes", "--json")
    found = {each["name"]: each for each in json.loads(out)}
    assert code == 0 and found["Host.Cores"]["aliases"] == ["NumCpus", "Cpus"] and found["Bag.Tail"]["type"] == "truth"
    assert "Host.Memory" in said(capsys, "--attributes")[1]
