"""The spawner: starts tasks in its slots, drains their output, enforces their limits, kills what they leave behind.

Rules
  * Everything is done by one loop over epoll, SIGCHLD arriving through a pipe; nothing here blocks on a task.
  * It starts what it was given in order, as long as fewer tasks run than it has seats (`width`), and gives back what
    it was told to start too late (`until`: the lease, or the wall time).
  * A table shared with the agent says what runs now and what was begun; if this process is killed, the agent reads
    it there, and nothing has to be guessed.
  * When the agent is gone, it kills all below it and ends.

From the agent, per frame a list of
    ("specs", {key: fields}), ("forget", [keys]),
    ("run", width, [(attempt, key, command, extra, until, gpus, cwd, serial)]),
    ("kill", attempt, why), ("give_back", [attempts]), ("watch", attempt), ("unwatch", attempt), ("hasten",), ("quit",)
and to it: ("ended", [report]), ("given_back", [attempts]), ("output", attempt, stream, offset, bytes).

What calls.py may use, beside the plain attributes it reads: `begin`, `occupy`, `forget`, `vacate` for what is where;
`handle`, `unhandle`, `hush` for descriptors; `take` and `drain` for output; `report`; `recycle` and `kill_strays` for
what was left behind; `enter`; `with_spec`.
"""

import errno
import os
import select
import signal
import time
from collections import deque

from windfall.errors import BadInput
from windfall.pilot import clock
from windfall.pilot.files import checks
from windfall.pilot.notes import short
from windfall.pilot.run import proctree, spawn, verdict
from windfall.pilot.run.calls import Calls
from windfall.pilot.run.channel import ROW, Frames
from windfall.pilot.run.job import Job, Plan
from windfall.pilot.run.slot import Slot, usage

FLUSH_AT = 32                # reports that leave at once
LONGEST_WAIT = 3600.0        # epoll takes no more than 24 days, and a limit may be longer
FLUSH_SECONDS = 0.015        # how long a report waits for company while there is more to start
MEMORY_SECONDS = 1.0         # between looks at a task's memory
DISK_SECONDS = 5.0
PIECE = 1 << 16
REMOVE_SECONDS = 5.0         # how long containers may take to be removed when we end
OOM_ADJUST = b"500"


