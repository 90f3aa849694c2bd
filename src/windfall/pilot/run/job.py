"""A spawner's records of a task: the plan, shared by the tasks of a spec, and the job, while the task runs."""

import os
import time

from windfall.pilot import clock
from windfall.pilot.run.capture import Capture, keep_of

GRACE = 5000                 # ms between SIGTERM and SIGKILL
CHECK_SECONDS = 600.0        # most seconds that a check's command may take
FIRST_CHECK = 1.0            # seconds after the start, when memory and disk are first compared with their limits
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


ATTEMPT, TASK = "WINDFALL_ATTEMPT", "WINDFALL_TASK"
SPEC_VARIABLES = (("WINDFALL_BAG", "bag"), ("WINDFALL_TARGET", "target"))
VARIABLES = (ATTEMPT, TASK, *(name for name, _ in SPEC_VARIABLES))  # by which a task knows itself


def name_task(environment, attempt, number):
    """Tell a task its attempt, and its number within the bag where the server has named it."""
    environment[ATTEMPT] = str(attempt)
    if number is None:
        environment.pop(TASK, None)
    else:
        environment[TASK] = str(number)


class Plan:
    """A spec made ready to run, once for all its tasks: most tasks of a bag differ in their command alone."""

    __slots__ = ("spec", "env", "call", "names", "setup", "keep", "time", "memory", "disk", "grace", "limited", "check",
                 "plain", "capture", "check_command", "check_time", "wrapper")

    def __init__(self, spec, base, gpus=None):
        """Read a spec.  `base` is the pilot's environment, `gpus` the task's; None where the pilot manages no GPUs."""
        self.spec = spec
        self.env = _environment(spec, base, gpus)
        self.call = spec.get("kind") == "call"
        own = bag_variables(spec)
        self.names = os.fsencode("\0".join(map("=".join, own.items())))
        if not self.call:            # a runner serves bag after bag, and hears with each call whose it is
            self.env.update(own)
        self.setup = [str(line) for line in spec.get("setup") or ()]
        self.keep = keep_of(spec)
        self._read_limits(spec)
        self.wrapper = None          # CommandWrapper: modules, a container
        self._read_checks(spec)

    def _read_limits(self, spec):
        self.time = (spec.get("time") or 0) / 1000.0
        self.memory = int(spec.get("memory") or 0)
        self.disk = int(spec.get("disk") or 0)
        self.grace = spec.get("grace", GRACE) / 1000.0
        self.limited = bool(self.time or self.memory or self.disk)

    def _read_checks(self, spec):
        self.check = spec.get("check")
        self.capture = spec.get("capture")
        self.check_command = self.check.get("command") if isinstance(self.check, dict) else None
        self.check_time = min(self.time or CHECK_SECONDS, CHECK_SECONDS)
        self.plain = not (self.call or self.check or self.capture)  # an exit code of 0 is a success, and nothing more


def bag_variables(spec):
    """Return the variables that name a spec's bag and target."""
    return {name: str(spec[field]) for name, field in SPEC_VARIABLES if field in spec}


def _environment(spec, base, gpus):
    env = dict(base)
    env.update((str(k), str(v)) for k, v in (spec.get("environment") or {}).items())
    if gpus is not None:
        for name in GPU_VARIABLES:
            env[name] = ",".join(map(str, gpus))
    return env


class Job:
    """A task that runs."""

    __slots__ = ("seen", "attempt", "number", "pid", "slot", "plan", "cwd", "t0", "m0", "out", "err", "deadline",
                 "kill_at", "check_memory_at", "check_disk_at", "kill_reason", "watched", "report", "left_processes",
                 "inspection", "killed_for", "command")

    def __init__(self, attempt, slot, plan, cwd):
        self.attempt = attempt
        self.number = None           # the task's, within its bag; None: not named
        self.slot = slot
        self.plan = plan
        self.cwd = cwd
        self.pid = 0
        self.command = None          # what a task that is no Python call runs
        self.out = self.err = None   # a Capture once the task has written
        self.t0 = time.time()
        self.m0 = clock.seconds()
        self.deadline = self.check_memory_at = self.check_disk_at = self.kill_at = None
        self.seen = 0                # bytes: the most memory that a check saw its processes use
        self.kill_reason = ""        # why it was ended: cancel, stop, time, memory (also by the kernel), disk
        self.watched = False
        self.report = None           # the task's report, while its results are inspected or its check runs
        self.inspection = None       # the Inspection of its results, while it runs
        self.killed_for = None       # the attempt because of which the spawner killed the runner of this call
        self.left_processes = False  # the task left processes behind
        if plan.limited:
            self._set_limits(plan)

    def _set_limits(self, plan):
        if plan.time:
            self.deadline = self.m0 + plan.time
        if plan.memory:
            self.check_memory_at = self.m0 + FIRST_CHECK
        if plan.disk:
            self.check_disk_at = self.m0 + FIRST_CHECK

    def begin_check(self, report, left_processes):
        """Turn the job of an ended task into that of its check's command, whose output is not the task's."""
        self._end_task(report, left_processes, self.plan.check_time)
        self.out = self.err = None

    def begin_inspection(self, inspection, report, left_processes, seconds):
        """Turn the job of an ended task into that of the process that inspects its results."""
        self._end_task(report, left_processes, seconds)
        self.inspection = inspection

    def _end_task(self, report, left_processes, seconds):
        self.report, self.left_processes = report, left_processes
        self.watched = False
        self.check_memory_at = self.check_disk_at = self.kill_at = None
        self.deadline = clock.seconds() + seconds

    def next_check(self):
        times = [t for t in (self.deadline, self.kill_at, self.check_memory_at, self.check_disk_at) if t is not None]
        return min(times) if times else None

    def capture(self, name):
        if getattr(self, name) is None:
            setattr(self, name, Capture(self.plan.keep))
        return getattr(self, name)

    def captured(self):
        """Return the bytes kept of stdout."""
        return b"" if self.out is None else self.out.kept()

    def measured(self, cpu, rss, end=None):
        """Return a report with the job's times, usage and output."""
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
