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
from typing import TYPE_CHECKING

from windfall.core.decide.provision.site_watch import listed as listed_again
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import GONE, INTENDED, LEAVING, LIVE, QUEUED, READY, RUNNING, STOPPING
from windfall.core.state.world import IntentState, PilotState, SiteState, Tending

if TYPE_CHECKING:
    from windfall.core.step import Core

BACKOFF, MOST_BACKOFF = 15_000, 600_000  # ms that a site which refused is left alone; doubled each time
OFTENER = 6  # so many times as often a batch system may be asked for a listing while room is lacking


def tend(core: Core, event: e.Tend) -> None:
    site = core.state.sites.get(event.site)
    if site is None or site.removed:
        core.refuse(event, "not-found", f"there is no site called {event.site!r}")
        return
    if event.hello:
        _hello(core, site, event.tender)
    elif event.tender != site.tender:
        core.effects.append(x.Orders(event.key, site.name, 0, core.now, over=True))
        return
    site.tending.heard = core.now
    site.tending.salvages = event.salvages or (site.tending.salvages and not event.hello)
    _take_word(core, site, event)
    if event.listed is not None:
        _take_list(core, site, event.listed, event.began)
    if event.info is not None:
        _take_info(core, site, event.info, event.seen)
        site.tending.others += _foreign(core, event.listed or []) if event.info.others >= 0 else 0
    if has_orders(core, site) or event.seen != site.tending.number or event.wait <= 0:
        if site.name in core.tended:  # it asked twice in one step
            core.effects.append(compose(core, site, core.tended[site.name]))
        core.tended[site.name] = event.key  # answered when the step has decided all it will
    else:
        _park(core, site, event)


def _foreign(core: Core, listed: list[e.Listed]) -> int:
    """Pilots of another server that the same user has there."""
    return sum(job.nonce.rpartition("-")[0] != core.config.mark for job in listed)


def _take_info(core: Core, site: SiteState, info: e.Info, seen: int) -> None:
    """A balance that was looked up before the last answer may lack what has ended since."""
    t = site.tending
    if info.free >= 0:
        t.free, t.queued, t.said = info.free, info.queued, core.now - info.age
    if info.others < 0:
        return
    fresh = t.number > 0 and seen == t.number
    core.changed = core.changed or t.counted < 0 or (t.others, t.balance) != (info.others, info.balance)
    core.changed = core.changed or (fresh and t.balanced < 0)
    t.counted, t.others = core.now, info.others
    if info.balance == e.NOT_SAID:
        t.balance = 0 if t.balanced < 0 else t.balance
    elif fresh or t.balanced < 0:
        t.balance, t.balanced = info.balance, t.answered if fresh else -1


def _hello(core: Core, site: SiteState, tender: str) -> None:
    if tender != site.tender:
        if site.name in core.tended:  # another one asked in this very step, and has not been told anything yet
            core.effects.append(x.Orders(core.tended.pop(site.name), site.name, 0, core.now, over=True))
        core.emit(f.SiteTended(core.now, site.name, tender))
    renew(core, site)


def renew(core: Core, site: SiteState) -> None:
    """Whatever was ordered before may have been done."""
    t = site.tending
    site.tending = Tending(core.now, listed=False, hold=t.hold, backoff=t.backoff, free=t.free, queued=t.queued,
                           said=t.said, heard=core.now if t.heard else 0, probing=t.probing, counted=t.counted,
                           others=t.others, balance=t.balance, balanced=t.balanced, salvages=t.salvages)
    if t.park is not None:
        core.effects.append(x.Orders(t.park[0], site.name, 0, core.now, over=True))
    for number in [*site.intents[INTENDED], *site.intents[QUEUED], *site.intents[STOPPING]]:
        intent = core.state.intents[number]
        intent.given, intent.told = 2 if intent.given else 0, False
    core.timer(core.now + core.config.landing, "tend", site.name)


# --- what the tender did ------------------------------------------------------------------------------------------


