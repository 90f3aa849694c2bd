"""The records of requests and responses, decoded and checked in one pass.

`wire/messages.py` fixes the fields of the exchange; a test proves that these records agree with it.  The records bound
numbers from outside, because the core keeps them in columns of 64 bits.  If a pilot's message exceeds a bound,
`lenient_decode` cuts it where no decision depends on the field; the server refuses only messages of the wrong form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windfall.core.messages import events
from windfall.core.messages.facts import Limits
from windfall.core.read.story import StoryLine
from windfall.model.spec import MAX_SELECTED, MAX_TASKS, MAX_WEIGHT, Bag, Flows, Items, Lines, Sweep
from windfall.wire.messages import MAX_ATTEMPTS, MAX_REPORTS

MAX_COUNT = 1 << 53
MAX_CODE = 1 << 31
MAX_WORD = 64
MAX_NAME = 200
MAX_LINE = 4096
MAX_MARKS = 64  # of pilots, in one request
MAX_TEXT = 1 << 20  # characters of captured output; pilots keep far less

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # an attempt's number: low bits its row, high bits the row's uses
Code = Annotated[int, Meta(ge=-MAX_CODE, le=MAX_CODE)]
Word = Annotated[str, Meta(max_length=MAX_WORD)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Mark = Annotated[str, Meta(max_length=MAX_NAME)]
Line = Annotated[str, Meta(max_length=MAX_LINE)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Path = Annotated[str, Meta(max_length=1 << 16)]
Task = Annotated[int, Meta(ge=0, lt=MAX_TASKS)]
Sha = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Attempts = Annotated[list[Number], Meta(max_length=MAX_ATTEMPTS)]
File = tuple[Path, Sha, Count, Count]
Files = Annotated[int, Meta(ge=0, lt=1 << 31)]  # a column of 32 bits
MAX_VALUES = 1_000  # captured values of one attempt
MAX_SAVED = 1_000  # checkpoint files of one attempt: the core holds them in memory
Values = Annotated[dict[Annotated[str, Meta(max_length=MAX_NAME)], Line], Meta(max_length=MAX_VALUES)]


# --- exchange -------------------------------------------------------------------------------------------------

class Report(events.Report, gc=False):
    """The core's record of a report, with bounds."""

    a: Number
    o: Literal["succeeded", "failed", "cancelled", "returned"] = "succeeded"
    why: Word = ""
    exit: Code = 0
    signal: Code = 0
    t0: Count = 0
    t1: Count = 0
    wall: Count = 0
    cpu: Count = 0
    rss: Count = 0
    out: Text = ""
    err: Text = ""
    out64: Text = ""
    err64: Text = ""
    out_size: Count = 0
    err_size: Count = 0
    files: Annotated[list[File], Meta(max_length=10_000)] = []  # noqa: RUF012
    note: Line = ""
    values: Values = {}  # noqa: RUF012
    saved: Annotated[list[File], Meta(max_length=MAX_SAVED)] = []  # noqa: RUF012
    scratch: tuple[Sha, Count] | None = None
    left: tuple[Count, Files] | None = None


class Exchange(Struct, kw_only=True, gc=False):
    v: Count
    epoch: Count
    seq: Count
    ack: Count
    want: Count = 0
    wait: Count = 0
    left: Count | None = None
    started: Attempts = []
    reports: Annotated[list[Report], Meta(max_length=MAX_REPORTS)] = []
    held: Attempts | None = None
    bye: Word = ""
    trouble: Line = ""
    dead: Annotated[list[Mark], Meta(max_length=MAX_MARKS)] = []


class PilotHost(Struct):
    id: Name
    name: Name
    cores: Count
    memory: Count
    gpus: list[Any] = []
    platform: Line = ""
    python: Line = ""
    boot: Mark = ""
    life: Mark = ""
    hardware: Mark = ""


class PilotShape(Struct):
    cores: Annotated[int, Meta(ge=1, le=1 << 20)]
    memory: Count
    gpus: Annotated[int, Meta(ge=0, le=4096)] = 0
    disk: Count = 0
    left: Count | None = None
    nodes: Annotated[int, Meta(ge=1, le=1 << 20)] = 1


class Enrol(Struct):
    v: Count
    site: Name
    nonce: Name
    host: PilotHost
    shape: PilotShape
    versions: list[int] | None = None


class Enrolled(Struct, omit_defaults=True):
    v: int
    pilot: int
    epoch: int
    token: str
    lease: int
    idle: int
    spread: int = 0
    park: int = 30_000


class GrantedGroup(Struct, omit_defaults=True, gc=False):
    spec: msgspec.Raw
    tasks: list[Any]
    chain: int | None = None
    behind: list[int] = []
    numbers: list[int] = []  # of the tasks, within their bag


class Grant(Struct, gc=False):
    n: int
    groups: list[GrantedGroup]


