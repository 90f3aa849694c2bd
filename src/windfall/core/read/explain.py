"""Why is this task not running?  Every reason a grant would have been refused, per site and clause.

The clauses are the ones `granting` goes through, asked one by one so that the failing one can be named.
"""

from __future__ import annotations

from typing import Any

from windfall.core.decide.grant import nearest_data, per_host
from windfall.core.decide.grant.order import looked_at, ranked, reasons, seen_by, serving
from windfall.core.decide.hosts.quarantine import refuses_guest, tasks_allowed
from windfall.core.decide.provision.reconcile import unreserved
from windfall.core.decide.replicas import by_deadline, by_expression, candidates, tail
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import format_value
from windfall.core.messages.facts import TO_FAIL_OVER
from windfall.core.messages.lifecycle import (
    CANCELLED,
    FAILED,
    FIRST_FINAL,
    GRANTED,
    LEAVING,
    LIVE,
    QUARANTINED,
    QUEUED,
    READY,
    RUNNING,
    STARTED,
    TASK_STATES,
    WAITING,
)
from windfall.core.state import accounts
from windfall.core.state.capacity import best_shape, fail_over_site, why_unusable
from windfall.core.state.chains import is_blocked
from windfall.core.state.classes import target_done
from windfall.core.state.world import BagState, PilotClass, PilotState, SiteState, State, TargetState, TaskClass
from windfall.model.policies import replica_caps
from windfall.model.units import format_core_time, format_size, plural

Clause = dict[str, Any]


def explain(state: State, now: int, bag_number: int, task: int | None = None) -> dict[str, Any]:
    bag = state.bags[bag_number]
    if task is None:
        task = _first_waiting(bag)
    if task is None:
        return {"bag": bag_number, "task": None, "state": "ended", "summary": _nothing_left(bag), "sites": []}
    target = bag.targets[bag.target_of(task)]
    code = bag.tasks.state[task]
    name = TASK_STATES[WAITING] if code == READY and target.waits else TASK_STATES[code]
    answer: dict[str, Any] = {"bag": bag_number, "task": task, "state": name, "sites": []}
    if code != READY or target.waits or bag.paused or _fills(bag, task):
        answer["summary"] = _not_ready(state, now, bag, task)
        return answer
    cls = bag.classes[target.index, bag.tasks.variant[task]]
    if bag.budget and not cls.on_ready_list:
        answer["summary"] = _used_up(f"the budget of bag {bag_number}", bag.budget, bag.spent, bag.pledged,
                                     f"{len(state.attempts.of_bag(bag_number))} attempts")
        return answer
    usable = [site.name for site in state.sites.values()
              if bag.owner in (site.owner, *site.shared) and not site.removed]  # P3
    answer["sites"] = [_site(state, now, cls, task, name) for name in usable]
    answer["summary"] = _summary(state, now, cls, answer["sites"]) + _anywhere(state, bag, cls, task)
    return answer


def _first_waiting(bag: BagState) -> int | None:
    """Of those that do not run; if all do that have not ended, the first of these."""
    states = bag.tasks.np_state[: bag.size]
    for asked in ((states == READY) | (states == WAITING), states < FIRST_FINAL):
        if asked.any():
            return int(asked.argmax())
    return None


def _nothing_left(bag: BagState) -> str:
    if not bag.open:
        return "all tasks have ended" + _not_well(bag)
    return ("all tasks that it has so far have ended; it is open, so whoever submitted it may append more: "
            f"if nobody will, windfall cancel {bag.number} closes it")


def _not_well(bag: BagState) -> str:
    """What became of those that have not succeeded, and what to do about them."""
    bad = [(bag.counts[code], TASK_STATES[code]) for code in (FAILED, QUARANTINED, CANCELLED) if bag.counts[code]]
    if not bad:
        return ""
    first = bad[0][1]
    cure = "" if first == TASK_STATES[CANCELLED] else f"; windfall retry {bag.number} runs them again"
    said = ", ".join(f"{n:,} {how}" for n, how in bad)
    return f": {said}; windfall results {bag.number} --state {first} has them{cure}"