def _take_word(core: Core, site: SiteState, event: e.Tend) -> None:
    accepted = {intent.number: name for nonce, name in event.accepted
                if (intent := _known(core, site, nonce)) is not None and not intent.outside}
    if accepted:
        core.emit(f.IntentsAccepted(core.now, site.name, list(accepted), list(accepted.values())))
    for nonce, name in event.accepted:
        _spare(core, site, nonce, name)
    refused = [i for nonce in dict(event.refused) if (i := _known(core, site, nonce)) is not None]
    refused = [i for i in refused if i.state in (INTENDED, STOPPING) and not i.outside]
    if refused:
        end_intents(core, site, refused, "refused")
        hold_off(core, site)
    _take_stopped(core, site, event.stopped)
    for nonce, found in event.salvaged:
        _take_salvaged(core, site, nonce, found)
    for nonce, name in event.unstopped:
        _put_last(core, site, nonce, name)


def _put_last(core: Core, site: SiteState, nonce: str, name: str) -> None:
    """What cannot be stopped goes to the end of its line, and keeps no other from being stopped."""
    strays, line, intent = site.tending.strays, site.intents[STOPPING], _known(core, site, nonce)
    if (nonce, name) in strays:
        strays[nonce, name] = strays.pop((nonce, name))
    if intent is not None and intent.number in line:
        del line[intent.number]
        line[intent.number] = None


def _spare(core: Core, site: SiteState, nonce: str, name: str) -> None:
    """A job that is not the intent's own, or whose intent has ended: to be stopped."""
    intent = _known(core, site, nonce)
    if intent is None or intent.outside != name:
        _unwanted(core, site, nonce, name)


def _unwanted(core: Core, site: SiteState, nonce: str, name: str) -> None:
    """Of ours, that is: what bears another mark is somebody else's, however it came into a listing."""
    if nonce.rpartition("-")[0] == core.config.mark:
        site.tending.strays.setdefault((nonce, name), False)


def _take_stopped(core: Core, site: SiteState, stopped: list[tuple[str, str]]) -> None:
    ended: dict[int, IntentState] = {}  # under the batch system's name and without one it is the same
    for nonce, name in stopped:
        site.tending.strays.pop((nonce, name), None)
        intent = _known(core, site, nonce)
        if intent is not None and intent.state == STOPPING and name in (intent.outside, ""):
            ended[intent.number] = intent
    if born := [intent for intent in ended.values() if intent.pilot]:
        _gone(core, site, born, "stopped")
    if (unborn := [intent for intent in ended.values() if not intent.pilot]):
        end_intents(core, site, unborn, "stopped")


def _known(core: Core, site: SiteState, nonce: str) -> IntentState | None:
    return core.state.intents.get(core.state.intent_nonces.get((site.name, nonce), 0))


def hold_off(core: Core, site: SiteState) -> None:
    t = site.tending
    if t.hold <= core.now:
        t.backoff = min(2 * t.backoff or BACKOFF, MOST_BACKOFF)
        t.hold = core.now + t.backoff


# --- what the batch system has -----------------------------------------------------------------------------------


def _take_list(core: Core, site: SiteState, listed: list[e.Listed], began: int) -> None:
    t = site.tending
    t.asked, t.asked_at, t.heard_list = False, 0, core.now
    there = {(job.nonce, job.id) for job in listed}
    t.strays = {key: told for key, told in t.strays.items() if key in there}
    began = min(began, core.now)
    _adopt(core, site, listed, began)
    sure = began >= t.since + core.config.landing and _is_sure(core, site, began)
    _miss(core, site, {job.nonce for job in listed}, began, sure)
    if sure and not t.listed:
        t.listed = True
        for number in site.intents[INTENDED]:
            core.state.intents[number].given %= 2
    listed_again(core, site, began)
    if t.eager and site.intents[LEAVING]:
        look_for_room(core, site)
    elif t.doubt:
        core.timer(_next_list(core, site), "tend", site.name)


def _is_sure(core: Core, site: SiteState, began: int) -> bool:
    """Is what an earlier tender was told to submit, and what is not listed, not there?  Not by one listing alone."""
    t, intents = site.tending, core.state.intents
    told = (intents[number] for state in (INTENDED, STOPPING) for number in site.intents[state])
    if t.listed or not any(intent.given == 2 and not intent.outside for intent in told):
        return True
    if not t.unsure:
        t.unsure = core.now
        core.timer(core.now + _apart(core), "tend", site.name)
    return began >= t.unsure + _apart(core)