class Spawner:
    def __init__(self, sock, table, folder, *, mark, script, gpus=False, environments=""):
        self.frames = Frames(sock)
        self.clogged = False         # the agent is slow to read: we wait for room to write
        self.table = table           # shared memory: one ROW per slot
        self.folder = folder
        self.script = script
        self.gpus = gpus             # the pilot gives out GPUs: who asked for none sees none
        self.environments = environments  # where packed ones are
        self.base = _base_environment(mark)
        self.plans = {}
        self.calls = Calls(self)
        self.finder = spawn.Finder()
        self.specs = {}
        self.waiting = deque()       # tuples as they came
        self.width = 0
        self.free = []
        self.slots = []
        self.jobs = {}               # pid → Job
        self.attempts = {}           # attempt → Job
        self.timed = {}              # pid → Job with something to look at
        self.next_look = None
        self.reports = []
        self.first_report = 0.0
        self.handlers = {}
        self.poller = None
        self.alone = True            # the last wait found no child at all
        self.suspicious = False      # somebody unknown lives below us
        self.grace_over = False
        self.removers = set()        # pids of commands that remove containers
        self.oom_seen = 0
        self.here = None

    # --- set-up and the loop

    def prepare(self):
        reserve_low_descriptors()
        self.null = os.open("/dev/null", os.O_RDWR)
        self.poller = select.epoll()
        self._catch_signals()
        self.handle(self.frames.fileno(), self._hear)
        self.children = proctree.own_children()
        proctree.become_subreaper()
        self.oom_seen = proctree.oom_kills()
        _raise_oom_score()

    def _catch_signals(self):
        reader, writer = os.pipe()
        for fd in (reader, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer)
        # Caught, not ignored: an ignored signal would stay ignored in the tasks.  A task that signals its parent
        # with anything but SIGKILL achieves nothing.  What was ignored when we came stays so: Grid Engine tells all
        # processes of a job that it is about to end, and only the guardian is meant.
        for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM"):
            if name == "SIGCHLD" or signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
                signal.signal(getattr(signal, name), _nothing)
        self.bell = reader
        self.handle(reader, self._rung)

    def handle(self, fd, function):
        self.handlers[fd] = function
        self.poller.register(fd, select.EPOLLIN)

    def unhandle(self, fd):
        if self.handlers.pop(fd, None) is not None:
            self.poller.unregister(fd)

    def hush(self, fd, quiet):
        """What comes there wakes us no longer, or again.  Its end does anyway."""
        self.poller.modify(fd, 0 if quiet else select.EPOLLIN)

    def serve(self):
        self.prepare()
        while True:
            for fd, _ in self.poller.poll(self._timeout()):
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler(fd)
            if self.next_look is not None or self.suspicious or self.calls.retire_at is not None:
                self._look()
            if self.calls.busy:
                self.calls.collect_due()
            if self.waiting:
                self._start_waiting()
            if self.reports:
                self._flush()

    def _timeout(self):
        times = [self.first_report + FLUSH_SECONDS] if self.reports else []
        if self.next_look is not None:
            times.append(self.next_look)
        times.extend(at for at in (self.calls.retire_at, self.calls.collect_at) if at is not None)
        if self.suspicious:
            times.append(clock.seconds() + 0.02)
        return min(max(0.0, min(times) - clock.seconds()), LONGEST_WAIT) if times else -1

    # --- the agent

    def _hear(self, fd):
        if self.clogged:
            self._push(None)
        messages = self.frames.receive()
        if messages is None:
            self._end()
        for message in messages:
            for order in message:
                getattr(self, "_on_" + order[0])(*order[1:])

    def _on_specs(self, specs):
        self.specs.update(specs)  # plans are made when they are needed: a spec that makes no sense fails its tasks

    def _on_forget(self, keys):
        """No more tasks of these will come without the spec coming again; those that wait keep what they need."""
        self.waiting = deque(self.with_spec(task) if task[1] in keys else task for task in self.waiting)
        self.calls.with_specs(keys)
        for key in keys:
            self.specs.pop(key, None)
            self.plans.pop(key, None)

    def with_spec(self, task):
        attempt, key, command, extra = task[:4]
        return (attempt, None, command, dict(self.specs[key], **(extra or {}))) + task[4:]

    def _on_run(self, width, tasks):
        self.width = width
        self.waiting.extend(tasks)

    def _on_give_back(self, attempts):
        """Give back what has not started, of these.  Always answered."""
        wanted = set(attempts)
        self.calls.withdraw(wanted)
        back = [task[0] for task in self.waiting if task[0] in wanted]
        self.waiting = deque(task for task in self.waiting if task[0] not in wanted)
        self._tell("given_back", back)

    def _on_kill(self, attempt, why):
        self.calls.withdraw([attempt])
        job = self.attempts.get(attempt)
        if job is not None:
            self._doom(job, why)
        elif any(task[0] == attempt for task in self.waiting):
            if why == "cancel":
                self.waiting = deque(task for task in self.waiting if task[0] != attempt)
                self.report({"a": attempt, "o": "cancelled", "why": "cancel"})
            else:
                self._on_give_back([attempt])

    def _on_watch(self, attempt):
        job = self.attempts.get(attempt)
        if job is None or job.watched or job.report is not None:  # what a check says is not the task's output
            return
        job.watched = True
        for name in ("out", "err"):
            for offset, data in job.capture(name).pieces():
                self._tell("output", attempt, name, offset, data)

    def _on_unwatch(self, attempt):
        job = self.attempts.get(attempt)
        if job is not None:
            job.watched = False

    def _on_hasten(self):
        """No more grace for anybody."""
        for job in self.jobs.values():
            if job.kill_at is not None:
                job.kill_at = 0.0
                self._watch_time(job)

    def _on_quit(self):
        self._end()

    def _end(self):
        """The agent has gone, or lets us go: nothing of ours survives us."""
        for job in list(self.jobs.values()):
            self._remove_container(job)
        end = clock.seconds() + REMOVE_SECONDS
        for pid in self.removers:
            proctree.reap(pid, end)
        proctree.kill_descendants()
        os._exit(0)

    def _tell(self, *message):
        """At once, after the reports that came before it."""
        self._flush(True)
        self._push(message)

    def _push(self, message):
        """Send a message, or with None go on with what is left of the last."""
        try:
            done = self.frames.push() if message is None else self.frames.send(message)
        except OSError:
            self._end()
        if done == self.clogged:
            self.clogged = not done
            self.poller.modify(self.frames.fileno(), select.EPOLLIN if done else select.EPOLLIN | select.EPOLLOUT)

    def report(self, report):
        if not self.reports:
            self.first_report = clock.seconds()
        self.reports.append(report)

    def _flush(self, now=False):
        if not self.reports:
            return
        if (now or not self.waiting or len(self.reports) >= FLUSH_AT
                or clock.seconds() >= self.first_report + FLUSH_SECONDS):
            reports, self.reports = self.reports, []
            self._push(("ended", [_written(report) for report in reports]))

    # --- starting

    def _start_waiting(self):
        while self.waiting and len(self.jobs) < self.width:
            task = self.waiting.popleft()
            if task[4] is not None and clock.milliseconds() >= task[4]:
                self._tell("given_back", [task[0]])
            else:
                self._start(task)
        if self.waiting and self.calls.busy:
            self.calls.feed()

    def _start(self, task):
        attempt, key, command, extra, _, gpus, cwd, serial = task
        ROW.pack_into(self.table, 0, serial, 0)
        slot = self.free.pop() if self.free else self._new_slot()
        job = None
        try:
            plan = self._plan(key, extra, gpus)
            job = Job(attempt, slot, plan, cwd)
            self._launch(job, command)
        except (OSError, ValueError, TypeError, IndexError, AttributeError, BadInput) as error:
            # All but the first and last are what Python says of a command or spec that no system call would take.
            self._failed_start(attempt, slot, error, command)
            return
        slot.job = job
        self.jobs[job.pid] = self.attempts[attempt] = job
        ROW.pack_into(self.table, (slot.number + 1) * ROW.size, attempt, job.pid)
        if plan.limited:
            self._watch_time(job)

    def _plan(self, key, extra, gpus):
        if extra or gpus:
            return self._new_plan(dict(self.specs[key] if key else {}, **(extra or {})), gpus)
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = self._new_plan(self.specs[key], gpus)
        return plan

    def _new_plan(self, spec, gpus):
        plan = Plan(spec, self.base, gpus if spec.get("gpus") or self.gpus else None)
        if spec.get("packed"):
            if spec.get("container"):
                raise BadInput("a container has its own Python: it cannot be given a packed environment")
            from windfall.pilot.files import packed
            packed.apply(plan.env, self.environments, spec["packed"])
        if spec.get("nodes", 1) > 1:
            from windfall.pilot.run import nodes
            nodes.tell(plan.env, self.folder, spec["nodes"])
        if spec.get("modules") or spec.get("container"):
            if plan.call:
                raise BadInput("modules and containers are for commands, not for calls")
            from windfall.pilot.run.environment_modules import Surroundings
            plan.around = Surroundings(plan, gpus, self.base[proctree.PILOT_MARK])
        return plan

    def _new_slot(self):
        number = len(self.slots)
        slot = Slot(number, os.path.join(self.folder, "s{}".format(number)))
        self.slots.append(slot)
        return slot

    def _launch(self, job, command):
        slot = job.slot
        if job.cwd is None:
            job.cwd = slot.path or slot.directory()
        if slot.out_r < 0:
            slot.make_pipes(self.null)
            self.handle(slot.out_r, lambda fd: self._output(fd, slot))
            self.handle(slot.err_r, lambda fd: self._output(fd, slot))
        if job.plan.call:
            self.calls.launch(job, command)
        else:
            if self.here != job.cwd:
                self.enter(job.cwd)
            job.pid = self._execute(job, command)

    def enter(self, path):
        """Change directory; one that is removed under us is noticed by its absence."""
        os.chdir(path)
        self.here = path

    def _execute(self, job, command):
        plan = job.plan
        if plan.around is not None:
            argv = plan.around.argv(command, plan.setup, job.cwd, job.attempt)
        else:
            argv = command if type(command) is list and not plan.setup else spawn.argv_of(command, plan.setup)
        plan.env[proctree.ATTEMPT_MARK] = str(job.attempt)
        try:
            return self._try(argv, plan.env, job.slot.fds)
        except FileNotFoundError:
            self.finder.forget()  # it may have moved since we looked
            return self._try(argv, plan.env, job.slot.fds)

    def _try(self, argv, env, fds):
        file = self.finder.find(argv[0], env.get("PATH", spawn.DEFAULT_PATH))
        try:
            return spawn.start(file, argv, env, fds)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return spawn.start(spawn.SHELL, [spawn.SHELL, file] + argv[1:], env, fds)  # a script without #!

    def _failed_start(self, attempt, slot, error, command):
        number = getattr(error, "errno", None)
        report = {"a": attempt, "o": "failed", "why": "start", "t0": int(time.time() * 1000), "note": str(error)}
        if number in (errno.ENOSPC, errno.EDQUOT):
            report.update(why="disk", note="no room on the pilot's scratch disk: {}".format(error.strerror))
        elif number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            # The host is out of something, the task is not to blame.
            report.update(o="returned", why="start", note="the host cannot start it now: {}".format(error.strerror))
        elif number and isinstance(command, list) and command:
            report["note"] = "cannot run {}: {} (PATH is {})".format(
                short(repr(command[0]), 150), error.strerror, short(self.base.get("PATH", spawn.DEFAULT_PATH), 250))
        self.here = None
        if slot.path is not None and not os.path.isdir(slot.path):
            slot.abandon()
        self.free.append(slot)
        self.report(report)

    # --- what is where; tasks that take the short way do the same by themselves

    def begin(self, task):
        """From now on the agent takes it for started."""
        ROW.pack_into(self.table, 0, task[7], 0)

    def occupy(self, job):
        """It runs in its slot."""
        job.slot.job = self.jobs[job.pid] = self.attempts[job.attempt] = job
        ROW.pack_into(self.table, (job.slot.number + 1) * ROW.size, job.attempt, job.pid)
        if job.plan.limited or job.report is not None:  # what comes after a task always has a limit
            self._watch_time(job)

    def forget(self, job):
        self.jobs.pop(job.pid, None)
        self.attempts.pop(job.attempt, None)
        self.timed.pop(job.pid, None)

    def vacate(self, slot):
        """Nothing runs there."""
        slot.job = None
        ROW.pack_into(self.table, (slot.number + 1) * ROW.size, 0, 0)
        self.free.append(slot)

    # --- output

    def _output(self, fd, slot):
        job = slot.job
        if slot.runner is not None:
            self.calls.output(slot)
            return
        try:
            data = os.read(fd, PIECE)
        except BlockingIOError:
            return
        if job is not None:
            self.take(job, "out" if fd == slot.out_r else "err", data)

    def take(self, job, name, data):
        capture = job.capture(name)
        if job.watched:
            self._tell("output", job.attempt, name, capture.size, data)
        capture.add(data)

    def drain(self, job):
        """All that has been written until now; at most what a pipe holds, twice, if somebody goes on writing."""
        if not job.slot.poller.poll(0):
            return
        for name, fd in (("out", job.slot.out_r), ("err", job.slot.err_r)):
            for _ in range(32):
                try:
                    data = os.read(fd, PIECE)
                except BlockingIOError:
                    break
                if not data:
                    break
                self.take(job, name, data)

    # --- ending

    def _rung(self, fd):
        try:
            os.read(fd, 512)
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self):
        ended = []
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.alone = True
                break
            if not pid:
                self.alone = False
                break
            job = self.jobs.pop(pid, None)
            if job is not None:
                ended.append((job, status, used))
            else:
                self.removers.discard(pid)
        for job, status, used in ended:
            self._ended(job, status, used)

    def _ended(self, job, status, used):
        doomed = None
        if job.plan.call:
            job, doomed = self.calls.died(job)
            if job is None:
                return
        self.drain(job)
        del self.attempts[job.attempt]
        strays = not self.alone and self.kill_strays()
        if not status and job.plan.plain and not job.doom:
            self._finish(job, (job, clock.seconds(), used), strays)
            return
        number, code = (status & 0x7F, -1) if status & 0x7F else (0, status >> 8)  # WTERMSIG, WEXITSTATUS
        if job.look is not None:
            self._looked(job, number, strays or job.strays)
            return
        if job.report is not None:
            verdict.judge_check(job.report, code, number, job)
            self._finish(job, job.report, strays or job.strays)
            return
        report = job.measured(int(1000 * (used.ru_utime + used.ru_stime)), used.ru_maxrss << 10)
        if number == signal.SIGKILL and not job.doom and self._out_of_memory(job, report):
            job.doom = "memory"
        look = verdict.judge(report, code, number, job)
        if job.plan.call:
            self.calls.judge(job, report, doomed)
        elif look is not None and self._begin_look(job, look, report, strays):
            return
        self._judged(job, report, strays)

    def _judged(self, job, report, strays):
        """All that is known without the check's command is in the report."""
        if not job.plan.check_command or "o" in report or not self._begin_check(job, report, strays):
            self._finish(job, report, strays)

    def _begin_look(self, job, look, report, strays):
        """A process of ours looks at the results in the task's place; False if it cannot be started."""
        try:
            pid = look.start()
        except OSError as error:
            report.update(o="failed", why="output", note="the result cannot be looked at: {}".format(error.strerror))
            return False
        job.begin_look(look, report, strays, checks.SECONDS)
        self.handle(look.pipe, lambda fd: look.read() or self.unhandle(fd))
        self._replace_process(job, pid)
        return True

    def _looked(self, job, number, strays):
        verdict.judge_look(job.report, number, job)
        self.unhandle(job.look.pipe)
        job.look.close()
        job.look = None
        self._judged(job, job.report, strays)

    def _replace_process(self, job, pid):
        """Another process runs in the place of the job's."""
        if self.timed:
            self.timed.pop(job.pid, None)
        job.pid = pid
        self.occupy(job)

    def _begin_check(self, job, report, strays):
        """The check's command runs in the task's place; False if it cannot be started."""
        job.begin_check(report, strays)
        try:
            self.enter(job.cwd)
            pid = self._execute(job, job.plan.check_command)
        except (OSError, ValueError, TypeError, IndexError, AttributeError) as error:
            report.update(o="failed", why="output", note="the check cannot be run: {}".format(error))
            self.here = None
            return False
        self._replace_process(job, pid)
        return True

    def _finish(self, job, report, strays):
        slot = job.slot
        slot.job = None
        if self.timed:
            self.timed.pop(job.pid, None)
        ROW.pack_into(self.table, (slot.number + 1) * ROW.size, 0, 0)
        self.report(report)
        self.recycle(slot, strays, job.cwd)
        self.free.append(slot)

    def recycle(self, slot, strays, cwd):
        """Make the slot fit for the next task."""
        if strays or not slot.pipes_intact():
            if slot.runner is not None:
                self.calls.retire(slot)
            for fd in (slot.out_r, slot.err_r):
                self.unhandle(fd)
            slot.close_pipes()
        if cwd == slot.path:
            slot.tidy()
            if slot.path is None and self.here == cwd:
                self.here = None

    def kill_strays(self):
        """Kill what tasks that have ended left behind; True if there was any."""
        runners_ = {slot.runner.pid for slot in self.slots if slot.runner is not None}
        strays = [p for p in self.children()
                  if p not in self.jobs and p not in runners_ and p not in self.removers]
        strays = [p for p in strays if not self._belongs_to_running(p)]
        self.suspicious = bool(strays)
        if strays:
            proctree.signal_trees(strays, signal.SIGKILL)
        return self.suspicious

    def _belongs_to_running(self, pid):
        try:
            if os.getsid(pid) in self.jobs:
                return True
        except OSError:
            return False
        attempt = proctree.attempt_of(pid)
        if attempt is not None:
            return attempt in self.attempts
        return bool(self.jobs)  # its origin is hidden: it may belong to any task that runs now

    def _out_of_memory(self, job, report):
        kills, before = proctree.oom_kills(), self.oom_seen
        self.oom_seen = kills
        limit = job.plan.memory
        return kills > before or bool(limit and report["rss"] >= 0.95 * limit)

    # --- limits

    def _watch_time(self, job):
        look = job.next_look()
        if look is not None:
            self.timed[job.pid] = job
            if self.next_look is None or look < self.next_look:
                self.next_look = look

    def _look(self):
        if self.suspicious:
            self.kill_strays()
        now = clock.seconds()
        self.calls.retire_idle(now)
        if self.next_look is None or now < self.next_look:
            return
        for job in list(self.timed.values()):
            self._look_at(job, now)
        looks = [job.next_look() for job in self.timed.values()]
        looks = [look for look in looks if look is not None]
        self.next_look = min(looks) if looks else None

    def _look_at(self, job, now):
        if job.plan.call and not self.calls.still(job):
            return
        if job.kill_at is not None:
            if now >= job.kill_at:
                self._kill(job, now)
                self._remove_container(job)
            return
        if job.deadline is not None and now >= job.deadline:
            self._doom(job, "time", grace=None if job.look is None else 0)
        elif job.look_memory is not None and now >= job.look_memory:
            self._look_at_memory(job, now)
        elif job.look_disk is not None and now >= job.look_disk:
            job.look_disk = now + DISK_SECONDS
            if usage(job.cwd) > job.plan.disk:
                self._doom(job, "disk")

    def _look_at_memory(self, job, now):
        job.look_memory = now + MEMORY_SECONDS
        limit = job.plan.memory
        if proctree.memory(job.pid) <= limit:
            return
        job.seen = max(job.seen, proctree.memory_shared_once(job.pid))
        if job.seen > limit:
            self._doom(job, "memory", grace=0)  # what outgrows its memory does not wait for a polite end

    def _doom(self, job, why, grace=None):
        """SIGTERM to all of it, and SIGKILL after its grace.  The first reason counts."""
        if job.doom:
            return
        job.doom = why
        job.deadline = job.look_memory = job.look_disk = None
        if grace is None:
            grace = job.plan.grace
        job.kill_at = clock.seconds() + grace
        if grace and not job.plan.call:
            proctree.signal_tree(job.pid, signal.SIGTERM)
        else:
            job.kill_at = 0.0
        if job.plan.call and job.slot.runner is not None:
            job.slot.runner.doomed = job.attempt
        self._watch_time(job)

    def _remove_container(self, job):
        argv = job.plan.around.removal(job.attempt) if job.plan.around is not None else None
        if argv is not None:
            try:
                self.removers.add(self._try(argv, self.base, (self.null,) * 3))
            except OSError:
                pass  # its runtime is gone

    def _kill(self, job, now):
        proctree.signal_tree(job.pid, signal.SIGKILL)
        # Attempts of other servers have the same numbers: of this pilot, too, it must be.
        ours = set(proctree.marked(proctree.PILOT_MARK, self.base[proctree.PILOT_MARK]))
        for pid in proctree.marked(proctree.ATTEMPT_MARK, job.attempt):
            if pid in ours:
                proctree.send(pid, signal.SIGKILL)
        job.kill_at = now + 1.0  # again, should it have escaped by forking


def _written(report):
    """The report of a plain success is written when it leaves: many at once are cheaper than one by one."""
    if type(report) is not tuple:
        return report
    job, end, used = report
    written = job.measured(int(1000 * (used.ru_utime + used.ru_stime)), used.ru_maxrss << 10, end)
    written["exit"] = 0
    return written


def _nothing(number, frame):
    """A handler, so that the signal wakes the loop."""


def reserve_low_descriptors():
    """Keep 0–9 taken, so that no descriptor of ours is overwritten when a child's are arranged."""
    fd = os.open("/dev/null", os.O_RDWR)
    while fd < 9:
        fd = os.dup(fd)
    if fd > 9:
        os.close(fd)


def _base_environment(mark):
    env = {k: v for k, v in os.environ.items() if not k.startswith("WINDFALL_")}
    env[proctree.PILOT_MARK] = mark
    return env


def _raise_oom_score():
    """When memory runs out the kernel should take a task, not the agent; children inherit this."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(OOM_ADJUST)
    except OSError:
        pass
