"""A user's bag on a real Slurm, through `windfall serve`: intents, arrays, adoption, back-pressure, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import Cluster, User
from tests.testbed.base import require

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require()
    with rig.started(lambda: Cluster("s", extra="MessageTimeout=5")) as made:
        yield made


@pytest.fixture
def person(tmp_path: Path, cluster: Cluster) -> Iterator[User]:
    (cluster.home / "commands").unlink(missing_ok=True)
    with rig.user(tmp_path) as made:
        made.knows(cluster.login, "frontend")
        yield made
    until(lambda: not cluster.jobs(), 60)


def _site(person: User, most: int = 6, **more: str) -> None:
    lines = "".join(f"{key} = {value}\n" for key, value in more.items())
    person.site("cluster", "slurm", f'host = "frontend"\nmax-pilots = {most}\nfolder = "windfall"\n{lines}')


def test_a_bag_runs_and_nothing_is_left(person: User, cluster: Cluster) -> None:
    _site(person)
    person.serve()
    bag = person.bag("sleep 0.2; echo {n}", 60)
    assert person.client.wait(bag)["counts"]["succeeded"] == 60
    assert {row["site"] for row in person.client.results(bag)} == {"cluster"}
    until(lambda: not cluster.jobs(), 60)
    assert len(cluster.submitted()) == len(set(cluster.submitted())) <= 60
    assert len(cluster.login.commands("sbatch")) < 5


def test_a_server_killed_between_sbatch_and_its_answer_submits_nothing_twice(person: User, cluster: Cluster) -> None:
    _site(person)
    person.serve()
    cluster.login.hold("sbatch")
    bag = person.bag("sleep 0.2; echo {n}", 40)
    until(lambda: cluster.login.held("sbatch"), 30)
    first = cluster.submitted()
    person.kill()
    cluster.login.release("sbatch")
    person.serve()
    assert person.client.wait(bag)["counts"]["succeeded"] == 40
    assert {each["nonce"] for each in person.client.pilots()} >= set(first), "adopted"
    until(lambda: not cluster.jobs(), 60)
    assert len(cluster.submitted()) == len(set(cluster.submitted()))
