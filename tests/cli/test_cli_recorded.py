"""Recorded workflows run as stand-ins: every edge is kept, and what comes out is a workflow of the same shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.live.real import CommandLine
from tests.workflow.test_wfformat import FILES, FOLDER, instance, needs_data, order, task
from windfall.workflow.wfformat.instance import load


def scale(path: Path) -> str:
    """Return the scale at which the average task takes a fiftieth of a second."""
    seconds = load(path).seconds
    return f"{0.02 * len(seconds) / max(sum(seconds), 1e-9):.9f}"


def check(windfall: CommandLine, path: Path) -> None:
    done = windfall.json("run", path, "--stand-ins", "--scale", scale(path))
    workflow = load(path)
    assert done["tasks"] == done["succeeded"] == workflow.tasks
    rows = windfall.json("results", done["bag"])
    began = {row["params"]["id"]: row["started"] for row in rows}
    ended = {row["params"]["id"]: row["ended"] for row in rows}
    assert [(a, b) for b, before in order(workflow).items() for a in before if began[b] < ended[a]] == []
    written = windfall.json("results", done["bag"], "--wfformat", "out.json")
    assert written["tasks"] == workflow.tasks
    raw = json.loads((windfall.folder / "out.json").read_text())
    jsonschema.Draft202012Validator(json.loads((FOLDER / "schema-1.5.json").read_text())).validate(raw)
    again = load(windfall.folder / "out.json")
    assert order(again) == order(workflow)
    assert {spec.id: spec.name for spec in again.specs} == {spec.id: spec.name for spec in workflow.specs}
    assert len(raw["workflow"]["execution"]["tasks"]) == workflow.tasks


@needs_data
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_workflow_runs_in_order_as_stand_ins(windfall: CommandLine, path: Path) -> None:
    check(windfall, path)


def write(windfall: CommandLine, *tasks: dict[str, Any]) -> str:
    return windfall.write("w.json", json.dumps(instance(*tasks)))


def test_options_that_do_not_fit_a_recorded_workflow_are_refused(windfall: CommandLine) -> None:
    file = write(windfall, task("a"))
    for words, said in (
        (["--stand-ins", "--scale", "-1"], "a scale of -1.0"),
        (["--scale", "2"], "--scale goes with --stand-ins"),
        (["--stand-ins", "--cores", "2"], "do not go with a graph's file"),
        (["--stand-ins", "--scale", "nan"], "a scale of nan"),
    ):
        done = windfall("run", file, *words)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    done = windfall("run", "true", "--stand-ins")
    assert done.returncode == 2 and "recorded" in done.stderr
    done = windfall("run", "missing.json", "--stand-ins")
    assert done.returncode == 2 and "cannot read missing.json" in done.stderr


def test_recorded_commands_run_and_pass_their_files(windfall: CommandLine) -> None:
    """Files go from task to task; what nobody makes, and a program of one's own, lie beside the workflow's file."""
    windfall.write("here.txt", "here\n")
    (windfall.folder / windfall.write("join.sh", '#!/bin/sh\ncat "$@" > all.txt\n')).chmod(0o755)
    tasks = [{**task("a"), "outputFiles": ["/d/a.txt"]},
             {**task("b"), "inputFiles": ["here.txt"], "outputFiles": ["b.txt"]},
             {**task("c", ["a", "b"]), "inputFiles": ["/d/a.txt", "b.txt", "here.txt"], "outputFiles": ["all.txt"]}]
    commands = {"a": ("mkdir -p d; echo", ["a > d/a.txt"]), "b": ("cat", ["here.txt", "> b.txt"]),
                "c": ("join.sh", ["d/a.txt b.txt", "here.txt"])}
    value = instance(*tasks)
    for run in value["workflow"]["execution"]["tasks"]:
        program, arguments = commands[run["id"]]
        run["command"] = {"program": program, "arguments": arguments}
    done = windfall.json("run", windfall.write("real.json", json.dumps(value)), "-o", "got")
    assert done["succeeded"] == 3
    assert (windfall.folder / "got" / "all.txt").read_text() == "a\nhere\nhere\n"
    windfall.json("results", done["bag"], "--wfformat", "out.json")
    again = load(windfall.folder / "out.json")
    assert order(again) == {"a": set(), "b": set(), "c": {"a", "b"}}
    (windfall.folder / "here.txt").unlink()
    done = windfall("run", "real.json")
    assert done.returncode == 2 and "reads 'here.txt', which no task before it leaves" in done.stderr


def test_own_bag_is_exported_as_a_workflow(windfall: CommandLine) -> None:
    """Targets that wait whole become edges; who failed, and who never ran, is in the graph all the same."""
    windfall.write("own.toml", """
[bag]
name = "own"
command = "echo {x} > r{x}.txt; exit $(({x} / 3))"
[sweep]
x = "1..3"
[task]
outputs = ["r{x}.txt"]
retries = 0
[targets.last]
after = ["main"]
command = "true"
""")
    done = windfall.json("run", "own.toml", code=1)
    windfall.json("results", done["bag"], "--wfformat", "own.json")
    workflow = load(windfall.folder / "own.json")
    assert order(workflow)["last-3"] == {"main-0", "main-1", "main-2"}
    assert {run.id for run in workflow.instance.workflow.execution.tasks} == {"main-0", "main-1", "main-2"}
    assert [spec.output_files for spec in workflow.specs[:2]] == [["r1.txt"], ["r2.txt"]]
