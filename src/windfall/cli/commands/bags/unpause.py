"""`windfall unpause`: start tasks of a paused bag again."""

from __future__ import annotations

import argparse

from windfall.cli.commands.bags import pause

add_arguments = pause.add_arguments


def execute(args: argparse.Namespace) -> int:
    return pause.execute(args, "unpause")
