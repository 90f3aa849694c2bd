"""Real systems behind one face: a dialect, a channel to it, and how long its wall time takes to come to an end."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.testbed.base import INSTALLED, USER
from tests.testbed.condor import Condor
from tests.testbed.gridengine import GridEngine
from tests.testbed.slurm import Slurm, torque_bin
from tests.testbed.sshd import Sshd
from windfall.sites.channels.channel import Channel
from windfall.sites.channels.here import Here
from windfall.sites.channels.ssh import Secure
from windfall.sites.dialects.job import ENDED, Job, Listed, Shape, nth
from windfall.sites.dialects.script import prepare
from windfall.sites.dialects.table import Dialect, dialect

RUN = f"t{os.getpid():x}"  # nonces of this run begin so: others may use the same machine

STAND_IN = """\
import json, os, signal, sys, time
nonce = os.environ["WINDFALL_NONCE"]
def say(word):
    with open(sys.argv[1] + "/said-" + nonce, "a") as file:
        file.write(word + "\\n")
def caught(number, frame):
    say(signal.Signals(number).name)
    sys.exit(0)
for name in ("SIGTERM", "SIGUSR2"):
    signal.signal(getattr(signal, name), caught)
say("started")
with open(sys.argv[1] + "/about-" + nonce, "w") as file:
    json.dump({"argv": sys.argv, "environ": dict(os.environ), "cwd": os.getcwd()}, file)
time.sleep(float(sys.argv[2]))
say("ended")
"""
"""Stands in for the pilot: says that it started, which signal it got, and that it ended."""


class Limits(NamedTuple):
    walltime: int
    grace: int
    wait: float  # until the signal must have been seen
    refuses: dict[str, Any]  # fields of a job that the system refuses for good


class System:
    def __init__(self, name: str, dialect: Dialect, channel: Channel, place: Path, limits: Limits,
                 close: Callable[[], None]) -> None:
        self.name, self.dialect, self.channel, self.limits, self._close = name, dialect, channel, limits, close
        self.place = place  # its home directory, as seen from here
        self.options: dict[str, str] = {}
        self.arrays = name != "torque"  # PBS's commands over Slurm list a waiting array as one job
        self.folder = f"windfall-{RUN}"
        self.loop = asyncio.new_event_loop()
        self.number = 0
        self.doomed: Job
        self.owner: Any = None
        self.do(self.channel.put("stand-in.py", STAND_IN.encode(), 0o644))
        assert self.do(self.channel.say(prepare(self.folder))).exit == 0

    def do(self, what: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(what)

    def nonce(self, count: int) -> str:
        first, self.number = self.number + 1, self.number + count
        return f"{RUN}{self.name[:3]}-{first}"

    def job(self, seconds: float = 600, **fields: Any) -> Job:
        command = ("python3", "stand-in.py", self.folder, str(seconds))
        shape = fields.pop("shape", Shape(walltime=1800))
        nonce = self.nonce(fields.get("count", 1))
        return Job(nonce, shape, command, **{"folder": self.folder, "options": self.options, **fields})

    def submit(self, job: Job) -> str:
        return self.dialect.submitted(self.do(self.channel.say(self.dialect.submit(job))))

    def listed(self, job: Job | None = None) -> list[Listed]:
        jobs = self.dialect.listed(self.do(self.channel.say(self.dialect.listing(USER))))
        return [each for each in jobs if job is None or each.nonce in job.nonces]

    def cancel(self, jobs: list[Listed]) -> None:
        for command in self.dialect.cancel(each.id for each in jobs):
            self.dialect.cancelled(self.do(self.channel.say(command)))

    def states(self, job: Job) -> dict[str, str]:
        """Return the state of each listed job that has not ended, by nonce."""
        return {each.nonce: each.state for each in self.listed(job) if each.state != ENDED}

    def many(self, count: int) -> list[Job]:
        """Submit `count` pilots, in two arrays if the system has arrays."""
        half = count // 2
        jobs = ([self.job(count=half), self.job(count=count - half)] if self.arrays
                else [self.job() for _ in range(count)])
        for job in jobs:
            self.submit(job)
        return jobs

    def said(self, job: Job, index: int = 0) -> list[str]:
        path = self.place / self.folder / f"said-{nth(job.nonce, index)}"
        return path.read_text().split() if path.exists() else []

    def until(self, ask: Callable[[], Any], seconds: float = 90, every: float = 0.3) -> Any:
        until = time.monotonic() + seconds
        while not (answer := ask()):
            if time.monotonic() > until:
                print(self.owner.said() if self.owner else "")
                raise AssertionError(f"{self.name}: not within {seconds:g} s; listed: {self.listed()[:5]}")
            time.sleep(every)
        return answer

    def close(self) -> None:
        try:
            self.cancel([each for each in self.listed() if each.state != ENDED and each.nonce.startswith(RUN)])
            self.do(self.channel.close())
        finally:
            self._close()
        shutil.rmtree(self.place / self.folder, ignore_errors=True)
        for path in self.place.glob(f".windfall/jobs/*/{RUN}*"):
            shutil.rmtree(path, ignore_errors=True)
        self.loop.close()


def user(env: dict[str, str], home: Path) -> Here:
    """Commands here as the ordinary user, in a home of this test's own."""
    words = [f"{key}={value}" for key, value in {**env, "HOME": str(home), "USER": USER}.items()]
    return Here(("/usr/sbin/runuser", "-u", USER, "--", "env", *words), home=str(home))


