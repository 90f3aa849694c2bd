"""Find the seed whose world catches a mutant.

The file caught.json holds the seed that caught each mutant last.  The test of a mutant tries that seed first, and so
most tests take no time.  `python -m tests.property.caught` plays all mutants and writes down which seeds catch them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .plan import Plan
from .world import Broken, World

FILE = Path(__file__).with_name("caught.json")
LAST: dict[str, int] = json.loads(FILE.read_text())


def caught_by(name: str, promise: str, worlds: Callable[[int], Plan], most: int) -> int:
    """Return a seed in whose world that promise is broken: the seed in caught.json, or else the first that does."""
    told: dict[str, int] = {}
    for seed in (LAST.get(name, 0), *range(most)):
        try:
            World(worlds(seed)).run()
        except Broken as broken:
            if any(said.startswith(promise) for said in broken.said):
                return seed
            told.setdefault(broken.said[0], seed)
        except Exception as error:  # a mutant may fall over its own feet before it breaks a promise
            told.setdefault(repr(error), seed)
    pytest.fail(f"{name} broke no {promise} in {most} seeds; instead: {told}")


def main() -> None:
    from . import test_data_mutants, test_mutants

    found = {}
    for module in (test_mutants, test_data_mutants):
        for name in module.MUTANTS:
            with pytest.MonkeyPatch.context() as patch:
                found[name] = module.caught(name, patch)
            print(name, found[name], file=sys.stderr, flush=True)
            FILE.write_text(json.dumps({**LAST, **found}, indent=1) + "\n")
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
