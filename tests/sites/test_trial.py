"""`windfall site test` against real systems: what works is said to work, what does not is named, with its cure.

Commands, server and site are processes of their own.  Afterwards nothing of a trial is left, whatever became of it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import CommandLine, free_port, serving
from tests.sites.systems import SYSTEMS
from tests.testbed.base import USER, Bed, require
from tests.testbed.gridengine import GridEngine
from tests.testbed.network import Network, inside
from tests.testbed.slurm import Slurm
from tests.testbed.sshd import Sshd
from windfall import Client
from windfall.provision.trial import Trial
from windfall.provision.trial_pilot import Step
from windfall.sites import site_file
from windfall.sites.dialects.job import ENDED, Shape
from windfall.sites.site_file import Site

pytestmark = [pytest.mark.slow, pytest.mark.testbed, pytest.mark.root]
PASSED = ["file", "reach", "commands", "server", "folder", "submit", "start", "pilot", "task", "clean"]


class Place:
    """A user's machine: a home with a server, SSH keys of its own, and the site's user on this very machine."""

    def __init__(self, folder: Path, stack: ExitStack, serve: bool = True) -> None:
        self.stack, self.folder = stack, folder
        self.home = folder / "home"
        if serve:
            self.server = stack.enter_context(serving(self.home, "--listen", f"127.0.0.1:{free_port()}"))
        self.windfall = CommandLine(self.home, folder)
        self.env = {"HOME": str(folder / "me")}
        self.ssh = folder / "me" / ".ssh"
        self.ssh.mkdir(parents=True, mode=0o700)
        self.sshd: Sshd | None = None

    def door(self, extra: str = "") -> Sshd:
        """An sshd for the site's user, known to ours."""
        self.sshd = sshd = Sshd(extra)
        self.stack.callback(sshd.stop)
        self.known(sshd)
        return sshd

    def known(self, sshd: Sshd) -> None:
        shutil.copy(sshd.known, self.ssh / "known_hosts")
        shutil.copy(sshd.bed.root / "key", self.ssh / "id_ed25519")
        (self.ssh / "id_ed25519").chmod(0o600)

    def add(self, name: str, *options: str, host: str = "127.0.0.1") -> None:
        sshd = self.sshd or self.door()
        done = self.windfall("site", "add", name, "--ssh", f"{USER}@{host}", "--port", sshd.port, *options)
        assert done.returncode == 0, done.stderr

    def start(self, name: str, *options: str) -> subprocess.Popen[str]:
        return self.windfall.start("site", "test", name, *options, **self.env)

    def test(self, name: str, *options: str) -> dict[str, Any]:
        done = self.windfall("site", "test", name, "--json", *options, **self.env)
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if answer["ok"] else 1)
        self.nothing_left(name, done.stdout)
        return answer

    def fails(self, name: str, step: str, *options: str) -> tuple[str, str]:
        """Cause and cure; all steps before it were passed, and what was begun was cleaned up."""
        steps = self.test(name, *options)["steps"]
        failed = [each for each in steps if not each["ok"]]
        assert [each["name"] for each in failed] == [step], steps
        return failed[0]["says"], failed[0]["hint"]

    def nothing_left(self, name: str, said: str = "") -> None:
        """`said`: by the trial; others may be at home there, too."""
        with Client(self.server.profile) as client:
            assert [token for token in client.tokens() if "trial" in token["user"]] == []
            assert client.bags() == []
        there = Path(pwd.getpwnam(USER).pw_dir)
        nonces = re.findall(r"job (t[0-9a-f]{8}-1)", said)
        jobs = [path for nonce in nonces for path in there.glob(f".windfall/jobs/*/{nonce}")]
        assert list(there.glob(f"windfall/{name}/*")) == [] == jobs


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    require()
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    require()
    paid = "PartitionName=paid Nodes=ALL AllowAccounts=proj-7 State=UP"
    cluster = Slurm(f"w{os.getpid():x}", extra=f"EnforcePartLimits=ALL\n{paid}")
    yield cluster
    cluster.stop()


def passed(answer: dict[str, Any]) -> bool:
    print(json.dumps(answer["steps"], indent=1))  # for the message of a test that fails
    return bool(answer["ok"]) and [step["name"] for step in answer["steps"]] == PASSED


# --- what works ----------------------------------------------------------------------------------------------------


def test_a_workstation_by_ssh(place: Place) -> None:
    place.add("desk")
    answer = place.test("desk")
    assert passed(answer), answer
    assert f"as {USER}" in answer["steps"][1]["says"]
    place.add("lsf", "--lsf")
    says, cure = place.fails("lsf", "commands")
    assert "bjobs" in says and "login node" in cure
    place.add("slurm", "--slurm")
    says, cure = place.fails("slurm", "commands")
    assert "Slurm" in says and cure, says


def test_trial_works_on_slurm_and_names_what_is_wrong(place: Place, slurm: Slurm) -> None:
    place.door(f"SetEnv SLURM_CONF={slurm.conf}")
    place.add("big", "--slurm", "--partition", "normal", "--cores", "2")
    answer = place.test("big")
    assert passed(answer), answer
    assert "2 cores" in answer["steps"][5]["says"]
    _wrong_names(place)
    _never(place)
    _no_python(place)
    _interrupted(place, slurm)


