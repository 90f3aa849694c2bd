"""Ten thousand pilots long-polling over TLS at a thousand tasks a second: memory, answers, and the way back after a restart.

The answer's time is from submission (as seen by the submitting client) to the grant's arrival at a parked pilot.
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
        """Pilots that come back by themselves, as real ones do: after a random part of the spread."""

        back = 0
        spread = 5.0

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
        farm = Returning(profile, token, pilots, 1, cores=1)
        await farm.enrol(at_once=100)
        gc.freeze()
        farm.start()
        pipe.send("ready")
        loop = asyncio.get_running_loop()
        while True:
            command = await loop.run_in_executor(None, pipe.recv)
            if command == "latencies":
                pipe.send((farm.tasks, farm.arrivals if hasattr(farm, "arrivals") else farm.latencies))
            elif command == "back":
                pipe.send(farm.back)
            else:
                farm.stopped = True
                return

    run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilots", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=15)
    options = parser.parse_args()
    raise_file_limit()
    from windfall.model.spec import Bag, Items, Lines, Target

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
        time.sleep(3)
        print(f"{options.pilots} pilots enrolled in {time.perf_counter() - began:.1f} s; server {s.rss() >> 20} MiB", flush=True)
        bag = client.submit(Bag(name="stream", open=True, targets=[Target(source=Items(items=[]))]))
        answers = []
        each = max(options.rate // 50, 1)
        for turn in range(options.seconds * 50):
            due = began_stream + turn / 50 if turn else (began_stream := time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            t = time.perf_counter()
            client.append(bag, Lines(text="\n".join(["true"] * each), count=each))
            answers.append((time.perf_counter() - t) * 1000)
        time.sleep(1)
        counts = client.bag(bag)["counts"]
        print(f"{options.rate}/s for {options.seconds} s: {counts['succeeded']} done; answer to the submitter "
              f"p50 {percentile(answers, 50):.1f}  p99 {percentile(answers, 99):.1f}  worst {max(answers):.1f} ms; "
              f"server {s.rss() >> 20} MiB", flush=True)
        ours.send("latencies")
        tasks, _ = ours.recv()
        print(f"tasks seen by pilots: {tasks}")
        s.stop(signal.SIGKILL)
        began = time.perf_counter()
        s = Server(folder, port=s.port)
        up = time.perf_counter() - began
        while time.perf_counter() - began < 60:
            ours.send("back")
            if ours.recv() >= options.pilots:
                break
            time.sleep(0.2)
        print(f"restart: serving after {up:.1f} s, all {options.pilots} back after {time.perf_counter() - began:.1f} s (bar 15)")
        ours.send("stop")
        process.join(20)
        s.stop()


if __name__ == "__main__":
    main()
