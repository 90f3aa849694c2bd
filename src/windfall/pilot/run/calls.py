"""The spawner's Python calls: warm runners execute them, one process per slot, started for the slot's first call.

Rules
  * A runner begins a call by taking it from its queue (see runners.py).  Short calls, a few milliseconds' worth, queue
    behind the one that runs; the spawner can take back those that have not begun, at any time.
  * The job of a slot is the first call without a result.  Before the spawner ends or limits a job, it collects the
    results and checks that this call is still the job.
  * Output belongs to the call that wrote it: a runner waits for the spawner when a call ends with output unread.
    Bytes that were in the pipes *before* the spawner read the results belong to the last call with a result, if the
    runner waits, else to the first call without one.
  * The spawner replaces a runner when a call has killed it, left processes behind, or wants another environment.  The
    call that ran gets a verdict; a call that began while the spawner killed the runner for another call is returned.
"""

import fcntl
import os
import signal
import struct
import termios
import time

from windfall.pilot import clock
from windfall.pilot.run import proctree, runners
from windfall.pilot.run.job import Job
from windfall.pilot.run.runner import LEFT, OK, WAITS, remove, result_file

IDLE_SECONDS = 600.0         # how long an idle runner is kept
AHEAD_SECONDS = 0.02         # how much work queues behind a call,
AHEAD_MOST = 128             # and how many calls at most
QUIET_FROM = 4               # with so many calls in its queue, a runner's results do not wake the spawner:
COLLECT_SECONDS = 0.004      # the spawner collects them after this time
NOTHING = struct.pack("=i", 0)


