"""Why is this task not running?

A task that is ready is held against the pilots of every site: `pilot_clauses.py` reports the clauses of granting for
the pilot that comes nearest, `site_clauses.py` why a site has no pilot for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windfall.core.config import Config
from windfall.core.decide.grant.draft import Recipient
from windfall.core.decide.grant.host_orders import HostOrders
from windfall.core.decide.grant.order import looked_at, reasons, seen_by, serving
from windfall.core.decide.replicas import by_deadline, by_expression, caps, tail
from windfall.core.messages.facts import TO_FAIL_OVER
from windfall.core.messages.lifecycle import (
    CANCELLED,
    FAILED,
    FIRST_FINAL,
    GRANTED,
    LIVE,
    QUARANTINED,
    READY,
    STARTED,
    TASK_STATES,
    WAITING,
)
from windfall.core.read.phrases import ClauseReport, clause, keeps_failing, pilot_deaths, spell, used_up
from windfall.core.read.pilot_clauses import fail_over_text, pilot_clauses
from windfall.core.read.site_clauses import site_clause
from windfall.core.state.capacity import fail_over_site, why_unusable
from windfall.core.state.chains import is_blocked
from windfall.core.state.classes import target_done
from windfall.core.state.world import BagState, PilotState, State, TargetState, TaskClass
from windfall.model.policies import replica_caps
from windfall.model.policies.presets import NONE, PRESETS
from windfall.model.units import plural

UNFINISHED = TASK_STATES[:FIRST_FINAL]
_BELIEFS = {"requeued": "has put its job back into the queue", "stopped": "says that it has stopped its job"}
BUSY = ("free", "room")  # clauses that hold again once a task there has ended


def explain(
    state: State, now: int, bag_number: int, task: int | None = None, config: Config | None = None
) -> dict[str, Any]:
    """Return a summary for one task of a bag, and for each site the clauses that hold and those that fail.

    Without a task: the first that does not run, or else the first that has not ended.  `problem` says what keeps the
    server from granting anything at all."""
    answer = _explain(state, now, state.bags[bag_number], task, config)
    if state.disk_problem and answer["state"] in UNFINISHED:
        beside = "" if answer["state"] == TASK_STATES[READY] else f"; {answer['summary']}"
        answer.update(problem=state.disk_problem, summary=state.disk_problem + beside)
    return answer


def _explain(state: State, now: int, bag: BagState, task: int | None, config: Config | None) -> dict[str, Any]:
    bag_number = bag.number
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
        held = plural(len(state.attempts.of_bag(bag_number)), "attempt")
        answer["summary"] = used_up(f"the budget of bag {bag_number}", bag.budget, bag.spent, bag.pledged) + held
        return answer
    asked = Question(
        state=state, now=now, orders=HostOrders(), config=config or Config(), cls=cls, task=task)
    answer["sites"] = [_site(asked, site.name) for site in state.sites.values()
                       if bag.owner in (site.owner, *site.shared) and not site.removed]  # P3
    answer["summary"] = _summary(state, now, cls, answer["sites"]) + _anywhere(state, bag, cls, task)
    return answer


@dataclass(frozen=True, slots=True)
class Question:
    """The task asked about, and what its answer is worked out from."""

    state: State
    now: int
    orders: HostOrders
    config: Config
    cls: TaskClass
    task: int


def _site(asked: Question, site: str) -> dict[str, Any]:
    """Report the pilot of a site that comes nearest to running the task; without a pilot, why there is none."""
    state, now, cls = asked.state, asked.now, asked.cls
    pilots = [p for p in state.pilots.values() if p.site == site and p.state == LIVE]
    if not pilots:
        refused = [clause(key, False, why) for key, why in reasons(state, now, cls, state.sites[site], None) if why]
        found = _only_site(asked, site) + (refused or [site_clause(state, state.sites[site], cls, now)])
        return {"site": site, "clauses": found}
    free_first = sorted(pilots, key=lambda p: p.load >= p.cores * 1000)[: looked_at(state.bags[cls.bag])]
    best = max((_clauses(asked, pilot) for pilot in free_first), key=_nearness)
    return {"site": site, "pilots": len(pilots), "clauses": best}


def _clauses(asked: Question, pilot: PilotState) -> list[ClauseReport]:
    left = max(pilot.ends - asked.now, 0) if pilot.ends else None
    to = Recipient(asked.state, asked.now, asked.orders, pilot, left, task=asked.task)
    return pilot_clauses(to, asked.cls, asked.config)


def _nearness(clauses: list[ClauseReport]) -> tuple[int, bool]:
    """Order pilots by how few clauses fail; of two, the one with a free slot is the more telling."""
    return -sum(not c["holds"] for c in clauses), any(c["clause"] == "free" and c["holds"] for c in clauses)


def _only_site(asked: Question, site: str) -> list[ClauseReport]:
    """Report the fail-over site, where the task goes to one because it keeps failing."""
    only = fail_over_site(asked.state, asked.cls)
    if only is None:
        return []
    bag = asked.state.bags[asked.cls.bag]
    here = only.name == site
    return [clause("fail-over", here, fail_over_text(bag, asked.task, only.name, here))]


def _first_waiting(bag: BagState) -> int | None:
    """Return the first task that does not run; if all tasks run that have not ended, the first of those."""
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
    """Count the tasks that have not succeeded by their ends, and say what to do about them."""
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
        return f"it was present at {pilot_deaths(bag, task)}: look at its logs, then windfall retry"
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
            then = "waits for evidence that its pilot is dead" if bag.external else "runs again"
            said.append(f"salvaging: its job is gone from {pilot.site}'s batch system, what it left there is looked "
                        f"for, for {left} more; then the task {then}")
        elif pilot.lease_expired:
            said.append(_silent(now, bag, task, pilot))
    if bag.tasks.variant[task] >= TO_FAIL_OVER:
        said.append(f"{keeps_failing(bag, task)}: {bag.fail_over} is where it goes now")
    if said and (why := caps.why_capped(bag, task)):
        beside = " unless it is overdue" if bag.number in state.deadlines and replica_caps.PER_TASK not in why else ""
        said.append(f"no replica of it will be made{beside}: {why}")
    else:
        said += _untried(state, now, bag, task)
    return "; ".join(said) or "active"


def _untried(state: State, now: int, bag: BagState, task: int) -> list[str]:
    """Why no other host tries it, where that is for the user to change."""
    rows = state.attempts.of_task(bag.number << 32 | task)
    said = _no_deadline(state, now, rows) if bag.number in state.deadlines else []
    text, late = bag.replicate_setting, _is_late(state, now, rows)
    if bag.number in state.replicating and text not in PRESETS:
        if why := by_expression.why_not_wanted(state, now, bag, task, text):
            return [*said, f"replicate asks for no replica: {why}"]
        late = True
    if not late or not bag.may_run_twice:
        return said
    if text == NONE and bag.number not in state.deadlines:
        cure = f"windfall policy {bag.number} replicate=tail-safe"
        return [*said, f"with replicate = none no other host tries it: {cure}"]
    return said + _nobody_else(state, now, bag, rows)


def _no_deadline(state: State, now: int, rows: list[int]) -> list[str]:
    """Say of attempts whose deadline expression comes to nothing why it does."""
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
    """Say when an attempt should end, or should have ended; nothing where that is unknown."""
    at = tail.expected_end(state, now, row)
    if not at:
        return ""
    left = at - now
    return f", expected to end in {spell(left)}" if left > 0 else f", expected to have ended {spell(-left)} ago"


def _silent(now: int, bag: BagState, task: int, pilot: PilotState) -> str:
    """Say for how long the pilot has been silent; of a task with external effects, what would prove that it is dead."""
    text = f"that pilot has been silent for {spell(now - pilot.heard)}"
    if not bag.external:
        return text
    if pilot.doubt:
        belief = _BELIEFS.get(pilot.doubt, "has lost its job")
        text += f"; {pilot.site} {belief}, which does not prove that its processes are dead"
    task_of = f"{bag.number} {task}"
    return text + (
        "; the task has external effects, so it starts again only on evidence that this attempt is dead: its pilot's "
        f"word, or that of another pilot on {pilot.host_name}; until then only you can say whether it still runs; if "
        f"it does not, windfall retry {task_of} starts it again, windfall cancel {task_of} gives it up")


def _anywhere(state: State, bag: BagState, cls: TaskClass, task: int) -> str:
    """Say why a task that its bag's fail-over site should take may go to any site."""
    site = state.sites.get(bag.fail_over)
    if not cls.to_fail_over_site or site is None or fail_over_site(state, cls) is not None:
        return ""
    why = why_unusable(site, bag, cls) or "without a pilot that could take it, for long"
    return f"; {keeps_failing(bag, task)}, and any site will do, for {site.name} is {why}"


