"""`windfall pilot`: run a pilot, with the options of the zipapp; or write the zipapp to a file."""

from __future__ import annotations

import os

from windfall.errors import BadInput

SAVE = "  --save FILE          write the pilot as one file, for machines without Windfall; then end\n"


def execute(arguments: list[str]) -> int:
    if arguments and arguments[0].partition("=")[0] == "--save":
        return _save(arguments)
    if "--help" in arguments or "-h" in arguments:
        print(usage(), end="")
        return 0
    from windfall.pilot.main import main

    return int(main(arguments) or 0)


def usage() -> str:
    from windfall.pilot.main import USAGE

    return USAGE.replace("windfall-pilot", "windfall pilot") + SAVE


def _save(arguments: list[str]) -> int:
    from tempfile import TemporaryDirectory

    from windfall.pilot.bundle import build

    _, equals, file = arguments[0].partition("=")
    rest = arguments[1:]
    if not equals and rest:
        file, rest = rest[0], rest[1:]
    if not file or rest:
        raise BadInput("--save takes the name of a file, and goes with no other option", "windfall pilot --save p.pyz")
    try:
        with TemporaryDirectory(dir=os.path.dirname(file) or ".") as folder:
            path, _ = build(folder)
            os.replace(path, file)
    except OSError as error:
        raise BadInput(f"cannot write {file}: {error.strerror}") from None
    print(f"{file} is the pilot; any Python from 3.6 on runs it: python3 {file} --ticket FILE")
    return 0
