"""Provisioners outside `windfall serve`: `windfall provision` for a remote server, `windfall run` for its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.real import CommandLine, environment, free_port, until
from tests.provision import rig
from tests.provision.rig import Cluster, User
from tests.testbed.base import require

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require()
    with rig.started(lambda: Cluster("o")) as made:
        yield made


class Elsewhere:
    """A provisioner of its own, on the machine of somebody who was let in at the server."""

    def __init__(self, folder: Path, server: User) -> None:
        self.person = User(folder)
        (self.person.home / "login.json").write_bytes((server.home / "server.json").read_bytes())
        (self.person.home / "login.json").chmod(0o600)

    def start(self) -> None:
        with self.person.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "windfall", "provision", "--landing", "5"],
                                            stdout=log, stderr=log, env=self.person.env)
        until(lambda: "starting pilots" in self.person.said())

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(40)


def test_a_provisioner_of_its_own_dies_and_the_next_one_adopts(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with rig.user(tmp_path / "a") as server:
        server.serve()
        other = Elsewhere(tmp_path / "b", server)
        other.person.knows(cluster.login, "frontend")
        other.person.site("cluster", "slurm", 'host = "frontend"\nmax-pilots = 4\n')
        cluster.login.hold("sbatch")
        other.start()
        bag = server.bag("sleep 0.2; echo {n}", 60)
        until(lambda: cluster.login.held("sbatch"), 30)
        first = cluster.submitted()
        other.process.kill()
        other.process.wait()
        cluster.login.release("sbatch")
        other.start()
        assert server.client.wait(bag)["counts"]["succeeded"] == 60, other.person.said()
        assert {each["nonce"] for each in server.client.pilots()} >= set(first), "adopted"
        until(lambda: not cluster.jobs(), 60)
        assert len(cluster.submitted()) == len(set(cluster.submitted()))
        assert other.stop() == 0
        assert not (server.home / "sites").exists() or not list((server.home / "sites").iterdir())


def test_a_provisioner_needs_a_server_elsewhere_and_sites(tmp_path: Path) -> None:
    line = CommandLine(tmp_path / "home", tmp_path)
    said = line("provision")
    assert said.returncode == 2 and "windfall login" in said.stderr


def test_run_uses_sites_without_a_server_and_leaves_nothing(tmp_path: Path) -> None:
    """Twice: what left a moment ago takes nobody's place."""
    person = User(tmp_path)
    person.site("bench", "local", "max-pilots = 2\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "windfall", "run", "sleep 0.5; echo {x}", "--sweep", "x=1..40"], text=True,
            capture_output=True, env=environment(person.home, HOME=str(person.person)), cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stderr
        until(lambda: not _pilots(person), 20)  # they have said goodbye
    line = CommandLine(person.home, tmp_path)
    sites = [[row["site"] for row in line.json("results", bag)] for bag in (1, 2)]
    assert all(set(each) == {"bench", "local"} for each in sites), sites


def _pilots(person: User) -> list[str]:
    """Return the jobs of the workstation that have a process."""
    found = []
    for place in (person.person / ".windfall/jobs").glob("*/*/pid"):
        pid = place.read_text().split()[0]
        if os.path.exists(f"/proc/{pid}"):
            found.append(place.parent.name)
    return found


@pytest.mark.parametrize(("host", "address"), [
    ("127.0.0.1", "0100007F"), ("127.0.0.2", "0200007F"), ("no-such-host.invalid", "00000000"),
])  # fmt: skip
def test_run_listens_where_a_sites_file_says_and_nowhere_else(tmp_path: Path, host: str, address: str) -> None:
    """At one address, if it is this machine's; of a name that is not nobody knows how its connections come in."""
    home, person, port, seen = tmp_path / "home", tmp_path / "person", free_port(), tmp_path / "seen"
    (home / "sites").mkdir(parents=True, mode=0o700)
    person.mkdir()
    (home / "sites" / "desk.toml").write_text(
        f'[site]\nname = "desk"\ndialect = "local"\nserver = "https://{host}:{port}"\n{rig.SHAPE}')
    listens = f"grep -i ': [0-9A-F]*:{port:04X} 00000000:0000 0A' /proc/net/tcp"
    done = subprocess.run(
        [sys.executable, "-m", "windfall", "run", f"until {listens} >{seen}; do sleep 0.1; done"],
        capture_output=True, text=True, env=environment(home, HOME=str(person)), timeout=90)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in seen.read_text().splitlines()] == [f"{address}:{port:04X}"]


def test_two_provisioners_of_one_site_submit_nothing_twice(tmp_path: Path, cluster: Cluster) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    (cluster.home / "commands").unlink(missing_ok=True)
    with rig.user(tmp_path / "a") as server:
        server.serve()
        both = [Elsewhere(tmp_path / name, server) for name in "bc"]
        bag = server.bag("sleep 0.2; echo {n}", 80)
        for each in both:
            each.person.knows(cluster.login, "frontend")
            each.person.site("cluster", "slurm", 'host = "frontend"\nmax-pilots = 4\n')
            each.start()
            until(lambda: cluster.submitted(), 30)
        assert server.client.wait(bag)["counts"]["succeeded"] == 80
        until(lambda: not cluster.jobs(), 60)
        assert len(cluster.submitted()) == len(set(cluster.submitted()))
        assert "another provisioner starts pilots there" in both[0].person.trouble("cluster")
        assert not both[1].person.trouble("cluster")
        assert [each.stop() for each in both] == [0, 0]


def test_provisioner_drops_a_removed_site_whose_relay_never_came_up(tmp_path: Path) -> None:
    """The provisioner must not start the relay of a removed site for ever, even if it never worked."""
    with rig.user(tmp_path) as person:
        person.site("nopy", "local", 'python = "python9"\nreach = "relay"\n')
        person.serve()
        until(lambda: (person.home / "provision.sock").exists() and "nopy" in person.tended())
        until(lambda: "python9" in person.trouble("nopy"), 60)
        (person.home / "sites" / "nopy.toml").unlink()
        until(lambda: not person.site_view("nopy")["limits"]["pilots"], 30)
        person.client.remove_site("nopy")
        until(lambda: "nopy" not in person.tended(), 60)
