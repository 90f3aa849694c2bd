"""Tending: the exchange with whoever starts and stops pilots at a site.

Rules
  * Nothing is submitted without a committed intent; its nonce is the job's name, so the batch system can list it.
  * Orders are level-triggered: what is not heard to be done is ordered again, so much at a time as the site's limits
    allow.  A tender carries out an order once per nonce, however often it hears it.
  * A tender that (re)starts may follow one that died between submitting and saying so.  What may have been submitted is
    not ordered again before a full listing, begun long enough after its hello for any submission to have landed, and
    another one a while later that lacks it, too.
  * What is listed is adopted; a job that we do not know, or want no more, is ordered stopped.  What is missing from a
    listing begun after we knew of it may have ended.  A listing may be short: that is believed when another, begun a
    while later, lacks it, too, and its pilot has not spoken since; at once where its pilot has said goodbye.
  * A pilot's goodbye is not the end of its job: that counts until a listing begun afterwards does not have it, and
    is ordered stopped if it stays.  A listing is asked for early where room is what is lacking.
  * A pilot that ran and is missing may have left results: if its tender can, it looks for them first, for a bounded
    time, and only what it does not find runs again (S5).
  * `began` is a time of ours that the tender read in an answer: no clock is compared with another.
  * A refused submission is back-pressure.  A site that nobody tends, or whose batch system is dark, only waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from windfall.core.decide.exchange.pilot_end import end_pilot
from windfall.core.decide.provision.intents import end_intents, hold_off, left_in_vain, watch_wall
from windfall.core.decide.provision.site_watch import listed as listed_again
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import GONE, INTENDED, LEAVING, LIVE, QUEUED, RUNNING, STOPPING
from windfall.core.state.world import IntentState, PilotState, SiteSession, SiteState
from windfall.core.turn import Turn

OFTENER = 6  # so many times as often a batch system may be asked for a listing while room is lacking


def tend(turn: Turn, event: e.SiteReport) -> None:
    site = turn.state.sites.get(event.site)
    if site is None or site.removed:
        turn.refuse(event, "not-found", f"there is no site called {event.site!r}")
        return
    if event.hello:
        _hello(turn, site, event.provisioner)
    elif event.provisioner != site.provisioner:
        turn.effects.append(x.SiteOrders(event.key, site.name, 0, turn.now, over=True))
        return
    site.session.heard = turn.now
    site.session.can_salvage = event.can_salvage or (site.session.can_salvage and not event.hello)
    _take_word(turn, site, event)
    if event.listed is not None:
        _take_list(turn, site, event.listed, event.began)
    if event.info is not None:
        _take_info(turn, site, event.info, event.seen)
        site.session.other_jobs += _foreign(turn, event.listed or []) if event.info.others >= 0 else 0
    if has_orders(turn, site) or event.seen != site.session.last_orders or event.wait <= 0:
        if site.name in turn.provision.to_answer:  # it asked twice in one step
            turn.effects.append(compose(turn, site, turn.provision.to_answer[site.name]))
        turn.provision.to_answer[site.name] = event.key  # answered when the step has decided all it will
    else:
        _park(turn, site, event)


def _foreign(turn: Turn, listed: list[e.ListedJob]) -> int:
    """Pilots of another server that the same user has there."""
    return sum(job.nonce.rpartition("-")[0] != turn.config.mark for job in listed)


def _take_info(turn: Turn, site: SiteState, info: e.SiteInfo, seen: int) -> None:
    """A balance that was looked up before the last answer may lack what has ended since."""
    t = site.session
    if info.free >= 0:
        t.free_processors, t.jobs_queued, t.info_at = info.free, info.queued, turn.now - info.age
    if info.others < 0:
        return
    fresh = t.last_orders > 0 and seen == t.last_orders
    if (
        t.account_heard < 0
        or (t.other_jobs, t.balance) != (info.others, info.balance)
        or (fresh and t.balance_as_of < 0)
    ):
        turn.provision.changed = True
    t.account_heard, t.other_jobs = turn.now, info.others
    if info.balance == e.NOT_SAID:
        t.balance = 0 if t.balance_as_of < 0 else t.balance
    elif fresh or t.balance_as_of < 0:
        t.balance, t.balance_as_of = info.balance, t.released_when_answered if fresh else -1


def _hello(turn: Turn, site: SiteState, tender: str) -> None:
    if tender != site.provisioner:
        earlier = turn.provision.to_answer.pop(site.name, None)  # another one asked in this step, and was told nothing
        if earlier is not None:
            turn.effects.append(x.SiteOrders(earlier, site.name, 0, turn.now, over=True))
        turn.emit(f.SiteTended(turn.now, site.name, tender))
    renew(turn, site)


def resume(turn: Turn) -> None:
    """After a recovery: ask anew wherever pilots are, or may be, started."""
    for site in turn.state.sites.values():
        if site.limits.shapes or site.open:
            renew(turn, site)
            for number in (*site.intents[RUNNING], *site.intents[LEAVING]):
                watch_wall(turn, turn.state.intents[number])


def renew(turn: Turn, site: SiteState) -> None:
    """Whatever was ordered before may have been done."""
    t = site.session
    site.session = SiteSession(
        turn.now,
        has_listing=False,
        retry_after=t.retry_after,
        backoff=t.backoff,
        free_processors=t.free_processors,
        jobs_queued=t.jobs_queued,
        info_at=t.info_at,
        heard=turn.now if t.heard else 0,
        probing=t.probing,
        account_heard=t.account_heard,
        other_jobs=t.other_jobs,
        balance=t.balance,
        balance_as_of=t.balance_as_of,
        can_salvage=t.can_salvage,
    )
    if t.waiting_request is not None:
        turn.effects.append(x.SiteOrders(t.waiting_request[0], site.name, 0, turn.now, over=True))
    for number in [*site.intents[INTENDED], *site.intents[QUEUED], *site.intents[STOPPING]]:
        intent = turn.state.intents[number]
        intent.start_told, intent.stop_told = 2 if intent.start_told else 0, False
    turn.timers.add(turn.now + turn.config.landing, "tend", site.name)


# --- what the tender did ------------------------------------------------------------------------------------------


def _take_word(turn: Turn, site: SiteState, event: e.SiteReport) -> None:
    accepted = {intent.number: name for nonce, name in event.accepted
                if (intent := _known(turn, site, nonce)) is not None and not intent.batch_id}
    if accepted:
        turn.emit(f.IntentsAccepted(turn.now, site.name, list(accepted), list(accepted.values())))
    for nonce, name in event.accepted:
        _spare(turn, site, nonce, name)
    refused = [i for nonce in dict(event.refused) if (i := _known(turn, site, nonce)) is not None]
    refused = [i for i in refused if i.state in (INTENDED, STOPPING) and not i.batch_id]
    if refused:
        end_intents(turn, site, refused, "refused")
        hold_off(turn, site)
    _take_stopped(turn, site, event.stopped)
    for nonce, found in event.salvaged:
        _take_salvaged(turn, site, nonce, found)
    for nonce, name in event.unstopped:
        _put_last(turn, site, nonce, name)


def _put_last(turn: Turn, site: SiteState, nonce: str, name: str) -> None:
    """What cannot be stopped goes to the end of its line, and keeps no other from being stopped."""
    strays, line, intent = site.session.unknown_jobs, site.intents[STOPPING], _known(turn, site, nonce)
    if (nonce, name) in strays:
        strays[nonce, name] = strays.pop((nonce, name))
    if intent is not None and intent.number in line:
        del line[intent.number]
        line[intent.number] = None


def _spare(turn: Turn, site: SiteState, nonce: str, name: str) -> None:
    """A job that is not the intent's own, or whose intent has ended: to be stopped."""
    intent = _known(turn, site, nonce)
    if intent is None or intent.batch_id != name:
        _unwanted(turn, site, nonce, name)


