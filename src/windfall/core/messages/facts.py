"""Facts: changes of the state, as they are journaled.

A fact carries every value that a decision computed, so that `apply` holds no policy and replay never decides
again.  One fact covers a whole grant or a whole report.  The tag holds the version; a field may only be added at
the end, with a default; any other change is a new tag and an upcaster (`store/codec.py`).
"""

from __future__ import annotations

import msgspec

Runs = list[tuple[int, int]]  # (first, count): consecutive task numbers


class Fact(msgspec.Struct, array_like=True, gc=False):
    """Base.  `at` is the core's time of the decision."""


class TargetShape(msgspec.Struct, array_like=True, gc=False):
    """The part of a target's specification that the core reads; it passes the rest on unread."""

    name: str
    count: int
    after: list[int]
    cores: int
    memory: int
    gpus: int
    disk: int
    limit: int  # ms, 0: none
    expect: int  # ms, 0: unknown
    grace: int
    checkpoint: bool
    retries: int
    memory_retries: int
    priority: int
    costs: bytes = b""  # float32 per task, or nothing
    message_bytes: int = 256  # bytes one task takes in a message, about
    whole: bool = False  # takes a whole pilot
    gathers: bool = False  # takes output files of the targets before it
    call: bool = False  # the owner's client loads what comes back as Python objects
    outputs: bool = False  # a success brings files
    batch: int = 0  # so many tasks go together; 0 or 1: each by itself
    patience: int = 0  # ms that an incomplete batch of an open bag waits for more tasks
    previous_stage: int = -1  # task i goes with task i of that target, after it, to one pilot; -1: by itself
    nodes: int = 1  # more than one: takes a pilot that has so many, all of it
    exits_not_retried: list[int] = []  # exit codes after which it is not tried again
    at_once: int = 0  # most of its crowd's tasks in play; 0: any number
    concurrency_group: int = -1  # the first target of those that count together
    time_retries: int = 3  # after duration failures, each with three times the time


