"""Submitting a bag: the checks that a bag must pass, and the fact that makes it."""

from __future__ import annotations

from windfall.core.decide.grant import batches, fair_share
from windfall.core.decide.grant.nearest_data import wrong_parameter
from windfall.core.decide.grant.order import wrong_policy
from windfall.core.decide.requests import attendance
from windfall.core.decide.requests.request import check_size, earlier_answer, refusing
from windfall.core.messages import events as e, facts as f
from windfall.core.state import accounts, chains
from windfall.core.state.bag_data import wrong_with
from windfall.core.state.classes import submission_key
from windfall.core.state.world import State
from windfall.core.turn import Turn
from windfall.errors import BadInput
from windfall.model.checks.bag import PROVISION
from windfall.model.policies.presets import PRESETS
from windfall.model.suggest import nearest


@refusing
def submit(turn: Turn, event: e.Submit) -> None:
    """Make a bag of a submission; a submission that was sent before gets its earlier answer."""
    key = submission_key(event.owner, event.idempotency)
    if event.idempotency and (known := earlier_answer(turn, key, event.spec)) is not None:
        turn.done(event, known[0], known[2])
        return
    for check in CHECKS:
        check(turn, event)
    number = turn.state.next_bag
    turn.emit(f.BagSubmitted(
        turn.now, number, event.owner, event.name, event.idempotency, spec=event.spec, targets=event.targets,
        external=event.external, select=event.select, open=event.open,
        edges=event.edges + chains.stage_edges(event.targets), provision=event.provision, options=event.options,
        data=event.data, data_selection=event.data_selection, budget=event.budget, replicate=event.replicate,
        policy=event.policy, fail_over=event.fail_over, absence=event.absence,
    ))
    bag = turn.state.bags[number]
    batches.set_batch_timer(turn, bag)
    fair_share.set_ageing_timer(turn)
    attendance.resume(turn, bag)
    turn.done(event, number, bag.size)


def _check_presets(turn: Turn, event: e.Submit) -> None:
    for what, name, known in (("provisioning", event.provision, PROVISION), ("replicating", event.replicate, PRESETS)):
        if name not in known:
            raise BadInput(f"there is no way of {what} called {name!r}", f"there are {', '.join(known)}")


def _check_tasks(turn: Turn, event: e.Submit) -> None:
    check_size(turn, event.owner, sum(shape.count for shape in event.targets))


def _check_pipeline(turn: Turn, event: e.Submit) -> None:
    if problem := chains.pipeline_problem(event.targets, event.open):
        raise BadInput(problem)


def _check_policy(turn: Turn, event: e.Submit) -> None:
    if error := wrong_policy(event.policy, len(event.targets)):
        raise error


def _check_data(turn: Turn, event: e.Submit) -> None:
    tasks = sum(shape.count for shape in event.targets)
    if event.data is not None and (problem := wrong_with(event.data, tasks)):
        raise BadInput(problem, "give one value per task")
    if event.data_selection is not None and (problem := wrong_parameter(event.data_selection)):
        raise BadInput(problem, "leave it out: there is a default")


def _check_budget(turn: Turn, event: e.Submit) -> None:
    check_budget(event.budget, event.targets)


def _check_fail_over(turn: Turn, event: e.Submit) -> None:
    if event.fail_over and event.fail_over not in (known := _sites_of(turn.state, event.owner)):
        hint = nearest(event.fail_over, known) if known else "add it first: windfall site add"
        raise BadInput(f"fail-over: you have no site called {event.fail_over[:100]!r}", hint)


CHECKS = (_check_presets, _check_tasks, _check_pipeline, _check_policy, _check_data, _check_budget, _check_fail_over)
"""The first that fails says why a bag is refused."""


def check_budget(budget: int, shapes: list[f.TargetShape]) -> None:
    """Refuse a budget that is out of bounds, or that tasks without a time limit could exceed."""
    if not 0 <= budget < accounts.UNLIMITED:
        raise BadInput(f"a budget must be 0 ms of cores or more, and is {budget}", "0: no budget")
    if budget and not all(shape.limit for shape in shapes):
        raise BadInput("under a budget every task needs a time limit",
                       "say how long a task may take: its worst case is what is reserved")


def _sites_of(state: State, owner: str) -> list[str]:
    """Return the names of the sites that the owner may use."""
    return [site.name for site in state.sites.values() if owner in (site.owner, *site.shared) and not site.removed]
