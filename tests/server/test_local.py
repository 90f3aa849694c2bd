"""The pilot of this machine sleeps until there is work, and nobody looks for it in vain."""

import asyncio
from types import SimpleNamespace

from windfall.core.messages import facts as f
from windfall.server.local.pilot import Supervisor


class Bag:
    def __init__(self, work=0, paused=False):
        self.work, self.paused, self.asked = work, paused, 0

    def not_ended(self):
        self.asked += 1
        return self.work


def test_sleeping_supervisor_checks_only_bags_that_a_commit_brings_work_to():
    async def go():
        bags = {number: Bag() for number in range(1, 100)}
        writer = SimpleNamespace(state=SimpleNamespace(bags=bags, pilots={}), closed=False, listeners=[])
        runtime = SimpleNamespace(writer=writer, http=SimpleNamespace(loop=asyncio.get_running_loop()))
        starts = []
        pilot = SimpleNamespace(running=lambda: False, start=lambda: starts.append(1), watch=lambda: None,
                                ticket=SimpleNamespace(nonce="n"), on_death=None)
        supervisor = Supervisor(runtime, pilot)
        supervisor._died(0)
        await asyncio.sleep(0)
        assert sum(bag.asked for bag in bags.values()) == 99 and not starts
        commit, = writer.listeners
        commit(1, 1, [f.PilotDraining(1, 1), f.BagClosed(1, 3), f.Ended(1, 1, [])])
        assert sum(bag.asked for bag in bags.values()) == 99
        bags[7].work = 5
        commit(2, 1, [f.BagPaused(1, 3, False), f.TasksAppended(1, 7, 0, 0, 5, "", b"")])
        assert starts == [1] and bags[7].asked == bags[3].asked == 2 and bags[8].asked == 1
    asyncio.run(go())
