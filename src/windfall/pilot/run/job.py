"""What a spawner knows of a task: the plan it shares with others of its spec, and the job while it runs."""

import time

from windfall.pilot import clock
from windfall.pilot.run.capture import Capture, keep_of

GRACE = 5000                 # ms between SIGTERM and SIGKILL
CHECK_SECONDS = 600.0        # longest a check's command may take
FIRST_LOOK = 1.0             # seconds after which memory and disk are first looked at
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Plan:
    """What follows from a spec, worked out once: most tasks of a bag differ in their command alone."""

    __slots__ = ("spec", "env", "call", "setup", "keep", "time", "memory", "disk", "grace", "limited", "check", "plain",
                 "capture", "check_command", "check_time", "around")

    def __init__(self, spec, base, gpus=None):
        """`base` is the pilot's environment; `gpus` what is bound to the task, None where GPUs are not given out."""
        self.spec = spec
        self.env = dict(base)
        self.env.update((str(k), str(v)) for k, v in (spec.get("environment") or {}).items())
        if gpus is not None:
            for name in GPU_VARIABLES:
                self.env[name] = ",".join(map(str, gpus))
        self.call = spec.get("kind") == "call"
        self.setup = [str(line) for line in spec.get("setup") or ()]
        self.keep = keep_of(spec)
        self.time = (spec.get("time") or 0) / 1000.0
        self.memory = int(spec.get("memory") or 0)
        self.disk = int(spec.get("disk") or 0)
        self.grace = spec.get("grace", GRACE) / 1000.0
        self.limited = bool(self.time or self.memory or self.disk)
        self.around = None           # Surroundings: modules, a container
        self.check = spec.get("check")
        self.capture = spec.get("capture")
        self.check_command = self.check.get("command") if isinstance(self.check, dict) else None
        self.check_time = min(self.time or CHECK_SECONDS, CHECK_SECONDS)
        self.plain = not (self.call or self.check or self.capture)  # an exit code of 0 is all there is to a success


class Job:
    """A task that runs."""

    __slots__ = ("seen", "attempt", "pid", "slot", "plan", "cwd", "t0", "m0", "out", "err", "deadline", "kill_at",
                 "look_memory", "look_disk", "doom", "watched", "report", "strays", "look")

    def __init__(self, attempt, slot, plan, cwd):
        self.attempt = attempt
        self.slot = slot
        self.plan = plan
        self.cwd = cwd
        self.pid = 0
        self.out = self.err = None   # a Capture once something was written
        self.t0 = time.time()
        self.m0 = clock.seconds()
        self.deadline = self.look_memory = self.look_disk = self.kill_at = None
        self.seen = 0                # most memory its tree was seen to have, bytes
        self.doom = ""               # why we are ending it
        self.watched = False
        self.report = None           # the task's, while its results are looked at, or its check runs
        self.look = None             # the Look that is taken at its results
        self.strays = False          # the task left something behind
        if plan.limited:
            self._set_limits(plan)

    def _set_limits(self, plan):
        if plan.time:
            self.deadline = self.m0 + plan.time
        if plan.memory:
            self.look_memory = self.m0 + FIRST_LOOK
        if plan.disk:
            self.look_disk = self.m0 + FIRST_LOOK

    def begin_check(self, report, strays):
        """The task has ended; from now on this is its check.  What that writes is not the task's output."""
        self._end_task(report, strays, self.plan.check_time)
        self.out = self.err = None

    def begin_look(self, look, report, strays, seconds):
        """The task has ended; from now on this is the process that looks at its results."""
        self._end_task(report, strays, seconds)
        self.look = look

    def _end_task(self, report, strays, seconds):
        self.report, self.strays = report, strays
        self.watched = False
        self.look_memory = self.look_disk = self.kill_at = None
        self.deadline = clock.seconds() + seconds

    def next_look(self):
        times = [t for t in (self.deadline, self.kill_at, self.look_memory, self.look_disk) if t is not None]
        return min(times) if times else None

    def capture(self, name):
        if getattr(self, name) is None:
            setattr(self, name, Capture(self.plan.keep))
        return getattr(self, name)

    def captured(self):
        """Bytes kept of stdout."""
        return b"" if self.out is None else self.out.kept()

    def measured(self, cpu, rss, end=None):
        """The report's beginning: times, usage, output."""
        wall = (clock.seconds() if end is None else end) - self.m0
        begin = int(self.t0 * 1000)
        span = int(wall * 1000)
        report = {"a": self.attempt, "t0": begin, "t1": begin + span, "wall": span, "cpu": cpu,
                  "rss": max(rss, self.seen)}
        if self.out is not None:
            self.out.describe(report, "out")
        if self.err is not None:
            self.err.describe(report, "err")
        return report
