"""What users ask for: submit, append, close, pause, cancel, retry, remove; sites and tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.data.lost_copies import rerun_makers
from windfall.core.decide.exchange.stranded import cancel_stranded
from windfall.core.decide.grant import batches, fair_share
from windfall.core.decide.grant.nearest_data import wrong_parameter
from windfall.core.decide.grant.order import prospects, wrong_policy
from windfall.core.decide.provision.demand import PROVISIONS, wrong_limit
from windfall.core.decide.replicas import by_deadline
from windfall.core.decide.replicas.candidates import NONE, PRESETS
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, GRANTED, READY, SUCCEEDED, WAITING
from windfall.core.messages.runs import runs_of, runs_where
from windfall.core.state import accounts, chains
from windfall.core.state.bag_data import wrong_with
from windfall.core.state.classes import append_key, digest, part_body, spans, submission_key, target_done
from windfall.core.state.graph import as_pairs
from windfall.core.state.world import BagState, State
from windfall.core.turn import Turn
from windfall.model.checks.bag import pointless
from windfall.model.spec import MAX_TASKS, MAX_WEIGHT
from windfall.model.suggest import nearest

States = NDArray[np.uint8]
MAX_SITES = 1_000  # of one user, those that were removed included: their records stay
MAX_TOKENS = 1_000  # of one user, beside those of pilots


def submit(turn: Turn, event: e.Submit) -> None:
    known = turn.state.keys.get(submission_key(event.owner, event.idempotency)) if event.idempotency else None
    if known is not None:
        _again(turn, event, known, event.spec, known[0])
        return
    if event.provision not in PROVISIONS:
        turn.refuse(event, "bad-input", f"there is no way of provisioning called {event.provision!r}",
                    f"there are {', '.join(PROVISIONS)}")
        return
    if event.replicate not in PRESETS:
        turn.refuse(event, "bad-input", f"there is no way of replicating called {event.replicate!r}",
                    f"there are {', '.join(PRESETS)}")
        return
    if _too_many(turn, event, event.owner, sum(shape.count for shape in event.targets)):
        return
    if misfit := chains.pipeline_problem(event.targets, event.open):
        turn.refuse(event, "bad-input", misfit)
        return
    if error := wrong_policy(event.policy, len(event.targets)):
        turn.refuse(event, error.code, error.message, error.hint)
        return
    if event.data is not None and (wrong := wrong_with(event.data, sum(shape.count for shape in event.targets))):
        turn.refuse(event, "bad-input", wrong, "give one value per task")
        return
    if event.data_selection is not None and (wrong := wrong_parameter(event.data_selection)):
        turn.refuse(event, "bad-input", wrong, "leave it out: there is a default")
        return
    if wrong := _wrong_budget(event.budget, event.targets):
        turn.refuse(event, "bad-input", wrong, "say how long a task may take: its worst case is what is reserved")
        return
    if event.fail_over and event.fail_over not in (known_sites := _sites_of(turn.state, event.owner)):
        turn.refuse(event, "bad-input", f"fail-over: you have no site called {event.fail_over[:100]!r}",
                    nearest(event.fail_over, known_sites) if known_sites else "add it first: windfall site add")
        return
    number = turn.state.next_bag
    edges = event.edges + chains.stage_edges(event.targets)
    turn.emit(
        f.BagSubmitted(
            turn.now,
            number,
            event.owner,
            event.name,
            event.idempotency,
            event.spec,
            event.targets,
            event.external,
            event.select,
            event.open,
            edges,
            event.provision,
            event.options,
            event.data,
            event.data_selection,
            event.budget,
            event.replicate,
            event.policy,
            event.fail_over,
        )
    )
    batches.arm(turn, turn.state.bags[number])
    fair_share.arm(turn)
    turn.done(event, number, turn.state.bags[number].size)


def _sites_of(state: State, owner: str) -> list[str]:
    """That he may use."""
    return [site.name for site in state.sites.values() if owner in (site.owner, *site.shared) and not site.removed]


def _wrong_budget(budget: int, shapes: list[f.TargetShape]) -> str:
    if not 0 <= budget < accounts.UNLIMITED:
        return f"a budget of {budget} ms of cores"
    return "under a budget every task needs a time limit" if budget and not all(s.limit for s in shapes) else ""


def set_budget(turn: Turn, event: e.SetBudget) -> None:
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    if wrong := _wrong_budget(event.budget, [target.shape for target in bag.targets]):
        turn.refuse(event, "bad-input", wrong, "say how long a task may take: its worst case is what is reserved")
        return
    rows = turn.state.attempts.of_bag(bag.number).tolist()
    used = bag.spent + sum(accounts.pledge_of(turn.state, row) for row in rows)
    if event.budget and event.budget < used:
        turn.refuse(event, "conflict", f"bag {bag.number} has used, or reserved, more than that", "cancel it instead")
        return
    if bag.budget != event.budget:
        turn.emit(f.BudgetSet(turn.now, bag.number, event.budget, event.by))
    turn.done(event, bag.number)


def set_policy(turn: Turn, event: e.SetPolicy) -> None:
    """`value` of the answer: hosts that serve the bag's owner now and match; `extra`: all that serve him."""
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    wanted = {key: text for key, text in event.policy.items() if text}
    batch = max((target.shape.batch for target in bag.targets), default=0)
    if error := wrong_policy(wanted, len(bag.targets)) or pointless(
        wanted, bag.external, batch, provision=bag.provision
    ):
        turn.refuse(event, error.code, error.message, error.hint)
        return
    policy = {key: text for key, text in {**bag.policy, **event.policy}.items() if text}
    if event.policy.get("replicate") == "" and bag.replicate != NONE:
        policy["replicate"] = NONE  # it was taken away
    if policy != bag.policy:
        turn.emit(f.PolicySet(turn.now, bag.number, policy, event.by))
        by_deadline.find_overdue(turn, bag.number)
    match, known, _ = prospects(turn.state, turn.now, bag)
    turn.done(event, match, known)


