"""Patterns of users: costly ones are refused before they are compiled."""

import json

import pytest

from windfall.errors import TooLarge
from windfall.model.checks.bag import validate
from windfall.model.checks.patterns import MAX_EFFORT, check_effort, effort, refusal
from windfall.model.spec import Bag, Capture, Check, Target

WIDE = "(?i)" + "[\x01-\uffff]" * 800
ONE = "(?i)[\x01-\uffff]"


@pytest.mark.parametrize("text", [
    ONE, f"(?:a|({ONE[4:]}))", f"x(?={ONE[4:]})", f"({ONE[4:]}){{2,3}}", f"(a)?(?(1)b|{ONE[4:]})", f"(?>{ONE[4:]})",
])
def test_wide_classes_count_wherever_they_appear(text):
    assert effort(text) >= 65_535


def test_ordinary_patterns_cost_little():
    for text in ("LOD=([0-9.]+)", "(?i)error|warning", "[а-яА-Я]+", "[^\n]*", "(", "\\d{4}-\\d\\d"):
        assert effort(text) < MAX_EFFORT / 100


@pytest.mark.parametrize("target", [
    Target(command="p", check=Check(match=WIDE)),
    Target(command="p", capture=[Capture(name=f"c{n}", pattern=ONE) for n in range(100)]),
    Target(command="p", check=Check(schema=json.dumps({"anyOf": [{"pattern": ONE}] * 100}))),
])
def test_bag_with_costly_patterns_is_refused(target):
    with pytest.raises(TooLarge, match="too many characters"):
        validate(Bag(name="b", targets=[target]))


def test_patterns_of_all_targets_count_together():
    targets = [Target(name=f"t{n}", command="p", check=Check(match=ONE)) for n in range(100)]
    with pytest.raises(TooLarge, match="too many characters"):
        validate(Bag(name="b", targets=targets))
    with pytest.raises(TooLarge, match="1,000,000"):
        check_effort(["a" * 4_000] * 300)


def test_ambiguous_class_in_a_policy_prints_no_warning_of_python(recwarn):
    for pattern in ("[a--b]", "n[--z]+", "[[a]", "[a&&b]"):
        refusal(pattern)
    assert recwarn.list == []
