"""A bag file (TOML), or the options of `windfall run`, into a `Bag`.

The language is the tables of this file: what is not in them is an error that names the nearest known word; what
DESIGN.md promises for later is refused by name, saying what exists now.  Every complaint carries file and line,
and the text at fault.

    [bag]  [sweep]  [[sweep.zip]]  [task]  [check]  [policy]  [targets.NAME]  [targets.NAME.sweep]  [targets.NAME.check]

`[task]` and `[check]` speak of the main target, the one that `[bag] command` starts; a further target says its
own, with the keys of `[task]` directly in `[targets.NAME]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput, TooLarge
from . import check, template as tpl, units
from .render import Space, axis_size
from .spec import Axis, Bag, Check, Derived, Input, Policy, Range, Resources, Sweep, Target, Value, Values, Zip

MAX_FILE = 64 << 20


class Parsed(NamedTuple):
    """A bag and where the files it names lie on this machine."""

    bag: Bag
    uploads: dict[str, Path]  # sha256 → file


# --- what may stand where --------------------------------------------------------------------------------------

LATER = {
    "task": ("nodes", "whole-node", "container", "checkpoint"),
    "check": ("schema", "command"),
    "policy": (
        "rank",
        "requirements",
        "replicate",
        "provision",
        "sites",
        "budget",
        "deadline",
        "attempt-deadline",
        "per-host",
        "batch",
    ),
    "sweep": ("csv",),
    "": ("capture",),
}
"""Words of the language whose mechanism does not exist yet."""

TASK_KEYS = (
    "cores", "memory", "gpus", "disk", "time", "expect", "cost", "inputs", "outputs", "retries", "memory-retries",
    "environment", "setup", "priority", "grace",
)  # fmt: skip
KEYS = {
    "": ("bag", "sweep", "task", "check", "policy", "targets"),
    "bag": ("name", "command", "effects"),
    "task": TASK_KEYS,
    "check": ("exit", "file", "match"),
    "policy": ("select",),
    "targets": ("after", "command", "sweep", "check", *TASK_KEYS),
}

Path_ = tuple[str | int, ...]


class Place:
    """Finds the line of a key, when something is to be said about it."""

    def __init__(self, file: str, text: str):
        self.file, self.text = file, text

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Complaints from inside get the line of this key, unless they already have one."""
        try:
            yield
        except BadInput as error:
            if not error.where:
                line, shown = self.find(path, error.text)
                error.where = f"{self.file}:{line}" if line else self.file
                error.text = shown or error.text
            raise

    def find(self, path: Path_, text: str = "") -> tuple[int, str]:
        at = _line_of(_without_long_strings(self.text).split("\n"), path)
        lines = self.text.split("\n")
        if text:  # below the key, or below the table: the line that has the offending text
            start = at or 0
            at = next((n for n in range(start, min(len(lines), start + 100_000)) if text in lines[n]), at)
        if at is None:
            return 0, text
        return at + 1, tpl.excerpt(lines[at].strip())


class Options(Place):
    """The same for what was given on the command line."""

    def __init__(self) -> None:
        super().__init__("", "")

    def find(self, path: Path_, text: str = "") -> tuple[int, str]:
        return 0, text


def _without_long_strings(text: str) -> str:
    """Multi-line strings may contain what looks like keys and tables."""
    if '"""' not in text and "'''" not in text:
        return text
    return _LONG_STRING.sub(lambda match: "\n" * match[0].count("\n"), text)


