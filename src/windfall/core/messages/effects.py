"""Effects: orders of the core to its driver, who carries them out after the facts of the step are durable."""

from __future__ import annotations

import msgspec

from windfall.core.messages.facts import Group, Shape, Transfer


class Effect(msgspec.Struct, gc=False):
    key: int  # the event's


class Done(Effect):
    """The event was carried out; `value` is its answer (a bag's number, a count, …)."""

    value: int = 0
    extra: int = 0


class Refuse(Effect):
    """The event was not carried out.  `error` names a class of `errors.py` by its code."""

    error: str
    message: str
    hint: str = ""


class Enrolled(Effect):
    pilot: int
    epoch: int
    lease: int
    idle: int
    spread: int
    park: int


class ExchangeReply(Effect):
    """Reply to an exchange, parked or not.  `grants` holds (number, groups), oldest first."""

    pilot: int
    epoch: int
    seq: int
    lease: int
    spread: int
    grants: list[tuple[int, list[Group]]] = []
    cancel: list[int] = []
    recall: list[int] = []
    census: bool = False
    stop: str = ""
    transfers: list[Transfer] = []  # what the attempts granted here are to fetch, and whence
    look: list[str] = []  # marks of predecessors on the pilot's host, to look for


class SiteOrders(Effect):
    """Reply to a `SiteReport`: every order that the provisioner has not reported as done, up to the site's `flight`."""

    site: str
    number: int
    now: int  # the core's
    start: list[tuple[str, Shape]] = []  # nonce
    stop: list[tuple[str, str]] = []  # nonce, the batch system's name where it is known
    look: bool = False  # say what the batch system has of ours
    over: bool = False  # somebody else tends this site now
    salvage: list[str] = []  # nonces whose job is gone: bring home what their pilots left behind