def _summary(state: State, now: int, cls: TaskClass, sites: list[dict[str, Any]]) -> str:
    if not sites:
        return "no site is known: start a pilot, or add a site"
    open_sites = [site["clauses"] for site in sites if _lets_in(site)]
    if any(not any(c.get("ahead") for c in clauses) for clauses in open_sites):
        return "it is ready; the next pilot that asks can take it"
    if open_sites:
        return (f"all suitable pilots are busy; the next one that asks can hold it ahead; before or beside it: "
                f"{plural(_count_before(state, now, cls), 'task')}")
    if any(_lets_in(site, "data") for site in sites):
        return f"it is withheld until it can run near its data: {_failing(sites, 'data')[0]['says']}"
    if any(_lets_in(site, *BUSY) for site in sites):
        return f"all suitable pilots are busy; before or beside it: {plural(_count_before(state, now, cls), 'task')}"
    return "no pilot can run it: " + "; ".join(f"{c['site']}: {c['clause']} ({c['says']})" for c in _failing(sites))


def _failing(sites: list[dict[str, Any]], clause: str = "") -> list[dict[str, Any]]:
    """Return the clauses that fail, each with its site; with `clause`, only those of that name."""
    return [{"site": site["site"], **each} for site in sites for each in site["clauses"]
            if not each["holds"] and clause in ("", each["clause"])]


def _lets_in(site: dict[str, Any], *but: str) -> bool:
    """Do all clauses of a site hold, but for those named?"""
    return all(c["holds"] or c["clause"] in but for c in site["clauses"])


def _count_before(state: State, now: int, cls: TaskClass) -> int:
    """Count the tasks that are granted no later, by the ranks that they have for the first pilot that may have it."""
    for pilot in state.pilots.values():
        if pilot.state == LIVE and state.serves(state.pilot_classes[pilot.cls], cls):
            seen = seen_by(state, now, pilot, [cls, *(state.classes[number] for _, number in state.ready)])
            if seen[0] is not None:
                mine, others = seen[0], zip(seen[1:], state.ready, strict=True)
                return sum(state.classes[number].ready for place, (_, number) in others
                           if place is not None and place <= mine)
    return sum(state.classes[number].ready for key, number in state.ready if key <= cls.order_key)