class Calls:
    def __init__(self, spawner):
        self.spawner = spawner
        self.busy = {}               # slot number → slot whose runner has calls
        self.collect_at = None       # when to collect the results of quiet runners
        self.retire_at = None        # when to end runners that were idle for long
        self.drained = False         # the spawner has read the output of a call whose runner waits

    # --- starting

    def launch(self, job, text):
        spawner, slot, env = self.spawner, job.slot, job.plan.env
        if slot.runner is not None and not (slot.runner.fits(env) and slot.runner.receive()[1]):
            self.retire(slot)  # it has another environment, or died while it was idle
        if slot.runner is None:
            spawner.enter(job.cwd)
            slot.runner = runners.start(spawner.script, env, slot, spawner.null)
            spawner.handle(slot.runner.fileno(), lambda fd: self._heard(slot))
        who = (job.attempt, job.number, job.plan)
        slot.runner.send(who, job.cwd, text, spawner.folder)  # its queue is empty: there is room
        job.pid = slot.runner.pid
        self.busy[slot.number] = slot

    def feed(self):
        """Queue short calls at busy runners, shortest queue first, while no seat is free."""
        waiting = self.spawner.waiting
        now = clock.milliseconds()
        while waiting:
            task = waiting[0]
            slot = self._shortest(task)
            if slot is None or (task[4] is not None and now >= task[4]) or not self._queue(slot, task):
                break
            waiting.popleft()
        for slot in self.busy.values():
            self._quieten(slot.runner)

    def _shortest(self, task):
        """Return the slot with the shortest queue for a task without fields of its own: one that runs the same plan."""
        key, extra, gpus, cwd = task[1], task[3], task[5], task[6]
        if extra or gpus or cwd is not None or key is None:
            return None
        plan, best = self.spawner.plans.get(key), None
        for slot in self.busy.values():
            if not self._may_queue_at(slot, plan):
                continue
            if best is None or len(slot.runner.queue) < len(best.runner.queue):
                best = slot
        return best

    def _may_queue_at(self, slot, plan):
        runner, job = slot.runner, slot.job
        if job is None or job.plan is not plan or job.cwd != slot.path or runner.tainted or job.kill_reason:
            return False
        return len(runner.queue) < self._depth(runner)

    def _depth(self, runner):
        if runner.average is None:
            return 0
        return min(AHEAD_MOST, int(AHEAD_SECONDS / max(runner.average, 1e-6)))

    def _queue(self, slot, task):
        try:
            if not slot.runner.send((task[0], task[8], slot.job.plan), slot.path, task[2], self.spawner.folder):
                return False
        except (OSError, AttributeError, TypeError, ValueError):
            return False  # the runner is gone, or the task is not a valid call: its own start will tell
        slot.runner.queue[task[0]] = task
        self.spawner.begin(task)
        return True

    def _quieten(self, runner):
        quiet = len(runner.queue) >= QUIET_FROM
        if quiet != runner.quiet:
            runner.quiet = quiet
            self.spawner.hush(runner.fileno(), quiet)
        if quiet and self.collect_at is None:
            self.collect_at = clock.seconds() + COLLECT_SECONDS

    # --- taking back

    def withdraw(self, attempts):
        """Take back calls that have not begun, and all others in the same queues; they wait again."""
        for slot in list(self.busy.values()):
            if any(attempt in slot.runner.queue for attempt in attempts):
                self._take_back(slot)

    def _take_back(self, slot):
        queue, turn = slot.runner.queue, slot.job.attempt if slot.job is not None else None
        back = [queue.pop(attempt) for attempt in slot.runner.take_back(turn) if attempt in queue]
        self.spawner.waiting.extendleft(reversed(back))

    def with_specs(self, keys):
        """Give queued tasks their own copy of specs that are about to be forgotten: the tasks may be taken back."""
        for slot in self.busy.values():
            queue = slot.runner.queue
            for attempt in [a for a, task in queue.items() if task[1] in keys]:
                queue[attempt] = self.spawner.with_spec(queue[attempt])

    # --- results

    def collect_due(self):
        if self.collect_at is None or clock.seconds() < self.collect_at:
            return
        self.collect_at = None
        for slot in list(self.busy.values()):
            if slot.runner.quiet:
                self._heard(slot)

    def _heard(self, slot):
        """Collect a runner's results; kill it when it is gone or its answer is malformed."""
        if slot.runner is not None and not self.collect(slot):
            proctree.signal_tree(slot.runner.pid, signal.SIGKILL)  # the loop notices its death as any other
            self.spawner.unhandle(slot.runner.fileno())
            if slot.job is None or not slot.job.plan.call:
                self.retire(slot)

    def collect(self, slot):
        """Take the results of a runner; return False when it is gone or its answer is malformed."""
        runner = slot.runner
        results, alive = runner.receive()
        wall = time.time() - clock.seconds()
        for result in results:
            if slot.job is None or result.attempt != slot.job.attempt:
                return False
            self._answered(slot, result, wall)
            if slot.runner is not runner:
                return True
        if runner.quiet:
            self._quieten(runner)
        if len(results) and self.spawner.kill_left_processes():
            self._taint(slot)
        return alive

    def _answered(self, slot, result, wall):
        """End the job of a slot with its result; the next call in the queue becomes the job."""
        spawner, runner, job = self.spawner, slot.runner, slot.job
        left = bool(result.flags & LEFT)
        if result.flags & WAITS:
            spawner.drain(job)
            self.drained = True
        spawner.report(_report(job, result, wall))
        took = max(0.0, result.end - result.begin)
        runner.average = took if runner.average is None else runner.average + (took - runner.average) / 8
        runner.used = result.end
        spawner.forget(job)
        if result.flags & WAITS or (runner.tainted and not runner.queue):
            self._between(slot, job, left)
        if slot.runner is not None and runner.queue:
            self._next(slot, result.end)
        else:
            self._leave(slot)

    def _between(self, slot, job, left):
        """Prepare a slot between two calls, or replace its runner."""
        runner = slot.runner
        if left or runner.tainted:
            self.retire(slot)
        self.spawner.recycle(slot, left or runner.tainted, job.cwd)
        if slot.runner is not None:
            runner.go_on()  # the runner waits; a tainted one was retired above

    def _next(self, slot, since):
        """Make the first call of the queue the slot's job; it began at `since`, when the one before ended."""
        runner = slot.runner
        attempt = next(iter(runner.queue))
        del runner.queue[attempt]
        job = Job(attempt, slot, slot.job.plan, slot.path)
        if job.deadline is not None:
            job.deadline += since - job.m0
        job.pid = runner.pid
        self.spawner.occupy(job)

    def _leave(self, slot):
        self.busy.pop(slot.number, None)
        self.spawner.vacate(slot)
        if slot.runner is not None and self.retire_at is None:
            self.retire_at = slot.runner.used + IDLE_SECONDS

    # --- output

    def output(self, slot):
        """Read the output of a runner's slot, but only the bytes that were there before the results were read."""
        found = [("out", slot.out_r, _unread(slot.out_r)), ("err", slot.err_r, _unread(slot.err_r))]
        self.drained = False
        if slot.runner is not None:
            self._heard(slot)
        if self.drained:
            return  # those bytes belonged to a call that has ended; the poller reports later ones
        for name, fd, size in found:
            if size and fd in (slot.out_r, slot.err_r):
                data = os.read(fd, size)
                if slot.job is not None:
                    self.spawner.take(slot.job, name, data)  # without a job, a thread wrote it after its call

    # --- ending

    def still(self, job):
        """Is this call still the one that runs?"""
        if job.slot.runner is not None and job.slot.job is job:
            self._heard(job.slot)
        return job.slot.job is job

    def _taint(self, slot):
        """Let a runner begin no other call, since an unknown process lived that may hold its pipes."""
        slot.runner.tainted = True
        self._take_back(slot)
        if slot.job is None:
            self.retire(slot)
            self.spawner.recycle(slot, True, slot.path)

    def died(self, job):
        """Note that a job's runner has ended, and take its last results.

        Return the call that ran when the runner ended, or None; its `killed_for` is the cause of a kill.
        """
        slot, runner = job.slot, job.slot.runner
        self._take_back(slot)
        self.spawner.jobs[job.pid] = job  # until all its results are read
        results, _ = runner.receive()
        wall = time.time() - clock.seconds()
        for result in results:
            if slot.job is not None and result.attempt == slot.job.attempt:
                self._answered_at_last(slot, result._replace(flags=result.flags & ~WAITS), wall)
        victim = slot.job
        self._close(slot)
        if victim is None:
            self.spawner.recycle(slot, True, slot.path)
            self._leave(slot)
            return None
        self.spawner.jobs.pop(victim.pid, None)
        self.busy.pop(slot.number, None)
        victim.killed_for = runner.killed_for
        return victim

    def _answered_at_last(self, slot, result, wall):
        job = slot.job
        self.spawner.drain(job)
        self.spawner.report(_report(job, result, wall))
        self.spawner.forget(job)
        if slot.runner.queue:
            self._next(slot, result.end)
        else:
            slot.job = None

    def judge(self, job, report):
        """Correct the report of a call whose runner has ended."""
        remove(result_file(os.path.dirname(self.spawner.script), job.attempt))  # perhaps half a result
        if job.killed_for is not None and job.killed_for != job.attempt:
            report.clear()
            report.update(a=job.attempt, o="returned", why="gone",
                          note="the pilot ended the process that ran the call because of another call")
        elif report.get("o", "succeeded") == "succeeded" or report.get("why") == "exit":
            # The call ended its process before it returned (os._exit): a failure, whatever the exit code.
            report.update(o="failed", why="exit", note="the call ended its process before it returned")

    def retire(self, slot):
        pid = slot.runner.pid
        self._take_back(slot)
        self._close(slot)
        proctree.signal_tree(pid, signal.SIGKILL)
        self.spawner.suspicious = True

    def _close(self, slot):
        runner, slot.runner = slot.runner, None
        self.spawner.unhandle(runner.fileno())
        runner.close()

    def retire_idle(self, now):
        """End runners that were idle for long."""
        if self.retire_at is None or now < self.retire_at:
            return
        idle = [slot for slot in self.spawner.slots if slot.runner is not None and slot.job is None]
        for slot in idle:
            if now >= slot.runner.used + IDLE_SECONDS:
                self.retire(slot)
        times = [slot.runner.used for slot in idle if slot.runner is not None]
        self.retire_at = min(times) + IDLE_SECONDS if times else None


def _report(job, result, wall):
    """Return the report of a call's result; `wall` converts the pilot's clock to wall-clock time."""
    begin, end = int(1000 * (result.begin + wall)), int(1000 * (result.end + wall))
    report = {"a": job.attempt, "t0": begin, "t1": end, "wall": max(0, end - begin), "cpu": max(0, result.cpu),
              "rss": max(0, result.rss), "value": result.value.decode("ascii", "replace")}
    for capture, name in ((job.out, "out"), (job.err, "err")):
        if capture is not None:
            capture.describe(report, name)
    if not result.flags & OK:
        report.update(o="failed", why="exit", note=result.note.decode("utf-8", "replace")[:2000])
    return report


def _unread(fd):
    """Return the number of bytes in a pipe."""
    return struct.unpack("=i", fcntl.ioctl(fd, termios.FIONREAD, NOTHING))[0] if fd >= 0 else 0
