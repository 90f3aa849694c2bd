"""Fetch output files, and say which other files lie in their directory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windfall.cli.present.output import say, shown
from windfall.errors import WindfallError
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client

FEW = 5  # files named in a message
MOST_LOOKED_AT = 1_000_000  # files of a directory that are compared


def add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files",
        metavar="TEMPLATE",
        default="",
        help="path in DIR of each output file, made of {task}, {target}, {path} and parameters, as in '{x}/{path}'",
    )


class Problems:
    """Files that could not be fetched: how many, and the first few by name."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, task: int, path: str, error: WindfallError) -> None:
        self.count += 1
        if len(self.first) < FEW:
            self.first.append(f"task {task}: {shown(path, 200)}: {shown(error.message, 200)}")

    def tell(self) -> None:
        if self.count:
            say(f"  {plural(self.count, 'file')} could not be fetched:")
            for line in self.first:
                say(f"    {line}")


class OutputPlace(NamedTuple):
    """The place where the output files of a bag land."""

    directory: Path
    template: str = ""  # of the paths in the directory
    results: Mapping[tuple[int, str], str] | None = None  # of an application: task and path → name of the result


def bring(client: Client, bag: int, place: OutputPlace, problems: Problems) -> tuple[int, int]:
    """Fetch the bag's files.  Return how many of them are in the directory now, and how many other files are there."""
    problems.clear()  # after a failure, at another server, the caller tries again
    ours: set[str] = set()

    def arrived(path: Path) -> None:
        ours.add(os.path.abspath(path))

    if place.results is None:
        count = client.fetch(bag, place.directory, arrived, place.template, problems.add)
    else:
        count = client.fetch_some(bag, place.results, place.directory, arrived, problems.add)
    return count, _others(place.directory, ours)


def _others(directory: Path, ours: set[str]) -> int:
    """Count the directory's other files.  In the working directory they are no surprise: return 0."""
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
        text.append(f"  {directory}/ also holds {plural(others, 'file')} that {verb} not from this bag")
    return text
