"""Site sessions: the exchange with the provisioner that starts and stops pilots at a site.

Rules
  * Nothing is submitted without a committed intent; its nonce is the job's name, so the batch system can list it.
  * Orders are level-triggered: an order that is not reported as done is given again, so many at a time as the site's
    limits allow.  A provisioner carries out an order once per nonce, however often it hears it.
  * A provisioner that (re)starts may follow one that died between submitting and saying so.  A submission that may have
    been made is not ordered again before a full listing, begun long enough after the hello for any submission to have
    landed, and another one a while later that lacks it, too.
  * The core adopts every listed job whose nonce it knows, and orders all others stopped.  A job that is missing from a
    listing begun after the core knew of it may have ended.  A listing may be short: it is believed when another, begun
    a while later, lacks the job, too, and its pilot has not spoken since; at once where its pilot has said goodbye.
  * A pilot's goodbye is not the end of its job: the job counts until a listing begun afterwards lacks it, and is
    ordered stopped if it stays.  A listing is asked for early where room is lacking.
  * `began` is a time of the core's that the provisioner read in an answer: no clock is compared with another.
  * A refused submission is back-pressure.  A site without a provisioner, or whose batch system is dark, only waits.
"""

from __future__ import annotations

from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision.intents import back_off, end_intents, intent_named, watch_wall
from windfall.core.decide.provision.salvage import end_with_pilots, take_salvaged
from windfall.core.decide.provision.site_listing import is_ours, mark_unwanted, take_listing
from windfall.core.decide.provision.site_orders import answer_or_wait, superseded
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import INTENDED, LEAVING, LIVE, QUEUED, RUNNING, STOPPING
from windfall.core.state.world import IntentState, SiteSession, SiteState
from windfall.core.turn import Turn


def site_report(turn: Turn, event: e.SiteReport) -> None:
    """Take what a provisioner has done and seen, and answer with orders."""
    site = turn.state.sites.get(event.site)
    if site is None or site.removed:
        turn.refuse(event, "not-found", f"there is no site called {event.site!r}")
        return
    if event.hello:
        _hello(turn, site, event.provisioner)
    elif event.provisioner != site.provisioner:
        turn.effects.append(superseded(turn, site, event.key))
        return
    _take_news(turn, site, event)
    answer_or_wait(turn, site, event)


def _take_news(turn: Turn, site: SiteState, event: e.SiteReport) -> None:
    """Take the outcome of orders, the listing, and what the information system says."""
    t = site.session
    t.heard = turn.now
    t.can_salvage = event.can_salvage or (t.can_salvage and not event.hello)
    _take_outcomes(turn, site, event)
    if event.listed is not None:
        take_listing(turn, site, event.listed, event.began)
    if event.info is not None:
        _take_info(turn, site, event.info, event.seen)
        if event.info.others >= 0 and event.listed:
            t.other_jobs += sum(not is_ours(turn, job.nonce) for job in event.listed)  # pilots of other servers


def _hello(turn: Turn, site: SiteState, provisioner: str) -> None:
    """Begin a session with a provisioner that knows nothing of what was done before."""
    if provisioner != site.provisioner:
        earlier = turn.provision.to_answer.pop(site.name, None)  # another one asked in this step, and was told nothing
        if earlier is not None:
            turn.effects.append(superseded(turn, site, earlier))
        turn.emit(f.SiteTended(turn.now, site.name, provisioner))
    renew(turn, site)


def resume(turn: Turn) -> None:
    """Begin all sessions anew after a recovery, wherever pilots are, or may be, started."""
    for site in turn.state.sites.values():
        if site.limits.shapes or site.open:
            renew(turn, site)
            for number in (*site.intents[RUNNING], *site.intents[LEAVING]):
                watch_wall(turn, turn.state.intents[number])


def renew(turn: Turn, site: SiteState) -> None:
    """Begin a site's session anew: any order that was given before may have been carried out."""
    t = site.session
    site.session = SiteSession(
        turn.now, has_listing=False, retry_after=t.retry_after, backoff=t.backoff, free_processors=t.free_processors,
        jobs_queued=t.jobs_queued, info_at=t.info_at, heard=turn.now if t.heard else 0, probing=t.probing,
        account_heard=t.account_heard, other_jobs=t.other_jobs, balance=t.balance, balance_as_of=t.balance_as_of,
        can_salvage=t.can_salvage,
    )
    if t.waiting_request is not None:
        turn.effects.append(superseded(turn, site, t.waiting_request[0]))
    for number in [*site.intents[INTENDED], *site.intents[QUEUED], *site.intents[STOPPING]]:
        intent = turn.state.intents[number]
        intent.start_told, intent.stop_told = 2 if intent.start_told else 0, False
    turn.timers.add(turn.now + turn.config.landing, "tend", site.name)


# --- the outcome of orders ------------------------------------------------------------------------------------------


