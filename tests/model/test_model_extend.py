"""Extending a sweep never runs a point again and never misses one."""

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.bag import validate_source
from windfall.model.extend import boxes, new_points, same_files
from windfall.model.spec import Derived, Family, Latin, Range, Sample, Sweep, Table, Target, Values, Zip
from windfall.model.templates.columns import text_of
from windfall.model.templates.render import Renderer, Space, source_count
from windfall.model.templates.sample import parse_law

NAMES = ["a", "b", "c"]


def points(sweep):
    columns = Space(Sweep(axes=sweep.axes)).columns
    names = sorted(columns)
    values = [columns[name].values(range(source_count(sweep))) for name in names]
    return [tuple(zip(names, map(text_of, row))) for row in zip(*values)] if names else [()]


def ranges(name):
    steps = st.sampled_from([1, 2, 3, -1, -2])
    made = st.builds(lambda f, n, s: Range(name=name, first=f, last=f + n * s, step=s),
                     st.integers(-5, 5), st.integers(0, 6), steps)
    return made | st.builds(lambda f, n: Range(name=name, first=f / 2, last=f / 2 + n / 2, step=0.5),
                            st.integers(-4, 4), st.integers(0, 4))


def lists(name, size=None):
    values = st.integers(-3, 3) | st.sampled_from(["x", "1", "1.0", 1.0, 0.5, True])
    low, high = (size, size) if size else (1, 4)
    return st.builds(lambda v: Values(name=name, values=v), st.lists(values, min_size=low, max_size=high))


def single(name):
    drawn = st.builds(lambda n, s: Sample(law=parse_law(name, "integer(1, 4)"), n=n, seed=s),
                      st.integers(1, 5), st.integers(0, 1))
    table = st.lists(st.sampled_from("123x"), min_size=1, max_size=4).map(
        lambda rows: Table(columns=[name], text="\n".join(rows), count=len(rows)))
    return ranges(name) | lists(name) | drawn | table


@st.composite
def sweeps(draw):
    names = draw(st.permutations(NAMES))
    axes = []
    while names:
        if len(names) > 1 and draw(st.booleans()):
            size = draw(st.integers(1, 3))
            axes.append(Zip(columns=[draw(lists(name, size)) for name in names[:2]]))
            names = names[2:]
        else:
            axes.append(draw(single(names[0])))
            names = names[1:]
    return Sweep(axes=axes)


@settings(max_examples=400, deadline=None)
@given(sweeps(), sweeps())
def test_extension_has_exactly_the_new_points_each_once(old, new):
    wanted = set(points(new)) - set(points(old))
    found = new_points(old, new)
    got = points(found) if found else []
    assert set(got) == wanted
    assert len(got) == len(wanted)
    in_boxes = [point for box in boxes(old, new) for point in points(box)]
    assert sorted(in_boxes) == sorted(wanted)


@settings(max_examples=100, deadline=None)
@given(sweeps(), sweeps())
def test_extended_sweep_renders_old_points_as_before_and_new_ones_after(old, new):
    found = new_points(old, new)
    command = ["p", *(f"{name}={{{name}}}" for name in NAMES)]
    renderer = Renderer(Target(command=command, source=old))
    before = renderer.commands(range(renderer.count))
    if found:
        renderer.extend(found)
    every = renderer.commands(range(renderer.count))
    assert every[: len(before)] == before
    rendered = {tuple(command) for command in every}
    assert rendered == {("p", *("=".join(pair) for pair in point)) for point in {*points(old), *points(new)}}
    shuffled = list(reversed(range(renderer.count)))
    assert renderer.commands(shuffled) == every[::-1]
    assert [renderer.command(index) for index in range(renderer.count)] == every


@settings(max_examples=200, deadline=None)
@given(st.lists(sweeps() | st.just(Sweep(axes=[Table(columns=NAMES, text="", count=0)])), min_size=1, max_size=8),
       st.data())
def test_repeated_extensions_render_each_part_as_if_alone(parts, data):
    """Tasks asked for at any time, in any order, stay as they were."""
    def target(source):
        outputs = [Derived(name="out", template="{a}-{c}")]
        return Target(command="p {b} '{a}' > {out}", outputs=["{out}"], environment={"C": "{c}"}, cost="a",
                      source=msgspec.structs.replace(source, derived=outputs))

    def said(renderer, index):
        return (renderer.command(index), renderer.params(index), renderer.outputs(index), renderer.environment(index),
                renderer.cost(index))
    alone = [Renderer(target(part)) for part in parts]
    wanted = [said(each, index) for each in alone[:1] for index in range(each.count)]
    renderer = Renderer(target(parts[0]))
    for part, each in zip(parts[1:], alone[1:]):
        renderer.extend(target(part).source)
        wanted += [said(each, index) for index in range(each.count)]
        assert renderer.count == len(wanted)
        asked = data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=5)) if wanted else []
        assert [said(renderer, index) for index in asked] == [wanted[index] for index in asked]
        assert renderer.commands(asked) == [wanted[index][0] for index in asked]
    assert [said(renderer, index) for index in range(renderer.count)] == wanted


def test_memory_of_an_extension_does_not_grow_with_their_number():
    """Counted in bytes, not seconds: each part is kept once, however many came before."""
    import tracemalloc
    names = [f"p{number}" for number in range(20)]
    more = Sweep(axes=[Zip(columns=[Values(name=name, values=[1]) for name in names])])
    family = Family(path="in.dat", source="{p0}", files={"1": blob("a")})
    renderer = Renderer(Target(command="p", source=more, families=[family]))
    tracemalloc.start()
    try:
        peaks = []
        for number in range(1000):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            renderer.extend(more, [{f"f{number}": blob("b")}])
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert sorted(peaks[-100:])[50] < 2 * sorted(peaks[:100])[50]


