"""A bag runs on two Slurm clusters, Grid Engine, HTCondor, a workstation and this machine, while parts of them fail.

`run` runs a bag of a given size and returns measurements; each fault occurs when a given number of tasks has succeeded.
It asserts that every task has one result, that every site contributed, that no site ever had more pilots than its limit
(by the journal's facts and by its batch system's listing), that the results of killed pilots were looked for, and that
no job and no pilot is left afterwards.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import NAME, User, own
from tests.sites.systems import user as as_user
from tests.testbed.base import USER, Bed
from tests.testbed.condor import Condor
from tests.testbed.gridengine import GridEngine
from tests.testbed.login import Login
from tests.testbed.slurm import Slurm
from windfall.core.messages import facts
from windfall.sites.channels.channel import Channel
from windfall.sites.channels.here import Here
from windfall.sites.dialects.job import ENDED, QUEUED, RUNNING, Listed
from windfall.sites.dialects.table import dialect
from windfall.store import codec
from windfall.store.journal import Journal

MOST = 5  # pilots at each site
KILLED = ("alpha", "bench")  # sites where a pilot is killed
SHAPE = '[[shapes]]\nwalltime = "30min"\ncores = 1\n'


class Place:
    """A site as its operators see it."""

    def __init__(self, name: str, kind: str, channel: Channel, login: Login | None, who: str = USER,
                 owner: Any = None) -> None:
        self.name, self.kind, self.login, self.owner = name, kind, login, owner
        self._dialect, self._channel, self._who = dialect(kind), channel, who

    def listed(self) -> list[Listed]:
        """Ours that have not ended; raises while the batch system does not answer."""
        answer = asyncio.run(self._channel.say(self._dialect.listing(self._who)))
        return [job for job in self._dialect.listed(answer) if job.nonce and job.state != ENDED]

    def cancel(self, most: int) -> int:
        """Behind our back."""
        ids = [job.id for job in self.listed() if job.state == RUNNING][:most]
        for command in self._dialect.cancel(ids):
            asyncio.run(self._channel.say(command))
        return len(ids)


def slurm(stack: ExitStack, name: str) -> Place:
    cluster = Slurm(f"{name}{NAME}", extra="MessageTimeout=5")
    stack.callback(cluster.stop)
    wrapped = {each: f"/usr/bin/{each}" for each in ("sbatch", "squeue", "scancel")}
    login = _login(stack, cluster.bed.home, cluster.env, wrapped)
    return Place(name, "slurm", as_user(cluster.env, cluster.bed.home), login, owner=cluster)


def gridengine(stack: ExitStack, name: str) -> Place:
    cell = GridEngine(f"{name}{NAME}")
    stack.callback(cell.stop)
    env = {key: value for key, value in cell.env.items() if key != "SGE_ND"}
    return Place(name, "gridengine", as_user(env, cell.bed.home), _login(stack, cell.bed.home, env), owner=cell)


def htcondor(stack: ExitStack, name: str) -> Place:
    pool = Condor(f"{name}{NAME}")
    stack.callback(pool.stop)
    login = Login(pool.inside / "home", {}, enter=pool.chroot(USER), inside=pool.home)
    stack.callback(login.stop)
    return Place(name, "htcondor", Here(pool.chroot(USER)), login, owner=pool)


def workstation(stack: ExitStack, name: str) -> Place:
    bed = Bed(name)
    stack.callback(bed.stop)
    return Place(name, "ssh", as_user({}, bed.home), _login(stack, bed.home, {}))


def _login(stack: ExitStack, home: Path, env: dict[str, str], wrapped: dict[str, str] | None = None) -> Login:
    login = Login(home, env, wrapped)
    stack.callback(login.stop)
    own(home)
    return login


class World:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.user = User(folder)
        self.places = [slurm(stack, "alpha"), slurm(stack, "beta"), gridengine(stack, "cell"), htcondor(stack, "pool"),
                       workstation(stack, "bench")]
        me = Here(env={"HOME": str(self.user.person)}, home=str(self.user.person))
        self.places.append(Place("here", "local", me, None, who="root"))
        self.most: Counter[str] = Counter()
        self.requeued: list[str] = []
        for place in self.places:
            host = ""
            if place.login is not None:
                self.user.knows(place.login, place.name)
                host = f'host = "{place.name}"\n'
            self.user.site(place.name, place.kind, f"{host}max-pilots = {MOST}\n", SHAPE)
        stack.enter_context(rig.attended(self.user))

    def place(self, name: str) -> Place:
        return next(place for place in self.places if place.name == name)

    @contextmanager
    def watched(self) -> Any:
        """Counts what each batch system has of ours, all the time."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.5):
                for place in self.places:
                    try:
                        self.most[place.name] = max(self.most[place.name], len(place.listed()))
                    except Exception as error:  # it is down: a fault of ours
                        self.troubles[type(error).__name__] += 1

        self.troubles: Counter[str] = Counter()
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def left(self) -> dict[str, int]:
        """Jobs, and pilots' processes, of this world."""
        jobs = {place.name: len(place.listed()) for place in self.places}
        return {name: n for name, n in {**jobs, "processes": len(self.alive())}.items() if n}

    def alive(self) -> list[str]:
        """Nonces of our pilots that have a process."""
        mark = (self.user.home / "mark").read_text()
        found = [_nonce(pid) for pid in psutil.pids()]
        return [nonce for nonce in found if nonce.startswith(f"{mark}-")]