def _apart(core: Core) -> int:
    """Ms between two listings that say the same, so that it is believed."""
    return core.config.listing // OFTENER


def _adopt(core: Core, site: SiteState, listed: list[e.Listed], began: int) -> None:
    """One fact for those heard of for the first time, one for those that run."""
    accepted: dict[int, str] = {}
    running: dict[int, None] = {}
    requeued: dict[int, IntentState] = {}
    staying: dict[int, None] = {}
    for job in listed:
        intent = _known(core, site, job.nonce)
        if intent is not None:
            intent.missed = 0
        if intent is not None and not intent.outside and intent.number not in accepted:
            accepted[intent.number] = job.id
        if intent is None or (accepted.get(intent.number) or intent.outside) != job.id:
            _unwanted(core, site, job.nonce, job.id)
        elif job.running and intent.state in (INTENDED, QUEUED):
            running[intent.number] = None
        elif not job.running and intent.state in (RUNNING, LEAVING) and _over(core, intent, began):
            requeued[intent.number] = intent  # what it held is free; it would come back as another pilot, unbidden
        elif intent.state == LEAVING and intent.changed + core.config.landing <= began:
            staying[intent.number] = None
    if accepted:
        core.emit(f.IntentsAccepted(core.now, site.name, list(accepted), list(accepted.values())))
    if running:
        core.emit(f.IntentsRunning(core.now, site.name, list(running)))
        for number in running:
            watch_wall(core, core.state.intents[number])
    if staying:
        core.emit(f.IntentsStopping(core.now, site.name, list(staying), "its pilot has left"))
    for intent in requeued.values():
        core.emit(f.IntentsStopping(core.now, site.name, [intent.number], "requeued"))
        pilot = core.state.pilots.get(intent.pilot)
        if pilot is not None and pilot.state != GONE:
            core.lose_pilot(pilot, "requeued")


def _over(core: Core, intent: IntentState, began: int) -> bool:
    """It was so before the listing began, and nobody has heard its pilot since."""
    pilot = core.state.pilots.get(intent.pilot)
    return intent.changed <= began and (pilot is None or pilot.heard <= began)


def _miss(core: Core, site: SiteState, there: set[str], began: int, sure: bool) -> None:
    """One fact for those of a kind, however many they are."""
    missing = [core.state.intents[number] for of in site.intents for number in of]
    missing = [i for i in missing if i.nonce not in there and _over(core, i, began)]
    site.tending.doubt = False
    over: dict[str, list[IntentState]] = {}
    for intent in missing:
        if why := _why_over(core, site, intent, began, sure):
            over.setdefault(why, []).append(intent)
    ran = over.pop("ran", [])
    for why, intents in over.items():
        end_intents(core, site, intents, why)
    if "gone" in over:
        hold_off(core, site)  # they never ran, or their pilots never found their way here
    if dead := [intent for intent in ran if not _salvage(core, site, intent)]:
        _gone(core, site, dead)


def _why_over(core: Core, site: SiteState, intent: IntentState, began: int, sure: bool) -> str:
    """One that is missing; "" if it may be there all the same."""
    if intent.state == LEAVING:
        return "left"
    if intent.state == INTENDED or (intent.state == STOPPING and not intent.outside):  # it may be on its way
        return "stopped" if intent.state == STOPPING and intent.given == 2 and sure else ""
    if not _lacks(core, site, intent, began):
        return ""
    return "gone" if intent.state == QUEUED else "ran" if intent.state == RUNNING else "stopped"


def _lacks(core: Core, site: SiteState, intent: IntentState, began: int) -> bool:
    """Is it gone?  Not by one listing alone; the next is asked for soon."""
    if not intent.missed:
        intent.missed = core.now
    if began >= intent.missed + _apart(core):
        return True
    site.tending.doubt = True
    return False


def _gone(core: Core, site: SiteState, intents: list[IntentState], why: str = "gone") -> None:
    """The site's evidence (S5)."""
    pilots = [core.state.pilots.get(intent.pilot) for intent in intents]
    vain = any(_left_in_vain(core, site, *pair) for pair in zip(intents, pilots, strict=True))
    end_intents(core, site, intents, why)
    for pilot in pilots:
        if pilot is not None and pilot.state != GONE:
            core.lose_pilot(pilot, why)
    if vain:
        hold_off(core, site)


