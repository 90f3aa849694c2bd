"""Listings: the jobs that a site's batch system has, against the intents that should be there.

A job that has vanished from the queue (squeue, qstat, condor_q) is missing once; after a second listing it is gone."""

from __future__ import annotations

from windfall.core.decide.exchange.pilot_end import end_pilot
from windfall.core.decide.provision.intents import back_off, end_intents, intent_named, watch_wall
from windfall.core.decide.provision.salvage import end_with_pilots, start_salvage
from windfall.core.decide.provision.site_orders import ask_for_room, confirm_gap, next_listing
from windfall.core.decide.provision.site_watch import note_listing
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import GONE, INTENDED, LEAVING, QUEUED, RUNNING, STOPPING
from windfall.core.state.world import IntentState, SiteState
from windfall.core.turn import Turn


def take_listing(turn: Turn, site: SiteState, listed: list[e.ListedJob], began: int) -> None:
    """Adopt the listed jobs and end the intents whose jobs are gone.  `began` is when the listing began."""
    t = site.session
    t.listing_wanted, t.listing_asked_at, t.heard_list = False, 0, turn.now
    jobs = {(job.nonce, job.id) for job in listed}
    t.unknown_jobs = {key: told for key, told in t.unknown_jobs.items() if key in jobs}
    began = min(began, turn.now)
    _adopt(turn, site, listed, began)
    sure = began >= t.unknown_before + turn.config.landing and _is_sure(turn, site, began)
    _find_missing(turn, site, {job.nonce for job in listed}, began, sure)
    if sure and not t.has_listing:
        t.has_listing = True
        for number in site.intents[INTENDED]:
            turn.state.intents[number].start_told %= 2
    note_listing(turn, site, began)
    if t.wants_room and site.intents[LEAVING]:
        ask_for_room(turn, site)
    elif t.job_missing_once:
        turn.timers.add(next_listing(turn, site), "tend", site.name)


def _is_sure(turn: Turn, site: SiteState, began: int) -> bool:
    """Can an unlisted submission by an earlier provisioner surely not be there?  One listing alone cannot tell."""
    t, intents = site.session, turn.state.intents
    told = (intents[number] for state in (INTENDED, STOPPING) for number in site.intents[state])
    if t.has_listing or not any(intent.start_told == 2 and not intent.batch_id for intent in told):
        return True
    if not t.relist_from:
        t.relist_from = turn.now
        turn.timers.add(turn.now + confirm_gap(turn), "tend", site.name)
    return began >= t.relist_from + confirm_gap(turn)


# --- jobs that are listed -------------------------------------------------------------------------------------------


def _adopt(turn: Turn, site: SiteState, listed: list[e.ListedJob], began: int) -> None:
    """Journal what the listing tells of known jobs, one fact for each kind of news; mark the others to be stopped."""
    accepted: dict[int, str] = {}
    news: dict[str, dict[int, IntentState]] = {"": {}, "running": {}, "staying": {}, "requeued": {}}
    for job in listed:
        intent = intent_named(turn, site, job.nonce)
        if intent is not None:
            intent.missing_since = 0
        if intent is None or (intent.batch_id or accepted.setdefault(intent.number, job.id)) != job.id:
            mark_unwanted(turn, site, job.nonce, job.id)
        else:
            news[_news_of(turn, intent, job.running, began)][intent.number] = intent
    if accepted:
        turn.emit(f.IntentsAccepted(turn.now, site.name, list(accepted), list(accepted.values())))
    if running := news["running"]:
        turn.emit(f.IntentsRunning(turn.now, site.name, list(running)))
    for intent in running.values():
        watch_wall(turn, intent)
    if staying := news["staying"]:
        turn.emit(f.IntentsStopping(turn.now, site.name, list(staying), "its pilot has left"))
    for intent in news["requeued"].values():
        _stop_requeued(turn, site, intent)


def _news_of(turn: Turn, intent: IntentState, running: bool, began: int) -> str:
    """Return whether a listed job has begun to run, is back in the queue, or stays though its pilot has left."""
    if running and intent.state in (INTENDED, QUEUED):
        return "running"
    if not running and intent.state in (RUNNING, LEAVING) and _unheard_since(turn, intent, began):
        return "requeued"
    stays = intent.state == LEAVING and intent.changed + turn.config.landing <= began
    return "staying" if stays else ""


def _stop_requeued(turn: Turn, site: SiteState, intent: IntentState) -> None:
    """Stop a job that its batch system has put back into the queue, and free what its pilot held: the job would come
    back as another pilot, unbidden."""
    turn.emit(f.IntentsStopping(turn.now, site.name, [intent.number], "requeued"))
    pilot = turn.state.pilots.get(intent.pilot)
    if pilot is not None and pilot.state != GONE:
        end_pilot(turn, pilot, "requeued", proven=False)


def mark_unwanted(turn: Turn, site: SiteState, nonce: str, batch_id: str) -> None:
    """Mark a job to be stopped, if it is this server's: any other job is somebody else's."""
    if is_ours(turn, nonce):
        site.session.unknown_jobs.setdefault((nonce, batch_id), False)


def is_ours(turn: Turn, nonce: str) -> bool:
    """Does the nonce bear the mark of this server?"""
    return nonce.rpartition("-")[0] == turn.config.mark


def _unheard_since(turn: Turn, intent: IntentState, began: int) -> bool:
    """Has the intent not changed, and its pilot not been heard, since the listing began?"""
    pilot = turn.state.pilots.get(intent.pilot)
    return intent.changed <= began and (pilot is None or pilot.heard <= began)


# --- jobs that are missing ------------------------------------------------------------------------------------------


def _find_missing(turn: Turn, site: SiteState, nonces: set[str], began: int, sure: bool) -> None:
    """End the intents whose jobs the listing lacks, one fact for each reason."""
    missing = [turn.state.intents[number] for numbers in site.intents for number in numbers]
    missing = [i for i in missing if i.nonce not in nonces and _unheard_since(turn, i, began)]
    site.session.job_missing_once = False
    ended: dict[str, list[IntentState]] = {}
    for intent in missing:
        if why := _why_ended(turn, site, intent, began, sure):
            ended.setdefault(why, []).append(intent)
    ran = ended.pop("ran", [])
    for why, intents in ended.items():
        end_intents(turn, site, intents, why)
    if "gone" in ended:
        back_off(turn, site)  # they never ran, or their pilots never found their way here
    if dead := [intent for intent in ran if not start_salvage(turn, site, intent)]:
        end_with_pilots(turn, site, dead)


def _why_ended(turn: Turn, site: SiteState, intent: IntentState, began: int, sure: bool) -> str:
    """Return why an intent with a missing job has ended; "" if the job may be there all the same."""
    if intent.state == LEAVING:
        return "left"
    if intent.state == INTENDED or (intent.state == STOPPING and not intent.batch_id):  # it may be on its way
        return "stopped" if intent.state == STOPPING and intent.start_told == 2 and sure else ""
    if not _is_gone(turn, site, intent, began):
        return ""
    return "gone" if intent.state == QUEUED else "ran" if intent.state == RUNNING else "stopped"


def _is_gone(turn: Turn, site: SiteState, intent: IntentState, began: int) -> bool:
    """Have two listings, some time apart, lacked the job?  After the first, another one is asked for soon."""
    if not intent.missing_since:
        intent.missing_since = turn.now
    if began >= intent.missing_since + confirm_gap(turn):
        return True
    site.session.job_missing_once = True
    return False
