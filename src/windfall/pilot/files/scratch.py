"""The scratch disk of a pilot: is there room for tasks?

On a full disk one task after the other would fail, through all its retries.  So the pilot takes no task there, says
why, and returns those that failed for lack of room, unless the task itself has filled the disk.
"""

import os

LOW = 32 << 20           # bytes: a disk with less free is full,
PART = 16                # or one with less than this part of its size, where that is less


def trouble(folder, own=0, times=1):
    """Return a sentence if a folder's disk is full even without `own` bytes there, "" if not.

    `times` raises the bound: a pilot in trouble waits for more room than it asked for before.
    """
    try:
        about = os.statvfs(folder)
    except OSError as error:
        return "its scratch folder {} cannot be used: {}".format(folder, error.strerror)
    blocks = about.f_bavail if os.geteuid() else about.f_bfree
    free, size = blocks * about.f_frsize, about.f_blocks * about.f_frsize
    if free + own < times * min(LOW, size // PART):
        return "its scratch disk, with {}, is full: {:.1f} MB of {:,.0f} MB are free".format(
            folder, free / 1e6, size / 1e6)
    if about.f_files and not about.f_favail:
        return "its scratch disk, with {}, takes no more files".format(folder)
    return ""
