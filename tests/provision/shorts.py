"""Short tasks on one HTCondor pool, given to it directly and through pilots that are its jobs (g-c, for real).

Both have the same slots, the same tasks and the same order; none needs a processor to speak of.  The clock runs from
before the submission until the last task has ended, so pilots pay for their own start.  Both keep what each task says.
The pool is served well: its jobs move no files, come by one description, and it negotiates every second.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.live.real import until
from tests.provision import rig
from tests.provision.everywhere import Place
from tests.provision.rig import NAME, User
from tests.testbed.base import USER, eventually
from tests.testbed.condor import Condor
from tests.testbed.login import Login
from windfall.model.spec import Bag, Lines, Target
from windfall.sites.channels.here import Here

DESCRIBED = """executable = /bin/sleep
arguments = $(seconds)
transfer_executable = false
should_transfer_files = no
request_cpus = 1
request_memory = 100
request_disk = 100
log = shorts.log
output = shorts.out.$(Process)
error = shorts.err.$(Process)
notification = never
queue seconds from shorts.txt
"""
WELL = "Normal termination (return value 0)"  # in the log of the pool


class Way(NamedTuple):
    seconds: float
    processor: float  # seconds of it, of the pool and of whoever drives it


class Measured(NamedTuple):
    tasks: int
    slots: int
    least: float  # seconds; all of them asleep, without a pause
    direct: Way
    pilots: Way

    @property
    def ratio(self) -> float:
        return self.direct.seconds / self.pilots.seconds


def lengths(tasks: int, seed: int = 1) -> list[str]:
    """Seconds, 0.1 to 1."""
    draw = random.Random(seed)
    return [f"{draw.uniform(0.1, 1):.3f}" for _ in range(tasks)]


def run(folder: Path, tasks: int, slots: int = 8) -> Measured:
    """Every task ends well in both ways, or it raises."""
    chosen = lengths(tasks)
    with rig.started(lambda: Condor(f"c{NAME}", slots, f"MEMORY = {500 * slots}")) as pool:
        direct = _direct(pool, chosen)
        pilots = _through_pilots(pool, folder, chosen, slots)
    return Measured(tasks, slots, sum(map(float, chosen)) / slots, direct, pilots)


def _used(pool: Condor, *others: int) -> float:
    """Seconds of processor, of who lives and of the children that they have seen out."""
    roots = [psutil.Process(pid) for pid in (*(daemon.pid for daemon in pool.bed.daemons), *others)]
    return sum(_cpu(each) for root in roots for each in (root, *root.children(recursive=True)))


def _cpu(process: psutil.Process) -> float:
    try:
        t = process.cpu_times()
    except psutil.NoSuchProcess:  # a job's own process, just gone
        return 0.0
    return float(t.user + t.system + t.children_user + t.children_system)


def _direct(pool: Condor, chosen: list[str]) -> Way:
    home = pool.inside / "home"
    (home / "shorts.txt").write_text("\n".join(chosen) + "\n")
    (home / "shorts.sub").write_text(DESCRIBED)
    began, used = time.monotonic(), _used(pool)
    said = subprocess.run([*pool.chroot(USER), "condor_submit", "shorts.sub"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    log = home / "shorts.log"

    def ended() -> bool:
        return log.exists() and log.read_text().count(WELL) >= len(chosen)

    eventually(ended, "the pool does them", 120 + len(chosen), every=0.5)
    took = time.monotonic() - began
    asked = [*pool.chroot(USER), "condor_q", "-af", "JobStatus"]
    eventually(lambda: not subprocess.run(asked, capture_output=True, text=True).stdout.strip(), "its queue empties")
    return Way(took, _used(pool) - used)


def _through_pilots(pool: Condor, folder: Path, chosen: list[str], slots: int) -> Way:
    login = Login(pool.inside / "home", {}, enter=pool.chroot(USER), inside=pool.home)
    with rig.started(lambda: login), rig.user(folder) as person:
        person.knows(login, "pool")
        person.site("pool", "htcondor", f'host = "pool"\nmax-pilots = {slots}\n')
        person.serve()
        assert person.process is not None
        used = _used(pool, person.process.pid)
        took = _bag(person, chosen)
        place = Place("pool", "htcondor", Here(pool.chroot(USER)), login)
        until(lambda: not place.listed(), 90)  # pilots that have nothing to do leave
        return Way(took, _used(pool, person.process.pid) - used)


def _bag(person: User, chosen: list[str]) -> float:
    text = "\n".join(f"sleep {seconds}" for seconds in chosen)
    made = Bag(name="shorts", targets=[Target(source=Lines(text=text, count=len(chosen)))])
    began = time.monotonic()
    counts = person.client.wait(person.client.submit(made))["counts"]
    took = time.monotonic() - began
    assert counts["succeeded"] == len(chosen), counts
    return took
