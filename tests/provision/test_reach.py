"""Pilots reach a server that nobody can reach, through the relay; and from nodes without any network, by the spool.

Real: a Slurm cluster whose controller and nodes are in network namespaces of their own, sshd on its head node, a server
on loopback of this machine.  From the nodes no packet gets here.  What breaks on the way is broken on purpose.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import free_port, serving, until
from tests.provision import rig
from tests.provision.world import Cluster
from tests.testbed.base import USER, end, require
from tests.testbed.network import Network, inside
from tests.testbed.slurm import Slurm
from tests.testbed.sshd import Sshd
from windfall import Client
from windfall.model.bagfile.reader import parse
from windfall.sites.dialects import slurm as dialect
from windfall.sites.dialects.job import ENDED, Job, Shape

pytestmark = [pytest.mark.slow, pytest.mark.testbed, pytest.mark.root]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[ExitStack, Any, Client, Network]]:
    require()
    with ExitStack() as stack:
        network = Network(2)
        stack.callback(network.stop)
        listen = ("--listen", f"127.0.0.1:{free_port()}")
        server = stack.enter_context(serving(tmp_path / "home", *listen, "--lease", "10"))
        client = stack.enter_context(Client(server.profile))
        yield stack, server, client, network


def submit(client: Client, folder: Path, name: str, command: str, tasks: int) -> int:
    """Each task reads a file that is sent there, and writes one that comes back."""
    (folder / "input.bin").write_bytes(os.urandom(2_000_000))
    made = parse(f'[bag]\nname = "{name}"\ncommand = "{command}"\n[sweep]\nn = "1..{tasks}"\n[task]\nretries = 0\n'
                f'inputs = ["{folder}/input.bin -> input.bin"]\noutputs = ["out-{{n}}"]\n')
    return client.submit(made.bag, made.uploads)


def check(client: Client, bag: int, tasks: int) -> None:
    counts = client.wait(bag)["counts"]
    assert counts["succeeded"] == tasks, counts
    rows = list(client.results(bag))
    assert len(rows) == tasks and {row["site"] for row in rows} == {"far"}


def test_a_server_without_inbound_route_serves_a_slurm_cluster(
        parts: tuple[ExitStack, Any, Client, Network], tmp_path: Path) -> None:
    stack, server, client, network = parts
    batch = Slurm(f"r{os.getpid():x}", network=network)
    stack.callback(batch.stop)
    cluster = Cluster(server, client, network, tmp_path, extra=f"SetEnv SLURM_CONF={batch.conf}")
    stack.callback(cluster.close)
    cluster.write_ticket(cluster.direct, *cluster.relay_routes())
    for node in network.node_names:
        found = cluster.reach(node)
        assert not found[0]["ok"], "nothing gets there directly"
        works = [each["address"].split(":")[1][2:] for each in found if each["ok"]]
        assert network.inner in works, "\n".join(map(str, found))

    command = (*cluster.command, "--cores", "2", "--walltime", "900", "--quiet")
    job = Job("reach-1", Shape(900), command, 2, cluster.place)
    dialect.submitted(cluster.loop.do(cluster.channel.say(dialect.submit(job))))
    until(lambda: len([each for each in client.pilots() if each["site"] == "far"]) == 2)
    bag = submit(client, tmp_path, "relayed", "cksum input.bin >out-{n}; sleep 0.4", 120)

    until(lambda: client.bag(bag)["counts"]["succeeded"] > 10)
    for pid in cluster.relays():
        os.kill(pid, signal.SIGKILL)
    until(lambda: cluster.relay.lives == 2 and cluster.relay.offer)
    seen = client.bag(bag)["counts"]["succeeded"]
    until(lambda: client.bag(bag)["counts"]["succeeded"] > min(seen + 10, 119))

    cluster.loop.loop.call_soon_threadsafe(lambda: cluster.channel._connection.abort())  # type: ignore[union-attr]
    until(lambda: cluster.relay.lives == 3 and cluster.relay.offer)
    check(client, bag, 120)
    assert cluster.channel.logins == 2, "one connection for all commands and the relay, and one after it was cut"
    assert {each["why"] for each in client.pilots()} <= {"", None}, "no pilot was given up"

    jobs = dialect.listed(cluster.loop.do(cluster.channel.say(dialect.listing(USER))))
    for command in dialect.cancel(each.id for each in jobs if each.state != ENDED):
        cluster.loop.do(cluster.channel.say(command))


@pytest.mark.parametrize("reach", ["relay", "spool", "auto"])
def test_a_server_that_listens_nowhere_is_reached(tmp_path: Path, reach: str) -> None:
    """`windfall serve` with nothing but its Unix socket, and a line in the site's file; killed on the way."""
    require()
    with ExitStack() as stack:
        network = Network(2)
        stack.callback(network.stop)
        batch = Slurm(f"l{os.getpid():x}", network=network)
        stack.callback(batch.stop)
        door = Sshd(f"SetEnv SLURM_CONF={batch.conf}", address=network.head, prefix=inside(network.head_name))
        stack.callback(door.stop)
        folder = f"windfall-reach-{os.getpid()}-{reach}"
        stack.callback(shutil.rmtree, Path(pwd.getpwnam(USER).pw_dir) / folder, ignore_errors=True)
        person = stack.enter_context(rig.user(tmp_path))
        person.options = ("--lease", "5", "--idle", "3")
        (person.person / ".ssh" / "config").write_text(
            f"Host frontend\n  HostName {network.head}\n  Port {door.port}\n  User {USER}\n"
            f"  IdentityFile {door.bed.root}/key\n  UserKnownHostsFile {door.known}\n")
        person.site("cluster", "slurm", f'host = "frontend"\nmax-pilots = 4\nfolder = "{folder}"\nreach = "{reach}"')
        person.serve()
        bag = person.bag("sleep 0.5; echo {n}", 60)
        until(lambda: person.client.bag(bag)["counts"]["succeeded"] > 5)
        person.kill()
        person.serve()
        assert person.client.wait(bag)["counts"]["succeeded"] == 60
        assert {row["site"] for row in person.client.results(bag)} == {"cluster"}
        until(lambda: not batch.ask("squeue", "-h", "-t", "PD,R,CG").stdout.strip())


