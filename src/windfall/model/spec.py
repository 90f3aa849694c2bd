"""The records of a bag, in which it travels from client to server and is stored in the journal.

The reader parses a bag file into these records (`model/bagfile/reader.py`), the server checks them
(`model/checks/bag.py`), and it renders a task only when it grants it (`model/templates/render.py`): a sweep of ten
million tasks is one record.

All times are integers in milliseconds, all sizes in bytes; only files and screens have units.
"""

from __future__ import annotations

import msgspec


class SpecRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all records: immutable, and an unknown field is an error."""


# --- parameter space -----------------------------------------------------------------------------------------

Value = int | float | str | bool


class Range(SpecRecord, frozen=True, tag="range"):
    """`name = "first..last:step"`, both ends included; a float anywhere makes all values floats."""

    name: str
    first: int | float
    last: int | float
    step: int | float = 1


class Values(SpecRecord, frozen=True, tag="values"):
    """`name = [a, b, c]`"""

    name: str
    values: list[Value]


class Zip(SpecRecord, frozen=True, tag="zip"):
    """Several lists that vary together, as one axis of the product (`[[sweep.zip]]`)."""

    columns: list[Values]


class Derived(SpecRecord, frozen=True, tag="derived"):
    """`out = "result-{position}.txt"`: a parameter made of others; it adds no points."""

    name: str
    template: str


class Law(SpecRecord, frozen=True):
    """The law of a random parameter: `uniform(0, 1)`, `loguniform(1e-3, 1)`, `normal(0, 1)`, `integer(1, 6)`."""

    name: str
    law: str
    arguments: list[int | float]


class Sample(SpecRecord, frozen=True, tag="sample"):
    """`x = { sample = "uniform(0, 1)", n = 50, seed = 7 }`: value i follows from seed, name and i alone."""

    law: Law
    n: int
    seed: int = 0


class Latin(SpecRecord, frozen=True, tag="latin"):
    """`[sweep.latin]`, a Latin hypercube: each column's range in n equal parts, each part hit once."""

    columns: list[Law]
    n: int
    seed: int = 0


class Table(SpecRecord, frozen=True, tag="table"):
    """`[sweep.csv]`: rows of a file as one axis.  `text` has them in one canonical form of CSV, without a header."""

    columns: list[str]
    text: str
    count: int


Axis = Range | Values | Zip | Sample | Latin | Table


class Sweep(SpecRecord, frozen=True, tag="sweep"):
    """The product of its axes, the last one fastest."""

    axes: list[Axis] = []
    derived: list[Derived] = []


class Lines(SpecRecord, frozen=True, tag="lines"):
    """Irregular tasks, one command a line: `text` holds them joined by newlines (no command contains one)."""

    text: str
    count: int


class Items(SpecRecord, frozen=True, tag="items"):
    """Irregular tasks that may contain newlines, or base64 payloads of calls."""

    items: list[str]


Source = Sweep | Lines | Items


# --- tasks -----------------------------------------------------------------------------------------------------


class Resources(SpecRecord, frozen=True):
    cores: int = 1
    memory: int = 0  # 0: not stated
    gpus: int = 0
    disk: int = 0
    whole: bool = False  # the whole node of a pilot; `cores` is then the least that the node must have
    nodes: int = 1  # on each of which the task has the resources above


class Input(SpecRecord, frozen=True):
    """A file that the task finds at `path` (relative to its working directory) when it starts."""

    path: str
    blob: str  # sha256 in hex
    size: int
    mode: int = 0o644


class Family(SpecRecord, frozen=True):
    """Inputs whose names have parameters in them: `"data-{x}.dat -> in.dat"`."""

    path: str  # template: its path for the task
    source: str  # template: its name at home, a key of `files`; a task for which it is empty gets no file
    files: dict[str, tuple[str, int, int]]  # name at home → (blob, size, mode)


class Placed(SpecRecord, frozen=True):
    """`"site:/scratch/ref/panel.bin -> panel.bin"`: a file that is on the host already; the pilot links to it."""

    path: str  # template; empty: the file must exist, and gets no link
    there: str  # template: absolute path on the host, or a name for which the site file has a path


class Capture(SpecRecord, frozen=True):
    """A column of the results: the first group of `pattern` in the standard output, or in an output file."""

    name: str
    pattern: str
    file: str = ""  # template


class Packed(SpecRecord, frozen=True):
    """A Python environment, packed once (`client/files/pack.py`), unpacked once per host.

    The blob is a tar.gz with one directory, `site-packages`, that PYTHONPATH is to begin with.
    """

    blob: str
    size: int
    python: str  # "3.11": the interpreter it was made for


class Check(SpecRecord, frozen=True):
    """The conditions of a valid result."""

    exit: list[int] = msgspec.field(default_factory=lambda: [0])
    file: list[str] = []
    match: str = ""
    schema: str = ""  # a JSON schema, as text, that the first of `file`, or else the standard output, must fit
    command: str | list[str] = ""  # template; run after the task in its directory, must end with 0
    hopeless: list[int] = []  # exit codes after which the task is not retried