def slurm(name: str = "a", **options: Any) -> System:
    cluster = Slurm(f"{name}{RUN}", **options)
    limits = Limits(60, 50, 90, {"queue": "nonsense"})
    home = cluster.bed.home
    made = System("slurm", dialect("slurm"), user(cluster.env, home), home, limits, cluster.stop)
    made.owner = cluster
    return made


def torque() -> System:
    cluster = Slurm(f"t{RUN}")
    env = {**cluster.env, "PATH": str(torque_bin(cluster.bed, INSTALLED))}
    limits = Limits(60, 50, 120, {"queue": "nonsense"})
    made = System("torque", dialect("torque"), user(env, cluster.bed.home), cluster.bed.home, limits, cluster.stop)
    made.options = {"output": f"{made.folder}/%x-%j.log"}
    return made


def gridengine(name: str = "a", **options: Any) -> System:
    cell = GridEngine(f"{name}{RUN}", **options)
    env = {key: value for key, value in cell.env.items() if key != "SGE_ND"}
    limits = Limits(15, 5, 60, {"queue": "nonsense.q"})
    return System("gridengine", dialect("gridengine"), user(env, cell.bed.home), cell.bed.home, limits, cell.stop)


def htcondor(extra: str = "") -> System:
    pool = Condor(f"p{RUN}", extra=extra)
    channel = Here(pool.chroot(USER))
    limits = Limits(10, 5, 60, {"directives": ("request_cpus = nonsense(",)})
    made = System("htcondor", dialect("htcondor"), channel, pool.inside / "home", limits, pool.stop)
    made.owner = pool
    return made


def ssh() -> System:
    server = Sshd()
    channel = Secure("127.0.0.1", USER, server.port, options=server.options)
    limits = Limits(6, 3, 30, {})
    return System("ssh", dialect("ssh"), channel, Path(pwd.getpwnam(USER).pw_dir), limits, server.stop)


def local() -> System:
    from tests.testbed.base import Bed

    bed = Bed("local")
    limits = Limits(6, 3, 30, {})
    return System("local", dialect("local"), user({}, bed.home), bed.home, limits, bed.stop)


SYSTEMS: dict[str, Callable[[], System]] = {
    "slurm": slurm, "torque": torque, "gridengine": gridengine, "htcondor": htcondor, "ssh": ssh, "local": local,
}
