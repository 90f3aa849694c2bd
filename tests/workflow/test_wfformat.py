"""WfFormat 1.5: real workflows are read, checked as their schema asks, and written again."""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from windfall.errors import BadInput
from windfall.model.spec import Bag, Lines, Target
from windfall.workflow.graphs import sheet
from windfall.workflow.graphs.dag import reduction
from windfall.workflow.graphs.picture import dot, workflow_picture
from windfall.workflow.wfformat import recorded
from windfall.workflow.wfformat.export import exported
from windfall.workflow.wfformat.instance import RecordedWorkflow, dumps, load, loads, longest

FOLDER = Path(os.environ.get("WINDFALL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "wfformat"
FILES = sorted(path for path in FOLDER.glob("*.json") if not path.name.startswith("schema"))

needs_data = pytest.mark.skipif(not FILES and "WINDFALL_DATA" not in os.environ, reason="no WINDFALL_DATA is given")


@pytest.fixture(scope="module")
def schema() -> Any:
    return jsonschema.Draft202012Validator(json.loads((FOLDER / "schema-1.5.json").read_text()))


@needs_data
def test_all_nine_recorded_workflows_are_there() -> None:
    assert len(FILES) == 9


def order(workflow: RecordedWorkflow) -> dict[str, set[str]]:
    """Return for each task all tasks before it, from parents and children alone."""
    before: dict[str, set[str]] = {spec.id: set(spec.parents) for spec in workflow.specs}
    for spec in workflow.specs:
        for child in spec.children:
            before[child].add(spec.id)
    found: dict[str, set[str]] = {}

    def visit(task: str) -> set[str]:
        if task not in found:
            found[task] = before[task].union(*map(visit, before[task]))
        return found[task]

    return {task: visit(task) for task in before}


def test_file_that_is_not_utf_8_is_named() -> None:
    with pytest.raises(BadInput, match=r"run\.json is not UTF-8"):
        loads(b'{"name": "\xff"}', "run.json")


@needs_data
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_workflow_keeps_order_and_is_written_unchanged(path: Path, schema: Any) -> None:
    workflow = load(path)
    raw = json.loads(path.read_text())
    found, all_before = workflow.requirements(), order(workflow)
    assert found["tasks"] == len(raw["workflow"]["specification"]["tasks"]) == len(all_before)
    ids = [spec.id for spec in workflow.specs]
    direct = {(a, b) for b, before in all_before.items() for a in before if not any(a in all_before[c] for c in before)}
    pairs = reduction(workflow.dag, workflow.shape, pairs=True)[1]
    assert {(ids[a - 1], ids[b - 1]) for a, b in pairs} == direct and found["edges"] == len(direct)
    levels = dict(zip(ids, workflow.levels.tolist(), strict=True))
    assert all(levels[task] == max((levels[each] + 1 for each in before), default=0)
               for task, before in all_before.items())
    assert found["depth"] == max(levels.values()) + 1 == found["critical_path"]["tasks"]
    assert found["critical_path"]["seconds"] <= raw["workflow"]["execution"]["makespanInSeconds"] * 1.01
    written = dumps(workflow)
    schema.validate(json.loads(written))
    again = loads(written, "again")
    assert again.instance == workflow.instance and dumps(again) == written


@needs_data
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_tasks_are_written_back_in_full(path: Path) -> None:
    raw, written = json.loads(path.read_text())["workflow"], json.loads(dumps(load(path)))["workflow"]
    assert written["specification"] == raw["specification"]
    assert written["execution"] == raw["execution"]


@needs_data
def test_small_workflow_is_drawn_and_large_one_summed_up() -> None:
    few = workflow_picture(load(FOLDER / "helloworld-forkjoin-10-chameleon.json"), sheet.fits)
    assert not few.summary and len(few.nodes) == 10 and len(few.arrows) == 16
    many = workflow_picture(load(FOLDER / "seismology-chameleon-100p-001.json"), sheet.fits)
    assert many.summary and [node.tasks for node in many.nodes] == [100, 1] and many.arrows == [(0, 1)]
    assert sheet.draw(many).svg() and dot(many)


# --- mistakes --------------------------------------------------------------------------------------------------------


def task(name: str, parents: list[str] | None = None, children: list[str] | None = None) -> dict[str, Any]:
    return {"name": name, "id": name, "parents": parents or [], "children": children or []}


def instance(*tasks: dict[str, Any]) -> dict[str, Any]:
    command = {"program": "p", "arguments": ["x"]}
    runs = [{"id": each["id"], "runtimeInSeconds": 2.0, "command": command} for each in tasks]
    return {
        "name": "w", "schemaVersion": "1.5", "author": {"name": "n", "email": "e"},
        "workflow": {
            "specification": {"tasks": list(tasks), "files": [{"id": "f", "sizeInBytes": 3}]},
            "execution": {"makespanInSeconds": 9, "executedAt": "now", "tasks": runs,
                          "machines": [{"nodeName": "m", "system": "linux", "cpu": {"coreCount": 4}}]},
        },
    }  # fmt: skip


def read(value: Any) -> RecordedWorkflow:
    return loads(json.dumps(value).encode(), "w.json")


def test_parents_or_children_alone_define_the_order() -> None:
    workflow = read(instance(task("a", children=["b"]), task("b"), task("c", parents=["b"])))
    assert workflow.levels.tolist() == [0, 1, 2] and longest(workflow) == 6.0


@pytest.mark.parametrize(("value", "said"), [
    (instance(task("a"), task("a")), "two tasks have the id 'a'"),
    (instance(task("a", parents=["x"])), "task 'a' names 'x', and there is no such task"),
    (instance(task("a", parents=["b"]), task("b", parents=["a"])), "in a circle"),
    (instance(task("a", parents=["a"])), "in a circle: a"),
    ([], "is not WfFormat 1.5: Expected `object`"),
    ({**instance(task("a")), "schemaVersion": "1.4"}, "Invalid enum value '1.4'"),
])
def test_inconsistent_workflow_is_refused(value: Any, said: str) -> None:
    with pytest.raises(BadInput, match="w.json") as caught:
        read(value)
    assert said in caught.value.message


def ran(**more: Any) -> Any:
    """Return a workflow of one task whose record has other values."""
    value = instance(task("a"))
    value["workflow"]["execution"]["tasks"][0].update(more)
    return value


def test_records_must_fit_the_tasks() -> None:
    """Two records of one task contradict each other."""
    unknown, twice, files = instance(task("a")), instance(task("a")), instance(task("a"))
    unknown["workflow"]["execution"]["tasks"][0]["id"] = "b"
    twice["workflow"]["execution"]["tasks"] *= 2
    files["workflow"]["specification"]["files"] *= 2
    for value, said in ((unknown, "'b', and there is no such task"), (twice, "two records of task 'a'"),
                        (files, "two files have the id 'f'"), (ran(runtimeInSeconds=1e308), "1e\\+308 seconds")):
        with pytest.raises(BadInput, match=said):
            read(value)
    assert read(ran(runtimeInSeconds=-5)).seconds == [0.0]
    line = instance(task("a"))
    line["workflow"]["specification"]["tasks"][0]["outputFiles"] = ["x\n"]
    with pytest.raises(BadInput, match="outputFiles"):
        read(line)


def test_impossible_number_of_cores_is_refused() -> None:
    for count in (1e308, 1e19, 2e9):
        with pytest.raises(BadInput, match="task 'a' cannot have had"):
            recorded.parsed(read(ran(coreCount=count)), Path("."))
    assert recorded.parsed(read(ran(coreCount=1.5)), Path(".")).bag.targets[0].resources.cores == 2


def test_long_name_is_read_in_time() -> None:
    value = ran(command={})
    value["workflow"]["specification"]["tasks"][0]["name"] = "1" * 300_000 + "x"
    began = time.process_time()
    assert read(value).kinds == ["1" * 300_000 + "x"]
    assert time.process_time() - began < 5


@pytest.mark.parametrize(("name", "kind"), [("sift_ID0000012", "sift"), ("a-7", "a"), ("b12", "b"), ("IDID3", "ID"),
                                            ("42", "42"), ("_1", "_1"), ("x_y", "x_y"), ("x_", "x_")])
def test_kind_of_a_task_is_its_name_without_number(name: str, kind: str) -> None:
    value = ran(command={})
    value["workflow"]["specification"]["tasks"][0]["name"] = name
    assert read(value).kinds == [kind]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"name": NaN}'])
def test_malformed_json_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="x is not"):
        loads(data, "x")


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "a b", "é", "1.5", 1.5]),
                   st.just([]), st.just({}), st.just(["a"]), st.just([""]))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


