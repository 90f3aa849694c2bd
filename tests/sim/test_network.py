"""Links, disks and placeholders of the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from windfall.core.config import Config
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.errors import BadInput
from windfall.sim.engine import Engine
from windfall.sim.models.network import Network
from windfall.sim.models.placeholder import OthersTurns
from windfall.sim.models.storage import Storage
from windfall.sim.world import Work, World, target_shape


def ends(network: Network, *transfers: tuple[int, int, int]) -> list[int]:
    """Return the end of each transfer; a transfer is given by its begin, its bytes and its files."""
    seen: dict[int, int] = {}
    for number, (at, size, files) in enumerate(transfers):
        done = lambda number=number: seen.__setitem__(number, network.engine.now)  # noqa: E731
        network.engine.at(at, network.send, "a", "b", size, files, done)
    network.engine.run()
    return [seen[number] for number in range(len(transfers))]


def linked(**what: object) -> Network:
    network = Network(Engine())
    network.link("a", "b", **what)  # type: ignore[arg-type]
    return network


def test_transfer_takes_start_up_cost_and_bytes_over_bandwidth() -> None:
    assert ends(linked(start=1_200, rate=500_000), (0, 500_000, 1), (100, 1_000_000, 3)) == [2_200, 100 + 3_600 + 2_000]


def test_shared_link_divides_bandwidth_evenly() -> None:
    assert ends(linked(rate=1_000, shared=True), (0, 1_000, 1), (0, 1_000, 1)) == [2_000, 2_000]


def test_second_transfer_slows_first_one_down_until_it_ends() -> None:
    """The first transfer is alone for 0.5 s, shares until the second has its 250 bytes, and is alone again."""
    assert ends(linked(rate=1_000, shared=True), (0, 1_000, 1), (500, 250, 1)) == [1_250, 1_000]


def test_start_up_cost_uses_no_bandwidth_of_shared_link() -> None:
    assert ends(linked(start=300, rate=1_000, shared=True), (0, 1_000, 1), (900, 100, 1)) == [1_400, 1_400]


def test_busy_shared_link_moves_its_full_bandwidth() -> None:
    """A shared link that is never idle sends all bytes in the time that its bandwidth takes."""
    network = linked(rate=1_000, shared=True)
    last = max(ends(network, *[(20 * n, 100 + 7 * n, 1) for n in range(40)]))
    total = sum(100 + 7 * n for n in range(40))
    assert total <= last <= total + 40 and network.bytes == total


def test_link_is_found_in_either_direction_and_by_wildcard() -> None:
    network = Network(Engine())
    network.link("*", "*", rate=1_000)
    network.link("a", "home", rate=10)
    seen: list[int] = []
    network.send("home", "a", 10, 1, lambda: seen.append(network.engine.now))
    network.send("a", "c", 10, 1, lambda: seen.append(network.engine.now))
    network.engine.run()
    assert seen == [10, 1_000]
    with pytest.raises(BadInput, match="positive"):
        network.link("a", "b", rate=-1)
    with pytest.raises(BadInput, match="no link between"):
        Network(Engine()).send("x", "y", 1, 1, lambda: None)


def test_lost_disk_holds_no_files() -> None:
    disk = Storage()
    disk.put("host s h", (1, 4), 70)
    assert disk.has("host s h", (1, 4)) and disk.used("host s h") == 70 and not disk.has("host s h", (1, 5))
    assert disk.has("home", (1, 4)) and disk.has("site s", (1, -1))
    disk.lose("host s h")
    disk.lose("site s")
    assert not disk.has("host s h", (1, 4)) and not disk.used("host s h") and not disk.has("site s", (1, -1))


# --- in a world ------------------------------------------------------------------------------------------------------


def pipelines(n: int, **more: object) -> Work:
    """Return n pipelines: a first stage of 3 s leaves 50 kB, which a second stage of 1 s reads."""
    edges = np.array([(task, task + n) for task in range(n)], dtype="<i4").tobytes()
    data = f.DataShape(leaves=np.array([50_000] * n + [0] * n, "<i8").tobytes(),
                       leave_files=np.array([1] * n + [0] * n, "<i4").tobytes())
    return Work(2 * n, lambda task, _draw: 3_000 if task < n else 1_000, expect=2_000, edges=edges, data=data,
                **more)  # type: ignore[arg-type]


def world(select: str = "fcfs", disk: bool = False, **more: object) -> World:
    made = World(3, Config(prefetch=0), watch=True)
    made.site("here", disk)
    made.link("*", "*", start=500, rate=100_000)
    made.pilots("here", 3)
    made.submit(
        pipelines(13, select=select, data_selection=f.DataSelection() if select == "data-conscious" else None, **more)
    )
    return made


def test_fetching_files_between_hosts_takes_time() -> None:
    there, apart = world(disk=True), world()
    there.run(), apart.run()
    assert there.network.files == 0 and apart.network.files > 0
    assert apart.engine.now > there.engine.now + 1_000


def test_data_conscious_selection_moves_fewer_files() -> None:
    blind, conscious = world(), world("data-conscious")
    blind.run(), conscious.run()
    assert conscious.network.files < blind.network.files / 2
    assert conscious.engine.now < blind.engine.now


@pytest.mark.parametrize("select", ["fcfs", "data-conscious"])
def test_files_lost_with_disk_are_made_again(select: str) -> None:
    """Second stages wait for all first stages, so that many files lie on the disks when the disks are lost."""
    stages = [target_shape("first", 13, expect=2_000), target_shape("second", 13, after=[0], expect=2_000)]
    made = world(select, targets=stages)
    for at, host in ((7_000, "here-1"), (11_000, "here-2"), (13_000, "here-3")):
        made.engine.at(at, made.lose_disk, "here", host)
    made.run()
    assert made.server.core.state.bags[1].counts[SUCCEEDED] == 26 and made.tally.attempts > 26


@pytest.mark.parametrize("select", ["fcfs", "data-conscious"])
def test_unreported_loss_of_disk_is_found_when_file_is_fetched(select: str) -> None:
    made = world(select)
    made.engine.at(7_000, made.storage.lose, "host here here-1")
    made.run()
    assert made.server.core.state.bags[1].counts[SUCCEEDED] == 26


def test_placeholder_waits_for_others_turn_after_each_task() -> None:
    made = World(0, Config(idle=0, prefetch=0, park=3_600_000, lease=100 * 3_600_000), watch=True)
    made.site("here")
    made.submit(Work(3, lambda _task, _draw: 2_000, expect=2_000))
    made.placeholders("here", 1, OthersTurns(after_work=1_000, after_nothing=50))
    made.run()
    assert made.server.core.state.bags[1].ended == 2_000 + 1_000 + 2_000 + 1_000 + 2_000