_LONG_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'', re.DOTALL)
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]*?)\s*\]\]?\s*(?:#.*)?$")


def _line_of(lines: list[str], path: Path_) -> int | None:
    """Best line for a key: its own, that of a part of it, its table's, else None."""
    names = [str(part) for part in path if isinstance(part, str)]
    nth = next((part for part in path if isinstance(part, int)), 0)
    table: list[str] = []
    best: tuple[int, int] | None = None  # how much of the path it matches, line
    seen = 0
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        if header:
            table = _key_parts(header[1])
            full = table
            if "[[" in line and table == names[: len(table)]:
                seen += 1
                if seen <= nth:
                    table = ["", ""]
                    continue
        else:
            key = _KEY.match(line)
            if not key:
                continue
            full = table + _key_parts(key[1])
        if full == names[: len(full)] and (best is None or len(full) > best[0]):
            best = (len(full), number)
    return best[1] if best else None


def _key_parts(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", text)]


# --- reading ---------------------------------------------------------------------------------------------------


def load(path: str | Path) -> Parsed:
    """Read and parse a bag file; its inputs are looked for beside it."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE:
            raise TooLarge(f"the bag file is larger than {MAX_FILE >> 20} MiB", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read the bag file: {error.strerror}", where=str(path)) from None
    except ValueError:
        raise BadInput("not a file name", where=repr(str(path))) from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput("the bag file is not UTF-8 text", where=f"{path}:{line}") from None
    return parse(text, str(path), path.parent)


def parse(text: str, file: str = "bag", base: Path = Path(".")) -> Parsed:
    """`file` is for messages, `base` where inputs are looked for."""
    if len(text) > MAX_FILE:
        raise TooLarge(f"the bag file is larger than {MAX_FILE >> 20} MiB", where=file)
    return _Reader(Place(file, text), base).bag(_toml(text, file), Path(file).stem or "bag")


def _toml(text: str, file: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput("nested too deeply", where=file) from None
    except ValueError as error:
        found = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
        message = str(error).split(" (at ")[0]
        if not found:
            raise BadInput(f"not TOML: {message}", where=file) from None
        lines = text.split("\n")
        line = min(int(found[1]), len(lines))
        raise BadInput(
            f"not TOML: {message}", where=f"{file}:{line}", text=tpl.excerpt(lines[line - 1].strip())
        ) from None


def from_options(
    command: str | list[str], sweeps: list[str], name: str, task: dict[str, object], base: Path = Path(".")
) -> Parsed:
    """`windfall run 'cmd {x}' --sweep x=1..100 --memory 2GB`: `task` holds keys of `[task]`."""
    reader = _Reader(Options(), base)
    table: dict[str, Any] = {"bag": {"name": name, "command": command}, "task": task}
    if sweeps:
        table["sweep"] = sweep = dict(_sweep_option(text) for text in sweeps)
        if len(sweep) < len(sweeps):
            raise BadInput("--sweep names a parameter twice")
    return reader.bag(table, name)


def _sweep_option(text: str) -> tuple[str, object]:
    name, equals, given = text.partition("=")
    if not equals or not name.strip():
        raise BadInput(f"--sweep {text}: expected NAME=VALUES", "as in --sweep x=1..100 or --sweep y=a,b,c")
    if "," in given and "{" not in given:
        return name.strip(), [_plain_value(part) for part in given.split(",")]
    if "{" in given or _RANGE_LIKE.match(given):
        return name.strip(), given
    return name.strip(), [_plain_value(given)]


def _plain_value(text: str) -> Value:
    """A number where writing it out again gives the same text, so that 007 and 1.50 stay what they are."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if repr(value) == text:
            return value
    return text


class _Reader:
    """Walks the tables.  `uploads` collects the files met."""

    def __init__(self, place: Place, base: Path):
        self.place, self.base = place, base
        self.uploads: dict[str, Path] = {}
        self.hashed: dict[Path, tuple[str, int, int]] = {}

    def bag(self, data: dict[str, Any], default_name: str) -> Parsed:
        self._known(data, "", ())
        head = self._table(data, "bag")
        self._known(head, "bag", ("bag",))
        targets = []
        if "command" in head:
            self._known(self._table(data, "task"), "task", ("task",))
            main = {**self._table(data, "task"), "command": head["command"]}
            for part in ("sweep", "check"):
                if part in data:
                    main[part] = self._table(data, part)
            targets.append(self._target("main", main, (), ("task",)))
        else:
            self._no_main(data)
        for name, table in self._table(data, "targets").items():
            targets.append(self._further(name, table, bool(targets) and targets[0].name == "main"))
        bag = Bag(
            name=self._get(head, ("bag",), "name", _string, default_name),
            targets=targets,
            effects=self._get(head, ("bag",), "effects", _string, "none"),
            policy=self._policy(self._table(data, "policy")),
        )
        self._validate(bag)
        return Parsed(bag, self.uploads)

    def _no_main(self, data: dict[str, Any]) -> None:
        with self.place.at("bag"):
            if not data.get("targets"):
                raise BadInput("there is no command to run", '[bag] needs command = "prog {x}"')
        for part in ("sweep", "task", "check"):
            with self.place.at(part):
                if part in data:
                    raise BadInput(
                        f"[{part}] speaks of the main target, but [bag] has no command", f"use [targets.NAME.{part}]"
                    )

    def _validate(self, bag: Bag) -> None:
        """What the server would say, said here with the place.  Target by target, so that the line is the target's."""
        for target in bag.targets:
            alone = Bag(name=bag.name, targets=[_free(target)], effects=bag.effects, policy=bag.policy)
            is_main = target is bag.targets[0] and target.name == "main"
            try:
                check.validate(alone)
            except BadInput as error:
                with self.place.at(*_home(_key(error.message), () if is_main else ("targets", target.name))):
                    raise
        after = {target.name: target.after for target in bag.targets}
        for name in after:
            with self.place.at("targets", name, "after"):
                check.check_after(name, after)
        circle = check.find_circle(after)
        with self.place.at("targets", *circle[:1], "after"):
            check.validate(bag)

    # --- targets -------------------------------------------------------------------------------------------

    def _further(self, name: str, table: object, has_main: bool) -> Target:
        path = ("targets", name)
        with self.place.at(*path):
            if not isinstance(table, dict):
                raise BadInput(f"[targets] {name} must be a table", f"[targets.{name}]")
            if name == "main" and has_main:
                raise BadInput("the target 'main' is the one [bag] command starts", "call this one something else")
        with self.place.at(*path, "task"):
            if "task" in table:
                raise BadInput(f"[targets.{name}.task] is not needed", f"write its keys directly in [targets.{name}]")
        self._known(table, "targets", path)
        with self.place.at(*path):
            if "command" not in table:
                raise BadInput(f"the target '{name}' has no command")
        return self._target(name, table, path, path)

    def _target(self, name: str, table: dict[str, Any], parent: Path_, path: Path_) -> Target:
        """`parent` is where the sub-tables sweep and check hang, `path` where the task's keys stand."""
        command_at = ("bag",) if not parent else path
        get = partial(self._get, table, path)
        return Target(
            name=name,
            after=get("after", _strings, []),
            command=self._get(table, command_at, "command", _command, ""),
            source=self._sweep(self._table(table, "sweep", parent), "sweep" in table, (*parent, "sweep")),
            resources=Resources(
                cores=get("cores", _count, 1),
                memory=get("memory", units.parse_size, 0),
                gpus=get("gpus", _whole, 0),
                disk=get("disk", units.parse_size, 0),
            ),
            time=get("time", units.parse_duration, 0),
            expect=get("expect", units.parse_duration, 0),
            grace=get("grace", units.parse_duration, 5_000),
            cost=get("cost", _cost, ""),
            inputs=self._inputs(get("inputs", _strings, []), (*path, "inputs")),
            outputs=get("outputs", _outputs, []),
            retries=get("retries", _whole, 3),
            memory_retries=get("memory-retries", _whole, 0),
            environment=get("environment", _environment, {}),
            setup=get("setup", _strings, []),
            priority=get("priority", _integer, 0),
            check=self._check(self._table(table, "check", parent), (*parent, "check")),
        )

    def _check(self, table: dict[str, Any], path: Path_) -> Check:
        self._known(table, "check", path)
        get = partial(self._get, table, path)
        return Check(
            exit=get("exit", _exit_codes, [0]), file=get("file", _outputs, []), match=get("match", _pattern, "")
        )

    def _policy(self, table: dict[str, Any]) -> Policy:
        self._known(table, "policy", ("policy",))
        get = partial(self._get, table, ("policy",))
        return Policy(select=get("select", _select, "fcfs"))

    # --- sweeps --------------------------------------------------------------------------------------------

    def _sweep(self, table: dict[str, Any], given: bool, path: Path_) -> Sweep:
        axes: list[Axis] = []
        derived: list[Derived] = []
        with self.place.at(*path):
            if given and not table:
                raise BadInput("the sweep is empty", "leave [sweep] out to run the command once")
        for name, value in table.items():
            with self.place.at(*path, name):
                self._entry(name, value, path, axes, derived)
        sweep = Sweep(axes=axes, derived=derived)
        with self.place.at(*path):
            Space(sweep)  # refuses parameters given twice, unknown ones, circles
        return sweep

    def _entry(self, name: str, value: object, path: Path_, axes: list[Axis], derived: list[Derived]) -> None:
        if name in LATER["sweep"]:
            raise BadInput(f"[sweep.{name}] does not exist yet", "there are ranges, lists, templates and [[sweep.zip]]")
        if name == "zip":
            axes.extend(self._zips(value, path))
            return
        check.parameter_name(name)
        found = axis(name, value)
        if isinstance(found, Derived):
            derived.append(found)
        else:
            check.check_axis(found)
            axes.append(found)

    def _zips(self, value: object, path: Path_) -> Iterator[Zip]:
        if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
            raise BadInput(
                "'zip' names lists walked together; it cannot be a parameter",
                "[[sweep.zip]] and below it the lists, or another name",
            )
        for number, table in enumerate(value):
            with self.place.at(*path, "zip", number):
                columns = [_zip_column(name, each) for name, each in table.items()]
                if not columns:
                    raise BadInput("[[sweep.zip]] is empty", "give it at least one list")
                found = Zip(columns=columns)
                check.check_axis(found)
                yield found

    # --- files ---------------------------------------------------------------------------------------------

    def _inputs(self, texts: list[str], path: Path_) -> list[Input]:
        found = []
        for text in texts:
            with self.place.at(*path):
                try:
                    found.append(self._input(text))
                except BadInput as error:
                    error.text = error.text or tpl.excerpt(text)
                    raise
        return found

    def _input(self, text: str) -> Input:
        if text.startswith("site:"):
            raise BadInput(
                "inputs that lie at a site already cannot be named yet", "name a file of this machine", text=text
            )
        if tpl.names(tpl.pieces(text)):
            raise BadInput(
                "an input is the same for all tasks: parameters cannot be used in it yet",
                "name the files one by one; the command picks its own",
                text=text,
            )
        source, arrow, destination = (part.strip() for part in text.partition("->"))
        if not source or (arrow and not destination):
            raise BadInput("not an input", 'as in "genome.fa" or "genome.fa -> data/genome.fa"', text=text)
        inside = not source.startswith("/") and ".." not in source.split("/")
        path = check.relative_path(destination or (source if inside else source.rsplit("/", 1)[-1]), "inputs")
        file = self.base / source
        if file not in self.hashed:
            self.hashed[file] = _hash(file, source)
        digest, size, mode = self.hashed[file]
        self.uploads[digest] = file
        return Input(path=path.removeprefix("./"), blob=digest, size=size, mode=mode)

    # --- tables and keys -----------------------------------------------------------------------------------

    def _table(self, data: dict[str, Any], key: str, parent: Path_ = ()) -> dict[str, Any]:
        table = data.get(key, {})
        with self.place.at(*parent, key):
            if not isinstance(table, dict):
                raise BadInput(f"'{key}' must be a table", f"write [{key}] and its keys below it")
        return table

    def _known(self, table: dict[str, Any], kind: str, path: Path_) -> None:
        later = LATER.get("task" if kind == "targets" else kind, ())
        where = "[" + ".".join(map(str, path)) + "]" if path else "a bag file"
        for key in table:
            if key in KEYS[kind]:
                continue
            with self.place.at(*path, key):
                if key in later:
                    raise BadInput(
                        f"{where}: '{key}' does not exist yet", f"there is {', '.join(KEYS[kind])}", text=key
                    )
                raise BadInput(f"{where} has no key '{tpl.excerpt(key)}'", _suggest(key, kind), text=tpl.excerpt(key))

    def _get(self, table: dict[str, Any], path: Path_, key: str, kind: Callable[[Any, str], Any], default: Any) -> Any:
        if key not in table:
            return default
        with self.place.at(*path, key):
            return kind(table[key], key)


def _suggest(key: str, kind: str) -> str:
    """The nearest word here; failing that, the table in which the word would be at home."""
    home = next((name for name, keys in KEYS.items() if name and name != kind and key in keys), "")
    if home:
        return f"'{key}' belongs in [{'targets.NAME' if home == 'targets' else home}]"
    return check.nearest(key, KEYS[kind])


_SPOKEN = {"the command": "command", "the environment variable": "environment", "the bag's name": "name"}


def _key(message: str) -> str:
    """The key that a message begins with."""
    spoken = next((key for text, key in _SPOKEN.items() if message.startswith(text)), "")
    return spoken or (re.match(r"[\w-]*", message) or [""])[0]


def _home(key: str, target: Path_) -> Path_:
    """Where the key that a message begins with stands."""
    if key in TASK_KEYS:
        return (*target, key) if target else ("task", key)
    if key == "check":
        return (*target, key)
    if key == "name":
        return ("bag", key)
    return (*target, key) if target else ("bag", key)


def _free(target: Target) -> Target:
    """The target without its prerequisites, to be looked at alone."""
    import msgspec

    return msgspec.structs.replace(target, after=[])


def _hash(file: Path, shown: str) -> tuple[str, int, int]:
    import hashlib
    import stat

    try:
        info = file.stat()
        if stat.S_ISDIR(info.st_mode):
            raise BadInput(f"the input '{shown}' is a directory", "name its files, or an archive of it", text=shown)
        if not stat.S_ISREG(info.st_mode):
            raise BadInput(f"the input '{shown}' is not a regular file", text=shown)
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except OSError as error:
        raise BadInput(
            f"the input '{shown}' cannot be read: {error.strerror}",
            "inputs are looked for beside the bag file",
            text=shown,
        ) from None
    except ValueError:
        raise BadInput("not a file name", text=tpl.excerpt(shown)) from None
    return digest, size, 0o755 if info.st_mode & 0o100 else 0o644


# --- values ----------------------------------------------------------------------------------------------------

_NUMBER = r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+|\.\d+)"
_RANGE = re.compile(r"\s*(.+?)\s*\.\.\s*([^:]*?)\s*(?::\s*(.*?)\s*)?")
_DOTS = re.compile(r"\.{3,}")
_RANGE_LIKE = re.compile(r"\s*[-+]?\.?\d[\d.eE+-]*\.\.")


def axis(name: str, value: object) -> Range | Values | Derived:
    """One entry of `[sweep]`."""
    if isinstance(value, str):
        if "{" in value or "}" in value:
            tpl.pieces(value)
            return Derived(name=name, template=value)
        return _range(name, value) if _RANGE_LIKE.match(value) else Values(name=name, values=[value])
    if isinstance(value, list):
        return Values(name=name, values=[_value(name, each) for each in value])
    if isinstance(value, dict):
        raise BadInput(f"'{name}': samples do not exist yet", "there are ranges, lists, templates and [[sweep.zip]]")
    return Values(name=name, values=[_value(name, value)])


def _range(name: str, text: str) -> Range:
    if "..." in text:
        raise BadInput(f"'{tpl.excerpt(text)}' is not a range: write {tpl.excerpt(_DOTS.sub('..', text))}", text=text)
    match = _RANGE.fullmatch(text)
    parts = [part for part in match.groups() if part is not None] if match else []
    try:
        if not match or len(text) > 200:
            raise ValueError
        first, last, *step = [_number(part) for part in parts]
    except ValueError:
        raise BadInput(
            f"'{name}': not a range", 'as in "1..10", "0..1:0.1" or "10..1:-1"', text=tpl.excerpt(text)
        ) from None
    return Range(name=name, first=first, last=last, step=step[0] if step else 1)


def _number(text: str) -> int | float:
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if not re.fullmatch(_NUMBER, text):
        raise ValueError(text)
    return float(text)


def _value(name: str, value: object) -> Value:
    if isinstance(value, (bool, int, float, str)):
        check.check_value(value, name)
        return value
    what = "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else "a date or time"
    raise BadInput(
        f"'{name}': {what} cannot be a value", "values are numbers, texts, true and false; put dates in quotes"
    )


def _zip_column(name: str, value: object) -> Values:
    check.parameter_name(name)
    found = axis(name, value)
    if isinstance(found, Range):
        size = axis_size(found)
        check.at_most(size, 1_000_000, f"values of '{name}' in a zip")
        return Values(name=name, values=Space(Sweep(axes=[found])).columns[name].values(range(size)))
    if isinstance(found, Derived) or not isinstance(value, list):
        raise BadInput(f"'{name}' must be a list or a range to be walked together with others")
    return found


# --- kinds of key ----------------------------------------------------------------------------------------------


def _wrong(key: str, value: object, wanted: str) -> BadInput:
    shown = tpl.excerpt(repr(value) if isinstance(value, str) else str(value), 60)
    return BadInput(f"{key} must be {wanted}, not {shown}")


def _string(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise _wrong(key, value, "a text")
    return value


def _strings(value: object, key: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(key, value, "a list of texts")
    return value


def _command(value: object, key: str) -> str | list[str]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise _wrong(key, value, "a text or a list of texts")
    return value


def _integer(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(key, value, "a whole number")
    return value


def _whole(value: object, key: str) -> int:
    if _integer(value, key) < 0:
        raise _wrong(key, value, "0 or more")
    return _integer(value, key)


def _count(value: object, key: str) -> int:
    if _integer(value, key) < 1:
        raise _wrong(key, value, "1 or more")
    return _integer(value, key)


def _cost(value: object, key: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return _string(value, key)


def _outputs(value: object, key: str) -> list[str]:
    paths = _strings(value, key)
    for path in paths:
        if path.rstrip().endswith("@stay"):
            raise BadInput(
                f"{key}: files cannot be left in place yet", "leave '@stay' out: they are brought home", text=path
            )
        check.relative_path(path, key)
        tpl.pieces(path)
    return paths


def _environment(value: object, key: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(key, value, 'a table, as in { OMP_NUM_THREADS = "1" }')
    found = {}
    for name, each in value.items():
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise _wrong(f"{key}: {name}", each, "a text or a number")
        found[name] = each if isinstance(each, str) else repr(each)
    return found


def _exit_codes(value: object, key: str) -> list[int]:
    codes = value if isinstance(value, list) else [value]
    return [_integer(code, key) for code in codes]


def _pattern(value: object, key: str) -> str:
    check.pattern(_string(value, key), key)
    return _string(value, key)


def _select(value: object, key: str) -> str:
    check.check_policy(Policy(select=_string(value, key)))
    return _string(value, key)
