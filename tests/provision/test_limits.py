"""Limits on real Slurm clusters: tasks of several nodes, checkpoints, core-hours, disk, an allowance."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import Cluster, User
from tests.testbed.base import USER, require
from windfall.provision import control

pytestmark = [pytest.mark.slow, pytest.mark.testbed]

RING = """\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s, sum %d\\n", rank, size, getenv("SLURMD_NODENAME"), sum);
    return MPI_Finalize();
}
"""

COUNTING = """\
trap "exit 3" TERM
n=$(cat state 2>/dev/null || echo 0)
echo "from $n" >>trace
while [ $n -lt {steps} ]; do n=$((n + 1)); echo $n >state.new; mv state.new state; sleep 1 & wait $!; done
echo "counted to $n"; cat trace
"""


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[Cluster]]:
    require()
    with ExitStack() as stack:
        yield [stack.enter_context(rig.started(lambda name=name: Cluster(name))) for name in ("l", "m")]


@pytest.fixture
def person(tmp_path: Path, clusters: list[Cluster]) -> Iterator[User]:
    with rig.user(tmp_path) as made:
        for cluster in clusters:
            (cluster.home / "commands").unlink(missing_ok=True)
            made.knows(cluster.login, cluster.slurm.name)
        yield made
    for cluster in clusters:
        cluster.clear()


def _site(person: User, cluster: Cluster, shapes: str, **more: Any) -> str:
    name = cluster.slurm.name
    lines = "".join(f"{key} = {value}\n" for key, value in {"max-pilots": 4, **more}.items())
    person.site(name, "slurm", f'host = "{name}"\nfolder = "windfall"\n{lines}', shapes)
    return name


def _end(person: User, bag: int, clusters: list[Cluster]) -> None:
    """Queued pilots go with the bag (P7)."""
    person.client.cancel(bag)
    until(lambda: not any(job.startswith("wf") for cluster in clusters for job in cluster.jobs()), 90)


def _fill(cluster: Cluster) -> str:
    """Submit a job that takes both nodes; return its id."""
    script = "#!/bin/sh\nsleep 600\n"
    words = ["sbatch", "--parsable", "--nodes=2", "--exclusive", "--job-name=other", "--output=/dev/null"]
    env = [f"{name}={value}" for name, value in cluster.slurm.env.items()]
    done = subprocess.run(["/usr/sbin/runuser", "-u", USER, "--", "env", *env, *words], input=script,
                          capture_output=True, text=True, cwd=cluster.home)
    assert done.returncode == 0, done.stderr
    until(lambda: any(job.startswith("other|") and job.endswith("|R") for job in cluster.jobs()), 30)
    return done.stdout.strip()


def test_an_mpi_program_queued_on_both_clusters_runs_once_where_it_can(person: User, clusters: list[Cluster]) -> None:
    free, full = clusters
    source = free.slurm.bed.write("ring.c", RING)
    program = source.with_suffix("")
    subprocess.run(["mpicc", str(source), "-o", str(program)], check=True)
    program.chmod(0o755)
    other = _fill(full)
    try:
        shapes = '[[shapes]]\nwalltime = "10min"\nnodes = 2\n[[shapes]]\nwalltime = "10min"\n'
        names = [_site(person, cluster, shapes) for cluster in clusters]
        cluster_of = dict(zip(names, clusters, strict=True))
        person.serve()
        hold = free.slurm.bed.root / "go"
        bag = person.bag(f"while [ ! -e {hold} ]; do sleep 0.2; done; cat $WINDFALL_NODEFILE; mpirun {program}", 1,
                         "nodes = 2\ntime = '5min'\n")
        until(lambda: len(cluster_of[names[1]].submitted()) == 1, 60)  # it waits there, too
        until(lambda: person.client.running(bag), 60)
        until(lambda: not [job for job in full.jobs() if job.startswith("wf")], 90)  # stopped: it runs elsewhere
        hold.touch()
        assert person.client.wait(bag)["counts"]["succeeded"] == 1
    finally:
        subprocess.run(["scancel", other], env={**dict(full.slurm.env), "PATH": "/usr/bin:/bin"}, check=True)
    (row,) = person.client.results(bag)
    assert row["site"] == names[0]
    said = b"".join(person.client.log(bag, 0)).decode().split("\n")
    assert said[:2] == free.slurm.nodes
    assert sorted(said[2:4]) == [f"rank {n} of 2 on {free.slurm.nodes[n]}, sum 1" for n in (0, 1)]
    assert len(free.submitted()) == 1 and len(full.submitted()) == 1


def test_a_task_longer_than_any_wall_time_ends_by_way_of_its_checkpoint(tmp_path: Path) -> None:
    """On this machine: batch systems count wall times in minutes."""
    with rig.user(tmp_path) as person:
        person.site("here", "local", 'grace = "3s"\n', '[[shapes]]\nwalltime = "10s"\n')
        person.serve()
        _counted(person, tmp_path, 9, "1s")


@pytest.mark.lengthy
def test_core_hours_bound_the_use_of_a_cluster(person: User, clusters: list[Cluster]) -> None:
    _site(person, clusters[0], '[[shapes]]\nwalltime = "1min"\n', grace='"25s"')
    person.serve()
    _counted(person, clusters[0].slurm.bed.root, 55, "5s")
    assert len(clusters[0].submitted()) >= 2


def _counted(person: User, folder: Path, steps: int, grace: str) -> None:
    script = folder / "count.sh"
    script.write_text(COUNTING.format(steps=steps))
    bag = person.bag(f"sh {script}", 1, f"checkpoint = ['state', 'trace']\ntime = '10min'\ngrace = '{grace}'\n")
    assert person.client.wait(bag)["counts"]["succeeded"] == 1
    said = b"".join(person.client.log(bag, 0)).decode().split("\n")
    assert said[0] == f"counted to {steps}"
    begun = [int(line.split()[1]) for line in said[1:] if line.startswith("from ")]
    assert len(begun) >= 2 and begun == sorted(begun) and begun[1] > 0, "it went on where it had been"


def test_each_limit_stops_what_would_go_beyond_it_and_says_so(person: User, clusters: list[Cluster]) -> None:
    """An hour of cores pays for three pilots of twenty minutes; two disks' worth of tasks run at a time."""
    dear, small = clusters
    shape = '[[shapes]]\nwalltime = "20min"\n'
    names = [_site(person, dear, shape, **{"core-hours": 1}), _site(person, small, shape, disk='"2GB"')]
    person.serve()
    bag = person.bag("sleep 600; echo {n}", 8, "disk = '1GB'\ntime = '15min'\n")
    until(lambda: len(dear.jobs()) == 3 and len(person.client.running(bag)) == 5, 90)
    said = {line["site"]: line["clauses"] for line in person.client.explain(bag, 7)["sites"]}
    texts = {name: " ".join(c["says"] for c in clauses if not c["holds"]) for name, clauses in said.items()}
    assert "its disk is taken: tasks there may use 2 GB of 2 GB" in texts[names[1]], texts
    view = {site["site"]: site for site in person.client.sites()}[names[0]]
    assert view["used"] + view["reserved"] <= view["limits"]["budget"] == 3_600_000
    assert len(dear.submitted()) == 3
    _end(person, bag, clusters)


