"""What a bag is: the form in which it travels from client to server and rests in the journal.

A bag file is parsed into these records (`model/bagfile.py`), checked (`model/check.py`), and expanded only when a
task is granted (`model/render.py`): a sweep of ten million tasks is one record.

Times are integers in milliseconds, sizes in bytes, everywhere inside; only files and screens have units.
"""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything here: immutable, and an unknown field is an error."""


# --- parameter space -----------------------------------------------------------------------------------------

Value = int | float | str | bool


class Range(Record, frozen=True, tag="range"):
    """`name = "first..last:step"`, both ends included; a float anywhere makes all values floats."""

    name: str
    first: int | float
    last: int | float
    step: int | float = 1


class Values(Record, frozen=True, tag="values"):
    """`name = [a, b, c]`"""

    name: str
    values: list[Value]


class Zip(Record, frozen=True, tag="zip"):
    """Several lists walked together, as one axis of the product (`[[sweep.zip]]`)."""

    columns: list[Values]


class Derived(Record, frozen=True, tag="derived"):
    """`out = "result-{position}.txt"`: a value made of others; adds no points."""

    name: str
    template: str


Axis = Range | Values | Zip


class Sweep(Record, frozen=True, tag="sweep"):
    """The product of its axes, the last one fastest."""

    axes: list[Axis] = []
    derived: list[Derived] = []


class Lines(Record, frozen=True, tag="lines"):
    """Irregular tasks, one command a line: `text` holds them joined by newlines (no command contains one)."""

    text: str
    count: int


class Items(Record, frozen=True, tag="items"):
    """Irregular tasks that may contain newlines, or base64 payloads of calls."""

    items: list[str]


Source = Sweep | Lines | Items


# --- tasks -----------------------------------------------------------------------------------------------------


class Resources(Record, frozen=True):
    cores: int = 1
    memory: int = 0  # 0: not stated
    gpus: int = 0
    disk: int = 0


class Input(Record, frozen=True):
    """A file to lie at `path` (relative to the working directory) before the task starts."""

    path: str
    blob: str  # sha256 in hex
    size: int
    mode: int = 0o644


class Check(Record, frozen=True):
    """What makes a result valid."""

    exit: list[int] = msgspec.field(default_factory=lambda: [0])
    file: list[str] = []
    match: str = ""


class Target(Record, frozen=True):
    """A named group of independent tasks that share everything but their parameters."""

    name: str = "main"
    after: list[str] = []
    kind: str = "command"  # or "call"
    command: str | list[str] = ""  # template; empty where the source has the commands
    source: Source = Sweep()
    resources: Resources = Resources()
    time: int = 0  # limit, ms; 0: none
    expect: int = 0  # ms; 0: unknown
    grace: int = 5_000  # between SIGTERM and SIGKILL
    cost: str = ""  # relative cost: a template or a parameter's name
    inputs: list[Input] = []
    outputs: list[str] = []
    checkpoint: list[str] = []  # refused until there is a mechanism
    retries: int = 3
    memory_retries: int = 0  # after out-of-memory, this often again with twice the memory
    environment: dict[str, str] = {}
    setup: list[str] = []
    priority: int = 0
    check: Check = Check()


class Policy(Record, frozen=True):
    select: str = "fcfs"
    deadline: int = 0  # refused until there is a mechanism


class Bag(Record, frozen=True):
    name: str
    targets: list[Target]
    effects: str = "none"  # or "external": see P1
    policy: Policy = Policy()
    open: bool = False  # tasks may be appended until it is closed
    edges: list[tuple[int, int]] = []  # prerequisites between tasks: (before, after), numbers within the bag


MAX_TASKS = 100_000_000  # of one bag
MAX_NAME = 200
MAX_TEXT = 1 << 20  # one command, template or value
MAX_TARGETS = 10_000
