"""At what time a core goes on after a recovery: a wall clock that is wrong once must not age anything.

The wall clock usually says the truth, and a server may have rested for months.  So its time is taken if it lies within
JUMP of the journal's last time.  The bound is 400 days: a server that rests longer is rarer than a clock that
is wrong by years, and the tokens that a smaller error may end (of pilots, of tickets) are made anew anyway; the owner's
lasts ten years.  Beyond the bound, time goes on from the last commit until a person says which of the two is right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

DAY = 86_400_000
JUMP = 400 * DAY
_MEND = "stop the server, and then: windfall doctor --clock"


class StartTime(NamedTuple):
    now: int
    problem: str  # a sentence for people; empty where the clocks agree


def start_time(last: int, wall: int, jump: int = JUMP) -> StartTime:
    """Return the time to go on at: `last` is the journal's last time (0: there is none), `wall` the machine's clock."""
    now = max(last, wall)
    if not last or abs(wall - last) <= jump:
        return StartTime(now, "")
    days = abs(wall - last) // DAY
    if wall > last:
        return StartTime(last, (
            f"this machine's clock says {date_of(wall)}, {days} days after the journal's last commit"
            f" ({date_of(last)}); until you confirm that, time goes on from that commit, and nothing ages.  If the"
            f" clock is right, {_MEND}; else set the clock and start the server again"))
    return StartTime(last, (
        f"the journal's last commit is dated {date_of(last)}, {days} days after this machine's clock ({date_of(wall)});"
        f" time goes on from that commit.  If the machine's clock is right, {_MEND}; else set it and start the server"
        " again"))


def date_of(at: int) -> str:
    return str(np.datetime64(at, "ms").astype("datetime64[D]"))
