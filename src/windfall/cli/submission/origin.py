"""The origin of a bag: the words and the folder of its description, by which `rerun` reads its files again."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Bag, Origin

WORDS = ("what", "vector", "sweep", "csv", "apst", "name", "cores", "memory", "time", "retries",
         "time_retries", "inputs", "outputs")
"""The arguments of `run` that describe tasks, but for those about graphs of other systems."""

PLACE = ("directory", "files")  # arguments that say where output files land


def with_origin(parsed: Parsed, args: argparse.Namespace, base: Path) -> Parsed:
    """Return the bag with the words that describe it; without them where they are too long, or no text."""
    import msgspec

    from windfall.errors import BadInput
    from windfall.model.checks.bag import check_origin
    from windfall.model.spec import Origin

    words = {name: value for name in (*WORDS, *PLACE) if (value := getattr(args, name, None)) not in (None, "", [])}
    if "directory" in words:
        words["directory"] = os.path.abspath(words["directory"])
    origin = Origin(folder=os.path.abspath(base), words=words)
    try:
        check_origin(origin)
    except BadInput:
        return parsed
    return parsed._replace(bag=msgspec.structs.replace(parsed.bag, origin=origin))


def with_place(parsed: Parsed, bag: Bag) -> Parsed:
    """Return the bag with the words of an earlier bag about where output files land."""
    import msgspec

    if bag.origin is None or parsed.bag.origin is None:
        return parsed
    place = {name: bag.origin.words[name] for name in PLACE if name in bag.origin.words}
    origin = msgspec.structs.replace(parsed.bag.origin, words={**place, **parsed.bag.origin.words})
    return parsed._replace(bag=msgspec.structs.replace(parsed.bag, origin=origin))


def arguments_of(origin: Origin) -> argparse.Namespace:
    """Return the arguments as `run` would parse them."""
    none = dict.fromkeys(WORDS)
    lists = {name: [] for name in ("what", "sweep")}
    graph = {"extend": None, "stand_ins": False, "scale": None, "fresh": False}
    return argparse.Namespace(**{**none, **lists, **graph, **{name: origin.words[name] for name in WORDS
                                                              if name in origin.words}})