def _not_ready(state: State, now: int, bag: BagState, task: int) -> str:
    code = bag.tasks.state[task]
    target = bag.targets[bag.target_of(task)]
    if bag.paused and code == READY:
        return f"the bag is paused: windfall unpause {bag.number}"
    if code == READY:
        open_ = [bag.targets[i].shape.name for i in target.shape.after if not target_done(bag, bag.targets[i])]
        if open_:
            return f"its target waits for {', '.join(open_)}"
        return "the files it takes are being gathered" if target.inputs_pending else _waits_for_batch(now, target)
    if code == WAITING and bag.graph is not None:
        return f"it waits for {plural(bag.graph.pending[task], 'other task')} of the bag"
    if TASK_STATES[code] == "active":
        return _whereabouts(state, now, bag, task)
    if TASK_STATES[code] == "quarantined":
        return f"it was present at {_deaths(bag, task)}: look at its logs, then windfall retry"
    return f"it has ended: {TASK_STATES[code]}"


def _fills(bag: BagState, task: int) -> bool:
    """Is its batch incomplete, and may still be filled?"""
    target, index = bag.locate(task)
    return index in bag.filling(bag.targets[target])


def _waits_for_batch(now: int, target: TargetState) -> str:
    shape, there = target.shape, target.count % target.shape.batch
    left = max(target.filling_since + shape.patience - now, 0)
    return (f"it waits for its batch to fill: {there} of {shape.batch} tasks are there; what there is goes in "
            f"{-(-left // 1000)} s, or when the bag is closed")


def _whereabouts(state: State, now: int, bag: BagState, task: int) -> str:
    said = []
    for row in state.attempts.of_task(bag.number << 32 | task):
        pilot = state.pilots[state.attempts.pilot[row]]
        where = f"on {pilot.host_name} ({pilot.site})"
        if state.attempts.state[row] == STARTED:
            said.append(f"running {where}" + _expected(state, now, row))
        elif state.attempts.state[row] == GRANTED:
            behind = is_blocked(state, row)
            said.append(f"handed to a pilot {where}, " + (
                "to follow the task that it is behind" if behind else "not known to have started"))
        intent = state.intents.get(pilot.intent)
        if intent is not None and intent.salvage_until:
            left = spell(intent.salvage_until - now)
            said.append(f"salvaging: its job is gone from {pilot.site}'s batch system, what it left there is looked "
                        f"for, for {left} more; then the task runs again")
        elif pilot.lease_expired:
            said.append(_silent(now, bag, pilot))
    if bag.tasks.variant[task] >= TO_FAIL_OVER:
        said.append(f"{_keeps_failing(bag, task)}: {bag.fail_over} is where it goes now")
    if said and (why := candidates.why_capped(bag, task)):
        beside = " unless it is overdue" if bag.number in state.deadlines and replica_caps.PER_TASK not in why else ""
        said.append(f"no replica of it will be made{beside}: {why}")
    else:
        said += _untried(state, now, bag, task)
    return "; ".join(said) or "active"


def _untried(state: State, now: int, bag: BagState, task: int) -> list[str]:
    """Why no other host tries it, where that is for the user to change."""
    rows = state.attempts.of_task(bag.number << 32 | task)
    said = _no_deadline(state, now, rows) if bag.number in state.deadlines else []
    text, late = candidates.setting(bag), _is_late(state, now, rows)
    if bag.number in state.replicating and text not in candidates.PRESETS:
        if why := by_expression.why_not_wanted(state, now, bag, task, text):
            return [*said, f"replicate asks for no replica: {why}"]
        late = True
    if not late or not candidates.may_run_twice(bag):
        return said
    if text == candidates.NONE and bag.number not in state.deadlines:
        cure = f"windfall policy {bag.number} replicate=tail-safe"
        return [*said, f"with replicate = none no other host tries it: {cure}"]
    return said + _nobody_else(state, now, bag, rows)


