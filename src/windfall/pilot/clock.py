"""The pilot's clock: seconds that never go back, and that go on while the host sleeps.

A lease, a wall time and a task's limit run out whether or not this machine was suspended; Linux' monotonic clock stands
still meanwhile.  Everything that compares times takes them from here.
"""

import functools
import sys
import time

_BOOTTIME = 7  # CLOCK_BOOTTIME, which has a name in Python 3.7 only


def pick():
    if sys.platform.startswith("linux"):
        try:
            time.clock_gettime(_BOOTTIME)
            return functools.partial(time.clock_gettime, _BOOTTIME)
        except (AttributeError, OSError):
            pass  # an old kernel, or a sandbox
    return time.monotonic


seconds = pick()


def milliseconds():
    return int(seconds() * 1000)
