"""How much of two bare posix_spawn loops does the pilot keep?  `python tests/pilot/throughput.py [tasks] [rounds]`

Null tasks (/bin/true) through pilot and harness, against two processes that do nothing but spawn and wait, in turn,
with the same environment.  The harness' own cost is in the figure; the real server's is another.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", "..", "src"), os.path.dirname(__file__)]

from harness import Pilot, Server, call  # noqa: E402


def _loop(count, env):
    null = os.open("/dev/null", os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], env, file_actions=actions), 0)


def floor(tasks):
    env = dict(os.environ, WINDFALL_PILOT="0" * 16, WINDFALL_ATTEMPT="10000")
    begin = time.monotonic()
    pids = []
    for _ in range(2):
        pid = os.fork()
        if not pid:
            _loop(tasks // 2, env)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return tasks / (time.monotonic() - begin)


def through_pilot(tasks, command=("/bin/true",), tls=True, **spec):
    folder = tempfile.mkdtemp()
    server = Server(folder, tls=tls)
    pilot = Pilot(server, "--cores", "2", "--idle", "20")
    try:
        server.submit([10 ** 6, list(command) if not spec else command], **spec)
        server.result(10 ** 6)
        begin = time.monotonic()
        server.submit(*[[i, list(command) if not spec else command] for i in range(1, tasks + 1)], **spec)
        server.wait_for(lambda: len(server.reports) > tasks, 120)
        return tasks / (time.monotonic() - begin), len(server.requests)
    finally:
        pilot.end()
        server.close()
        shutil.rmtree(folder)


def round_trips(count, command, **spec):
    folder = tempfile.mkdtemp()
    server = Server(folder, tls=True)
    pilot = Pilot(server, "--cores", "2", "--idle", "20")
    times = []
    try:
        for attempt in range(1, count + 1):
            begin = time.monotonic()
            server.submit([attempt, command], **spec)
            server.result(attempt)
            times.append(1000 * (time.monotonic() - begin))
            time.sleep(0.003)
    finally:
        pilot.end()
        server.close()
        shutil.rmtree(folder)
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99) - 1]


def main():
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ratios = []
    for _ in range(rounds):
        bare = floor(tasks)
        ours, requests = through_pilot(tasks)
        ratios.append(ours / bare)
        print(f"bare {bare:.0f}/s  pilot {ours:.0f}/s  ratio {ours / bare:.2f}  exchanges {requests}")
    print(f"median ratio {statistics.median(ratios):.2f}")
    rate, requests = through_pilot(tasks, call(abs, -1), kind="call")
    print(f"calls {rate:.0f}/s  exchanges {requests}")
    print("round trip of a command p50 {:.2f} ms p99 {:.2f} ms".format(*round_trips(200, ["/bin/true"])))
    print("round trip of a call p50 {:.2f} ms p99 {:.2f} ms".format(*round_trips(200, call(abs, -1), kind="call")))


if __name__ == "__main__":
    main()