def _unwanted(turn: Turn, site: SiteState, nonce: str, name: str) -> None:
    """Of ours, that is: what bears another mark is somebody else's, however it came into a listing."""
    if nonce.rpartition("-")[0] == turn.config.mark:
        site.session.unknown_jobs.setdefault((nonce, name), False)


def _take_stopped(turn: Turn, site: SiteState, stopped: list[tuple[str, str]]) -> None:
    ended: dict[int, IntentState] = {}  # under the batch system's name and without one it is the same
    for nonce, name in stopped:
        site.session.unknown_jobs.pop((nonce, name), None)
        intent = _known(turn, site, nonce)
        if intent is not None and intent.state == STOPPING and name in (intent.batch_id, ""):
            ended[intent.number] = intent
    if born := [intent for intent in ended.values() if intent.pilot]:
        _gone(turn, site, born, "stopped")
    if (unborn := [intent for intent in ended.values() if not intent.pilot]):
        end_intents(turn, site, unborn, "stopped")


def _known(turn: Turn, site: SiteState, nonce: str) -> IntentState | None:
    return turn.state.intents.get(turn.state.intent_nonces.get((site.name, nonce), 0))


# --- what the batch system has -----------------------------------------------------------------------------------


def _take_list(turn: Turn, site: SiteState, listed: list[e.ListedJob], began: int) -> None:
    t = site.session
    t.listing_wanted, t.listing_asked_at, t.heard_list = False, 0, turn.now
    there = {(job.nonce, job.id) for job in listed}
    t.unknown_jobs = {key: told for key, told in t.unknown_jobs.items() if key in there}
    began = min(began, turn.now)
    _adopt(turn, site, listed, began)
    sure = began >= t.unknown_before + turn.config.landing and _is_sure(turn, site, began)
    _miss(turn, site, {job.nonce for job in listed}, began, sure)
    if sure and not t.has_listing:
        t.has_listing = True
        for number in site.intents[INTENDED]:
            turn.state.intents[number].start_told %= 2
    listed_again(turn, site, began)
    if t.wants_room and site.intents[LEAVING]:
        look_for_room(turn, site)
    elif t.job_missing_once:
        turn.timers.add(_next_list(turn, site), "tend", site.name)


