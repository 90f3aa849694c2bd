"""How does the server bear ten thousand long-polling pilots over TLS, at a thousand tasks a second?

Measured are the server's memory, the time of answers, and the return of the pilots after a restart.  The time of an
answer runs from the submission of a task to the arrival of its grant at a waiting pilot: the task's command carries the
time of its submission.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import random
import signal
import time

from common import Server, home, percentile, raise_file_limit


def _farm(profile: dict, token: str, pilots: int, pipe) -> None:  # type: ignore[no-untyped-def,type-arg]
    import gc

    from nullpilots import Farm, Pilot, run

    raise_file_limit()

    class Returning(Farm):
        """Pilots that reconnect by themselves, as real ones do, after a random part of the spread."""

        back = 0
        spread = 10.0

        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            self.answers: list[float] = []

        def granted(self, tasks: list[list]) -> None:  # type: ignore[type-arg]
            now = time.time()
            self.answers += [now - float(task[1][1]) for task in tasks]

        def lost(self, pilot: Pilot) -> None:
            if not self.stopped:
                asyncio.get_running_loop().create_task(self.again(pilot))

        async def again(self, pilot: Pilot) -> None:
            pilot.buffer = b""
            await asyncio.sleep(random.random() * self.spread)
            while True:
                try:
                    await self.connect(pilot)
                    self.back += 1
                    return
                except OSError:
                    await asyncio.sleep(0.2 + random.random())

        def trouble(self, pilot: Pilot, status: int, body: bytes) -> None:
            asyncio.get_running_loop().call_later(0.5 + random.random(), pilot.exchange, [])

    async def main() -> None:
        farm = Returning(profile, token, pilots, 1, 1)
        await farm.enrol(at_once=100)
        gc.freeze()
        gc.disable()
        farm.start()
        pipe.send("ready")
        loop = asyncio.get_running_loop()
        while True:
            command = await loop.run_in_executor(None, pipe.recv)
            if command == "answers":
                pipe.send(farm.answers)
            elif command == "back":
                pipe.send(farm.back)
            else:
                farm.stopped = True
                return

    run(main())


def stream(client, rate: int, seconds: int) -> int:  # type: ignore[no-untyped-def]
    """Append tasks at a steady rate, in bursts 20 ms apart; return the bag's number."""
    from windfall.model.spec import Bag, Items, Lines, Target

    bag = client.submit(Bag(name="stream", open=True, targets=[Target(source=Items(items=[]))]))
    each = max(rate // 50, 1)
    began = time.perf_counter()
    for turn in range(seconds * 50):
        time.sleep(max(0.0, began + turn / 50 - time.perf_counter()))
        client.append(bag, Lines(text="\n".join([f"at {time.time():.6f}"] * each), count=each))
    time.sleep(1)
    return int(bag)


def come_back(s: Server, folder, pipe, pilots: int) -> Server:  # type: ignore[no-untyped-def]
    s.stop(signal.SIGKILL)
    began = time.perf_counter()
    s = Server(folder, port=s.port)
    up = time.perf_counter() - began
    back = 0
    while back < pilots and time.perf_counter() - began < 60:
        time.sleep(0.2)
        pipe.send("back")
        back = pipe.recv()
    took = time.perf_counter() - began
    print(f"restart: serving after {up:.1f} s, {back} of {pilots} back after {took:.1f} s (bar 15)")
    return s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilots", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=15)
    options = parser.parse_args()
    raise_file_limit()
    with home() as folder:
        s = Server(folder)
        client = s.client()
        client.add_site("null", "null")
        token = client.add_token("enrol", site="null", days=1)["token"]
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(target=_farm, args=(s.profile, token, options.pilots, theirs))
        began = time.perf_counter()
        process.start()
        assert ours.recv() == "ready"
        took = time.perf_counter() - began
        time.sleep(5)
        print(f"{options.pilots} pilots enrolled in {took:.1f} s; server {s.rss() >> 20} MiB", flush=True)
        counts = client.bag(stream(client, options.rate, options.seconds))["counts"]
        ours.send("answers")
        ms = [1000 * seconds for seconds in ours.recv()]
        print(f"{options.rate}/s for {options.seconds} s: {counts['succeeded']} done; submission to grant: "
              f"p50 {percentile(ms, 50):.1f}  p99 {percentile(ms, 99):.1f} (bar 20)  worst {max(ms):.1f} ms (bar 100); "
              f"server {s.rss() >> 20} MiB (bar 512)", flush=True)
        s = come_back(s, folder, ours, options.pilots)
        ours.send("stop")
        process.join(20)
        s.stop()


if __name__ == "__main__":
    main()