def _no_deadline(state: State, now: int, rows: list[int]) -> list[str]:
    """Of those attempts that should have one, and for which it comes to nothing."""
    said = []
    for row in rows:
        pilot, cls = state.pilots[state.attempts.pilot[row]], state.classes[state.attempts.cls[row]]
        if why := by_deadline.why_no_deadline(state, now, cls, pilot):
            said.append(f"attempt-deadline sets none on {pilot.host_name}: {why}")
    return said


def _is_late(state: State, now: int, rows: list[int]) -> bool:
    """Should it have ended by now?"""
    running = [row for row in rows if state.attempts.state[row] == STARTED]
    return any(0 < tail.expected_end(state, now, row) < now for row in running)


def _nobody_else(state: State, now: int, bag: BagState, rows: list[int]) -> list[str]:
    """Is there no host, beside those that have it, that may have it, too?"""
    hosts = [state.pilots[state.attempts.pilot[row]].row for row in rows]
    others = [pilot for pilot in serving(state, bag) if pilot.row not in hosts]
    if not others:
        return ["no other host serves you now"]
    cls, why = state.classes[state.attempts.cls[rows[0]]], ""
    for pilot in others:
        wanting = [said for _, said in reasons(state, now, cls, state.sites[pilot.site], pilot) if said]
        if not wanting:
            return []
        why = why or f"{pilot.host_name}: {wanting[0]}"
    return [f"of the other hosts that serve you ({len(others)}) none matches: {why}"]


def _expected(state: State, now: int, row: int) -> str:
    """When it should have ended, as far as anybody knows."""
    at = tail.expected_end(state, now, row)
    if not at:
        return ""
    left = at - now
    return f", expected to end in {spell(left)}" if left > 0 else f", expected to have ended {spell(-left)} ago"


def _silent(now: int, bag: BagState, pilot: PilotState) -> str:
    text = f"that pilot has been silent for {spell(now - pilot.heard)}"
    if bag.external:
        text += "; the bag has external effects, so only you can say whether it still runs; if not, "
        text += f"windfall cancel {bag.number} and windfall retry {bag.number} start it again"
    return text


def _used_up(what: str, budget: int, used: int, reserved: int, by: str) -> str:
    said = f"{_hours(used)} of {format_core_time(budget)} used, {_hours(reserved)} reserved by {by}"
    return f"{what} is used up: {said}"


def _hours(ms: int) -> str:
    return format_core_time(ms).removesuffix(" core-hours")


def _site(state: State, now: int, cls: TaskClass, task: int, site: str) -> dict[str, Any]:
    pilots = [p for p in state.pilots.values() if p.site == site and p.state == LIVE]
    if not pilots:
        there = state.sites[site]
        refused = [each for each in _ruled(state, now, cls, there, None) if not each["holds"]]
        nobody = refused or [_no_means(state, there, cls, now) or _nobody(there, cls, now)]
        return {"site": site, "clauses": [*_over(state, cls, task, site), *nobody]}
    free_first = sorted(pilots, key=lambda p: p.load >= p.cores * 1000)[: looked_at(state.bags[cls.bag])]
    best = max((_clauses(state, now, cls, task, p) for p in free_first), key=_nearness)
    return {"site": site, "pilots": len(pilots), "clauses": best}


def _nearness(clauses: list[Clause]) -> tuple[int, bool]:
    """How near such a pilot is to running it; of two, one that is free says more than one that is not."""
    return sum(c["holds"] for c in clauses), any(c["clause"] == "free" and c["holds"] for c in clauses)


def _no_means(state: State, site: SiteState, cls: TaskClass, now: int) -> Clause | None:
    """What would be beyond a limit: of the bag's owner, of the site's disk, of what may be started there."""
    bag = state.bags[cls.bag]
    if state.allowances and accounts.counts(site, bag.owner) and accounts.allowance(state, bag.owner) >= 0:
        price = cls.cores * cls.nodes * cls.worst_case
        if accounts.left_of_allowance(state, bag.owner, now) < max(price, 1):
            used, pledged = state.usage.get((bag.owner, accounts.month(now)), 0), state.pledged.get(bag.owner, 0)
            most = accounts.allowance(state, bag.owner)
            return clause("allowance", False, _used_up("this month's allowance", most, used, pledged, "what runs"))
    if accounts.left_of_group(bag, cls) <= 0:
        return clause("at-once", False, f"{cls.at_once} of them are in play, and no more may be")
    if cls.disk and accounts.left_of_disk(site) < cls.disk:
        return clause("disk", False, f"its disk is taken: tasks there may use {format_size(site.disk_reserved)} of "
                                     f"{format_size(site.limits.disk)}")
    return _no_money(site) if site.limits.shapes else None


