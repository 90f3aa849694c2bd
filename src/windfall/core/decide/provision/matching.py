"""Demand against room: how many slots of which class at which site (G8).

    maximise   Σ x[s, c]
    so that    Σ_s x[s, c] ≤ left[c]                   no more than is wanted
               Σ_c x[s, c] / slots[s, c] ≤ rooms[s]    no more pilots than there is room for

A linear programme, because a pilot has not the same number of slots for every class, which a plain flow cannot say.
HiGHS solves it (docs/decisions/0007); its dual simplex on one thread gives the same answer to the same question.
Among equal sites the first is used.  The answer is rounded down to whole slots; what that leaves free is filled in
order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Key = tuple[int, int]  # site, class
ROUNDING = 1e-6  # added before rounding down: floating-point arithmetic may fall just short of a slot
FIRST_SITE = 1e-3  # a slot at the first site is worth so much more than one at the last
PARTS = 720_720  # pilots are counted in such parts: 2, 3, … 16 slots divide it


def parts(slots: int, of_one: int) -> int:
    """Return the parts of pilots, with `of_one` slots each, that have so many slots: rounded up where need be."""
    return -(-slots * PARTS // of_one)


def spread(left: list[int], rooms: list[int], slots: dict[Key, int]) -> dict[Key, int]:
    """Return the slots of each class at each site.

    `left` holds the slots wanted per class, `rooms` the pilots per site, `slots` those of a pilot at (site, class)."""
    keys = [key for key in slots if left[key[1]] > 0 and rooms[key[0]] > 0]
    if not keys:
        return {}
    if _enough(left, rooms, slots, keys):
        return _fill(left, rooms, slots, keys, {})
    x = _solve(left, rooms, slots, keys)
    solved = {key: int(value + ROUNDING) for key, value in zip(keys, x.tolist(), strict=True)}
    return _fill(left, rooms, slots, keys, solved)


def _enough(left: list[int], rooms: list[int], slots: dict[Key, int], keys: list[Key]) -> bool:
    """Has each site alone room for all that could go there, so that there is nothing to decide?"""
    asked = [0] * len(rooms)
    for key in keys:
        asked[key[0]] += parts(left[key[1]], slots[key])
    return all(wanted <= PARTS * room for wanted, room in zip(asked, rooms, strict=True))


def _fill(left: list[int], rooms: list[int], slots: dict[Key, int], keys: list[Key], solved: dict[Key, int]
          ) -> dict[Key, int]:
    """Return the solution, and more slots in the order of the keys while some are wanted and there is room."""
    want, free = list(left), [PARTS * room for room in rooms]
    filled: dict[Key, int] = {}
    for most in (solved, dict.fromkeys(keys, 1 << 60)):
        for key, n in most.items():
            site, cls = key
            if n and want[cls] and free[site]:
                taken = min(n, want[cls], free[site] * slots[key] // PARTS)
                want[cls] -= taken
                free[site] -= parts(taken, slots[key])
                filled[key] = filled.get(key, 0) + taken
    return {key: n for key, n in filled.items() if n}


def _solve(left: list[int], rooms: list[int], slots: dict[Key, int], keys: list[Key]) -> NDArray[np.float64]:
    import highspy

    n, classes = len(keys), len(left)
    solver: Any = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("simplex_strategy", 1)):
        solver.setOptionValue(option, value)
    table = np.array(keys)
    rows = np.empty(2 * n, dtype=np.int32)  # for each column: its class, its site
    rows[0::2], rows[1::2] = table[:, 1], classes + table[:, 0]
    values = np.ones(2 * n)
    values[1::2] = 1 / np.array([slots[key] for key in keys], dtype=float)
    model: Any = highspy.HighsLp()
    model.num_col_, model.num_row_ = n, classes + len(rooms)
    model.col_cost_ = -1 + FIRST_SITE * table[:, 0] / len(rooms)
    model.col_lower_, model.col_upper_ = np.zeros(n), np.full(n, highspy.kHighsInf)
    model.row_lower_ = np.full(model.num_row_, -highspy.kHighsInf)
    model.row_upper_ = np.array([*left, *rooms], dtype=float)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = np.arange(0, 2 * n + 1, 2), rows, values
    solver.passModel(model)
    solver.run()
    return np.array(solver.getSolution().col_value)