# --- what goes wrong ------------------------------------------------------------------------------------------------


def killed_at_sbatch(world: World, submit: Callable[[], int]) -> int:
    """The server dies between `sbatch` and its answer."""
    login = world.place("alpha").login
    assert login is not None
    login.hold("sbatch")
    bag = submit()
    until(lambda: login.held("sbatch"), 60)
    world.user.kill()
    login.release("sbatch")
    world.user.serve()
    return bag


def controller_stops(world: World) -> None:
    cluster = world.place("alpha").owner
    cluster.stop_controller()
    time.sleep(5)
    cluster.start_controller()
    until(cluster.answers, 60)


def node_drained(world: World) -> None:
    _control(world.place("alpha").owner, "update", "nodename={}", "state=drain", "reason=test")


def node_back(world: World) -> None:
    _resume(world.place("alpha").owner)


def _control(cluster: Slurm, *words: str) -> str:
    named = [word.format(cluster.nodes[0]) for word in words]
    done = subprocess.run(["scontrol", *named], capture_output=True, text=True, env={**os.environ, **cluster.env})
    return done.stdout if done.returncode == 0 else ""


def _resume(cluster: Slurm) -> None:
    """Resume a node; Slurm refuses that for a node which has returned already."""
    def back() -> bool:
        _control(cluster, "update", "nodename={}", "state=resume")
        return not re.search("State=[^ ]*(DRAIN|DOWN|UNKNOWN)", _control(cluster, "show", "node", "{}") or "State=DOWN")

    until(back, 60)


def cancelled_behind_our_back(world: World) -> None:
    for name in ("beta", "cell", "pool", "bench"):
        world.place(name).cancel(2)


def slurmd_killed(world: World) -> None:
    """Slurm queues the node's jobs again; their old processes live on."""
    place = world.place("beta")
    cluster: Slurm = place.owner
    node = cluster.nodes[0]
    # A job that Slurm has begun a moment ago has no process yet, and would get none.
    there = until(lambda: {job.nonce for job in place.listed() if job.state == RUNNING
                           and job.nonce in world.alive() and _runs_on(cluster, job.id, node)}, 60)
    for job in place.listed():
        _control(cluster, "update", f"jobid={job.id}", "requeue=1")
    cluster.workers[node].kill()
    cluster.workers[node].wait()
    _control(cluster, "update", "nodename={}", "state=down", "reason=test")
    world.requeued = until(lambda: [job.nonce for job in place.listed()
                                    if job.nonce in there and job.state == QUEUED], 60)
    assert set(world.requeued) <= set(world.alive()), "they live on"


def _runs_on(cluster: Slurm, job: str, node: str) -> bool:
    return f"NodeList={node}" in _control(cluster, "show", "job", job).split()


def _nonce(pid: int) -> str:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((word.decode()[15:] for word in environ if word.startswith(b"WINDFALL_NONCE=")), "")


def slurmd_back(world: World) -> None:
    cluster: Slurm = world.place("beta").owner
    cluster.start_node(cluster.nodes[0])
    _resume(cluster)


def pilots_killed(world: World) -> None:
    """Kill pilots without a signal that they could handle, so that their results must be salvaged."""
    for name in KILLED:
        job = until(lambda name=name: [job for job in world.place(name).listed() if job.state == RUNNING
                                       and job.nonce in world.alive()], 60)[0]
        for pid in [pid for pid in psutil.pids() if _nonce(pid) == job.nonce]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def server_killed(world: World) -> None:
    world.user.kill()
    world.user.serve()


