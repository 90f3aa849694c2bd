"""The agenda: the pilot's side of the exchange, pure.  It decides what to run, what to report, and when.

Rules
  * No I/O and no clock: `now` is an argument, integer milliseconds of a clock that never goes back.
  * Events in (`enrolled`, `answer_received`, `failed`, `refused`, `fetched`, `process_ended`, `task_ended`,
    `given_back`, `running`, `stop`), instructions out: `next_request` for the network, `orders` for the spawners.
  * A lease counts from when the last answered request had been *sent* (rule 8).  After the lease no task starts;
    running tasks go on, reports wait, and the first request that gets through lists all attempts held.
  * Each grant is taken once, by number; the acknowledgement is the highest number below which none is missing.
  * At most two requests are in flight: one parked, one brief.  A report never waits behind a parked poll.
  * Tasks start in the order they were granted; none is skipped.  The tasks of a chain start one after the other, and
    the next one goes before the queue: a chain takes one slot until it is done (`chains.py`).
  * The reports of a chain wait for its end, but no longer than a third of a lease.
  * A report is forgotten when the request that carried it was answered, never earlier.
  * Halving finds a report that the server will never take; a shorter one replaces it, so that it blocks no other.

Orders: ("fetch", task), ("run", task), ("kill", attempt, why), ("give_back", station, [attempts]),
("watch", attempt), ("break_off", attempt) of the sending of its files.
"""

import json

from windfall.pilot.agenda.chains import Chains
from windfall.pilot.agenda.seats import Seats
from windfall.pilot.notes import short
from windfall.pilot.run.job import GRACE
from windfall.wire.messages import MAX_HELD, MAX_REPORTS

PARK_MS = 30000          # how long a poll may be parked, unless the server says otherwise
LEASE_RESERVE_MS = 600000    # of a lease that no poll waits through; of a short lease half
QUIET_MS = 200           # without an exchange, after which a poll is parked even if no task is wanted
COALESCE_MS = 25         # how long a report waits for others while there is more work here
COALESCE_MOST = 64       # so many reports leave at once
START_NOTICE_MS = 250    # how long a start waits to be reported
HELD_PER_CORE = 256      # most tasks to hold per core
STAGE_MS = 40            # work to stage per seat, so that a spawner never waits for the agenda
STAGE_MAX = 256
STUCK_MS = 20            # without change, after which a station's staged tasks may go to another
FETCH_AHEAD = 8          # tasks whose inputs are fetched early, beyond two per core
MAX_REPORT_BYTES = 1 << 20   # of reports in one request
MAX_SPECS = 256          # distinct specs remembered
BACKOFF_FIRST_MS, BACKOFF_MOST_MS = 500, 30000
NEVER = 1 << 62

PLAIN_FIELDS = frozenset(("v", "epoch", "seq", "lease", "spread", "grants"))  # of an answer without instructions

QUEUED, FETCHING, READY, PLACED, FINISHING = range(5)
LONG_FIELDS = frozenset(("out", "err", "out64", "err64", "value", "files"))  # fields of reports that may be long
FILE_BYTES = 200             # that an uploaded file takes in a report, about
# Fields of tasks with a directory of their own.
FILE_FIELDS = ("inputs", "outputs", "placed", "checkpoint", "scratch", "packed")


class HeldTask:
    """An attempt that the pilot holds."""

    __slots__ = ("attempt", "command", "spec", "extra", "need", "state", "station", "gpus", "start_before", "seats",
                 "serial", "recalled", "start_reported", "grace", "time_needed", "chain", "previous", "number")

    def __init__(self, attempt, command, spec, extra):
        self.attempt = attempt
        self.command = command
        self.spec = spec
        self.extra = extra
        self.need = spec.need
        if extra:
            self.state = QUEUED if any(map(self.field, FILE_FIELDS)) else READY
            self.grace = spec.grace if self.field("checkpoint") else None  # ms in which it saves its state
        else:
            self.state = QUEUED if spec.has_files else READY
            self.grace = spec.checkpoint_grace
        self.time_needed = spec.time_needed
        self.station = None
        self.gpus = ()
        self.start_before = None     # ms: must not start later
        self.seats = 0               # of the station when the task was placed
        self.serial = 0              # the spawner's number for it
        self.recalled = False
        self.start_reported = False
        self.chain = None
        self.previous = None         # the attempt that must have succeeded here before this one may start
        self.number = None           # the task's number within its bag, where the server names it

    def field(self, name):
        return self.extra[name] if self.extra and name in self.extra else self.spec.fields.get(name)