class ExchangeResponse(Struct, omit_defaults=True, gc=False):
    v: int
    epoch: int
    seq: int
    lease: int = 0
    grants: list[Grant] = []
    cancel: list[int] = []
    recall: list[int] = []
    stream: list[int] = []
    look: list[str] = []
    census: bool = False
    stop: str = ""
    again: int = 0
    spread: int = 0


class TaskSpec(Struct, omit_defaults=True):
    bag: int
    target: str = ""
    kind: str = "command"
    cores: int = 1
    memory: int = 0
    gpus: int = 0
    disk: int = 0
    time: int | None = None
    need: int = 0
    grace: int = 5_000
    environment: dict[str, str] = {}
    setup: list[str] = []
    modules: list[str] = []
    container: str = ""
    packed: tuple[str, int, str] | None = None
    inputs: list[tuple[str, str, int, int]] = []
    placed: list[tuple[str, str]] = []
    checkpoint: list[str] = []
    capture: list[tuple[str, str, str]] = []
    scratch: str = ""
    whole: bool = False
    nodes: int = 1
    outputs: list[str] = []
    check: dict[str, Any] = {}
    keep: int = 0


# --- users ----------------------------------------------------------------------------------------------------

class Append(Struct, forbid_unknown_fields=True):
    source: Lines | Items
    target: str = "main"


class Extend(Struct, forbid_unknown_fields=True):
    source: Sweep | Lines | Items
    target: str = "main"
    files: list[dict[str, tuple[Sha, Count, Count]]] = []  # per family: files that the new tasks add to it
    key: Annotated[str, Meta(max_length=200)] = ""  # the server carries out requests with the same key once
    seen: Count | None = None  # appended sources that the client knows; if there are more, the server refuses


class EmptyBody(Struct):
    pass


class Selection(Struct, forbid_unknown_fields=True):
    tasks: Annotated[list[Task], Meta(max_length=MAX_SELECTED)] | None = None
    ranges: Annotated[list[tuple[Task, Task]], Meta(max_length=MAX_SELECTED)] | None = None  # first and last of each
    waiting: bool = False  # of a cancellation: skip tasks that a pilot holds
    # of a retry: the tasks that failed for this cause, as `failures` names it
    state: Literal["failed", "quarantined"] | None = None
    why: Word | None = None
    exit: Code | None = None
    signal: Code | None = None
    note: Line | None = None


class Rerun(Struct, forbid_unknown_fields=True):
    bag: Bag | None = None  # as its files say now; null: as it is
    which: Literal["", "failed", "changed", "all"] = ""  # "": what failed or changed
    dry: bool = False  # only tell


class ChangeView(Struct):
    target: str
    what: str
    concerns: bool  # does any task see it?


class RerunDone(Struct):
    count: int  # tasks that start again
    outdated: int  # tasks that keep a result, and that a change concerns
    changes: list[ChangeView] = []  # the first hundred
    changed: int = 0  # how many there are
    new: int = 0  # points of the file that the bag lacks
    gone: int = 0  # tasks whose points the file has no more
    kept: list[str] = []  # parts of the bag in which the file differs, and which stay


class NewToken(Struct, forbid_unknown_fields=True):
    scope: Literal["user", "admin", "enrol"]
    user: Annotated[str, Meta(max_length=64)] = ""
    site: Annotated[str, Meta(max_length=200)] = ""
    days: Annotated[int, Meta(ge=1, le=3660)] | None = None


class NewAllowance(Struct, forbid_unknown_fields=True):
    user: Annotated[str, Meta(min_length=1, max_length=64)]  # "*": all users without an allowance of their own
    allowance: Annotated[int, Meta(ge=-1, lt=1 << 59)]  # ms of cores a month; -1: none


class NewWeight(Struct, forbid_unknown_fields=True):
    user: Annotated[str, Meta(min_length=1, max_length=64)]
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]  # share of a site that several users share


class Allowance(Struct):
    user: str
    allowance: int | None  # ms of cores a month
    used: int  # this month, at sites where use counts
    reserved: int
    weight: int = 1  # share of a site that several users share


class Allowances(Struct):
    allowances: list[Allowance]


class NewBudget(Struct, forbid_unknown_fields=True):
    budget: Annotated[int, Meta(ge=0, lt=1 << 59)]  # ms of cores; 0: none


class NewPolicy(Struct, forbid_unknown_fields=True):
    policy: Annotated[dict[Annotated[str, Meta(max_length=40)], str], Meta(max_length=16)]  # "" removes a setting


class PolicyView(Struct):
    """A bag's expressions, how many of its owner's present hosts match them, and why a host does not."""

    bag: int
    policy: dict[str, str]
    match: int
    hosts: int
    why: str


class HostViews(Struct):
    """The pilots' hosts: `pilot`, `silent`, `ad` by entity and attribute; for a bag also `match`, `why`, `rank`,
    `per_host`."""

    hosts: list[dict[str, Any]]
    next: int | None  # the `after` of the next page


class NewSite(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    kind: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]{0,31}$")] = "local"
    shared: list[Name] | None = None  # None: unchanged
    limits: Limits | None = None  # of the pilots that may be started there; None: unchanged


