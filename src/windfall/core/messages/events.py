"""Events: news from outside to the core.  `key` is the driver's: the matching effect carries it back."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.facts import DataSelection, DataShape, Limits, Runs, TargetShape


class Event(msgspec.Struct, gc=False):
    key: int


class Submit(Event):
    owner: str
    name: str
    idempotency: str
    spec: bytes
    targets: list[TargetShape]
    external: bool
    select: str
    open: bool
    edges: bytes = b""
    provision: str = "swarm"
    options: dict[str, int] = {}
    data: DataShape | None = None
    data_selection: DataSelection | None = None
    budget: int = 0  # ms of cores; 0: none
    replicate: str = "none"
    policy: dict[str, str] = {}  # expressions
    fail_over: str = ""  # the site where tasks go that keep failing
    absence: int = 0  # ms for which its client may be away before an open bag is closed; 0: any time


class Append(Event):
    owner: str
    bag: int
    target: int
    count: int
    idempotency: str
    source: bytes
    extends: bool = False  # to a bag that is closed, which runs again
    seen: int | None = None  # sources appended before, as far as whoever asks has seen


class AppendPart(Event):
    """More tasks for an open bag, of any of its targets, with what they wait for: tasks before them, or each other."""

    bag: int
    first: int  # the number of the first of them: as many as whoever asks believes the bag to have
    pieces: list[tuple[int, int]]
    idempotency: str
    sources: list[bytes]
    edges: bytes = b""


class Attend(Event):
    """Clients follow these bags."""

    bags: list[int]


class Close(Event):
    bag: int
    by: str = ""


class Pause(Event):
    bag: int
    paused: bool
    by: str = ""


class Cancel(Event):
    bag: int
    tasks: list[int] | NDArray[np.int64] | None
    by: str = ""
    waiting: bool = False  # only what no pilot has


class InputsGathered(Event):
    """The files that a target's tasks take are at hand; or they never will be, and why."""

    bag: int
    target: int
    refused: str = ""


class Retry(Event):
    bag: int
    tasks: list[int] | NDArray[np.int64] | None
    by: str = ""


class Rerun(Event):
    """Run again the tasks that failed, or that a change of the specification concerns, and what depends on them."""

    bag: int
    which: str = ""  # "failed", "changed" or "all"; "": what failed or changed
    spec: bytes = b""  # the changed Bag, as msgpack; nothing: it has not changed
    targets: list[TargetShape] = []
    concerned: Runs = []  # tasks that the change concerns
    seen: tuple[int, int] = (0, 0)  # `revised`, and how many sources were appended, when the change was worked out
    by: str = ""


class Remove(Event):
    bag: int
    by: str = ""


class SetBudget(Event):
    bag: int
    budget: int
    by: str = ""


class SetPolicy(Event):
    """Other expressions for a bag; "" for none.  Those that are not named stay."""

    bag: int
    policy: dict[str, str]
    by: str = ""


class SetAllowance(Event):
    """How much an owner may use in a month at sites that count (`means.py`)."""

    owner: str  # "*": everybody who has none of his own
    allowance: int  # ms of cores; -1: none any more
    by: str = ""


class SetWeight(Event):
    """An owner's part where several share a site (`fairness.py`)."""

    owner: str
    weight: int
    by: str = ""


class AddSite(Event):
    name: str
    owner: str
    kind: str
    shared: list[str] = []
    limits: Limits | None = None  # None: as before
    disk: bool = False  # its hosts share one


class DrainSite(Event):
    name: str
    owner: str
    on: bool  # or use it again
    now: bool = False  # what runs there is stopped, too
    by: str = ""


class ShareSite(Event):
    """Change the users who may use a site beside its owner."""

    name: str
    add: list[str]
    remove: list[str]
    by: str


class RemoveSite(Event):
    name: str
    owner: str
    by: str = ""


class ListedJob(msgspec.Struct, array_like=True, gc=False):
    """A pilot's job as a batch system lists it."""

    nonce: str
    id: str
    running: bool


NO_END, NOT_SAID = -1, -2  # balances: nobody keeps one; it could not be looked up, so what was known stands