def set_allowance(turn: Turn, event: e.SetAllowance) -> None:
    if not -1 <= event.allowance < accounts.UNLIMITED or not event.owner:
        turn.refuse(event, "bad-input", f"an allowance of {event.allowance} ms of cores", "0 or more")
        return
    if turn.state.allowances.get(event.owner, -1) != event.allowance:
        turn.emit(f.AllowanceSet(turn.now, event.owner, event.allowance, event.by))
        watch_month(turn)
    turn.done(event)


def set_weight(turn: Turn, event: e.SetWeight) -> None:
    if not 1 <= event.weight <= MAX_WEIGHT or not event.owner:
        turn.refuse(event, "bad-input", f"a weight of {event.weight}", f"from 1 to {MAX_WEIGHT:,}")
        return
    if fair_share.weight(turn.state, event.owner) != event.weight:
        turn.emit(f.WeightSet(turn.now, event.owner, event.weight, event.by))
    turn.done(event)


def watch_month(turn: Turn) -> None:
    """What was used up is there again when a month begins."""
    if turn.state.allowances and turn.provision.month_timer <= turn.now:
        turn.provision.month_timer = accounts.next_month(turn.now)
        turn.timers.add(turn.provision.month_timer, "month", 0)


def month_begins(turn: Turn, _: int) -> None:
    turn.state.version += 1
    turn.provision.changed = True
    watch_month(turn)


def _again(turn: Turn, event: e.Event, known: tuple[int, int, int, int], body: bytes, value: int) -> None:
    """A request that was sent again gets the first one's answer; another request under its key gets none."""
    if digest(body) == known[3]:
        turn.done(event, value, known[2])
    else:
        turn.refuse(event, "conflict", "this idempotency key was used for something else", "choose a new key")


