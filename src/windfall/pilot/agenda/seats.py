"""Seats: which of the pilot's cores, memory and GPUs are promised to which station (P5).  Pure.

Theory
  * A *seat* is a set of resources held at one *station* (a spawner).  A running task sits in a seat.
  * A station may be given more tasks than it has seats: it starts the next task, in order, when one ends, without
    asking.  That is only sound when the next task needs what the last one held, so a station with tasks *staged*
    like this has seats of one single need.  Tasks with GPUs are never staged: the agenda picks the GPU.
  * A seat is closed when its station has fewer tasks than seats.  So the tasks that run at a station never exceed its
    seats, and the seats never exceed the pilot, whatever messages are still under way.
"""


class Station:
    __slots__ = ("index", "placed", "needs", "changed_at")

    def __init__(self, index):
        self.index = index
        self.placed = 0      # tasks given to it and not ended
        self.needs = []      # one entry per seat
        self.changed_at = 0  # when a task last came or ended there

    def staged(self):
        return self.placed - len(self.needs)

    def can_stage(self, need, depth):
        """Have all seats this need, and fewer than `depth` staged tasks each?"""
        seats = len(self.needs)
        staged = self.placed - seats
        if not seats or staged >= depth * seats or self.needs[0] != need:
            return False
        return staged > 0 or self.needs.count(need) == seats  # with staged tasks all seats are equal already

    def problem(self):
        """Return a sentence when a rule of this module is broken, else "" (for tests)."""
        if self.placed < len(self.needs):
            return "a seat has no task"
        if self.staged() and len(set(self.needs)) != 1:
            return "tasks are staged behind seats of different needs"
        return ""


class Seats:
    __slots__ = ("cores", "memory", "gpus", "free_cores", "free_memory", "free_gpus", "stations")

    def __init__(self, cores, memory=0, gpus=(), stations=1):
        self.cores = cores
        self.memory = memory
        self.gpus = list(gpus)
        self.free_cores = cores
        self.free_memory = memory
        self.free_gpus = list(gpus)
        self.stations = [Station(i) for i in range(stations)]

    def whole(self):
        """Return the need of a task that takes the whole pilot."""
        return self.cores, self.memory, len(self.gpus)

    def could_fit(self, need):
        """Could a task with this need run on the empty pilot?"""
        cores, memory, gpus = need
        return cores <= self.cores and gpus <= len(self.gpus) and (not self.memory or memory <= self.memory)

    def fits(self, need):
        """Can a task with this need run now?"""
        return (need[0] <= self.free_cores and need[2] <= len(self.free_gpus)
                and (not self.memory or need[1] <= self.free_memory))

    def open(self, need, now):
        """Open a seat for a task that starts at once; return (station, gpu ids), or None if there is no room."""
        if not self.fits(need):
            return None
        best = None
        for station in self.stations:
            if station.staged() and station.needs[0] != need:
                continue
            if best is None or len(station.needs) < len(best.needs):
                best = station
        if best is None:
            return None
        best.needs.append(need)
        best.placed += 1
        best.changed_at = now
        return best, self._take(need)

    def stage(self, need, depth):
        """Stage a task at the station with the fewest staged tasks, at most `depth` per seat; return it or None."""
        if depth <= 0 or need[2]:
            return None
        best, least = None, 0
        for station in self.stations:
            staged = station.placed - len(station.needs)
            if (best is None or staged < least) and station.can_stage(need, depth):
                best, least = station, staged
        if best is not None:
            best.placed += 1
        return best

    def release(self, station, need, gpus, now):
        """Note that a task of this station ended, or came back unstarted."""
        station.placed -= 1
        station.changed_at = now
        if station.placed < len(station.needs):
            station.needs.remove(need)
            self._give(need, gpus)

    def _take(self, need):
        cores, memory, gpus = need
        self.free_cores -= cores
        self.free_memory -= memory
        if not gpus:
            return ()
        taken, self.free_gpus = self.free_gpus[:gpus], self.free_gpus[gpus:]
        return taken

    def _give(self, need, gpus):
        cores, memory, _ = need
        self.free_cores += cores
        self.free_memory += memory
        if gpus:
            self.free_gpus = sorted(self.free_gpus + list(gpus), key=self.gpus.index)

    def problem(self):
        """Return a sentence when a rule of this module is broken, else "" (for tests)."""
        needs = [need for station in self.stations for need in station.needs]
        checks = ((0, self.free_cores, self.cores, "cores"), (1, self.free_memory, self.memory, "memory"),
                  (2, len(self.free_gpus), len(self.gpus), "GPUs"))
        for index, free, total, name in checks:
            if sum(need[index] for need in needs) + free != total or (total and free < 0):
                return "{} do not add up".format(name)
        return next(filter(None, (station.problem() for station in self.stations)), "")
