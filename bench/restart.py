"""With a million tasks done and ten million queued, how soon after a kill does the server grant again?"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import signal
import time

from common import Server, home
from dispatch import Load, measure


def _first_grant(profile: dict, token: str, out: mp.Queue) -> None:  # type: ignore[type-arg]
    from nullpilots import Farm, run

    async def main() -> None:
        farm = Farm(profile, token, 1, 1, cores=1)
        await farm.enrol()
        farm.goal = 1
        farm.start()
        await farm.reached.wait()
        out.put(time.time())
        farm.stopped = True
        await asyncio.sleep(0.05)

    run(main())


def main() -> None:
    with home() as folder:
        s = Server(folder)
        rate = measure(s, Load(10, 100, 1_000_000, queued=11_000_000))
        print(f"1,000,000 done at {rate:,.0f}/s; server {s.rss() >> 20} MiB", flush=True)
        token = s.client().add_token("enrol", site="null")["token"]
        s.stop(signal.SIGKILL)
        began = time.time()
        s = Server(folder, port=s.port)
        up = time.time() - began
        out: mp.Queue[float] = mp.get_context("spawn").Queue()
        process = mp.get_context("spawn").Process(target=_first_grant, args=(s.profile, token, out))
        process.start()
        granted = out.get(timeout=60)
        process.join(10)
        print(f"serving {up:.2f} s, first grant {granted - began:.2f} s after the restart (bar 5)")
        s.stop()


if __name__ == "__main__":
    main()
