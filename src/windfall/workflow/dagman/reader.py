"""Read DAG files of HTCondor's DAGMan into a graph.

Rules
  * All mistakes are reported together, each with file, line and column.
  * The reader collects a file's names before it follows the other commands, so the order of lines does not matter,
    except that of two commands about one property the later counts.
  * SPLICE and SUBDAG become nodes of the one graph, called `NAME+inner`.  A SUBDAG can still be retried as a whole.
    SCRIPT of a SUBDAG becomes a node before or after those inside.  A FINAL node inside is refused.
  * Relative names begin where the DAG file lies, or where DIR says; splices and includes begin where their parent does.
  * Files, nodes, edges and nesting are bounded; a file that includes itself, however indirectly, is a mistake.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from windfall.errors import BadInput, TooLarge
from windfall.model.suggest import nearest
from windfall.workflow.dagman.commands import LATER, Commands
from windfall.workflow.dagman.lines import DagLine, DagWord, LineError, lines, require_words
from windfall.workflow.dagman.nodes import DagContents, Graph, Node, NodeGroup, Subdag
from windfall.workflow.graphs.dag import cycle, shape
from windfall.workflow.graphs.named_graph import dag_of
from windfall.workflow.mistakes import KEPT, MistakeLog
from windfall.workflow.text import Source, read_source

MAX_FILE = 64 << 20
MAX_FILES = 10_000  # files read, each counted as often as it is read
MAX_TEXT = 256 << 20  # letters of all files
MAX_DEPTH = 32
MAX_NODES = 1_000_000
MAX_NAME = 200
WRONG = "+ "  # letters that no node's name may have

UNHEEDED = ("CONFIG", "DOT", "JOBSTATE_LOG", "NODE_STATUS_FILE", "SET_JOB_ATTR", "ENV", "SAVE_POINT_FILE")
REFUSED = {
    "PROVISIONER": "pilots are started by Windfall itself",
    "SERVICE": "run it beside the DAG, as a bag of its own",
    "REJECT": "it was written after a parse failure; use the original file",
}  # fmt: skip


@dataclass(frozen=True)
class FilePosition:
    """The position of a file among nested files."""

    folder: Path
    prefix: str = ""
    stack: tuple[Path, ...] = ()  # the files around it
    outside: str = ""  # prefix of the SUBDAG it is in


def load(path: Path) -> Graph:
    reader = DagReader()
    reader.read(path, FilePosition(path.parent))
    reader.mistakes.tell()
    found = reader.found
    if not found.nodes and found.final is None:
        raise BadInput(f"{path} has no nodes", "JOB NAME SUBMIT-FILE")
    _tell_apart(found)
    dag = dag_of(len(found.nodes), found.pairs)
    order = shape(dag)
    if len(order.order) < dag.nodes:
        circle = [found.nodes[each - 1] for each in cycle(dag, order)]
        names = " → ".join(node.name for node in [*circle[:8], circle[0]])
        raise circle[0].source.mistake(circle[0].at, f"nodes wait for each other in a circle: {names}")
    return Graph(path, found, dag, order)


def _tell_apart(found: DagContents) -> None:
    """Give nodes of one name in one folder their full names; else both would leave the same files."""
    if found.subdags:
        count = Counter((node.folder, node.called) for node in found.nodes)
        for node in [node for node in found.nodes if count[node.folder, node.called] > 1]:
            node.outside = ""


class DagReader:
    """Reads nested files: `found` grows with every file, `mistakes` collects the mistakes instead of raising them."""

    def __init__(self) -> None:
        self.found = DagContents()
        self.mistakes = MistakeLog()

    def read(self, path: Path, place: FilePosition) -> range:
        """Read a file and return the numbers of its nodes."""
        first = len(self.found.nodes)
        _FileReader(self, place).read(self.source(path))
        return range(first, len(self.found.nodes))

    def source(self, path: Path) -> Source:
        source = read_source(path, MAX_FILE)
        self.found.files += 1
        self.found.text += len(source.text)
        if self.found.files > MAX_FILES:
            raise TooLarge(f"more than {MAX_FILES:,} files are spliced and included")
        if self.found.text > MAX_TEXT:
            raise TooLarge(f"files that are spliced and included have more than {MAX_TEXT >> 20} MiB in all")
        return source


class _LogMistakes:
    """Catches a mistake in a line and adds it to the log."""

    def __init__(self, reader: DagReader, line: DagLine) -> None:
        self.reader, self.line = reader, line

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, LineError):
            return False
        self.reader.mistakes.add(self.line.source, error.at, error.message, error.hint)
        if len(self.reader.mistakes.each) >= KEPT:
            self.reader.mistakes.tell()
        return True


class _FileReader:
    """Reads one file with its includes; its commands may use `names`."""

    def __init__(self, reader: DagReader, place: FilePosition) -> None:
        self.reader, self.place, self.found = reader, place, reader.found
        self.names: dict[str, Node | NodeGroup] = {}
        self.own: list[Node] = []  # the nodes that ALL_NODES names
        self.stack = place.stack

    def read(self, source: Source) -> None:
        self.stack = (*self.place.stack, Path(source.file).resolve())
        later = []
        for line in self._lines(source, self.place.stack):
            if line.command in LATER:
                later.append(line)
            else:
                with _LogMistakes(self.reader, line):
                    self._names(line)
        commands = Commands(names=self.names, own=self.own, found=self.found, prefix=self.place.prefix,
                            outside=self.place.outside)
        for line in sorted(later, key=lambda line: line.command != "SCRIPT"):  # scripts of SUBDAGs are nodes, too
            with _LogMistakes(self.reader, line):
                LATER[line.command](commands, line)

    def _lines(self, source: Source, stack: tuple[Path, ...]) -> Iterator[DagLine]:
        """Yield the lines of a file, those of included files in place."""
        stack = (*stack, Path(source.file).resolve())
        for line in lines(source):
            if line.command != "INCLUDE":
                yield line
                continue
            included = None
            with _LogMistakes(self.reader, line):
                (_, name) = require_words(line, 2, 2, "INCLUDE FILE")
                included = self.reader.source(self._file(name, self.place.folder, stack))
            if included is not None:
                yield from self._lines(included, stack)

    def _names(self, line: DagLine) -> None:
        if line.command in FIRST:
            FIRST[line.command](self, line)
        elif line.command in UNHEEDED:
            self.found.notes[f"{line.command} is ignored"] = None
        elif line.command in REFUSED:
            raise LineError(line.words[0].at, f"{line.command} is not supported", REFUSED[line.command])
        else:
            raise LineError(
                line.words[0].at,
                f"there is no command '{line.words[0].text[:50]}'",
                nearest(line.command, [*FIRST, *LATER, "INCLUDE"]),
            )

    def _file(self, word: DagWord, folder: Path, stack: tuple[Path, ...]) -> Path:
        if "\0" in word.text:
            raise LineError(word.at, "a null byte cannot be in the name of a file")
        path = folder / word.text
        if path.resolve() in stack:
            raise LineError(
                word.at, f"'{word.text}' includes itself", "directly, or through a file that it includes or splices"
            )
        if len(stack) >= MAX_DEPTH:
            raise LineError(word.at, f"files are nested more than {MAX_DEPTH} deep")
        if not os.path.isfile(path):
            raise LineError(word.at, f"there is no file {path}",
                            "relative names start at the DAG file's folder, or at DIR")
        return path

    # --- names -------------------------------------------------------------------------------------------------------

    def job(self, line: DagLine) -> None:
        node = self._node(line, 1, "JOB NAME SUBMIT-FILE [DIR FOLDER] [NOOP] [DONE]", done=True)
        self._name(line.words[1], node)
        self.own.append(node)
        self.found.nodes.append(node)
        if len(self.found.nodes) > MAX_NODES:
            raise TooLarge(f"more than {MAX_NODES:,} nodes")

    def final(self, line: DagLine) -> None:
        node = self._node(line, 1, "FINAL NAME SUBMIT-FILE [DIR FOLDER] [NOOP]", done=False)
        if self.place.prefix:
            raise LineError(
                line.words[0].at, "a splice, or a SUBDAG, has no FINAL node of its own", "put it in the outer DAG"
            )
        if self.found.final is not None:
            raise LineError(
                line.words[0].at, f"there is a FINAL node already: '{self.found.final.name}'", "one is enough"
            )
        self._name(line.words[1], node)
        self.found.final = node

    def _node(self, line: DagLine, first: int, usage: str, done: bool) -> Node:
        words = require_words(line, first + 2, 0, usage)
        folder, noop, is_done = self._options(words[first + 2 :], done)
        if words[first + 1].text == "{" and line.body is None:
            raise LineError(words[first + 1].at, "the submit description has no end", "a line with } alone ends it")
        where = self.place.folder / folder if folder else self.place.folder
        return Node(
            name=self.place.prefix + words[first].text, source=line.source, at=words[first].at, folder=where,
            submit=words[first + 1], inline=line.body, noop=noop, done=is_done, outside=self.place.outside,
        )  # fmt: skip

    def _options(self, words: list[DagWord], done: bool) -> tuple[str, bool, bool]:
        folder, found, at = "", dict[str, None](), 0
        while at < len(words):
            word = words[at]
            if word.upper == "DIR" and at + 1 < len(words):
                folder, at = words[at + 1].text, at + 1
            elif word.upper == "NOOP" or (word.upper == "DONE" and done):
                found[word.upper] = None
            else:
                raise LineError(word.at, f"'{word.text}' is not understood here", "DIR FOLDER, NOOP" + ", DONE" * done)
            at += 1
        return folder, "NOOP" in found, "DONE" in found

    def _name(self, word: DagWord, what: Node | NodeGroup) -> None:
        bad = word.upper in ("PARENT", "CHILD", "ALL_NODES") or any(letter in word.text for letter in WRONG)
        if bad or len(word.text) > MAX_NAME or not word.text.isprintable():
            raise LineError(
                word.at,
                f"'{word.text[:50]}' cannot be the name of a node",
                f"without +, at most {MAX_NAME} letters, and neither PARENT, CHILD nor ALL_NODES",
            )
        if word.text in self.names:
            raise LineError(word.at, f"the name '{word.text}' is taken", "give each node a name of its own")
        self.names[word.text] = what

    def splice(self, line: DagLine) -> None:
        words = require_words(line, 3, 0, "SPLICE NAME DAG-FILE [DIR FOLDER]")
        folder, noop, _ = self._options(words[3:], False)
        if noop:
            raise LineError(line.words[-1].at, "a splice cannot be NOOP", "its nodes can")
        self._inside(words[1], words[2], folder)

    def subdag(self, line: DagLine) -> None:
        words = require_words(line, 4, 0, "SUBDAG EXTERNAL NAME DAG-FILE [DIR FOLDER] [NOOP] [DONE]")
        if words[1].upper != "EXTERNAL":
            raise LineError(words[1].at, f"'{words[1].text}' is not understood here", "SUBDAG EXTERNAL NAME DAG-FILE")
        folder, noop, done = self._options(words[4:], True)
        unit = Subdag(self.place.prefix + words[2].text, self.place.folder / folder / words[3].text,
                      self.place.folder / folder, done=done)
        first = self.found.units.setdefault(unit.file.resolve(), unit)
        first.shared = unit.shared = first is not unit
        self.found.subdags.append(unit)
        group = self._inside(words[2], words[3], folder, unit)
        unit.nodes = group.nodes
        for node in self.found.nodes[group.nodes.start : group.nodes.stop]:
            node.done = node.done or done
            if noop:  # DAGMan would not run the inner DAG: neither its jobs nor their scripts
                node.noop, node.pre, node.post = True, None, None

    def _inside(self, name: DagWord, file: DagWord, folder: str, unit: Subdag | None = None) -> NodeGroup:
        """Read the file of a splice, or of the SUBDAG `unit`, and return its nodes as a group."""
        prefix, kind = f"{self.place.prefix}{name.text}+", "SUBDAG" if unit else "splice"
        inner = FilePosition(self.place.folder / folder, prefix, self.stack, prefix if unit else self.place.outside)
        self._name(name, NodeGroup(range(0), kind, [], [], unit, unread=True))
        path = self._file(file, inner.folder, self.stack)
        edges = len(self.found.pairs)
        nodes = self.reader.read(path, inner)
        before, after = (set(each) for each in zip(*self.found.pairs[edges:], strict=True)) if (
            len(self.found.pairs) > edges) else (set(), set())
        group = NodeGroup(
            nodes,
            kind,
            [each for each in nodes if each not in after],
            [each for each in nodes if each not in before],
            unit,
        )
        self.names[name.text] = group
        return group

    def description(self, line: DagLine) -> None:
        words = require_words(line, 3, 3, "SUBMIT-DESCRIPTION NAME { … }")
        if words[2].text != "{" or line.body is None:
            raise LineError(words[2].at, "a { begins the description, and a line with } alone ends it")
        self.found.described[self.place.prefix + words[1].text] = (line.source, *line.body)


FIRST: dict[str, Callable[[_FileReader, DagLine], None]] = {
    "JOB": _FileReader.job, "FINAL": _FileReader.final, "SPLICE": _FileReader.splice, "SUBDAG": _FileReader.subdag,
    "SUBMIT-DESCRIPTION": _FileReader.description,
}  # fmt: skip
