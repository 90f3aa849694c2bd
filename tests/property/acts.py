"""Acts: the mishaps and requests that a plan can make happen in a world, and the bags that it can submit."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import DataSelection, DataShape, TargetShape
from windfall.model.policies.replica_caps import CAPS

from .plan import POLICIES, REPEATS, Act, BagPlan
from .sites import limits_of

if TYPE_CHECKING:
    from .process import Process
    from .sites import Site
    from .world import World


def play(world: World, act: Act) -> None:
    _ACTS[act.kind](world, act)


def _bag(world: World, act: Act) -> int | None:
    return world.bags[act.who % len(world.bags)] if world.bags else None


def _process(world: World, act: Act) -> Process | None:
    alive = [p for p in world.processes if p.alive]
    return alive[act.who % len(alive)] if alive else None


def _on_bag(make: Any) -> Any:
    def run(world: World, act: Act) -> None:
        bag = _bag(world, act)
        if bag is not None:
            make(world, act, bag)

    return run


def _on_process(make: Any) -> Any:
    def run(world: World, act: Act) -> None:
        process = _process(world, act)
        if process is not None:
            make(world, act, process)

    return run


def _cut(world: World, act: Act, process: Process) -> None:
    """Cut a pilot off in both directions for up to 30 s, which is three leases."""
    process.mute = process.deaf = world.now + 300 * act.how


def _deafen(world: World, act: Act, process: Process) -> None:
    process.deaf = world.now + 300 * act.how


def _partition(world: World, act: Act) -> None:
    """Cut some of the pilots off for up to 50 s."""
    for place, process in enumerate(world.processes):
        if (act.who + 1) >> place % 3 & 1:
            process.mute = process.deaf = world.now + 500 * act.how


def _sleep(world: World, act: Act, process: Process) -> None:
    """Freeze a pilot for up to 40 s, as under a closed lid; messages to it wait."""
    process.frozen = world.now + 400 * act.how


def _leap(world: World, act: Act, process: Process) -> None:
    process.clock.jump(300 * act.how)


def _set_clock(world: World, act: Act) -> None:
    """Set the server's wall clock forward or back by some minutes; the server notices when it starts again."""
    world.server.wall_off += (act.how - 30) * 36_000
    if act.who % 3 == 0:
        world.server.die()


def _disk_low(world: World, act: Act) -> None:
    world.server.report_disk(True)
    world.after(300 * act.how, lambda: world.server.report_disk(False))


def _disk_full(world: World, act: Act) -> None:
    """Fill the disk for up to 20 s: every flush fails, and the server dies of it."""
    world.server.disk.full = True
    world.after(200 * act.how, lambda: setattr(world.server.disk, "full", False))


def _twin(world: World, act: Act, process: Process) -> None:
    """Let the site start a job twice, or again: two processes have one nonce."""
    world.new_pilot(process.cores, process.nonce)
    if act.how % 3 == 0:
        world.kill(process, evidence=False)


def _revoke(world: World, act: Act, process: Process) -> None:
    """Revoke the token of a pilot: its process enrols again, with all that it holds."""
    if process.number:
        number = process.number
        world.client(lambda: e.RevokeToken(0, f"pilot-{number}"))


def _append(world: World, act: Act, bag: int) -> None:
    world.asked += 1
    key, count = f"k{world.asked}", 1 + act.how % 7
    shapes = world.oracle.shapes.get(bag)
    if shapes is None:
        return

    def done(effect: Any) -> None:
        if isinstance(effect, x.Done):
            world.oracle.appended[key] = (bag, effect.value, effect.extra)

    target, extends = act.how % len(shapes), act.who % 2 == 0
    world.client(lambda: e.Append(0, "ann", bag, target, count, key, b"source", extends), done)


