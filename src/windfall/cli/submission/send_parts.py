"""Submit a large bag part by part (`workflow/build/streaming.py`): its first tasks run while the rest is sent.

Each part has a key of its own, so that the server takes it once, even if it restarts meanwhile.  A command that is
interrupted closes the bag: the tasks it has sent run to their end, and `windfall rerun` runs the others.  If closing
fails, too, the bag stays open, and `windfall explain` says so.
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
    """A submitted bag, and its parts that are still to be sent; `parsed` is the whole bag, by the server's numbers."""

    bag: int
    parsed: Parsed
    rest: Iterator[Part] | None = None
    key: str = ""


def submit(session: Session, parsed: Parsed) -> Sent:
    """Submit with one key, so that the bag is submitted once even if another server takes over meanwhile."""
    from windfall.client.client import new_key

    key = new_key()
    found = None
    if parsed.results is not None:  # only an application: other graphs find tasks by their numbers
        from windfall.workflow.build.builder import Landing
        from windfall.workflow.build.streaming import cut

        found = cut(parsed.bag)
    if found is None:
        return Sent(session.ask(lambda client: client.submitted(parsed.bag, parsed.uploads, key)["bag"]), parsed)
    first = found.bag
    bag = session.ask(lambda client: client.submitted(first, parsed.uploads, key)["bag"])
    numbers, results = found.numbers.tolist(), Landing(lambda: _renumbered(parsed, numbers))
    return Sent(bag, parsed._replace(results=results, numbers=numbers), found.parts, key)


def _renumbered(parsed: Parsed, numbers: list[int]) -> dict[tuple[int, str], str]:
    return {(numbers[task], path): name for (task, path), name in (parsed.results or {}).items()}


def feed(session: Session, sent: Sent, total: int, progress: Progress | None = None) -> None:
    """Send the rest of the bag, and close it."""
    if sent.rest is None:
        return
    sent_tasks = 0
    try:
        for number, part in enumerate(sent.rest):
            sent_tasks = part.first
            counts = session.ask(lambda client, n=number, part=part: _send(client, sent, part, n))  # type: ignore[misc]
            if progress is not None:
                progress(counts)
        sent_tasks = total
        session.ask(lambda client: client.close_bag(sent.bag))
    except (KeyboardInterrupt, SystemExit, WindfallError):
        if progress is not None:
            progress.finish()
        _close_early(session, sent, sent_tasks, total)
        raise


def _send(client: Any, sent: Sent, part: Part, number: int) -> dict[str, int]:
    client.append_part(sent.bag, part, f"{sent.key} {number}")
    counts: dict[str, int] = client.bag(sent.bag)["counts"]
    return counts


def _close_early(session: Session, sent: Sent, sent_tasks: int, total: int) -> None:
    """Close an incomplete bag, so that it can end, and say how to go on."""
    try:
        session.reconnect()  # the old connection may be in the middle of an answer
        tasks = int(session.client.close_bag(sent.bag)["tasks"])
    except WindfallError as error:
        say(f"bag {sent.bag} has at least {sent_tasks:,} of its {total:,} tasks, and cannot be closed: {error}\n"
            f"  to close it, and cancel its tasks that have not ended: windfall cancel {sent.bag}")
        return
    say(f"bag {sent.bag} has {tasks:,} of its {total:,} tasks, and is closed; these tasks go on\n"
        f"  wait for it: windfall wait {sent.bag}\n  then run the rest: windfall rerun, with the same arguments\n"
        f"  give up:     windfall cancel {sent.bag}")
