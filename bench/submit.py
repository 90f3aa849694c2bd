"""How much time and memory do very many tasks take?

Measured are the submission of a sweep of ten million tasks and of a million irregular commands, and the core's memory
per task, waiting and finished.
"""

from __future__ import annotations

import time
import tracemalloc

from common import server, spread


def accepted(bag) -> float:  # type: ignore[no-untyped-def]
    with server() as s:
        client = s.client()
        client.bags()
        began = time.perf_counter()
        client.submit(bag)
        return time.perf_counter() - began


def core_bytes(bag) -> float:  # type: ignore[no-untyped-def]
    """Return the lasting bytes per task: the core's state with every page touched, and the renderings of commands."""
    from windfall.core.decide.requests.intake import submission
    from windfall.core.step import Core
    from windfall.server.grants import Renderings

    core = Core()
    tracemalloc.start()
    core.step(1, [submission(1, "me", bag)])
    state = core.state.bags[1]
    renderings = Renderings(core.state)
    renderings.of(state).renderer(0).command(0)
    for name, _ in state.tasks.LAYOUT:
        getattr(state.tasks, "np_" + name)[:] = 1
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / state.size


def resident(bag, text: int) -> float:  # type: ignore[no-untyped-def]
    """Return the growth of a warm server's memory per task, some seconds after the submission, without the text."""
    from windfall.model.spec import Bag, Lines, Target

    few = Bag(name="few", targets=[Target(source=Lines(text="true\ntrue", count=2))])
    with server() as s:
        client = s.client()
        client.task(client.submit(few), 1)  # loads all modules that show a task
        time.sleep(1)
        before = s.rss()
        number = client.submit(bag)
        client.task(number, 999_999)
        client.task(client.submit(few), 1)  # the store frees the large bag
        client.close()
        time.sleep(6)
        return (s.rss() - before - text) / 1_000_000


def main() -> None:
    from windfall.model.spec import Bag, Lines, Range, Sweep, Target

    sweep = Bag(name="sweep", targets=[Target(
        command="prog {x}", source=Sweep(axes=[Range(name="x", first=1, last=10_000_000)]))])
    text = "\n".join(f"prog --seed {i} --mode m{i % 7}" for i in range(1_000_000))
    lines = Bag(name="lines", targets=[Target(source=Lines(text=text, count=1_000_000))])
    times = [accepted(sweep) * 1000 for _ in range(5)]
    print(f"sweep of 10,000,000 accepted: {spread(times)} ms (bar 100)", flush=True)
    times = [accepted(lines) * 1000 for _ in range(3)]
    print(f"1,000,000 irregular commands: {spread(times)} ms (bar 1000)", flush=True)
    print(f"core bytes per task of a sweep, waiting or finished: {core_bytes(sweep):.1f} (bar 16)")
    print(f"core bytes per irregular task beyond its text: {core_bytes(lines) - len(text) / 1_000_000:.1f} (bar 32)")
    print(f"the same as growth of the server's resident memory: {resident(lines, len(text)):.1f}")


if __name__ == "__main__":
    main()