class Target(SpecRecord, frozen=True):
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
    families: list[Family] = []
    placed: list[Placed] = []
    takes: list[str] = []  # targets whose output files are inputs of these tasks (`{main.outputs}`)
    checkpoint: list[str] = []  # files saved when an attempt is ended early, and inputs of the next attempt (Y15)
    retries: int = 3
    memory_retries: int = 0  # retries after out-of-memory, each with twice the memory
    time_retries: int | None = None  # retries after duration failures, each with three times the time; None: usual
    environment: dict[str, str] = {}
    setup: list[str] = []
    modules: list[str] = []  # `module load` before anything else
    container: str = ""  # image; run with apptainer, singularity, podman or docker, whichever the host has
    packed: Packed | None = None
    capture: list[Capture] = []
    scratch: str = ""  # "failed": the server keeps a failed task's directory, as an archive
    priority: int = 0
    check: Check = Check()
    at_once: int = 0  # most tasks in play at a time; 0: no limit
    crowd: str = ""  # concurrency group: its targets share one at-once limit


class Policy(SpecRecord, frozen=True):
    """The policies of a bag."""

    select: str = "fcfs"
    batch: int = 0  # tasks of a target that run one after the other in one slot; 0: as many as the server chooses
    batch_timeout: int = 30_000  # ms that an incomplete batch of an open bag waits for more tasks
    deadline: int = 0  # refused until there is a mechanism
    provision: str = "swarm"  # how many pilots to ask for, and where
    budget: int = 0  # ms of cores; 0: none
    replicate: str = "tail-safe"  # a preset, or an expression: may a late task run twice?
    requirements: str = ""  # expressions (`model/policies/expressions.py`); "": none
    rank: str = ""
    sites: str = ""
    fail_over: str = ""  # the site for tasks that keep failing elsewhere
    per_host: str = ""  # an expression: how many tasks of the bag a host may hold
    attempt_deadline: str = ""  # an expression: s in which an attempt is to have ended
    replicas_per_task: str = ""  # caps (`model/policies/replica_caps.py`); "": the preset's own
    replicas_share: str = ""
    replicas_cost: str = ""

    def __post_init__(self) -> None:
        """Turn numbers into texts, so that Policy(rank=2) works."""
        for name in ("rank", "per_host", "attempt_deadline", "replicas_per_task"):
            value: object = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                msgspec.structs.force_setattr(self, name, str(value))


class Origin(SpecRecord, frozen=True):
    """The words in which a person described the bag, so that `rerun` can read their files again."""

    folder: str  # absolute
    words: dict[str, str | int | list[str]]  # the arguments of `windfall run` that describe tasks, by name


class Flows(SpecRecord, frozen=True):
    """Files that go from task to task, as columns: `after[k]` waits for `before[k]` and gets one of its outputs.

    Tasks are numbers within the bag; `name` and `place` are indices of `names`: the file's name as an output of
    `before`, and its path for `after`.  A negative `before` is a blob: -1 is the first of `blobs`, -2 the next.
    """

    names: list[str] = []
    before: list[int] = []
    name: list[int] = []
    after: list[int] = []
    place: list[int] = []
    blobs: list[tuple[str, int, int]] = []  # sha256, size, mode


class Bag(SpecRecord, frozen=True):
    name: str
    targets: list[Target]
    effects: str = "none"  # or "external": see P1
    policy: Policy = Policy()
    open: bool = False  # tasks may be appended until it is closed
    absence: int = 0  # ms for which nobody may follow it or append to it, if it is open; then it is closed; 0: any time
    edges: list[tuple[int, int]] = []  # prerequisites between tasks: (before, after), numbers within the bag
    flows: Flows | None = None  # files between them; a flow is a prerequisite, too
    origin: Origin | None = None  # None: nobody can read the bag's files again


class Piece(SpecRecord, frozen=True):
    """Tasks for one target."""

    target: str
    source: Source


class Part(SpecRecord, frozen=True):
    """More tasks for an open bag, with their prerequisites; their numbers follow those of the bag's tasks."""

    first: int  # the number of the first one
    pieces: list[Piece]
    edges: list[tuple[int, int]] = []
    flows: Flows | None = None


MAX_TASKS = 100_000_000  # of one bag
MAX_NAMED = 1_000_000  # tasks that one request about a bag names, unless it means all
MAX_SELECTED = 50_000  # numbers and ranges with which it names them
MAX_NAME = 200
INSTANCE = "instance-number"  # the parameter that alone distinguishes equal tasks of an application
MAX_TEXT = 1 << 20  # one command, template or value
MAX_TIME_RETRIES = 3  # duration failures after which a task is tried again, each time with three times the limit
MAX_BATCH = 1_000  # tasks in one batch
MAX_WEIGHT = 1_000  # of a user, where several share a site
MAX_TARGETS = 10_000


def usual_time_retries(retries: int) -> int:
    """Return how often a task of so many retries is tried again after duration failures where its bag does not say."""
    return MAX_TIME_RETRIES if retries else 0
