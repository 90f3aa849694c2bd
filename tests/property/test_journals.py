"""The core decides in fixed worlds what it decided when they were recorded.  `journals.py` plays all of them."""

from __future__ import annotations

import pytest

from .journals import differences, digest, recorded, without_sentences

# One in eight of the worlds, and the quick scenarios; the others take minutes.
PLAYED = [name for place, name in enumerate(sorted(recorded())) if name.startswith(("world", "more")) and not place % 8]


@pytest.mark.parametrize("name", PLAYED)
def test_core_decides_what_it_decided_when_recorded(name: str) -> None:
    assert differences(dict([digest(name)]), recorded()) == [], (
        "if that is meant, run `python -m tests.property.journals --record` and say why in the commit")


def test_sentences_are_left_out_of_decisions() -> None:
    assert without_sentences(["ended/1", 3, ["exit", {"why": "it is full"}]]) == ["ended/1", 3, ["exit", {"why": ""}]]