def _no_money(site: SiteState) -> Clause | None:
    limits, t = site.limits, site.session
    pilots = site.open
    if limits.jobs and t.account_heard >= 0 and t.other_jobs + site.open >= limits.jobs:
        others, ours = plural(t.other_jobs, "other job"), plural(pilots, "pilot")
        return clause("jobs", False, f"you have {others} there beside {ours}, and may have {limits.jobs} in all")
    least = min(shape.worst for shape in limits.shapes)
    if limits.budget and limits.budget - site.core_ms_used - site.core_ms_reserved < least:
        by = plural(pilots, "queued pilot" if site.waiting == pilots else "pilot")
        said = _used_up(f"the budget of {site.name}", limits.budget, site.core_ms_used, site.core_ms_reserved, by)
        return clause("budget", False, said)
    endless = t.account_heard >= 0 and t.balance < 0  # its batch system keeps no account
    if limits.account and not endless and t.balance_as_of < 0:
        return clause("account", False, "what the account there has left is not known: nothing is sent before it is")
    if limits.account and not endless and unreserved(site) < least:
        return clause("account", False, f"the account there has {format_core_time(t.balance)} left, and "
                                        f"{_hours(site.core_ms_reserved)} are reserved by {plural(pilots, 'pilot')}")
    return None


def _nobody(site: SiteState, cls: TaskClass, now: int) -> Clause:
    if site.drained:
        return clause("drained", False, f"it is drained: windfall site undrain {site.name}")
    if site.limits.shapes and best_shape(site, cls, 0) is None:
        return clause("shape", False, "none of the pilots that may be started there could hold it" + _beyond(site, cls))
    if site.suspect_since:
        return clause("answers", False, _suspect(site, now))
    if site.session.retry_after > now:
        left = spell(site.session.retry_after - now + 999)
        return clause("hold", False, f"it refused, or what was sent there came to nothing; tried again in {left}")
    queued = len(site.intents[QUEUED])
    return clause("pilots", False, "no pilot is running there" + (f"; {queued} wait in its queue" if queued else ""))


def _beyond(site: SiteState, cls: TaskClass) -> str:
    """What no shape of the site's file has; "" if it is not one thing alone."""
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
    missing = [said for wanted, has, said in wants if wanted > has]
    return f": the site's file has no shape with {' or '.join(missing)}" if missing else ""


def _suspect(site: SiteState, now: int) -> str:
    runs = len(site.intents[RUNNING]) + len(site.intents[LEAVING])
    text = f"it has not answered for {spell(now - site.suspect_since)}"
    text += f"; {plural(runs, 'pilot')} there may still run" if runs else ""
    return text + "; nothing more is sent there meanwhile"


def spell(ms: int) -> str:
    """A length of time as people say it."""
    seconds = max(ms, 0) // 1000
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def clause(name: str, holds: bool, says: str) -> Clause:
    return {"clause": name, "holds": holds, "says": says}


