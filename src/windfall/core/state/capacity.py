"""Sites and classes: which shape of a site is best for a class of tasks, who may use the site, and where tasks go that
keep failing (G11).

A task that keeps failing (`decide/exchange/verdicts.py`) goes to the one site that its bag names as fail-over site.  P4
outranks that: the task goes to any site while that one is gone, drained or suspect, could not hold it, or has had no
pilot to take it for long (`decide/grant/fail_over.py`).
"""

from __future__ import annotations

from windfall.core.messages.facts import Shape
from windfall.core.state.slots import slots_on
from windfall.core.state.world import BagState, Fit, SiteState, State, TaskClass
from windfall.model.checks.bag import TASK_PILOT_POLICIES

MILLI = 1_000
WALL_STEP = 3  # from one wall time to the next that may be chosen: what a duration failure asks for


def best_shape(site: SiteState, cls: TaskClass, margin: int) -> Fit | None:
    """The shape that takes least of the site for one task; then the shortest that holds it, so that it slips in between
    others.  What has no limit, or is longer than any of them and saves its state, gets the longest time there is."""
    found: tuple[tuple[int, ...], Fit] | None = None
    for place, each in enumerate(site.limits.shapes):
        shape = _cut(each, cls, margin)
        slots = slots_on(shape, cls)
        wall = shape.wall - shape.spare if shape.wall else 1 << 60
        if not slots or wall < cls.least_time_left + margin or _too_dear(site, shape):
            continue
        holds = cls.limit > 0 and wall >= cls.limit + margin
        key = (shape.cores * shape.nodes * MILLI // slots, not holds, wall if holds else -wall, place)
        if found is None or key < found[0]:
            found = key, Fit(shape, slots)
    return found[1] if found else None


def _cut(shape: Shape, cls: TaskClass, margin: int) -> Shape:
    """Cut a shape's wall time, where it may be chosen, to one of a few: alike pilots go into one array."""
    if not shape.least:
        return shape
    wall = shape.least
    while wall < shape.wall and (not cls.limit or wall - shape.spare < cls.limit + margin):
        wall *= WALL_STEP
    return Shape(
        cores=shape.cores, memory=shape.memory, gpus=shape.gpus, disk=shape.disk, wall=min(wall, shape.wall),
        nodes=shape.nodes, whole=shape.whole, spare=shape.spare,
    )


def _too_dear(site: SiteState, shape: Shape) -> bool:
    """Is such a pilot beyond the site's budget, even if all that is reserved came back?"""
    budget = site.limits.budget
    return budget > 0 and shape.worst > budget - site.core_ms_used


def serves(site: SiteState, bag: BagState, cls: TaskClass) -> bool:
    """May the site run such tasks of the bag's owner (P3)?  Python calls go to the owner's own sites only."""
    return bag.owner == site.owner or (bag.owner in site.shared and not bag.targets[cls.target].shape.call)


def fail_over_site(state: State, cls: TaskClass) -> SiteState | None:
    """The one site where such tasks go; None: any will do."""
    if not cls.to_fail_over_site or cls.fail_over_released:
        return None
    bag = state.bags[cls.bag]
    site = state.sites.get(bag.fail_over)
    return None if site is None or why_unusable(site, bag, cls) else site


def why_unusable(site: SiteState, bag: BagState, cls: TaskClass) -> str:
    """Why tasks cannot go there that have failed elsewhere, in a few words."""
    if site.removed or not serves(site, bag, cls):
        return "not yours to use"
    if site.drained:
        return "drained"
    if site.suspect_since:
        return "not answering"
    if bag.provision in TASK_PILOT_POLICIES and not site.limits.shapes:
        return "without pilots for one task each"
    return "without a shape that could hold it" if site.limits.shapes and best_shape(site, cls, 0) is None else ""


def must_go_elsewhere(state: State, site: str, cls: TaskClass) -> bool:
    """Do such tasks go to another site than this one?"""
    only = fail_over_site(state, cls)
    return only is not None and only.name != site
