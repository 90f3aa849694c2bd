"""Bringing output files home, and saying what else lies there."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .output import plural

if TYPE_CHECKING:
    from ..client.client import Client

MOST_LOOKED_AT = 1_000_000  # files of a directory


def add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files",
        metavar="TEMPLATE",
        default="",
        help="where in DIR each output file lands: {task}, {target}, {path} and parameters, as in '{x}/{path}'",
    )


def bring(client: Client, bag: int, directory: Path, files: str) -> tuple[int, int]:
    """How many files of the bag are in the directory now, and how many others."""
    ours: set[str] = set()
    count = client.fetch(bag, directory, lambda path: ours.add(os.path.abspath(path)), files)
    return count, _others(directory, ours)


def _others(directory: Path, ours: set[str]) -> int:
    """Not counted where one works: there, other files are no surprise."""
    base = os.path.abspath(directory)
    if base == os.getcwd() or not os.path.isdir(base):
        return 0
    count = looked = 0
    for folder, _, names in os.walk(base):
        looked += len(names)
        count += sum(os.path.join(folder, name) not in ours for name in names)
        if looked > MOST_LOOKED_AT:
            break
    return count


def lines(directory: Path, files: int, others: int) -> list[str]:
    text = [f"  {plural(files, 'file')} in {directory}/"] if files else []
    if others:
        verb = "is" if others == 1 else "are"
        text.append(f"  {directory}/ also holds {plural(others, 'file')} that {verb} not of this bag")
    return text