def _left_in_vain(core: Core, site: SiteState, intent: IntentState, pilot: PilotState | None) -> bool:
    """Its pilot never came, or was given nothing though more like it are wanted."""
    return pilot is None or (pilot.state != GONE and not pilot.granted and _in_vain(core, site, intent))


# --- what pilots left behind ---------------------------------------------------------------------------------------


def _salvage(core: Core, site: SiteState, intent: IntentState) -> bool:
    """Its job is gone: have the site looked through for its results, if there can be any; False: there cannot."""
    pilot = core.state.pilots.get(intent.pilot)
    if not site.tending.salvages or pilot is None or pilot.state == GONE:
        return False
    if not len(core.state.attempts.of_pilot(pilot.number)):
        return False  # whatever it was given it has reported
    if not intent.salvage:
        intent.salvage = core.now + core.config.salvage
        core.timer(intent.salvage, "salvage", intent.number)
    site.tending.salvage.setdefault(intent.nonce, False)
    return True


def _take_salvaged(core: Core, site: SiteState, nonce: str, found: int) -> None:
    """What was found has been reported as its pilot would have; the rest is lost."""
    site.tending.salvage.pop(nonce, None)
    intent = _known(core, site, nonce)
    if intent is None or not intent.salvage:
        return
    since, intent.salvage = intent.salvage - core.config.salvage, 0
    pilot = core.state.pilots.get(intent.pilot)
    if found > 0 or (not found and (pilot is None or pilot.heard <= since)):
        _end_salvage(core, site, intent, f"{found} results were found there")


def salvage_due(core: Core, number: int) -> None:
    """Nobody has found anything in time; but whoever has spoken since lives."""
    intent = core.state.intents.get(number)
    if intent is None or not intent.salvage or core.now < intent.salvage:
        return
    since, intent.salvage = intent.salvage - core.config.salvage, 0
    site, pilot = core.state.sites[intent.site], core.state.pilots.get(intent.pilot)
    site.tending.salvage.pop(intent.nonce, None)
    if pilot is None or pilot.heard <= since:
        _end_salvage(core, site, intent, "what it left there could not be had in time")


def _end_salvage(core: Core, site: SiteState, intent: IntentState, says: str) -> None:
    pilot = core.state.pilots.get(intent.pilot)
    held = pilot.held if pilot is not None else 0
    says = f"the job of {intent.nonce} is gone: {says}, {held} tasks run again"
    core.emit(f.SiteNoted(core.now, site.name, "salvage", says))
    _gone(core, site, [intent])


def salvaging(core: Core, pilot: PilotState) -> int:
    """Until when what it left behind is looked for; 0: it is not."""
    intent = core.state.intents.get(pilot.intent)
    return intent.salvage if intent is not None and intent.pilot == pilot.number else 0


# --- ends ----------------------------------------------------------------------------------------------------------


def end_intents(core: Core, site: SiteState, intents: list[IntentState], why: str) -> None:
    spent = [used(intent, core.now) for intent in intents]
    core.emit(f.IntentsEnded(core.now, site.name, [intent.number for intent in intents], spent, why))


def used(intent: IntentState, now: int) -> int:
    """Never more than was reserved: its batch system ends it then."""
    ran = intent.shape.cores * intent.shape.nodes * (now - intent.began) if intent.began else 0
    return min(ran, intent.reserved) if intent.reserved else ran


def pilot_came(core: Core, pilot: PilotState) -> None:
    """It has enrolled: under an intent that waits for it, one that is to be stopped, or one that is over."""
    site = core.state.sites[pilot.site]
    intent = core.state.intents.get(pilot.intent)
    if site.drained or site.removed:
        core.emit(f.PilotDraining(core.now, pilot.number))
    if intent is not None and intent.state in (INTENDED, QUEUED):
        core.emit(f.IntentsRunning(core.now, site.name, [intent.number]))
        watch_wall(core, intent)
    elif intent is not None and intent.state == RUNNING:
        return  # said before by its batch system, or the same pilot again
    elif pilot.state == LIVE and (intent is not None or was_intent(core, pilot.nonce)):
        core.emit(f.PilotDraining(core.now, pilot.number))


