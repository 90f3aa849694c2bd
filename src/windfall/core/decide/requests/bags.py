"""What users ask for: submit, append, close, pause, cancel, retry, remove; sites and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.data.lost_copies import make_again
from windfall.core.decide.exchange.verdicts import cancel_stranded, runs_of, runs_where
from windfall.core.decide.grant import fair_share
from windfall.core.decide.grant.nearest_data import wrong_parameter
from windfall.core.decide.grant.order import prospects, wrong_policy
from windfall.core.decide.provision.demand import PROVISIONS, wrong_limit
from windfall.core.decide.replicas import by_deadline
from windfall.core.decide.replicas.candidates import NONE, PRESETS
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, GRANTED, READY, SUCCEEDED, WAITING
from windfall.core.state import accounts, chains
from windfall.core.state.classes import append_key, digest, part_body, spans, submission_key, target_done
from windfall.core.state.copies import wrong_with
from windfall.core.state.graph import as_pairs
from windfall.core.state.world import BagState, State
from windfall.model.checks.bag import pointless
from windfall.model.spec import MAX_TASKS, MAX_WEIGHT
from windfall.model.suggest import nearest

if TYPE_CHECKING:
    from windfall.core.step import Core

States = NDArray[np.uint8]
MAX_SITES = 1_000  # of one user, those that were removed included: their records stay
MAX_TOKENS = 1_000  # of one user, beside those of pilots


def submit(core: Core, event: e.Submit) -> None:
    known = core.state.keys.get(submission_key(event.owner, event.idempotency)) if event.idempotency else None
    if known is not None:
        _again(core, event, known, event.spec, known[0])
        return
    if event.provision not in PROVISIONS:
        core.refuse(event, "bad-input", f"there is no way of provisioning called {event.provision!r}",
                    f"there are {', '.join(PROVISIONS)}")
        return
    if event.replicate not in PRESETS:
        core.refuse(event, "bad-input", f"there is no way of replicating called {event.replicate!r}",
                    f"there are {', '.join(PRESETS)}")
        return
    if _too_many(core, event, event.owner, sum(shape.count for shape in event.targets)):
        return
    if misfit := chains.misfit(event.targets, event.open):
        core.refuse(event, "bad-input", misfit)
        return
    if error := wrong_policy(event.policy, len(event.targets)):
        core.refuse(event, error.code, error.message, error.hint)
        return
    if event.data is not None and (wrong := wrong_with(event.data, sum(shape.count for shape in event.targets))):
        core.refuse(event, "bad-input", wrong, "give one value per task")
        return
    if event.conscious is not None and (wrong := wrong_parameter(event.conscious)):
        core.refuse(event, "bad-input", wrong, "leave it out: there is a default")
        return
    if wrong := _wrong_budget(event.budget, event.targets):
        core.refuse(event, "bad-input", wrong, "say how long a task may take: its worst case is what is reserved")
        return
    if event.fail_over and event.fail_over not in (known_sites := _sites_of(core.state, event.owner)):
        core.refuse(event, "bad-input", f"fail-over: you have no site called {event.fail_over[:100]!r}",
                    nearest(event.fail_over, known_sites) if known_sites else "add it first: windfall site add")
        return
    number = core.state.next_bag
    edges = event.edges + chains.stage_edges(event.targets)
    core.emit(
        f.BagSubmitted(
            core.now, number, event.owner, event.name, event.idempotency, event.spec, event.targets, event.external,
            event.select, event.open, edges, event.provision, event.options, event.data, event.conscious, event.budget,
            event.replicate, event.policy, event.fail_over,
        )
    )
    chains.arm(core, core.state.bags[number])
    fair_share.arm(core)
    core.done(event, number, core.state.bags[number].size)


def _sites_of(state: State, owner: str) -> list[str]:
    """That he may use."""
    return [site.name for site in state.sites.values() if owner in (site.owner, *site.shared) and not site.removed]


def _wrong_budget(budget: int, shapes: list[f.TargetShape]) -> str:
    if not 0 <= budget < accounts.PLENTY:
        return f"a budget of {budget} ms of cores"
    return "under a budget every task needs a time limit" if budget and not all(s.limit for s in shapes) else ""


def set_budget(core: Core, event: e.SetBudget) -> None:
    if (bag := _bag(core, event, event.bag)) is None:
        return
    if wrong := _wrong_budget(event.budget, [target.shape for target in bag.targets]):
        core.refuse(event, "bad-input", wrong, "say how long a task may take: its worst case is what is reserved")
        return
    used = bag.spent + sum(accounts.pledge(core.state, row) for row in core.state.attempts.of_bag(bag.number))
    if event.budget and event.budget < used:
        core.refuse(event, "conflict", f"bag {bag.number} has used, or reserved, more than that", "cancel it instead")
        return
    if bag.budget != event.budget:
        core.emit(f.BudgetSet(core.now, bag.number, event.budget, event.by))
    core.done(event, bag.number)


def set_policy(core: Core, event: e.SetPolicy) -> None:
    """`value` of the answer: hosts that serve the bag's owner now and match; `extra`: all that serve him."""
    if (bag := _bag(core, event, event.bag)) is None:
        return
    wanted = {key: text for key, text in event.policy.items() if text}
    batch = max((target.shape.batch for target in bag.targets), default=0)
    if error := wrong_policy(wanted, len(bag.targets)) or pointless(
        wanted, bag.external, batch, provision=bag.provision
    ):
        core.refuse(event, error.code, error.message, error.hint)
        return
    policy = {key: text for key, text in {**bag.policy, **event.policy}.items() if text}
    if event.policy.get("replicate") == "" and bag.replicate != NONE:
        policy["replicate"] = NONE  # it was taken away
    if policy != bag.policy:
        core.emit(f.PolicySet(core.now, bag.number, policy, event.by))
        by_deadline.look(core, bag.number)
    match, known, _ = prospects(core.state, core.now, bag)
    core.done(event, match, known)