WHOLE = instance(task("a", children=["b"]), task("b", parents=["a"]))
PLACES = [place for place in _places(WHOLE) if place]


@needs_data
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), st.one_of(st.just(KeyError), VALUES))
def test_reader_refuses_what_the_schema_refuses(schema: Any, place: tuple[Any, ...], value: Any) -> None:
    """The test leaves out one value, or replaces it."""
    changed = copy.deepcopy(WHOLE)
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    if value is KeyError:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    try:
        read(changed)
    except BadInput as error:
        beyond = any(said in error.message for said in ("no such task", "in a circle", "two tasks", "two records"))
        assert beyond or not schema.is_valid(changed)
    else:
        schema.validate(changed)


def test_files_of_one_name_stay_apart() -> None:
    bag = Bag(name="b", targets=[Target(source=Lines(text="one\ntwo", count=2))])
    left = [["x", "main-1/x"], ["x"]]
    rows = [{"task": number, "files": [[name, "", 10 * number + 1, 0o644] for name in names]}
            for number, names in enumerate(left)]
    found = exported(bag, rows).instance.workflow.specification
    assert [spec.output_files for spec in found.tasks] == [["x", "main-1/x"], ["main-1/main-1/x"]]
    assert found.files and [file.size_in_bytes for file in found.files] == [1, 1, 11]