def _wrong_names(place: Place) -> None:
    place.add("part", "--slurm", "--partition", "nonsense")
    says, cure = place.fails("part", "submit")
    assert "invalid partition" in says and "partition or queue" in cure
    place.add("paid", "--slurm", "--partition", "paid", "--account", "nonsense")
    says, cure = place.fails("paid", "submit")
    assert "Invalid account" in says and "account" in cure
    place.add("huge", "--slurm", "--cores", "4000")
    says, cure = place.fails("huge", "submit")
    assert "fewer cores" in cure, says


def _never(place: Place) -> None:
    """Check that the trial reports why a queued job waits."""
    place.add("full", "--slurm", "--directives", "#SBATCH --begin=now+1hour")
    says, cure = place.fails("full", "start", "--timeout", "3s")
    assert "BeginTime" in says and "--timeout" in cure


def _no_python(place: Place) -> None:
    place.add("bare", "--slurm", "--python", "/opt/none/bin/python3")
    says, cure = place.fails("bare", "pilot")
    assert says == "there is no /opt/none/bin/python3 on the node" and "module load python" in cure
    place.add("lost", "--slurm", "--setup", 'cd /; rm "$HOME"/windfall/lost/*/pilot.pyz')
    says, cure = place.fails("lost", "pilot")
    assert "does not see" in says and "all nodes see" in cure


def _interrupted(place: Place, slurm: Slurm) -> None:
    """Ctrl-C while it waits: the job is cancelled, all else removed."""
    place.add("slow", "--slurm", "--directives", "#SBATCH --begin=now+1hour")
    process = place.start("slow")
    assert process.stdout
    for line in process.stdout:
        if "BeginTime" in line:
            break
    env = {**os.environ, **slurm.env}
    queued = ["squeue", "-h", "-u", USER, "-t", "PD"]
    assert subprocess.run(queued, capture_output=True, text=True, env=env).stdout.strip()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)
    assert process.returncode == 130 and "no job, file or token of the trial is left" in rest[0], rest
    assert not subprocess.run(queued, capture_output=True, text=True, env=env).stdout.strip()
    place.nothing_left("slow")


def test_trial_works_on_grid_engine_and_names_what_is_wrong(place: Place) -> None:
    cell = GridEngine(f"w{os.getpid():x}")
    place.stack.callback(cell.stop)
    env = " ".join(f"{key}={value}" for key, value in cell.env.items() if key != "SGE_ND")
    place.door(f"SetEnv {env}")
    place.add("cell", "--gridengine")
    answer = place.test("cell")
    assert passed(answer), answer
    place.add("project", "--gridengine", "--account", "nonsense")
    says, cure = place.fails("project", "submit")
    assert "nonsense" in says and "account" in cure
    place.add("queue", "--gridengine", "--queue", "nonsense.q")
    says, cure = place.fails("queue", "submit")
    assert "nonsense.q" in says and "queue" in cure


@pytest.mark.parametrize("named", ["htcondor", "torque"])
def test_trial_works_on_htcondor_and_torque(place: Place, named: str) -> None:
    """The commands are in a Debian, or a folder, of their own."""
    system = SYSTEMS[named]()
    place.stack.callback(system.close)
    steps: list[Step] = []
    with Client(place.server.profile) as client:
        for python, ok in (("python3", True), ("python3.99", False)):
            options = {"output": "%x-%j.log"} if named == "torque" else {}
            site = Site("pool", named, (Shape(3600),), python=python, options=options)
            assert system.do(Trial(site, system.channel, client, steps.append).run()) is ok, steps
    failed = [step for step in steps if step.ok is False]
    assert [(step.name, step.says) for step in failed] == [("pilot", "there is no python3.99 on the node")]
    assert [step.ok for step in steps if step.name == "clean"] == [True, True]
    assert [job for job in system.listed() if job.state != ENDED] == []
    assert not (system.place / "windfall").exists() and not list(system.place.glob("wf*"))


# --- doors that stay closed -------------------------------------------------------------------------------------------


def test_an_expired_certificate_and_a_key_that_is_not_wanted(place: Place) -> None:
    bed = Bed("authority")
    place.stack.callback(bed.stop)
    authority = bed.root / "authority"
    bed.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(authority)])
    sshd = place.door(f"TrustedUserCAKeys {authority}.pub")
    sshd.bed.write("authorized", "")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", USER, "-V"]
    shutil.copy(sshd.bed.root / "key.pub", place.ssh / "id_ed25519.pub")

    bed.run([*sign, "-1d:+1d", str(place.ssh / "id_ed25519.pub")])
    place.add("door")
    assert passed(place.test("door")), "a valid certificate opens it"

    bed.run([*sign, "-2d:-1d", str(place.ssh / "id_ed25519.pub")])
    says, cure = place.fails("door", "reach")
    assert "id_ed25519" in says and "expired" in says and "new one" in cure

    (place.ssh / "id_ed25519-cert.pub").unlink()
    says, cure = place.fails("door", "reach")
    assert "accepts none of your keys (id_ed25519)" in says and "ssh-copy-id" in cure

    (place.ssh / "id_ed25519").unlink()
    says, cure = place.fails("door", "reach")
    assert "no SSH key" in says and "ssh-keygen" in cure

    (place.ssh / "known_hosts").unlink()
    says, cure = place.fails("door", "reach")
    assert "host key" in says and "not known" in says and "ssh" in cure

    sshd.stop()
    says, cure = place.fails("door", "reach")
    assert "cannot be reached: nothing listens there" in says and "port" in cure


