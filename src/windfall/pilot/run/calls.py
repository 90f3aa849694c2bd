"""The spawner's Python calls: given to warm runners, one process per slot, started when its first call comes.

Rules
  * A call is begun by the runner that takes it from its queue (see runners.py).  Short calls queue behind the one that
    runs, a few milliseconds' worth; whatever was not begun can be had back at any time.
  * The job of a slot is the first call that was not answered.  Whoever is about to do something to it collects the
    results first, and looks whether it is still the one.
  * Output belongs to the call that wrote it: a runner waits for our word when a call ends with output unread.  So bytes
    that were in the pipes *before* the results were read are of the last call answered, if that waits, else of the
    first that was not.
  * A runner is replaced when a call killed it, left processes behind, or wants another environment.  What it had begun
    is judged; an innocent one, begun while we killed it for another's sake, is returned.
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
from windfall.pilot.run.runner import LEFT, OK, WAITS

IDLE_SECONDS = 600.0         # an idle runner is kept for this long
AHEAD_SECONDS = 0.02         # work to queue behind a call
AHEAD_MOST = 128             # calls
QUIET_FROM = 4               # calls in a queue from which its results do not wake us one by one
COLLECT_SECONDS = 0.004      # but are collected after this
NOTHING = struct.pack("=i", 0)


class Calls:
    def __init__(self, spawner):
        self.spawner = spawner
        self.busy = {}               # slot number → slot whose runner has something to do
        self.collect_at = None       # when to collect the results of quiet runners
        self.retire_at = None        # when to look for runners nobody has needed for long
        self.drained = False         # the output of a call that waited was read

    # --- starting

    def launch(self, job, text):
        spawner, slot, env = self.spawner, job.slot, job.plan.env
        if slot.runner is not None and not (slot.runner.fits(env) and slot.runner.receive()[1]):
            self.retire(slot)  # another environment, or it has died while it was idle
        if slot.runner is None:
            spawner.enter(job.cwd)
            slot.runner = runners.start(spawner.script, env, slot, spawner.null)
            spawner.handle(slot.runner.fileno(), lambda fd: self._heard(slot))
        slot.runner.send(job.attempt, job.cwd, text, spawner.folder)  # its queue is empty: there is room
        job.pid = slot.runner.pid
        self.busy[slot.number] = slot

    def feed(self):
        """No seat is free: let short calls wait where they will run, shortest queue first."""
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
        """The slot behind whose calls a task may queue: one of the same plan, with nothing of its own."""
        key, extra, gpus, cwd = task[1], task[3], task[5], task[6]
        if extra or gpus or cwd is not None or key is None:
            return None
        plan, best = self.spawner.plans.get(key), None
        for slot in self.busy.values():
            runner, job = slot.runner, slot.job
            if job is None or job.plan is not plan or job.cwd != slot.path or runner.tainted or job.doom:
                continue
            if len(runner.queue) < self._depth(runner) and (best is None or len(runner.queue) < len(best.runner.queue)):
                best = slot
        return best

    def _depth(self, runner):
        if runner.average is None:
            return 0
        return min(AHEAD_MOST, int(AHEAD_SECONDS / max(runner.average, 1e-6)))

    def _queue(self, slot, task):
        try:
            if not slot.runner.send(task[0], slot.path, task[2], self.spawner.folder):
                return False
        except (OSError, AttributeError, TypeError, ValueError):
            return False  # it is gone, or this is no call: told when the task is started by itself
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

    # --- having back

    def withdraw(self, attempts):
        """What of these was not begun waits again, with all that was queued beside it."""
        for slot in list(self.busy.values()):
            if any(attempt in slot.runner.queue for attempt in attempts):
                self._take_back(slot)

    def _take_back(self, slot):
        queue, turn = slot.runner.queue, slot.job.attempt if slot.job is not None else None
        back = [queue.pop(attempt) for attempt in slot.runner.take_back(turn) if attempt in queue]
        self.spawner.waiting.extendleft(reversed(back))

    def with_specs(self, keys):
        """These specs will be forgotten: what is queued may come back, and must not need them."""
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
        """There are results, or the runner is gone."""
        if slot.runner is not None and not self.collect(slot):
            proctree.signal_tree(slot.runner.pid, signal.SIGKILL)  # its death is noticed like any other
            self.spawner.unhandle(slot.runner.fileno())
            if slot.job is None or not slot.job.plan.call:
                self.retire(slot)

    def collect(self, slot):
        """Take in what a runner has answered; False when it is gone, or talks nonsense."""
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
        if len(results) and self.spawner.kill_strays():
            self._taint(slot)
        return alive

    def _answered(self, slot, result, wall):
        """The job of a slot has ended; the next in the queue is its job now."""
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
        """Nothing runs there now: make the slot fit for the next call, or replace the runner."""
        runner = slot.runner
        if left or runner.tainted:
            self.retire(slot)
        self.spawner.recycle(slot, left or runner.tainted, job.cwd)
        if slot.runner is not None:
            runner.go_on()  # it waits: a tainted one that does not is gone by now

    def _next(self, slot, since):
        """The first of the queue runs, since the one before ended."""
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
        """Something is in the pipes of a runner's slot; read what was there before the results were, no more."""
        found = [("out", slot.out_r, _unread(slot.out_r)), ("err", slot.err_r, _unread(slot.err_r))]
        self.drained = False
        if slot.runner is not None:
            self._heard(slot)
        if self.drained:
            return  # it was another call's; should there be more, we shall hear of it
        for name, fd, size in found:
            if size and fd in (slot.out_r, slot.err_r):
                data = os.read(fd, size)
                if slot.job is not None:
                    self.spawner.take(slot.job, name, data)  # else a thread wrote it after its call: nobody's

    # --- ending

    def still(self, job):
        """Is it this call that runs?"""
        if job.slot.runner is not None and job.slot.job is job:
            self._heard(job.slot)
        return job.slot.job is job

    def _taint(self, slot):
        """Somebody unknown lived below us, and may have its pipes: it begins no other call."""
        slot.runner.tainted = True
        self._take_back(slot)
        if slot.job is None:
            self.retire(slot)
            self.spawner.recycle(slot, True, slot.path)

    def died(self, job):
        """The runner of a job has ended.  Its last words; then (call it died of, or None; for whom we killed it)."""
        slot, runner = job.slot, job.slot.runner
        self._take_back(slot)
        self.spawner.jobs[job.pid] = job  # until all it has said is heard
        results, _ = runner.receive()
        wall = time.time() - clock.seconds()
        for result in results:
            if slot.job is not None and result.attempt == slot.job.attempt:
                result.flags &= ~WAITS
                self._answered_at_last(slot, result, wall)
        victim = slot.job
        self._close(slot)
        if victim is None:
            self.spawner.recycle(slot, True, slot.path)
            self._leave(slot)
            return None, runner.doomed
        self.spawner.jobs.pop(victim.pid, None)
        self.busy.pop(slot.number, None)
        return victim, runner.doomed

    def _answered_at_last(self, slot, result, wall):
        job = slot.job
        self.spawner.drain(job)
        self.spawner.report(_report(job, result, wall))
        self.spawner.forget(job)
        if slot.runner.queue:
            self._next(slot, result.end)
        else:
            slot.job = None

    def judge(self, job, report, doomed):
        """What the death of its runner means for a call."""
        if doomed is not None and doomed != job.attempt:
            report.clear()
            report.update(a=job.attempt, o="returned", why="gone", note="its runner was ended for another call")
        elif report.get("o", "succeeded") == "succeeded" or report.get("why") == "exit":
            # It ended itself before it gave a result (os._exit): whatever the exit code, no success.
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
        """End runners that nobody has needed for long."""
        if self.retire_at is None or now < self.retire_at:
            return
        idle = [slot for slot in self.spawner.slots if slot.runner is not None and slot.job is None]
        for slot in idle:
            if now >= slot.runner.used + IDLE_SECONDS:
                self.retire(slot)
        times = [slot.runner.used for slot in idle if slot.runner is not None]
        self.retire_at = min(times) + IDLE_SECONDS if times else None


def _report(job, result, wall):
    """`wall` turns our clock into the world's."""
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
    """Bytes in a pipe."""
    return struct.unpack("=i", fcntl.ioctl(fd, termios.FIONREAD, NOTHING))[0] if fd >= 0 else 0