def _clauses(state: State, now: int, cls: TaskClass, task: int, pilot: PilotState) -> list[Clause]:
    pc: PilotClass = state.pilot_classes[pilot.cls]
    left = pilot.ends - now if pilot.ends else None
    fits_time = left is None or cls.least_time_left <= left
    time_left = "no end" if left is None else spell(left)
    free = pilot.load + state.cost_on(pc, cls) <= pilot.cores * 1000
    return [
        _owner(state, cls, pc),
        *_over(state, cls, task, pilot.site),
        clause("cores", cls.cores <= pc.cores, f"needs {cls.cores}, the pilot has {pc.cores}"),
        clause("memory", cls.memory <= pilot.memory, _sizes(cls.memory, pilot.memory)),
        clause("gpus", cls.gpus <= pc.gpus, f"needs {cls.gpus}, the pilot has {pc.gpus}"),
        clause("disk", cls.disk <= pilot.disk, _sizes(cls.disk, pilot.disk)),
        *_stinted(state, now, cls, pilot),
        clause(
            "time",
            fits_time,
            f"needs {spell(cls.least_time_left) if cls.least_time_left else 'no known time'}, left {time_left}",
        ),
        *_ruled(state, now, cls, state.sites[pilot.site], pilot),
        *([_per_host(state, now, cls, pilot)] if cls.has_per_host else []),
        *([_host(state, now, pilot)] if pilot.row in state.quarantined else _shunned(state, now, cls, pilot)),
        clause("heard", not pilot.lease_expired, f"last heard {spell(now - pilot.heard)} ago"),
        clause(
            "free",
            free,
            f"it holds {plural(pilot.attempts_held, 'task')}" + ("" if free else ", all its slots are taken"),
        ),
        *([_data(state, now, cls, task, pilot)] if cls.by_data else []),
    ]


def _ruled(state: State, now: int, cls: TaskClass, site: SiteState, pilot: PilotState | None) -> list[Clause]:
    """What the bag's expressions say of it."""
    if not cls.has_expressions:
        return []
    found = [clause(key, not why, why or "they match") for key, why in reasons(state, now, cls, site, pilot)]
    if pilot is not None and "rank" in state.bags[cls.bag].policy:
        rank, why = ranked(state, now, cls, pilot)
        found.append(clause("rank", True, f"it counts as 0, for {why}" if why else f"it is {format_value(rank)} there"))
    return found


def _per_host(state: State, now: int, cls: TaskClass, pilot: PilotState) -> Clause:
    """Whether it lets any go there (`per-host`) is one question, and whether there is `room` now, another."""
    most = per_host.limit(state, now, pilot, cls, attributes.host_ad(state, pilot, now))
    if most < 1:
        return clause("per-host", False, per_host.why_none(state, now, pilot, cls))
    held = per_host.held(state, cls.bag, pilot.row)
    says = f"at most {most} of the bag on one host, there are {held}"
    if most >= per_host.NO_LIMIT:
        why = per_host.why_no_limit(state, now, pilot, cls)
        says = "no limit there" + (f", for {why}" if why else "")
    return clause("room", held < most, says)


def _host(state: State, now: int, pilot: PilotState) -> Clause:
    until = state.quarantined[pilot.row]
    says = f"host {pilot.host_name} is {state.host_reasons.get(pilot.row, 'in doubt')}"
    left = f"; it is given nothing for {spell(until - now)}, then one task" if until > now else ""
    return clause("host", tasks_allowed(state, now, pilot) > 0, says + left)


def _shunned(state: State, now: int, cls: TaskClass, pilot: PilotState) -> list[Clause]:
    if not refuses_guest(state, now, pilot, cls):
        return []
    left = spell(state.guests_refused[pilot.row, state.bags[cls.bag].owner] - now)
    says = f"your last tasks on host {pilot.host_name} failed; it is given none of yours for {left}"
    return [clause("host", False, says)]


def _over(state: State, cls: TaskClass, task: int, site: str) -> list[Clause]:
    """Does it go to one site only, because it keeps failing?"""
    only = fail_over_site(state, cls)
    if only is None:
        return []
    here = only.name == site
    where = "comes here" if here else f"goes to {only.name}"
    return [clause("fail-over", here, f"{_keeps_failing(state.bags[cls.bag], task)} and {where} now")]


def _keeps_failing(bag: BagState, task: int) -> str:
    failures, deaths = bag.tasks.failures[task], bag.tasks.deaths[task]
    said = [f"has failed {plural(failures, 'time')}"] * (failures > 0) + [f"was at {_deaths(bag, task)}"] * (deaths > 0)
    return "it " + " and ".join(said or ["keeps failing"])


def _deaths(bag: BagState, task: int) -> str:
    n = bag.tasks.deaths[task]
    return f"{plural(n, 'death')} of {'a pilot' if n == 1 else 'pilots'}"