class Spec:
    """The fields that tasks share; one object, and one key, per distinct content."""

    __slots__ = ("key", "fields", "need", "time_needed", "grace", "checkpoint_grace", "has_files")

    def __init__(self, key, fields, whole):
        """`whole`: the need of a task that takes the whole pilot."""
        self.key = key
        self.fields = fields
        self.need = (max(1, fields.get("cores", 1)), fields.get("memory", 0), fields.get("gpus", 0))
        if fields.get("whole") or fields.get("nodes", 1) > 1:
            self.need = tuple(map(max, self.need, whole))
        self.grace = fields.get("grace", GRACE)
        self.checkpoint_grace = self.grace if fields.get("checkpoint") else None
        self.time_needed = fields.get("need") or fields.get("time") or 0  # ms of wall time left, to be worth starting
        self.has_files = any(map(fields.get, FILE_FIELDS))


def _report_bytes(report):
    """Estimate how many bytes a report takes."""
    if LONG_FIELDS.isdisjoint(report):
        return 200
    files = FILE_BYTES * len(report.get("files") or ())
    return 200 + files + sum([2 * len(report[name]) for name in LONG_FIELDS if name in report])  # text may be escaped


class RequestInFlight:
    """A request sent and not answered."""

    __slots__ = ("sent", "reports", "started", "want", "parked", "bye", "census")

    def __init__(self, sent, message, reports, census):
        self.sent = sent
        self.reports = reports
        self.started = message.get("started", ())
        self.want = message.get("want", 0)
        self.parked = "wait" in message
        self.bye = message.get("bye", "")
        self.census = census     # the request lists all attempts held

    def kinds_of_news(self):
        return bool(self.reports) + bool(self.started) + self.census


