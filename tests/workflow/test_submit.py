"""Jobs that wait for one another, as a bag."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from windfall.errors import BadInput
from windfall.model.checks.bag import validate
from windfall.model.spec import Resources, Target
from windfall.model.templates.render import Renderer, source_count
from windfall.workflow.build.assemble import ShellJob, assemble

BIG = Target(resources=Resources(cores=4))


def test_jobs_that_ask_for_the_same_share_a_target() -> None:
    last = ShellJob("d", like=BIG, takes=((2, "y", "in/y"),))
    jobs = [ShellJob("a > x", ("x",)), ShellJob("b", like=BIG), ShellJob("c > y", ("y",)), last]
    made = assemble("g", jobs, [(0, 1)])
    validate(made.bag)
    assert [(source_count(target.source), target.resources.cores) for target in made.bag.targets] == [(2, 1), (2, 4)]
    assert made.tasks == [0, 2, 1, 3] and made.bag.edges == [(0, 2)]
    flows = made.bag.flows
    assert flows is not None and (flows.before, flows.after) == ([1], [3])
    assert [flows.names[at] for at in (*flows.name, *flows.place)] == ["y", "in/y"]


def test_every_character_of_a_command_arrives() -> None:
    jobs = [ShellJob("echo '{x}' \"a,b\"\n$HOME", ("o ut,1",), name="n"), ShellJob("", ("",))]
    made = assemble("g", jobs[:1])
    renderer = Renderer(made.bag.targets[0])
    assert renderer.command(0) == ["/bin/sh", "-c", jobs[0].command] and renderer.outputs(0) == ["o ut,1"]


def test_a_circle_is_refused() -> None:
    with pytest.raises(BadInput, match="circle: 0 → 1 → 0"):
        validate(assemble("g", [ShellJob("a"), ShellJob("b")], [(0, 1), (1, 0)]).bag)
    with pytest.raises(BadInput, match="circle"):
        validate(assemble("g", [ShellJob("a", ("x",), ((1, "x", "y"),)), ShellJob("b", ("x",), ((0, "x", "y"),))]).bag)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40), st.permutations(range(13)))
def test_circles_and_nothing_else_are_refused(edges: list[tuple[int, int]], order: list[int]) -> None:
    """Edges that go along some order have none, whatever the numbers are; one that goes back closes one."""
    along = [(order[a], order[b]) for a, b in edges if a < b]
    bag = assemble("g", [ShellJob(str(number)) for number in range(13)], along).bag
    validate(bag)
    for before, after in along[:1]:
        with pytest.raises(BadInput, match="circle"):
            validate(msgspec.structs.replace(bag, edges=[*bag.edges, (after, before)]))
