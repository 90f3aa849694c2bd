"""From a site's file to what the core knows of it, and from the core's shapes back to the file's."""

from __future__ import annotations

from windfall.core.messages import facts
from windfall.sites.dialects.job import Shape
from windfall.sites.site_file import Site

PILOTS = 100  # at a site whose file does not say how many
ARRAY = 1_000  # pilots in one submission
CANCELS = 500  # jobs in one cancellation
SALVAGES = 50  # pilots that one command looks for
SINGLE = 16  # pilots under way at once where each is a submission of its own
LEAVING = 30_000  # ms that a pilot takes at most to bring home what it has
UNKNOWN = 1 << 50  # of memory and disk, where nobody said how much a pilot gets: it will say so itself


def limits(site: Site, cores: int = 0) -> facts.Limits:
    """`cores`: of a machine without a batch system, where all that is submitted runs."""
    most = site.max_pilots or (max(1, cores // min(each.cores for each in site.shapes)) if cores else PILOTS)
    counts = {None: facts.COUNTS_FOR_OTHERS, True: facts.COUNTS, False: facts.COUNTS_NOT}[site.counts]
    return facts.Limits([shape(site, each) for each in site.shapes], most, site.max_queued, site.share,
                        site.start_delay * 1000, site.core_hours * 3_600_000, ARRAY if site.arrays else SINGLE,
                        site.max_jobs, site.disk, counts, site.balance)


def shape(site: Site, wanted: Shape) -> facts.Shape:
    """A pilot keeps out of the grace at its end, and begins to leave somewhat before that."""
    usable = max(wanted.walltime - site.grace, 1)
    spare = site.grace * 1000 + min(LEAVING, usable * 100)
    return facts.Shape(wanted.cores, wanted.memory or UNKNOWN, wanted.gpus, UNKNOWN, wanted.walltime * 1000,
                       wanted.nodes, wanted.whole, wanted.least * 1000, spare)


def back(site: Site, wanted: facts.Shape) -> Shape:
    """The file's; one that is not in it any more is made from what is known."""
    for each in site.shapes:
        if shape(site, each) == wanted:
            return each
    memory = 0 if wanted.memory == UNKNOWN else wanted.memory
    return Shape(max(wanted.wall // 1000, 60), wanted.cores, memory, wanted.gpus, wanted.nodes, wanted.whole)
