"""Limits and shapes of a site: translated from its file to the core's records, and shapes back again."""

from __future__ import annotations

from windfall.core.messages import facts
from windfall.sites.dialects.job import Shape
from windfall.sites.site_file import Site

PILOTS = 100  # at a site whose file sets no limit
ARRAY = 1_000  # pilots in one submission
CANCELS = 500  # jobs in one cancellation
SALVAGES = 50  # pilots in one salvage
SINGLE = 16  # submissions under way at once where the site takes no arrays
LEAVING = 30_000  # ms that a pilot takes at most to send its results at its end
UNKNOWN = 1 << 50  # memory and disk of a pilot before it enrols, if the site's file does not tell


def limits(site: Site, cores: int = 0) -> facts.Limits:
    """Return the site's limits.  `cores`: of a machine without batch system, where every submitted pilot runs."""
    most = site.max_pilots or (max(1, cores // min(each.cores for each in site.shapes)) if cores else PILOTS)
    counts = {None: facts.COUNTS_FOR_OTHERS, True: facts.COUNTS, False: facts.COUNTS_NOT}[site.counts]
    return facts.Limits(
        shapes=[shape(site, each) for each in site.shapes], pilots=most, queued=site.max_queued, share=site.share,
        delay=site.start_delay * 1000, budget=site.core_hours * 3_600_000, flight=ARRAY if site.arrays else SINGLE,
        jobs=site.max_jobs, disk=site.disk, counts=counts, account=site.balance)


def shape(site: Site, wanted: Shape) -> facts.Shape:
    """Return the core's shape of a pilot.  A pilot ends before the grace, and stops starting tasks a little earlier."""
    usable = max(wanted.walltime - site.grace, 1)
    spare = site.grace * 1000 + min(LEAVING, usable * 100)
    return facts.Shape(
        cores=wanted.cores, memory=wanted.memory or UNKNOWN, gpus=wanted.gpus, disk=UNKNOWN,
        wall=wanted.walltime * 1000, nodes=wanted.nodes, whole=wanted.whole, least=wanted.least * 1000, spare=spare)


def site_shape(site: Site, wanted: facts.Shape) -> Shape:
    """Return the site file's shape for a shape of the core; rebuild one that the file no longer has."""
    for each in site.shapes:
        if shape(site, each) == wanted:
            return each
    memory = 0 if wanted.memory == UNKNOWN else wanted.memory
    return Shape(walltime=max(wanted.wall // 1000, 60), cores=wanted.cores, memory=memory, gpus=wanted.gpus,
                 nodes=wanted.nodes, whole=wanted.whole)