def _too_many(turn: Turn, event: e.Event, owner: str, more: int, had: int = 0) -> bool:
    """Refuse what memory could not hold: tasks of one bag, which has `had`, and of all bags of an owner."""
    owned, most = turn.state.tasks_owned.get(owner, 0), turn.config.owned
    if had + more > MAX_TASKS:
        turn.refuse(
            event, "too-large", f"the bag would have {had + more:,} tasks; at most {MAX_TASKS:,} are taken",
            "submit the rest as a bag of its own",
        )
    elif owned + more > most:
        turn.refuse(
            event, "conflict", f"your bags have {owned:,} tasks; with these {more:,} they would be more than {most:,}",
            "remove bags you need no more: windfall rm",
        )
    else:
        return False
    return True


def append(turn: Turn, event: e.Append) -> None:
    bag = _bag(turn, event, event.bag)
    if bag is None:
        return
    known = turn.state.keys.get(append_key(bag, event.idempotency)) if event.idempotency else None
    if known is not None:
        _again(turn, event, known, event.source, known[1])
        return
    if not bag.open and not event.extends:
        turn.refuse(event, "conflict", f"bag {bag.number} is closed", "submit a new bag, or open it with open = true")
        return
    if event.seen is not None and event.seen != len(bag.appended):
        turn.refuse(
            event, "conflict", f"bag {bag.number} has been given more tasks meanwhile", "look again, then ask again"
        )
        return
    if not _has_room(turn, event, bag, [(event.target, event.count)]):
        return
    first = bag.size
    turn.emit(f.TasksAppended(
        turn.now, bag.number, event.target, first, event.count, event.idempotency, event.source,
        event.extends and not bag.open,
    ))
    batches.arm(turn, bag)
    if len(bag.targets) > 1:
        cancel_stranded(turn, bag, [])  # what it waits for may have ended without success
    turn.done(event, first, event.count)


def append_part(turn: Turn, event: e.AppendPart) -> None:
    """Whatever they wait for may have ended by now: with success it counts no more, without it they are cancelled."""
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    known = turn.state.keys.get(append_key(bag, event.idempotency)) if event.idempotency else None
    if known is not None:
        _again(turn, event, known, part_body(event.sources, event.edges), known[1])
        return
    if not bag.open:
        turn.refuse(event, "conflict", f"bag {bag.number} is closed", "submit a new bag, or open it with open = true")
        return
    if event.first != bag.size:
        turn.refuse(event, "conflict", f"bag {bag.number} has {bag.size:,} tasks by now, not {event.first:,}",
                    "somebody else appends to it, too: number the tasks afresh")
        return
    if not event.pieces or len(event.pieces) != len(event.sources):
        turn.refuse(event, "bad-input", "nothing was appended, or not one source for each target")
        return
    if not _has_room(turn, event, bag, event.pieces):
        return
    count = sum(n for _, n in event.pieces)
    if wrong := _wrong_edges(event.edges, bag.size, bag.size + count):
        turn.refuse(event, "bad-input", wrong)
        return
    turn.emit(f.PartAppended(turn.now, bag.number, bag.size, count, event.idempotency, event.pieces, event.sources,
                             event.edges))
    batches.arm(turn, bag)
    cancel_stranded(turn, bag, _dead_before(bag, event.edges))
    turn.done(event, event.first, count)


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


def _has_room(turn: Turn, event: e.Event, bag: BagState, pieces: f.Runs) -> bool:
    """May these targets have so many more tasks?  If not, it is told why."""
    if any(not 0 <= place < len(bag.targets) or count <= 0 for place, count in pieces):
        turn.refuse(event, "bad-input", f"bag {bag.number} has no such target, or nothing was appended")
        return False
    for target in [bag.targets[place] for place, _ in pieces]:
        if target.shape.previous_stage >= 0 or target.next_stage >= 0:
            turn.refuse(event, "bad-input", "stages of a pipeline have equally many tasks", "submit a bag of its own")
            return False
        over = target_done(bag, target) or (not bag.open and target.not_ended == 0)
        if target.dependents and over:
            turn.refuse(
                event, "conflict", f"target {target.shape.name!r} is done and what waits for it may run",
                "append before its last task is done; or submit the new tasks as a bag of their own",
            )
            return False
    return not _too_many(turn, event, bag.owner, sum(count for _, count in pieces), bag.size)