class Agenda:
    __slots__ = ("seats", "end", "idle", "jitter", "capacity", "version", "epoch", "lease", "lease_end", "idle_limit",
                 "idle_since", "seq", "queue", "placed", "checkpointing", "checkpoint_at", "finishing", "reports",
                 "first_report_at", "first_urgent_at", "unreported_starts", "in_flight", "ack", "grants_past_gap",
                 "census", "not_before", "poll_not_before", "empty_answers", "failures", "last_heard", "mean_ms",
                 "was_answered", "leaving", "departed", "rebalancing", "specs", "last_spec", "last_spec_key", "park",
                 "spread", "reports_at_once", "shortened", "new_orders", "chains", "trouble", "look", "dead")

    def __init__(self, cores, memory=0, gpus=(), *, stations=1, end=None, idle=None, jitter=None):
        self.seats = Seats(cores, memory, gpus, stations)
        self.end = end                   # ms: end of wall time
        self.idle = idle                 # ms, overriding the server's
        self.jitter = jitter or (lambda: 0.5)
        self.capacity = min(HELD_PER_CORE * cores, MAX_HELD)
        self.version = 1
        self.epoch = None
        self.lease = 0
        self.lease_end = 0
        self.idle_limit = idle
        self.idle_since = 0
        self.seq = 0
        self.queue = {}                  # attempt → HeldTask, in the order granted
        self.chains = Chains()           # holds the tasks that wait for another of their chain
        self.placed = {}                 # attempt → HeldTask with a spawner
        self.checkpointing = {}          # placed tasks that must save their state before the wall time is over
        self.checkpoint_at = None        # ms: when the first of these must begin, or earlier
        self.finishing = {}              # attempt → HeldTask that has ended and whose files are being sent
        self.reports = {}                # attempt → report not in flight
        self.first_report_at = 0         # when the oldest of these came
        self.first_urgent_at = None      # when the oldest came that does not wait for the rest of its chain
        self.unreported_starts = {}      # attempt → when its start has to be reported
        self.in_flight = {}              # seq → RequestInFlight
        self.ack = 0
        self.grants_past_gap = set()     # numbers taken beyond one that is missing
        self.census = False
        self.look = ()                   # lives of earlier pilots here, to look for
        self.dead = []                   # those of them that have no process left
        self.not_before = 0
        self.poll_not_before = 0
        self.empty_answers = 0           # in a row, to requests that wanted tasks
        self.failures = 0
        self.last_heard = 0
        self.mean_ms = None              # ms that recent tasks took
        self.was_answered = False        # a request for work has been: the pilot does not leave idle before that
        self.leaving = ""                # why the pilot leaves: "", drain, superseded, idle, walltime, stopped
        self.trouble = ""                # why the pilot takes and starts no tasks
        self.departed = False            # the server has answered the bye
        self.rebalancing = set()         # stations asked to give back staged tasks
        self.specs = {}                  # content → Spec, least recently granted first
        self.last_spec = None            # the Spec of the last grant
        self.last_spec_key = 0
        self.park = PARK_MS
        self.spread = 0                  # ms over which pilots that have lost the server spread their return
        self.reports_at_once = None      # after a refusal: reports per request, and one kind of news at a time
        self.shortened = set()           # attempts whose report was refused and has been replaced
        self.new_orders = []             # orders not fetched yet

    # --- events from the network ------------------------------------------------------------------------------

    def enrolled(self, now, message, sent=None):
        """Begin a new epoch; keep the tasks and reports held."""
        self.version = message["v"]
        self.epoch = message["epoch"]
        self.lease = message["lease"]
        self.spread = message.get("spread", 0)
        self.park = message.get("park", PARK_MS)
        self.idle_limit = message.get("idle") if self.idle is None else self.idle
        for seq in list(self.in_flight):
            self._requeue(seq)
        self.ack, self.grants_past_gap = 0, set()
        self.census = bool(self.held() or self.reports)
        # The server may have given up the tasks of an older epoch since: they start once it has answered.
        self.lease_end = now if self.census else (now if sent is None else sent) + self.lease
        self.not_before = self.poll_not_before = now
        self.failures = 0
        self.idle_since = self.last_heard = now

    def answer_received(self, now, answer):
        """Take the answer to a request in flight and return True; ignore any other answer and return False."""
        if answer.get("epoch") != self.epoch:
            return False
        flight = self.in_flight.pop(answer.get("seq"), None)
        if flight is None:
            return False
        self.lease = answer.get("lease", self.lease)
        self.spread = answer.get("spread", self.spread)
        self.lease_end = max(self.lease_end, flight.sent + self.lease)
        self.last_heard = now
        self.failures = 0
        if flight.want > 0:
            self.was_answered = True
        if flight.bye:
            self.departed = True
        if self.shortened or self.reports_at_once is not None:
            self._note_accepted(flight)
        grants = answer.get("grants")
        new = self._take_grants(now, grants) if grants else 0
        self._schedule_poll(now, flight, new, answer)
        if self.takes_none() or not PLAIN_FIELDS.issuperset(answer):
            self._follow_instructions(now, answer)
        if new:
            self.idle_since = now
        return True

    def request_failed(self, now, seq, retry_after=None, lost=True):
        """Note that `seq` got no answer, or (not `lost`) one that says to come later (`retry_after`: seconds)."""
        if seq not in self.in_flight:
            return
        self._requeue(seq)
        self.census = True
        if now >= self.not_before:
            self.failures += 1
            self.not_before = now + self._backoff(lost)
        if retry_after is not None:
            self.not_before = max(self.not_before, now + int(1000 * retry_after * (1 + self.jitter() / 4)))

    def tell_dead(self, lives):
        """Note which earlier pilots have no process left.  The next request says so; if it is lost, the server asks
        again."""
        self.dead = list(lives)
        self.look = [each for each in self.look if each not in lives]

    def refused(self, now, seq, reason=""):
        """Send less than `seq`, which the server will never take; return a sentence if news was given up, else ""."""
        flight = self.in_flight.get(seq)
        if flight is None:
            return ""
        count = len(flight.reports)
        kinds = flight.kinds_of_news()
        if not kinds:
            self.request_failed(now, seq, lost=False)
            return ""
        if kinds > 1 or count > 1:
            self._requeue(seq)
            self.census = self.census or flight.census
            self.reports_at_once = max(1, count if kinds > 1 else count // 2)
            return ""
        del self.in_flight[seq]
        self.reports_at_once = 1
        if not count:
            which = "held" if flight.census else "started"
            return "the server refused the list of {} attempts: {}".format(which, reason)
        return self._shorten_report(now, *flight.reports.popitem(), reason)

    def _shorten_report(self, now, attempt, report, reason):
        """Replace a refused report by the shortest one; drop it when that one was refused, too."""
        if attempt in self.shortened:
            self.shortened.discard(attempt)
            self.census = True  # tells the server that the attempt is not held any more
            return ("the server refused even the shortest report of attempt {}; the pilot drops it: {}"
                    .format(attempt, reason))
        self.shortened.add(attempt)
        outcome = report.get("o") if report.get("o") in ("returned", "cancelled") else "failed"
        self._queue_report(now, {"a": attempt, "o": outcome, "why": "refused",
                                 "note": "the server refused the task's report: {}".format(reason)})
        return "the server refused the report of attempt {}: {}".format(attempt, reason)

    def _note_accepted(self, flight):
        """After a refusal, double the reports per request with each request that gets through."""
        if self.shortened:
            self.shortened.difference_update(flight.reports)
        if self.reports_at_once is not None and flight.kinds_of_news():
            self.reports_at_once = 2 * self.reports_at_once if 2 * self.reports_at_once < MAX_REPORTS else None

    def _requeue(self, seq):
        """Put the reports and starts of a lost request back among those to send."""
        flight = self.in_flight.pop(seq)
        flight.reports.update(self.reports)
        self.reports = flight.reports
        if self.reports:
            self.first_urgent_at = self.first_report_at
        for attempt in flight.started:
            if attempt in self.placed:
                self.unreported_starts[attempt] = flight.sent + START_NOTICE_MS

    def _backoff(self, lost):
        """Return the ms until the next request: a random part of the server's spread, doubled after each failure."""
        if self.failures <= 1:
            # Many pilots lose a server at once: the spread makes them come back one by one.
            return int(max(50, self.spread if lost else 0) * self.jitter())
        return int(min(BACKOFF_MOST_MS, BACKOFF_FIRST_MS << min(self.failures - 2, 8)) * (0.5 + self.jitter() / 2))

    def _take_grants(self, now, grants):
        """Take the grants not taken before; return how many new tasks they had."""
        new = 0
        for grant in grants:
            number = grant["n"]
            if number <= self.ack or number in self.grants_past_gap:
                continue
            # All of the grant is parsed before any of it counts: a malformed one leaves nothing behind.
            tasks = [task for group in grant["groups"] for task in self._tasks_of_group(group)]
            self.grants_past_gap.add(number)
            while self.ack + 1 in self.grants_past_gap:
                self.ack += 1
                self.grants_past_gap.discard(self.ack)
            for task in tasks:
                if not self.holds(task.attempt):
                    self._accept_task(now, task)
                    new += 1
        return new

    def _accept_task(self, now, task):
        if task.previous is not None and not self._in_hand(task.previous):
            self._queue_report(now, {"a": task.attempt, "o": "returned", "why": "behind"})
        elif task.chain is None or self.chains.join(task, task.chain):
            self.queue[task.attempt] = task

    def _tasks_of_group(self, group):
        spec = self._spec(group["spec"])
        tasks = [HeldTask(item[0], item[1], spec, item[2] if len(item) > 2 else None) for item in group["tasks"]]
        for task, number in zip(tasks, group.get("numbers", ())):
            task.number = number
        if "chain" in group:
            previous = list(group.get("behind", ()))
            previous += [None] * (len(tasks) - len(previous))
            for task, other in zip(tasks, previous):
                task.chain, task.previous = (spec.fields["bag"], group["chain"]), other or None
        return tasks

    def _spec(self, fields):
        newest = self.last_spec
        if newest is None or (newest.fields is not fields and newest.fields != fields):
            newest = self.last_spec = self._find_spec(fields)  # which costs much more than this comparison
        return newest

    def _find_spec(self, fields):
        content = json.dumps(fields, sort_keys=True)
        spec = self.specs.pop(content, None)
        if spec is None:
            self.last_spec_key += 1
            spec = Spec(self.last_spec_key, fields, self.seats.whole())
            if len(self.specs) >= MAX_SPECS:
                del self.specs[next(iter(self.specs))]  # its tasks keep it; later ones bring it again
        self.specs[content] = spec
        return spec

    def _schedule_poll(self, now, flight, new, answer):
        """Poll again at once, unless the server named a time or quick answers brought no task."""
        if new or not flight.want or now - flight.sent > 50:
            self.empty_answers = 0
        else:
            self.empty_answers = min(self.empty_answers + 1, 6)
            if flight.parked:
                self.poll_not_before = now + (25 << self.empty_answers)
        if answer.get("again"):
            self.not_before = now + answer["again"]

    def _follow_instructions(self, now, answer):
        self.look = answer.get("look") or ()
        if answer.get("census"):
            self.census = True
        if answer.get("stop") and not self.leaving:
            self.leaving = answer["stop"]
        if answer.get("cancel"):
            self._cancel(now, answer["cancel"])
        if answer.get("recall"):
            self._recall(now, answer["recall"])
        for attempt in answer.get("stream") or ():
            if attempt in self.placed:
                self.new_orders.append(("watch", attempt))
        if self.takes_none():
            self._return_unstarted(now)

    def _cancel(self, now, attempts):
        for attempt in attempts:
            if self.unplaced(attempt):
                self._drop(now, attempt, "cancelled", why="cancel")
            elif attempt in self.placed:
                self.new_orders.append(("kill", attempt, "cancel"))
            elif attempt in self.finishing:
                self.new_orders.append(("break_off", attempt))

    def _recall(self, now, attempts):
        """Return the unstarted of these attempts, and ask spawners for the placed ones.

        A recalled chain stays whole: its waiting tasks are returned only if its current one had not started.
        """
        back = {}
        begun = [self.placed[a].chain for a in attempts if a in self.placed and self.placed[a].chain is not None]
        for attempt in attempts:
            waiting = self.chains.waiting.get(attempt)
            if waiting is not None and waiting.chain in begun:
                waiting.recalled = True      # returned with the current task, should that not have started
                continue
            if self.unplaced(attempt):
                self._drop(now, attempt, "returned", why="recall")
            elif attempt in self.placed:
                task = self.placed[attempt]
                task.recalled = True
                back.setdefault(task.station.index, []).append(attempt)
        self.new_orders.extend(("give_back", index, back[index]) for index in sorted(back))

    # --- events from spawners and transfers -------------------------------------------------------------------

    def fetched(self, now, attempt, report=None):
        """Note that a task's inputs are in place or, with a report, that they cannot be."""
        task = self.queue.get(attempt) or self.chains.waiting.get(attempt)
        if task is None:
            return
        task.state = READY
        if report is not None:
            self.task_ended(now, attempt, report)

    def running(self, now, attempts):
        """Note that these attempts run (and have for a while)."""
        for attempt in attempts:
            task = self.placed.get(attempt)
            if task is not None and not task.start_reported:
                task.start_reported = True
                self.unreported_starts[attempt] = now + (START_NOTICE_MS if task.chain is None else self._chain_delay())

    def process_ended(self, now, attempt):
        """Free the seat of a task whose process has ended and whose files have yet to be sent."""
        task = self.placed.pop(attempt, None)
        if task is not None:
            self._vacate_seat(now, task)
            task.state = FINISHING
            self.finishing[attempt] = task
            if task.chain is not None:
                self._advance_chain(task)

    def task_ended(self, now, attempt, report):
        """Take the final report of an attempt."""
        task = self.placed.pop(attempt, None)
        if task is not None:
            self._vacate_seat(now, task)
            if "wall" in report:
                self._note_duration(report["wall"])
        else:
            task = (self.queue.pop(attempt, None) or self.finishing.pop(attempt, None)
                    or self.chains.waiting.get(attempt))
            if task is None:
                return
        self.unreported_starts.pop(attempt, None)
        good = report.get("o", "succeeded") == "succeeded"
        self._queue_report(now, report, urgent=not (good and self.chains.has_more(task)))
        if task.chain is not None:
            self._end_chain(now, task, good)
        self.idle_since = now

    def _end_chain(self, now, task, good):
        """Remove an ended task from its chain; return its dependants unless it was `good`; start the next task."""
        self.chains.remove(task)
        for dependant in [] if good else self.chains.dependants(task):
            if self.unplaced(dependant.attempt):
                self._drop(now, dependant.attempt, "returned", why="behind")
        self._advance_chain(task)

    def _advance_chain(self, task):
        following = self.chains.advance(task, self._in_hand)
        if following is not None:
            first = {following.attempt: following}
            first.update(self.queue)
            self.queue = first

    def given_back(self, now, attempts):
        """Queue the attempts again that a spawner has not started and gives back."""
        again = {}
        for attempt in attempts:
            task = self.placed.pop(attempt, None)
            if task is None:
                continue
            self._vacate_seat(now, task)
            task.state, task.station = READY, None
            again[attempt] = task
        again.update(self.queue)
        self.queue = again
        self.rebalancing.clear()
        for attempt in attempts:
            if attempt in self.queue and self.queue[attempt].recalled:
                self._drop_recalled(now, self.queue[attempt])
        if self.takes_none():
            self._return_unstarted(now)

    def set_trouble(self, now, trouble):
        """Take and start no tasks from now on, and return the unstarted ones; with "", go on."""
        self.trouble = trouble
        self.census = self.was_answered = True   # tell the server at once; a pilot in trouble leaves when it is idle
        if trouble:
            self._return_unstarted(now)

    def stop(self, now, why="stopped"):
        """Begin to leave: return the unstarted tasks, end the running ones, report, say bye."""
        self.leaving = why
        self._return_unstarted(now)
        for attempt in self.placed:
            self.new_orders.append(("kill", attempt, "stop"))

    def _note_duration(self, wall):
        self.mean_ms = wall if self.mean_ms is None else self.mean_ms + (wall - self.mean_ms) / 8.0

    def _vacate_seat(self, now, task):
        if self.checkpointing.pop(task.attempt, None) is not None and not self.checkpointing:
            self.checkpoint_at = None
        self.seats.release(task.station, task.need, task.gpus, now)
        task.gpus = ()

    def _queue_report(self, now, report, urgent=True):
        """Queue a report; one that is not urgent waits for the rest of its chain."""
        if not self.reports:
            self.first_report_at, self.first_urgent_at = now, None
        if urgent and self.first_urgent_at is None:
            self.first_urgent_at = now
        if "note" in report:
            report["note"] = short(report["note"])
        self.reports[report["a"]] = report

    def _drop(self, now, attempt, outcome, **reason):
        """End an attempt that no spawner has; `reason`: why, and perhaps a note."""
        report = dict(reason, a=attempt, o=outcome)
        task = self.queue.pop(attempt, None) or self.chains.waiting[attempt]
        self._queue_report(now, report)
        if task.chain is not None:
            self._end_chain(now, task, good=False)

    def _drop_recalled(self, now, task):
        """Return a recalled task, and before it the recalled tasks that wait in its chain."""
        waiting = list(task.chain.waiting.values()) if task.chain is not None else []
        for recalled in [other for other in waiting if other.recalled] + [task]:
            if self.unplaced(recalled.attempt):
                self._drop(now, recalled.attempt, "returned", why="recall")

    def _return_unstarted(self, now):
        why = "superseded" if self.leaving == "superseded" else "stop" if self.leaving else "disk"
        for attempt in [*self.chains.waiting, *self.queue]:
            if self.unplaced(attempt):
                self._drop(now, attempt, "returned", why=why)
        back = {}
        for attempt, task in self.placed.items():
            if not task.start_reported:
                back.setdefault(task.station.index, []).append(attempt)
        self.new_orders.extend(("give_back", index, back[index]) for index in sorted(back)
                            if len(back[index]) > len(self.seats.stations[index].needs))

    # --- orders to spawners and transfers ------------------------------------------------------------------------

    def orders(self, now):
        """Return the orders since the last call, in order."""
        if self.checkpoint_at is not None:
            self._start_checkpoints(now)
        if not self.takes_none():
            self._order_tasks(now)
        if not self.new_orders:
            return []
        orders, self.new_orders = self.new_orders, []
        return orders

    def _order_tasks(self, now):
        if self.queue or self.chains.waiting:
            self._fetch_ahead()
        if self.queue:
            self._start(now)
        if self.placed and self.seats.free_cores and not self.queue:
            self._rebalance(now)

    def _start_checkpoints(self, now):
        """End tasks that save their state early enough to have their grace before the wall time is over."""
        if now < self.checkpoint_at:
            return
        for task in [task for task in self.checkpointing.values() if now >= self.end - task.grace]:
            del self.checkpointing[task.attempt]
            self.new_orders.append(("kill", task.attempt, "stop"))
        graces = [task.grace for task in self.checkpointing.values()]
        self.checkpoint_at = self.end - max(graces) if graces else None

    def takes_none(self):
        """Does the pilot take and start no tasks, since it leaves or has no room for them?"""
        return bool(self.leaving or self.trouble)

    def may_start(self, now):
        return not self.takes_none() and self.epoch is not None and now < self.lease_end

    def _fetch_ahead(self):
        ahead = FETCH_AHEAD + 2 * self.seats.cores
        tasks = self.queue.values()
        for task in [*tasks, *self.chains.next_unblocked()] if self.chains.waiting else tasks:
            if task.state == QUEUED:
                task.state = FETCHING
                self.new_orders.append(("fetch", task))
            ahead -= 1
            if not ahead:
                return

    def _start(self, now):
        if not self.may_start(now):
            return
        depth = self._depth()
        while self.queue:
            task = self.queue[next(iter(self.queue))]
            if self._keep_if_possible(now, task) and (task.state != READY or not self._place(now, task, depth)):
                return

    def _keep_if_possible(self, now, task):
        """Return True if the pilot can run the task at all; else drop it and return False."""
        if not self.seats.could_fit(task.need):
            self._drop(now, task.attempt, "returned", why="refused",
                       note="the task needs more cores, memory or GPUs than this pilot has")
            return False
        if self.end is not None and task.time_needed and now + task.time_needed > self.end:
            self._drop(now, task.attempt, "returned", why="stop",
                       note="the pilot's remaining wall time is shorter than the task's time limit")
            return False
        return True

    def _place(self, now, task, depth):
        place = self.seats.open(task.need, now)
        if place is not None:
            task.station, task.gpus = place
        else:
            task.station = self.seats.stage(task.need, depth)
        if task.station is None:
            return False
        task.state = PLACED
        task.seats = len(task.station.needs)
        task.start_before = self.lease_end
        if self.end is not None and task.time_needed:
            task.start_before = min(task.start_before, self.end - task.time_needed)
        self.placed[task.attempt] = task
        if self.end is not None and task.grace is not None:
            self.checkpointing[task.attempt] = task
            at = self.end - task.grace
            self.checkpoint_at = at if self.checkpoint_at is None else min(self.checkpoint_at, at)
        del self.queue[task.attempt]
        self.new_orders.append(("run", task))
        return True

    def _depth(self):
        """Return how many tasks to stage per seat: several while recent tasks were short, else none."""
        if self.mean_ms is None:
            return 0
        return min(STAGE_MAX, int(STAGE_MS / max(self.mean_ms, 0.1)))

    def _rebalance(self, now):
        """Take staged tasks back from stations where they wait behind a long one, since seats are free elsewhere."""
        for station in self.seats.stations:
            staged = station.staged()
            if staged > 0 and now - station.changed_at >= STUCK_MS and station.index not in self.rebalancing:
                self.rebalancing.add(station.index)
                there = [a for a, t in self.placed.items() if t.station is station]
                self.new_orders.append(("give_back", station.index, there[-staged:]))

    # --- requests to the server -----------------------------------------------------------------------------------

    def next_request(self, now):
        """Return the message to send now, or None.  It counts as sent at `now`."""
        if not self._may_request(now):
            return None
        if not self.placed:
            self._leave_if_idle(now)
        if self.in_flight and not self._only_a_poll_is_out():
            return None
        if self._urgent(now):
            return self._request(now, False)
        if self.in_flight or not self._poll_due(now):
            return None
        # A parked request carries no news: news waits for a confirmation, so its request is answered at once.
        return self._request(now, not self.reports and not self.unreported_starts)

    def _may_request(self, now):
        if self.epoch is None or self.departed:
            return False
        return now >= self.not_before and len(self.in_flight) < 2

    def _only_a_poll_is_out(self):
        for flight in self.in_flight.values():
            return len(self.in_flight) == 1 and flight.parked
        return False

    def _leave_if_idle(self, now):
        if self.idle_limit is None or now - self.idle_since < self.idle_limit:
            return
        if self.holding() or self.leaving or not self.was_answered or self.reports or self.reports_in_flight():
            return
        self.leaving = "idle"

    def _urgent(self, now):
        if self.census or self.dead or (self.leaving and self._bye()):
            return True
        if self.reports and now >= self._report_due(now):
            return True
        return bool(self.unreported_starts) and now >= min(self.unreported_starts.values())

    def _report_due(self, now):
        if len(self.reports) >= COALESCE_MOST:
            return now
        if self.first_urgent_at is None:
            return self.first_report_at + self._chain_delay()
        return self.first_urgent_at + COALESCE_MS if self.unstarted() else now

    def _chain_delay(self):
        """Return how many ms the reports of a chain may wait for its end."""
        return max(self.lease // 3, START_NOTICE_MS)

    def _poll_due(self, now):
        if now < self.poll_not_before:
            return False
        return self._want() > 0 or now - self.last_heard >= QUIET_MS

    def _want(self):
        """Return how many more tasks to ask for: all there is room for, once a quarter is empty."""
        if self.takes_none():
            return 0
        for flight in self.in_flight.values():
            if flight.want:
                return 0
        room = self.capacity - len(self.queue) - max(0, len(self.placed) - self.seats.cores)
        return room if 4 * room >= self.capacity else 0

    def _bye(self):
        """Return the `bye` of the request, or "" while there is anything else to send."""
        if not self.leaving or self.holding() or len(self.reports) > MAX_REPORTS or self.reports_in_flight():
            return ""
        if any(f.bye for f in self.in_flight.values()):
            return ""
        return self.leaving if self.leaving in ("idle", "walltime") else "stopped"

    def _request(self, now, park):
        self.seq += 1
        request = {"v": self.version, "epoch": self.epoch, "seq": self.seq, "ack": self.ack}
        bye = self._bye() if self.leaving else ""
        want = self._want()
        census = self.census
        reports = self._add_news(request, census)
        if want:
            request["want"] = want
        if bye and not self.reports:
            request["bye"] = bye
        if self.trouble:
            request["trouble"] = self.trouble
        if park:
            request["wait"] = self._park_for(now)
        if self.end is not None:
            request["left"] = max(0, self.end - now)
        if self.dead:
            request["dead"], self.dead = self.dead, []
        if census:
            self.census = False
            request["held"] = sorted(self.held() + list(self.reports) + self._reported_in_flight())
        self.in_flight[self.seq] = RequestInFlight(now, request, reports, census)
        return request

    def _add_news(self, request, census):
        """Put reports and starts into a request; return the reports.  After a refusal it carries one kind of news."""
        alone = self.reports_at_once is not None
        reports = {} if not self.reports or (alone and census) else self._pack_reports()
        if reports:
            request["reports"] = list(reports.values())
        if self.unreported_starts and not (alone and (census or reports)):
            request["started"] = list(self.unreported_starts)
            self.unreported_starts = {}
        return reports

    def _reported_in_flight(self):
        """Return the attempts whose reports are in flight."""
        return [attempt for flight in self.in_flight.values() for attempt in flight.reports]

    def _pack_reports(self):
        """Take as many reports as fit into one message, oldest first; at least one."""
        room, some = MAX_REPORT_BYTES, []
        most = self.reports_at_once or MAX_REPORTS
        for attempt, report in self.reports.items():
            room -= _report_bytes(report)
            if some and (room < 0 or len(some) == most):
                break
            some.append(attempt)
        if len(some) == len(self.reports):
            reports, self.reports = self.reports, {}
            return reports
        return {attempt: self.reports.pop(attempt) for attempt in some}

    def _park_for(self, now):
        left = min(self.lease // 2, LEASE_RESERVE_MS)  # should the request be lost, the pilot can tell within its lease
        wait = min(self.park, max(1000, self.lease - left))
        if self.idle_limit is not None and not self.holding():
            wait = min(wait, max(0, self.idle_since + self.idle_limit - now))
        return wait

    # --- state ----------------------------------------------------------------------------------------------------

    def holds(self, attempt):
        if self._in_hand(attempt) or attempt in self.reports:
            return True
        for flight in self.in_flight.values():
            if attempt in flight.reports:
                return True
        return False

    def held(self):
        """Return the attempts that the pilot has and has no report of."""
        return list(self.queue) + list(self.chains.waiting) + list(self.placed) + list(self.finishing)

    def holding(self):
        return bool(self.queue or self.placed or self.finishing or self.chains.waiting)

    def unplaced(self, attempt):
        """Does the pilot hold the attempt, and has no spawner got it?"""
        return attempt in self.queue or attempt in self.chains.waiting

    def _in_hand(self, attempt):
        return self.unplaced(attempt) or attempt in self.placed or attempt in self.finishing

    def unstarted(self):
        """Does the pilot hold tasks beside those that run?"""
        if self.queue or self.chains.waiting:
            return True
        for station in self.seats.stations:
            if station.staged() > 0:
                return True
        return False

    def reports_in_flight(self):
        return any(f.reports for f in self.in_flight.values())

    def undelivered(self):
        """Return the reports that the server has not confirmed, by attempt."""
        reports = {}
        for flight in self.in_flight.values():
            reports.update(flight.reports)
        reports.update(self.reports)
        return reports

    def lease_out(self, now):
        return self.epoch is not None and now >= self.lease_end

    def at_rest(self):
        """Is there nothing to do but wait for the tasks that run and for the answer of a parked poll?"""
        if self.reports or self.unreported_starts or self.new_orders or self.census or self.leaving:
            return False
        if self.queue or self.chains.waiting or not self.placed or self.seats.free_cores:
            return False
        return self._only_a_poll_is_out() and self.checkpoint_at is None

    def due(self, now):
        """Return when to call `next_request` and `orders` again if no event comes before; None: never."""
        at = self._request_due(now)
        at = self.not_before if at < self.not_before else at
        if self.placed and not self.queue and self.seats.free_cores:
            for station in self.seats.stations:
                if station.staged() > 0 and station.index not in self.rebalancing:
                    at = min(at, station.changed_at + STUCK_MS)
        if self.checkpoint_at is not None:
            at = min(at, self.checkpoint_at)
        if at >= NEVER:
            return None
        return at if at > now else now

    def _request_due(self, now):
        """Return when the next request is due; NEVER while a brief one is out, since its answer comes first."""
        for flight in self.in_flight.values():
            if not flight.parked:
                return NEVER
        if self.census or self.dead or (self.leaving and self._bye()):
            return now
        at = NEVER
        if self.reports:
            at = self._report_due(now)
        if self.unreported_starts:
            at = min(at, min(self.unreported_starts.values()))
        if not self.in_flight:
            poll = self.poll_not_before if self._want() else max(self.poll_not_before, self.last_heard + QUIET_MS)
            at = min(at, poll)
        return min(at, self._idle_end())

    def _idle_end(self):
        """Return when the pilot leaves for lack of work, NEVER while it has some."""
        if self.placed or self.idle_limit is None or not self.was_answered or self.leaving or self.holding():
            return NEVER
        return self.idle_since + self.idle_limit