def _take_outcomes(turn: Turn, site: SiteState, event: e.SiteReport) -> None:
    """Take which submissions were accepted or refused, which jobs were stopped, and what was salvaged."""
    accepted = {intent.number: batch_id for nonce, batch_id in event.accepted
                if (intent := intent_named(turn, site, nonce)) is not None and not intent.batch_id}
    if accepted:
        turn.emit(f.IntentsAccepted(turn.now, site.name, list(accepted), list(accepted.values())))
    for nonce, batch_id in event.accepted:
        intent = intent_named(turn, site, nonce)
        if intent is None or intent.batch_id != batch_id:  # not the intent's own job, or its intent has ended
            mark_unwanted(turn, site, nonce, batch_id)
    _take_refused(turn, site, [nonce for nonce, _ in event.refused])
    _take_stopped(turn, site, event.stopped)
    for nonce, found in event.salvaged:
        take_salvaged(turn, site, nonce, found)
    for nonce, batch_id in event.unstopped:
        _move_to_back(turn, site, nonce, batch_id)


def _take_refused(turn: Turn, site: SiteState, nonces: list[str]) -> None:
    intents = [intent for nonce in dict.fromkeys(nonces) if (intent := intent_named(turn, site, nonce)) is not None]
    refused = [intent for intent in intents if intent.state in (INTENDED, STOPPING) and not intent.batch_id]
    if refused:
        end_intents(turn, site, refused, "refused")
        back_off(turn, site)


def _take_stopped(turn: Turn, site: SiteState, stopped: list[tuple[str, str]]) -> None:
    ended: dict[int, IntentState] = {}  # by number: a job may be reported with its batch system's name and without
    for nonce, batch_id in stopped:
        site.session.unknown_jobs.pop((nonce, batch_id), None)
        intent = intent_named(turn, site, nonce)
        if intent is not None and intent.state == STOPPING and batch_id in (intent.batch_id, ""):
            ended[intent.number] = intent
    if with_pilots := [intent for intent in ended.values() if intent.pilot]:
        end_with_pilots(turn, site, with_pilots, "stopped")
    if without := [intent for intent in ended.values() if not intent.pilot]:
        end_intents(turn, site, without, "stopped")


def _move_to_back(turn: Turn, site: SiteState, nonce: str, batch_id: str) -> None:
    """Move a job that cannot be stopped to the end of its queue, so that it keeps no other from being stopped."""
    unknown, stopping, intent = site.session.unknown_jobs, site.intents[STOPPING], intent_named(turn, site, nonce)
    if (nonce, batch_id) in unknown:
        unknown[nonce, batch_id] = unknown.pop((nonce, batch_id))
    if intent is not None and intent.number in stopping:
        del stopping[intent.number]
        stopping[intent.number] = None


# --- information ----------------------------------------------------------------------------------------------------


def _take_info(turn: Turn, site: SiteState, info: e.SiteInfo, seen: int) -> None:
    """Take what the site's information system says of processors and queues, and of the user's jobs and account."""
    t = site.session
    if info.free >= 0:
        t.free_processors, t.jobs_queued, t.info_at = info.free, info.queued, turn.now - info.age
    if info.others >= 0:
        _take_account(turn, site, info, fresh=0 < t.last_orders == seen)


def _take_account(turn: Turn, site: SiteState, info: e.SiteInfo, fresh: bool) -> None:
    """Take the number of the user's other jobs and the account's balance.

    A balance that is not `fresh`, since it was looked up before the last answer, may lack what has ended since."""
    t = site.session
    known = t.balance_as_of >= 0
    if t.account_heard < 0 or (t.other_jobs, t.balance) != (info.others, info.balance) or (fresh and not known):
        turn.provision.changed = True
    t.account_heard, t.other_jobs = turn.now, info.others
    if info.balance == e.NOT_SAID:
        t.balance = t.balance if known else 0
    elif fresh or not known:
        t.balance, t.balance_as_of = info.balance, t.released_when_answered if fresh else -1


# --- wall times -----------------------------------------------------------------------------------------------------


def wall_due(turn: Turn, number: int) -> None:
    """End an intent whose wall time has passed: no batch system lets its job run on."""
    intent = turn.state.intents.get(number)
    if intent is None or intent.state not in (RUNNING, LEAVING):
        return
    if intent.salvage_until:  # its pilot may turn out to live: look again then
        turn.timers.add(max(intent.salvage_until, turn.now) + 1, "wall", number)
        return
    pilot = turn.state.pilots.get(intent.pilot)
    later = pilot.ends + turn.config.lease + turn.config.margin if pilot is not None else 0
    if later > turn.now:  # its batch system has started it again since
        turn.timers.add(later, "wall", number)
        return
    end_intents(turn, turn.state.sites[intent.site], [intent], "wall time")
    if pilot is not None and pilot.state == LIVE:
        nearest_data.drain_pilot(turn, pilot)
        turn.state.pilots_with_news[pilot.number] = None
