"""The cache of compiled programs, `$WINDFALL_HOME/compiled.json`: no application compiles the same source twice.

The file maps the hash of a source, with all that goes with it, to the blob of its program.  The submission of a bag
shows whether the server still has the blob; each host checks for itself whether it can run the program.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from windfall.client.profile import home
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.model.bagfile.reader import Parsed

KEPT = 1_000  # binaries
LARGE = 100_000  # tasks; for later tasks of a bag, compiling costs less than looking into the cache


def lighter(parsed: Parsed) -> Parsed:
    """Return the bag without the tasks that would compile a program in the cache."""
    from windfall.workflow.build.reuse import remainder

    known = _read()
    sources = _sources(parsed) if known else {}
    done: Any = {bytes.fromhex(key): (0, task, [("binary", *known[key], 0o755)]) for task, key in sources.items()
                 if key in known}
    if not done:
        return parsed
    left = remainder(parsed.bag, done)
    if left.bag is None or parsed.results is None:
        return parsed
    return parsed._replace(bag=left.bag, results={
        (left.tasks[task], path): name for (task, path), name in parsed.results.items()})


def remember(client: Client, bag: int, parsed: Parsed) -> None:
    """Put the programs that a bag has compiled into the cache."""
    sources = _sources(parsed)
    if not sources:
        return
    known = _read()
    for number, key in sources.items():
        task = number if parsed.numbers is None else parsed.numbers[number]
        row = next((row for row in client.results(bag, "succeeded", task - 1, 1)), None)
        # an empty program means that the compiler failed
        if row is not None and row["task"] == task and row["files"] and row["files"][0][2]:
            known.pop(key, None)
            known[key] = row["files"][0][1], row["files"][0][2]
    _write(dict(list(known.items())[-KEPT:]))


def _sources(parsed: Parsed) -> dict[int, str]:
    """Return the tasks that compile, each with the hash of its source and all that goes with it."""
    from windfall.model.templates.render import source_count
    from windfall.workflow.build.builder import COMPILE
    from windfall.workflow.build.reuse import TaskKeys

    first = 0
    for target in parsed.bag.targets:
        count = source_count(target.source)
        if target.name == COMPILE and parsed.results is not None and first + count <= LARGE:
            keys = TaskKeys(parsed.bag)
            return {task: (keys.key(task, {}) or b"").hex() for task in range(first, first + count)}
        first += count
    return {}


def _read() -> dict[str, tuple[str, int]]:
    try:
        found = json.loads((home() / "compiled.json").read_text())
        return {str(key): (str(sha), int(size)) for key, (sha, size) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(known: dict[str, tuple[str, int]]) -> None:
    part = home() / f".compiled-{os.getpid()}.json"
    try:
        part.write_text(json.dumps(known))
        os.replace(part, home() / "compiled.json")
    except OSError:
        part.unlink(missing_ok=True)  # without the cache, programs are compiled again


def is_missing(error: BadInput) -> bool:
    """Did the server refuse a bag for a blob that it no longer has?"""
    return "has not been sent" in error.message
