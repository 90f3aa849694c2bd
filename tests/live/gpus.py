"""GPUs on real hardware: who sees which, what is refused, and what a sick one does to its host.

    python -m tests.live.gpus          (scripts/soak gpu)

The program of the tasks asks the driver itself, by the CUDA driver's library: how many GPUs there are, and whether the
first can be written and read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.live.real import CommandLine, Pilots, Server, free_port, serving, until
from windfall import Client, Executor
from windfall.client.handle import BagHandle
from windfall.model.spec import Bag, Items, Resources, Target

PROGRAM = """\
import ctypes, json, os, sys, time
SIZE = 64 << 20
begin = time.time()
cuda = ctypes.CDLL("libcuda.so.1")


def asked(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")


def used():
    context, memory, copy = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * SIZE)()
    asked("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    asked("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE))
    asked("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), ctypes.c_size_t(SIZE))
    asked("cuMemcpyDtoH_v2", copy, memory, ctypes.c_size_t(SIZE))
    assert bytes(copy) == bytes([7]) * SIZE
    time.sleep(float(sys.argv[1]))
    name = (ctypes.c_ubyte * 16)()
    asked("cuDeviceGetUuid", name, 0)
    return bytes(name).hex()


seen = ctypes.c_int(0)
code = cuda.cuInit(0)
if code != 100:  # there is no GPU
    if code:
        sys.exit(f"cuInit: CUDA error {code}")
    asked("cuDeviceGetCount", ctypes.byref(seen))
elif sys.argv[2] == "1":
    sys.exit("this GPU does not answer")
uuid = used() if sys.argv[2] == "1" else ""
print(json.dumps({"count": seen.value, "gpu": uuid, "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
                  "begin": begin, "end": time.time()}))
"""


def installed() -> list[str]:
    """Return the UUIDs of this machine's GPUs, as hexadecimal digits."""
    told = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], check=True, capture_output=True,
                          text=True)
    return [line.strip().removeprefix("GPU-").replace("-", "") for line in told.stdout.splitlines()]


def target(name: str, tasks: int, gpus: int, seconds: float = 0.3, retries: int = 0) -> Target:
    command = f"{sys.executable} {Path('program.py').resolve()} {seconds} {min(gpus, 1)}"
    return Target(name=name, source=Items(items=[command] * tasks), retries=retries,
                  resources=Resources(gpus=gpus))


def told(bag: BagHandle) -> list[dict[str, Any]]:
    return [json.loads(bag.logs(row["task"])) | {"target": row["target"]} for row in bag.results()]


def each_task_sees_its_own_gpu_alone(client: Client, gpus: list[str]) -> None:
    """Tasks with a GPU see one, and never the same at the same time; tasks without see none, beside them."""
    bag = client.submit(Bag(name="gpus", targets=[target("one", 6 * len(gpus), 1), target("none", 12, 0)])).wait()
    assert bag.state == "succeeded", (bag.failures(), bag.logs(0, "err"))
    spans = defaultdict(list)
    for task in told(bag):
        if task["target"] == "none":
            assert (task["count"], task["visible"]) == (0, ""), task
        else:
            assert task["count"] == 1 and task["gpu"] in gpus, task
            spans[task["gpu"]].append((task["begin"], task["end"]))
    assert sorted(spans) == sorted(gpus), f"tasks ran on {len(spans)} of {len(gpus)} GPUs"
    for of_gpu in spans.values():
        assert all(ended <= began for (_, ended), (began, _) in pairwise(sorted(of_gpu))), of_gpu
    print(f"ok: {6 * len(gpus)} tasks on {len(gpus)} GPUs, each alone; 12 tasks beside them saw none")


def calls_see_their_own_gpu_alone(client: Client) -> None:
    with Executor(client, gpus=1) as one, Executor(client) as none:
        seen = [executor.submit(os.getenv, "CUDA_VISIBLE_DEVICES") for executor in (one, none)]
        own, hidden = (future.result(120) for future in seen)
    assert own and "," not in own and hidden == "", (own, hidden)
    print(f"ok: a Python call with gpus=1 saw GPU {own}, one without saw none")


def more_gpus_than_there_are_are_refused_with_the_reason(client: Client, gpus: list[str]) -> None:
    bag = client.submit(Bag(name="many", targets=[target("many", 1, len(gpus) + 1)]))
    said = until(lambda: (now := bag.explain(0)).get("summary") and now)
    assert f"needs {len(gpus) + 1}, the pilot has {len(gpus)}" in json.dumps(said), said
    assert "gpu" in said["summary"].lower(), said["summary"]
    assert bag.cancel() == 1 and bag.wait().state == "cancelled"
    print(f"ok: {len(gpus) + 1} GPUs refused: {said['summary']}")


def sick_gpu_marks_its_host(client: Client, pilots: Pilots, gpus: list[str]) -> None:
    """The sick pilot has a GPU that the driver does not know, as one that has fallen off the bus."""
    pilots.start("sick", 1, "--gpus", 1, CUDA_VISIBLE_DEVICES=str(len(gpus) + 7))
    until(lambda: len(client.pilots()) == 2)
    bag = client.submit(Bag(name="sick", targets=[target("sick", 40, 1, 0.5, retries=6)])).wait()
    assert bag.state == "succeeded", bag.failures()
    marked = client.site("sick")["hosts"]
    assert marked and "failed" in marked[0]["says"] and not client.site("well")["hosts"], marked
    rows = list(bag.results())
    assert {row["site"] for row in rows} == {"well"}, rows
    failures = sum(len(client.task(bag, row["task"])["attempts"]) - 1 for row in rows)
    print(f"ok: a sick GPU failed {failures} attempts and no task; its host is {marked[0]['standing']}: "
          f"{marked[0]['says']}")


def walk(windfall: CommandLine, server: Server) -> None:
    gpus, pilots = installed(), Pilots(windfall)
    print(f"{len(gpus)} GPUs")
    try:
        pilots.start("well", 8)
        with Client(server.profile) as client:
            until(lambda: client.pilots())
            assert client.pilots()[0]["gpus"] == len(gpus), client.pilots()
            each_task_sees_its_own_gpu_alone(client, gpus)
            calls_see_their_own_gpu_alone(client)
            more_gpus_than_there_are_are_refused_with_the_reason(client, gpus)
            sick_gpu_marks_its_host(client, pilots, gpus)
    finally:
        pilots.stop()


def main() -> int:
    with TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        os.chdir(work)
        Path("program.py").write_text(PROGRAM)
        home = Path(folder, "home")
        with serving(home, "--listen", f"127.0.0.1:{free_port()}") as server:
            walk(CommandLine(home, work), server)
        os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