def _append_part(world: World, act: Act, bag: int) -> None:
    """Append tasks of one target or two, with edges from earlier tasks in any state and among themselves."""
    world.asked += 1
    key, core, shapes = f"k{world.asked}", world.server.core, world.oracle.shapes.get(bag)
    if shapes is None or core is None or bag not in core.state.bags:
        return
    r, first = random.Random(f"{act.at} {act.how} {key}"), core.state.bags[bag].size
    targets = [(act.how + step) % len(shapes) for step in range(1 + act.who % 2)]
    pieces = [(target, 1 + r.randrange(6)) for target in targets]
    end = first + sum(count for _, count in pieces)
    likely = r.choice((0.05, 0.3))
    pairs = [(before, after) for after in range(first, end) for before in range(after) if r.random() < likely]
    event = (bag, first, pieces, key, [b"source"] * len(pieces), np.array(pairs, dtype="<i4").tobytes())

    def done(effect: Any) -> None:
        if isinstance(effect, x.Done):
            world.oracle.appended[key] = (bag, effect.value, effect.extra)

    world.client(lambda: e.AppendPart(0, *event), done)


def _some(world: World, act: Act, bag: int) -> None:
    world.client(lambda: e.Cancel(0, bag, list(range(act.how % 3, 40, 1 + act.how % 4))))


def _pause(world: World, act: Act, bag: int) -> None:
    world.client(lambda: e.Pause(0, bag, True))
    world.after(100 * act.how, lambda: world.client(lambda: e.Pause(0, bag, False)))


def _share(world: World, act: Act) -> None:
    world.client(lambda: e.AddSite(0, "here", "ann", "local", ["bob"] if act.how % 2 else []))


def _new_pilot(world: World, act: Act) -> None:
    world.new_pilot(1 + act.how % 4, wall=10_000 + 500 * act.how if act.who % 2 else None)


def _drain(world: World, act: Act, process: Process) -> None:
    if process.number:
        number = process.number
        world.client(lambda: e.Drain(0, number))


def _reboot(world: World, act: Act, process: Process) -> None:
    world.reboot(process)


def _lie(world: World, act: Act, process: Process) -> None:
    """Let a pilot report attempts that other pilots hold."""
    lineage = [p.name for p in world.processes if p.nonce == process.nonce]
    core = world.server.core
    if core is None or not process.number:
        return
    a = core.state.attempts
    rows = [row for row in range(a.rows) if a.state[row] and core.state.pilots[a.pilot[row]].host not in lineage]
    numbers = [a.number[row] for row in rows][: 1 + act.how]
    event = e.Exchange(
        0, 0, 1, 0, 0, 0, 0, None, numbers[1::2], [e.Report(number) for number in numbers for _ in range(2)],
        numbers[::3] if process.enrolments == 1 else None,
    )
    world.call(process, event, process.number, lambda effect: None)


def _on_site(make: Any) -> Any:
    def run(world: World, act: Act) -> None:
        sites = list(world.sites.values())
        if sites:
            make(world, act, sites[act.who % len(sites)])

    return run


def _tender_dies(world: World, act: Act, site: Site) -> None:
    if site.tender is not None:
        site.tender.alive = False


def _dark(world: World, act: Act, site: Site) -> None:
    """Cut a site off, with its tender and its pilots, for up to a minute."""
    site.dark = world.now + 600 * act.how
    for process in world.processes:
        if process.site is site:
            process.mute = process.deaf = site.dark


def _miss(world: World, act: Act, site: Site) -> None:
    site.hides = world.now + 200 * act.how


def _stale(world: World, act: Act, site: Site) -> None:
    site.old = (world.now + 200 * act.how, site.listing())


def _fails(world: World, act: Act, site: Site) -> None:
    site.fails = True


def _job_killed(world: World, act: Act, site: Site) -> None:
    if site.jobs:
        site.cancel(list(site.jobs)[act.how % len(site.jobs)])


def _limits(world: World, act: Act, site: Site) -> None:
    """Set the limits of a site to fewer or more pilots than it has."""
    plan = msgspec.structs.replace(site.plan, pilots=1 + act.how % 5, queued=act.how % 3)
    site.most = max(site.most, plan.pilots) if site.most else 0
    world.add_site(site.name, limits_of(plan))


