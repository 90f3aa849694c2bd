"""The dictionaries that `Client` returns, as the server sent them; these types name their keys.

Times are milliseconds since 1970 by the server's clock, durations milliseconds, sizes bytes.  A newer server may send
further keys.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

__all__ = [
    "Appended", "BagInfo", "BagSummary", "Cause", "Change", "File", "Health", "PilotInfo", "Place", "RerunDone", "Row",
    "SiteInfo", "Slow", "Statistics", "Submitted", "TargetInfo", "TaskInfo", "TokenMade", "TrialMade", "Update",
]

File = tuple[str, str, int, int]
"""Path, SHA-256, size and mode of an output or checkpoint file (a list of the four, as JSON has it)."""


class Submitted(TypedDict):
    bag: int
    tasks: int
    position: int


class Appended(TypedDict):
    first: int
    count: int


class Change(TypedDict):
    target: str
    what: str
    concerns: bool


class RerunDone(TypedDict):
    count: int
    outdated: int
    changes: list[Change]
    changed: int
    new: int
    gone: int
    kept: list[str]


class TargetInfo(TypedDict):
    name: str
    first: int
    count: int
    after: list[str]
    counts: dict[str, int]


class BagSummary(TypedDict):
    bag: int
    name: str
    owner: str
    state: str
    tasks: int
    counts: dict[str, int]
    submitted: int
    ended: int | None
    used: int
    reserved: int
    budget: int | None


class BagInfo(BagSummary):
    targets: list[TargetInfo]
    tail: bool  # in its tail: fewer tasks wait than run
    expected: int | None  # in its tail: when it should end, if that can be told
    late: int  # in its tail: tasks that should have ended by now
    problem: str  # what keeps the server from granting anything at all; "" if nothing does
    revised: int | None  # when `rerun` read its files last; None: they are as submitted
    position: int


class PolicyInfo(TypedDict):
    bag: int
    policy: dict[str, str]
    match: int
    hosts: int
    why: str


class StoryLine(TypedDict):
    """A fact that touched a task."""

    at: int
    kind: str
    text: str
    attempt: int | None
    pilot: int | None
    site: str | None
    host: str | None


class HostInfo(TypedDict):
    """A pilot's host."""

    pilot: int
    silent: bool
    ad: dict[str, dict[str, Any]]  # entity → attribute → value; null: undefined
    match: NotRequired[bool]  # these four only with a bag
    why: NotRequired[str]
    rank: NotRequired[float | None]
    per_host: NotRequired[int | None]


class Row(TypedDict):
    """The end of a task, or of one of its attempts."""

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
    files: list[File]
    value: str
    note: str
    values: dict[str, str | int | float]  # captured; a text that spells a number is that number
    saved: list[File]
    scratch: tuple[str, int] | None


class InPlay(TypedDict):
    """An attempt that has not ended."""

    attempt: int
    state: str  # granted, started, lost, dropped
    site: str
    host: str
    granted: int
    started: int | None
    expected: int | None  # when it should end


class TaskInfo(TypedDict):
    task: int
    target: str
    params: dict[str, Any]
    command: str | list[str]
    state: str
    attempts: list[Row]
    in_play: list[InPlay]


class Update(TypedDict, total=False):
    """An item of `watch`; a heartbeat has no keys."""

    position: int
    counts: dict[str, int]
    rows: list[Row]
    done: bool


class Place(TypedDict):
    """A site, or a host, and the attempts that ran there."""

    name: str
    attempts: int
    wall: int
    accepted: int


class Slow(TypedDict):
    task: int
    attempt: int
    wall: int


class Statistics(TypedDict):
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
    failures: dict[str, int]
    quarantined: int
    stored: int  # bytes of its results' files
    sites: list[Place]
    hosts: list[Place]
    slowest: list[Slow]
    position: int


class Cause(TypedDict):
    """The failed tasks that share one reason."""

    state: str
    why: str
    exit: int
    signal: int
    note: str
    count: int
    tasks: list[int]
    retry: dict[str, Any]


class PilotInfo(TypedDict):
    pilot: int
    site: str
    owner: str
    host: str
    host_id: str
    nonce: str
    state: str
    silent: bool
    epoch: int
    cores: int
    memory: int
    gpus: int
    held: int
    enrolled: int
    heard: int
    ends: int | None
    ended: int | None
    why: str
    detail: str
    trouble: str  # why it takes no tasks now


class Allowance(TypedDict):
    user: str
    allowance: int | None  # ms of cores a month
    used: int
    reserved: int
    weight: int  # the user's part of a shared site


class SiteInfo(TypedDict):
    site: str
    owner: str
    kind: str
    shared: list[str]
    pilots: int
    cores: int
    held: int
    queued: int
    running: int
    open: int
    drained: bool
    used: int
    reserved: int
    limits: dict[str, int]
    suspect: int | None
    wait: int | None


class TrialMade(TypedDict):
    site: str
    token: str
    enrol: str
    expires: int
    server: str
    certificate: str


class TokenMade(TypedDict):
    id: str
    token: str
    expires: int


class Health(TypedDict):
    status: str  # "ok", or "degraded": `problems` says why
    version: str
    position: int
    problems: list[str]
