"""From a site's file to what the core knows of it, and from the core's shapes back to the file's."""

from __future__ import annotations

from windfall.core import facts
from windfall.sites.config import Site
from windfall.sites.job import Shape

ARRAY = 1_000  # pilots in one submission
CANCELS = 500  # jobs in one cancellation
SINGLE = 16  # pilots under way at once where each is a submission of its own
UNKNOWN = 1 << 50  # of memory and disk, where nobody said how much a pilot gets: it will say so itself


def limits(site: Site) -> facts.Limits:
    return facts.Limits([shape(each) for each in site.shapes], site.max_pilots, site.max_queued,
                        budget=site.core_hours * 3_600_000, flight=ARRAY if site.arrays else SINGLE)


def shape(wanted: Shape) -> facts.Shape:
    return facts.Shape(wanted.cores, wanted.memory or UNKNOWN, wanted.gpus, UNKNOWN, wanted.walltime * 1000)


def back(site: Site, wanted: facts.Shape) -> Shape:
    """The file's; one that is not in it any more is made from what is known."""
    for each in site.shapes:
        if shape(each) == wanted:
            return each
    memory = 0 if wanted.memory == UNKNOWN else wanted.memory
    return Shape(max(wanted.wall // 1000, 60), wanted.cores, memory, wanted.gpus)