def test_a_new_address_is_found_in_the_ticket(
        parts: tuple[ExitStack, Any, Client, Network], tmp_path: Path) -> None:
    """The relay cannot have its old port back; the pilot reads its ticket again."""
    stack, server, client, network = parts
    cluster = Cluster(server, client, network, tmp_path)
    stack.callback(cluster.close)
    cluster.write_ticket(*cluster.relay_routes())
    pilot = start(cluster, network.node_names[0])
    stack.callback(end, pilot)
    check(client, submit(client, tmp_path, "before", "cp input.bin out-{n}", 4), 4)
    before = cluster.offer().port
    cluster.relay._port = 0
    for pid in cluster.relays():
        os.kill(pid, signal.SIGKILL)
    until(lambda: cluster.relay.lives == 2 and cluster.relay.offer)
    assert cluster.offer().port != before
    cluster.write_ticket(*cluster.relay_routes())
    check(client, submit(client, tmp_path, "after", "cp input.bin out-{n}", 4), 4)
    assert pilot.poll() is None and len(client.pilots()) == 1


def test_a_node_without_any_network_works_by_the_spool(
        parts: tuple[ExitStack, Any, Client, Network], tmp_path: Path) -> None:
    stack, server, client, network = parts
    cluster = Cluster(server, client, network, tmp_path, relay=("--spool", "--no-network"))
    stack.callback(cluster.close)
    spool = cluster.offer().spool
    cluster.write_ticket(cluster.direct, {"kind": "spool", "address": spool})
    found = cluster.reach(network.alone_name)
    assert [each["ok"] for each in found] == [False, True], found

    pilot = start(cluster, network.alone_name)
    stack.callback(end, pilot)
    bag = submit(client, tmp_path, "spooled", "cksum input.bin >out-{n}; sleep 0.2", 60)
    until(lambda: client.bag(bag)["counts"]["succeeded"] > 10)
    for pid in cluster.relays():
        os.kill(pid, signal.SIGKILL)
    until(lambda: cluster.relay.lives == 2 and cluster.relay.offer)
    check(client, bag, 60)
    assert pilot.poll() is None and len(client.pilots()) == 1
    pilot.terminate()
    pilot.wait(30)
    until(lambda: not [path for name in ("up", "down") for path in Path(spool, name).iterdir()])


def start(cluster: Cluster, node: str) -> subprocess.Popen[bytes]:
    with (cluster.sshd.bed.root / "pilot.log").open("ab") as log:
        return subprocess.Popen([*cluster.on(node), *cluster.command, "--cores", "2", "--walltime", "900"],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
