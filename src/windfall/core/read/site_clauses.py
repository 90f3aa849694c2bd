"""Why a site without a pilot gets none for a task: its limits, its budget, its batch system."""

from __future__ import annotations

from windfall.core.decide.provision.reconcile import unreserved
from windfall.core.messages.lifecycle import LEAVING, QUEUED, RUNNING
from windfall.core.read.phrases import ClauseReport, clause, core_hours, spell, used_up
from windfall.core.state import accounts
from windfall.core.state.capacity import best_shape
from windfall.core.state.world import SiteState, State, TaskClass
from windfall.model.units import format_core_time, format_size, plural


def site_clause(state: State, site: SiteState, cls: TaskClass, now: int) -> ClauseReport:
    """Report the first thing that keeps the site from running the task."""
    return over_limit(state, site, cls, now) or _over_site_limit(site) or _no_pilot(site, cls, now)


def over_limit(state: State, site: SiteState, cls: TaskClass, now: int) -> ClauseReport | None:
    """Report the limit that one more task would exceed: its owner's allowance, `at-once`, or the site's disk."""
    bag = state.bags[cls.bag]
    if state.allowances and accounts.counts(site, bag.owner) and accounts.allowance(state, bag.owner) >= 0:
        price = cls.cores * cls.nodes * cls.worst_case
        if accounts.left_of_allowance(state, bag.owner, now) < max(price, 1):
            used, pledged = state.usage.get((bag.owner, accounts.month(now)), 0), state.pledged.get(bag.owner, 0)
            most = accounts.allowance(state, bag.owner)
            return clause("allowance", False, used_up("this month's allowance", most, used, pledged) + "what runs")
    if accounts.left_of_group(bag, cls) <= 0:
        return clause("at-once", False, f"{cls.at_once} of them are in play, and no more may be")
    if cls.disk and accounts.left_of_disk(site) < cls.disk:
        return clause("disk", False, f"its disk is taken: tasks there may use {format_size(site.disk_reserved)} of "
                                     f"{format_size(site.limits.disk)}")
    return None


def _over_site_limit(site: SiteState) -> ClauseReport | None:
    """Report the limit that one more pilot would exceed: the site's jobs, its budget, or the user's account there."""
    limits, t = site.limits, site.session
    if not limits.shapes:
        return None
    pilots = site.open
    if limits.jobs and t.account_heard >= 0 and t.other_jobs + pilots >= limits.jobs:
        others, ours = plural(t.other_jobs, "other job"), plural(pilots, "pilot")
        return clause("jobs", False, f"you have {others} there beside {ours}, and may have {limits.jobs} in all")
    least = min(shape.worst for shape in limits.shapes)
    if limits.budget and limits.budget - site.core_ms_used - site.core_ms_reserved < least:
        by = plural(pilots, "queued pilot" if site.waiting == pilots else "pilot")
        says = used_up(f"the budget of {site.name}", limits.budget, site.core_ms_used, site.core_ms_reserved)
        return clause("budget", False, says + by)
    return _over_account(site, least)


def _over_account(site: SiteState, least: int) -> ClauseReport | None:
    t = site.session
    keeps_no_account = t.account_heard >= 0 and t.balance < 0
    if not site.limits.account or keeps_no_account:
        return None
    if t.balance_as_of < 0:
        return clause("account", False, "what the account there has left is not known: nothing is sent before it is")
    if unreserved(site) < least:
        return clause("account", False, f"the account there has {format_core_time(t.balance)} left, and "
                                        f"{core_hours(site.core_ms_reserved)} are reserved by "
                                        f"{plural(site.open, 'pilot')}")
    return None


def _no_pilot(site: SiteState, cls: TaskClass, now: int) -> ClauseReport:
    if site.drained:
        return clause("drained", False, f"it is drained: windfall site undrain {site.name}")
    if site.limits.shapes and best_shape(site, cls, 0) is None:
        return clause("shape", False, "none of the pilots that may be started there could hold it" + _beyond(site, cls))
    if site.suspect_since:
        return clause("answers", False, _suspect(site, now))
    if site.session.retry_after > now:
        left = spell(site.session.retry_after - now + 999)
        return clause("hold", False, "the batch system refused the last pilot, or the pilot came to nothing; next try "
                                     f"in {left} (windfall site show {site.name} says more)")
    queued = len(site.intents[QUEUED])
    return clause("pilots", False, "no pilot is running there" + (f"; {queued} wait in its queue" if queued else ""))


def _beyond(site: SiteState, cls: TaskClass) -> str:
    """Say what no shape of the site's file has; "" if it is not one thing alone."""
    shapes = site.limits.shapes
    wants = (
        (cls.cores, max(shape.cores for shape in shapes), f"{cls.cores} cores"),
        (cls.memory, max(shape.memory for shape in shapes), f"{format_size(cls.memory)} of memory"),
        (cls.gpus, max(shape.gpus for shape in shapes), f"{cls.gpus} GPUs"),
        (cls.nodes, max(shape.nodes for shape in shapes), f"{cls.nodes} nodes"),
        (int(cls.whole), max(int(shape.whole) for shape in shapes), "a whole node"),
        (cls.least_time_left, max(shape.wall - shape.spare if shape.wall else cls.least_time_left for shape in shapes),
         f"{spell(cls.least_time_left)} for a task"),
    )
    missing = [text for wanted, has, text in wants if wanted > has]
    return f": the site's file has no shape with {' or '.join(missing)}" if missing else ""


def _suspect(site: SiteState, now: int) -> str:
    runs = len(site.intents[RUNNING]) + len(site.intents[LEAVING])
    text = f"no message from its provisioner for {spell(now - site.suspect_since)}"
    text += f"; up to {plural(runs, 'pilot')} there may still run" if runs else ""
    return text + "; nothing more is sent there meanwhile"
