"""Where output files land: predictable, inside, and never two in one place."""

import pytest

from windfall.client.extend import Extension
from windfall.client.files import places
from windfall.client.files.places import check_template, is_flat
from windfall.errors import BadInput
from windfall.model.spec import Bag, Sweep, Target, Values


def bag(outputs, **axes):
    sweep = Sweep(axes=[Values(name, values) for name, values in axes.items()])
    return Bag("b", [Target("main", source=sweep, command="true", outputs=outputs)])


def rows(*names, **params):
    return [{"task": n, "target": "main", "params": {**params, "n": n}, "files": [[name, "0" * 64, 1, 0o644]]}
            for n, name in enumerate(names)]  # fmt: skip


class Results:
    def __init__(self, found):
        self.found = found

    def results(self, number, state):
        assert state == "succeeded"
        return iter(self.found)


def test_extension_that_repeats_a_name_makes_directories():
    had = bag(["out-{x}"], x=[1, 2], y=["a"])
    assert is_flat(had)
    assert is_flat(had, [Extension("main", Sweep(axes=[Values("x", [3]), Values("y", ["a"])]), [])])
    assert not is_flat(had, [Extension("main", Sweep(axes=[Values("x", [2]), Values("y", ["b"])]), [])])


def test_file_name_that_is_also_a_directory_makes_directories():
    assert not is_flat(bag(["{x}"], x=["a", "a/b"]))
    assert is_flat(bag(["{x}"], x=["a/c", "a/b"]))


@pytest.mark.parametrize(("template", "wanted"), [
    ("{target}/{task}/{path}", "main/1/d/o"), ("{n}-{u}-{path}", "1-true-d/o"), ("{{{task}}}", "{1}"),
    ("{task}/{path}", "1/d/o"),
])  # fmt: skip
def test_template_places_each_file(template, wanted):
    found = rows("o", "./d/o", u=True)
    place = places.placing(Results(found), 1, bag(["o"], n=[0, 1], u=[True]), template)
    assert place(found[1], "./d/o") == wanted


@pytest.mark.parametrize(("template", "names"), [
    ("{path}", ["o", "o"]), ("all", ["a", "b"]), ("{path}", ["a", "a/b"]), ("{path}", ["a/b", "a"]),
    ("../{task}/x", ["a"]), ("{u}/{path}", ["a"]), ("/{task}", ["a"]), ("{task}//{path}", ["a"]),
])  # fmt: skip
def test_template_with_clashes_or_ways_out_is_refused(template, names):
    with pytest.raises(BadInput):
        places.placing(Results(rows(*names, u="..")), 1, bag(["o"], n=[0, 1], u=[".."]), template)


def test_template_that_needs_too_many_comparisons_is_refused(monkeypatch):
    monkeypatch.setattr(places, "MAX_COMPARED", 3)
    found, spec = rows(*"abcde"), bag(["o"], n=[0])
    with pytest.raises(BadInput, match="cannot be compared"):
        places.placing(Results(found), 1, spec, "{n}/{path}")
    assert places.placing(Results(None), 1, spec, "{target}/{task}/{path}")(found[2], "c") == "main/2/c"


@pytest.mark.parametrize("template", ["{nobody}/{path}", "{", "{main.outputs}"])
def test_template_with_unknown_names_is_refused(template):
    with pytest.raises(BadInput):
        check_template(template, bag(["o"], x=[1]))
    if template != "{":
        check_template("{nobody}", bag([], x=[1]))  # a target without files needs no places
