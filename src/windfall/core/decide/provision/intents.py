"""Intents: what the enrolment, the requests and the end of a pilot mean for the intent it was started under."""

from __future__ import annotations

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import INTENDED, LIVE, QUEUED, READY, RUNNING
from windfall.core.state.world import IntentState, PilotState, SiteState
from windfall.core.turn import Turn

BACKOFF, MOST_BACKOFF = 15_000, 600_000  # ms that a site which refused is left alone; doubled each time


def hold_off(turn: Turn, site: SiteState) -> None:
    t = site.session
    if t.retry_after <= turn.now:
        t.backoff = min(2 * t.backoff or BACKOFF, MOST_BACKOFF)
        t.retry_after = turn.now + t.backoff


def end_intents(turn: Turn, site: SiteState, intents: list[IntentState], why: str) -> None:
    spent = [used(intent, turn.now) for intent in intents]
    turn.emit(f.IntentsEnded(turn.now, site.name, [intent.number for intent in intents], spent, why))


def used(intent: IntentState, now: int) -> int:
    """Never more than was reserved: its batch system ends it then."""
    ran = intent.shape.cores * intent.shape.nodes * (now - intent.running_since) if intent.running_since else 0
    return min(ran, intent.reserved) if intent.reserved else ran


def pilot_came(turn: Turn, pilot: PilotState) -> None:
    """It has enrolled: under an intent that waits for it, one that is to be stopped, or one that is over."""
    site = turn.state.sites[pilot.site]
    intent = turn.state.intents.get(pilot.intent)
    if site.drained or site.removed:
        turn.emit(f.PilotDraining(turn.now, pilot.number))
    if intent is not None and intent.state in (INTENDED, QUEUED):
        turn.emit(f.IntentsRunning(turn.now, site.name, [intent.number]))
        watch_wall(turn, intent)
    elif intent is not None and intent.state == RUNNING:
        return  # said before by its batch system, or the same pilot again
    elif pilot.state == LIVE and (intent is not None or was_intent(turn, pilot.nonce)):
        turn.emit(f.PilotDraining(turn.now, pilot.number))


def pilot_asked(turn: Turn, pilot: PilotState) -> None:
    """From now on it does not stand for a task that will be taken in a moment."""
    site = turn.state.sites[pilot.site]
    if site.starting.pop(pilot.intent, True) is None:
        turn.provision.changed = True
    if pilot.granted:
        site.session.backoff, site.session.probing = 0, False


def was_intent(turn: Turn, nonce: str) -> bool:
    mark, _, number = nonce.rpartition("-")
    counts = number.isascii() and number.isdigit() and len(number) < 20
    return mark == turn.config.mark and counts and int(number) < turn.state.next_intent


def pilot_left(turn: Turn, pilot: PilotState, why: str) -> None:
    """A pilot that only fell silent may still run: its intent stays until its wall time is over.  The job of one that
    said goodbye, or that somebody says is dead, is gone when its batch system says so."""
    intent = turn.state.intents.get(pilot.intent)
    if intent is None or intent.pilot != pilot.number or why in ("silent", "requeued"):
        return
    site = turn.state.sites[intent.site]
    if intent.state == RUNNING:
        turn.emit(f.IntentsLeaving(turn.now, site.name, [intent.number], why))
    if not pilot.granted and left_in_vain(turn, site, intent):
        hold_off(turn, site)


def left_in_vain(turn: Turn, site: SiteState, intent: IntentState) -> bool:
    """It left with nothing done though more like it are wanted: it came too late for its wall time, or is not what it
    was to be."""
    pilot = turn.state.pilots[intent.pilot]
    if pilot.row in turn.state.quarantined:
        return False  # its host is no good, the site may be
    bag = turn.state.bags.get(intent.bag)
    if intent.task < 0:
        wanted = intent.shape in site.queued_by_shape or _too_late(turn, site, intent.shape, pilot)
    else:
        wanted = bag is not None and bag.tasks.state[intent.task] == READY
    if wanted and pilot.ends:
        _note_start(site, intent.shape, pilot)
    return wanted


def _too_late(turn: Turn, site: SiteState, shape: f.Shape, pilot: PilotState) -> bool:
    """Does something wait for just such a pilot, that needs more time than this one had when it came?"""
    had = pilot.ends - pilot.enrolled if pilot.ends else 1 << 60
    classes = turn.state.classes
    return any(fit is not None and fit.shape == shape and number in classes and classes[number].ready > 0
               and classes[number].least_time_left > had for number, fit in site.best_shapes.items())


def _note_start(site: SiteState, shape: f.Shape, pilot: PilotState) -> None:
    """So much of its wall time was over when it came: the next is to have as much to spare, and a bit, if it can."""
    over = shape.wall - shape.spare - (pilot.ends - pilot.enrolled)
    start = over * 5 // 4 + 1_000
    if shape.wall and start > site.session.late_start:
        site.session.late_start = start
        site.best_shapes.clear()


def watch_wall(turn: Turn, intent: IntentState) -> None:
    if intent.shape.wall:
        late = turn.config.lease + turn.config.margin
        turn.timers.add(max(intent.running_since + intent.shape.wall, turn.now) + late, "wall", intent.number)
