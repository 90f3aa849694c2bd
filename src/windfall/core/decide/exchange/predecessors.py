"""Predecessors: pilots in doubt, and what a later pilot on the same host can tell of them.

Rules
  * A pilot is in doubt while it is silent and holds attempts that have not been given up.
  * Only a pilot of the same site and owner, on a host of the same id and name, testifies.  A host id may repeat among
    machines that are copies of one image, so the boot decides: the same boot means the same machine.
  * In the same boot the reply asks the pilot to look for its predecessor's processes; it tells when none is left.
  * A process that has enrolled again, and lists all it holds, tells of its own older epochs.
  * After another boot no process of an earlier one is left.  The network cards' addresses say that it is one machine.
  * While the predecessor's results are being salvaged, nobody testifies.  One host cannot tell of a pilot of several
    nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.decide.provision.intents import salvaging_until
from windfall.core.messages.lifecycle import GONE
from windfall.core.state.world import PilotState
from windfall.core.turn import Turn

MOST_SOUGHT = 64  # predecessors that one reply names


def note_doubt(turn: Turn, pilot: PilotState) -> None:
    """Remember a pilot in doubt, for other pilots on its host."""
    turn.exchange.in_doubt.setdefault(_machine(pilot), {})[pilot.number] = None


def forget_doubt(turn: Turn, pilot: PilotState, number: int) -> None:
    """Forget the pilot of this number, on the host of `pilot`; and the host, if no pilot there is in doubt any more."""
    machine = _machine(pilot)
    doubted = turn.exchange.in_doubt.get(machine, {})
    doubted.pop(number, None)
    if not doubted:
        turn.exchange.in_doubt.pop(machine, None)


def sought(turn: Turn, pilot: PilotState) -> list[str]:
    """Return the marks of the predecessors whose processes the pilot is to look for."""
    lives = {older.life: None for older in _predecessors(turn, pilot) if older.boot == pilot.boot and older.life}
    lives.pop(pilot.life, None)  # its own: the process has enrolled again
    return list(lives)[:MOST_SOUGHT]


def proven_dead(turn: Turn, pilot: PilotState, dead: list[str], has_listed: bool) -> list[tuple[PilotState, str]]:
    """Return the predecessors that are dead, each with the reason.

    The pilot's boot tells, or what it says of their processes; of its own older epochs, that it `has_listed` all that
    it holds: they hold nothing else."""
    ended = []
    for older in _predecessors(turn, pilot):
        if older.boot != pilot.boot:
            why = "gone" if older.hardware == pilot.hardware != "" else ""
        elif older.life == pilot.life:
            why = "superseded" if has_listed and older.life and older.number < pilot.number else ""
        else:
            why = "gone" if older.life in dead and older.life else ""
        if why:
            ended.append((older, why))
    return ended


def _predecessors(turn: Turn, pilot: PilotState) -> Iterator[PilotState]:
    """Yield the pilots in doubt of which this one can tell; forget those that are in doubt no more."""
    doubted = turn.exchange.in_doubt.get(_machine(pilot), {}) if pilot.boot else {}
    for number in list(doubted):
        older = turn.state.pilots.get(number)
        if older is None or older.state == GONE or not older.lease_expired:
            forget_doubt(turn, pilot, number)
        elif number != pilot.number and older.boot and older.nodes == 1 and not salvaging_until(turn, older):
            yield older


def _machine(pilot: PilotState) -> tuple[str, str, str, str]:
    return pilot.site, pilot.owner, pilot.host, pilot.host_name
