"""The pilot's clock: seconds that never go back, and that go on while the host sleeps.

A lease, a wall time and a task's limit run out even while the host is suspended, but Linux' monotonic clock stands
still then.  All of the pilot's code that compares times takes them from this module.
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
