"""`windfall site …` while pilots are started for real: drained, used again, removed; trouble beside a good one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import Cluster, User
from tests.testbed.base import require

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require()
    with rig.started(lambda: Cluster("c")) as made:
        yield made


@pytest.fixture
def person(tmp_path: Path, cluster: Cluster) -> Iterator[User]:
    with rig.user(tmp_path) as made:
        made.knows(cluster.login, "frontend")
        yield made
    cluster.clear()


def windfall(person: User, *words: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "windfall", *words, "--json"], env=person.env, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sites(person: User) -> dict[str, dict[str, Any]]:
    return {row["site"]: row for row in windfall(person, "site", "ls")}


def succeeded(person: User, bag: int) -> int:
    return int(person.client.bag(bag)["counts"]["succeeded"])


def test_drained_used_again_and_removed(person: User, cluster: Cluster) -> None:
    person.site("cluster", "slurm", 'host = "frontend"\nmax-pilots = 4\n')
    person.serve()
    bag = person.bag("sleep 1; echo {n}", 40)
    until(lambda: succeeded(person, bag) >= 4, 60)
    assert windfall(person, "site", "drain", "cluster")["drained"]
    until(lambda: not cluster.jobs(), 60)
    counts = person.client.bag(bag)["counts"]
    assert counts["succeeded"] < 40 and counts["failed"] == 0, "those there finished what they had"

    person.stop()
    person.serve()
    before = len(cluster.submitted())
    assert sites(person)["cluster"]["state"] == "drained"
    until(lambda: sites(person)["cluster"]["limits"]["pilots"] == 4)  # its file was read again
    assert len(cluster.submitted()) == before and not cluster.jobs()

    windfall(person, "site", "undrain", "cluster")
    assert person.client.wait(bag)["counts"]["succeeded"] == 40
    _removed(person, cluster)


def _removed(person: User, cluster: Cluster) -> None:
    bag = person.bag("sleep 600", 6)
    until(lambda: len(person.client.running(bag)) == 4, 60)
    refused = subprocess.run([sys.executable, "-m", "windfall", "site", "rm", "cluster"], env=person.env,
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode == 3 and "--now" in refused.stderr
    windfall(person, "site", "rm", "cluster", "--now")
    assert not cluster.jobs() and not (person.home / "sites" / "cluster.toml").exists()
    assert person.client.bag(bag)["counts"]["failed"] == 0
    until(lambda: "cluster" not in sites(person), 20)
    person.stop()
    person.serve()
    assert "cluster" not in sites(person) and not cluster.jobs()
    person.client.cancel(bag)


def test_a_trial_that_is_interrupted_while_it_submits_leaves_no_job(person: User, cluster: Cluster) -> None:
    person.site("cluster", "slurm", 'host = "frontend"\n')
    person.serve()
    until(lambda: sites(person)["cluster"]["limits"]["pilots"])
    cluster.login.hold("sbatch")
    trial = subprocess.Popen([sys.executable, "-m", "windfall", "site", "test", "cluster"], env=person.env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: cluster.login.held("sbatch"), 90)
    assert cluster.jobs(), "it is there, and nobody was told"
    trial.send_signal(signal.SIGINT)
    assert trial.wait(90) == 130
    until(lambda: not cluster.jobs(), 60)
    cluster.login.release("sbatch")
    until(lambda: not [token for token in person.client.tokens() if "trial" in token["user"]], 60)


def test_files_that_lie_there_have_names(person: User, cluster: Cluster) -> None:
    """Each site's file says where; tasks find them under the name that the bag gives them, and see no more of it."""
    panel = cluster.home / "ref.bin"
    panel.write_text("a panel")
    rig.own(panel)
    person.site("cluster", "slurm", 'host = "frontend"\n', rig.SHAPE + f'[staged]\n"panel.bin" = "{panel}"\n')
    person.serve()
    good = person.bag("cat here.bin; env | grep STAGED; test {n}", 2, 'inputs = ["site:panel.bin -> here.bin"]')
    assert person.client.wait(good)["counts"]["succeeded"] == 2
    assert b"".join(person.client.log(good, 0)) == b"a panel"
    unknown = person.bag("true {n}", 1, 'inputs = ["site:other.bin"]')
    assert person.client.wait(unknown)["counts"]["failed"] == 1
    assert "does not say where other.bin lies" in str(list(person.client.results(unknown)))
    until(lambda: not cluster.jobs(), 60)


def test_sites_in_trouble_keep_nobody_from_working(person: User, cluster: Cluster) -> None:
    person.site("cluster", "slurm", 'host = "frontend"\n')
    person.site("partition", "slurm", 'host = "frontend"\nqueue = "nonsense"\n')
    person.site("python", "slurm", 'host = "frontend"\npython = "/opt/none/python3"\nmax-pilots = 2\n')
    person.site("nowhere", "ssh", 'host = "nobody@127.0.0.1"\nport = 1\n')
    person.site("wrong", "slurm", 'quue = "normal"\n')
    twin = (person.home / "sites" / "cluster.toml").read_text()
    (person.home / "sites" / "twin.toml").write_text(twin.replace("frontend", "other"))
    person.serve()
    bag = person.bag("echo {n}", 60)
    assert person.client.wait(bag)["counts"]["succeeded"] == 60
    assert {row["site"] for row in person.client.results(bag)} == {"cluster"}
    assert sites(person)["wrong"]["state"] == "wrong file"
    assert "is called twin.toml" in person.said(), "else two would start pilots for one site"
    until(lambda: not cluster.jobs(), 60)
