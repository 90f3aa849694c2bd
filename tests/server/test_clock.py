import json
import os
import subprocess
import sys
import time
from pathlib import Path

from server_tools import SRC, Client, Pilot, Process, sweep, until

from windfall.server.clock import Clock

ENVIRONMENT = {**os.environ, "PYTHONPATH": SRC}


def test_follows_the_monotonic_clock_whatever_the_wall_clock_does():
    wall, steady = [5_000_000_000], [100_000_000]
    clock = Clock(0, lambda: wall[0], lambda: steady[0])
    assert clock.now() == 5_000
    wall[0] = 0
    steady[0] += 7_000_000
    assert clock.now() == 5_007


def test_never_starts_before_the_journal():
    assert Clock(9_000, lambda: 5_000_000_000, lambda: 0).now() == 9_000


CLOCK = """
import sys, time
off = int(sys.argv[1]) * 86_400 * 10**9
ns, seconds = time.time_ns, time.time
time.time_ns, time.time = (lambda: ns() + off), (lambda: seconds() + off / 1e9)
from windfall.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class Ahead(Process):
    """A server whose machine's clock is ahead by some days."""

    def __init__(self, home, days):
        self.days, self.home, self.stderr = days, home, Path(f"{home}.stderr")
        with self.stderr.open("wb") as errors:
            self.process = subprocess.Popen([sys.executable, "-c", CLOCK, str(days), "serve", "--home", str(home)],
                                            stderr=errors, env=ENVIRONMENT)
        until(lambda: self.process.poll() is not None or self._read()["pid"] == self.process.pid)
        self.profile = self._read()

    def _read(self):
        return json.loads((self.home / "server.json").read_text())


def doctor(home, days, *arguments):
    return subprocess.run([sys.executable, "-c", CLOCK, str(days), "doctor", "--home", str(home), *arguments],
                          capture_output=True, text=True, env=ENVIRONMENT, check=False)


def test_tokens_survive_one_start_years_ahead_which_is_told(start):
    server = start()
    user = Client(server.profile).token_for("user", user="bob")["token"]
    number = Client(server.profile).submit(sweep(3))
    owner = server.profile["token"]
    server.stop()
    ahead = Ahead(server.home, 4_000)
    try:
        client = Client(ahead.profile, owner)
        assert client.call("GET", f"/v1/bags/{number}").status == 200
        assert Client(ahead.profile, user).call("GET", "/v1/bags").status == 200
        health = client.call("GET", "/health").body
        assert health["status"] == "degraded" and "nothing ages" in health["problems"][0]
        assert "windfall doctor --clock" in ahead.said()
        later = client.submit(sweep(3))
        assert abs(client.call("GET", f"/v1/bags/{later}").body["submitted"] - time.time() * 1000) < 3_600_000
    finally:
        ahead.stop()
    again = start(home=server.home)
    assert again.profile["token"] and Client(again.profile, owner).call("GET", "/v1/bags").status == 200
    assert Client(again.profile).call("GET", "/health").body["status"] == "ok"


def test_doctor_confirms_a_clock_that_went_on(start):
    server = start()
    server.stop()
    said = doctor(server.home, 900)
    assert said.returncode == 1 and "until you confirm" in said.stdout
    assert "time goes on at" in doctor(server.home, 900, "--clock").stdout
    assert doctor(server.home, 900).returncode == 0
    ahead = Ahead(server.home, 900)
    try:
        client = Client(ahead.profile)
        assert client.call("GET", "/health").body["status"] == "ok"
        number = client.submit(sweep(1))
        assert client.call("GET", f"/v1/bags/{number}").body["submitted"] > (time.time() + 899 * 86_400) * 1000
    finally:
        ahead.stop()


def test_doctor_mends_a_journal_that_has_a_wrong_time(start):
    server = start()
    client = Client(server.profile)
    owner = server.profile["token"]
    first = client.submit(sweep(2))
    server.stop()
    assert "time goes on at" in doctor(server.home, 1_500, "--clock").stdout  # a person errs
    ahead = Ahead(server.home, 1_500)
    client = Client(ahead.profile)
    second = client.submit(sweep(2))
    pilot = Pilot(client, cores=2)
    pilot.finish([attempt for attempt, _ in pilot.get(want=2)])
    client.call("GET", f"/v1/bags/{first}/results")
    assert ahead.stop() == 0
    said = doctor(server.home, 0)
    assert said.returncode == 1 and "days after this machine's clock" in said.stdout
    assert "moves back" in doctor(server.home, 0, "--clock").stdout
    assert doctor(server.home, 0).returncode == 0, doctor(server.home, 0).stdout
    again = start(home=server.home)
    client = Client(again.profile, owner)
    assert client.call("GET", "/health").body["status"] == "ok"
    now = time.time() * 1000
    bags = [client.call("GET", f"/v1/bags/{number}").body for number in (first, second)]
    assert all(now - 600_000 < bag["submitted"] <= now + 60_000 for bag in bags)
    rows = client.call("GET", f"/v1/bags/{first}/results").body["rows"]
    assert len(rows) == 2 and all(now - 600_000 < row["ended"] <= now + 60_000 for row in rows)


def test_owners_token_is_renewed_before_it_ends(start):
    server = start()
    first = server.profile["token"]
    server.stop()
    doctor(server.home, 3_650, "--clock")  # ten days before its end
    ahead = Ahead(server.home, 3_650)
    try:
        assert ahead.profile["token"] != first
        assert Client(ahead.profile).call("GET", "/v1/bags").status == 200
        assert Client(ahead.profile, first).call("GET", "/v1/bags").status == 200, "copies work to its end"
    finally:
        ahead.stop()
