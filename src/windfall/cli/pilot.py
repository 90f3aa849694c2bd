"""`windfall pilot`: the same program as the zipapp, with the same options."""

from __future__ import annotations


def execute(arguments: list[str]) -> int:
    from ..pilot.main import main

    return int(main(arguments) or 0)
