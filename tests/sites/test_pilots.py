"""Real pilots, started through every dialect on real systems, work for one server: one bag over all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.real import free_port, serving, until
from tests.sites.systems import RUN, SYSTEMS, System
from tests.testbed.base import require
from windfall import Client
from windfall.model.bagfile.reader import parse
from windfall.pilot import bundle
from windfall.sites.dialects.job import ENDED, Job, Shape

pytestmark = [pytest.mark.slow, pytest.mark.testbed]
PER_SITE = 2


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Client, dict[str, System]]]:
    """A server, and every system with the pilot's file and a ticket of its own."""
    require()
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path / "home", "--listen", f"127.0.0.1:{free_port()}", "--lease", "5"))
        client = stack.enter_context(Client(server.profile))
        systems = {}
        for name, make in SYSTEMS.items():
            systems[name] = system = make()
            stack.callback(system.close)
            _equip(system, client, server.profile, tmp_path)
        yield client, systems


def _equip(system: System, client: Client, profile: dict[str, Any], folder: Path) -> None:
    client.add_site(system.name, "batch")
    token = client.add_token("enrol", site=system.name)["token"]
    ticket = {"server": profile["server"], "certificate": profile["certificate"], "token": token, "site": system.name}
    path, _ = bundle.build(str(folder / "pilot"))
    system.do(system.channel.put(f"{system.folder}/pilot.pyz", Path(path).read_bytes(), 0o700))
    system.do(system.channel.put(f"{system.folder}/ticket.json", json.dumps(ticket).encode(), 0o600))


def _pilots(system: System) -> list[Job]:
    """Two of them: an array, where there is such a thing."""
    counts = [PER_SITE] if system.arrays else [1] * PER_SITE
    jobs = []
    for count in counts:
        command = ("python3", f"{system.folder}/pilot.pyz", "--ticket", f"{system.folder}/ticket.json", "--cores", "1",
                   "--walltime", "900", "--idle", "300")
        jobs.append(Job(system.nonce(count), Shape(900), command, count, system.folder, options=system.options))
        system.submit(jobs[-1])
    return jobs


def _bag(client: Client, name: str, command: str, tasks: int) -> int:
    made = parse(f'[bag]\nname = "{name}"\ncommand = "{command}"\n[sweep]\nn = "1..{tasks}"\n[task]\nretries = 0\n')
    return client.submit(made.bag)


def test_bag_runs_on_pilots_of_all_batch_systems(world: tuple[Client, dict[str, System]]) -> None:
    client, systems = world
    jobs = {name: _pilots(system) for name, system in systems.items()}
    wanted = {nonce for each in jobs.values() for job in each for nonce in job.nonces}
    until(lambda: {each["nonce"] for each in client.pilots()} >= wanted, 120)

    bag = _bag(client, "all", "sleep 0.3; echo {n}", 200)
    assert client.wait(bag)["counts"]["succeeded"] == 200
    sites = Counter(row["site"] for row in client.results(bag))
    assert set(sites) == set(systems), "each contributed"

    _cancelled_while_they_work(client, systems)
    for system in systems.values():
        system.until(lambda system=system: not _left(system))


def _cancelled_while_they_work(client: Client, systems: dict[str, System]) -> None:
    """Every pilot is told before it goes, and gives back what it has: nothing counts as lost, or as failed."""
    bag = _bag(client, "back", "sleep 600; echo {n}", len(systems) * PER_SITE)
    until(lambda: len(client.running(bag)) == len(systems) * PER_SITE, 60)
    for system in systems.values():
        system.cancel(_left(system))
    until(lambda: not client.running(bag), 60)
    counts = client.bag(bag)["counts"]
    assert counts["failed"] == 0, counts
    gone = Counter(each["why"] for each in client.pilots() if each["nonce"].startswith(RUN))
    assert "silent" not in gone and sum(gone.values()) >= len(systems) * PER_SITE, gone
    client.cancel(bag)


def _left(system: System) -> list[Any]:
    return [each for each in system.listed() if each.state != ENDED and each.nonce.startswith(RUN)]
