"""Seats: what of the pilot's cores, memory and GPUs is promised to whom (P5).  Pure.

Theory
  * A *seat* is a set of resources held at one *station* (a spawner).  A running task sits in a seat.
  * A station may be given more tasks than it has seats: it starts the next one, in order, when a task ends, without
    asking.  That is only sound when the next task needs what the last one held, so a station with tasks *staged*
    like this has seats of one single need.  Tasks with GPUs are never staged: which GPU is decided here.
  * A seat is closed when its station has fewer tasks than seats.  So what runs at a station never exceeds its seats,
    and the seats never exceed the pilot, whatever messages are still under way.
"""


class Station:
    __slots__ = ("index", "placed", "needs", "moved")

    def __init__(self, index):
        self.index = index
        self.placed = 0      # tasks given to it and not ended
        self.needs = []      # one entry per seat
        self.moved = 0       # when a task last came or ended there

    def staged(self):
        return self.placed - len(self.needs)


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
        """The need of a task that wants all there is."""
        return self.cores, self.memory, len(self.gpus)

    def ever(self, need):
        """Can a task with this need run here at all?"""
        cores, memory, gpus = need
        return cores <= self.cores and gpus <= len(self.gpus) and (not self.memory or memory <= self.memory)

    def fits(self, need):
        return (need[0] <= self.free_cores and need[2] <= len(self.free_gpus)
                and (not self.memory or need[1] <= self.free_memory))

    def open(self, need, now):
        """(station, gpu ids) for a task to start at once, or None."""
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
        best.moved = now
        return best, self._take(need)

    def stage(self, need, depth):
        """The station where a task may wait behind `depth` others per seat at most, or None."""
        if depth <= 0 or need[2]:
            return None
        best, least = None, 0
        for station in self.stations:
            seats = len(station.needs)
            staged = station.placed - seats
            if not seats or staged >= depth * seats or station.needs[0] != need:
                continue
            if best is not None and staged >= least:
                continue
            if staged or station.needs.count(need) == seats:
                best, least = station, staged
        if best is not None:
            best.placed += 1
        return best

    def leave(self, station, need, gpus, now):
        """A task of this station ended, or came back unstarted."""
        station.placed -= 1
        station.moved = now
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
        """A sentence when a rule of this module is broken, else "" (for tests)."""
        needs = [need for station in self.stations for need in station.needs]
        if sum(n[0] for n in needs) + self.free_cores != self.cores or self.free_cores < 0:
            return "cores do not add up"
        if sum(n[1] for n in needs) + self.free_memory != self.memory or (self.memory and self.free_memory < 0):
            return "memory does not add up"
        if sum(n[2] for n in needs) + len(self.free_gpus) != len(self.gpus):
            return "GPUs do not add up"
        for station in self.stations:
            if station.placed < len(station.needs):
                return "a seat without a task"
            if station.staged() and len(set(station.needs)) != 1:
                return "tasks staged behind seats of different needs"
        return ""