def _is_sure(turn: Turn, site: SiteState, began: int) -> bool:
    """Is what an earlier tender was told to submit, and what is not listed, not there?  Not by one listing alone."""
    t, intents = site.session, turn.state.intents
    told = (intents[number] for state in (INTENDED, STOPPING) for number in site.intents[state])
    if t.has_listing or not any(intent.start_told == 2 and not intent.batch_id for intent in told):
        return True
    if not t.relist_from:
        t.relist_from = turn.now
        turn.timers.add(turn.now + _apart(turn), "tend", site.name)
    return began >= t.relist_from + _apart(turn)


def _apart(turn: Turn) -> int:
    """Ms between two listings that say the same, so that it is believed."""
    return turn.config.listing // OFTENER


def _adopt(turn: Turn, site: SiteState, listed: list[e.ListedJob], began: int) -> None:
    """One fact for those heard of for the first time, one for those that run."""
    accepted: dict[int, str] = {}
    running: dict[int, None] = {}
    requeued: dict[int, IntentState] = {}
    staying: dict[int, None] = {}
    for job in listed:
        intent = _known(turn, site, job.nonce)
        if intent is not None:
            intent.missing_since = 0
        if intent is not None and not intent.batch_id and intent.number not in accepted:
            accepted[intent.number] = job.id
        if intent is None or (accepted.get(intent.number) or intent.batch_id) != job.id:
            _unwanted(turn, site, job.nonce, job.id)
        elif job.running and intent.state in (INTENDED, QUEUED):
            running[intent.number] = None
        elif not job.running and intent.state in (RUNNING, LEAVING) and _over(turn, intent, began):
            requeued[intent.number] = intent  # what it held is free; it would come back as another pilot, unbidden
        elif intent.state == LEAVING and intent.changed + turn.config.landing <= began:
            staying[intent.number] = None
    if accepted:
        turn.emit(f.IntentsAccepted(turn.now, site.name, list(accepted), list(accepted.values())))
    if running:
        turn.emit(f.IntentsRunning(turn.now, site.name, list(running)))
        for number in running:
            watch_wall(turn, turn.state.intents[number])
    if staying:
        turn.emit(f.IntentsStopping(turn.now, site.name, list(staying), "its pilot has left"))
    for intent in requeued.values():
        turn.emit(f.IntentsStopping(turn.now, site.name, [intent.number], "requeued"))
        pilot = turn.state.pilots.get(intent.pilot)
        if pilot is not None and pilot.state != GONE:
            end_pilot(turn, pilot, "requeued", clean=False)