def test_a_bag_stops_at_its_budget(person: User, clusters: list[Cluster]) -> None:
    _site(person, clusters[0], '[[shapes]]\nwalltime = "20min"\n')
    person.serve()
    bag = person.bag("sleep 600; echo {n}", 8, "time = '10min'\n[policy]\nbudget = '0.4 core-hours'\n")
    until(lambda: len(person.client.running(bag)) == 2, 60)
    says = person.client.explain(bag, 7)["summary"]
    assert says.startswith(f"the budget of bag {bag} is used up: 0 of 0.4 core-hours used")
    until(lambda: len(clusters[0].jobs()) == 2, 60)
    _end(person, bag, clusters)


def test_past_the_allowance_only_what_does_not_count_is_used(person: User, clusters: list[Cluster]) -> None:
    counted, free = clusters
    shape = '[[shapes]]\nwalltime = "20min"\n'
    names = [_site(person, counted, shape, counts="true"), _site(person, free, shape, counts="false")]
    person.serve()
    said = subprocess.run([sys.executable, "-m", "windfall", "user", "set", "*", "--allowance", "0.4 core-hours"],
                          env=person.env, capture_output=True, text=True, timeout=60)
    assert said.stdout == "*: 0.4 core-hours a month\n", said.stderr
    bag = person.bag("sleep 600; echo {n}", 30, "time = '10min'\n")
    until(lambda: len(person.client.running(bag)) == 6, 90)
    until(lambda: len(counted.jobs()) == 2, 60)  # no more than could be paid; four at the other one
    held = {site["site"]: site["held"] for site in person.client.sites()}
    assert held[names[0]] == 2
    clauses = {line["site"]: line["clauses"] for line in person.client.explain(bag, 29)["sites"]}[names[0]]
    says = [c["says"] for c in clauses if c["clause"] == "allowance"]
    assert says and says[0].startswith("this month's allowance is used up: 0 of 0.4 core-hours used"), clauses
    assert all(row["used"] + row["reserved"] <= 1_440_000 for row in person.client.allowances())
    _end(person, bag, clusters)


