"""The content of a DAG file of HTCondor's DAGMan: nodes, their order, and the scripts and retries around them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from windfall.workflow.dagman.lines import DagWord
from windfall.workflow.graphs.dag import Dag, DagShape
from windfall.workflow.graphs.named_graph import NamedGraph
from windfall.workflow.text import Source

_RETRY = re.compile(r"\$\(retry[):]", re.IGNORECASE)


def asks(text: str) -> bool:
    """Does the text ask for the number of the try?"""
    return "$" in text and _RETRY.search(text) is not None


@dataclass(frozen=True)
class Script:
    """`SCRIPT PRE|POST node program arguments`, run in the node's task, beside its job."""

    source: Source
    program: DagWord
    arguments: list[str]
    defer: tuple[int, int] | None = None  # exit code after which the script runs again, and the seconds between


@dataclass(slots=True)
class Node:
    name: str
    source: Source
    at: int
    folder: Path  # its file names begin here
    submit: DagWord | None = None
    inline: tuple[int, int] | None = None  # a submit description in the DAG file itself
    noop: bool = False
    done: bool = False
    pre: Script | None = None
    post: Script | None = None
    skip: int | None = None  # PRE_SKIP
    retries: int = 0
    unless: int | None = None  # UNLESS-EXIT
    abort: tuple[int, int | None] | None = None  # ABORT-DAG-ON: exit code of the node, and that of the whole DAG
    priority: int = 0
    category: str = ""
    vars: list[tuple[str, str, bool]] = field(default_factory=list)  # name, value, after the submit description?
    outside: str = ""  # prefix of the SUBDAG it is in, not part of its own name there
    tries: int = 0  # retries that `windfall run` has begun
    left: bool = False  # it has failed for good, or waits for a node that has
    described: bool = False  # its submit description uses $(RETRY)
    guards: str = ""  # the SUBDAG whose script this node runs

    @property
    def called(self) -> str:
        """The node's name in its own DAG."""
        return (self.guards or self.name)[len(self.outside) :]

    @property
    def asks(self) -> bool:
        """Does the node ask for its try's number?  A task does not know it, so `windfall run` makes each new try."""
        scripts = [each.upper() for script in (self.pre, self.post) if script for each in script.arguments]
        return self.described or "$RETRY" in scripts or any(asks(value) for _, value, _ in self.vars)

    @property
    def kind(self) -> str:
        if self.submit is None or self.submit.text == "{":
            return self.name.rsplit("+", 1)[-1]
        return _stem(self.submit.text)


@lru_cache(1_000)
def _stem(name: str) -> str:
    return Path(name).stem or name


@dataclass
class Subdag:
    """A SUBDAG EXTERNAL: nodes that are tried again together, with a rescue file of their own."""

    name: str
    file: Path
    folder: Path  # its file names begin here
    nodes: range = range(0)
    before: Node | None = None  # runs its PRE script
    after: Node | None = None  # runs its POST script
    retries: int = 0
    unless: int | None = None
    abort: tuple[int, int | None] | None = None  # ABORT-DAG-ON: 0 or 1, and the exit code of the whole DAG
    done: bool = False
    tries: int = 0
    shared: bool = False  # another SUBDAG has the same file, so neither can have a rescue file

    @property
    def prefix(self) -> str:
        return self.name + "+"

    def inside(self, nodes: list[Node]) -> list[Node]:
        """Return its nodes among all `nodes`, with those that run its own scripts."""
        around = (self.before, self.after)
        return [*nodes[self.nodes.start : self.nodes.stop], *(each for each in around if each is not None)]


class Pins(NamedTuple):
    """The nodes at each pin of a splice."""

    into: dict[int, list[int]]
    out: dict[int, list[int]]


class NodeGroup(NamedTuple):
    """The nodes of a splice or of a SUBDAG, which one name stands for."""

    nodes: range
    kind: str
    first: list[int]  # nodes that wait for no node of the group
    last: list[int]  # nodes that no node of the group waits for
    unit: Subdag | None = None
    unread: bool = False  # its file is not there, which is a mistake already


class Graph(NamedGraph):
    """A DAG file as a graph: node k of `nodes` is task k, done nodes included."""

    def __init__(self, file: Path, found: DagContents, dag: Dag, shape: DagShape) -> None:
        self.file, self.nodes, self.pairs = file, found.nodes, found.pairs
        self.final, self.most, self.notes = found.final, found.most, found.notes
        self.described, self.subdags = found.described, found.subdags
        self.units = {unit.name: unit for unit in self.subdags}
        self.dag, self.shape = dag, shape
        self.title = file.stem
        self.last = False  # is the FINAL node being run now?
        self.parts: dict[str, str] = {}  # name of a task → its node, where the node queues several jobs
        self.bag = 0  # number of the DAG's first bag, once known
        self.names = [node.name for node in self.nodes]
        self.kinds = [node.kind for node in self.nodes]

    def requirements(self) -> dict[str, Any]:
        return {**super().requirements(), "doubts": list(self.notes)}

    def inside(self, unit: Subdag) -> list[Node]:
        return unit.inside(self.nodes)

    @property
    def attended(self) -> bool:
        """Must `windfall run` itself retry any node or SUBDAG?"""
        return any(each.retries for each in self.subdags) or any(node.retries and node.asks for node in self.nodes)

    @property
    def aborts(self) -> list[Node | Subdag]:
        """The nodes and SUBDAGs with an ABORT-DAG-ON."""
        units: list[Node | Subdag] = [unit for unit in self.subdags if unit.abort]
        return [*(node for node in self.nodes if node.abort), *units]

    @property
    def base(self) -> Path:
        """The folder where relative names begin."""
        return self.file.parent


@dataclass
class DagContents:
    """The content read so far, from all files."""

    nodes: list[Node] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)  # edges, some of them twice
    final: Node | None = None
    most: dict[str, int] = field(default_factory=dict)  # MAXJOBS of each category
    described: dict[str, tuple[Source, int, int]] = field(default_factory=dict)  # SUBMIT-DESCRIPTION
    notes: dict[str, None] = field(default_factory=dict)
    subdags: list[Subdag] = field(default_factory=list)  # outer ones first
    units: dict[Path, Subdag] = field(default_factory=dict)  # file → the first SUBDAG that has it
    files: int = 0
    text: int = 0  # letters of all files
    by_all_nodes: int = 0  # nodes named through ALL_NODES
    given: int = 0  # variables given to nodes
    places: dict[int, int] = field(default_factory=dict)  # identity of a node → its number
    by_name: dict[str, Node] = field(default_factory=dict)  # the first nodes by their full names, see `node`
    pins: dict[str, Pins] = field(default_factory=dict)  # prefix of a splice → its pins

    def node(self, name: str) -> Node | None:
        """Return the node of that full name, if it has been read."""
        for node in self.nodes[len(self.by_name) :]:
            self.by_name[node.name] = node
        return self.by_name.get(name)