def close(turn: Turn, event: e.Close) -> None:
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    if bag.open:
        turn.emit(f.BagClosed(turn.now, bag.number, event.by))
        cancel_stranded(turn, bag)
    turn.done(event, bag.number)


def pause(turn: Turn, event: e.Pause) -> None:
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    if bag.paused != event.paused:
        turn.emit(f.BagPaused(turn.now, bag.number, event.paused, event.by))
        if event.paused:
            _recall_unstarted(turn, bag)
    turn.done(event, bag.number)


def _recall_unstarted(turn: Turn, bag: BagState) -> None:
    attempts = turn.state.attempts
    used = attempts.rows
    mine = (attempts.np_state[:used] == GRANTED) & (attempts.np_task[:used] >> 32 == bag.number)
    for row in np.flatnonzero(mine).tolist():
        pilot = turn.state.pilots[attempts.pilot[row]]
        pilot.recalling[attempts.number[row]] = False
        turn.state.pilots_with_news[pilot.number] = None


def cancel(turn: Turn, event: e.Cancel) -> None:
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    runs = _chosen(bag, event.tasks, lambda s: (s == READY) | (s == WAITING) if event.waiting else s < FIRST_FINAL)
    if event.tasks is None and bag.open:
        turn.emit(f.BagClosed(turn.now, bag.number, event.by))
    if runs:
        turn.emit(f.TasksCancelled(turn.now, bag.number, runs, "user", event.by))
        cancel_stranded(turn, bag)
    turn.done(event, sum(count for _, count in runs))


def gathered(turn: Turn, event: e.InputsGathered) -> None:
    """Which files they are is not journaled: that follows from results that are."""
    bag = turn.state.bags.get(event.bag)
    target = bag.targets[event.target] if bag is not None and 0 <= event.target < len(bag.targets) else None
    if bag is not None and target is not None and target.inputs_pending and not target.pending:
        if event.refused:
            _cancel_target(turn, bag, target.index, event.refused)
        else:
            turn.emit(f.InputsGathered(turn.now, bag.number, target.index))
    turn.done(event)


def _cancel_target(turn: Turn, bag: BagState, target: int, note: str) -> None:
    states = bag.tasks.np_state
    mine = [first + np.flatnonzero(states[first:end] < FIRST_FINAL) for first, place, end in spans(bag)
            if place == target]
    chosen = np.concatenate(mine)
    if len(chosen):
        turn.emit(f.TasksCancelled(turn.now, bag.number, runs_of(chosen), "gather", note=note))
        cancel_stranded(turn, bag)


def retry(turn: Turn, event: e.Retry) -> None:
    """A new generation for what ended without success.  Results that were accepted stay."""
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    runs = _chosen(bag, event.tasks, lambda states: states > SUCCEEDED)
    if runs:
        turn.emit(f.TasksRetried(turn.now, bag.number, runs, event.by))
        cancel_stranded(turn, bag)
        rerun_makers(turn, bag)
    turn.done(event, sum(count for _, count in runs))


def _chosen(bag: BagState, tasks: list[int] | None, wanted: Callable[[States], NDArray[np.bool_]]) -> f.Runs:
    """Of the tasks named, or of all, those in a wanted state.  All of them are never listed one by one."""
    states = bag.tasks.np_state
    if tasks is None:
        return runs_where(wanted(states[: bag.size]))
    chosen = np.unique(np.array(tasks, dtype=np.int64))
    chosen = chosen[(chosen >= 0) & (chosen < bag.size)]
    return runs_of(chosen[wanted(states[chosen])])