# --- full, and cut off ---------------------------------------------------------------------------------------------


def test_a_full_disk(place: Place) -> None:
    bed = Bed("full")
    place.stack.callback(bed.stop)
    small = bed.folder("small", owner=USER)
    bed.run(["mount", "-t", "tmpfs", "-o", f"size=64k,uid={pwd.getpwnam(USER).pw_uid},mode=755", "none", str(small)])
    place.stack.callback(bed.run, ["umount", str(small)])
    place.add("small", "--folder", str(small))
    says, cure = place.fails("small", "folder")
    assert "no room" in says and "No space left" in says and "make room" in cure
    assert list(small.iterdir()) == []
    (small / "full").write_bytes(bytes(60_000))
    place.add("node", "--setup", f"export TMPDIR={small}")
    says, cure = place.fails("node", "pilot")
    assert "No space left" in says and "TMPDIR" in cure


@pytest.fixture
def island(place: Place) -> Iterator[Network]:
    """A machine in a network of its own: we reach it, it does not reach the server."""
    network = Network(1)
    place.stack.callback(network.stop)
    place.sshd = sshd = Sshd(address=network.head, prefix=inside(network.head_name))
    place.stack.callback(sshd.stop)
    place.known(sshd)
    yield network


def isolated(place: Place, first: str = "") -> str:
    """A Python whose programs have no network at all."""
    assert place.sshd is not None
    return str(place.sshd.bed.write(
        "python3", f'#!/bin/sh\n{first}\nexec unshare --map-current-user --net python3 "$@"\n', 0o755))


def test_a_node_without_a_route_is_reached_otherwise(place: Place, island: Network) -> None:
    place.add("island", host=island.head)
    answer = place.test("island")
    assert answer["ok"] and "by relay" in answer["steps"][-3]["says"], answer["steps"]
    assert site_file.named(place.home / "sites" / "island.toml").reach == "relay"
    assert passed(place.test("island")), "and so it stays"


def test_a_node_without_any_network_is_reached_by_files(place: Place, island: Network) -> None:
    place.add("cave", "--python", isolated(place), host=island.head)
    answer = place.test("cave")
    print(json.dumps(answer["steps"], indent=1))
    assert answer["ok"] and site_file.named(place.home / "sites" / "cave.toml").reach == "spool"


def test_a_node_without_any_way(place: Place, island: Network) -> None:
    """The relay cannot run on this site's head node either."""
    place.add("cut", "--python", isolated(place, '[ "$2" != relay ] || exit 1'), host=island.head)
    steps = place.test("cut")["steps"]
    failed = [(step["name"], step["says"], step["hint"]) for step in steps if not step["ok"]]
    assert [name for name, _, _ in failed] == ["folder", "pilot"], failed
    assert "relay has ended" in failed[0][1]
    assert "does not reach the server at 127.0.0.1" in failed[1][1] and "head node" in failed[1][2]
    assert site_file.named(place.home / "sites" / "cut.toml").reach == "direct"


def test_trial_without_a_server_finds_the_relay(tmp_path: Path) -> None:
    """The command brings its own, which listens nowhere: pilots come through the relay."""
    require()
    with ExitStack() as stack:
        place = Place(tmp_path, stack, serve=False)
        place.add("desk")
        answer = place.windfall.json("site", "test", "desk", **place.env)
        print(json.dumps(answer["steps"], indent=1))
        assert answer["ok"] and site_file.named(place.home / "sites" / "desk.toml").reach == "relay"

        place.add("bare", "--python", "python9")
        answer = place.windfall.json("site", "test", "bare", code=1, **place.env)
        [(says, cure)] = [(step["says"], step["hint"]) for step in answer["steps"] if not step["ok"]]
        assert "python9" in says and 'python = "…"' in cure, "what is wrong is said, and nothing else"


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """Return the process's output up to the line that begins with the word."""
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith(word):
            return said
    raise AssertionError(said)


def test_trial_that_hangs_delays_no_other(place: Place) -> None:
    """A site that hangs keeps nobody waiting but who asked for it."""
    place.add("desk")
    place.add("hangs", "--setup", "sleep 600")
    slow = place.start("hangs")
    begun = read_until(slow, "start")
    done = place.windfall("site", "test", "desk", "--json", **place.env)
    assert passed(json.loads(done.stdout)) and slow.poll() is None
    slow.send_signal(signal.SIGTERM)
    said = slow.communicate(timeout=60)
    assert slow.returncode == 130 and "no job, file or token" in said[0], said
    place.nothing_left("hangs", begun + said[0])

