"""Scenario files damaged at random: each is either refused with its place or played, and never for long."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from windfall.cli.main import main
from windfall.errors import BadInput
from windfall.sim import scenario
from windfall.sim.play import Run

EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.toml"))]
VALUES = (
    "-1", "0", "1", "3", "1e999", "nan", "-inf", "true", '""', '"5min"', '"-5min"', '"0s"', '"1ms"', '"99999999d"',
    "[]", "{}", "[1, 2]", '"weibull(0.45, 4h)"', '"weibull(0.01, 1ms)"', '"weibul(1, 2h)"', '"uniform(9s, 1s)"',
    "10000000000000", '"exponential(0s)"', '"lognormal(1h, 99)"', '"gamma(100, 1d)"', '"pareto(0.01, 1s)"',
    '"\\u0000"', "1979-05-27", '"main"', '["main"]', '["parse", "report"]', "0.5", '{ up = "1s", down = "1d" }',
    '{ every = "1s", lasting = "1d" }', '{ log = "/dev/null" }', '{ log = "." }', "{ busy = 1 }",
    '{ busy = 0.0001, median = "1s" }', "1 # odd\n", "'",
)  # fmt: skip
KEYS = re.compile(r"^(\s*[\w-]+\s*=\s*)(.*?)$", re.MULTILINE)
EVENTS = 3_000


def damaged(draw: random.Random, text: str) -> str:
    """Make a few changes to a text: values, keys, lines, characters."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind = draw.randrange(7)
        if kind <= 2 and (found := list(KEYS.finditer(text))):
            at = draw.choice(found)
            other = draw.choice(VALUES) if draw.random() < 0.5 else draw.choice(found)[2]
            text = text[: at.start(2)] + other + text[at.end(2) :]
        elif kind == 3 and (found := list(KEYS.finditer(text))):
            at = draw.choice(found)
            text = text[: at.start()] + draw.choice(found)[1] + at[2] + text[at.end() :]
        elif kind == 4:
            lines = text.split("\n")
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
            text = "\n".join(lines)
        elif kind == 5:
            lines = text.split("\n")
            del lines[draw.randrange(len(lines))]
            text = "\n".join(lines)
        else:
            at = draw.randrange(len(text) or 1)
            text = text[:at] + draw.choice("\"'[]{}=#\n\0é9-.") + text[at + draw.randint(0, 1) :]
    return text


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 40), st.sampled_from(EXAMPLES))
def test_damaged_scenarios_are_refused_or_played(seed: int, text: str) -> None:
    try:
        found = scenario.parse(damaged(random.Random(seed), text), "it.toml")
        if found.tasks <= 20_000 and sum(hosts.machines.count for hosts in found.hosts) <= 2_000:
            Run(found, 1).play(most=EVENTS)
    except BadInput as error:
        assert error.where.startswith(("it.toml", "/dev/null")) or "/dev/null" in error.message, repr(error)
        assert error.message


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_arbitrary_text_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        scenario.parse(text, "it.toml")
    assert caught.value.where.startswith("it.toml")


def test_command_line_refuses_damaged_scenarios_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some damaged scenarios run and some do not, or the test above would show nothing."""
    ends = {"refused": 0, "read": 0}
    file = tmp_path / "it.toml"
    for seed in range(300):
        file.write_text(damaged(random.Random(seed), EXAMPLES[seed % len(EXAMPLES)]))
        try:
            scenario.load(file)
            ends["read"] += 1
        except BadInput:
            ends["refused"] += 1
            assert main(["simulate", str(file)]) == 2
            said = capsys.readouterr().err
            assert said.startswith(f"windfall: {file}") and "Traceback" not in said, said
    assert min(ends.values()) > 40, ends
