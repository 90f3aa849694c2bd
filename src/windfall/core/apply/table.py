"""Fold a fact into the state.  Decides nothing: every value it needs is in the fact.

The same functions run when a decision is taken and when the journal is replayed.  What follows mechanically (a target
released because its prerequisite is done, a counter) is worked out here; what could have gone another way is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.core.apply import attempts, bags, clock, hosts, intents, pilots, sites
from windfall.core.messages import facts as f
from windfall.core.state.world import State


def apply(state: State, fact: f.Fact) -> None:
    """Apply a journaled fact, and move the state's time to it.  A step's own facts need no such move."""
    at: int = fact.at  # type: ignore[attr-defined]
    state.now = max(state.now, at)
    HANDLERS[type(fact)](state, fact)


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    f.BagSubmitted: bags.bag_submitted,
    f.TasksAppended: bags.tasks_appended,
    f.PartAppended: bags.part_appended,
    f.BagClosed: bags.bag_closed,
    f.BagPaused: bags.bag_paused,
    f.BagRemoved: bags.bag_removed,
    f.TasksCancelled: bags.tasks_cancelled,
    f.TasksRetried: bags.tasks_retried,
    f.BagRevised: bags.bag_revised,
    f.InputsGathered: bags.target_gathered,
    f.BatchReleased: bags.batch_released,
    f.SiteAdded: pilots.site_added,
    f.TokenIssued: pilots.token_issued,
    f.TokenRevoked: pilots.token_revoked,
    f.PilotEnrolled: pilots.pilot_enrolled,
    f.PilotDraining: pilots.pilot_draining,
    f.PilotEnded: pilots.pilot_ended,
    f.PilotsForgotten: pilots.pilots_forgotten,
    f.Granted: attempts.granted,
    f.Adopted: attempts.adopted,
    f.Started: attempts.started,
    f.Finished: attempts.finished,
    f.Ended: attempts.ended,
    f.SiteTended: intents.site_tended,
    f.SiteDrained: intents.site_drained,
    f.SiteRemoved: intents.site_removed,
    f.IntentsMade: intents.intents_made,
    f.IntentsAccepted: intents.intents_accepted,
    f.IntentsRunning: intents.intents_running,
    f.IntentsStopping: intents.intents_stopping,
    f.IntentsEnded: intents.intents_ended,
    f.IntentsLeaving: intents.intents_leaving,
    f.SiteJudged: sites.site_judged,
    f.SiteNoted: sites.site_noted,
    f.HostJudged: hosts.host_judged,
    f.LinkKnown: pilots.link_known,
    f.CopiesLost: bags.copies_lost,
    f.BudgetSet: bags.budget_set,
    f.PolicySet: bags.policy_set,
    f.AllowanceSet: pilots.allowance_set,
    f.WeightSet: pilots.weight_set,
    f.BagAged: bags.bag_lifted,
    f.NumbersSkipped: clock.numbers_skipped,
    f.ClockSet: clock.clock_set,
}
