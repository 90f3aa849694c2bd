"""Matching demand to room: as many tasks as fit, never more than there is room for, and the same every time."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest

from windfall.core.decide.provision.matching import spread

Problem = tuple[list[int], list[int], dict[tuple[int, int], int]]


def made_up(r: random.Random, classes: int, sites: int, most: int) -> Problem:
    slots = {(s, c): r.choice((1, 2, 4)) for s in range(sites) for c in range(classes) if r.random() < 0.7}
    return [r.randrange(most) for _ in range(classes)], [r.randrange(4) for _ in range(sites)], slots


def check(problem: Problem, found: dict[tuple[int, int], int]) -> int:
    left, rooms, slots = problem
    for c, wanted in enumerate(left):
        assert sum(n for (_, cls), n in found.items() if cls == c) <= wanted
    for s, room in enumerate(rooms):
        assert sum(Fraction(n, slots[s, c]) for (site, c), n in found.items() if site == s) <= room
    return sum(found.values())


def best(problem: Problem) -> int:
    """Return the most tasks that fit, by trying every combination."""
    left, rooms, slots = problem
    most = 0
    keys = list(slots)
    for counts in product(*(range(min(left[c], rooms[s] * slots[s, c]) + 1) for s, c in keys)):
        found = dict(zip(keys, counts, strict=True))
        fits = all(sum(n for (_, k), n in found.items() if k == c) <= left[c] for c in range(len(left)))
        fits = fits and all(sum(Fraction(n, slots[k]) for k, n in found.items() if k[0] == s) <= rooms[s]
                            for s in range(len(rooms)))
        most = max(most, sum(counts) if fits else 0)
    return most


@pytest.mark.parametrize("seed", range(25))
def test_small_problems_are_matched_within_one_slot_of_the_best(seed: int) -> None:
    """Rounding may cost one slot of what the search over all combinations finds."""
    problem = made_up(random.Random(seed), 2, 2, 6)
    assert check(problem, spread(*problem)) >= best(problem) - 1


def test_class_that_fits_one_site_is_not_kept_out_by_one_that_fits_both() -> None:
    """Filling in order would put the first class at both sites."""
    assert spread([4, 4], [4, 4], {(0, 0): 1, (1, 0): 1, (0, 1): 1}) == {(1, 0): 4, (0, 1): 4}


def test_pilot_goes_to_the_class_that_it_has_more_slots_for() -> None:
    assert spread([8, 8], [2], {(0, 0): 1, (0, 1): 4}) == {(0, 1): 8}


def test_first_of_equal_sites_is_used() -> None:
    assert spread([5], [9, 9], {(0, 0): 1, (1, 0): 1}) == {(0, 0): 5}
    assert spread([5], [4, 4], {(0, 0): 1, (1, 0): 1}) == {(0, 0): 4, (1, 0): 1}


@pytest.mark.parametrize("seed", range(3))
def test_large_problems_stay_within_limits_and_have_one_answer(seed: int) -> None:
    problem = made_up(random.Random(seed), 80, 20, 60)
    found = spread(*problem)
    assert check(problem, found) > 0 and found == spread(*problem)


def test_class_without_demand_or_room_gets_no_pilots() -> None:
    assert spread([0, 3], [5, 0], {(0, 0): 1, (1, 1): 2}) == {}