class Draining(Struct, forbid_unknown_fields=True):
    now: bool = False  # stop running pilots, too


class Sharing(Struct, forbid_unknown_fields=True):
    """The users who may use a site beside its owner from now on, and those who may no longer."""

    add: Annotated[list[Name], Meta(max_length=1000)] = []
    remove: Annotated[list[Name], Meta(max_length=1000)] = []


class NewTrial(Struct, forbid_unknown_fields=True):
    site: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class TrialMade(Struct):
    site: str
    token: str  # of a user that exists for the trial alone
    enrol: str  # the token with which the trial's pilot enrols
    expires: int
    server: str = ""  # the TLS port; only for requests on the Unix socket
    certificate: str = ""


class Submitted(Struct):
    bag: int
    tasks: int
    position: int


class AppendedTasks(Struct):
    first: int
    count: int


class AppendedSource(Struct):
    target: str
    source: Sweep | Lines | Items
    files: list[dict[str, tuple[str, int, int]]]
    edges: list[tuple[int, int]] = []  # with the first piece of a part: those of the whole part
    flows: Flows | None = None


class AppendedPage(Struct):
    appended: list[AppendedSource]
    next: int | None


class TaskCount(Struct):
    count: int


class TargetView(Struct):
    name: str
    first: int
    count: int
    after: list[str]
    counts: dict[str, int]


class BagView(Struct):
    bag: int
    name: str
    owner: str
    state: str
    tasks: int
    counts: dict[str, int]
    submitted: int
    ended: int | None
    targets: list[TargetView]
    position: int
    used: int = 0  # ms of cores, of ended attempts
    reserved: int = 0  # under a budget: ms of cores that attempts in play may use at worst
    budget: int | None = None
    tail: bool = False  # fewer tasks wait than run
    expected: int | None = None  # in its tail: when it should end, if that can be estimated
    late: int = 0  # in its tail: tasks that should have ended by now
    problem: str = ""  # what keeps the server from granting anything at all
    revised: int | None = None  # when `rerun` read its files last; null: they are as submitted


class ResultRow(Struct):
    task: int
    target: str
    params: dict[str, Any]
    state: str
    generation: int
    attempt: int | None
    outcome: str
    why: str
    exit: int | None
    signal: int | None
    site: str
    host: str
    granted: int | None
    started: int | None
    ended: int | None
    wall: int
    cpu: int
    rss: int
    out_size: int
    err_size: int
    files: list[tuple[str, str, int, int]]
    value: str
    note: str
    values: dict[str, str]
    saved: list[tuple[str, str, int, int]]
    scratch: tuple[str, int] | None


class ResultPage(Struct):
    rows: list[ResultRow]
    next: int | None
    position: int


class PlaceUsage(Struct):
    name: str
    attempts: int
    wall: int
    accepted: int


class SlowAttempt(Struct):
    task: int
    attempt: int
    wall: int


class Statistics(Struct):
    """A bag's statistics, times in ms.  `real`: run time of accepted results; `redundant`: run time of other
    attempts."""

    bag: int
    tasks: int
    counts: dict[str, int]
    attempts: int
    accepted: int
    real: int
    redundant: int
    cpu: int
    rss: int
    queuing_average: float
    queuing_longest: int
    wall_clock: int
    speed_up: float
    failures: dict[str, int]  # failed attempts by reason
    quarantined: int
    stored: int  # bytes of the results' files
    sites: list[PlaceUsage]
    hosts: list[PlaceUsage]
    slowest: list[SlowAttempt]
    position: int


class FailureCause(Struct):
    """The tasks that failed for one cause.  `retry` is the body with which the call `retry` retries exactly these."""

    state: str
    why: str
    exit: int
    signal: int
    note: str
    count: int
    tasks: list[int]
    retry: dict[str, Any]


class Failures(Struct):
    failures: list[FailureCause]
    position: int


class Usage(Struct):
    quota: int  # bytes; 0: none
    used: int  # bytes of the caller's files, under a quota
    users: dict[str, int]
    bags: dict[int, int]


class Freed(Struct):
    freed: int  # bytes


class Running(Struct):
    tasks: list[int]
    position: int


class InPlay(Struct):
    """An attempt that has not ended."""

    attempt: int
    state: str
    site: str
    host: str
    granted: int
    started: int | None
    expected: int | None  # when it should end


class TaskView(Struct):
    task: int
    target: str
    params: dict[str, Any]
    command: str | list[str]
    state: str
    attempts: list[ResultRow]
    in_play: list[InPlay] = []


class StoryPage(Struct):
    lines: list[StoryLine]
    next: str | None  # the `after` of the next page
    since: int  # from when on the journal has facts
    position: int


class TokenMade(Struct):
    id: str
    token: str
    expires: int


class Health(Struct):
    status: str  # "ok", or "degraded": it serves, and `problems` says what a person must see to
    version: str
    position: int
    problems: list[str]


class OutputWanted(Struct):
    go: bool