def test_a_site_is_given_a_share_of_a_bag_after_a_while(person: User, clusters: list[Cluster]) -> None:
    """Other jobs of the user count against what he may have."""
    first, later = clusters
    shape = '[[shapes]]\nwalltime = "20min"\n'
    _site(person, first, shape, share="0.25", **{"start-delay": '"5s"'})
    _site(person, later, shape, **{"max-jobs": 3})
    other = _fill(later)
    person.serve()
    bag = person.bag("sleep 600; echo {n}", 8, "time = '10min'\n")
    try:
        until(lambda: len(person.client.running(bag)) == 2, 90)
        until(lambda: len(later.jobs()) == 3, 90)  # two pilots beside the other job
        assert len(first.jobs()) == 2, "a quarter of eight"
        submitted = float(person.client.bag(bag)["submitted"]) / 1000
        assert min(first.login.times("sbatch")) >= submitted + 4
    finally:
        subprocess.run(["scancel", other], env={**dict(later.slurm.env), "PATH": "/usr/bin:/bin"}, check=True)
    _end(person, bag, clusters)


def test_a_limit_that_was_lowered_a_moment_ago_holds(person: User, clusters: list[Cluster]) -> None:
    """A user may edit a site's file and submit before the provisioner has checked the file."""
    cluster, shapes = clusters[0], '[[shapes]]\nwalltime = "25min"\n'
    _site(person, cluster, shapes, **{"max-pilots": 40, "core-hours": 100})
    person.serve()
    person.client.wait(person.bag("true", 1))  # all is in place there
    until(lambda: not cluster.jobs(), 60)
    before = len(cluster.submitted())
    _site(person, cluster, shapes, **{"max-pilots": 40, "core-hours": 1})
    bag = person.bag("sleep 600", 40)
    until(lambda: len(person.client.running(bag)) == 2, 60)
    assert len(cluster.submitted()) == before + 2, "25 minutes each, of one core"
    _end(person, bag, clusters[:1])


def test_a_balance_that_nobody_keeps_is_not_endless(person: User, clusters: list[Cluster]) -> None:
    """These clusters keep no accounts: a site with `balance = true` reports that, and gets no pilots."""
    site = _site(person, clusters[0], '[[shapes]]\nwalltime = "10min"\n', balance="true")
    person.serve()
    bag = person.bag("echo {n}", 2)
    until(lambda: control.path(person.home).exists(), 60)
    until(lambda: "gives no balance for any account" in person.tended().get(site, {}).get("trouble", ""), 60)
    assert "core-hours" in person.trouble(site) and not clusters[0].submitted()
    _site(person, clusters[0], '[[shapes]]\nwalltime = "10min"\n', balance="false")
    assert person.client.wait(bag)["counts"]["succeeded"] == 2
