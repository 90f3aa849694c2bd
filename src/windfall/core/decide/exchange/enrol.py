"""Enrolment: a pilot joins its site, under a new number; a process that enrols again gets a new epoch."""

from __future__ import annotations

from windfall.core.decide.exchange.leases import watch_lease
from windfall.core.decide.exchange.reply import answer_waiting, reconnect_spread
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision.intents import pilot_came
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.bounds import MOST_CORES, MOST_PILOTS, TEN_YEARS, bounded_nodes
from windfall.core.messages.lifecycle import GONE
from windfall.core.turn import Turn


def enrol(turn: Turn, event: e.Enrol) -> None:
    """Register a pilot, start its lease, and note what it means for the intent it was started under."""
    state = turn.state
    site = state.sites.get(event.site)
    if site is None:
        turn.refuse(event, "not-found", f"there is no site called {event.site!r}")
        return
    older = state.pilots.get(state.nonces.get((event.site, event.nonce), 0))
    epoch = 1 if older is None else older.epoch + 1
    number = state.next_pilot
    if number > MOST_PILOTS:
        turn.refuse(event, "conflict", "this server has numbered as many pilots as it can", "start a new journal")
        return
    ends = 0 if event.left is None else turn.now + min(max(event.left, 0), TEN_YEARS)
    cores = min(max(event.cores, 1), MOST_CORES)
    intent = state.intents.get(state.intent_nonces.get((event.site, event.nonce), 0))
    turn.emit(f.PilotEnrolled(
        turn.now, number, event.nonce, epoch, event.site, owner=site.owner, host=event.host, host_name=event.host_name,
        cores=cores, memory=event.memory, gpus=event.gpus, disk=event.disk, ends=ends, token=event.token,
        expires=(ends or turn.now) + turn.config.token, detail=event.detail, nodes=bounded_nodes(cores, event.nodes),
        whole=intent is None or intent.shape.whole, boot=event.boot, life=event.life, hardware=event.hardware,
    ))
    if older is not None:
        answer_waiting(turn, older)
        nearest_data.recheck_withheld(turn)
    pilot = state.pilots[number]
    pilot_came(turn, pilot)
    turn.exchange.pilots_alive += 1
    watch_lease(turn, pilot)
    turn.effects.append(x.Enrolled(
        event.key, number, epoch, lease=turn.config.lease, idle=turn.config.idle, spread=reconnect_spread(turn),
        park=turn.config.park,
    ))


def resume(turn: Turn) -> None:
    """Start every lease again after a recovery, and the timers that forget pilots."""
    alive = 0
    for pilot in turn.state.pilots.values():
        if pilot.state == GONE:
            turn.timers.add(pilot.ended + turn.config.forget, "forget", pilot.number)
            continue
        pilot.heard = turn.now
        alive += 1
        watch_lease(turn, pilot)
    turn.exchange.pilots_alive = alive