def _over(turn: Turn, intent: IntentState, began: int) -> bool:
    """It was so before the listing began, and nobody has heard its pilot since."""
    pilot = turn.state.pilots.get(intent.pilot)
    return intent.changed <= began and (pilot is None or pilot.heard <= began)


def _miss(turn: Turn, site: SiteState, there: set[str], began: int, sure: bool) -> None:
    """One fact for those of a kind, however many they are."""
    missing = [turn.state.intents[number] for of in site.intents for number in of]
    missing = [i for i in missing if i.nonce not in there and _over(turn, i, began)]
    site.session.job_missing_once = False
    over: dict[str, list[IntentState]] = {}
    for intent in missing:
        if why := _why_over(turn, site, intent, began, sure):
            over.setdefault(why, []).append(intent)
    ran = over.pop("ran", [])
    for why, intents in over.items():
        end_intents(turn, site, intents, why)
    if "gone" in over:
        hold_off(turn, site)  # they never ran, or their pilots never found their way here
    if dead := [intent for intent in ran if not _salvage(turn, site, intent)]:
        _gone(turn, site, dead)


def _why_over(turn: Turn, site: SiteState, intent: IntentState, began: int, sure: bool) -> str:
    """One that is missing; "" if it may be there all the same."""
    if intent.state == LEAVING:
        return "left"
    if intent.state == INTENDED or (intent.state == STOPPING and not intent.batch_id):  # it may be on its way
        return "stopped" if intent.state == STOPPING and intent.start_told == 2 and sure else ""
    if not _lacks(turn, site, intent, began):
        return ""
    return "gone" if intent.state == QUEUED else "ran" if intent.state == RUNNING else "stopped"


def _lacks(turn: Turn, site: SiteState, intent: IntentState, began: int) -> bool:
    """Is it gone?  Not by one listing alone; the next is asked for soon."""
    if not intent.missing_since:
        intent.missing_since = turn.now
    if began >= intent.missing_since + _apart(turn):
        return True
    site.session.job_missing_once = True
    return False


def _gone(turn: Turn, site: SiteState, intents: list[IntentState], why: str = "gone") -> None:
    """The site's evidence (S5)."""
    pilots = [turn.state.pilots.get(intent.pilot) for intent in intents]
    vain = any(_left_in_vain(turn, site, *pair) for pair in zip(intents, pilots, strict=True))
    end_intents(turn, site, intents, why)
    for pilot in pilots:
        if pilot is not None and pilot.state != GONE:
            end_pilot(turn, pilot, why, clean=False)
    if vain:
        hold_off(turn, site)


def _left_in_vain(turn: Turn, site: SiteState, intent: IntentState, pilot: PilotState | None) -> bool:
    """Its pilot never came, or was given nothing though more like it are wanted."""
    return pilot is None or (pilot.state != GONE and not pilot.granted and left_in_vain(turn, site, intent))


# --- what pilots left behind ---------------------------------------------------------------------------------------


def _salvage(turn: Turn, site: SiteState, intent: IntentState) -> bool:
    """Its job is gone: have the site looked through for its results, if there can be any; False: there cannot."""
    pilot = turn.state.pilots.get(intent.pilot)
    if not site.session.can_salvage or pilot is None or pilot.state == GONE:
        return False
    if not len(turn.state.attempts.of_pilot(pilot.number)):
        return False  # whatever it was given it has reported
    if not intent.salvage_until:
        intent.salvage_until = turn.now + turn.config.salvage
        turn.timers.add(intent.salvage_until, "salvage", intent.number)
    site.session.salvages_due.setdefault(intent.nonce, False)
    return True


