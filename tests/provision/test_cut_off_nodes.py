"""Tasks with external effects on nodes that a batch system has lost, while the pilots' processes there run on.

Slurm fails the job of a node that it hears nothing of.  Grid Engine and HTCondor wait for long; their operator removes
the job by force.  The pilot is frozen, as if its node were cut off; its task runs on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.live.real import until
from tests.provision import everywhere, rig
from tests.provision.everywhere import Place
from tests.provision.rig import User
from tests.testbed.base import require
from windfall.model.bagfile.reader import parse

pytestmark = [pytest.mark.slow, pytest.mark.testbed, pytest.mark.lengthy]


class Ground(NamedTuple):
    """A site, a folder there as this process and as the jobs see it, what makes the batch system lose a job, and what
    brings the node back; None: there is another node."""

    place: Place
    here: Path
    there: str
    lose: Callable[[str], None]
    bring_back: Callable[[], None] | None = None


def slurm(stack: ExitStack) -> Ground:
    place = everywhere.slurm(stack, "lost")
    cluster = place.owner

    def lose(job: str) -> None:
        node = cluster.ask("squeue", "-h", "-j", job, "-o", "%N").stdout.strip()
        cluster.workers[node].kill()

    return Ground(place, cluster.bed.home, str(cluster.bed.home), lose)


def gridengine(stack: ExitStack) -> Ground:
    place = everywhere.gridengine(stack, "lost")
    cell = place.owner
    daemon = cell.bed.daemons[-1]

    def lose(job: str) -> None:
        os.kill(daemon.pid, signal.SIGSTOP)  # killed, it would take the master with it, which aborts at the next line
        cell.bed.run(["qdel", "-f", job], cell.env)

    return Ground(place, cell.bed.home, str(cell.bed.home), lose, lambda: os.kill(daemon.pid, signal.SIGCONT))


def htcondor(stack: ExitStack) -> Ground:
    place = everywhere.htcondor(stack, "lost")
    pool = place.owner
    frozen: list[psutil.Process] = []

    def lose(job: str) -> None:
        for daemon in psutil.process_iter(["name", "environ"]):
            if (pool.env["CONDOR_CONFIG"] == (daemon.info["environ"] or {}).get("CONDOR_CONFIG")
                    and daemon.info["name"] in ("condor_starter", "condor_startd")):
                daemon.suspend()
                frozen.append(daemon)
        for force in ((), ("-forcex",)):
            subprocess.run([*pool.chroot(), "condor_rm", *force, job], capture_output=True, timeout=60)

    def bring_back() -> None:
        for daemon in frozen:
            daemon.resume()

    return Ground(place, pool.inside / "home", pool.home, lose, bring_back)


def starts(ground: Ground) -> int:
    path = ground.here / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def processes(ground: Ground) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Return the pilot's own processes, and those of its task."""
    marks = dict[str, list[psutil.Process]]()
    for process in psutil.process_iter():
        try:
            if any(f"{ground.there}/starts" in word for word in process.cmdline()):
                marks.setdefault(process.environ().get("WINDFALL_PILOT", ""), []).append(process)
        except psutil.Error:
            continue
    ((mark, tasks),) = [pair for pair in marks.items() if pair[0]]
    own = [each for each in psutil.process_iter(["name"]) if each.info["name"] == f"wf-{mark[:12]}"]
    assert len(own) >= 3, "guardian, agent, spawner"
    return own, tasks


@pytest.mark.parametrize("make", [slurm, gridengine, htcondor])
def test_external_effects_wait_for_evidence_when_their_node_is_cut_off(
    make: Callable[[ExitStack], Ground], tmp_path: Path
) -> None:
    require()
    with ExitStack() as stack:
        ground = make(stack)
        person = stack.enter_context(rig.user(tmp_path))
        bag = _begin(person, ground)
        own, tasks = processes(ground)
        (job,) = [job.id for job in ground.place.listed()]
        for process in own:
            os.kill(process.pid, signal.SIGSTOP)
        ground.lose(job)
        until(lambda: job not in [each.id for each in ground.place.listed()], 180)
        until(lambda: "does not prove" in _explained(person, bag), 180)
        plain = person.bag("sleep 0.5; echo {n}", 30)
        until(ground.place.listed, 60)  # its slot is free
        if ground.bring_back is None:
            assert person.client.wait(plain)["counts"]["succeeded"] == 30
        assert all(process.is_running() for process in (*own, *tasks)), "the batch system did not reach them"
        assert starts(ground) == 1

        for process in (*own, *tasks):
            os.kill(process.pid, signal.SIGKILL)
        if ground.bring_back is not None:
            ground.bring_back()
        person.bag(f"until [ -e {ground.there}/go ]; do sleep 0.2; done; echo {{n}}", 1)  # brings a pilot to the host
        until(lambda: starts(ground) == 2, 180)
        (ground.here / "go").touch()
        assert person.client.wait(bag)["counts"]["succeeded"] == 1 and starts(ground) == 2


def _begin(person: User, ground: Ground) -> int:
    """Start a task that notes its start and waits."""
    assert ground.place.login is not None
    person.knows(ground.place.login, "frontend")
    person.site("cluster", ground.place.kind, 'host = "frontend"\nmax-pilots = 2\nfolder = "windfall"')
    person.serve()
    command = f"echo started >> {ground.there}/starts; until [ -e {ground.there}/go ]; do sleep 0.2; done"
    made = parse(f"[bag]\nname = 'b'\neffects = 'external'\ncommand = '{command}'\n[task]\nretries = 0\n")
    bag = person.client.submit(made.bag)
    until(lambda: starts(ground) == 1, 120)
    return bag


def _explained(person: User, bag: int) -> str:
    return str(person.client.explain(bag, 0)["summary"])
