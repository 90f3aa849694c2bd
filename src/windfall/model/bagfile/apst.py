"""Reader for APST's task files, one task per line: program and arguments, input files, output files, relative cost.

    # blast one sequence each
    blast seq1.fa -o r1.txt ; in: seq1.fa, ../db/nt.idx -> nt.idx ; out: r1.txt ; cost: 3.5
    blast seq2.fa -o r2.txt ; in: seq2.fa, ../db/nt.idx -> nt.idx ; out: r2.txt

A part begins with ` ; in:`, ` ; out:` or ` ; cost:`; any other semicolon belongs to the command, which `/bin/sh` reads.
Braces mean nothing here.  Lines become the rows of a table: `command`, `in1`, `at1` …, `out1` …, `cost`; where a task
has fewer files than another, the rest is empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput, TooLarge
from windfall.model.bagfile import words
from windfall.model.bagfile.inputs import Blob, place_of
from windfall.model.bagfile.reader import MAX_FILE, BagReader, OptionsLocator, Parsed, read_text
from windfall.model.checks import bag as check
from windfall.model.spec import Bag, Family, Sweep, Table, Target
from windfall.model.suggest import nearest
from windfall.model.templates import template as tpl
from windfall.model.templates.table import format_row, lines, parse_row

MAX_EACH = 300  # inputs, or outputs, of one line

_PART = re.compile(r"(?:^|\s);\s*([A-Za-z]+)\s*:")
_PARTS = ("in", "out", "cost")


class TaskLine(NamedTuple):
    command: str
    inputs: list[tuple[str, str]]  # name here, place there
    outputs: list[str]
    cost: str


def load(
    path: str | Path, name: str = "", task: dict[str, object] | None = None, base: Path = Path()
) -> Parsed:
    """Read a file and find its inputs beside it; "-" is standard input, whose inputs lie in `base`.

    `task` has keys of `[task]` that apply to every line.
    """
    if path == "-":
        return parse(standard_input(), "standard input", base, name or "tasks", task or {})
    path = Path(path)
    return parse(read_text(path, "the file of tasks"), str(path), path.parent, name or path.stem, task or {})


def standard_input() -> str:
    import sys

    data = sys.stdin.buffer.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise TooLarge(f"the tasks are larger than {MAX_FILE >> 20} MiB", where="standard input")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput("the tasks are not UTF-8 text", where=f"standard input:{line}") from None


def written(table: Table) -> str:
    """Return the lines from which a table of tasks was read."""
    return "\n".join(_written(dict(zip(table.columns, parse_row(line), strict=True))) for line in lines(table))


def _written(row: dict[str, str]) -> str:
    pairs = [(row[f"in{n}"], row[f"at{n}"]) for n in range(1, MAX_EACH + 1) if row.get(f"in{n}")]
    outputs = [row[f"out{n}"] for n in range(1, MAX_EACH + 1) if row.get(f"out{n}")]
    parts = [row["command"]]
    parts += ["in: " + ", ".join(f"{source} -> {place}" for source, place in pairs)] if pairs else []
    parts += ["out: " + ", ".join(outputs)] if outputs else []
    return " ; ".join([*parts, f"cost: {row['cost']}"])


def parse(text: str, file: str, base: Path, name: str, task: dict[str, object]) -> Parsed:
    reader = BagReader(OptionsLocator(), base)
    tasks, files = [], dict[str, Blob]()
    for where, line in _lines(text, file):
        try:
            found = _task(line)
            files.update((source, reader.files.blob(source)) for source, _ in found.inputs)
        except BadInput as error:
            error.where, error.text = where, error.text or tpl.excerpt(line)
            raise
        tasks.append(found)
    if not tasks:
        raise BadInput("the file has no tasks", "write one command a line", where=file)
    target = reader.with_task(_target(tasks, files), task)
    bag = Bag(name=name, targets=[target])
    reader.validate(bag)
    return Parsed(bag, reader.files.uploads, reader.pythons)


def _lines(text: str, file: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if line and not line.startswith("#"):
            yield f"{file}:{number}", line


def _task(line: str) -> TaskLine:
    """Read the task of a line."""
    if "\0" in line:
        raise BadInput("the line has a NUL character")
    command, *parts = _PART.split(line)
    if not command.strip():
        raise BadInput("there is no command before the first ';'")
    given: dict[str, list[str]] = {}
    for key, text in zip(parts[::2], parts[1::2], strict=True):
        if key in given:
            raise BadInput(f"'; {key}:' is given twice", "separate files by commas", text=f"; {key}:")
        given[key] = _entries(key, text)
    outputs = words.paths(given.get("out", []), "out")
    return TaskLine(command.strip(), list(map(_input, given.get("in", []))), outputs, _cost(given.get("cost", ["1"])))


def _entries(key: str, text: str) -> list[str]:
    if key not in _PARTS:
        raise BadInput(f"a task has no part '; {key}:'", nearest(key, _PARTS), text=f"; {key}:")
    entries = [each.strip() for each in text.split(",")]
    if "" in entries or len(entries) > MAX_EACH:
        raise BadInput(f"'; {key}:' needs 1 to {MAX_EACH} entries with commas between them", text=f"; {key}:")
    return entries


def _input(text: str) -> tuple[str, str]:
    source, arrow, place = (part.strip() for part in text.partition("->"))
    if not source or (arrow and not place):
        raise BadInput("not an input file", 'as in "a.dat" or "a.dat -> data/a.dat"', text=tpl.excerpt(text))
    return source, check.relative_path(place_of(source, place), "in")


def _cost(texts: list[str]) -> str:
    try:
        if len(texts) == 1 and math.isfinite(float(texts[0])) and float(texts[0]) >= 0:
            return texts[0]
    except ValueError:
        pass
    raise BadInput("cost must be one number, 0 or more", "; cost: 3.5", text=tpl.excerpt(", ".join(texts)))


def _target(tasks: list[TaskLine], files: dict[str, Blob]) -> Target:
    inputs = range(1, 1 + max(len(task.inputs) for task in tasks))
    outputs = range(1, 1 + max(len(task.outputs) for task in tasks))
    return Target(
        command=["/bin/sh", "-c", "{command}"],
        source=Sweep(axes=[_table(tasks, inputs, outputs)]),
        families=[_family(tasks, n, files) for n in inputs],
        outputs=[f"{{out{n}}}" for n in outputs],
        cost="{cost}",
    )


def _table(tasks: list[TaskLine], inputs: range, outputs: range) -> Table:
    files_in, files_out = (f"{part}{n}" for n in inputs for part in ("in", "at")), (f"out{n}" for n in outputs)
    columns = ["command", *files_in, *files_out, "cost"]
    rows = (_row(task, len(inputs), len(outputs)) for task in tasks)
    return Table(columns=columns, text="\n".join(map(format_row, rows)), count=len(tasks))


def _family(tasks: list[TaskLine], n: int, files: dict[str, Blob]) -> Family:
    """Return the n-th inputs of all tasks."""
    names = {task.inputs[n - 1][0] for task in tasks if len(task.inputs) >= n}
    return Family(path=f"{{at{n}}}", source=f"{{in{n}}}", files={name: files[name] for name in sorted(names)})


def _row(task: TaskLine, inputs: int, outputs: int) -> list[str]:
    into = [*chain.from_iterable(task.inputs), *[""] * (2 * (inputs - len(task.inputs)))]
    return [task.command, *into, *task.outputs, *[""] * (outputs - len(task.outputs)), task.cost]
