"""Reading the files of a bag again, as they are now, for `rerun`."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from windfall.cli.submission import arguments
from windfall.cli.submission.origin import arguments_of
from windfall.errors import BadInput
from windfall.model.bagfile.inputs import BESIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windfall.client.extend import Extension
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Bag, Family, Table, Target

KINDS = (".toml", ".apst")  # files that describe bags


class Reread(NamedTuple):
    parsed: Parsed
    base: Path  # of the inputs
    source: str  # the file, or another name for where the tasks are described


def from_file(file: str, name: str | None) -> Reread:
    """Read a bag file, or a file with a task per line."""
    from windfall.model.spec import Origin

    words: dict[str, str | int | list[str]] = {"what": [file], **({"name": name} if name else {})}
    return _read(arguments_of(Origin(folder=str(Path().absolute()), words=words)), Path(), file)


def from_origin(bag: Bag, number: int) -> Reread | None:
    """Read the files that the words of a bag's submission name; None if the bag has no such words."""
    import msgspec

    if bag.origin is None:
        return None
    args, folder = arguments_of(bag.origin), Path(bag.origin.folder)
    file = next((word for word in (args.apst, *args.what) if word and word.endswith(KINDS)), "")
    try:
        if arguments.STDIN in (args.apst, *args.what):
            read = _from_stored_lines(args, bag, folder)
        elif args.csv == arguments.STDIN:
            read = _from_stored_rows(args, bag, folder)
        else:
            read = _read(args, folder, file or "its command line")
    except BadInput as error:
        if error.hint not in ("", BESIDE):
            raise
        error.hint = (f"bag {number} was described in {folder}: put the file back, or name a bag file; "
                      f"windfall retry {number} runs what failed with the files as they were")
        raise
    same = msgspec.structs.replace(read.parsed.bag, origin=bag.origin)
    return read._replace(parsed=read.parsed._replace(bag=same))


def _from_stored_lines(args: argparse.Namespace, bag: Bag, folder: Path) -> Reread:
    """Read the tasks that came by standard input from the bag's own table."""
    from windfall.model.bagfile import apst

    parsed = apst.parse(apst.written(_table(bag)), "standard input", folder, bag.name, arguments.task_keys(args))
    return Reread(parsed, folder, "standard input")


def _from_stored_rows(args: argparse.Namespace, bag: Bag, folder: Path) -> Reread:
    from windfall.model.templates.table import format_row

    table = _table(bag)
    with NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".csv") as file:
        file.write(f"{format_row(table.columns)}\n{table.text}")
        file.flush()
        args.csv = file.name
        return _read(args, folder, "standard input")


def _table(bag: Bag) -> Table:
    from windfall.model.spec import Sweep, Table

    source = bag.targets[0].source
    tables = [axis for axis in source.axes if isinstance(axis, Table)] if isinstance(source, Sweep) else []
    if not tables:
        raise BadInput(f"bag '{bag.name}' has no table of tasks", "name a bag file")
    return tables[0]


def _read(args: argparse.Namespace, base: Path, source: str) -> Reread:
    parsed = arguments.parsed_at(args, base)
    if parsed.pythons:
        from windfall.client.files.submission import with_pythons

        parsed = with_pythons(parsed)
    file = args.apst or (args.what[0] if args.what and args.what[0].endswith(KINDS) else "")
    return Reread(parsed, (base / file).parent if file else base, source)


def with_files_of_appended(read: Reread, bag: Bag, appended: Iterable[Extension]) -> Reread:
    """Add the files of tasks that came by `--extend` and that the description does not name any more.

    A file that is gone stays as it was."""
    import msgspec

    from windfall.model.bagfile.inputs import InputFinder

    later, finder = list(appended), InputFinder(read.base)
    had = {target.name: target for target in bag.targets}
    targets = [_completed(target, had.get(target.name), [each for each in later if each.target == target.name], finder)
               for target in read.parsed.bag.targets]
    whole = msgspec.structs.replace(read.parsed.bag, targets=targets)
    uploads = {**read.parsed.uploads, **finder.uploads}
    return read._replace(parsed=read.parsed._replace(bag=whole, uploads=uploads))


def _completed(target: Target, before: Target | None, later: list[Extension], finder: object) -> Target:
    import msgspec

    if before is None or len(before.families) != len(target.families):
        return target
    families = []
    for place, (family, old) in enumerate(zip(target.families, before.families, strict=True)):
        names = {*old.files, *(name for each in later if each.files for name in each.files[place])}
        families.append(_with_files(family, names, finder) if family.source == old.source else family)
    return msgspec.structs.replace(target, families=families)


def _with_files(family: Family, names: set[str], finder: object) -> Family:
    import msgspec

    found: Mapping[str, object] = {
        name: finder.blob(name) for name in sorted(names - set(family.files)) if (finder.base / name).is_file()}  # type: ignore[attr-defined]
    return msgspec.structs.replace(family, files={**family.files, **found}) if found else family
