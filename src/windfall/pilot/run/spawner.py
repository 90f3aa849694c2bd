"""The spawner: starts tasks in its slots, drains their output, enforces their limits, kills processes they leave.

Rules
  * One epoll loop does everything; SIGCHLD arrives through a pipe, and the loop never waits for a task.
  * The spawner starts its tasks in the order given, while fewer run than it has seats (`width`).  It gives back a task
    whose time to start (`until`: the lease, or the wall time) has passed.
  * A table shared with the agent has the tasks that run and the last task begun.  If the spawner is killed, the agent
    reads the table and need not guess.
  * When the agent is gone, the spawner kills all its descendants and ends.

From the agent, per frame a list of
    ("specs", {key: fields}), ("forget", [keys]),
    ("run", width, [(attempt, key, command, extra, until, gpus, cwd, serial, number)]),
    ("kill", attempt, why), ("give_back", [attempts]), ("watch", attempt), ("unwatch", attempt), ("hasten",), ("quit",)
and to it: ("ended", [report]), ("given_back", [attempts]), ("output", attempt, stream, offset, bytes).

calls.py reads plain attributes and may call: `begin`, `occupy`, `forget`, `vacate` for jobs and slots; `handle`,
`unhandle`, `hush` for descriptors; `take` and `drain` for output; `report`; `recycle` and `kill_left_processes` after a
job; `enter`; `with_spec`.
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
from windfall.pilot.run.job import Job, Plan, name_task
from windfall.pilot.run.slot import Slot, usage

FLUSH_AT = 32                # reports that are sent without delay
LONGEST_WAIT = 3600.0        # epoll takes no more than 24 days, and a limit may be longer
FLUSH_SECONDS = 0.015        # how long a report waits for others while there are more tasks to start
MEMORY_SECONDS = 1.0         # between two checks of a task's memory,
DISK_SECONDS = 5.0           # and of its disk
PIECE = 1 << 16
REMOVE_SECONDS = 5.0         # how long the spawner waits at its end for containers to be removed
OOM_ADJUST = b"500"


class Spawner:
    def __init__(self, sock, table, folder, settings):
        self.frames = Frames(sock)
        self.clogged = False         # the agent is slow to read: the spawner waits for room to write
        self.table = table           # shared memory: one ROW per slot
        self.folder = folder
        self.script = settings.script
        self.gpus = settings.gpus    # the pilot manages GPUs: a task that asked for none sees none
        self.environments = settings.environments    # folder of the packed environments
        self.base = _base_environment(settings.mark)
        self.plans = {}
        self.calls = Calls(self)
        self.finder = spawn.Finder()
        self.specs = {}
        self.waiting = deque()       # tasks that have not begun, as the agent's tuples
        self.width = 0
        self.free = []
        self.slots = []
        self.jobs = {}               # pid → Job
        self.attempts = {}           # attempt → Job
        self.timed = {}              # pid → Job with limits to check
        self.next_check = None
        self.reports = []
        self.first_report = 0.0
        self.handlers = {}
        self.poller = None
        self.alone = True            # the last wait found no child process
        self.suspicious = False      # an unknown process lives below the spawner
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
        # Handlers that do nothing: tasks would inherit ignored signals, and a task that signals its parent must not
        # end it.  A signal that the guardian left ignored stays so: Grid Engine warns all processes of a job, and only
        # the guardian reacts.
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
        """Let data at a descriptor wake the loop no longer, or again; its end always does."""
        self.poller.modify(fd, 0 if quiet else select.EPOLLIN)

    def serve(self):
        self.prepare()
        while True:
            for fd, _ in self.poller.poll(self._timeout()):
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler(fd)
            if self.next_check is not None or self.suspicious or self.calls.retire_at is not None:
                self._check_running()
            if self.calls.busy:
                self.calls.collect_due()
            if self.waiting:
                self._start_waiting()
            if self.reports:
                self._flush()

    def _timeout(self):
        times = [self.first_report + FLUSH_SECONDS] if self.reports else []
        if self.next_check is not None:
            times.append(self.next_check)
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
        self.specs.update(specs)  # plans are made when needed, so that a malformed spec fails its own tasks only

    def _on_forget(self, keys):
        """Forget specs; the waiting tasks that need them get a copy, and the agent sends a spec again for new ones."""
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
        """Give back those of these attempts that have not started.  The spawner always answers."""
        wanted = set(attempts)
        self.calls.withdraw(wanted)
        back = [task[0] for task in self.waiting if task[0] in wanted]
        self.waiting = deque(task for task in self.waiting if task[0] not in wanted)
        self._tell("given_back", back)

    def _on_kill(self, attempt, why):
        self.calls.withdraw([attempt])
        job = self.attempts.get(attempt)
        if job is not None:
            self._end_early(job, why)
        elif any(task[0] == attempt for task in self.waiting):
            if why == "cancel":
                self.waiting = deque(task for task in self.waiting if task[0] != attempt)
                self.report({"a": attempt, "o": "cancelled", "why": "cancel"})
            else:
                self._on_give_back([attempt])

    def _on_watch(self, attempt):
        job = self.attempts.get(attempt)
        if job is None or job.watched or job.report is not None:  # a check's output is not the task's
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
        """Kill the tasks that still have grace to end."""
        for job in self.jobs.values():
            if job.kill_at is not None:
                job.kill_at = 0.0
                self._watch_time(job)

    def _on_quit(self):
        self._end()

    def _end(self):
        """End the spawner with all its processes and containers."""
        for job in list(self.jobs.values()):
            self._remove_container(job)
        end = clock.seconds() + REMOVE_SECONDS
        for pid in self.removers:
            proctree.reap(pid, end)
        proctree.kill_descendants()
        os._exit(0)

    def _tell(self, *message):
        """Send a message at once, after the reports that wait."""
        self._flush(True)
        self._push(message)

    def _push(self, message):
        """Send a message, or with None the rest of the last one."""
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
        attempt, key, command, extra, _, gpus, cwd, serial, number = task
        ROW.pack_into(self.table, 0, serial, 0)
        slot = self.free.pop() if self.free else self._new_slot()
        job = None
        try:
            plan = self._plan(key, extra, gpus)
            job = Job(attempt, slot, plan, cwd)
            job.number = number
            self._launch(job, command)
        except (OSError, ValueError, TypeError, IndexError, AttributeError, BadInput) as error:
            # ValueError to AttributeError: Python cannot pass a malformed command or spec to a system call.
            self._failed_start(task, slot, error)
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
                raise BadInput("a container has its own Python: give the task `container` or a packed environment")
            from windfall.pilot.files import packed
            packed.apply(plan.env, self.environments, spec["packed"])
        if spec.get("nodes", 1) > 1:
            from windfall.pilot.run import nodes
            nodes.tell(plan.env, self.folder, spec["nodes"])
        if spec.get("modules") or spec.get("container"):
            if plan.call:
                raise BadInput("`modules` and `container` work for commands, not for Python calls")
            from windfall.pilot.run.environment_modules import CommandWrapper
            plan.wrapper = CommandWrapper(plan, gpus, self.base[proctree.PILOT_MARK])
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
            job.command = command
            if self.here != job.cwd:
                self.enter(job.cwd)
            job.pid = self._execute(job, command)

    def enter(self, path):
        """Change directory, and remember where the spawner is."""
        os.chdir(path)
        self.here = path

    def _execute(self, job, command):
        plan = job.plan
        if plan.wrapper is not None:
            argv = plan.wrapper.argv(command, plan.setup, job.cwd, job.attempt)
        else:
            argv = command if type(command) is list and not plan.setup else spawn.argv_of(command, plan.setup)
        name_task(plan.env, job.attempt, job.number)
        try:
            return self._try(argv, plan.env, job.slot.fds)
        except FileNotFoundError:
            self.finder.forget()  # the command may have moved since
            return self._try(argv, plan.env, job.slot.fds)

    def _try(self, argv, env, fds):
        file = self.finder.find(argv[0], env.get("PATH", spawn.DEFAULT_PATH))
        try:
            return spawn.start(file, argv, env, fds)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return spawn.start(spawn.SHELL, [spawn.SHELL, file] + argv[1:], env, fds)  # a script without #!

    def _failed_start(self, task, slot, error):
        attempt, command, cwd, number = task[0], task[2], task[6], getattr(error, "errno", None)
        report = {"a": attempt, "o": "failed", "why": "start", "t0": int(time.time() * 1000), "note": str(error)}
        if number in (errno.ENOSPC, errno.EDQUOT):
            verdict.no_room(report, self.folder, "no room on the pilot's scratch disk: {}".format(error.strerror))
        elif number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            # The host lacks memory, processes or descriptors; the task is not at fault.
            report.update(o="returned", why="start", note="the host cannot start it now: {}".format(error.strerror))
        elif number and isinstance(command, list) and command:
            is_its_own = error.filename == command[0]  # not that of a container, or of the shell after `setup`
            missing = verdict.no_program(command[0], slot.path if cwd is None else cwd) if is_its_own else ""
            report["note"] = missing or "cannot run {}: {} (PATH is {})".format(
                short(repr(command[0]), 150), error.strerror, short(self.base.get("PATH", spawn.DEFAULT_PATH), 250))
            if missing:
                report["why"] = "program"
        self.here = None
        if slot.path is not None and not os.path.isdir(slot.path):
            slot.abandon()
        self.free.append(slot)
        self.report(report)

    # --- jobs and slots (`_start` and `_finish` do the same inline, since most tasks take that path)

    def begin(self, task):
        """Tell the agent by the table that a task has begun."""
        ROW.pack_into(self.table, 0, task[7], 0)

    def occupy(self, job):
        """Enter a job that runs into its slot and the tables."""
        job.slot.job = self.jobs[job.pid] = self.attempts[job.attempt] = job
        ROW.pack_into(self.table, (job.slot.number + 1) * ROW.size, job.attempt, job.pid)
        if job.plan.limited or job.report is not None:  # inspections and checks always have a limit
            self._watch_time(job)

    def forget(self, job):
        self.jobs.pop(job.pid, None)
        self.attempts.pop(job.attempt, None)
        self.timed.pop(job.pid, None)

    def vacate(self, slot):
        """Free a slot."""
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
        """Read the output written until now; stop after 2 MiB, should a process go on writing."""
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
        if job.plan.call:
            job = self.calls.died(job)
            if job is None:
                return
        self.drain(job)
        del self.attempts[job.attempt]
        left_processes = not self.alone and self.kill_left_processes()
        if not status and job.plan.plain and not job.kill_reason:
            self._finish(job, (job, clock.seconds(), used), left_processes)
            return
        left_processes |= job.left_processes
        code, number = _exit_of(status)
        if job.inspection is not None:
            self._inspected(job, number, left_processes)
        elif job.report is not None:
            verdict.judge_check(job.report, code, number, job)
            self._finish(job, job.report, left_processes)
        else:
            report = job.measured(int(1000 * (used.ru_utime + used.ru_stime)), used.ru_maxrss << 10)
            inspection = self._judge(job, report, code, number)
            if not inspection or not self._begin_inspection(job, inspection, report, left_processes):
                self._judged(job, report, left_processes)

    def _judge(self, job, report, code, number):
        """Write the verdict on a task that has ended; return the Inspection of its results if one is needed."""
        if number == signal.SIGKILL and not job.kill_reason and self._out_of_memory(job, report):
            job.kill_reason = "memory"
        inspection = verdict.judge(report, code, number, job)
        if not job.plan.call:
            return inspection
        self.calls.judge(job, report)
        return None

    def _judged(self, job, report, left_processes):
        """Run the check's command if the task has one and has not failed; else finish the job."""
        if not job.plan.check_command or "o" in report or not self._begin_check(job, report, left_processes):
            self._finish(job, report, left_processes)

    def _begin_inspection(self, job, inspection, report, left_processes):
        """Start the process that inspects a task's results, in the task's slot; return False if it cannot start."""
        try:
            pid = inspection.start()
        except OSError as error:
            report.update(o="failed", why="output", note="the result could not be checked: {}".format(error.strerror))
            return False
        job.begin_inspection(inspection, report, left_processes, checks.SECONDS)
        self.handle(inspection.pipe, lambda fd: inspection.read() or self.unhandle(fd))
        self._replace_process(job, pid)
        return True

    def _inspected(self, job, number, left_processes):
        verdict.judge_inspection(job.report, number, job)
        self.unhandle(job.inspection.pipe)
        job.inspection.close()
        job.inspection = None
        self._judged(job, job.report, left_processes)

    def _replace_process(self, job, pid):
        """Let a process for the check of results take the place of the job's own."""
        if self.timed:
            self.timed.pop(job.pid, None)
        job.pid = pid
        self.occupy(job)

    def _begin_check(self, job, report, left_processes):
        """Start the check's command in the task's slot; return False if it cannot start."""
        job.begin_check(report, left_processes)
        try:
            self.enter(job.cwd)
            pid = self._execute(job, job.plan.check_command)
        except (OSError, ValueError, TypeError, IndexError, AttributeError) as error:
            report.update(o="failed", why="output", note="the check cannot be run: {}".format(error))
            self.here = None
            return False
        self._replace_process(job, pid)
        return True

    def _finish(self, job, report, left_processes):
        slot = job.slot
        slot.job = None
        if self.timed:
            self.timed.pop(job.pid, None)
        ROW.pack_into(self.table, (slot.number + 1) * ROW.size, 0, 0)
        self.report(report)
        self.recycle(slot, left_processes, job.cwd)
        self.free.append(slot)

    def recycle(self, slot, left_processes, cwd):
        """Prepare a slot for its next task."""
        if left_processes or not slot.pipes_intact():
            if slot.runner is not None:
                self.calls.retire(slot)
            for fd in (slot.out_r, slot.err_r):
                self.unhandle(fd)
            slot.close_pipes()
        if cwd == slot.path:
            slot.tidy()
            if slot.path is None and self.here == cwd:
                self.here = None

    def kill_left_processes(self):
        """Kill processes that ended tasks left behind; return True if there were any."""
        runners_ = {slot.runner.pid for slot in self.slots if slot.runner is not None}
        unknown = [pid for pid in self.children()
                   if pid not in self.jobs and pid not in runners_ and pid not in self.removers]
        left = [pid for pid in unknown if not self._belongs_to_running(pid)]
        self.suspicious = bool(left)
        if left:
            proctree.signal_trees(left, signal.SIGKILL)
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
        return bool(self.jobs)  # its origin is unknown: it may belong to any running task

    def _out_of_memory(self, job, report):
        """Did the kernel kill the job for its memory?"""
        kills, before = proctree.oom_kills(), self.oom_seen
        self.oom_seen = kills
        limit = job.plan.memory
        return kills > before or bool(limit and report["rss"] >= 0.95 * limit)

    # --- limits

    def _watch_time(self, job):
        check_at = job.next_check()
        if check_at is not None:
            self.timed[job.pid] = job
            if self.next_check is None or check_at < self.next_check:
                self.next_check = check_at

    def _check_running(self):
        """Kill unknown processes, retire idle runners, and check the limits of jobs that are due."""
        if self.suspicious:
            self.kill_left_processes()
        now = clock.seconds()
        self.calls.retire_idle(now)
        if self.next_check is None or now < self.next_check:
            return
        for job in list(self.timed.values()):
            self._check_limits(job, now)
        times = [job.next_check() for job in self.timed.values()]
        times = [at for at in times if at is not None]
        self.next_check = min(times) if times else None

    def _check_limits(self, job, now):
        if job.plan.call and not self.calls.still(job):
            return
        if job.kill_at is not None:
            if now >= job.kill_at:
                self._kill(job, now)
                self._remove_container(job)
        elif _is_due(job.deadline, now):
            self._end_early(job, "time", grace=None if job.inspection is None else 0)
        elif _is_due(job.check_memory_at, now):
            self._check_memory(job, now)
        elif _is_due(job.check_disk_at, now):
            job.check_disk_at = now + DISK_SECONDS
            if usage(job.cwd) > job.plan.disk:
                self._end_early(job, "disk")

    def _check_memory(self, job, now):
        job.check_memory_at = now + MEMORY_SECONDS
        limit = job.plan.memory
        if proctree.memory(job.pid) <= limit:
            return
        job.seen = max(job.seen, proctree.memory_shared_once(job.pid))
        if job.seen > limit:
            self._end_early(job, "memory", grace=0)  # at once, since it endangers the other tasks

    def _end_early(self, job, why, grace=None):
        """Send SIGTERM to a job's processes, and SIGKILL after its grace.  The first reason counts."""
        if job.kill_reason:
            return
        job.kill_reason = why
        job.deadline = job.check_memory_at = job.check_disk_at = None
        if grace is None:
            grace = job.plan.grace
        job.kill_at = clock.seconds() + grace
        if grace and not job.plan.call:
            proctree.signal_tree(job.pid, signal.SIGTERM)
        else:
            job.kill_at = 0.0
        if job.plan.call and job.slot.runner is not None:
            job.slot.runner.killed_for = job.attempt
        self._watch_time(job)

    def _remove_container(self, job):
        argv = job.plan.wrapper.removal(job.attempt) if job.plan.wrapper is not None else None
        if argv is not None:
            try:
                self.removers.add(self._try(argv, self.base, (self.null,) * 3))
            except OSError:
                pass  # the container runtime is gone

    def _kill(self, job, now):
        proctree.signal_tree(job.pid, signal.SIGKILL)
        # Another server's pilot on this host has attempts with the same numbers: the pilot's mark must match, too.
        ours = set(proctree.marked(proctree.PILOT_MARK, self.base[proctree.PILOT_MARK]))
        for pid in proctree.marked(proctree.ATTEMPT_MARK, job.attempt):
            if pid in ours:
                proctree.send(pid, signal.SIGKILL)
        job.kill_at = now + 1.0  # once more, in case a process escaped by forking


def _written(report):
    """Return a report to send; build that of a plain success now, since many at once are cheaper than one by one."""
    if type(report) is not tuple:
        return report
    job, end, used = report
    written = job.measured(int(1000 * (used.ru_utime + used.ru_stime)), used.ru_maxrss << 10, end)
    written["exit"] = 0
    return written


def _nothing(number, frame):
    """Handle a signal by waking the loop, nothing else."""


def _exit_of(status):
    """Return (exit code, 0), or (-1, signal), of a wait status."""
    return (-1, status & 0x7F) if status & 0x7F else (status >> 8, 0)


def _is_due(at, now):
    return at is not None and now >= at


def reserve_low_descriptors():
    """Keep 0–9 taken, so that arranging a child's descriptors overwrites none of the spawner's."""
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
    """Make the kernel kill a task rather than the agent when memory runs out; child processes inherit this."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(OOM_ADJUST)
    except OSError:
        pass
