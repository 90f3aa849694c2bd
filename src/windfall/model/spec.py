"""What a bag is: the form in which it travels from client to server and rests in the journal.

A bag file is parsed into these records (`model/bagfile/reader.py`), checked (`model/checks/bag.py`), and expanded only
when a task is granted (`model/templates/render.py`): a sweep of ten million tasks is one record.

Times are integers in milliseconds, sizes in bytes, everywhere inside; only files and screens have units.
"""

from __future__ import annotations

import msgspec


class SpecRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything here: immutable, and an unknown field is an error."""


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
    """Several lists walked together, as one axis of the product (`[[sweep.zip]]`)."""

    columns: list[Values]


class Derived(SpecRecord, frozen=True, tag="derived"):
    """`out = "result-{position}.txt"`: a value made of others; adds no points."""

    name: str
    template: str


class Law(SpecRecord, frozen=True):
    """How one parameter is drawn: `uniform(0, 1)`, `loguniform(1e-3, 1)`, `normal(0, 1)`, `integer(1, 6)`."""

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
    whole: bool = False  # all of a pilot's node, whatever it has; `cores` is then the least it must have
    nodes: int = 1  # on each of which it has the above


class Input(SpecRecord, frozen=True):
    """A file to lie at `path` (relative to the working directory) before the task starts."""

    path: str
    blob: str  # sha256 in hex
    size: int
    mode: int = 0o644


class Family(SpecRecord, frozen=True):
    """Inputs whose names have parameters in them: `"data-{x}.dat -> in.dat"`."""

    path: str  # template: where it lies for the task
    source: str  # template: what it was called at home; looked up in `files`; where it comes out empty, no file
    files: dict[str, tuple[str, int, int]]  # name at home → (blob, size, mode)


class Placed(SpecRecord, frozen=True):
    """`"site:/scratch/ref/panel.bin -> panel.bin"`: a file that is on the host already; linked to, never copied."""

    path: str  # template; empty: it is only looked for
    there: str  # template: absolute path on the host, or a name that the site's file has a path for


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
    """What makes a result valid."""

    exit: list[int] = msgspec.field(default_factory=lambda: [0])
    file: list[str] = []
    match: str = ""
    schema: str = ""  # a JSON schema, as text, that the first of `file`, or else the standard output, must fit
    command: str | list[str] = ""  # template; run after the task in its directory, must end with 0
    hopeless: list[int] = []  # exit codes after which it is not tried again


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
    takes: list[str] = []  # targets whose output files are brought to these tasks (`{main.outputs}`)
    checkpoint: list[str] = []  # saved when the attempt is ended early, there again for the next (Y15)
    retries: int = 3
    memory_retries: int = 0  # after out-of-memory, this often again with twice the memory
    environment: dict[str, str] = {}
    setup: list[str] = []
    modules: list[str] = []  # `module load` before anything else
    container: str = ""  # image; run with apptainer, singularity, podman or docker, whichever the host has
    packed: Packed | None = None
    capture: list[Capture] = []
    scratch: str = ""  # "failed": a failed task's directory is kept, as an archive
    priority: int = 0
    check: Check = Check()
    at_once: int = 0  # most of its tasks in play at a time; 0: any number
    crowd: str = ""  # targets of one crowd count together


class Policy(SpecRecord, frozen=True):
    """`batch`: so many tasks of a target go together, one after the other in one slot; 0: as many as seem right."""

    select: str = "fcfs"
    batch: int = 0
    batch_timeout: int = 30_000  # ms that an incomplete batch of an open bag waits for more tasks
    deadline: int = 0  # refused until there is a mechanism
    provision: str = "swarm"  # how many pilots to ask for, and where
    budget: int = 0  # ms of cores; 0: none
    replicate: str = "tail-safe"  # may late tasks run twice?  A preset, or an expression
    requirements: str = ""  # expressions (`model/policies/expressions.py`); "": none
    rank: str = ""
    sites: str = ""
    fail_over: str = ""  # the site where tasks go that keep failing
    per_host: str = ""  # an expression: how many tasks of the bag a host may hold
    attempt_deadline: str = ""  # an expression: s in which an attempt is to have ended
    replicas_per_task: str = ""  # caps (`model/policies/replica_caps.py`); "": the preset's own
    replicas_share: str = ""
    replicas_cost: str = ""

    def __post_init__(self) -> None:
        """Of a number that is given in the place of a text: Policy(rank=2)."""
        for name in ("rank", "per_host", "attempt_deadline", "replicas_per_task"):
            value: object = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                msgspec.structs.force_setattr(self, name, str(value))


class Flows(SpecRecord, frozen=True):
    """Files that go from task to task, as columns: `after[k]` waits for `before[k]` and is brought one of its outputs.

    Tasks are numbers within the bag, `name` and `place` are places in `names`: what the file is called as an output of
    `before`, and where it lies for `after`.  A negative `before` is no task: -1 is the first of `blobs`, -2 the next.
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
    edges: list[tuple[int, int]] = []  # prerequisites between tasks: (before, after), numbers within the bag
    flows: Flows | None = None  # files between them; a flow is a prerequisite, too


class Piece(SpecRecord, frozen=True):
    """Tasks of one target."""

    target: str
    source: Source


class Part(SpecRecord, frozen=True):
    """More tasks for an open bag, numbered on from those it has, with what they wait for."""

    first: int  # the number of the first of them
    pieces: list[Piece]
    edges: list[tuple[int, int]] = []
    flows: Flows | None = None


MAX_TASKS = 100_000_000  # of one bag
MAX_NAME = 200
INSTANCE = "instance-number"  # the parameter of an application's tasks that differ in nothing else
MAX_TEXT = 1 << 20  # one command, template or value
MAX_BATCH = 1_000  # tasks that go together
MAX_WEIGHT = 1_000  # of a user, where several share a site
MAX_TARGETS = 10_000
