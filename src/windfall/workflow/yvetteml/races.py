"""Find races: data that is used out of order.

Reading and writing order nothing, so a program may read data before it is written.  Two tasks of one level, or a reader
on a level before all writers, have no order: the check reports such uses as doubts, not as mistakes.  Every reported
race is real; the check may miss some.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windfall.workflow.components.files import Application
from windfall.workflow.yvetteml.names import Registry, Use, by_rank, first_bad, numbered

MOST = 20  # races reported


def unordered(registry: Registry, level: np.ndarray, from_outside: set[str]) -> list[str]:
    """Report data used out of order; parameters in `from_outside` have a value before anything runs."""
    found: list[str] = []
    for (scope, name), uses in registry.data.items():
        items = [use for use in uses if not use.collection and use.frame.n]
        families = [use for use in uses if use.collection and use.frame.n]
        if items and not any(use.mode != "in" for use in families):
            found += _of_name(items, level, scope == 0 and name in from_outside)
            found += _of_families(families, items, level)
        if len(found) > MOST:
            break
    return found[:MOST]


def unwritten(registry: Registry, application: Application) -> list[str]:
    """Report parameters of mode out that no statement writes."""
    names = {name for (scope, name), uses in registry.data.items() if not scope
             and any(use.mode != "in" and use.frame.n for use in uses)}
    return [f"{application.source.file}: '{each.name}' is a parameter of mode out, and nothing writes it"
            for each in application.params if each.mode == "out" and each.name not in names]


def _of_name(items: list[Use], level: np.ndarray, outside: bool) -> Iterator[str]:
    keys = numbered(items, len(items[0].ref.indices))
    levels = _levels(items, level)
    writes = np.concatenate([np.full(use.frame.n, use.mode != "in") for use in items])
    written, which = np.unique(keys[writes], return_inverse=True)
    if not len(written):
        return
    if not outside:
        earliest = np.full(len(written), np.iinfo(np.int32).max, np.int32)
        np.minimum.at(earliest, which, levels[writes])
        at = np.minimum(np.searchsorted(written, keys), len(written) - 1)
        early = ~writes & (written[at] == keys) & (levels <= earliest[at])
        yield from _told(items, early, "is read, and nothing makes that wait until it is written")
    yield from _told(items, _twice(keys, levels, writes), "is written by two tasks that nothing puts in order")


def _of_families(families: list[Use], items: list[Use], level: np.ndarray) -> Iterator[str]:
    """Report a collection read on the level on which a task writes one of its members."""
    writes = [use for use in items if use.mode != "in"]
    for rank, reads in by_rank(families).items() if writes else ():
        every = [*reads, *writes]
        which, levels = np.unique(numbered(every, rank), return_inverse=True)[1].reshape(-1), _levels(every, level)
        both, count = which * (int(levels.max()) + 1) + levels, sum(use.frame.n for use in reads)
        yield from _told(reads, np.isin(both[:count], both[count:]), "is read as a whole while a part of it is written")


def _levels(uses: list[Use], level: np.ndarray) -> np.ndarray:
    return np.concatenate([level[int(use.node) : int(use.node) + use.frame.n] for use in uses])


def _twice(keys: np.ndarray, levels: np.ndarray, writes: np.ndarray) -> np.ndarray:
    """Mark the second of two writers of one thing on one level."""
    rows = np.flatnonzero(writes)
    order = rows[np.lexsort((rows, levels[rows], keys[rows]))]
    same = (keys[order[1:]] == keys[order[:-1]]) & (levels[order[1:]] == levels[order[:-1]])
    found = np.zeros(len(keys), bool)
    found[order[1:][same]] = True
    return found


def _told(uses: list[Use], bad: np.ndarray, message: str) -> Iterator[str]:
    for use, row in first_bad(uses, bad):
        source, where = use.frame.source, use.frame.where(row)
        place = ":".join(map(str, source.place(use.at))) + ": " if source.lines else " "  # what is in Python has none
        yield f"{source.file}:{place}'{use.shown(row)}' {message}{where}; notify and wait do"