def pilot_asked(core: Core, pilot: PilotState) -> None:
    """From now on it does not stand for a task that will be taken in a moment."""
    site = core.state.sites[pilot.site]
    if site.fresh.pop(pilot.intent, True) is None:
        core.changed = True
    if pilot.granted:
        site.tending.backoff, site.tending.probing = 0, False


def was_intent(core: Core, nonce: str) -> bool:
    mark, _, number = nonce.rpartition("-")
    counts = number.isascii() and number.isdigit() and len(number) < 20
    return mark == core.config.mark and counts and int(number) < core.state.next_intent


def pilot_left(core: Core, pilot: PilotState, why: str) -> None:
    """A pilot that only fell silent may still run: its intent stays until its wall time is over.  The job of one that
    said goodbye, or that somebody says is dead, is gone when its batch system says so."""
    intent = core.state.intents.get(pilot.intent)
    if intent is None or intent.pilot != pilot.number or why in ("silent", "requeued"):
        return
    site = core.state.sites[intent.site]
    if intent.state == RUNNING:
        core.emit(f.IntentsLeaving(core.now, site.name, [intent.number], why))
    if not pilot.granted and _in_vain(core, site, intent):
        hold_off(core, site)


def _in_vain(core: Core, site: SiteState, intent: IntentState) -> bool:
    """It left with nothing done though more like it are wanted: it came too late for its wall time, or is not what it
    was to be."""
    pilot = core.state.pilots[intent.pilot]
    if pilot.row in core.state.barred:
        return False  # its host is no good, the site may be
    bag = core.state.bags.get(intent.bag)
    if intent.task < 0:
        wanted = intent.shape in site.pool or _too_late(core, site, intent.shape, pilot)
    else:
        wanted = bag is not None and bag.tasks.state[intent.task] == READY
    if wanted and pilot.ends:
        _note_start(site, intent.shape, pilot)
    return wanted


def _too_late(core: Core, site: SiteState, shape: f.Shape, pilot: PilotState) -> bool:
    """Does something wait for just such a pilot, that needs more time than this one had when it came?"""
    had = pilot.ends - pilot.enrolled if pilot.ends else 1 << 60
    classes = core.state.classes
    return any(fit is not None and fit.shape == shape and number in classes and classes[number].ready > 0
               and classes[number].need > had for number, fit in site.fits.items())


def _note_start(site: SiteState, shape: f.Shape, pilot: PilotState) -> None:
    """So much of its wall time was over when it came: the next is to have as much to spare, and a bit, if it can."""
    over = shape.wall - shape.spare - (pilot.ends - pilot.enrolled)
    start = over * 5 // 4 + 1_000
    if shape.wall and start > site.tending.start:
        site.tending.start = start
        site.fits.clear()


def watch_wall(core: Core, intent: IntentState) -> None:
    if intent.shape.wall:
        late = core.config.lease + core.config.margin
        core.timer(max(intent.began + intent.shape.wall, core.now) + late, "wall", intent.number)


def wall_due(core: Core, number: int) -> None:
    """Its wall time has passed: no batch system lets it run on."""
    intent = core.state.intents.get(number)
    if intent is None or intent.state not in (RUNNING, LEAVING):
        return
    if intent.salvage:  # should its pilot turn out to live, this is looked at again
        core.timer(max(intent.salvage, core.now) + 1, "wall", number)
        return
    pilot = core.state.pilots.get(intent.pilot)
    later = pilot.ends + core.config.lease + core.config.margin if pilot is not None else 0
    if later > core.now:  # its batch system has started it again since
        core.timer(later, "wall", number)
        return
    end_intents(core, core.state.sites[intent.site], [intent], "wall time")
    if pilot is not None and pilot.state == LIVE:
        core.emit(f.PilotDraining(core.now, pilot.number))
        core.state.orders[pilot.number] = None


# --- answers --------------------------------------------------------------------------------------------------------


def _park(core: Core, site: SiteState, event: e.Tend) -> None:
    until = core.now + min(event.wait, core.config.park)
    if site.tending.park is not None:
        core.effects.append(compose(core, site, site.tending.park[0]))
    site.tending.park = (event.key, until)
    core.timer(until, "tend", site.name)


