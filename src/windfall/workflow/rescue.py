"""Rescue files, as DAGMan writes and reads them: `x.dag.rescue001` says which nodes of `x.dag` are done."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from ..errors import BadInput, TooLarge
from ..model.check import MAX_RETRIES, nearest
from .daglines import Line, Wrong, lines, number, words_of
from .dagman import MAX_FILE
from .dagnodes import Graph, Node
from .mistakes import KEPT, Found as Mistakes
from .text import plain, read_file

MOST = 999  # the last one is written anew
SHOWN = 100  # names of nodes that failed


def newest(file: Path) -> Path | None:
    found = [(int(match[1]), path) for path in file.parent.glob(f"{_literal(file.name)}.rescue*")
             if (match := re.fullmatch(re.escape(file.name) + r"\.rescue(\d{3})", path.name))]
    return max(found)[1] if found else None


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def apply(graph: Graph, file: Path) -> int:
    """Mark nodes as done; returns how many.  A node that is not there any more is a mistake, as with DAGMan."""
    data = read_file(file, MAX_FILE)
    if len(data) > MAX_FILE:
        raise TooLarge(f"{file} is larger than {MAX_FILE >> 20} MiB")
    try:
        source = plain(str(file), data.decode())
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text") from None
    nodes, mistakes = {node.name: node for node in graph.nodes}, Mistakes()
    for line in lines(source):
        try:
            _apply(line, nodes)
        except Wrong as wrong:
            mistakes.add(source, wrong.at, wrong.message, wrong.hint)
            if len(mistakes.each) >= KEPT:
                break
    mistakes.tell()
    return sum(node.done for node in graph.nodes)


def _apply(line: Line, nodes: dict[str, Node]) -> None:
    if line.command not in ("DONE", "RETRY"):
        raise Wrong(line.words[0].at, f"'{line.words[0].text[:50]}' is not expected in a rescue file",
                    "a full rescue file is run by itself")
    words = words_of(line, 2, 0, "DONE NAME")
    if words[1].text not in nodes:
        raise Wrong(words[1].at, f"there is no node '{words[1].text[:50]}' any more",
                    nearest(words[1].text, nodes) or "remove the line")
    if line.command == "DONE":
        nodes[words[1].text].done = True
    else:
        nodes[words[1].text].retries = number(words_of(line, 3, 0, "RETRY NAME TIMES")[2], 0, MAX_RETRIES)


def write(graph: Graph, done: Iterable[str], failed: Iterable[str]) -> Path:
    """The next one after those there are."""
    done, failed = list(done), list(failed)
    last = newest(graph.file)
    count = min(int(last.name[-3:]) + 1 if last else 1, MOST)
    path = graph.file.with_name(f"{graph.file.name}.rescue{count:03}")
    names = ",".join(failed[:SHOWN])
    head = [
        "# Rescue DAG file, created after running", f"#   the {graph.file.name} DAG file",
        time.strftime("# Created %m/%d/%Y %H:%M:%S UTC", time.gmtime()),
        "# Rescue DAG version: 2.0.1 (partial)", "#",
        f"# Total number of Nodes: {len(graph.nodes)}", f"# Nodes premarked DONE: {len(done)}",
        f"# Nodes that failed: {len(failed)}", f"#   {names},<ENDLIST>", "",
    ]  # fmt: skip
    text = "\n".join([*head, *(f"DONE {name}" for name in done), ""])
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
    return path