def _anywhere(state: State, bag: BagState, cls: TaskClass, task: int) -> str:
    """It should go to one site, and need not."""
    site = state.sites.get(bag.fail_over)
    if not cls.to_fail_over_site or site is None or fail_over_site(state, cls) is not None:
        return ""
    why = why_unusable(site, bag, cls) or "without a pilot that could take it, for long"
    return f"; {_keeps_failing(bag, task)}, and any site will do, for {site.name} is {why}"


def _stinted(state: State, now: int, cls: TaskClass, pilot: PilotState) -> list[Clause]:
    if not accounts.is_accounted(cls) or accounts.Affordable(state, pilot, now).most(cls) > 0:
        return []
    wanting = _no_means(state, state.sites[pilot.site], cls, now)
    return [wanting or clause("means", False, "what it may use at worst is more than is left")]


def _sizes(needs: int, has: int) -> str:
    if not needs:
        return "needs none that is known"
    said, there = format_size(needs), format_size(has)
    return f"needs {said}, has {there}" if said != there else f"needs {needs:,} bytes, has {has:,}"


def _data(state: State, now: int, cls: TaskClass, task: int, pilot: PilotState) -> Clause:
    """Is the task better off there than with whoever asks next?"""
    bag = state.bags[cls.bag]
    assert bag.data_selection is not None
    ahead = nearest_data.outlook(state, now, bag, pilot)
    costs = nearest_data.weigh(state, now, bag, [task], pilot, ahead)
    rank = nearest_data.priority(state, now, bag, [task], pilot, ahead)
    fetch = costs.here / max(bag.data_selection.penalty, 1e-9) / 1000
    if not bag.data_selection.withhold or rank >= 0:
        return clause("data", True, f"bringing its data there takes {fetch:.1f} s")
    says = f"bringing its data there takes {fetch:.1f} s; {costs.where} is expected to ask in {costs.wait / 1000:.1f} s"
    return clause("data", False, f"{says}, and is waited for (priority {rank:.0f}, it grows while the task waits)")


def _owner(state: State, cls: TaskClass, pc: PilotClass) -> Clause:
    calls = state.bags[cls.bag].targets[cls.target].shape.call
    says = f"the pilot is {pc.owners[0]}'s" + ("; calls go to pilots of your own only" if calls else "")
    return clause("owner", state.serves(pc, cls), says)


def _summary(state: State, now: int, cls: TaskClass, sites: list[dict[str, Any]]) -> str:
    if not sites:
        return "no site is known: start a pilot, or add a site"
    if any(all(c["holds"] for c in s["clauses"]) for s in sites):
        return "it is ready; the next pilot that asks can take it"
    held = [c["says"] for s in sites for c in s["clauses"] if c["clause"] == "data" and not c["holds"]]
    if held and any(all(c["holds"] or c["clause"] == "data" for c in s["clauses"]) for s in sites):
        return f"it is withheld until it can run near its data: {held[0]}"
    if any(all(c["holds"] or c["clause"] in ("free", "room") for c in s["clauses"]) for s in sites):
        return f"all suitable pilots are busy; before or beside it: {plural(_ahead(state, now, cls), 'task')}"
    failing = [f"{s['site']}: {c['clause']} ({c['says']})" for s in sites for c in s["clauses"] if not c["holds"]]
    return "no pilot can run it: " + "; ".join(failing)


def _ahead(state: State, now: int, cls: TaskClass) -> int:
    """Tasks that are handed out no later, by the ranks that they have for the first pilot that may have it."""
    for pilot in state.pilots.values():
        if pilot.state == LIVE and state.serves(state.pilot_classes[pilot.cls], cls):
            seen = seen_by(state, now, pilot, [cls, *(state.classes[number] for _, number in state.ready)])
            if seen[0] is not None:
                mine, others = seen[0], zip(seen[1:], state.ready, strict=True)
                return sum(state.classes[number].ready for place, (_, number) in others
                           if place is not None and place <= mine)
    return sum(state.classes[number].ready for key, number in state.ready if key <= cls.order_key)
