"""One owner with very many bags must not make everybody wait."""

from __future__ import annotations

import pytest

from tests.core.conftest import shape
from windfall.core.expressions import classads
from windfall.core.expressions.classads import MOST_PROGRAMS
from windfall.core.messages import events as e
from windfall.core.step import Core


def test_expressions_of_many_bags_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    core, bags = Core(), MOST_PROGRAMS + 100
    core.step(1, [e.AddSite(1, "here", "ann", "local")])
    ranks = [{"rank": f"{n} + Host.Cores"} for n in range(bags)]
    core.step(1, [e.Submit(1, "ann", "b", "", b"", [shape(1)], False, "fcfs", False, policy=rank) for rank in ranks])
    core.step(1, [e.Enrol(1, "here", "n", "h", "h", 1, 1 << 30, 0, 1 << 30, None, b"t")])
    core.step(2, [e.Exchange(1, 1, 1, 1, want=1)])
    read = []
    made = classads.Program.__init__
    monkeypatch.setattr(classads.Program, "__init__", lambda self, text: (read.append(text), made(self, text))[1])
    for seq, number in enumerate((7, 8, 9), 2):
        core.step(seq, [e.Pause(1, number, True), e.Exchange(1, 1, 1, seq, want=1)])  # the ready list is another one
    assert bags - 10 < len(core.state.ready) < bags
    assert len(read) < 10
