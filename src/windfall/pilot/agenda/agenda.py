"""The pilot's side of the exchange, pure: what to run, what to say, and when.

Rules
  * No I/O and no clock: `now` is an argument, integer milliseconds of a clock that never goes back.
  * Events in (`enrolled`, `answer_received`, `failed`, `refused`, `fetched`, `vacated`, `task_ended`, `given_back`,
    `running`, `stop`), instructions out: `next_request` for the network, `orders` for whoever runs the tasks.
  * A lease counts from when the last request that was answered had been *sent* (rule 8).  After it nothing starts;
    what runs goes on, reports wait, and the first request that gets through lists all that is held.
  * Grants are taken once each, by number; the acknowledgement is the highest number below which none is missing.
  * At most two requests are in flight: one parked, one brief.  A report never waits behind a parked poll.
  * Tasks start in the order they were granted.  None is skipped.  Those of a chain start one after the other, and the
    next one comes before what is queued: a chain takes one slot until it is done (`chains.py`).
  * What the tasks of a chain have to say waits for its end, but no longer than a third of a lease.
  * A report is forgotten when the request that carried it was answered, never earlier.
  * What the server will never take is found by halving and said in fewer words, so that it blocks nothing else.

Orders: ("fetch", task), ("run", task), ("kill", attempt, why), ("back", station, [attempts]), ("watch", attempt).
"""

import json

from windfall.pilot.agenda.chains import Chains
from windfall.pilot.agenda.seats import Seats
from windfall.pilot.notes import short
from windfall.pilot.run.job import GRACE
from windfall.wire.messages import MAX_REPORTS

PARK = 30000             # ms a poll is willing to be parked, unless the server says otherwise
SPARE = 600000           # ms of a lease that no poll waits through; of a short one half
QUIET = 200              # ms without an exchange after which a poll is parked even if nothing is wanted
LINGER = 25              # ms a report waits for company while there is more work here
COMPANY = 64             # reports that leave at once
NOTICE = 250             # ms a start waits to be told
PER_CORE = 256           # tasks to hold per core, at most
STAGE_MS = 40            # work to lay out ahead per seat, so that a spawner never waits for us
STAGE_MAX = 256
STUCK = 20               # ms without movement after which staged tasks may be taken elsewhere
FETCH_AHEAD = 8          # tasks whose inputs are fetched early, beyond two per core
ROOM = 8 << 20           # bytes of reports in one request
SPECS = 256              # distinct specs remembered
BACKOFF_FIRST, BACKOFF_LAST = 500, 30000
NEVER = 1 << 62

HEAD = frozenset(("v", "epoch", "seq", "lease", "spread", "grants"))  # of an answer that asks for nothing else

QUEUED, FETCHING, READY, PLACED, FINISHING = range(5)
LONG = frozenset(("out", "err", "out64", "err64", "value", "files"))  # fields of reports that may be
# Fields of tasks with a directory of their own.
WITH_FILES = ("inputs", "outputs", "placed", "checkpoint", "scratch", "packed")


class Task:
    """An attempt in our hands."""

    __slots__ = ("attempt", "command", "spec", "extra", "need", "state", "station", "gpus", "until", "width",
                 "serial", "recalled", "told", "saves", "room", "chain", "behind")

    def __init__(self, attempt, command, spec, extra, behind=None):
        self.attempt = attempt
        self.command = command
        self.spec = spec
        self.extra = extra
        self.need = spec.need
        if extra:
            self.state = QUEUED if any(map(self.field, WITH_FILES)) else READY
            self.saves = spec.saves if self.field("checkpoint") else None  # ms it has to save its state
        else:
            self.state = QUEUED if spec.files else READY
            self.saves = spec.saved
        # ms of wall time without which it is not worth starting
        self.room = spec.room
        self.station = None
        self.gpus = ()
        self.until = None        # ms: not to be started later than this
        self.width = 0           # seats of the station when the task was placed
        self.serial = 0          # for whoever runs it
        self.recalled = False
        self.told = False        # the server knows that it runs
        self.chain = None        # the Line of tasks that it is part of
        self.behind = behind     # the attempt that must have succeeded here before this one may start

    def field(self, name):
        return self.extra[name] if self.extra and name in self.extra else self.spec.fields.get(name)


