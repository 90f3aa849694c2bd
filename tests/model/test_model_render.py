import gc
import itertools
import random
import sys

import pytest
from hypothesis import given, strategies as st

from windfall.errors import BadInput
from windfall.model.spec import Derived, Items, Lines, Range, Sweep, Target, Values, Zip
from windfall.model.templates.columns import text_of
from windfall.model.templates.render import Renderer, source_count

NAMES = ["a", "b", "c", "d", "e", "f"]
SCALARS = st.one_of(st.integers(-99, 99), st.text("xyz %{}'", max_size=4), st.booleans(), st.floats(-9, 9, width=16))


@st.composite
def sweeps(draw):
    """A sweep, and what it must expand to: one dict per task."""
    names = iter(draw(st.permutations(NAMES)))
    axes, columns = [], []
    for kind in draw(st.lists(st.sampled_from(["range", "values", "zip"]), min_size=1, max_size=3)):
        if kind == "range":
            first, step, count = draw(st.integers(-20, 20)), draw(st.sampled_from([-3, 1, 2])), draw(st.integers(1, 5))
            name = next(names)
            axes.append(Range(name=name, first=first, last=first + step * (count - 1), step=step))
            columns.append([{name: first + i * step} for i in range(count)])
        else:
            count, width = draw(st.integers(1, 4)), 1 if kind == "values" else 2
            lists = [
                Values(name=next(names), values=draw(st.lists(SCALARS, min_size=count, max_size=count)))
                for _ in range(width)
            ]
            axes.append(lists[0] if kind == "values" else Zip(columns=lists))
            columns.append([{each.name: each.values[i] for each in lists} for i in range(count)])
    expanded = [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*columns)]
    return Sweep(axes=axes), expanded


@given(sweeps())
def test_sweep_is_the_product_of_its_axes_last_one_fastest(case):
    sweep, expanded = case
    renderer = Renderer(Target(command="p", source=sweep))
    assert renderer.count == source_count(sweep) == len(expanded)
    assert [renderer.params(i) for i in range(renderer.count)] == expanded


@given(sweeps(), st.randoms())
def test_bulk_rendering_equals_rendering_one_by_one(case, rng):
    sweep, expanded = case
    word = "-".join(f"{{{name}}}" for name in expanded[0])
    renderer = Renderer(
        Target(command=["prog", word, "fixed"], source=sweep, outputs=["o-" + word], environment={"E": word})
    )
    indices = [rng.randrange(len(expanded)) for _ in range(10)]
    texts = ["-".join(map(text_of, expanded[i].values())) for i in indices]
    assert renderer.commands(indices) == [["prog", text, "fixed"] for text in texts]
    assert [renderer.command(i) for i in indices] == renderer.commands(indices)
    assert [renderer.outputs(i) for i in indices] == [["o-" + text] for text in texts]
    assert [renderer.environment(i) for i in indices] == [{"E": text} for text in texts]


@given(st.permutations([("p", "{q}-{a}"), ("q", "{r}{r}"), ("r", "<{b}>"), ("s", "{p}|{q}")]))
def test_derived_values_do_not_depend_on_their_order(order):
    sweep = Sweep(
        axes=[Range(name="a", first=1, last=2), Values(name="b", values=["x", "y"])],
        derived=[Derived(name=n, template=t) for n, t in order],
    )
    renderer = Renderer(Target(command=["{s}"], source=sweep))
    assert renderer.commands(range(4)) == [[f"<{b}><{b}>-{a}|<{b}><{b}>"] for a in (1, 2) for b in "xy"]


def test_floats_of_a_range_have_the_digits_of_its_step():
    renderer = Renderer(Target(command=["{x}"], source=Sweep(axes=[Range(name="x", first=0, last=1, step=0.1)])))
    assert [c[0] for c in renderer.commands(range(11))] == [
        "0.0",
        "0.1",
        "0.2",
        "0.3",
        "0.4",
        "0.5",
        "0.6",
        "0.7",
        "0.8",
        "0.9",
        "1.0",
    ]
    assert renderer.count == 11
    tiny = Renderer(Target(command=["{x}"], source=Sweep(axes=[Range(name="x", first=1e-7, last=3e-7, step=1e-7)])))
    assert [tiny.params(i)["x"] for i in range(tiny.count)] == [1e-7, 2e-7, 3e-7]


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        (Range(name="x", first=1, last=10), 10),
        (Range(name="x", first=10, last=1, step=-1), 10),
        (Range(name="x", first=1, last=10, step=4), 3),
        (Range(name="x", first=5, last=1), 0),
        (Range(name="x", first=1, last=1), 1),
        (Range(name="x", first=1, last=2, step=0.5), 3),
        (Range(name="x", first=0.0, last=-1.0), 0),
    ],
)
def test_range_has_the_expected_size(axis, size):
    assert source_count(Sweep(axes=[axis])) == size


