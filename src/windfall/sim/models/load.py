"""Background load: other people's jobs on a batch system, from a real log or made up.

`segment` takes a stretch of a log.  `synthetic` makes jobs up, which arrive as a Poisson process at a rate that keeps
the share `busy` of the processors busy.  Widths are powers of two, each half as likely as the one before; run times are
lognormal; users ask for 1 to `pad` times the run time.

Times are seconds from the start of the stretch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.sim.models import swf
from windfall.sim.models.swf import LogJob


class RunTimes(NamedTuple):
    """The lognormal run times of made-up jobs, and what users ask for."""

    median: float = 1800.0
    deviation: float = 1.2  # of the logarithm
    pad: float = 3.0  # users ask for 1 to `pad` times the run time


def segment(path: str | Path, procs: int, start: float = 0.0, length: float | None = None) -> list[LogJob]:
    """Return the jobs submitted between `start` and `start + length`, narrowed to the machine if they are wider."""
    jobs = swf.read(path)
    begin = jobs[0].submit + start if jobs else 0.0
    end = float("inf") if length is None else begin + length
    found = [job._replace(submit=job.submit - begin, procs=min(job.procs, procs))
             for job in jobs if begin <= job.submit < end]
    if not found:
        raise BadInput(f"{path} has no jobs between {start:g} s and {start + (length or 0):g} s of its beginning")
    return found


USUAL_TIMES = RunTimes()


def synthetic(draw: random.Random, procs: int, busy: float, widest: int | None = None,
              times: RunTimes = USUAL_TIMES) -> Iterator[LogJob]:
    """Yield jobs without end; callers take as many as they need."""
    median, deviation, pad = times
    widths = _widths(min(widest or procs, procs))
    weights = [2.0**-n for n in range(len(widths))]
    width = sum(w * p for w, p in zip(widths, weights, strict=True)) / sum(weights)
    gap = width * median * exp(deviation * deviation / 2) / (busy * procs)
    number, now = 0, 0.0
    while True:
        number += 1
        now += draw.expovariate(1 / gap)
        run = max(1.0, median * exp(deviation * draw.gauss(0, 1)))
        yield LogJob(number, now, run, draw.choices(widths, weights)[0], run * draw.uniform(1, pad))


def _widths(most: int) -> list[int]:
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
