"""Rescue files, as DAGMan writes and reads them: `x.dag.rescue001` says which nodes of `x.dag` are done.

A SUBDAG is one node of the DAG around it, and has a rescue file of its own beside its DAG file.  If two SUBDAGs have
the same DAG file, the outer rescue file lists their nodes as `NAME+inner`; DAGMan knows no such nodes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.bag import MAX_RETRIES
from windfall.model.suggest import nearest
from windfall.workflow.dagman.commands import MOST_TIMES
from windfall.workflow.dagman.lines import DagLine, LineError, lines, number, require_words
from windfall.workflow.dagman.nodes import Graph, Node, Subdag
from windfall.workflow.dagman.reader import MAX_FILE
from windfall.workflow.mistakes import KEPT, MistakeLog
from windfall.workflow.text import plain, read_file

MOST = 999  # rescue files of one DAG file; the last one is overwritten
SHOWN = 100  # names of failed nodes in a rescue file


def newest(file: Path) -> Path | None:
    return max((each for each in _numbered(file) if each[1].is_file()), default=(0, None))[1]


def _numbered(file: Path) -> list[tuple[int, Path]]:
    """Return the rescue files of a DAG file with their numbers; some may be folders."""
    return [(int(match[1]), path) for path in file.parent.glob(f"{_literal(file.name)}.rescue*")
            if (match := re.fullmatch(re.escape(file.name) + r"\.rescue(\d{3})", path.name))]


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def take_up(graph: Graph) -> list[Path]:
    """Mark the nodes that earlier runs have done; return the rescue files read."""
    units = [unit for unit in graph.subdags if not unit.shared]
    found = [(unit, file) for unit in (None, *units) if (file := newest(unit.file if unit else graph.file))]
    for unit, file in found:
        apply(graph, file, unit)
    return [file for _, file in found]


def apply(graph: Graph, file: Path, of: Subdag | None = None) -> int:
    """Mark nodes as done and return how many are.  A node that no longer exists is a mistake, as with DAGMan."""
    data = read_file(file, MAX_FILE)
    if len(data) > MAX_FILE:
        raise TooLarge(f"{file} is larger than {MAX_FILE >> 20} MiB")
    try:
        source = plain(str(file), data.decode())
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text") from None
    mistakes, known = MistakeLog(), _Known(graph, of)
    for line in lines(source):
        try:
            _apply(line, known)
        except LineError as wrong:
            mistakes.add(source, wrong.at, wrong.message, wrong.hint)
            if len(mistakes.each) >= KEPT:
                break
    mistakes.tell()
    return sum(node.done for node in graph.nodes)


class _Known:
    """The nodes and SUBDAGs by the names they have in one DAG file."""

    def __init__(self, graph: Graph, of: Subdag | None) -> None:
        cut, self.graph = len(of.prefix) if of else 0, graph
        self.nodes = {node.name[cut:]: node for node in (graph.inside(of) if of else graph.nodes)}
        self.units = {name[cut:]: unit for name, unit in graph.units.items() if not of or name.startswith(of.prefix)}

    def inside(self, name: str) -> list[Node]:
        if name in self.units:
            return self.graph.inside(self.units[name])
        return [self.nodes[name]] if name in self.nodes else []


def _apply(line: DagLine, known: _Known) -> None:
    if line.command not in ("DONE", "RETRY"):
        raise LineError(
            line.words[0].at,
            f"'{line.words[0].text[:50]}' is not expected in a rescue file",
            "a full rescue file is run by itself",
        )
    words = require_words(line, 2, 0, "DONE NAME")
    name = words[1].text
    if name not in known.nodes and name not in known.units:
        raise LineError(
            words[1].at, f"there is no node '{name[:50]}' any more", nearest(name, known.nodes) or "remove the line"
        )
    if line.command == "DONE":
        for node in known.inside(name):
            node.done = True
    else:
        whom: Node | Subdag = known.units[name] if name in known.units else known.nodes[name]
        times = number(require_words(line, 3, 0, "RETRY NAME TIMES")[2], 0, MOST_TIMES)
        whom.retries = min(times, MAX_RETRIES)


# --- writing ---------------------------------------------------------------------------------------------------------


def write(graph: Graph, done: Iterable[str], failed: Iterable[str]) -> Path:
    """Write the next rescue file of the DAG, and of each SUBDAG that is done in part."""
    done, failed = set(done), set(failed)
    for unit in graph.subdags:
        state = [node.name in done for node in graph.inside(unit)]
        if any(state) and not all(state):
            write_unit(graph, unit, done, failed)
    return _write(graph, None, done, failed)


def write_unit(graph: Graph, unit: Subdag, done: set[str], failed: set[str]) -> None:
    if not unit.shared:
        _write(graph, unit, done, failed)


def _write(graph: Graph, unit: Subdag | None, done: set[str], failed: set[str]) -> Path:
    """Write the next rescue file of a SUBDAG, or of the whole DAG."""
    file, prefix = (unit.file, unit.prefix) if unit else (graph.file, "")
    names = [node.name for node in graph.inside(unit) if node.guards != unit.name] if unit else graph.names
    count = min(max((number for number, _ in _numbered(file)), default=0) + 1, MOST)
    path = file.with_name(f"{file.name}.rescue{count:03}")
    left: dict[str, int] = {}  # node or SUBDAG of this file → how many nodes inside are not done
    bad: dict[str, None] = {}
    for name in names:
        shown = _outermost(graph, name, prefix)
        left[shown] = left.get(shown, 0) + (name not in done)
        if name in failed:
            bad[shown] = None
    good = [name for name, count in left.items() if not count]
    told = ",".join(list(bad)[:SHOWN])
    head = [
        "# Rescue DAG file, created after running", f"#   the {file.name} DAG file",
        time.strftime("# Created %m/%d/%Y %H:%M:%S UTC", time.gmtime()),
        "# Rescue DAG version: 2.0.1 (partial)", "#",
        f"# Total number of Nodes: {len(left)}", f"# Nodes premarked DONE: {len(good)}",
        f"# Nodes that failed: {len(bad)}", f"#   {told},<ENDLIST>", "",
    ]  # fmt: skip
    text = "\n".join([*head, *(f"DONE {name}" for name in good), ""])
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
    return path


def _outermost(graph: Graph, name: str, prefix: str) -> str:
    """Return a node's name in the file whose nodes have that prefix: its own, or that of the SUBDAG it is in."""
    parts = name[len(prefix) :].split("+")
    for count in range(1, len(parts)):
        around = "+".join(parts[:count])
        unit = graph.units.get(prefix + around)
        if unit is not None and not unit.shared:
            return around
    return name[len(prefix) :]