def test_failed_extension_changes_no_task():
    renderer = with_files()
    with pytest.raises(ValueError):
        renderer.extend(Sweep(axes=[Values(name="x", values=[1])]), [{"d-1": blob("z")}, {}])
    assert renderer.count == 2 and renderer.inputs(0) == [("in.dat", *blob("a"))]


def test_range_of_ten_million_points_is_extended_by_arithmetic():
    old = Sweep(axes=[Range(name="x", first=1, last=10_000_000), Values(name="y", values=["a"])])
    new = Sweep(axes=[Values(name="y", values=["a"]), Range(name="x", first=1, last=30_000_000)])
    found = new_points(old, new)
    assert found and source_count(found) == 20_000_000
    assert found.axes == [Values(name="y", values=["a"]), Range(name="x", first=10_000_001, last=30_000_000)]
    assert new_points(new, old) is None
    again = new_points(old, Sweep(axes=[Range(name="x", first=-1, last=10_000_001), Values(name="y", values=["a"])]))
    assert again and sorted(Renderer(Target(command="p {x}", source=again)).params(i)["x"] for i in range(3)) == [
        -1, 0, 10_000_001]


def test_extension_that_must_list_too_many_points_is_refused():
    old = Sweep(axes=[Range(name="x", first=1, last=10_000_000)])
    with pytest.raises(TooLarge):
        new_points(old, Sweep(axes=[Range(name="x", first=1, last=10_000_000, step=2)]))
    with pytest.raises(TooLarge):
        new_points(old, Sweep(axes=[Range(name="x", first=-5_000_000, last=20_000_000)]))


def test_extension_with_different_parameters_is_refused():
    x, y = Values(name="x", values=[1]), Values(name="y", values=[1])
    for old, new in (([x], [x, y]), ([x, y], [x]), ([x], [y])):
        with pytest.raises(BadInput, match="parameter"):
            new_points(Sweep(axes=old), Sweep(axes=new))
        with pytest.raises(BadInput, match="parameter"):
            Renderer(Target(command="p", source=Sweep(axes=old))).extend(Sweep(axes=new))
        with pytest.raises(BadInput, match="parameter"):
            validate_source(Target(command="p", source=Sweep(axes=old)), Sweep(axes=new))


def test_derived_parameters_follow_the_new_sweep():
    old = Sweep(axes=[Values(name="x", values=[1])], derived=[Derived(name="out", template="r-{x}")])
    new = Sweep(axes=[Values(name="x", values=[1, 2])], derived=[Derived(name="out", template="s-{x}")])
    found = new_points(old, new)
    renderer = Renderer(Target(command="p {out}", source=old, outputs=["{out}"]))
    renderer.extend(found)
    assert [renderer.outputs(index) for index in range(renderer.count)] == [["r-1"], ["s-2"]]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Sweep) == found


def test_larger_sample_keeps_the_values_of_the_smaller():
    law = parse_law("x", "uniform(0, 1)")
    old, new = (Sweep(axes=[Sample(law=law, n=n, seed=7)]) for n in (50, 80))
    found = new_points(old, new)
    assert found and source_count(found) == 30
    latin = Sweep(axes=[Latin(columns=[law], n=10)])
    assert new_points(latin, latin) is None


# --- files -----------------------------------------------------------------------------------------------------


def blob(text):
    return (f"{ord(text):064x}", 1, 0o644)


def with_files():
    source = Sweep(axes=[Range(name="x", first=1, last=2)])
    files = {"d-1": blob("a"), "d-2": blob("b")}
    family = Family(path="in.dat", source="d-{x}", files=files)
    return Renderer(Target(command="p {x}", source=source, families=[family]))


def test_older_points_keep_their_files():
    renderer = with_files()
    more = Sweep(axes=[Values(name="x", values=[1, 3])])
    renderer.extend(more, [{"d-1": blob("z"), "d-3": blob("c")}])
    renderer.extend(Sweep(axes=[Values(name="x", values=[2, 4])]), [{"d-4": blob("d")}])
    renderer.extend(Sweep(axes=[Values(name="x", values=[1])]))
    wanted = [blob(letter) for letter in "abzcbdz"]
    assert [renderer.inputs(index) for index in range(renderer.count)] == [[("in.dat", *file)] for file in wanted]


def test_changed_file_is_refused_by_name():
    same_files([{"d-1": blob("a")}, {}], [{"d-1": blob("a"), "d-2": blob("b")}, {"d-1": blob("z")}])
    with pytest.raises(BadInput, match="'d-1' has changed"):
        same_files([{"d-1": blob("a")}], [{"d-2": blob("b"), "d-1": blob("z")}])


# --- grown by what it was drawn or read from -------------------------------------------------------------------


@pytest.mark.parametrize("law", ["normal(0, 1)", "uniform(0, 1)", "integer(1, 1000000)"])
def test_grown_sample_adds_only_its_new_points(law):
    def drawn(n):
        return Sweep(axes=[Sample(law=parse_law("x", law), n=n, seed=7), Values(name="y", values=["a", "b"])])

    found = new_points(drawn(20), drawn(30))
    assert found and source_count(found) == 20
    assert set(points(found)) == set(points(drawn(30))) - set(points(drawn(20)))


def test_grown_table_adds_only_its_new_rows():
    def table(*rows):
        return Sweep(axes=[Table(columns=["a", "b"], text="\n".join(rows), count=len(rows))])

    found = new_points(table("1,x", "2,y"), table("2,y", "3,x", "1,x", "3,x"))
    assert found and points(found) == [(("a", "3"), ("b", "x"))]