class Shape(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The resources that a pilot asks its batch system for: on each of its nodes, where it has several."""

    cores: int = 1
    memory: int = 0
    gpus: int = 0
    disk: int = 0
    wall: int = 0  # ms; 0: it may stay
    nodes: int = 1
    whole: bool = False  # nobody else is on its nodes
    least: int = 0  # of a site: `wall` may be anything from here on, as its tasks need
    spare: int = 0  # ms of `wall` that its tasks do not get: it leaves in time to bring home what is done

    @property
    def worst(self) -> int:
        """Ms of cores that such a pilot may use."""
        return self.cores * self.nodes * self.wall


COUNTS_FOR_OTHERS, COUNTS, COUNTS_NOT = range(3)
"""What is used at a site counts against the allowances of those who use it: of all but its owner, of all, of nobody."""


class Limits(msgspec.Struct, array_like=True, gc=False):
    """The pilots that may be started at a site.  Without shapes there are none; a zero elsewhere is no limit."""

    shapes: list[Shape] = []
    pilots: int = 0  # most at once, queued and running
    queued: int = 0  # most of them queued
    share: int = 1000  # most slots there for a bag, in thousandths of its tasks
    delay: int = 0  # ms after a bag's submission before anything is sent there
    budget: int = 0  # ms of cores
    flight: int = 16  # submissions, and cancellations, under way at once
    jobs: int = 0  # most that the user may have there, those that are none of ours included
    disk: int = 0  # bytes that all tasks there have together
    counts: int = COUNTS_FOR_OTHERS  # against whose allowance
    account: bool = False  # its tender says what the user's account has left there: nothing before that is known


class DataShape(msgspec.Struct, array_like=True, gc=False):
    """The data that the tasks of a bag read and leave.  Columns have one value per task, or are empty: all zero.

    A task reads files from outside, and what the tasks before it (the bag's edges) have left."""

    reads: bytes = b""  # int64: bytes from outside
    read_files: bytes = b""  # int32
    leaves: bytes = b""  # int64: bytes of output, estimated; what a report says stands
    leave_files: bytes = b""  # int32
    staged: list[str] = []  # sites where what comes from outside lies already; elsewhere it comes from home
    stays: bool = True  # output is left where it was made; else it comes home
    keeps: bool = False  # what was fetched for a task stays at that place as a further copy


class DataSelection(msgspec.Struct, array_like=True, gc=False):
    """Parameters of data-conscious selection (T9); the defaults are those of the Trellis thesis, in a WAN."""

    arrivals: int = 32  # of pilots to look ahead
    candidates: int = 128  # tasks, or batches, to look at
    penalty: float = 25.0  # by which the time of a transfer is inflated
    latency: int = 650  # ms one way between pilot and server: what time in the queue is divided by
    unit: int = 10  # ms that count as much as one such latency in the queue
    withhold: bool = True  # a task that is better off elsewhere is not handed out


class BagSubmitted(Fact, tag="bag-submitted/1"):
    at: int
    bag: int
    owner: str
    name: str
    key: str  # idempotency key, or nothing
    spec: bytes  # the Bag, as msgpack
    targets: list[TargetShape]
    external: bool
    select: str
    open: bool
    edges: bytes = b""  # int32 pairs (before, after)
    provision: str = "swarm"
    options: dict[str, int] = {}  # of provisioning
    data: DataShape | None = None
    data_selection: DataSelection | None = None
    budget: int = 0  # ms of cores; 0: none
    replicate: str = "none"
    policy: dict[str, str] = {}  # expressions: see `matchmaking.py`
    fail_over: str = ""  # the site where tasks go that keep failing
    absence: int = 0  # ms for which its client may be away before an open bag is closed; 0: any time


class TasksAppended(Fact, tag="tasks-appended/1"):
    at: int
    bag: int
    target: int
    first: int
    count: int
    key: str
    source: bytes  # the Source, as msgpack
    extends: bool = False  # the bag was closed, and runs again


class PartAppended(Fact, tag="part-appended/1"):
    """Tasks of an open bag, of any of its targets, and what they wait for."""

    at: int
    bag: int
    first: int
    count: int
    key: str
    pieces: list[tuple[int, int]]  # target and how many, one after the other
    sources: list[bytes]  # of each piece, the Source, as msgpack; with the first one what goes along with all of them
    edges: bytes  # int32 pairs (before, after); none ends at a task that was there before


ABSENT = "absence"  # stands for the user who closed a bag: its client has been away for too long


class BagClosed(Fact, tag="bag-closed/1"):
    at: int
    bag: int
    by: str = ""  # who asked for it, or ABSENT


class BagPaused(Fact, tag="bag-paused/1"):
    at: int
    bag: int
    paused: bool
    by: str = ""  # who asked for it


class TasksCancelled(Fact, tag="tasks-cancelled/1"):
    at: int
    bag: int
    runs: Runs
    why: str  # "user", "upstream" or "gather"
    by: str = ""  # who asked for it
    note: str = ""  # more of why, for people


class TasksRetried(Fact, tag="tasks-retried/1"):
    at: int
    bag: int
    runs: Runs
    by: str = ""  # who asked for it
    # or "rerun": what succeeded may run again, too; "copies": what they left behind is gone, and is needed
    why: str = "user"


class BagRevised(Fact, tag="bag-revised/1"):
    """The bag's specification as it is from now on; its tasks, and how many each target has, stay."""

    at: int
    bag: int
    spec: bytes  # the Bag, as msgpack
    targets: list[TargetShape]
    outdated: Runs  # tasks that the change concerns, and whose results stay
    by: str = ""  # who asked for it


class InputsGathered(Fact, tag="target-gathered/1"):
    """The files that a target's tasks take are at hand: the tasks may be granted."""

    at: int
    bag: int
    target: int


class BatchReleased(Fact, tag="batch-released/1"):
    """The last batch of a target has waited long enough for more tasks: what is there of it may be granted."""

    at: int
    bag: int
    target: int
    count: int  # the target's tasks up to here


class BagRemoved(Fact, tag="bag-removed/1"):
    at: int
    bag: int
    by: str = ""  # who asked for it


class SiteAdded(Fact, tag="site-added/1"):
    at: int
    name: str
    owner: str
    kind: str
    shared: list[str]  # owners who may use it beside its own
    by: str = ""  # who asked for it
    limits: Limits | None = None  # None: as before
    disk: bool = False  # its hosts share one


class SiteDrained(Fact, tag="site-drained/1"):
    at: int
    site: str
    on: bool  # or in use again
    by: str = ""  # who asked for it


class SiteRemoved(Fact, tag="site-removed/1"):
    at: int
    site: str
    by: str = ""  # who asked for it


class SiteTended(Fact, tag="site-tended/1"):
    """A new provisioner starts pilots at the site from now on, and knows nothing of its predecessor's acts."""

    at: int
    site: str
    provisioner: str


class Intent(msgspec.Struct, array_like=True, gc=False):
    """A pilot that is to be started: committed before anything is sent to a batch system."""

    number: int
    nonce: str
    shape: Shape
    reserved: int  # ms of cores, at worst
    bag: int = 0  # for one task of it only
    task: int = -1


class IntentsMade(Fact, tag="intents-made/1"):
    at: int
    site: str
    intents: list[Intent]


class IntentsAccepted(Fact, tag="intents-accepted/1"):
    """The batch system has accepted the jobs of intents, under names of its own."""

    at: int
    site: str
    intents: list[int]
    ids: list[str]


class IntentsRunning(Fact, tag="intents-running/1"):
    at: int
    site: str
    intents: list[int]


class IntentsStopping(Fact, tag="intents-stopping/1"):
    at: int
    site: str
    intents: list[int]
    why: str


class IntentsLeaving(Fact, tag="intents-leaving/1"):
    """The pilots of intents have said goodbye; the batch system may still have their jobs."""

    at: int
    site: str
    intents: list[int]
    why: str


class IntentsEnded(Fact, tag="intents-ended/1"):
    at: int
    site: str
    intents: list[int]
    used: list[int]  # ms of cores
    why: str


class SiteJudged(Fact, tag="site-judged/1"):
    """A site has stopped answering, or answers again."""

    at: int
    site: str
    suspect: int  # since when nothing has been heard; 0: it answers
    says: str


class SiteNoted(Fact, tag="site-noted/1"):
    """A decision about a site, for its history; the state keeps nothing else of it."""

    at: int
    site: str
    kind: str
    says: str


class HostJudged(Fact, tag="host-judged/1"):
    """A host is quarantined, on probation with one task at a time, or fine again."""

    at: int
    site: str
    host: str  # lasting id
    standing: int
    until: int
    times: int  # that it has been quarantined
    says: str


class PilotEnrolled(Fact, tag="pilot-enrolled/1"):
    at: int
    pilot: int
    nonce: str
    epoch: int
    site: str
    owner: str
    host: str  # lasting id
    host_name: str
    cores: int
    memory: int
    gpus: int
    disk: int
    ends: int  # when its wall time is over by our clock; 0: never
    token: bytes  # hash
    expires: int
    detail: str = ""  # platform and interpreter, for people
    nodes: int = 1
    whole: bool = True  # nobody else is on its nodes, as far as we know
    boot: str = ""  # of its host
    life: str = ""  # the mark of its processes
    hardware: str = ""  # of its host: a digest of the network cards' addresses


class PilotDraining(Fact, tag="pilot-draining/1"):
    at: int
    pilot: int


class PilotEnded(Fact, tag="pilot-ended/1"):
    at: int
    pilot: int
    why: str
    clean: bool


class PilotsForgotten(Fact, tag="pilots-forgotten/1"):
    """Forget pilots that left long ago and have no attempt in play, with their tokens."""

    at: int
    pilots: list[int]


TO_FAIL_OVER = 1 << 7  # of a task's variant: it goes to its bag's fail-over site


def pack_variant(time_retries: int, memory_retries: int, to_fail_over_site: bool) -> int:
    """Return the number that tells a class of tasks from the others of its target: eight bits."""
    return to_fail_over_site << 7 | time_retries << 4 | memory_retries


def time_factor(time_retries: int) -> int:
    """Return how many times its time limit a task has after so many duration failures: each triples the limit."""
    factor: int = 3**time_retries
    return factor


def unpack_variant(variant: int) -> tuple[int, int, bool]:
    """Return a variant's retries with a longer limit, its retries with more memory, and whether it fails over."""
    return variant >> 4 & 7, variant & 15, variant >= TO_FAIL_OVER


class Group(msgspec.Struct, array_like=True, gc=False):
    """Tasks of one class within a grant."""

    bag: int
    target: int
    time_retries: int
    memory_retries: int
    tasks: list[int]
    attempts: list[int]
    chain: int = -1  # they run one after the other, with others of the same number; -1: each by itself
    # task by task, the attempt there that must succeed first; 0, or none at all: none must
    prerequisites: list[int] = []
    to_fail_over_site: bool = False  # they have failed so often that they go to their bag's fail-over site

    @property
    def variant(self) -> int:
        """The variant of the target that the tasks' class is."""
        return pack_variant(self.time_retries, self.memory_retries, self.to_fail_over_site)


class Transfer(msgspec.Struct, array_like=True, gc=False):
    """A transfer: what an attempt is to fetch, and from which copy."""

    attempt: int
    place: str  # "home", "site NAME" or "host SITE ID"
    task: int  # whose output it is; -1: from outside
    size: int
    files: int


class Granted(Fact, tag="granted/1"):
    at: int
    pilot: int
    number: int
    groups: list[Group]
    transfers: list[Transfer] = []


class Adopted(Fact, tag="adopted/1"):
    """A new epoch of a pilot holds what an older one was granted: it is the new one's from now on."""

    at: int
    pilot: int
    attempts: list[int]


class Started(Fact, tag="started/1"):
    at: int
    pilot: int
    attempts: list[int]


class Detail(msgspec.Struct, array_like=True, gc=False):
    """The part of a report that most reports do not have."""

    exit: int = 0
    signal: int = 0
    out: bytes = b""
    err: bytes = b""
    out_size: int = 0
    err_size: int = 0
    files: list[tuple[str, str, int, int]] = []
    value: str = ""
    note: str = ""
    values: dict[str, str] = {}  # captured
    saved: list[tuple[str, str, int, int]] = []  # checkpoint files
    scratch: tuple[str, int] | None = None  # blob and size of a kept directory


class Finished(Fact, tag="finished/1"):
    """Plain successes of one bag from one report, as columns."""

    at: int
    pilot: int
    bag: int
    attempts: list[int]
    tasks: list[int]
    granted: list[int] = []
    walls: list[int] = []
    cpus: list[int] = []
    rss: list[int] = []
    details: dict[int, Detail] = {}  # by position in the lists
    starts: list[int] = []  # by the pilot's wall clock
    # bytes and files left in place, by position, where the report says so
    left_in_place: dict[int, tuple[int, int]] = {}


class End(msgspec.Struct, array_like=True, gc=False):
    """How one attempt ended, and what that makes of its task."""

    attempt: int
    bag: int
    task: int
    generation: int
    outcome: int
    why: str
    verdict: int  # the task's state from now on
    row_kept: bool  # the row is kept: a late report is still welcome
    failures: int  # the task's counters from now on
    time_retries: int
    memory_retries: int
    deaths: int
    granted: int
    wall: int
    cpu: int
    rss: int
    detail: Detail | None = None
    decides: bool = True  # this is what ended the task; False: it goes on, or had ended before
    start: int = 0  # by the pilot's wall clock
    left_in_place: tuple[int, int] | None = None  # bytes and files left in place, where the report says so
    charged: int = 0  # ms of cores, where the attempt is over
    to_fail_over_site: bool = False  # the task goes to its bag's fail-over site from now on

    @property
    def variant(self) -> int:
        """The variant of its target that the task belongs to from now on."""
        return pack_variant(self.time_retries, self.memory_retries, self.to_fail_over_site)


def began(noted: int | None, reported: int, granted: int, ended: int, wall: int) -> int:
    """Return when an attempt began: not before its grant, and early enough for its wall time.

    `noted` is when the server heard of the start, mostly some time later; `reported` the start by the pilot's clock,
    0 where none is known."""
    latest = ended - wall if noted is None else min(noted, ended - wall)
    return max(granted, min(reported, latest) if reported else latest)


class Ended(Fact, tag="ended/1"):
    """Ends of attempts that were not plain successes, or too few to be worth columns."""

    at: int
    pilot: int
    ends: list[End]


class LinkKnown(Fact, tag="link-known/1"):
    """How long files take between two sites; "home" is where the server is, "*" any place."""

    at: int
    a: str
    b: str
    latency: int  # ms to begin with one file
    rate: int  # bytes a second


class CopiesLost(Fact, tag="copies-lost/1"):
    """The outputs that tasks had left at a place are gone."""

    at: int
    place: str
    lost: list[tuple[int, Runs]]  # by bag
    why: str


class BudgetSet(Fact, tag="budget-set/1"):
    at: int
    bag: int
    budget: int  # ms of cores; 0: none any more
    by: str = ""  # who asked for it


class PolicySet(Fact, tag="policy-set/1"):
    at: int
    bag: int
    policy: dict[str, str]  # all of the bag's expressions from now on
    by: str = ""  # who asked for it


class AllowanceSet(Fact, tag="allowance-set/1"):
    at: int
    owner: str  # "*": everybody who has none of his own
    allowance: int  # ms of cores a month; -1: none any more
    by: str = ""  # who asked for it


class WeightSet(Fact, tag="weight-set/1"):
    at: int
    owner: str
    weight: int  # his part where several share a site
    by: str = ""  # who asked for it


class BagAged(Fact, tag="bag-lifted/1"):
    at: int
    bag: int
    first: bool  # before its owner's other bags, for it has waited long; or back in its place


class TokenIssued(Fact, tag="token-issued/1"):
    at: int
    id: str
    hash: bytes
    scope: str
    owner: str
    site: str
    expires: int  # 0: never
    by: str = ""  # who asked for it


class TokenRevoked(Fact, tag="token-revoked/1"):
    at: int
    id: str
    by: str = ""  # who asked for it


class NumbersSkipped(Fact, tag="numbers-skipped/1"):
    """The journal has lost commits, which may have given any numbers below these."""

    at: int
    next_bag: int
    next_pilot: int
    next_intent: int
    attempt_base: int  # how often a row of the attempts may have been used


class ClockSet(Fact, tag="clock-set/1"):
    """A person says what time it is.  Where that is earlier than the journal said, the clock had been wrong: all times
    after `at` move back by as much."""

    at: int
    before: int  # the journal's time until then
    by: str = ""  # who said so


FACTS = (
    BagSubmitted, TasksAppended, BagClosed, BagPaused, TasksCancelled, TasksRetried, InputsGathered, BagRemoved,
    SiteAdded, PilotEnrolled, PilotDraining, PilotEnded, PilotsForgotten, Granted, Adopted, Started, Finished, Ended,
    TokenIssued, TokenRevoked, SiteTended, IntentsMade, IntentsAccepted, IntentsRunning, IntentsStopping, IntentsEnded,
    BatchReleased,
    LinkKnown, CopiesLost, IntentsLeaving, SiteDrained, SiteRemoved, SiteJudged, SiteNoted,
    HostJudged,
    BudgetSet, AllowanceSet, PolicySet, WeightSet, BagAged,
    PartAppended, BagRevised,
    NumbersSkipped, ClockSet,
)