def test_unknown_parameters_are_named_with_the_nearest():
    with pytest.raises(BadInput) as caught:
        Renderer(Target(command="p {sed}", source=Sweep(axes=[Range(name="seed", first=1, last=2)])))
    assert "{seed}" in caught.value.hint


def test_circular_derived_parameters_are_refused():
    with pytest.raises(BadInput, match="circle"):
        Renderer(
            Target(
                command="p",
                source=Sweep(derived=[Derived(name="a", template="{b}"), Derived(name="b", template="{a}")]),
            )
        )


@given(
    st.lists(
        st.text(st.characters(blacklist_characters="\n\0", blacklist_categories=("Cs",)), min_size=1, max_size=8),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_lines_come_back_however_they_were_appended(lines, size):
    lines = ["cd; " + line for line in lines]
    renderer = Renderer(Target(source=Lines(text="", count=0)))
    for at in range(0, len(lines), size):
        part = lines[at : at + size]
        renderer.extend(Lines(text="\n".join(part), count=len(part)))
    assert renderer.count == len(lines)
    assert renderer.commands(range(len(lines))) == lines


def test_lines_are_read_from_shared_bytes_and_can_grow():
    shared = b"before" + b"eins\nzwei 2\ndrei" + b"after"
    renderer = Renderer(Target(source=Lines(text="eins\nzwei 2\ndrei", count=3)), shared)
    renderer.extend(Lines(text="vier", count=1))
    renderer.extend(Lines(text="funf\nsechs", count=2))
    assert renderer.commands(range(6)) == [["eins"], ["zwei", "2"], ["drei"], ["vier"], ["funf"], ["sechs"]]


def test_items_are_split_and_calls_are_not():
    renderer = Renderer(Target(source=Items(items=["prog a", "cd x\ny"])))
    renderer.extend(Items(items=["prog 'b c'"]))
    assert renderer.commands(range(3)) == [["prog", "a"], "cd x\ny", ["prog", "b c"]]
    assert Renderer(Target(kind="call", source=Items(items=["gASV"]))).command(0) == "gASV"
    renderer.extend(Lines(text="x\ny", count=2))
    assert renderer.commands([3, 4]) == [["x"], ["y"]]
    with pytest.raises(BadInput):
        Renderer(Target(source=Lines(text="x", count=1))).extend(Items(items=["x"]))
    with pytest.raises(BadInput):
        Renderer(Target(command="p")).extend(Items(items=["x"]))


def test_cost_is_a_parameter_or_one():
    sweep = Sweep(axes=[Values(name="n", values=[3, 0.5])])
    assert Renderer(Target(command="p", source=sweep, cost="{n}")).costs(range(2)) == [3.0, 0.5]
    assert Renderer(Target(command="p", source=sweep, cost="n")).cost(1) == 0.5
    assert Renderer(Target(command="p", source=sweep)).cost(1) == 1.0


def test_task_number_out_of_range_is_refused():
    with pytest.raises(IndexError):
        Renderer(Target(command="p")).command(1)


def test_rendering_cost_depends_on_axes_not_on_sweep_size():
    """Counted in lines of Python, not in seconds: neither the size of the sweep nor the place in it matters."""
    small, large = (
        Renderer(Target(command="prog --seed {x}", source=Sweep(axes=[Range(name="x", first=1, last=last)])))
        for last in (1_000, 10_000_000)
    )
    assert lines_run(small.commands, [0]) == lines_run(large.commands, [0]) == lines_run(large.commands, [9_999_999])
    hundred = lines_run(large.commands, random.Random(1).sample(range(10_000_000), 100))
    thousand = lines_run(large.commands, random.Random(1).sample(range(10_000_000), 1_000))
    assert thousand <= 10 * hundred <= 10 * 100 * 10  # linear, and at most ten lines a command
    assert large.commands([9_999_999]) == [["prog", "--seed", "10000000"]]


def lines_run(function, *arguments):
    """How many lines of Python a call takes."""
    count = 0

    def trace(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()  # a collection runs callbacks, whose lines are not the function's
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
        gc.enable()
    return count