def _drained(world: World, act: Act, site: Site) -> None:
    """Drain a site, or undrain it; the request may come early, late or twice."""
    world.drained += 1
    world.client(lambda: e.DrainSite(0, site.name, "ann", act.how % 3 > 0, act.how % 5 == 0))


def _policy(world: World, act: Act, bag: int) -> None:
    wanted = {key: POLICIES[act.how % len(POLICIES)].get(key, "") for key in ("requirements", "rank", "sites")}
    world.client(lambda: e.SetPolicy(0, bag, wanted))


def _repeats(world: World, act: Act, bag: int) -> None:
    wanted = {key: REPEATS[act.how % len(REPEATS)].get(key, "") for key in ("attempt-deadline", "replicate", *CAPS)}
    world.client(lambda: e.SetPolicy(0, bag, wanted))


_ACTS = {
    "repeats": _on_bag(_repeats),
    "policy": _on_bag(_policy),
    "drained": _on_site(_drained),
    "tender dies": _on_site(_tender_dies),
    "two tenders": _on_site(lambda world, act, site: site.new_tender()),
    "site dark": _on_site(_dark),
    "listing misses": _on_site(_miss),
    "listing short": _on_site(lambda world, act, site: setattr(site, "short", True)),
    "listing old": _on_site(_stale),
    "submission fails and does not": _on_site(_fails),
    "requeued": _on_site(lambda world, act, site: site.requeue(act.how, lives=False)),
    "requeued and alive": _on_site(lambda world, act, site: site.requeue(act.how, lives=True)),
    "queue lost": _on_site(lambda world, act, site: site.lose_queue()),
    "job killed": _on_site(_job_killed),
    "limits change": _on_site(_limits),
    "lie": _on_process(_lie),
    "reboot": _on_process(_reboot),
    "server crash": lambda world, act: world.server.die(),
    "pilot dies": _on_process(lambda world, act, process: world.kill(process, evidence=True)),
    "pilot dies unseen": _on_process(lambda world, act, process: world.kill(process, evidence=False)),
    "cut off": _on_process(_cut),
    "black hole": _on_process(lambda world, act, process: setattr(process, "hole", True)),
    "deaf": _on_process(_deafen),
    "twin": _on_process(_twin),
    "revoke": _on_process(_revoke),
    "drain": _on_process(_drain),
    "partition": _partition,
    "host sleeps": _on_process(_sleep),
    "pilot clock jumps": _on_process(_leap),
    "server clock jumps": _set_clock,
    "disk low": _disk_low,
    "disk full": _disk_full,
    "new pilot": _new_pilot,
    "cancel": _on_bag(lambda world, act, bag: world.client(lambda: e.Cancel(0, bag, None))),
    "cancel some": _on_bag(_some),
    "retry": _on_bag(lambda world, act, bag: world.client(lambda: e.Retry(0, bag, None))),
    "pause": _on_bag(_pause),
    "append": _on_bag(_append),
    "append part": _on_bag(_append_part),
    "close": _on_bag(lambda world, act, bag: world.client(lambda: e.Close(0, bag))),
    "remove": _on_bag(lambda world, act, bag: world.client(lambda: e.Remove(0, bag))),
    "snapshot": lambda world, act: world.server.snapshot(),
    "share": _share,
    "disk lost": _on_process(
        lambda world, act, process: world.client(lambda: e.LosePlace(0, "here", process.name))),
}


# --- bags --------------------------------------------------------------------------------------------------------


def shape(name: str = "main", count: int = 1, **changes: Any) -> TargetShape:
    usual = TargetShape(name, count, [], 1, 0, 0, 0, 0, 0, 1_000, False, 3, 0, 0)
    return msgspec.structs.replace(usual, **changes)


def scarce(plan: BagPlan, shapes: list[TargetShape]) -> list[TargetShape]:
    """Give every task a time limit if the bag has a budget, and the bag's disk and nodes."""
    limit = 13_000 if plan.budget else 0
    return [msgspec.structs.replace(s, limit=s.limit or limit, disk=plan.disk, nodes=plan.nodes) for s in shapes]