def set_allowance(core: Core, event: e.SetAllowance) -> None:
    if not -1 <= event.allowance < accounts.PLENTY or not event.owner:
        core.refuse(event, "bad-input", f"an allowance of {event.allowance} ms of cores", "0 or more")
        return
    if core.state.allowances.get(event.owner, -1) != event.allowance:
        core.emit(f.AllowanceSet(core.now, event.owner, event.allowance, event.by))
        watch_month(core)
    core.done(event)


def set_weight(core: Core, event: e.SetWeight) -> None:
    if not 1 <= event.weight <= MAX_WEIGHT or not event.owner:
        core.refuse(event, "bad-input", f"a weight of {event.weight}", f"from 1 to {MAX_WEIGHT:,}")
        return
    if fair_share.weight(core.state, event.owner) != event.weight:
        core.emit(f.WeightSet(core.now, event.owner, event.weight, event.by))
    core.done(event)


def watch_month(core: Core) -> None:
    """What was used up is there again when a month begins."""
    if core.state.allowances and core.month_timer <= core.now:
        core.month_timer = accounts.next_month(core.now)
        core.timer(core.month_timer, "month", 0)


def month_begins(core: Core, _: int) -> None:
    core.state.version += 1
    core.changed = True
    watch_month(core)


def _again(core: Core, event: e.Event, known: tuple[int, int, int, int], body: bytes, value: int) -> None:
    """A request that was sent again gets the first one's answer; another request under its key gets none."""
    if digest(body) == known[3]:
        core.done(event, value, known[2])
    else:
        core.refuse(event, "conflict", "this idempotency key was used for something else", "choose a new key")


def _too_many(core: Core, event: e.Event, owner: str, more: int, had: int = 0) -> bool:
    """Refuse what memory could not hold: tasks of one bag, which has `had`, and of all bags of an owner."""
    owned, most = core.state.owned.get(owner, 0), core.config.owned
    if had + more > MAX_TASKS:
        core.refuse(
            event, "too-large", f"the bag would have {had + more:,} tasks; at most {MAX_TASKS:,} are taken",
            "submit the rest as a bag of its own",
        )
    elif owned + more > most:
        core.refuse(
            event, "conflict", f"your bags have {owned:,} tasks; with these {more:,} they would be more than {most:,}",
            "remove bags you need no more: windfall rm",
        )
    else:
        return False
    return True


