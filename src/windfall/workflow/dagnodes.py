"""What a DAG file of HTCondor's DAGMan says: nodes, their order, and what shall happen around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .dag import Dag, Shape
from .daglines import Word
from .listed import Listed
from .text import Source


@dataclass(frozen=True)
class Script:
    """`SCRIPT PRE|POST node program arguments`, run in the node's task, beside its job."""

    source: Source
    program: Word
    arguments: list[str]
    defer: tuple[int, int] | None = None  # with this exit code it is tried again after so many seconds


@dataclass
class Node:
    name: str
    source: Source
    at: int
    folder: Path  # its files are looked for from here
    submit: Word | None = None
    inline: tuple[int, int] | None = None  # a submit description in the DAG file itself
    noop: bool = False
    done: bool = False
    pre: Script | None = None
    post: Script | None = None
    skip: int | None = None  # PRE_SKIP
    retries: int = 0
    unless: int | None = None  # UNLESS-EXIT
    abort: tuple[int, int | None] | None = None  # ABORT-DAG-ON: exit code, and the DAG's own then
    priority: int = 0
    category: str = ""
    vars: list[tuple[str, str, bool]] = field(default_factory=list)  # name, value, after the submit description?

    @property
    def kind(self) -> str:
        if self.submit is None or self.submit.text == "{":
            return self.name.rsplit("+", 1)[-1]
        return Path(self.submit.text).stem or self.submit.text


class Group(NamedTuple):
    """Nodes that one name stands for: of a splice, or of a SUBDAG."""

    nodes: range
    kind: str
    first: list[int]  # they wait for nobody in it
    last: list[int]  # nobody in it waits for them


class Graph(Listed):
    """Node k of `nodes` is task k, done ones included."""

    def __init__(self, file: Path, found: Found, dag: Dag, shape: Shape) -> None:
        self.file, self.nodes, self.pairs = file, found.nodes, found.pairs
        self.final, self.most, self.notes = found.final, found.most, found.notes
        self.described = found.described
        self.dag, self.shape = dag, shape
        self.title = file.stem
        self.names = [node.name for node in self.nodes]
        self.kinds = [node.kind for node in self.nodes]

    def requirements(self) -> dict[str, Any]:
        return {**super().requirements(), "doubts": list(self.notes)}

    @property
    def base(self) -> Path:
        """Where relative names begin."""
        return self.file.parent


@dataclass
class Found:
    """What has been read so far, of all files."""

    nodes: list[Node] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)  # some may be there twice
    final: Node | None = None
    most: dict[str, int] = field(default_factory=dict)  # MAXJOBS of each category
    described: dict[str, tuple[Source, int, int]] = field(default_factory=dict)  # SUBMIT-DESCRIPTION
    notes: dict[str, None] = field(default_factory=dict)
    files: int = 0
    places: dict[int, int] = field(default_factory=dict)  # by identity, the number of each node