def tend_due(core: Core, name: str) -> None:
    site = core.state.sites[name]
    park = site.tending.park
    if park is not None and (park[1] <= core.now or has_orders(core, site)):
        answer(core, site)


def settle(core: Core) -> None:
    """The step is over: answer those who asked in it, and those who waited for what it decided."""
    for name, key in core.tended.items():
        core.effects.append(compose(core, core.state.sites[name], key))
    core.tended.clear()
    for name in core.state.stirred:
        site = core.state.sites[name]
        if site.tending.park is not None and has_orders(core, site):
            answer(core, site)
    core.state.stirred.clear()


def answer(core: Core, site: SiteState) -> None:
    if site.tending.park is not None:
        key, site.tending.park = site.tending.park[0], None
        core.effects.append(compose(core, site, key))


def has_orders(core: Core, site: SiteState) -> bool:
    """Anything that its tender has not been told, and may be?"""
    intents = core.state.intents
    return (
        any(not told for told in islice(site.tending.strays.values(), site.limits.flight))
        or any(not told for told in islice(site.tending.salvage.values(), site.limits.flight))
        or any(not intents[n].told for n in _to_stop(core, site))
        or any(not intents[n].given for n in _to_start(core, site))
        or (_list_due(core, site) and not site.tending.asked)
    )


def _to_start(core: Core, site: SiteState) -> Iterator[int]:
    """Those under way first: they are the oldest.  None while the site is suspect."""
    if site.suspect:
        return iter(())
    free = (n for n in site.intents[INTENDED] if core.state.intents[n].given < 2)
    return islice(free, site.limits.flight)


def _to_stop(core: Core, site: SiteState) -> Iterator[int]:
    known = (n for n in site.intents[STOPPING] if core.state.intents[n].outside or core.state.intents[n].given < 2)
    return islice(known, site.limits.flight)


def _list_due(core: Core, site: SiteState) -> bool:
    t = site.tending
    if not t.listed:  # those that have left count no more as soon as anybody has looked
        due = t.unsure + _apart(core) if t.unsure else t.since + core.config.landing
        return core.now >= due or (not t.heard_list and bool(site.intents[LEAVING]))
    return site.suspect > 0 or (_is_watched(core, site) and core.now >= _next_list(core, site))


def _is_watched(core: Core, site: SiteState) -> bool:
    """Has it pilots, or would it have some were it not for the user's other jobs, or an empty account?"""
    return site.open > 0 or ((site.limits.jobs > 0 or site.limits.account) and bool(core.state.ready))


def _next_list(core: Core, site: SiteState) -> int:
    t = site.tending
    if t.doubt:
        return t.heard_list + _apart(core)
    if t.eager and (first := next(iter(site.intents[LEAVING]), 0)):
        soon = core.state.intents[first].changed + core.config.parting
        return max(soon, t.heard_list + _apart(core))
    return t.heard_list + core.config.listing


def look_for_room(core: Core, site: SiteState) -> None:
    """More would be started were it not for those that leave: ask for a listing as soon as it may tell."""
    site.tending.eager = True
    core.timer(_next_list(core, site), "tend", site.name)


def compose(core: Core, site: SiteState, key: int) -> x.Orders:
    t, intents = site.tending, core.state.intents
    orders = x.Orders(key, site.name, t.number + 1, core.now)
    t.number, t.answered = t.number + 1, site.released
    for number in _to_start(core, site):
        intents[number].given = 1
        orders.start.append((intents[number].nonce, intents[number].shape))
    for number in _to_stop(core, site):
        intents[number].told = True
        orders.stop.append((intents[number].nonce, intents[number].outside))
    for stray in islice(t.strays, site.limits.flight):
        t.strays[stray] = True
        orders.stop.append(stray)
    for nonce in list(islice(t.salvage, site.limits.flight)):
        t.salvage[nonce] = True
        orders.salvage.append(nonce)
    if _list_due(core, site):
        orders.look = t.asked = True
        t.asked_at = t.asked_at or core.now
    if not t.listed or _is_watched(core, site):
        core.timer(core.now + core.config.listing, "tend", site.name)
    return orders
