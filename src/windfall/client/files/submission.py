"""Make a bag ready to be submitted: read its file, pack the Python environments that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from windfall.client.files.pack import pack
from windfall.client.profile import home
from windfall.model.bagfile import Parsed, apst, load
from windfall.model.spec import Bag, Origin


def ready(given: Bag | Parsed | str | os.PathLike[str]) -> tuple[Bag, Mapping[str, Path | bytes]]:
    """Return a bag and its uploads, by SHA-256, from a bag, a parsed file, or a file's path."""
    if isinstance(given, Bag):
        return given, {}
    if not isinstance(given, Parsed):
        path = Path(given)
        given = apst.load(str(path), "", {}) if path.suffix == ".apst" else load(path)
        origin = Origin(folder=os.getcwd(), words={"what": [str(path)]})
        given = given._replace(bag=msgspec.structs.replace(given.bag, origin=origin))
    parsed = with_pythons(given)
    return parsed.bag, parsed.uploads


def with_pythons(parsed: Parsed) -> Parsed:
    """Pack the Python environments of the targets; targets that name the same one share it."""
    if not parsed.pythons:
        return parsed
    made = {path: pack(path, home() / "packed") for path in dict.fromkeys(parsed.pythons.values())}
    found = {name: made[path] for name, path in parsed.pythons.items()}
    targets = [
        msgspec.structs.replace(target, packed=found[target.name][0]) if target.name in found else target
        for target in parsed.bag.targets
    ]
    uploads = {**parsed.uploads, **{packed.blob: file for packed, file in found.values()}}
    return parsed._replace(bag=msgspec.structs.replace(parsed.bag, targets=targets), uploads=uploads, pythons={})
