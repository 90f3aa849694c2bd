"""A damaged home ends in words or in the whole truth (`damaged_homes.py` says what a case is)."""

from tests.live.damaged_homes import run


def test_damaged_home_is_refused_in_words_or_whole():
    outcomes = run(24)
    assert sum(outcomes.values()) == 24
    assert any("refused" in outcome for outcome in outcomes)
