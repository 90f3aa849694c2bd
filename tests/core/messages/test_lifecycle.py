"""The tables, and that worlds with every kind of move stay within them (every bench and world watches)."""

from __future__ import annotations

from windfall.core.messages import lifecycle as lc
from windfall.core.state.columns import Tasks


def test_tables_name_known_states_once() -> None:
    for names, moves in (
        (lc.TASK_STATES, lc.TASK_MOVES), (lc.ATTEMPT_STATES, lc.ATTEMPT_MOVES), (lc.PILOT_STATES, lc.PILOT_MOVES)
    ):
        pairs = [(a, b) for a, b, _ in moves]
        assert len(pairs) == len(set(pairs)) and all(a < len(names) and b < len(names) and a != b for a, b in pairs)


def test_every_state_but_the_first_can_be_reached() -> None:
    assert {b for _, b, _ in lc.TASK_MOVES} == set(range(len(lc.TASK_STATES)))
    assert {b for _, b, _ in lc.ATTEMPT_MOVES} == set(range(len(lc.ATTEMPT_STATES)))


def test_a_diagram_has_every_move() -> None:
    text = lc.mermaid(lc.TASK_STATES, lc.TASK_MOVES)
    assert text.count("-->") == len(lc.TASK_MOVES) and "ready --> active: granted to a pilot" in text


def test_bytes_per_task() -> None:
    tasks = Tasks(1_000)
    width = sum(getattr(tasks, "np_" + name).itemsize for name, _ in tasks.LAYOUT)
    assert width <= 16
