"""A bench for bags with data: hosts with links, pipelines of two stages, and where each output lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.core.conftest import Bench, granted, shape
from windfall.core.messages import effects as x, events as e, facts as f

WAN, LAN = (1_200, 500_000), (10, 100_000_000)


EDGES = np.array([(0, 2), (1, 3)], dtype="<i4").tobytes()  # two pipelines of two stages


def column(kind: str, *values: int) -> bytes:
    return np.array(values, dtype=kind).tobytes()


def data(**changes: Any) -> f.DataShape:
    """Return what the tasks of two pipelines read and leave: each first stage reads 1 kB from outside and leaves 80
    kB."""
    usual = {
        "reads": column("<i8", 1_000, 1_000, 0, 0), "read_files": column("<i4", 1, 1, 0, 0),
        "leaves": column("<i8", 80_000, 80_000, 0, 0), "leave_files": column("<i4", 1, 1, 0, 0),
    }
    return f.DataShape(**{**usual, **changes})


class DataBench(Bench):
    def __init__(self, **config: Any) -> None:
        super().__init__(prefetch=0, **config)
        self.do(e.KnowLink(0, "*", "*", *WAN))

    def host(self, name: str, site: str = "here", cores: int = 1) -> int:
        event = e.Enrol(0, site, f"n{self.core.state.next_pilot}", name, name, cores, 4 << 30, 0, 1 << 40, None,
                        b"token %d" % self.core.state.next_pilot)
        return int(self.do(event).pilot)

    def pipelines(self, select: str = "fcfs", shape_: f.DataShape | None = None, **more: Any) -> int:
        event = e.Submit(0, "ann", "bag", "", b"spec", [shape(4, expect=3_000)], False, select, False, EDGES,
                         data=shape_ or data(), data_selection=more.get("data_selection"))
        return int(self.do(event).value)

    def ask(self, pilot: int, **fields: Any) -> x.ExchangeReply:
        answer = self.exchange(pilot, want=1, **fields)
        assert isinstance(answer, x.ExchangeReply)
        return answer

    def places(self, bag: int, task: int) -> list[str]:
        held = self.core.state.bags[bag].data
        assert held is not None
        return [self.core.state.place_names[number] for number in held.places(task)]

    def run(self, pilot: int, **report: Any) -> int:
        """Let a pilot take one task and report its success; return the task."""
        ((attempt, task),) = granted(self.ask(pilot))
        self.report(pilot, attempt, **report)
        return task


def moves(answer: x.ExchangeReply) -> list[tuple[int, str, int]]:
    return [(move.task, move.place, move.size) for move in answer.transfers]
