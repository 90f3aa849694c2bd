"""Retention: the edit by which `server/retention.py` drops the facts of removed bags from the journal.

Rows before the snapshot only serve to fill the views again, and the views omit removed bags.  So without these facts
the result is the same.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from windfall.core.messages import facts as f
from windfall.store import codec


class DropRemovedBags:
    """An edit for `Journal.rewrite` that drops the facts of bags that are not in `kept`, and rows left empty.

    Rows come in their order.  Grants tell the bag of facts that name only attempts: `_doomed` holds the attempts of
    removed bags from their grant to their end, never more than were in play at one time.  A pass that resumes in the
    middle has not seen all grants, and keeps the facts whose bag it cannot tell.
    """

    def __init__(self, kept: Container[int]) -> None:
        self._kept = kept
        self._doomed: set[int] = set()

    def __call__(self, body: bytes) -> bytes | None:
        facts = codec.decode(body)
        left = [lean for fact in facts if (lean := self._without_removed(fact)) is not None]
        if len(left) == len(facts) and all(a is b for a, b in zip(left, facts, strict=True)):
            return body
        return codec.encode(left) if left else None

    def _without_removed(self, fact: f.Fact) -> f.Fact | None:
        if isinstance(fact, f.Granted):
            return self._granted(fact)
        if isinstance(fact, f.Ended):
            return self._ended(fact)
        if isinstance(fact, f.Started | f.Adopted):
            return self._of_attempts(fact)
        if isinstance(fact, f.CopiesLost):
            return self._copies(fact)
        bag = getattr(fact, "bag", None)
        if bag is None or bag in self._kept:
            return fact
        if isinstance(fact, f.Finished):
            self._doomed.difference_update(fact.attempts)
        return None

    def _granted(self, fact: f.Granted) -> f.Fact | None:
        groups = [group for group in fact.groups if group.bag in self._kept]
        if len(groups) == len(fact.groups):
            return fact
        for group in fact.groups:
            if group.bag not in self._kept:
                self._doomed.update(group.attempts)
        moves = [move for move in fact.transfers if move.attempt not in self._doomed]
        return msgspec.structs.replace(fact, groups=groups, transfers=moves) if groups else None

    def _copies(self, fact: f.CopiesLost) -> f.Fact | None:
        lost = [(bag, runs) for bag, runs in fact.lost if bag in self._kept]
        if len(lost) == len(fact.lost):
            return fact
        return msgspec.structs.replace(fact, lost=lost) if lost else None

    def _ended(self, fact: f.Ended) -> f.Fact | None:
        ends = [end for end in fact.ends if end.bag in self._kept]
        if len(ends) == len(fact.ends):
            return fact
        self._doomed.difference_update(
            end.attempt for end in fact.ends if end.bag not in self._kept and not end.row_kept
        )
        return msgspec.structs.replace(fact, ends=ends) if ends else None

    def _of_attempts(self, fact: f.Started | f.Adopted) -> f.Fact | None:
        attempts = [attempt for attempt in fact.attempts if attempt not in self._doomed]
        if len(attempts) == len(fact.attempts):
            return fact
        return msgspec.structs.replace(fact, attempts=attempts) if attempts else None
