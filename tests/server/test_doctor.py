"""The doctor: what it says of a damaged home, what it recovers, and what it cuts."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys

import pytest
from server_tools import SRC, Client, Pilot, sweep

from windfall.core.state.columns import ROW_BITS
from windfall.errors import StoreCorrupt
from windfall.server.local import doctor
from windfall.server.local.data_folder import Home
from windfall.server.recovery import recover
from windfall.store import log_file, mark


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The home of a server that was killed, with three bags and some results; and the number of its last bag."""
    from server_tools import Process

    home = tmp_path_factory.mktemp("killed") / "home"
    server = Process(home)
    client = Client(server.profile)
    numbers = [client.submit(sweep(6, name=f"bag-{n}")) for n in range(3)]
    pilot = Pilot(client, cores=4)
    pilot.finish([attempt for attempt, _ in pilot.get(want=4)])
    client.call("GET", f"/v1/bags/{numbers[0]}/results")  # brings the views up to date
    numbers.append(client.submit(sweep(5, name="last")))
    server.kill()
    return home, numbers


@pytest.fixture
def home(killed, tmp_path):
    shutil.copytree(killed[0], tmp_path / "home", ignore=shutil.ignore_patterns("socket*"))
    return Home(tmp_path / "home")


def state_of(home):
    core, journal, _ = recover(home.journal)
    journal.close()
    return core.state


def command(home, *arguments):
    return subprocess.run([sys.executable, "-m", "windfall", "doctor", "--home", str(home.path), *arguments],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SRC}, check=False)


def flip(path, place):
    body = bytearray(path.read_bytes())
    body[place] ^= 4
    path.write_bytes(body)


def test_sound_home_gets_a_clean_bill(home):
    done = command(home)
    assert done.returncode == 0, done.stderr
    assert "all commits read back" in done.stdout and "agree with the journal" in done.stdout
    assert command(home, "--repair").stdout == "nothing needs repair\n"


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bit_in_the_log_is_repaired_or_cut_as_the_user_decides(home, killed, seed):
    log = log_file.log_of(home.journal)
    flip(log, random.Random(seed).randrange(32, log.stat().st_size))
    before = {path.name: path.read_bytes() for path in (log, mark.mark_of(home.journal))}
    found = json.loads(command(home, "--json").stdout)[0]
    assert {name: (home.path / name).read_bytes() for name in before} == before or not found["remedy"]
    if "--repair" in found["remedy"]:
        done = command(home, "--repair")
        assert done.returncode == 0 and "every commit is recovered" in done.stdout
        assert sorted(state_of(home).bags) == killed[1]
    elif found["remedy"]:
        assert command(home, "--repair").returncode == 3
        done = command(home, "--cut", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert "commits, up to commit" in said["lost"][0] and said["kept"]
        state = state_of(home)
        gone = [number for number in killed[1] if number not in state.bags]
        assert all(any(f"bag {number} " in line for line in said["lost"]) for number in gone if number != killed[1][-1])
        assert state.next_bag > killed[1][-1]
    assert command(home).returncode == 0


def test_lost_commits_give_no_number_twice(home, killed, start):
    told = mark.read(mark.mark_of(home.journal))
    log_file.log_of(home.journal).unlink()
    with pytest.raises(StoreCorrupt, match="lost"):
        recover(home.journal)
    outcome = doctor.mend(home, cut=True)
    assert any("bag-1" in line for line in outcome.lost)
    kept = sorted(path.name for path in (home.path / outcome.kept).iterdir())
    assert "journal.db" in kept and "journal.mark" in kept and "views.db" in kept
    state = state_of(home)
    assert all(now > then for now, then in zip(
        (state.next_bag, state.next_pilot, state.next_intent), told.numbers, strict=True))
    server = start(home=home.path)
    client = Client(server.profile)
    number = client.submit(sweep(2))
    assert number > max(killed[1])
    pilot = Pilot(client, cores=2)
    granted = [attempt for attempt, _ in pilot.get(want=2)]
    assert all(attempt >> ROW_BITS > doctor.ATTEMPTS_MARGIN for attempt in granted)
    pilot.finish(granted)
    assert client.call("GET", f"/v1/bags/{number}").body["state"] == "succeeded"
    assert server.stop() == 0
    assert command(home).returncode == 0


def test_missing_journal_can_be_begun_anew_with_other_numbers(home, killed):
    home.journal.unlink()
    log_file.log_of(home.journal).unlink()
    assert "no commit can be saved" in command(home).stdout
    assert command(home, "--cut").returncode == 0
    state = state_of(home)
    assert not state.bags and state.next_bag > max(killed[1])


def test_silently_changed_views_are_noticed_and_made_again(home):
    other = sqlite3.connect(home.views, isolation_level=None)
    assert other.execute("UPDATE attempt SET wall = wall + 1").rowcount
    other.close()
    done = command(home)
    assert done.returncode == 1 and "differ from the journal" in done.stdout
    assert command(home, "--repair").returncode == 0
    assert not home.views.exists()
    assert command(home).returncode == 0


def test_running_server_keeps_the_doctor_out(start):
    server = start()
    done = command(Home(server.home))
    assert done.returncode == 3 and "another server" in done.stderr