def make_data(plan: BagPlan, tasks: int, r: random.Random) -> dict[str, Any]:
    """Return what the tasks of a bag leave, and how data-conscious selection weighs it."""
    if plan.shape not in ("data", "conscious"):
        return {}
    made: dict[str, Any] = {"data": DataShape(
        leaves=np.array([r.choice((0, 1_000, 1 << 20)) for _ in range(tasks)], dtype="<i8").tobytes(),
        leave_files=np.array([r.choice((0, 1, 1, 3)) for _ in range(tasks)], dtype="<i4").tobytes(),
        keeps=r.random() < 0.3, stays=r.random() < 0.9)}
    if plan.shape == "conscious":
        made["select"] = "data-conscious"
        made["data_selection"] = DataSelection(
            arrivals=r.choice((1, 32)), candidates=r.choice((1, 128)), penalty=r.choice((1.0, 25.0)),
            latency=r.choice((5, 650)), unit=r.choice((10, 100)))
    return made


def make_shapes(plan: BagPlan, r: random.Random) -> tuple[list[TargetShape], bytes]:
    n = plan.tasks
    if plan.shape == "targets":
        third = max(n // 3, 1)
        return [
            shape("a", third), shape("b", third, after=[0], limit=20_000), shape("none", 0, after=[1]),
            shape("c", third, after=[0, 2], cores=r.choice((1, 2))),
        ], b""
    if plan.shape == "gathering":
        return [shape("a", n), shape("merge", 2, after=[0], gathers=True), shape("c", 1, after=[1], gathers=True)], b""
    if plan.shape in ("graph", "data", "conscious"):
        pairs = [(before, after) for after in range(n) for before in range(after) if r.random() < 0.3]
        return [shape(count=n)], np.array(pairs, dtype="<i4").tobytes()
    if plan.shape == "sjf":
        costs = np.array([r.randint(1, 5) for _ in range(n)], dtype="<f4").tobytes()
        return [shape(count=n, costs=costs, limit=6_000)], b""
    if plan.shape == "limited":
        limit, memory = r.choice((300, 2_000)), r.choice((1 << 29, 1 << 30))
        return [shape(count=n, limit=limit, memory=memory, memory_retries=2, retries=1)], b""
    if plan.shape == "growing":
        pairs = [(before, after) for after in range(n) for before in range(after) if r.random() < 0.2]
        return [shape("a", n, retries=1), shape("b", 0)], np.array(pairs, dtype="<i4").tobytes()
    if plan.shape == "open":
        return [shape("main", n), shape("more", 0, priority=1), shape("last", 2, after=[1])], b""
    if plan.shape == "batched":
        return [shape(count=n, batch=r.choice((2, 3, 7)), limit=r.choice((0, 6_000)), retries=2), shape("one", n)], b""
    if plan.shape == "pipeline":
        size = r.choice((0, 0, 3))
        memory = r.choice((0, 1 << 29))
        return [
            shape("a", n, batch=size, retries=1),
            shape("b", n, batch=size, previous_stage=0, memory=memory, memory_retries=1),
            shape("c", n, batch=size, previous_stage=1, cores=r.choice((1, 2)), limit=r.choice((0, 6_000))),
        ], b""
    if plan.shape == "filling":
        return [shape(count=n, batch=r.choice((2, 5)), patience=r.choice((200, 5_000))), shape("more", 1, batch=3)], b""
    if plan.shape == "long":
        return [shape(count=n, cores=r.choice((1, 2)), limit=50_000, retries=1)], b""
    if plan.shape == "saving":
        return [shape(count=n, checkpoint=True, limit=r.choice((0, 30_000)), grace=100, retries=1)], b""
    if plan.shape == "whole":
        return [shape(count=n, whole=True, cores=r.choice((1, 2)), retries=2), shape("one", n)], b""
    return [shape(count=n)], b""