Fault = Callable[[World], None]
FAULTS: dict[Fault, float] = {  # once this part of the tasks has succeeded
    controller_stops: 0.10, pilots_killed: 0.15, node_drained: 0.25, cancelled_behind_our_back: 0.35,
    slurmd_killed: 0.45, server_killed: 0.60,
}
MENDED: dict[Fault, Fault] = {node_drained: node_back, slurmd_killed: slurmd_back}


def faults(seed: int) -> list[tuple[float, Fault]]:
    """Return the faults with their times: those of FAULTS for seed 0, else random ones.  Each broken part is repaired
    three tenths of the tasks later."""
    chance = random.Random(seed)
    when = {fault: chance.uniform(0.05, 0.65) if seed else part for fault, part in FAULTS.items()}
    mended = [(when[fault] + 0.3, mend) for fault, mend in MENDED.items()]
    return sorted([*((part, fault) for fault, part in when.items()), *mended], key=lambda pair: pair[0])


def run(folder: Path, tasks: int, seconds: float, patience: float, seed: int = 0) -> dict[str, Any]:
    with ExitStack() as stack:
        world = World(stack, folder)
        world.user.serve()
        began = time.monotonic()
        with world.watched():
            bag = killed_at_sbatch(world, lambda: world.user.bag(f"sleep {seconds}; echo {{n}}", tasks))
            for part, fault in faults(seed):
                _reached(world, bag, int(part * tasks), patience)
                _say(f"{time.monotonic() - began:6.1f} s  {fault.__name__}")
                fault(world)
            _reached(world, bag, tasks, patience)
            ended = time.monotonic() - began
            until(lambda: not world.left(), 120)
        return _judged(world, bag, tasks, ended, time.monotonic() - began)


def _reached(world: World, bag: int, count: int, patience: float) -> None:
    def far() -> bool:
        counts = world.user.client.bag(bag)["counts"]
        assert not counts["failed"] and not counts["quarantined"], counts
        return bool(counts["succeeded"] >= count)

    until(far, patience)


def _judged(world: World, bag: int, tasks: int, ended: float, gone: float) -> dict[str, Any]:
    rows = list(world.user.client.results(bag))
    assert sorted(row["task"] for row in rows) == list(range(tasks)), "one result each"
    assert all(row["state"] == "succeeded" for row in rows)
    sites = Counter(row["site"] for row in rows)
    assert set(sites) == {place.name for place in world.places}, sites
    assert all(most <= MOST for most in world.most.values()), world.most
    looked = {name: [each["says"] for each in world.user.client.site(name)["history"] if each["kind"] == "salvage"]
              for name in KILLED}
    assert all(looked.values()), looked
    world.user.stop()
    held = _most_held(world.user.home)
    assert all(held[place.name] <= MOST for place in world.places), held
    submitted = [nonce for name in ("alpha", "beta") for nonce in _nonces(world.place(name))]
    assert len(submitted) == len(set(submitted)), "nothing is submitted twice"
    return {"tasks": tasks, "seconds": round(ended, 1), "all gone after": round(gone, 1), "results": dict(sites),
            "most jobs": dict(world.most), "most held": dict(held), "looked for": looked,
            "requeued": len(world.requeued), "looks in vain": dict(world.troubles)}


def _most_held(home: Path) -> Counter[str]:
    """How many intents each site had at once, at worst: every one from before its submission until its end."""
    held: dict[str, dict[int, None]] = {}
    most: Counter[str] = Counter()
    for fact in _facts(home):
        if isinstance(fact, facts.IntentsMade):
            held.setdefault(fact.site, {}).update(dict.fromkeys(intent.number for intent in fact.intents))
            most[fact.site] = max(most[fact.site], len(held[fact.site]))
        elif isinstance(fact, facts.IntentsEnded):
            for number in fact.intents:
                held[fact.site].pop(number, None)
    return most


def _facts(home: Path) -> Iterator[facts.Fact]:
    journal = Journal.open(home / "journal.db")
    try:
        for _, _, blob in journal.read(0):
            yield from codec.decode(blob)
    finally:
        journal.close()


def _nonces(place: Place) -> list[str]:
    assert place.login is not None
    return rig.nonces(place.login.commands("sbatch"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