def append(core: Core, event: e.Append) -> None:
    bag = _bag(core, event, event.bag)
    if bag is None:
        return
    known = core.state.keys.get(append_key(bag, event.idempotency)) if event.idempotency else None
    if known is not None:
        _again(core, event, known, event.source, known[1])
        return
    if not bag.open and not event.extends:
        core.refuse(event, "conflict", f"bag {bag.number} is closed", "submit a new bag, or open it with open = true")
        return
    if event.seen is not None and event.seen != len(bag.appended):
        core.refuse(
            event, "conflict", f"bag {bag.number} has been given more tasks meanwhile", "look again, then ask again"
        )
        return
    if not _has_room(core, event, bag, [(event.target, event.count)]):
        return
    first = bag.size
    core.emit(f.TasksAppended(
        core.now, bag.number, event.target, first, event.count, event.idempotency, event.source,
        event.extends and not bag.open,
    ))
    chains.arm(core, bag)
    if len(bag.targets) > 1:
        cancel_stranded(core, bag, [])  # what it waits for may have ended without success
    core.done(event, first, event.count)


def append_part(core: Core, event: e.AppendPart) -> None:
    """Whatever they wait for may have ended by now: with success it counts no more, without it they are cancelled."""
    if (bag := _bag(core, event, event.bag)) is None:
        return
    known = core.state.keys.get(append_key(bag, event.idempotency)) if event.idempotency else None
    if known is not None:
        _again(core, event, known, part_body(event.sources, event.edges), known[1])
        return
    if not bag.open:
        core.refuse(event, "conflict", f"bag {bag.number} is closed", "submit a new bag, or open it with open = true")
        return
    if event.first != bag.size:
        core.refuse(event, "conflict", f"bag {bag.number} has {bag.size:,} tasks by now, not {event.first:,}",
                    "somebody else appends to it, too: number the tasks afresh")
        return
    if not event.pieces or len(event.pieces) != len(event.sources):
        core.refuse(event, "bad-input", "nothing was appended, or not one source for each target")
        return
    if not _has_room(core, event, bag, event.pieces):
        return
    count = sum(n for _, n in event.pieces)
    if wrong := _wrong_edges(event.edges, bag.size, bag.size + count):
        core.refuse(event, "bad-input", wrong)
        return
    core.emit(f.PartAppended(core.now, bag.number, bag.size, count, event.idempotency, event.pieces, event.sources,
                             event.edges))
    chains.arm(core, bag)
    cancel_stranded(core, bag, _dead_before(bag, event.edges))
    core.done(event, event.first, count)


def _wrong_edges(edges: bytes, first: int, end: int) -> str:
    if len(edges) % 8:
        return "prerequisites are pairs of numbers"
    pairs = as_pairs(edges)
    if not len(pairs):
        return ""
    before, after = pairs[:, 0], pairs[:, 1]
    if int(before.min()) < 0 or int(before.max()) >= end or int(after.min()) < first or int(after.max()) >= end:
        return f"tasks {first} to {end - 1} can wait for tasks 0 to {end - 1}, and for nothing else"
    return "a task waits for itself" if bool((before == after).any()) else ""


def _dead_before(bag: BagState, edges: bytes) -> list[int]:
    """Prerequisites that have ended without success."""
    before = np.unique(as_pairs(edges)[:, 0])
    dead: list[int] = before[bag.tasks.np_state[before] > SUCCEEDED].tolist()
    return dead


