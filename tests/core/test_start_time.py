"""The time at which a core goes on, and the time that a person sets."""

import pytest

from tests.core.conftest import Bench
from windfall.core.decide.requests.tokens import RENEWAL, ends_soon
from windfall.core.messages import events as e, facts as f
from windfall.core.persist.fingerprint import differences, fingerprint
from windfall.core.persist.snapshot import dump_state, load_state, rebuild
from windfall.core.start_time import DAY, JUMP, start_time
from windfall.core.state.columns import ROW_BITS
from windfall.core.state.world import TokenState

LAST = 1_790_000_000_000
YEARS = 3_000 * DAY


@pytest.mark.parametrize("wall", [LAST, LAST + DAY, LAST + JUMP, LAST - DAY, LAST - JUMP])
def test_wall_clock_near_the_journal_is_believed(wall):
    assert start_time(LAST, wall) == (max(LAST, wall), "")


def test_empty_journal_believes_any_clock():
    assert start_time(0, LAST + YEARS) == (LAST + YEARS, "")


@pytest.mark.parametrize("wall, words", [
    (LAST + YEARS, "3000 days after the journal's last commit"), (LAST - YEARS, "3000 days after this machine's clock"),
    (LAST + JUMP + 1, "nothing ages"), (0, "dated 2026-09-21"), ((1 << 63) - 1, "windfall doctor --clock"),
])
def test_clock_far_from_the_journal_ages_nothing_and_is_told(wall, words):
    now, problem = start_time(LAST, wall)
    assert now == LAST and words in problem


def token(issued, expires):
    return TokenState("id", "admin", "ann", issued=issued, expires=expires)


def test_owners_token_is_renewed_within_a_year_of_its_end():
    assert not ends_soon(token(0, LAST + RENEWAL), LAST)
    assert ends_soon(token(0, LAST + RENEWAL - 1), LAST)
    assert ends_soon(token(0, LAST - 1), LAST)
    assert not ends_soon(token(0, 0), LAST), "0: never"


def set_clock(bench, at):
    before = bench.core.state.now
    bench.core.replay([f.ClockSet(at, before, "ann")])
    bench.now = at


def test_setting_the_clock_back_moves_what_was_dated_later():
    bench = Bench()
    bench.step(e.IssueToken(0, "old", b"old", "user", "ann", "", expires=bench.now + 3_660 * DAY))
    old = bench.core.state.tokens[b"old"].expires
    first = bench.submit()
    right = bench.now + 1_000
    submitted = bench.core.state.bags[first].submitted
    bench.now += YEARS
    bench.step(e.IssueToken(0, "new", b"new", "user", "ann", "", expires=bench.now + 90 * DAY))
    second = bench.submit()
    bench.now += 5_000
    bench.step()
    set_clock(bench, right)
    state = bench.core.state
    assert state.now == right
    assert state.bags[first].submitted == submitted
    assert 0 <= right - state.bags[second].submitted < 60_000
    assert state.tokens[b"old"].expires == old
    assert right < state.tokens[b"new"].expires <= right + 90 * DAY


def test_clock_set_back_is_the_same_after_a_snapshot():
    bench = Bench()
    bench.submit()
    right = bench.now
    bench.now += YEARS
    bench.submit()
    set_clock(bench, right)
    rebuild(bench.core.state)
    meta, chunks, _ = dump_state(bench.core.state)
    again = load_state(meta, chunks)
    rebuild(again)
    assert differences(fingerprint(bench.core.state), fingerprint(again)) == []


def test_skipped_numbers_are_never_given():
    bench = Bench()
    bag = bench.submit()
    pilot = bench.pilot()
    bench.core.replay([f.NumbersSkipped(bench.now, bag + 500, pilot + 40, 30, 1 << 20)])
    assert bench.submit() == bag + 500
    assert bench.pilot(nonce="another") == pilot + 40
    assert bench.core.state.next_intent == 30
    for free in (3, 2):
        assert all(number >> ROW_BITS > 1 << 20 for number in bench.core.state.attempts.numbers(free))
    meta, chunks, _ = dump_state(bench.core.state)
    again = load_state(meta, chunks)
    assert again.attempts.base == 1 << 20
