"""What changed files concern: all of a target, the readers of one file, or nobody."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.model.revision import Appended, TargetRevision, revise
from windfall.model.spec import Bag, Derived, Family, Input, Items, Policy, Range, Resources, Sweep, Table, Target

OLD, NEW = "a" * 64, "b" * 64


def sweep(first: int, last: int) -> Sweep:
    return Sweep(axes=[Range(name="x", first=first, last=last)])


def table(*rows: str) -> Sweep:
    return Sweep(axes=[Table(columns=["x"], text="\n".join(rows), count=len(rows))])


def family(first: int, last: int, **changed: str) -> Family:
    files = {f"d{x}": (changed.get(f"d{x}", OLD), 1, 0o644) for x in range(first, last + 1)}
    return Family(path="in", source="d{x}", files=files)


def target(**fields: Any) -> Target:
    return Target(**{"command": "p {x}", "source": sweep(1, 4), **fields})


def compare(before: Target, now: Target, *appended: Appended) -> TargetRevision:
    (found,) = revise(Bag(name="b", targets=[before]), appended, Bag(name="b", targets=[now])).targets
    return found


def test_equal_bags_concern_nobody() -> None:
    found = compare(target(), target())
    assert (found.tasks, found.changes, found.new, found.gone) == ([], [], 0, 0)


@pytest.mark.parametrize("change, what", [
    ({"command": "q {x}"}, "command"), ({"environment": {"A": "1"}}, "environment"), ({"outputs": ["o"]}, "outputs"),
    ({"inputs": [Input(path="s", blob=NEW, size=1)]}, "input s"),
    ({"inputs": []}, "input s, not named any more"),
])
def test_change_that_all_tasks_see_concerns_the_target(change: dict[str, Any], what: str) -> None:
    before = target(inputs=[Input(path="s", blob=OLD, size=1)])
    found = compare(before, replace(before, **change))
    assert found.tasks is None and [(each.what, each.concerns) for each in found.changes] == [(what, True)]


def test_limits_and_retries_concern_nobody_and_are_taken_over() -> None:
    found = compare(target(), target(resources=Resources(memory=5), retries=1, time=9))
    assert found.tasks == [] and found.target.resources.memory == 5
    assert sorted(each.what for each in found.changes if not each.concerns) == ["memory", "retries", "time"]


def test_changed_file_concerns_its_readers_those_of_an_extension_too() -> None:
    before, later = target(families=[family(1, 4)]), Appended(0, sweep(5, 8), [family(5, 8).files])
    now = target(source=sweep(1, 8), families=[family(1, 8, d2=NEW, d7=NEW)])
    found = compare(before, now, later)
    assert found.tasks == [1, 6] and [each.what for each in found.changes] == ["input d2", "input d7"]
    assert found.target.source == sweep(1, 4) and found.target.families[0].files["d7"][0] == NEW
    assert (found.new, found.gone) == (0, 0)


def test_points_that_come_and_go_are_counted_and_numbers_stay() -> None:
    found = compare(target(families=[family(1, 4)]), target(source=sweep(3, 9), families=[family(3, 9)]))
    assert (found.tasks, found.new, found.gone) == ([], 5, 2)
    assert found.target.source == sweep(1, 4) and "d1" in found.target.families[0].files


def test_changed_rows_of_a_table_are_the_tasks_of_their_numbers() -> None:
    found = compare(target(source=table("1", "2", "3")), target(source=table("1", "9", "3")))
    assert found.tasks == [1] and found.target.source == table("1", "9", "3")
    longer = compare(target(source=table("1", "2")), target(source=table("1", "2", "3")))
    assert (longer.tasks, longer.new, longer.target.source) == ([], 1, table("1", "2"))


def test_changed_derived_parameter_concerns_all() -> None:
    before = replace(sweep(1, 2), derived=[Derived(name="out", template="o-{x}")])
    now = replace(sweep(1, 2), derived=[Derived(name="out", template="r-{x}")])
    found = compare(target(source=before), target(source=now))
    assert found.tasks is None and found.target.source == now
    with pytest.raises(BadInput, match="the bag was extended"):
        compare(target(source=before), target(source=now), Appended(0, sweep(3, 4), []))


@pytest.mark.parametrize("now, said", [
    (Target(name="other", command="p"), "has the targets main; now there are other"),
    (target(after=["main"]), "'after' has changed"),
    (target(source=Sweep()), "has the parameters x; now there are none"),
    (Target(source=Items(items=["a"])), "the tasks of 'main' have changed"),
])
def test_bag_of_other_targets_is_refused_with_the_difference(now: Target, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        compare(target(), now)


def test_policy_of_the_bag_stays_and_is_named() -> None:
    old = Bag(name="b", targets=[target()])
    found = revise(old, [], replace(old, name="c", policy=Policy(rank="1")))
    assert found.kept == ["policy"] and found.bag == old