def _has_room(core: Core, event: e.Event, bag: BagState, pieces: f.Runs) -> bool:
    """May these targets have so many more tasks?  If not, it is told why."""
    if any(not 0 <= place < len(bag.targets) or count <= 0 for place, count in pieces):
        core.refuse(event, "bad-input", f"bag {bag.number} has no such target, or nothing was appended")
        return False
    for target in [bag.targets[place] for place, _ in pieces]:
        if target.shape.behind >= 0 or target.follower >= 0:
            core.refuse(event, "bad-input", "stages of a pipeline have equally many tasks", "submit a bag of its own")
            return False
        over = target_done(bag, target) or (not bag.open and target.unfinished == 0)
        if target.dependents and over:
            core.refuse(
                event, "conflict", f"target {target.shape.name!r} is done and what waits for it may run",
                "append before its last task is done; or submit the new tasks as a bag of their own",
            )
            return False
    return not _too_many(core, event, bag.owner, sum(count for _, count in pieces), bag.size)


def close(core: Core, event: e.Close) -> None:
    if (bag := _bag(core, event, event.bag)) is None:
        return
    if bag.open:
        core.emit(f.BagClosed(core.now, bag.number, event.by))
        cancel_stranded(core, bag)
    core.done(event, bag.number)


def pause(core: Core, event: e.Pause) -> None:
    if (bag := _bag(core, event, event.bag)) is None:
        return
    if bag.paused != event.paused:
        core.emit(f.BagPaused(core.now, bag.number, event.paused, event.by))
        if event.paused:
            _recall_unstarted(core, bag)
    core.done(event, bag.number)


def _recall_unstarted(core: Core, bag: BagState) -> None:
    attempts = core.state.attempts
    used = attempts.rows
    mine = (attempts.np_state[:used] == GRANTED) & (attempts.np_task[:used] >> 32 == bag.number)
    for row in np.flatnonzero(mine).tolist():
        pilot = core.state.pilots[attempts.pilot[row]]
        pilot.recalling[attempts.number[row]] = False
        core.state.orders[pilot.number] = None


def cancel(core: Core, event: e.Cancel) -> None:
    if (bag := _bag(core, event, event.bag)) is None:
        return
    runs = _chosen(bag, event.tasks, lambda s: (s == READY) | (s == WAITING) if event.waiting else s < FIRST_FINAL)
    if event.tasks is None and bag.open:
        core.emit(f.BagClosed(core.now, bag.number, event.by))
    if runs:
        core.emit(f.TasksCancelled(core.now, bag.number, runs, "user", event.by))
        cancel_stranded(core, bag)
    core.done(event, sum(count for _, count in runs))


def gathered(core: Core, event: e.Gathered) -> None:
    """Which files they are is not journaled: that follows from results that are."""
    bag = core.state.bags.get(event.bag)
    target = bag.targets[event.target] if bag is not None and 0 <= event.target < len(bag.targets) else None
    if bag is not None and target is not None and target.held and not target.pending:
        if event.refused:
            _cancel_target(core, bag, target.index, event.refused)
        else:
            core.emit(f.TargetGathered(core.now, bag.number, target.index))
    core.done(event)


def _cancel_target(core: Core, bag: BagState, target: int, note: str) -> None:
    states = bag.tasks.np_state
    mine = [first + np.flatnonzero(states[first:end] < FIRST_FINAL) for first, place, end in spans(bag)
            if place == target]
    chosen = np.concatenate(mine)
    if len(chosen):
        core.emit(f.TasksCancelled(core.now, bag.number, runs_of(chosen), "gather", note=note))
        cancel_stranded(core, bag)


def retry(core: Core, event: e.Retry) -> None:
    """A new generation for what ended without success.  Results that were accepted stay."""
    if (bag := _bag(core, event, event.bag)) is None:
        return
    runs = _chosen(bag, event.tasks, lambda states: states > SUCCEEDED)
    if runs:
        core.emit(f.TasksRetried(core.now, bag.number, runs, event.by))
        cancel_stranded(core, bag)
        make_again(core, bag)
    core.done(event, sum(count for _, count in runs))