class SiteInfo(msgspec.Struct, array_like=True, gc=False):
    """The free slots that a site's information system reports, true or not."""

    free: int  # processors; -1: this is not about them
    queued: int  # jobs
    age: int = 0  # ms
    others: int = -1  # jobs of the user that are none of ours; -1: this is not about them, nor about his account
    balance: int = NO_END  # ms of cores that the account may still use, or one of the two above


class SiteReport(Event):
    """A site's provisioner reports the outcome of its orders and what the batch system lists, and asks for more orders.

    The provisioner repeats a report until the core has answered it.  `listed` is complete as of the answer that said
    `now == began`.
    """

    site: str
    provisioner: str  # a name that no other process ever had
    hello: bool = False  # it knows nothing of what was done before
    seen: int = 0  # number of the newest answer it has
    accepted: list[tuple[str, str]] = []  # nonce, the batch system's name
    refused: list[tuple[str, str]] = []  # nonce, why: it was surely not submitted
    stopped: list[tuple[str, str]] = []  # nonce, the batch system's name: it surely will not run, or run on
    listed: list[ListedJob] | None = None
    began: int = 0  # `now` of the newest answer it had when it began to list
    info: SiteInfo | None = None
    wait: int = 0
    unstopped: list[tuple[str, str]] = []  # the same, where stopping it did not work: after others, again
    can_salvage: bool = False  # it can look for what pilots left behind; said again, since we may have begun anew
    salvaged: list[tuple[str, int]] = []  # nonce, results found there, which were sent; -1: its pilot lives




class Enrol(Event):
    site: str
    nonce: str
    host: str
    host_name: str
    cores: int
    memory: int
    gpus: int
    disk: int
    left: int | None
    token: bytes  # hash of the token the driver made for it
    detail: str = ""
    nodes: int = 1
    boot: str = ""  # of its host
    life: str = ""  # the mark of its processes
    hardware: str = ""  # of its host: a digest of the network cards' addresses


class Report(msgspec.Struct, gc=False):
    """The end of an attempt as its pilot reports it; the names are the wire's."""

    a: int
    o: str = "succeeded"
    why: str = ""
    exit: int = 0
    signal: int = 0
    t0: int = 0
    t1: int = 0
    wall: int = 0
    cpu: int = 0
    rss: int = 0
    out: str = ""
    err: str = ""
    out64: str = ""
    err64: str = ""
    out_size: int = 0
    err_size: int = 0
    files: list[tuple[str, str, int, int]] = []
    value: str = ""
    note: str = ""
    values: dict[str, str] = {}
    saved: list[tuple[str, str, int, int]] = []
    scratch: tuple[str, int] | None = None
    left: tuple[int, int] | None = None  # bytes and files left in place


class Exchange(Event):
    pilot: int
    epoch: int
    seq: int
    ack: int = 0
    want: int = 0
    wait: int = 0
    left: int | None = None
    started: list[int] = []
    reports: list[Report] = []
    held: list[int] | None = None
    bye: str = ""
    trouble: str = ""  # why the pilot takes no tasks
    dead: list[str] = []  # marks of predecessors that have no process any more


class Gone(Event):
    """A report that a pilot's processes are dead; where it is not `proven`, it is a belief."""

    pilot: int
    why: str = "gone"
    proven: bool = True


class KnowLink(Event):
    """A measurement of how long files take between two sites ("home": the server, "*": any)."""

    a: str
    b: str
    latency: int  # ms a file
    rate: int  # bytes a second


class LosePlace(Event):
    """Evidence that a site's disk, or with `host` that host's, is gone."""

    site: str
    host: str = ""
    why: str = "gone"


class Drain(Event):
    pilot: int


class DropRequest(Event):
    """The driver's connection behind a parked request is closed."""

    pilot: int
    parked: int  # the key it was parked under


class DiskLow(Event):
    """The driver's disk is low, or not any more: grant nothing new meanwhile."""

    on: bool
    says: str = ""  # which disk, and what frees it


class IssueToken(Event):
    id: str
    hash: bytes
    scope: str
    owner: str
    site: str
    expires: int
    by: str = ""


class RevokeToken(Event):
    id: str
    by: str = ""
