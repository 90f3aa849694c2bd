"""What the journal need not remember: the facts of bags that were removed.

Rows before the snapshot serve only to fill the views again, so dropping these facts from them changes nothing that is
still true.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from windfall.core import facts as f
from windfall.store import codec


def without(kept: Container[int]) -> Callable[[bytes], bytes | None]:
    """An edit for `Journal.rewrite`: facts of bags that are not `kept` go; a row of nothing else goes too."""

    def edit(body: bytes) -> bytes | None:
        facts = codec.decode(body)
        left = [lean for fact in facts if (lean := _lean(fact, kept)) is not None]
        if len(left) == len(facts) and all(a is b for a, b in zip(left, facts, strict=True)):
            return body
        return codec.encode(left) if left else None

    return edit


def _lean(fact: f.Fact, kept: Container[int]) -> f.Fact | None:
    if isinstance(fact, f.Granted):
        groups = [group for group in fact.groups if group.bag in kept]
        if len(groups) == len(fact.groups):
            return fact
        return msgspec.structs.replace(fact, groups=groups) if groups else None
    if isinstance(fact, f.Ended):
        ends = [end for end in fact.ends if end.bag in kept]
        if len(ends) == len(fact.ends):
            return fact
        return msgspec.structs.replace(fact, ends=ends) if ends else None
    bag = getattr(fact, "bag", None)
    return fact if bag is None or bag in kept else None
