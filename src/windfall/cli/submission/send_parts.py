"""The rest of a bag that is sent part by part (`workflow/build/streaming.py`), while its first tasks run.

Each part has a key of its own, so that it is there once, whatever becomes of the server meanwhile.  Whoever is
interrupted closes the bag: what was sent goes on to its end, and `windfall rerun` runs what was not.  Should even that
be impossible, the bag stays open; `windfall explain` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from windfall.cli.present.output import say
from windfall.errors import WindfallError

if TYPE_CHECKING:
    from windfall.cli.connect import Session
    from windfall.cli.watch.progress import Progress
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Part


class Sent(NamedTuple):
    """A bag that was submitted, and what of it is still to be sent; `parsed` is the whole, by the server's numbers."""

    bag: int
    parsed: Parsed
    rest: Iterator[Part] | None = None
    key: str = ""


def submit(session: Session, parsed: Parsed) -> Sent:
    """With one key, so that the bag is submitted once even if the server changes under us."""
    from windfall.client.client import new_key

    key = new_key()
    found = None
    if parsed.results is not None:  # an application's; whoever else sends graphs looks for tasks by their numbers
        from windfall.workflow.build.builder import Landing
        from windfall.workflow.build.streaming import cut

        found = cut(parsed.bag)
    if found is None:
        return Sent(session.ask(lambda client: client.submit(parsed.bag, parsed.uploads, key)), parsed)
    first = found.bag
    bag = session.ask(lambda client: client.submit(first, parsed.uploads, key))
    numbers, results = found.numbers.tolist(), Landing(lambda: _renumbered(parsed, numbers))
    return Sent(bag, parsed._replace(results=results, numbers=numbers), found.parts, key)


def _renumbered(parsed: Parsed, numbers: list[int]) -> dict[tuple[int, str], str]:
    return {(numbers[task], path): name for (task, path), name in (parsed.results or {}).items()}


def feed(session: Session, sent: Sent, total: int, progress: Progress | None = None) -> None:
    """Send what is left, and close the bag."""
    if sent.rest is None:
        return
    there = 0
    try:
        for number, part in enumerate(sent.rest):
            there = part.first
            counts = session.ask(lambda client, n=number, part=part: _send(client, sent, part, n))  # type: ignore[misc]
            if progress is not None:
                progress(counts)
        there = total
        session.ask(lambda client: client.close_bag(sent.bag))
    except (KeyboardInterrupt, SystemExit, WindfallError):
        if progress is not None:
            progress.finish()
        _give_up(session, sent, there, total)
        raise


def _send(client: Any, sent: Sent, part: Part, number: int) -> dict[str, int]:
    client.append_part(sent.bag, part, f"{sent.key} {number}")
    counts: dict[str, int] = client.bag(sent.bag)["counts"]
    return counts


def _give_up(session: Session, sent: Sent, there: int, total: int) -> None:
    """Nobody appends any more: say what is there, and let it end."""
    try:
        session.reconnect()  # the old connection may be in the middle of an answer
        tasks = int(session.client.close_bag(sent.bag)["tasks"])
    except WindfallError as error:
        say(f"bag {sent.bag} has at least {there:,} of its {total:,} tasks, and stays open: {error}\n"
            f"  close it: windfall cancel {sent.bag}, which cancels what has not ended")
        return
    say(f"bag {sent.bag} has {tasks:,} of its {total:,} tasks, and is closed; what is there goes on\n"
        f"  wait for it: windfall wait {sent.bag}\n  then run the rest: windfall rerun, with the same words as this\n"
        f"  give up:     windfall cancel {sent.bag}")