class Spec:
    """What tasks share; one object, and one key, per distinct content."""

    __slots__ = ("key", "fields", "need", "room", "saves", "saved", "files")

    def __init__(self, key, fields, whole):
        """`whole` is what the pilot has."""
        self.key = key
        self.fields = fields
        self.need = (max(1, fields.get("cores", 1)), fields.get("memory", 0), fields.get("gpus", 0))
        if fields.get("whole") or fields.get("nodes", 1) > 1:
            self.need = tuple(map(max, self.need, whole))
        # ms of wall time it takes to save a task's state, and to run it
        self.saves = fields.get("grace", GRACE)
        self.saved = self.saves if fields.get("checkpoint") else None  # the same, where tasks do so
        self.room = fields.get("need") or fields.get("time") or 0
        self.files = any(map(fields.get, WITH_FILES))


def _weight(report):
    """About how many bytes a report takes."""
    if LONG.isdisjoint(report):
        return 200
    return 200 + sum([2 * len(report[name]) for name in LONG if name in report])  # text may be escaped


class Flight:
    """A request under way."""

    __slots__ = ("sent", "reports", "started", "want", "parked", "bye", "held")

    def __init__(self, sent, reports, started, want, parked, bye, held=False):
        self.sent = sent
        self.reports = reports
        self.started = started
        self.want = want
        self.parked = parked
        self.bye = bye
        self.held = held         # it lists all we hold

    def says(self):
        """How many kinds of news it carries."""
        return bool(self.reports) + bool(self.started) + self.held


