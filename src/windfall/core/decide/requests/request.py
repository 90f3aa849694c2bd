"""The common part of users' requests: refusals, the bag they name, idempotency keys, bounds on tasks.

A handler raises an error of `errors.py` to refuse its event, before it emits a fact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from windfall.core.messages import events as e
from windfall.core.state.classes import digest
from windfall.core.state.world import BagState
from windfall.core.turn import Turn
from windfall.errors import Conflict, NotFound, TooLarge, WindfallError
from windfall.model.spec import MAX_TASKS

E = TypeVar("E", bound=e.Event)


def refusing(handle: Callable[[Turn, E], None]) -> Callable[[Turn, E], None]:
    """Let a handler refuse its event by raising an error."""

    @wraps(handle)
    def handle_or_refuse(turn: Turn, event: E) -> None:
        try:
            handle(turn, event)
        except WindfallError as error:
            turn.refuse(event, error.code, error.message, error.hint)

    return handle_or_refuse


def the_bag(turn: Turn, number: int) -> BagState:
    """Return the bag of that number, or refuse the request.  `server/calls/bags.py` has checked the bag's owner."""
    bag = turn.state.bags.get(number)
    if bag is None:
        raise NotFound(f"there is no bag {number}", "windfall ls shows yours")
    return bag


def earlier_answer(turn: Turn, key: tuple[str, str], *body: bytes) -> tuple[int, int, int, int] | None:
    """Return what was answered to this request when it was sent before (bag, first task, tasks, digest).

    Another request, with another body, is refused under the same idempotency key."""
    answer = turn.state.keys.get(key)
    if answer is not None and digest(b"".join(body)) != answer[3]:
        raise Conflict("this idempotency key was used for something else", "choose a new key")
    return answer


def check_size(turn: Turn, owner: str, more: int, had: int = 0) -> None:
    """Refuse tasks beyond what memory holds: tasks of one bag, which has `had`, and of all bags of an owner."""
    owned, most = turn.state.tasks_owned.get(owner, 0), turn.config.owned
    if had + more > MAX_TASKS:
        raise TooLarge(
            f"the bag would have {had + more:,} tasks; a bag has at most {MAX_TASKS:,}",
            "submit the rest as a bag of its own",
        )
    if owned + more > most:
        raise Conflict(
            f"your bags have {owned:,} tasks; with these {more:,} they would have more than {most:,}",
            "remove bags you need no more: windfall rm",
        )
