"""A user's bag on a real Slurm, through `windfall serve`: intents, arrays, adoption, back-pressure, nothing left."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import Cluster, User
from tests.provision.rounds import chance
from tests.testbed.base import require

pytestmark = [pytest.mark.slow, pytest.mark.testbed]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require()
    with rig.started(lambda: Cluster("s", extra="MessageTimeout=5")) as made:
        yield made


@pytest.fixture
def person(tmp_path: Path, cluster: Cluster) -> Iterator[User]:
    for calls in ("commands", "failed"):
        (cluster.home / calls).unlink(missing_ok=True)
    with rig.user(tmp_path) as made:
        made.knows(cluster.login, "frontend")
        yield made
    cluster.clear()


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


def test_a_thousand_pilots_are_a_handful_of_commands(person: User, cluster: Cluster) -> None:
    _site(person, 1000)
    person.serve()
    bag = person.bag("sleep 600; echo {n}", 1000)
    until(lambda: len(cluster.jobs()) == 1000, 60)
    assert len(cluster.login.commands("sbatch")) <= 5
    times = until(lambda: _polls(cluster), 60)
    assert all(later - earlier > 1 for earlier, later in zip(times, times[1:], strict=False)), "one for all of them"

    person.client.cancel(bag)
    until(lambda: not cluster.jobs(), 120)
    assert len(cluster.login.commands("scancel")) <= 5
    assert len(cluster.submitted()) == len(set(cluster.submitted()))


def _polls(cluster: Cluster) -> list[float]:
    """Return the times of listings after the last cancellation; while pilots are being stopped there are more."""
    stopped = max(cluster.login.times("scancel"), default=0.0)
    times = [time for time in cluster.login.times("squeue") if time > stopped + 2]
    return times if len(times) > 3 else []


def test_a_controller_that_is_down_is_back_pressure(person: User, cluster: Cluster) -> None:
    _site(person)
    person.serve()
    first = person.bag("sleep 0.1; echo {n}", 10)
    assert person.client.wait(first)["counts"]["succeeded"] == 10
    cluster.slurm.stop_controller()
    try:
        bag = person.bag("sleep 0.1; echo {n}", 40)
        until(lambda: "unable to contact" in person.trouble("cluster").lower(), 90)
    finally:
        cluster.slurm.start_controller()
    assert person.client.wait(bag)["counts"]["succeeded"] == 40
    assert len(cluster.submitted()) == len(set(cluster.submitted()))
    until(lambda: not person.trouble("cluster"), 60)


def test_a_submission_that_was_killed_after_it_was_taken_counts(person: User, cluster: Cluster) -> None:
    """Only a listing tells whether the job was taken: the tender neither submits it again nor loses it."""
    _site(person, 2)
    person.serve()
    cluster.login.kill("sbatch")
    try:
        bag = person.bag("sleep 600; echo {n}", 4)
        until(lambda: cluster.login.commands("sbatch"), 30)
        until(lambda: "may have been done" in person.said(), 60)
    finally:
        cluster.login.kill("sbatch", kills=False)
    refused = cluster.refused()
    first = [nonce for nonce in cluster.submitted() if nonce not in refused]
    until(lambda: {each["nonce"] for each in person.client.pilots()} >= set(first), 90)  # adopted
    taken = [nonce for nonce in cluster.submitted() if nonce not in refused]
    assert len(taken) == len(set(taken)) == 2, (refused, person.said(), cluster.login.commands())
    assert len(cluster.jobs()) <= 2
    person.client.cancel(bag)
    until(lambda: not cluster.jobs(), 90)


def test_pilots_that_the_batch_system_holds_are_told_of(person: User, cluster: Cluster) -> None:
    _site(person, 2, directives='["#SBATCH --hold"]')
    person.serve()
    bag = person.bag("echo {n}", 4)
    until(lambda: "holds 2 pilots" in person.trouble("cluster"), 120)
    assert "JobHeldUser" in person.trouble("cluster")
    for job in cluster.jobs():
        assert cluster.slurm.ask("scontrol", "release", job.split("|")[1]).returncode == 0
    assert person.client.wait(bag)["counts"]["succeeded"] == 4
    until(lambda: not person.trouble("cluster"), 90)


def test_pilots_token_appears_in_no_command_script_environment_or_log(person: User, cluster: Cluster) -> None:
    """Only the ticket, which its owner alone can read, holds the token."""
    _site(person)
    person.serve()
    seen = cluster.home / "seen"
    bag = person.bag(f"until [ -e {seen} ]; do sleep 0.1; done; env; echo {{n}}", 4)
    until(lambda: len(person.client.running(bag)) >= 2, 90)
    ticket = max((cluster.home / "windfall").glob("*.ticket"), key=lambda path: path.stat().st_mtime)
    assert stat.S_IMODE(ticket.stat().st_mode) == 0o600
    token = json.loads(ticket.read_text())["token"].encode()
    assert token and token not in b"".join(_said_of_processes())
    seen.touch()
    assert person.client.wait(bag)["counts"]["succeeded"] == 4
    told = [path for path in (*cluster.slurm.bed.root.rglob("*"), *person.home.parent.glob("log"))
            if path.is_file() and path != ticket]
    assert any(path.name == "commands" for path in told) and person.log in told
    assert [path for path in told if _says(path, token)] == []
    printed = [b"".join(person.client.log(bag, task)) for task in range(4)]
    assert all(b"WINDFALL" in each and token not in each for each in printed)


def _says(path: Path, token: bytes) -> bool:
    """Does the file hold the token?  Files may vanish meanwhile, since Slurm rewrites its state all the time."""
    try:
        return token in path.read_bytes()
    except FileNotFoundError:
        return False


def _said_of_processes() -> list[bytes]:
    found = []
    for path in (*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")):
        with suppress(OSError):
            found.append(path.read_bytes())
    return found


def test_a_folder_is_swept_and_what_is_needed_is_put_back(person: User, cluster: Cluster) -> None:
    _site(person)
    folder = cluster.home / "windfall"
    folder.mkdir(exist_ok=True)
    old, new, other = folder / "wfold-1-7.log", folder / "wfnew-1-8.log", folder / "mine.log"
    others = folder / "wfold-1.o7.1"  # as Grid Engine calls them
    for path, days in ((old, 20), (others, 20), (new, 1), (other, 400)):
        path.touch()
        os.utime(path, (time.time() - days * 86_400,) * 2)
    rig.own(folder)
    for path in folder.glob("pilot-*.pyz"):
        path.write_bytes(b"half of it")
    person.serve()
    assert person.client.wait(person.bag("echo {n}", 3))["counts"]["succeeded"] == 3
    assert not old.exists() and not others.exists() and new.exists() and other.exists()
    until(lambda: not cluster.jobs(), 60)


@pytest.mark.parametrize("provision", ["broker", "msr"])
def test_a_pilot_for_each_task_is_what_the_others_ask_for(person: User, cluster: Cluster, provision: str) -> None:
    """For comparison only.  The broker asks how full the site is."""
    _site(person, room="true")
    person.serve()
    bag = person.bag("echo {n}", 5, f'[policy]\nprovision = "{provision}"\n')
    assert person.client.wait(bag)["counts"]["succeeded"] == 5
    until(lambda: not cluster.jobs(), 60)
    assert len(cluster.submitted()) == len(set(cluster.submitted())) == 5


def test_chance_counts_all_signs_of_the_differences() -> None:
    """The test that compares them: all signs that the differences could have had."""
    assert chance([-1.0] * 5) == 1 / 32 and chance([1.0] * 5) == 1
    assert chance([-3.0, 1.0]) == 2 / 4 and chance([0.0, 0.0]) == 1


def test_start_cancelled_while_the_controller_is_down_is_not_submitted_later(
        person: User, cluster: Cluster) -> None:
    _site(person, 4)  # room for two more: who has left counts until a listing lacks him, and there will be none
    person.serve()
    assert person.client.wait(person.bag("echo {n}", 2))["counts"]["succeeded"] == 2
    until(lambda: not cluster.jobs(), 60)
    cluster.slurm.stop_controller()
    try:
        before = len(cluster.submitted())
        bag = person.bag("echo {n}", 2)
        until(lambda: len(cluster.submitted()) > before, 90)
        until(lambda: "unable to contact" in person.trouble("cluster").lower(), 90)
        person.client.cancel(bag)
    finally:
        cluster.slurm.start_controller()
    until(lambda: not person.trouble("cluster"), 90)
    tried = len(cluster.submitted())
    until(lambda: person.site_view("cluster")["open"] == 0, 60)
    assert before < tried == len(cluster.submitted()) and not cluster.jobs()


def test_salvage_finds_the_result_of_a_pilot_whose_job_the_user_cancelled(person: User, cluster: Cluster) -> None:
    """The server is away when the task ends, and its job is gone when it is back: the result lies in the site's
    outbox, and the task does not run again (S5)."""
    _site(person, most=1)
    person.serve()
    ran, box = cluster.home / "ran", cluster.home / "windfall" / "outbox"
    bag = person.bag(f"echo {{n}} >> {ran}; sleep 4; echo made", 1)
    until(lambda: person.client.running(bag), 90)
    person.kill()
    until(lambda: list(box.rglob("*.json")), 60)
    (job,) = [line.split("|")[1] for line in cluster.jobs()]
    cluster.slurm.ask("scancel", job)
    until(lambda: not cluster.jobs(), 60)
    person.serve()
    assert person.client.wait(bag)["counts"]["succeeded"] == 1
    assert ran.read_text().split() == ["1"], "it ran once"
    until(lambda: any("1 results were found there" in line["says"]
                      for line in person.client.site("cluster")["history"]), 30)
    until(lambda: not cluster.jobs(), 60)