def _take_salvaged(turn: Turn, site: SiteState, nonce: str, found: int) -> None:
    """What was found has been reported as its pilot would have; the rest is lost."""
    site.session.salvages_due.pop(nonce, None)
    intent = _known(turn, site, nonce)
    if intent is None or not intent.salvage_until:
        return
    since, intent.salvage_until = intent.salvage_until - turn.config.salvage, 0
    pilot = turn.state.pilots.get(intent.pilot)
    if found > 0 or (not found and (pilot is None or pilot.heard <= since)):
        _end_salvage(turn, site, intent, f"{found} results were found there")


def salvage_due(turn: Turn, number: int) -> None:
    """Nobody has found anything in time; but whoever has spoken since lives."""
    intent = turn.state.intents.get(number)
    if intent is None or not intent.salvage_until or turn.now < intent.salvage_until:
        return
    since, intent.salvage_until = intent.salvage_until - turn.config.salvage, 0
    site, pilot = turn.state.sites[intent.site], turn.state.pilots.get(intent.pilot)
    site.session.salvages_due.pop(intent.nonce, None)
    if pilot is None or pilot.heard <= since:
        _end_salvage(turn, site, intent, "what it left there could not be had in time")


def _end_salvage(turn: Turn, site: SiteState, intent: IntentState, says: str) -> None:
    pilot = turn.state.pilots.get(intent.pilot)
    held = pilot.attempts_held if pilot is not None else 0
    says = f"the job of {intent.nonce} is gone: {says}, {held} tasks run again"
    turn.emit(f.SiteNoted(turn.now, site.name, "salvage", says))
    _gone(turn, site, [intent])


def salvaging(turn: Turn, pilot: PilotState) -> int:
    """Until when what it left behind is looked for; 0: it is not."""
    intent = turn.state.intents.get(pilot.intent)
    return intent.salvage_until if intent is not None and intent.pilot == pilot.number else 0


# --- ends ----------------------------------------------------------------------------------------------------------


def wall_due(turn: Turn, number: int) -> None:
    """Its wall time has passed: no batch system lets it run on."""
    intent = turn.state.intents.get(number)
    if intent is None or intent.state not in (RUNNING, LEAVING):
        return
    if intent.salvage_until:  # should its pilot turn out to live, this is looked at again
        turn.timers.add(max(intent.salvage_until, turn.now) + 1, "wall", number)
        return
    pilot = turn.state.pilots.get(intent.pilot)
    later = pilot.ends + turn.config.lease + turn.config.margin if pilot is not None else 0
    if later > turn.now:  # its batch system has started it again since
        turn.timers.add(later, "wall", number)
        return
    end_intents(turn, turn.state.sites[intent.site], [intent], "wall time")
    if pilot is not None and pilot.state == LIVE:
        turn.emit(f.PilotDraining(turn.now, pilot.number))
        turn.state.pilots_with_news[pilot.number] = None


# --- answers --------------------------------------------------------------------------------------------------------


def _park(turn: Turn, site: SiteState, event: e.SiteReport) -> None:
    until = turn.now + min(event.wait, turn.config.park)
    if site.session.waiting_request is not None:
        turn.effects.append(compose(turn, site, site.session.waiting_request[0]))
    site.session.waiting_request = (event.key, until)
    turn.timers.add(until, "tend", site.name)


def tend_due(turn: Turn, name: str) -> None:
    site = turn.state.sites[name]
    park = site.session.waiting_request
    if park is not None and (park[1] <= turn.now or has_orders(turn, site)):
        answer(turn, site)


def settle(turn: Turn) -> None:
    """The step is over: answer those who asked in it, and those who waited for what it decided."""
    for name, key in turn.provision.to_answer.items():
        turn.effects.append(compose(turn, turn.state.sites[name], key))
    turn.provision.to_answer.clear()
    for name in turn.state.sites_with_orders:
        site = turn.state.sites[name]
        if site.session.waiting_request is not None and has_orders(turn, site):
            answer(turn, site)
    turn.state.sites_with_orders.clear()


