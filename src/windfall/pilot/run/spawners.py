"""The agent's side of its spawners: forks them, sends them orders in batches, and knows what ran when one dies."""

import gc
import mmap
import os
import signal
import socket
from collections import OrderedDict, namedtuple

from windfall.pilot.run import proctree, spawn
from windfall.pilot.run.channel import ROW, Frames

MAX_SPAWNERS = 4
SPECS = 256              # most specs that a spawner remembers


class SpawnerSettings(namedtuple("SpawnerSettings", "mark script gpus environments")):
    """The pilot's settings for each spawner: its mark in the environment of tasks, the runner's script, whether it
    manages GPUs, and the folder of packed environments.
    """

    __slots__ = ()


def count_for(cores):
    return max(1, min(cores, MAX_SPAWNERS))


class SpawnerHandle:
    """A spawner as the agent sees it."""

    def __init__(self, index, pid, frames, table):
        self.index = index
        self.pid = pid
        self.frames = frames
        self.table = table
        self.specs = OrderedDict()  # keys of the specs that the spawner remembers, least recently used first
        self.orders = []
        self.runs = []
        self.width = 0
        self.serial = 0          # counts the tasks given to the spawner, which starts them in this order

    def run(self, task, cwd):
        spec = task.spec
        if spec.key not in self.specs:
            self._teach(spec)
        self.specs.move_to_end(spec.key)
        self.width = task.seats
        self.serial += 1
        task.serial = self.serial
        self.runs.append((task.attempt, spec.key, task.command, task.extra, task.start_before, tuple(task.gpus), cwd,
                          self.serial, task.number))

    def _teach(self, spec):
        self.specs[spec.key] = True
        if len(self.specs) > SPECS:
            self.order("forget", [self.specs.popitem(last=False)[0]])
        self.orders.append(("specs", {spec.key: spec.fields}))

    def order(self, *order):
        self._close_runs()
        self.orders.append(order)

    def _close_runs(self):
        if self.runs:
            self.orders.append(("run", self.width, self.runs))
            self.runs = []

    def flush(self):
        """Send the orders gathered; return True when all of them are out."""
        self._close_runs()
        try:
            if self.orders:
                orders, self.orders = self.orders, []
                return self.frames.send(orders)
            return self.frames.push()
        except OSError:
            return True  # the spawner died, which the agent notices when it reads

    def running(self):
        """Return [(attempt, pid)] of the tasks that the spawner runs, or ran when it died."""
        rows = (ROW.unpack_from(self.table, at) for at in range(ROW.size, len(self.table), ROW.size))
        return [row for row in rows if row[1]]

    def last_begun(self):
        """Return the serial number of the last task that the spawner began to start; later ones have not started."""
        return ROW.unpack_from(self.table, 0)[0]


class Spawners:
    def __init__(self, count, cores, folder, settings):
        self.cores = cores
        self.folder = folder
        self.settings = settings
        self.started = 0
        self.handles = [self._start(index) for index in range(count)]

    def _start(self, index):
        """Fork a spawner with a new directory: a killed spawner leaves its own in any state."""
        self.started += 1
        folder = os.path.join(self.folder, "w{}".format(self.started))
        os.mkdir(folder, 0o700)
        ours, theirs = socket.socketpair()
        slots = self.cores + 1
        table = mmap.mmap(-1, ROW.size * (slots + 1))
        pid = os.fork()
        if not pid:
            self._become_spawner(theirs, table, folder)
        theirs.close()
        return SpawnerHandle(index, pid, Frames(ours), table)

    def _become_spawner(self, sock, table, folder):
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            spawn.close_all_but(sock.fileno())
            gc.set_threshold(20000)
            from windfall.pilot.run.spawner import Spawner
            Spawner(sock, table, folder, self.settings).serve()
        except BaseException as error:
            _complain("spawner: {}: {}".format(type(error).__name__, error))
            proctree.kill_descendants()  # a bug in the spawner must not leave tasks that nobody watches
        finally:
            os._exit(code)

    def restart(self, index):
        self.handles[index].frames.close()
        self.handles[index] = self._start(index)
        return self.handles[index]

    def pids(self):
        return [spawner.pid for spawner in self.handles]


def _complain(text):
    try:
        import traceback
        os.write(2, "windfall-pilot: {}\n{}".format(text, traceback.format_exc()).encode())
    except OSError:
        pass
