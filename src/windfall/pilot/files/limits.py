"""Limits on sending files: a task's outputs keep to its limits, and their sending ends with its bag.

Hashing and sending may take as long again as the task's time limit, without the time for which the server made the
pilot wait.  Files count by the size that they show, so that a file with holes counts like the bytes that are sent.
"""

from windfall.errors import WindfallError
from windfall.pilot import clock


class Closing(Exception):
    """The pilot leaves, so it breaks off the transfer and keeps the results in the outbox."""


class Cancelled(Closing):
    """The attempt was cancelled, so the pilot breaks off the transfer and drops the results."""


class OverLimit(WindfallError):
    """The task's outputs are over one of its limits; `why` names the limit."""

    def __init__(self, why, message):
        super().__init__(message)
        self.why = why


class Limits:
    """The limits of one sending; ms and bytes, 0 for none."""

    def __init__(self, time=0, disk=0, cancelled=lambda: False):
        self.time = time
        self.disk = disk
        self.cancelled = cancelled   # function
        self.began = clock.seconds()
        self.waited = 0.0            # seconds for which the server made the pilot wait
        self.size = 0

    def check(self):
        """Raise an error if the sending must end."""
        if self.cancelled():
            raise Cancelled()
        if self.time and 1000 * (clock.seconds() - self.began - self.waited) > self.time:
            raise OverLimit("time", "sending its outputs took longer than its time limit of {:g} s".format(
                self.time / 1000))

    def add(self, path, size):
        """Count a file; raise OverLimit if all files together are too large."""
        self.size += size
        if self.disk and self.size > self.disk:
            raise OverLimit("disk", "with {} ({:,} bytes) its outputs are over its disk limit of {:,} bytes".format(
                path, size, self.disk))