def remove(turn: Turn, event: e.Remove) -> None:
    if (bag := _bag(turn, event, event.bag)) is None:
        return
    if bag.not_ended():
        turn.refuse(event, "conflict", f"bag {bag.number} has unfinished tasks", f"windfall cancel {bag.number} first")
        return
    turn.emit(f.BagRemoved(turn.now, bag.number, event.by))
    turn.done(event, bag.number)


def add_site(turn: Turn, event: e.AddSite) -> None:
    site = turn.state.sites.get(event.name)
    if site is not None and site.owner != event.owner:
        turn.refuse(event, "conflict", f"the name {event.name!r} is taken", "choose another name")
        return
    if site is None and sum(each.owner == event.owner for each in turn.state.sites.values()) >= MAX_SITES:
        turn.refuse(event, "conflict", f"you have had {MAX_SITES:,} sites; no more are taken",
                    "give a new one the name of one that was removed: what that has used counts on")
        return
    if event.limits is not None and (wrong := wrong_limit(event.limits)):
        turn.refuse(event, "bad-input", f"the limits of {event.name!r}: {wrong}", "0 or more, within reason")
        return
    if event.limits is not None and _endless(event.limits):
        turn.refuse(event, "bad-input", "under a budget every shape needs a wall time", "say how long its pilots last")
        return
    if site is not None and site.removed and event.limits is not None and not event.limits.shapes:
        turn.done(event)  # nothing is to be started where nothing is: whoever saw its file go was late
        return
    limits = event.limits if site is None or event.limits != site.limits else None
    said = (event.kind, event.shared, event.disk)
    if site is None or site.removed or (site.kind, site.shared, site.shared_disk) != said or limits is not None:
        turn.emit(f.SiteAdded(turn.now, event.name, event.owner, *said[:2], limits=limits, disk=event.disk))
    turn.done(event)


def _endless(limits: f.Limits) -> bool:
    """Its worst case could not be reserved: of our budget, or of what the user's account has left."""
    return (limits.budget > 0 or limits.account) and not all(shape.wall for shape in limits.shapes)


def frugal(turn: Turn, event: e.DiskLow) -> None:
    """Note that the driver's disk is low, or not any more.  No fact: the driver tells it again after a restart."""
    if turn.state.disk_low and not event.on:
        turn.state.version += 1  # who waits may be granted something again
    turn.state.disk_low = event.on
    turn.done(event)


def issue_token(turn: Turn, event: e.IssueToken) -> None:
    """Those that have expired go; the server's own, which nobody asked for, are always given."""
    mine = [token for token in turn.state.tokens.values() if token.owner == event.owner and token.scope != "pilot"]
    old = [token for token in mine if token.expires and token.expires <= turn.now]
    if event.by and len(mine) - len(old) >= MAX_TOKENS:
        turn.refuse(event, "conflict", f"{event.owner} has {MAX_TOKENS:,} tokens; no more are given",
                    "windfall token ls lists them, windfall token rm revokes what is not used any more")
        return
    for token in old:
        turn.emit(f.TokenRevoked(turn.now, token.id, event.by))
    turn.emit(
        f.TokenIssued(turn.now, event.id, event.hash, event.scope, event.owner, event.site, event.expires, event.by)
    )
    turn.done(event)


def revoke_token(turn: Turn, event: e.RevokeToken) -> None:
    if event.id in turn.state.token_ids:
        turn.emit(f.TokenRevoked(turn.now, event.id, event.by))
        turn.done(event)
    else:
        turn.refuse(event, "not-found", "there is no such token")


def _bag(turn: Turn, event: e.Event, number: int) -> BagState | None:
    bag = turn.state.bags.get(number)
    if bag is None:
        turn.refuse(event, "not-found", f"there is no bag {number}", "windfall ls shows yours")
    return bag
