import math

import pytest
from hypothesis import given, strategies as st

from windfall.errors import BadInput
from windfall.model.spec import Latin, Sample, Sweep
from windfall.model.templates.render import Space
from windfall.model.templates.sample import draw_latin, draw_sample, parse_law


def sample(law, n=1000, seed=7, name="x"):
    draw = draw_sample(Sample(law=parse_law(name, law), n=n, seed=seed))
    return [draw(i) for i in range(n)]


def latin(law, n, seed=1, name="x"):
    axis = Latin(columns=[parse_law(name, law)], n=n, seed=seed)
    draw = draw_latin(axis, axis.columns[0])
    return [draw(i) for i in range(n)]


def test_sampled_values_never_change_between_versions():
    """A changed value here would change the tasks of existing bags."""
    assert sample("uniform(0, 1)", 3) == GOLDEN["uniform"]
    assert sample("loguniform(1e-3, 1)", 3) == GOLDEN["loguniform"]
    assert sample("normal(0, 1)", 3) == GOLDEN["normal"]
    assert sample("integer(1, 1_000_000)", 3) == GOLDEN["integer"]
    assert latin("uniform(0, 1)", 3) == GOLDEN["latin"]


GOLDEN = {
    "uniform": [0.654118148183, 0.928851697731, 0.431837465754],
    "loguniform": [0.0916968558378, 0.611723399286, 0.0197475124936],
    "normal": [0.396462721288, 1.46729212688, -0.171698033994],
    "integer": [654119, 928852, 431838],
    "latin": [0.363949306892, 0.996244798487, 0.328733198624],
}


@pytest.mark.parametrize(
    ("law", "mean", "low", "high"),
    [
        ("uniform(-1, 3)", 1.0, -1, 3),
        ("loguniform(0.01, 100)", (100 - 0.01) / math.log(100 / 0.01), 0.01, 100),
        ("normal(5, 2)", 5.0, -10, 20),
        ("integer(1, 6)", 3.5, 1, 6),
    ],
)
def test_samples_have_the_mean_and_bounds_of_their_law(law, mean, low, high):
    for values in (sample(law, 4000), latin(law, 1000)):
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
        assert all(low <= v <= high for v in values)
        assert abs(sum(values) / len(values) - mean) < 5 * spread / math.sqrt(len(values))


def test_integer_sample_reaches_both_ends():
    assert set(sample("integer(1, 6)", 200)) == {1, 2, 3, 4, 5, 6}


def test_sample_depends_on_seed_name_and_number_alone():
    assert sample("uniform(0, 1)", 10) == sample("uniform(0, 1)", 20)[:10]
    assert sample("uniform(0, 1)", seed=7) != sample("uniform(0, 1)", seed=8)
    assert sample("uniform(0, 1)", name="x") != sample("uniform(0, 1)", name="y")


@given(st.integers(1, 300), st.integers(-5, 5))
def test_latin_hypercube_hits_every_part_once(n, seed):
    values = latin("uniform(0, 1)", n, seed)
    assert sorted(int(v * n) for v in values) == list(range(n))


def test_columns_of_a_hypercube_are_independent():
    axis = Latin(columns=[parse_law("x", "uniform(0,1)"), parse_law("y", "uniform(0,1)")], n=500)
    columns = Space(Sweep(axes=[axis])).columns
    x, y = (columns[name].values(range(500)) for name in "xy")
    correlation = sum((a - 0.5) * (b - 0.5) for a, b in zip(x, y)) / 500 * 12
    assert x != y and abs(correlation) < 0.2


@pytest.mark.parametrize(
    "text",
    ["", "uniform", "uniform()", "uniform(1)", "uniform(1,2,3)", "uniform(2,1)", "uniform(0,nan)", "uniform(0,inf)",
     "uniform(0,1e999)", "loguniform(0,1)", "normal(0,0)", "integer(1.5,3)", "integer(3,1)", "gauss(0,1)",
     "uniform(a,b)", "uniform(0,1)" * 30, "integer(0, 99999999999999999999999999)", "__import__('os')(1,2)"],
)  # fmt: skip
def test_invalid_law_is_refused_with_its_parameter(text):
    with pytest.raises(BadInput, match="'x'"):
        parse_law("x", text)