def answer(turn: Turn, site: SiteState) -> None:
    if site.session.waiting_request is not None:
        key, site.session.waiting_request = site.session.waiting_request[0], None
        turn.effects.append(compose(turn, site, key))


def has_orders(turn: Turn, site: SiteState) -> bool:
    """Anything that its tender has not been told, and may be?"""
    intents = turn.state.intents
    return (
        any(not told for told in islice(site.session.unknown_jobs.values(), site.limits.flight))
        or any(not told for told in islice(site.session.salvages_due.values(), site.limits.flight))
        or any(not intents[n].stop_told for n in _to_stop(turn, site))
        or any(not intents[n].start_told for n in _to_start(turn, site))
        or (_list_due(turn, site) and not site.session.listing_wanted)
    )


def _to_start(turn: Turn, site: SiteState) -> Iterator[int]:
    """Those under way first: they are the oldest.  None while the site is suspect."""
    if site.suspect_since:
        return iter(())
    free = (n for n in site.intents[INTENDED] if turn.state.intents[n].start_told < 2)
    return islice(free, site.limits.flight)


def _to_stop(turn: Turn, site: SiteState) -> Iterator[int]:
    known = (
        n for n in site.intents[STOPPING] if turn.state.intents[n].batch_id or turn.state.intents[n].start_told < 2
    )
    return islice(known, site.limits.flight)


def _list_due(turn: Turn, site: SiteState) -> bool:
    t = site.session
    if not t.has_listing:  # those that have left count no more as soon as anybody has looked
        due = t.relist_from + _apart(turn) if t.relist_from else t.unknown_before + turn.config.landing
        return turn.now >= due or (not t.heard_list and bool(site.intents[LEAVING]))
    return site.suspect_since > 0 or (_is_watched(turn, site) and turn.now >= _next_list(turn, site))


def _is_watched(turn: Turn, site: SiteState) -> bool:
    """Has it pilots, or would it have some were it not for the user's other jobs, or an empty account?"""
    return site.open > 0 or ((site.limits.jobs > 0 or site.limits.account) and bool(turn.state.ready))


def _next_list(turn: Turn, site: SiteState) -> int:
    t = site.session
    if t.job_missing_once:
        return t.heard_list + _apart(turn)
    if t.wants_room and (first := next(iter(site.intents[LEAVING]), 0)):
        soon = turn.state.intents[first].changed + turn.config.parting
        return max(soon, t.heard_list + _apart(turn))
    return t.heard_list + turn.config.listing


def look_for_room(turn: Turn, site: SiteState) -> None:
    """More would be started were it not for those that leave: ask for a listing as soon as it may tell."""
    site.session.wants_room = True
    turn.timers.add(_next_list(turn, site), "tend", site.name)


def compose(turn: Turn, site: SiteState, key: int) -> x.SiteOrders:
    t, intents = site.session, turn.state.intents
    orders = x.SiteOrders(key, site.name, t.last_orders + 1, turn.now)
    t.last_orders, t.released_when_answered = t.last_orders + 1, site.core_ms_released
    for number in _to_start(turn, site):
        intents[number].start_told = 1
        orders.start.append((intents[number].nonce, intents[number].shape))
    for number in _to_stop(turn, site):
        intents[number].stop_told = True
        orders.stop.append((intents[number].nonce, intents[number].batch_id))
    for stray in islice(t.unknown_jobs, site.limits.flight):
        t.unknown_jobs[stray] = True
        orders.stop.append(stray)
    for nonce in list(islice(t.salvages_due, site.limits.flight)):
        t.salvages_due[nonce] = True
        orders.salvage.append(nonce)
    if _list_due(turn, site):
        orders.look = t.listing_wanted = True
        t.listing_asked_at = t.listing_asked_at or turn.now
    if not t.has_listing or _is_watched(turn, site):
        turn.timers.add(turn.now + turn.config.listing, "tend", site.name)
    return orders