class Agenda:
    __slots__ = ("seats", "end", "idle", "jitter", "capacity", "version", "epoch", "lease", "lease_end", "idle_limit",
                 "idle_since", "seq", "queue", "placed", "saving", "save_at", "finishing", "reports", "oldest",
                 "started", "flights", "ack", "ahead", "census", "not_before", "poll_not_before", "fruitless",
                 "failures", "last_heard", "average", "asked", "leaving", "over", "asked_back", "specs", "newest",
                 "spec_keys", "park", "spread", "batch", "shortened", "pending", "chains", "pressing")

    def __init__(self, cores, memory=0, gpus=(), *, stations=1, end=None, idle=None, jitter=None):
        self.seats = Seats(cores, memory, gpus, stations)
        self.end = end                   # ms: wall time is over
        self.idle = idle                 # ms, overriding the server's
        self.jitter = jitter or (lambda: 0.5)
        self.capacity = PER_CORE * cores
        self.version = 1
        self.epoch = None
        self.lease = 0
        self.lease_end = 0
        self.idle_limit = idle
        self.idle_since = 0
        self.seq = 0
        self.queue = {}                  # attempt → Task, in the order granted
        self.chains = Chains()           # and the tasks whose turn has not come
        self.placed = {}                 # attempt → Task with a spawner
        self.saving = {}                 # those of them that have to save their state before the wall time is over
        self.save_at = None              # when to look at these: no later than the first of them has to begin
        self.finishing = {}              # attempt → Task that has ended and whose files are under way
        self.reports = {}                # attempt → report not under way
        self.oldest = 0                  # when the oldest of them came
        self.pressing = None             # when the oldest came that does not wait for the rest of its chain
        self.started = {}                # attempt → when it has to be told
        self.flights = {}                # seq → Flight
        self.ack = 0
        self.ahead = set()
        self.census = False
        self.not_before = 0
        self.poll_not_before = 0
        self.fruitless = 0
        self.failures = 0
        self.last_heard = 0
        self.average = None              # ms a task takes here, lately
        self.asked = False               # for work, and got an answer: nobody leaves idle before that
        self.leaving = ""                # why we leave: "", "drain", "superseded", "idle", "walltime", "stopped"
        self.over = False                # bye was answered
        self.asked_back = set()
        self.specs = {}                  # content → Spec, least recently granted first
        self.newest = None               # the Spec of the last grant
        self.spec_keys = 0
        self.park = PARK
        self.spread = 0                  # ms over which pilots come back that have lost the server
        self.batch = None                # after a refusal: reports per request, and one kind of news at a time
        self.shortened = set()           # attempts whose report was refused and has been replaced
        self.pending = []                # orders not fetched yet

    # --- what the network tells -------------------------------------------------------------------------------

    def enrolled(self, now, message, sent=None):
        """A new epoch; what we hold goes along."""
        self.version = message["v"]
        self.epoch = message["epoch"]
        self.lease = message["lease"]
        self.spread = message.get("spread", 0)
        self.park = message.get("park", PARK)
        self.idle_limit = message.get("idle") if self.idle is None else self.idle
        for seq in list(self.flights):
            self._land(seq)
        self.ack, self.ahead = 0, set()
        self.census = bool(self.held() or self.reports)
        # What an older life was granted may have been given up since: it may start once the server has said so.
        self.lease_end = now if self.census else (now if sent is None else sent) + self.lease
        self.not_before = self.poll_not_before = now
        self.failures = 0
        self.idle_since = self.last_heard = now

    def answer_received(self, now, answer):
        """The answer to a request that is still waited for; any other is ignored.  True if it counted."""
        if answer.get("epoch") != self.epoch:
            return False
        flight = self.flights.pop(answer.get("seq"), None)
        if flight is None:
            return False
        self.lease = answer.get("lease", self.lease)
        self.spread = answer.get("spread", self.spread)
        self.lease_end = max(self.lease_end, flight.sent + self.lease)
        self.last_heard = now
        self.failures = 0
        if flight.want > 0:
            self.asked = True
        if flight.bye:
            self.over = True
        if self.shortened or self.batch is not None:
            self._accepted(flight)
        grants = answer.get("grants")
        fresh = self._take_grants(now, grants) if grants else 0
        self._pace(now, flight, fresh, answer)
        if self.leaving or not HEAD.issuperset(answer):
            self._heed(now, answer)
        if fresh:
            self.idle_since = now
        return True

    def failed(self, now, seq, retry_after=None, lost=True):
        """No answer to `seq`, or (not `lost`) one that says to come later (`retry_after`: seconds)."""
        if seq not in self.flights:
            return
        self._land(seq)
        self.census = True
        if now >= self.not_before:
            self.failures += 1
            self.not_before = now + self._backoff(lost)
        if retry_after is not None:
            self.not_before = max(self.not_before, now + int(1000 * retry_after * (1 + self.jitter() / 4)))

    def refused(self, now, seq, reason=""):
        """The server will never take `seq` as it is: say less, and go on.  Returns what was given up, in words."""
        flight = self.flights.get(seq)
        if flight is None:
            return ""
        count = len(flight.reports)
        if not flight.says():
            self.failed(now, seq, lost=False)
            return ""
        if flight.says() > 1 or count > 1:
            self._land(seq)
            self.census = self.census or flight.held
            self.batch = max(1, count if flight.says() > 1 else count // 2)
            return ""
        del self.flights[seq]
        self.batch = 1
        if not count:
            return "the server refused a list of what {}: {}".format("is held" if flight.held else "runs", reason)
        return self._give_up(now, *flight.reports.popitem(), reason)

    def _give_up(self, now, attempt, report, reason):
        """Replace a report that was refused by one that says no more than it must; drop it when that was refused."""
        if attempt in self.shortened:
            self.shortened.discard(attempt)
            self.census = True  # it is not held any more, and the server should know
            return "the server refused every report of attempt {}, which is dropped: {}".format(attempt, reason)
        self.shortened.add(attempt)
        outcome = report.get("o") if report.get("o") in ("returned", "cancelled") else "failed"
        self._say(now, {"a": attempt, "o": outcome, "why": "refused",
                        "note": "the server refused the task's report: {}".format(reason)})
        return "the server refused the report of attempt {}: {}".format(attempt, reason)

    def _accepted(self, flight):
        """After a refusal: what was said got through, so say more at once."""
        if self.shortened:
            self.shortened.difference_update(flight.reports)
        if self.batch is not None and flight.says():
            self.batch = 2 * self.batch if 2 * self.batch < MAX_REPORTS else None

    def _land(self, seq):
        """What a lost request carried is ours to say again."""
        flight = self.flights.pop(seq)
        flight.reports.update(self.reports)
        self.reports = flight.reports
        if self.reports:
            self.pressing = self.oldest
        for attempt in flight.started:
            if attempt in self.placed:
                self.started[attempt] = flight.sent + NOTICE

    def _backoff(self, lost):
        if self.failures <= 1:
            # Many lose a server at once: they come back one by one.
            return int(max(50, self.spread if lost else 0) * self.jitter())
        return int(min(BACKOFF_LAST, BACKOFF_FIRST << min(self.failures - 2, 8)) * (0.5 + self.jitter() / 2))

    def _take_grants(self, now, grants):
        fresh = 0
        for grant in grants:
            number = grant["n"]
            if number <= self.ack or number in self.ahead:
                continue
            tasks = [task for group in grant["groups"] for task in self._tasks(group)]  # all of it, before any counts
            self.ahead.add(number)
            while self.ack + 1 in self.ahead:
                self.ack += 1
                self.ahead.discard(self.ack)
            for task in tasks:
                if not self.holds(task.attempt):
                    self._take_in(now, task)
                    fresh += 1
        return fresh

    def _take_in(self, now, task):
        if task.behind is not None and not self._in_hand(task.behind):
            self._say(now, {"a": task.attempt, "o": "returned", "why": "behind"})
        elif task.chain is None or self.chains.join(task, task.chain):
            self.queue[task.attempt] = task

    def _tasks(self, group):
        spec = self._spec(group["spec"])
        tasks = [Task(item[0], item[1], spec, item[2] if len(item) > 2 else None) for item in group["tasks"]]
        if "chain" in group:
            behind = list(group.get("behind", ()))
            behind += [None] * (len(tasks) - len(behind))
            for task, other in zip(tasks, behind):
                task.chain, task.behind = (spec.fields["bag"], group["chain"]), other or None
        return tasks

    def _spec(self, fields):
        newest = self.newest
        if newest is None or (newest.fields is not fields and newest.fields != fields):  # much the cheaper question
            newest = self.newest = self._find_spec(fields)
        return newest

    def _find_spec(self, fields):
        content = json.dumps(fields, sort_keys=True)
        spec = self.specs.pop(content, None)
        if spec is None:
            self.spec_keys += 1
            spec = Spec(self.spec_keys, fields, self.seats.whole())
            if len(self.specs) >= SPECS:
                del self.specs[next(iter(self.specs))]  # its tasks keep it; should more come, they bring it again
        self.specs[content] = spec
        return spec

    def _pace(self, now, flight, fresh, answer):
        """When to ask next: at once, unless we were told or asking has been in vain."""
        if fresh or not flight.want or now - flight.sent > 50:
            self.fruitless = 0
        else:
            self.fruitless = min(self.fruitless + 1, 6)
            if flight.parked:
                self.poll_not_before = now + (25 << self.fruitless)
        if answer.get("again"):
            self.not_before = now + answer["again"]

    def _heed(self, now, answer):
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
                self.pending.append(("watch", attempt))
        if self.leaving:
            self._return_queue(now)

    def _cancel(self, now, attempts):
        for attempt in attempts:
            if self.unplaced(attempt):
                self._drop(now, attempt, "cancelled", "cancel")
            elif attempt in self.placed:
                self.pending.append(("kill", attempt, "cancel"))

    def _recall(self, now, attempts):
        """A chain that is asked for from where it runs had not begun for all the server knew: it stays whole."""
        back = {}
        begun = [self.placed[a].chain for a in attempts if a in self.placed and self.placed[a].chain is not None]
        for attempt in attempts:
            waiting = self.chains.later.get(attempt)
            if waiting is not None and waiting.chain in begun:
                waiting.recalled = True      # it goes with the one that has the turn, should that not have begun
                continue
            if self.unplaced(attempt):
                self._drop(now, attempt, "returned", "recall")
            elif attempt in self.placed:
                task = self.placed[attempt]
                task.recalled = True
                back.setdefault(task.station.index, []).append(attempt)
        self.pending.extend(("back", index, back[index]) for index in sorted(back))

    # --- what those who run tasks tell ------------------------------------------------------------------------

    def fetched(self, now, attempt, report=None):
        """A task's inputs are in place; with a report, they cannot be."""
        task = self.queue.get(attempt) or self.chains.later.get(attempt)
        if task is None:
            return
        task.state = READY
        if report is not None:
            self.task_ended(now, attempt, report)

    def running(self, now, attempts):
        """These are seen to run (and have been for a while)."""
        for attempt in attempts:
            task = self.placed.get(attempt)
            if task is not None and not task.told:
                task.told = True
                self.started[attempt] = now + (NOTICE if task.chain is None else self._patience())

    def vacated(self, now, attempt):
        """The process has ended; its files have yet to be brought home."""
        task = self.placed.pop(attempt, None)
        if task is not None:
            self._leave_seat(now, task)
            task.state = FINISHING
            self.finishing[attempt] = task
            if task.chain is not None:
                self._pass_on(task)

    def task_ended(self, now, attempt, report):
        """The attempt is over and this is all there is to say about it."""
        task = self.placed.pop(attempt, None)
        if task is not None:
            self._leave_seat(now, task)
            if "wall" in report:
                self._learn(report["wall"])
        else:
            task = (self.queue.pop(attempt, None) or self.finishing.pop(attempt, None)
                    or self.chains.later.get(attempt))
            if task is None:
                return
        self.started.pop(attempt, None)
        good = report.get("o", "succeeded") == "succeeded"
        self._say(now, report, waits=good and self.chains.goes_on(task))
        if task.chain is not None:
            self._leave_chain(now, task, good)
        self.idle_since = now

    def _leave_chain(self, now, task, good):
        """It is over with a task of a chain: who waits for its success goes on, or goes back."""
        self.chains.remove(task)
        for each in [] if good else self.chains.stranded(task):
            if self.unplaced(each.attempt):
                self._drop(now, each.attempt, "returned", "behind")
        self._pass_on(task)

    def _pass_on(self, task):
        following = self.chains.pass_on(task, self._in_hand)
        if following is not None:
            first = {following.attempt: following}
            first.update(self.queue)
            self.queue = first

    def given_back(self, now, attempts):
        """A spawner gives back what it has not started."""
        again = {}
        for attempt in attempts:
            task = self.placed.pop(attempt, None)
            if task is None:
                continue
            self._leave_seat(now, task)
            task.state, task.station = READY, None
            again[attempt] = task
        again.update(self.queue)
        self.queue = again
        self.asked_back.clear()
        for attempt in attempts:
            if attempt in self.queue and self.queue[attempt].recalled:
                self._drop_recalled(now, self.queue[attempt])
        if self.leaving:
            self._return_queue(now)

    def stop(self, now, why="stopped"):
        """We have to go: return the unstarted, end the running, report, leave."""
        self.leaving = why
        self._return_queue(now)
        for attempt in self.placed:
            self.pending.append(("kill", attempt, "stop"))

    def _learn(self, wall):
        self.average = wall if self.average is None else self.average + (wall - self.average) / 8.0

    def _leave_seat(self, now, task):
        if self.saving.pop(task.attempt, None) is not None and not self.saving:
            self.save_at = None
        self.seats.leave(task.station, task.need, task.gpus, now)
        task.gpus = ()

    def _say(self, now, report, waits=False):
        """`waits`: for the rest of its chain."""
        if not self.reports:
            self.oldest, self.pressing = now, None
        if not waits and self.pressing is None:
            self.pressing = now
        if "note" in report:
            report["note"] = short(report["note"])
        self.reports[report["a"]] = report

    def _drop(self, now, attempt, outcome, why, note=""):
        report = {"a": attempt, "o": outcome, "why": why}
        if note:
            report["note"] = note
        task = self.queue.pop(attempt, None) or self.chains.later[attempt]
        self._say(now, report)
        if task.chain is not None:
            self._leave_chain(now, task, good=False)

    def _drop_recalled(self, now, task):
        line = list(task.chain.tasks.values()) if task.chain is not None else []
        for each in [each for each in line if each.recalled] + [task]:
            if self.unplaced(each.attempt):
                self._drop(now, each.attempt, "returned", "recall")

    def _return_queue(self, now):
        why = "superseded" if self.leaving == "superseded" else "stop"
        for attempt in [*self.chains.later, *self.queue]:
            if self.unplaced(attempt):
                self._drop(now, attempt, "returned", why)
        back = {}
        for attempt, task in self.placed.items():
            if not task.told:
                back.setdefault(task.station.index, []).append(attempt)
        self.pending.extend(("back", index, back[index]) for index in sorted(back)
                            if len(back[index]) > len(self.seats.stations[index].needs))

    # --- what to run --------------------------------------------------------------------------------------------

    def orders(self, now):
        """Instructions since the last call, in order."""
        if self.save_at is not None:
            self._end_in_time(now)
        if not self.leaving and (self.queue or self.chains.later):
            self._fetch_ahead()
        if self.queue and not self.leaving:
            self._start(now)
        if self.placed and self.seats.free_cores and not self.queue and not self.leaving:
            self._rebalance(now)
        if not self.pending:
            return []
        orders, self.pending = self.pending, []
        return orders

    def _end_in_time(self, now):
        """What saves its state has its grace for that before the wall time is over."""
        if now < self.save_at:
            return
        for task in [task for task in self.saving.values() if now >= self.end - task.saves]:
            del self.saving[task.attempt]
            self.pending.append(("kill", task.attempt, "stop"))
        self.save_at = self.end - max(task.saves for task in self.saving.values()) if self.saving else None

    def may_start(self, now):
        return not self.leaving and self.epoch is not None and now < self.lease_end

    def _fetch_ahead(self):
        ahead = FETCH_AHEAD + 2 * self.seats.cores
        tasks = self.queue.values()
        for task in [*tasks, *self.chains.following()] if self.chains.later else tasks:
            if task.state == QUEUED:
                task.state = FETCHING
                self.pending.append(("fetch", task))
            ahead -= 1
            if not ahead:
                return

    def _start(self, now):
        if not self.may_start(now):
            return
        depth = self._depth()
        while self.queue:
            task = self.queue[next(iter(self.queue))]
            if self._can_ever(now, task) and (task.state != READY or not self._place(now, task, depth)):
                return

    def _can_ever(self, now, task):
        if not self.seats.ever(task.need):
            self._drop(now, task.attempt, "returned", "refused", "the task needs more than this pilot has")
            return False
        if self.end is not None and task.room and now + task.room > self.end:
            self._drop(now, task.attempt, "returned", "stop", "the pilot's remaining time is shorter than the task's")
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
        task.width = len(task.station.needs)
        task.until = self.lease_end
        if self.end is not None and task.room:
            task.until = min(task.until, self.end - task.room)
        self.placed[task.attempt] = task
        if self.end is not None and task.saves is not None:
            self.saving[task.attempt] = task
            at = self.end - task.saves
            self.save_at = at if self.save_at is None else min(self.save_at, at)
        del self.queue[task.attempt]
        self.pending.append(("run", task))
        return True

    def _depth(self):
        """Tasks to lay out ahead per seat: a few when they are long known to be short, none otherwise."""
        if self.average is None:
            return 0
        return min(STAGE_MAX, int(STAGE_MS / max(self.average, 0.1)))

    def _rebalance(self, now):
        """Seats are free here while tasks wait behind a long one there: ask for those."""
        for station in self.seats.stations:
            staged = station.staged()
            if staged > 0 and now - station.moved >= STUCK and station.index not in self.asked_back:
                self.asked_back.add(station.index)
                there = [a for a, t in self.placed.items() if t.station is station]
                self.pending.append(("back", station.index, there[-staged:]))

    # --- what to say ----------------------------------------------------------------------------------------------

    def next_request(self, now):
        """The next message to send now, or None.  It counts as sent at `now`."""
        if self.epoch is None or self.over or now < self.not_before or len(self.flights) > 1:
            return None
        if not self.placed:
            self._consider_leaving(now)
        for other in self.flights.values():
            return self._request(now, False) if other.parked and self._urgent(now) else None
        if self._urgent(now):
            return self._request(now, False)
        if not self._poll_due(now):
            return None
        # What parks says nothing that waits for a confirmation; what has something to say comes back at once.
        return self._request(now, not self.reports and not self.started)

    def _consider_leaving(self, now):
        if self.idle_limit is None or now - self.idle_since < self.idle_limit:
            return
        if self.holding() or self.leaving or not self.asked or self.reports or self.flights_with_reports():
            return
        self.leaving = "idle"

    def _urgent(self, now):
        if self.census or (self.leaving and self._bye()):
            return True
        if self.reports and now >= self._report_due(now):
            return True
        return bool(self.started) and now >= min(self.started.values())

    def _report_due(self, now):
        if len(self.reports) >= COMPANY:
            return now
        if self.pressing is None:
            return self.oldest + self._patience()
        return self.pressing + LINGER if self.unstarted() else now

    def _patience(self):
        """ms that what a chain has to say may wait for its end."""
        return max(self.lease // 3, NOTICE)

    def _poll_due(self, now):
        if now < self.poll_not_before:
            return False
        return self._want() > 0 or now - self.last_heard >= QUIET

    def _want(self):
        """How many more we would take: all there is room for, once a quarter is empty."""
        if self.leaving:
            return 0
        for flight in self.flights.values():
            if flight.want:
                return 0
        room = self.capacity - len(self.queue) - max(0, len(self.placed) - self.seats.cores)
        return room if 4 * room >= self.capacity else 0

    def _bye(self):
        """Last words, once there is nothing else to say."""
        if not self.leaving or self.holding() or len(self.reports) > MAX_REPORTS or self.flights_with_reports():
            return ""
        if any(f.bye for f in self.flights.values()):
            return ""
        return self.leaving if self.leaving in ("idle", "walltime") else "stopped"

    def _request(self, now, park):
        self.seq += 1
        request = {"v": self.version, "epoch": self.epoch, "seq": self.seq, "ack": self.ack}
        bye = self._bye() if self.leaving else ""
        want = self._want()
        alone, held = self.batch is not None, self.census
        reports = {} if not self.reports or (alone and held) else self._pack_reports()
        started = [] if not self.started or (alone and (held or reports)) else self._pack_started()
        bye = "" if self.reports else bye
        self.flights[self.seq] = Flight(now, reports, started, want, park, bye, held)
        if reports:
            request["reports"] = list(reports.values())
        if started:
            request["started"] = started
        if want:
            request["want"] = want
        if bye:
            request["bye"] = bye
        if park:
            request["wait"] = self._park_for(now)
        if self.end is not None:
            request["left"] = max(0, self.end - now)
        if held:
            self.census = False
            request["held"] = sorted(self.held() + list(self.reports) + self._under_way(self.seq))
        return request

    def _under_way(self, seq):
        """Attempts whose reports travel in other requests than `seq`."""
        return [attempt for other, f in self.flights.items() if other != seq for attempt in f.reports]

    def _pack_reports(self):
        """As many as fit into one message, oldest first; at least one."""
        room, some = ROOM, []
        most = self.batch or MAX_REPORTS
        for attempt, report in self.reports.items():
            room -= _weight(report)
            if some and (room < 0 or len(some) == most):
                break
            some.append(attempt)
        if len(some) == len(self.reports):
            reports, self.reports = self.reports, {}
            return reports
        return {attempt: self.reports.pop(attempt) for attempt in some}

    def _pack_started(self):
        started, self.started = list(self.started), {}
        return started

    def _park_for(self, now):
        left = min(self.lease // 2, SPARE)  # should it be lost, so much of the lease is left to say so
        wait = min(self.park, max(1000, self.lease - left))
        if self.idle_limit is not None and not self.holding():
            wait = min(wait, max(0, self.idle_since + self.idle_limit - now))
        return wait

    # --- where we stand -------------------------------------------------------------------------------------------

    def holds(self, attempt):
        if self._in_hand(attempt) or attempt in self.reports:
            return True
        for flight in self.flights.values():
            if attempt in flight.reports:
                return True
        return False

    def held(self):
        """Attempts we have and have said nothing final about."""
        return list(self.queue) + list(self.chains.later) + list(self.placed) + list(self.finishing)

    def holding(self):
        return bool(self.queue or self.placed or self.finishing or self.chains.later)

    def unplaced(self, attempt):
        """Do we hold it, and nobody runs it?"""
        return attempt in self.queue or attempt in self.chains.later

    def _in_hand(self, attempt):
        return self.unplaced(attempt) or attempt in self.placed or attempt in self.finishing

    def unstarted(self):
        """Is there more work here than what runs?"""
        if self.queue or self.chains.later:
            return True
        for station in self.seats.stations:
            if station.staged() > 0:
                return True
        return False

    def flights_with_reports(self):
        return any(f.reports for f in self.flights.values())

    def undelivered(self):
        """Reports the server has not confirmed."""
        reports = {}
        for flight in self.flights.values():
            reports.update(flight.reports)
        reports.update(self.reports)
        return reports

    def lease_out(self, now):
        return self.epoch is not None and now >= self.lease_end

    def at_rest(self):
        """Is all we have to do to wait: for what runs, and for an answer that comes when there is news?"""
        if self.reports or self.started or self.queue or self.pending or self.census or self.leaving:
            return False
        if len(self.flights) != 1 or not self.placed or self.seats.free_cores or self.chains.later:
            return False
        for flight in self.flights.values():
            return flight.parked and self.save_at is None

    def due(self, now):
        """When to look at `next_request` and `orders` again if nothing happens before; None: never."""
        at = self._speak_at(now)
        at = self.not_before if at < self.not_before else at
        if self.placed and not self.queue and self.seats.free_cores:
            for station in self.seats.stations:
                if station.staged() > 0 and station.index not in self.asked_back:
                    at = min(at, station.moved + STUCK)
        if self.save_at is not None:
            at = min(at, self.save_at)
        if at >= NEVER:
            return None
        return at if at > now else now

    def _speak_at(self, now):
        for flight in self.flights.values():
            if not flight.parked:
                return NEVER  # its answer comes first
        if self.census or (self.leaving and self._bye()):
            return now
        at = NEVER
        if self.reports:
            at = self._report_due(now)
        if self.started:
            at = min(at, min(self.started.values()))
        if not self.flights:
            quiet = self.poll_not_before if self._want() else max(self.poll_not_before, self.last_heard + QUIET)
            at = min(at, quiet)
        if not self.placed and self.idle_limit is not None and self.asked and not self.leaving and not self.holding():
            at = min(at, self.idle_since + self.idle_limit)
        return at
