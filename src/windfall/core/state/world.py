"""The state: records for what is few (bags, pilots, sites, tokens), columns for what is many.

Only `apply` changes what is durable.  `state/fields.py` says what the marks of the other fields mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from windfall.core.messages.facts import DataSelection, Group, Limits, Shape, TargetShape, Transfer, pack_variant
from windfall.core.messages.lifecycle import (
    ACTIVE,
    FIRST_FINAL,
    INTENDED,
    LEAVING,
    LIVE,
    READY,
    RUNNING,
    TASK_STATES,
    WAITING,
)
from windfall.core.state.backlog import Backlog
from windfall.core.state.bag_data import HOME, BagData
from windfall.core.state.columns import TASK_BITS, Attempts, Hosts, Tasks
from windfall.core.state.fields import CHUNKED, DERIVED, INDEX, SESSION
from windfall.core.state.graph import Graph, Pairs, as_pairs
from windfall.core.state.slots import slots_on
from windfall.model.checks.bag import TASK_PILOT_POLICIES
from windfall.model.policies.presets import DEADLINE, NONE

Files = list[tuple[str, str, int, int]]  # (path, blob, size, mode)
RECENT = 0.2  # of the newest in a moving average of waits
AGED_FIRST = float("-inf")  # begins the key of classes whose bag goes first
MATCHING_POLICIES = ("sites", "requirements", "rank")  # policies that are looked at for every request
NO_CHAIN = -1
BLOCK = 256  # appended sources, or tasks whose checkpoints are kept, per chunk of a snapshot


@dataclass(slots=True)
class TaskClass:
    """Tasks of one target that no policy can tell apart: same resources, same limits.  Mechanisms ask for n of them."""

    number: int
    bag: int = field(metadata=DERIVED)
    target: int = field(metadata=DERIVED)
    time_retries: int = field(metadata=DERIVED)
    memory_retries: int = field(metadata=DERIVED)
    cores: int = field(metadata=DERIVED)
    memory: int = field(metadata=DERIVED)
    gpus: int = field(metadata=DERIVED)
    disk: int = field(metadata=DERIVED)
    whole: bool = field(metadata=DERIVED)  # takes all of a pilot, which must have at least the above
    message_bytes: int  # bytes one task takes in a message, about
    limit: int = field(metadata=DERIVED)  # ms, 0: none
    least_time_left: int = field(metadata=DERIVED)  # ms of a pilot's remaining time it takes to start one; 0: any
    order_key: tuple[float, ...] = field(metadata=DERIVED)  # order among classes: lower first
    backlog: Backlog = field(metadata=SESSION)
    batch: int = field(default=0, metadata=DERIVED)  # so many tasks go together
    in_chain: bool = field(default=False, metadata=DERIVED)  # in batches or pipelines
    ready: int = field(default=0, metadata=DERIVED)  # tasks in state ready
    on_ready_list: bool = field(default=False, metadata=DERIVED)  # stands in State.ready
    by_data: bool = field(default=False, metadata=DERIVED)  # its bag selects by where data lies
    has_budget: bool = field(default=False, metadata=DERIVED)  # its bag has a budget
    at_once: int = field(default=0, metadata=DERIVED)  # most tasks of its crowd in play; 0: any number
    concurrency_group: int = field(default=-1, metadata=DERIVED)
    has_expressions: bool = field(default=False, metadata=DERIVED)  # its bag has expressions
    has_per_host: bool = field(default=False, metadata=DERIVED)  # its bag says how many of its tasks a host may hold
    has_allowance: bool = field(default=False, metadata=DERIVED)  # its owner has an allowance
    is_accounted: bool = field(default=False, metadata=DERIVED)  # is anything of it pledged?
    nodes: int = field(default=1, metadata=DERIVED)
    # ms an attempt may take, the grace at its end included; 0: no limit
    worst_case: int = field(default=0, metadata=DERIVED)
    # they have failed so often that they go to their bag's fail-over site
    to_fail_over_site: bool = field(default=False, metadata=DERIVED)
    # nobody there could take them for long, any site will do
    fail_over_released: bool = field(default=False, metadata=SESSION)
    fail_over_watched: bool = field(default=False, metadata=SESSION)  # a timer runs that looks for somebody there
    fail_over_misses: int = field(default=0, metadata=SESSION)  # how often in a row nobody was there
    # volatile: tasks in play that another host is to have, too → rows of the hosts that have them
    overdue: dict[int, tuple[int, ...]] = field(default_factory=dict, metadata=SESSION)
    mean: float = 0.0  # ms a success took, moving average; 0: unknown
    successes: int = 0
    mean_at_last_scan: float = field(default=0.0, metadata=SESSION)  # the mean when it was last seen who is late

    @property
    def variant(self) -> int:
        return pack_variant(self.time_retries, self.memory_retries, self.to_fail_over_site)

    @property
    def least_price(self) -> int:
        """Core-ms that one attempt takes at most on the smallest pilot that holds it; 0: it has no limit."""
        return self.cores * self.nodes * self.worst_case

    def note_accounts(self, bag_has_budget: bool, owner_has_allowance: bool) -> None:
        """Note which accounts its tasks are pledged to."""
        self.has_budget, self.has_allowance = bag_has_budget, owner_has_allowance
        self.is_accounted = bag_has_budget or owner_has_allowance or self.disk > 0 or self.at_once > 0

    def group(
        self, tasks: list[int], attempts: list[int], chain: int = NO_CHAIN, prerequisites: list[int] | None = None
    ) -> Group:
        """Return tasks of this class, and the numbers of their new attempts, as a part of a grant."""
        return Group(
            self.bag, self.target, self.time_retries, self.memory_retries, tasks=tasks, attempts=attempts, chain=chain,
            prerequisites=prerequisites or [], to_fail_over_site=self.to_fail_over_site,
        )


@dataclass(slots=True)
class TargetState:
    index: int
    shape: TargetShape
    count: int
    pending: int  # prerequisite targets that are not done
    not_succeeded: int  # tasks that have not succeeded
    not_ended: int  # tasks without a final state
    dependents: list[int] = field(default_factory=list)
    inputs_pending: bool = False  # the files that its tasks take have not been gathered yet
    released: int = 0  # tasks up to here need not wait for their batch to fill
    filling_since: int = 0  # when the first task came that does
    next_stage: int = field(default=-1, metadata=DERIVED)  # the target whose tasks go behind these, one to one

    @property
    def waits(self) -> bool:
        return self.pending > 0 or self.inputs_pending


@dataclass(slots=True)
class BagState:
    number: int
    owner: str
    name: str
    key: str
    spec: bytes = field(metadata=CHUNKED)
    external: bool
    select: str
    open: bool
    submitted: int
    tasks: Tasks = field(metadata=CHUNKED)
    targets: list[TargetState] = field(metadata=CHUNKED)
    runs: list[tuple[int, int, int]]  # (first task, target, first within the target), by first task
    counts: list[int]
    graph: Graph | None = field(default=None, metadata=CHUNKED)  # None: no task waits for another
    # idempotency keys of its last appends
    recent_keys: deque[tuple[str, str]] = field(default_factory=deque, metadata=DERIVED)
    appended: list[bytes] = field(default_factory=list, metadata=CHUNKED)  # (target, Source) of what was appended
    classes: dict[tuple[int, int], TaskClass] = field(default_factory=dict, metadata=CHUNKED)  # by (target, variant)
    paused: bool = False
    ended: int = 0
    changed: int = 0  # time of the last change
    # task → what its last attempt saved
    checkpoints: dict[int, Files] = field(default_factory=dict, metadata=CHUNKED)
    # chunks of them → changed since the last snapshot
    checkpoint_blocks: dict[int, bool] = field(default_factory=dict, metadata=SESSION)
    busy_ms: int = 0  # ms in which it had unfinished tasks, up to the last time that it had none
    busy_since: int = 0  # since when it has some; 0: it has none
    provision: str = "swarm"
    options: dict[str, int] = field(default_factory=dict)
    data: BagData | None = field(default=None, metadata=CHUNKED)
    data_selection: DataSelection | None = None  # selection by where data lies
    policy: dict[str, str] = field(default_factory=dict)  # expressions
    budget: int = 0  # ms of cores; 0: none
    fail_over: str = ""  # the site where tasks go that keep failing
    absence: int = 0  # ms for which its client may be away before it is closed, if it is open; 0: any time
    attended: int = field(default=0, metadata=SESSION)  # when a client followed it, or appended to it, last
    spent: int = 0  # ms of cores, of attempts that are over
    replicate: str = "none"
    last_granted: int = 0  # when one of its tasks was handed out last, or the first of them became ready
    aged_since: int = 0  # since when, having waited long, it goes before its owner's others; 0: it does not
    replicas_granted: int = 0  # attempts that were granted while another one of the same task was in play
    replica_waste: int = 0  # ms of cores, of attempts that another one made needless
    revised: int = 0  # when its specification changed last; 0: it is as submitted
    reread: int = 0  # entries of `appended` whose files the specification holds since then
    spec_saved: bool = field(default=False, metadata=SESSION)  # its specification is in a snapshot
    saved_appends: int = field(default=0, metadata=SESSION)
    batch_timer_set: bool = field(default=False, metadata=SESSION)  # a timer runs for an incomplete batch
    replica_version: int = field(default=0, metadata=SESSION)  # counts what may let more of its tasks have a replica
    # hosts seen last → did their last task succeed?
    last_outcome_by_host: dict[int, bool] = field(default_factory=dict, metadata=SESSION)
    programs: dict[str, Any] = field(default_factory=dict, metadata=SESSION)  # its policies, compiled
    # where it has policies, or may have replicas: tasks that had not ended when its last round began
    tail_size: int = 0
    pledged: int = field(default=0, metadata=DERIVED)  # under a budget: ms of cores that attempts in play may take
    # attempts in play of those that have a limit
    running_in_group: dict[int, int] = field(default_factory=dict, metadata=DERIVED)

    @property
    def size(self) -> int:
        return self.tasks.rows

    @property
    def pairs(self) -> Pairs:
        """Return the bag's edges, (before, after)."""
        return as_pairs(b"") if self.graph is None else self.graph.edges.pairs()

    @property
    def has_expressions(self) -> bool:
        """Do expressions say where its tasks go, and which of its owner's bags comes first?"""
        return any(key in self.policy for key in MATCHING_POLICIES)

    @property
    def replicate_setting(self) -> str:
        """A preset, or an expression."""
        return self.policy.get("replicate", self.replicate)

    @property
    def may_run_twice(self) -> bool:
        """May a task of the bag have two attempts in play?"""
        return not self.external and self.provision not in TASK_PILOT_POLICIES

    @property
    def replicates(self) -> bool:
        return self.replicate_setting not in (NONE, DEADLINE) and self.may_run_twice

    @property
    def has_deadlines(self) -> bool:
        return self.may_run_twice and ("attempt-deadline" in self.policy or self.replicate_setting == DEADLINE)

    def locate(self, task: int) -> tuple[int, int]:
        """A task's target and its number within that."""
        first, target, local = self.runs[bisect_right(self.runs, (task, 1 << 62, 0)) - 1]
        return target, task - first + local

    def target_of(self, task: int) -> int:
        runs = self.runs
        return runs[0][1] if len(runs) == 1 else runs[bisect_right(runs, (task, 1 << 62, 0)) - 1][1]

    @property
    def in_tail(self) -> bool:
        """Is the bag in its tail: do fewer of its tasks wait than are handed out?

        A bag in its tail stays there until it has more unfinished tasks than when the tail began."""
        if self.open:
            return False
        counts = self.counts
        begins = counts[READY] + counts[WAITING] < counts[ACTIVE]
        return begins or (self.tail_size > 0 and self.not_ended() <= self.tail_size)

    def note_tail(self) -> None:
        """Note that tasks were handed out, or that none can follow any more: the tail may begin."""
        if self.in_tail:
            self.tail_size = max(self.tail_size, self.not_ended())

    def has_backlog(self) -> bool:
        """Could a task be handed out that no pilot has?  `counts` has tasks of waiting targets as ready, too."""
        if not self.counts[READY] or len(self.targets) == 1:
            return self.counts[READY] > 0
        return any(cls.ready and not self.targets[cls.target].waits for cls in self.classes.values())

    def filling(self, target: TargetState) -> range:
        """Return the places, counted within the target, of the tasks that wait for their batch to fill."""
        shape = target.shape
        if not self.open or shape.batch < 2 or not shape.patience:
            return range(0)
        return range(max(target.released, target.count - target.count % shape.batch), target.count)

    def held_back(self, cls: TaskClass) -> int:
        """Count the ready tasks of a class that wait for their batch to fill."""
        if cls.batch < 2 or not self.open or cls.time_retries or cls.memory_retries or cls.to_fail_over_site:
            return 0
        backlog = cls.backlog
        return sum(backlog.is_ready(backlog.task_at(place)) for place in self.filling(self.targets[cls.target]))

    def not_ended(self) -> int:
        return sum(self.counts[:FIRST_FINAL])

    def keep_checkpoint(self, task: int, files: Files) -> None:
        self.checkpoints[task] = files
        self.checkpoint_blocks[task // BLOCK] = True

    def drop_checkpoint(self, task: int) -> None:
        if self.checkpoints.pop(task, None) is not None:
            self.checkpoint_blocks[task // BLOCK] = True

    def chunk_names(self) -> list[str]:
        """Name every chunk that a snapshot may hold of the bag."""
        names = ["spec", *(f"costs{t.index}" for t in self.targets if t.shape.costs)]
        names += [f"t{n}" for n in range(len(self.tasks.dirty))]
        names += [f"a{n}" for n in range(-(-len(self.appended) // BLOCK))]
        names += [f"c{n}" for n in self.checkpoint_blocks]
        names += [f"d{n}" for n in range(len(self.data.columns.dirty))] if self.data is not None else []
        names += [f"e{n}" for n in range(len(self.graph.edges.dirty))] if self.graph is not None else []
        return [f"b{self.number}/{name}" for name in names]


class WaitingRequest(msgspec.Struct, gc=False):
    """A pilot's request that the server answers later, when there is something to say."""

    key: int
    seq: int
    ack: int
    want: int
    ends: int | None  # when the pilot's wall time is over, by its own word
    wait: int  # ms it may be kept waiting, from when its pilot was last heard
    until: int
    arrived: int  # when it came

    def time_left(self, now: int) -> int | None:
        return None if self.ends is None else max(self.ends - now, 0)


@dataclass(slots=True)
class PilotState:
    number: int
    nonce: str
    epoch: int
    site: str
    owner: str
    host: str
    host_name: str
    cores: int
    memory: int
    gpus: int
    disk: int
    enrolled: int
    ends: int  # 0: no wall time
    token: bytes
    detail: str
    state: int = LIVE
    cls: int = field(default=0, metadata=INDEX)
    granted: int = 0  # number of its last grant
    attempts_held: int = field(default=0, metadata=DERIVED)  # attempts granted, started or dropped
    load: int = field(default=0, metadata=DERIVED)  # thousandths of a core they take
    ended: int = 0
    why: str = ""
    nodes: int = 1
    whole: bool = True  # nobody else is on its nodes
    boot: str = ""  # of its host
    life: str = ""  # the mark of its processes
    hardware: str = ""  # of its host: a digest of the network cards' addresses
    intent: int = field(default=0, metadata=DERIVED)  # that it was started under, while that is open
    row: int = field(default=0, metadata=DERIVED)  # of its host
    heard: int = field(default=0, metadata=SESSION)
    # its lease ran out: nothing is granted before it has said what it holds
    lease_expired: bool = field(default=False, metadata=SESSION)
    # why its batch system takes it for dead, while that is not proven and it holds tasks with external effects
    doubt: str = field(default="", metadata=SESSION)
    census: bool = field(default=False, metadata=SESSION)
    # since when it was heard without saying that what it is to drop is dropped; 0: there is none
    cancel_unacknowledged_since: int = field(default=0, metadata=SESSION)
    waiting_request: WaitingRequest | None = field(default=None, metadata=SESSION)
    request_timer: int = field(default=0, metadata=SESSION)  # when to look at what is parked; 0: nothing is planned
    cancelling: dict[int, bool] = field(default_factory=dict, metadata=SESSION)  # attempt → has been told
    # attempt to return if it has not started → has been told
    recalling: dict[int, bool] = field(default_factory=dict, metadata=SESSION)
    # attempts that the pilot holds and the server knows nothing of: the pilot is to drop them
    unknown_attempts: list[int] = field(default_factory=list, metadata=SESSION)
    stop_sent: str = field(default="", metadata=SESSION)  # the last `stop` it was sent
    trouble: str = field(default="", metadata=SESSION)  # why it takes no tasks, in its own words
    # (bag, chain) → class → attempts
    chains: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict, metadata=DERIVED)


@dataclass(slots=True)
class PilotClass:
    """Pilots that no policy can tell apart."""

    number: int
    owners: tuple[str, ...]  # its own, then those it is shared with
    site: str
    cores: int
    memory: int
    gpus: int
    disk: int
    nodes: int = 1
    whole: bool = True
    milli_cores: dict[int, int] = field(default_factory=dict)  # task class → thousandths of a core; 0: does not fit
    waiting: dict[int, int] = field(default_factory=dict, metadata=SESSION)  # pilots waiting → rows of their hosts
    pilots: int = 0  # how many there are, those included that are gone and not forgotten
    no_match_at_version: int = field(default=-1, metadata=SESSION)  # version of the ready list in which nothing fitted


@dataclass(slots=True)
class SiteSession:
    """The session with whoever starts pilots at a site; volatile."""

    unknown_before: int = 0  # what was submitted before that is not known
    has_listing: bool = True  # a listing has told
    listing_wanted: bool = False  # for a listing
    relist_from: int = 0  # when the first one came that could have told
    heard_list: int = 0  # when the last listing came
    last_orders: int = 0  # of the last answer
    unknown_jobs: dict[tuple[str, str], bool] = field(default_factory=dict)  # jobs we do not want → told
    waiting_request: tuple[int, int] | None = None  # key, until
    retry_after: int = 0  # submit nothing before
    backoff: int = 0
    late_start: int = 0  # ms of their wall time that were over when pilots came, where that was too much; and a bit
    free_processors: int = 0  # what the information system said
    jobs_queued: int = 0
    info_at: int = -1  # as of when; -1: never
    heard: int = 0  # when its tender spoke last
    listing_asked_at: int = 0  # when a listing was asked for that has not come
    probing: bool = False  # after a blackout: one pilot at a time, until one has been given something to do
    can_salvage: bool = False  # its tender can look for what pilots left behind
    salvages_due: dict[str, bool] = field(default_factory=dict)  # nonces for which it is to → told
    wants_room: bool = False  # more would be started if those that leave were gone
    useless_since: int = 0  # since when no open bag may use the site; 0: one may
    job_missing_once: bool = False  # the last listing lacked something: another one will tell
    account_heard: int = -1  # when the next three were told; -1: never
    other_jobs: int = 0  # jobs of the user that are none of ours
    balance: int = -1  # ms of cores that the user's account may still use; -1: not told
    balance_as_of: int = -1  # `released` when that was looked up, or before; -1: nobody knows
    released_when_answered: int = 0  # `released` when the last answer was given


@dataclass(slots=True)
class Waits:
    """The ms that pilots of one shape waited: from their intent until they ran, and from then to their first word."""

    count: int = 0
    total: int = 0
    recent: float = 0.0  # moving average
    starts: int = 0
    start_total: int = 0
    start_recent: float = 0.0

    def waited(self, ms: int) -> None:
        self.recent += (ms - self.recent) * (RECENT if self.count else 1.0)
        self.count, self.total = self.count + 1, self.total + ms

    def started(self, ms: int) -> None:
        self.start_recent += (ms - self.start_recent) * (RECENT if self.starts else 1.0)
        self.starts, self.start_total = self.starts + 1, self.start_total + ms


class Fit(NamedTuple):
    """The shape that fits a task class best."""

    shape: Shape
    slots: int  # tasks of the class that such a pilot runs at once


@dataclass(slots=True)
class SiteState:
    name: str
    owner: str
    kind: str
    shared: list[str]
    added: int
    limits: Limits = field(default_factory=Limits)
    core_ms_used: int = 0  # ms of cores, of intents that have ended
    provisioner: str = ""  # who starts pilots there
    shared_disk: bool = False  # its hosts share one
    drained: bool = False  # nothing is sent there any more
    removed: bool = False  # its user has no such site any more
    suspect_since: int = 0  # since when it has not answered; 0: it does
    history: list[tuple[int, str, str]] = field(default_factory=list)  # (when, kind, what was decided), the newest last
    waits: dict[Shape, Waits] = field(default_factory=dict)  # how long its pilots wait and take to start
    intents: list[dict[int, None]] = field(default_factory=lambda: [{}, {}, {}, {}, {}], metadata=DERIVED)  # by state
    # intended and queued, for no task in particular
    queued_by_shape: dict[Shape, int] = field(default_factory=dict, metadata=DERIVED)
    core_ms_reserved: int = field(default=0, metadata=DERIVED)  # ms of cores
    # intents that run, and whose pilot has not asked for work yet
    starting: dict[int, None] = field(default_factory=dict, metadata=SESSION)
    # task class → the shape that is best for it, or None
    best_shapes: dict[int, Fit | None] = field(default_factory=dict, metadata=SESSION)
    # where several share it: owner → thousandths of cores in use
    cores_in_use: dict[str, int] = field(default_factory=dict, metadata=DERIVED)
    core_ms_released: int = field(default=0, metadata=SESSION)  # ms of cores that ended intents had reserved
    disk_reserved: int = field(default=0, metadata=DERIVED)  # bytes of disk that attempts in play may take
    session: SiteSession = field(default_factory=SiteSession, metadata=SESSION)

    @property
    def open(self) -> int:
        """Pilots that count against its limits."""
        return sum(map(len, self.intents))

    @property
    def waiting(self) -> int:
        """Count the pilots that may be queued."""
        return self.open - len(self.intents[RUNNING]) - len(self.intents[LEAVING])


@dataclass(slots=True)
class IntentState:
    """A pilot in a batch system, from the decision to have it."""

    number: int
    nonce: str
    site: str
    shape: Shape
    reserved: int
    bag: int
    task: int  # -1: any
    made: int
    state: int = INTENDED
    changed: int = 0  # when it came into this state
    running_since: int = 0  # when it came to run
    batch_id: str = ""  # the batch system's name for it
    pilot: int = 0
    # 0: nobody was told, 1: its tender was, 2: an earlier one may have been
    start_told: int = field(default=0, metadata=SESSION)
    stop_told: bool = field(default=False, metadata=SESSION)  # to stop
    # when a listing came that lacked it, and none since that has it
    missing_since: int = field(default=0, metadata=SESSION)
    salvage_until: int = field(default=0, metadata=SESSION)  # until when what its pilot left behind is looked for


@dataclass(slots=True)
class TokenState:
    id: str
    scope: str  # user, admin, enrol, pilot
    owner: str
    site: str = ""
    pilot: int = -1
    expires: int = 0
    issued: int = 0


@dataclass(slots=True)
class Arrivals:
    """The times at which a host's pilots asked for work.  A pilot that follows another one there goes on with them."""

    pilot: int = field(metadata=SESSION)  # the last one that asked
    last: int = field(metadata=SESSION)
    mean: float = field(default=0.0, metadata=SESSION)  # ms between two requests
    gaps: int = field(default=0, metadata=SESSION)


@dataclass(slots=True)
class State:
    bags: dict[int, BagState] = field(default_factory=dict, metadata=CHUNKED)
    classes: dict[int, TaskClass] = field(default_factory=dict, metadata=INDEX)
    attempts: Attempts = field(default_factory=Attempts, metadata=CHUNKED)
    pilots: dict[int, PilotState] = field(default_factory=dict)
    nonces: dict[tuple[str, str], int] = field(default_factory=dict)  # (site, nonce) → newest pilot
    pilot_classes: dict[int, PilotClass] = field(default_factory=dict, metadata=INDEX)
    sites: dict[str, SiteState] = field(default_factory=dict)
    tokens: dict[bytes, TokenState] = field(default_factory=dict)  # by hash
    token_ids: dict[str, bytes] = field(default_factory=dict, metadata=DERIVED)
    # idempotency → (bag, first task, tasks, digest of the request)
    keys: dict[tuple[str, str], tuple[int, int, int, int]] = field(default_factory=dict)
    now: int = 0
    next_bag: int = 1
    next_pilot: int = 1
    next_class: int = 1
    next_intent: int = 1
    attempt_base: int = 0  # commits that were lost may have used a row of the attempts so often
    intents: dict[int, IntentState] = field(default_factory=dict)  # open ones
    hosts: Hosts = field(default_factory=lambda: Hosts(0), metadata=CHUNKED)
    host_names: list[tuple[str, str, str]] = field(default_factory=list)  # row → site, lasting id, name
    host_reasons: dict[int, str] = field(default_factory=dict, metadata=CHUNKED)  # row → why it must wait
    host_doubts: dict[int, str] = field(default_factory=dict, metadata=SESSION)  # row → why it is in doubt
    host_rows: dict[tuple[str, str], int] = field(default_factory=dict, metadata=INDEX)
    host_free: list[int] = field(default_factory=list, metadata=INDEX)  # rows of hosts that were forgotten, a heap
    # row → pilots there, gone ones included
    on_host: dict[int, dict[int, None]] = field(default_factory=dict, metadata=DERIVED)
    # hosts that are quarantined, on probation or in doubt → until when they get nothing; then one task at a time
    quarantined: dict[int, int] = field(default_factory=dict, metadata=SESSION)
    allowances: dict[str, int] = field(default_factory=dict)  # owner, or "*" → ms of cores a month
    weights: dict[str, int] = field(default_factory=dict)  # owner → his part where sites are shared; 1 if not said
    limits_changed: int = 0  # when one of them, or a site, was changed last
    usage: dict[tuple[str, int], int] = field(default_factory=dict)  # owner, month → ms of cores used where it counts
    # owner → ms of cores of attempts in play where it counts
    pledged: dict[str, int] = field(default_factory=dict, metadata=DERIVED)
    intent_nonces: dict[tuple[str, str], int] = field(default_factory=dict, metadata=DERIVED)
    provisioned_sites: dict[str, None] = field(default_factory=dict, metadata=DERIVED)  # sites with shapes
    # bag << 32 | task → its open intents
    task_pilots: dict[int, dict[int, None]] = field(default_factory=dict, metadata=DERIVED)
    # whose tasks have pilots of their own
    bags_with_task_pilots: dict[int, None] = field(default_factory=dict, metadata=DERIVED)
    unended: dict[int, None] = field(default_factory=dict, metadata=DERIVED)  # bags that have not ended
    replicating: dict[int, None] = field(default_factory=dict, metadata=DERIVED)  # bags whose late tasks have replicas
    places: dict[str, int] = field(default_factory=lambda: {HOME: 1}, metadata=INDEX)  # where copies lie; 0: nowhere
    place_names: list[str] = field(default_factory=lambda: ["", HOME])
    links: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # sites → (ms a file, bytes a second)
    transfers_of: dict[int, list[Transfer]] = field(default_factory=dict)  # attempt → what it fetches
    readers_of: dict[str, int] = field(default_factory=dict, metadata=DERIVED)  # place → transfers from there
    bags_by_data: int = field(default=0, metadata=DERIVED)  # bags that select by where data lies
    # classes on the ready list whose bags have expressions
    ready_with_expressions: int = field(default=0, metadata=DERIVED)
    # (key, class) with something to grant
    ready: list[tuple[tuple[float, ...], int]] = field(default_factory=list, metadata=DERIVED)
    version: int = field(default=0, metadata=SESSION)  # counts what may give a waiting pilot something to do,
    replica_offers: int = field(default=0, metadata=SESSION)  # and of that what may only give it a replica
    tasks_owned: dict[str, int] = field(default_factory=dict, metadata=DERIVED)  # tasks in all bags of an owner
    # pilot classes by what they are
    shapes: dict[tuple[object, ...], int] = field(default_factory=dict, metadata=INDEX)
    # pilots that hold more than they can run
    overloaded_pilots: dict[int, None] = field(default_factory=dict, metadata=DERIVED)
    # chunks of removed bags that a snapshot may still hold
    dropped_chunks: list[str] = field(default_factory=list, metadata=SESSION)
    # pilots with something new to cancel
    pilots_with_news: dict[int, None] = field(default_factory=dict, metadata=SESSION)
    disk_low: bool = field(default=False, metadata=SESSION)  # the driver's disk is low, nothing new is granted
    disk_problem: str = field(default="", metadata=SESSION)  # which disk that is, and what frees it
    # hosts that hold less of a bag with `per-host`
    hosts_below_per_host: dict[int, None] = field(default_factory=dict, metadata=SESSION)
    # sites with something new to start or stop
    sites_with_orders: dict[str, None] = field(default_factory=dict, metadata=SESSION)
    arrivals: dict[tuple[str, str], Arrivals] = field(default_factory=dict, metadata=SESSION)  # by site and host
    deadlines: dict[int, None] = field(default_factory=dict, metadata=DERIVED)  # bags whose attempts have deadlines
    overdue: dict[int, None] = field(default_factory=dict, metadata=SESSION)  # classes with overdue tasks
    # host, guest → he gets nothing before
    guests_refused: dict[tuple[int, str], int] = field(default_factory=dict, metadata=SESSION)

    def count_owned(self, owner: str, more: int) -> None:
        """Count tasks that came or went."""
        self.tasks_owned[owner] = self.tasks_owned.get(owner, 0) + more
        if not self.tasks_owned[owner]:
            del self.tasks_owned[owner]

    def bag_of(self, row: int) -> BagState:
        """Return the bag of an attempt in play."""
        return self.bags[self.attempts.task[row] >> TASK_BITS]

    # --- the ready list --------------------------------------------------------------------------------------

    def can_offer(self, cls: TaskClass) -> bool:
        """Does it belong on the ready list?"""
        bag = self.bags.get(cls.bag)
        if bag is None or not cls.ready or bag.paused or bag.targets[cls.target].waits:
            return False
        if cls.batch > 1 and cls.ready <= bag.held_back(cls):
            return False
        return not cls.has_budget or cls.least_price <= bag.budget - bag.spent - bag.pledged

    @property
    def ready_version(self) -> int:
        """Version of the ready list: counts what may give a waiting pilot some of that."""
        return self.version - self.replica_offers

    def note_replication(self, bag: BagState) -> None:
        """List the bag where the deciders of replicas and of deadlines look, as its policies now say."""
        for listed, is_listed in (
            (self.replicating, bag.replicates and not bag.ended), (self.deadlines, bag.has_deadlines),
        ):
            if is_listed:
                listed[bag.number] = None
            else:
                listed.pop(bag.number, None)

    def note_replica_offer(self) -> None:
        """Bump the versions that pilots waiting for replicas compare: a running task may have a replica now."""
        self.version += 1
        self.replica_offers += 1

    def relist(self, cls: TaskClass) -> None:
        """Put a class on the ready list, or take it off, as its backlog and its bag ask for."""
        want = self.can_offer(cls)
        if want == cls.on_ready_list:
            return
        entry = (cls.order_key, cls.number)
        if want:
            insort(self.ready, entry)
            self.version += 1
        else:
            del self.ready[bisect_left(self.ready, entry)]
            self.version += bool(self.ready)  # what stood behind it may come first now
        cls.on_ready_list = want
        if cls.has_expressions:
            self.ready_with_expressions += 1 if want else -1

    def put_first(self, bag: BagState, lifted: int) -> None:
        """Put a bag's classes before those of its owner's other bags, or back in their places."""
        bag.aged_since = lifted
        for cls in bag.classes.values():
            if cls.on_ready_list:
                del self.ready[bisect_left(self.ready, (cls.order_key, cls.number))]
            cls.order_key = (AGED_FIRST if lifted else -bag.targets[cls.target].shape.priority, *cls.order_key[1:])
            if cls.on_ready_list:
                insort(self.ready, (cls.order_key, cls.number))
        self.version += 1

    # --- class against class -----------------------------------------------------------------------------------

    def cost_on(self, pilot_class: PilotClass, cls: TaskClass) -> int:
        """Thousandths of a core one such task takes of such a pilot; 0 where it can never run there."""
        cost = pilot_class.milli_cores.get(cls.number)
        if cost is None:
            cost = pilot_class.milli_cores[cls.number] = self._cost_on(pilot_class, cls)
        return cost

    def serves(self, pc: PilotClass, cls: TaskClass) -> bool:
        """May such a pilot run it (P3)?  What calls return is unpickled, so they go to one's own pilots only."""
        bag = self.bags[cls.bag]
        return bag.owner in (pc.owners[:1] if bag.targets[cls.target].shape.call else pc.owners)

    def _cost_on(self, pc: PilotClass, cls: TaskClass) -> int:
        slots = slots_on(pc, cls) if self.serves(pc, cls) else 0
        return pc.cores * 1000 // slots if slots > 0 else 0


def all_ready_counts(n: int) -> list[int]:
    counts = [0] * len(TASK_STATES)
    counts[READY] = n
    return counts
