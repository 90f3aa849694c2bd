"""The agent's side of its spawners: forks them, sends them orders in batches, knows what ran when one dies."""

import gc
import mmap
import os
import signal
import socket
from collections import OrderedDict

from windfall.pilot.run import proctree, spawn
from windfall.pilot.run.channel import ROW, Frames

MAX_STATIONS = 4
SPECS = 256              # specs a spawner remembers



def count_for(cores):
    return max(1, min(cores, MAX_STATIONS))


class Post:
    """One spawner as the agent sees it."""

    def __init__(self, index, pid, frames, table, slots):
        self.index = index
        self.pid = pid
        self.frames = frames
        self.table = table
        self.slots = slots
        self.specs = OrderedDict()  # keys it has been told and remembers, least recently used first
        self.orders = []
        self.runs = []
        self.width = 0
        self.serial = 0          # counts what it was given; it starts them in this order

    def run(self, task, cwd):
        spec = task.spec
        if spec.key not in self.specs:
            self._teach(spec)
        self.specs.move_to_end(spec.key)
        self.width = task.seats
        self.serial += 1
        task.serial = self.serial
        self.runs.append((task.attempt, spec.key, task.command, task.extra, task.start_before, tuple(task.gpus), cwd,
                          self.serial))

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
        """Send what has gathered; True when all of it is out."""
        self._close_runs()
        try:
            if self.orders:
                orders, self.orders = self.orders, []
                return self.frames.send(orders)
            return self.frames.push()
        except OSError:
            return True  # it died; its silence is noticed when we read

    def running(self):
        """[(attempt, pid)] it runs now, or ran when it died."""
        rows = (ROW.unpack_from(self.table, (i + 1) * ROW.size) for i in range(self.slots))
        return [row for row in rows if row[1]]

    def last_begun(self):
        """Serial number of the last task it has begun to start: those before are started, those after are not."""
        return ROW.unpack_from(self.table, 0)[0]


class Stations:
    def __init__(self, count, cores, folder, *, mark, script, gpus, environments):
        self.cores = cores
        self.folder = folder
        self.mark = mark
        self.script = script
        self.gpus = gpus
        self.environments = environments
        self.lives = 0
        self.posts = [self._start(index) for index in range(count)]

    def _start(self, index):
        """Fork a spawner.  Its directory is new: the last life's may be in any state."""
        self.lives += 1
        folder = os.path.join(self.folder, "w{}".format(self.lives))
        os.mkdir(folder, 0o700)
        ours, theirs = socket.socketpair()
        slots = self.cores + 1
        table = mmap.mmap(-1, ROW.size * (slots + 1))
        pid = os.fork()
        if not pid:
            self._become_spawner(theirs, table, folder)
        theirs.close()
        return Post(index, pid, Frames(ours), table, slots)

    def _become_spawner(self, sock, table, folder):
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            spawn.close_all_but(sock.fileno())
            gc.set_threshold(20000)
            from windfall.pilot.run.spawner import Spawner
            Spawner(sock, table, folder, mark=self.mark, script=self.script, gpus=self.gpus,
                    environments=self.environments).serve()
        except BaseException as error:
            _complain("spawner: {}: {}".format(type(error).__name__, error))
            proctree.kill_descendants()  # a bug of ours must not leave tasks that nobody watches
        finally:
            os._exit(code)

    def restart(self, index):
        self.posts[index].frames.close()
        self.posts[index] = self._start(index)
        return self.posts[index]

    def pids(self):
        return [post.pid for post in self.posts]


def _complain(text):
    try:
        import traceback
        os.write(2, "windfall-pilot: {}\n{}".format(text, traceback.format_exc()).encode())
    except OSError:
        pass