def _chosen(bag: BagState, tasks: list[int] | None, wanted: Callable[[States], NDArray[np.bool_]]) -> f.Runs:
    """Of the tasks named, or of all, those in a wanted state.  All of them are never listed one by one."""
    states = bag.tasks.np_state
    if tasks is None:
        return runs_where(wanted(states[: bag.size]))
    chosen = np.unique(np.array(tasks, dtype=np.int64))
    chosen = chosen[(chosen >= 0) & (chosen < bag.size)]
    return runs_of(chosen[wanted(states[chosen])])


def remove(core: Core, event: e.Remove) -> None:
    if (bag := _bag(core, event, event.bag)) is None:
        return
    if bag.unfinished():
        core.refuse(event, "conflict", f"bag {bag.number} has unfinished tasks", f"windfall cancel {bag.number} first")
        return
    core.emit(f.BagRemoved(core.now, bag.number, event.by))
    core.done(event, bag.number)


def add_site(core: Core, event: e.AddSite) -> None:
    site = core.state.sites.get(event.name)
    if site is not None and site.owner != event.owner:
        core.refuse(event, "conflict", f"the name {event.name!r} is taken", "choose another name")
        return
    if site is None and sum(each.owner == event.owner for each in core.state.sites.values()) >= MAX_SITES:
        core.refuse(event, "conflict", f"you have had {MAX_SITES:,} sites; no more are taken",
                    "give a new one the name of one that was removed: what that has used counts on")
        return
    if event.limits is not None and (wrong := wrong_limit(event.limits)):
        core.refuse(event, "bad-input", f"the limits of {event.name!r}: {wrong}", "0 or more, within reason")
        return
    if event.limits is not None and _endless(event.limits):
        core.refuse(event, "bad-input", "under a budget every shape needs a wall time", "say how long its pilots last")
        return
    if site is not None and site.removed and event.limits is not None and not event.limits.shapes:
        core.done(event)  # nothing is to be started where nothing is: whoever saw its file go was late
        return
    limits = event.limits if site is None or event.limits != site.limits else None
    said = (event.kind, event.shared, event.disk)
    if site is None or site.removed or (site.kind, site.shared, site.disk) != said or limits is not None:
        core.emit(f.SiteAdded(core.now, event.name, event.owner, *said[:2], limits=limits, disk=event.disk))
    core.done(event)


def _endless(limits: f.Limits) -> bool:
    """Its worst case could not be reserved: of our budget, or of what the user's account has left."""
    return (limits.budget > 0 or limits.account) and not all(shape.wall for shape in limits.shapes)


def frugal(core: Core, event: e.Frugal) -> None:
    """Note that the driver's disk is low, or not any more.  No fact: the driver tells it again after a restart."""
    if core.state.disk_low and not event.on:
        core.state.version += 1  # who waits may be granted something again
    core.state.disk_low = event.on
    core.done(event)


def issue_token(core: Core, event: e.IssueToken) -> None:
    """Those that have expired go; the server's own, which nobody asked for, are always given."""
    mine = [token for token in core.state.tokens.values() if token.owner == event.owner and token.scope != "pilot"]
    old = [token for token in mine if token.expires and token.expires <= core.now]
    if event.by and len(mine) - len(old) >= MAX_TOKENS:
        core.refuse(event, "conflict", f"{event.owner} has {MAX_TOKENS:,} tokens; no more are given",
                    "windfall token ls lists them, windfall token rm revokes what is not used any more")
        return
    for token in old:
        core.emit(f.TokenRevoked(core.now, token.id, event.by))
    core.emit(
        f.TokenIssued(core.now, event.id, event.hash, event.scope, event.owner, event.site, event.expires, event.by)
    )
    core.done(event)


def revoke_token(core: Core, event: e.RevokeToken) -> None:
    if event.id in core.state.token_ids:
        core.emit(f.TokenRevoked(core.now, event.id, event.by))
        core.done(event)
    else:
        core.refuse(event, "not-found", "there is no such token")


def _bag(core: Core, event: e.Event, number: int) -> BagState | None:
    bag = core.state.bags.get(number)
    if bag is None:
        core.refuse(event, "not-found", f"there is no bag {number}", "windfall ls shows yours")
    return bag
