"""Reader for bag files (TOML) and for the options of `windfall run`; it returns a `Bag`.

The tables of `words.py` define the language.  An unknown key is an error that names the nearest known one; a key that
a later version will have is refused with what exists now.  Every error carries file and line, and the text at fault.

    [bag]  [sweep]  [[sweep.zip]]  [sweep.latin]  [sweep.csv]  [task]  [check]  [capture]  [policy]
    [targets.NAME]  [targets.NAME.sweep]  [targets.NAME.check]  [targets.NAME.capture]

`[task]`, `[check]` and `[capture]` apply to the main target, whose command is `[bag] command`; a further target has its
own, with the keys of `[task]` directly in `[targets.NAME]`.

All mistakes are reported together, and none of them twice: a target whose sweep or command could not be read is not
checked further, and the rules for a whole bag are checked only when no mistake was found before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from windfall.errors import BadInput, Mistakes, TooLarge
from windfall.model.bagfile import words
from windfall.model.bagfile.inputs import InputFinder
from windfall.model.checks import bag as check, sources
from windfall.model.checks.bounds import at_most
from windfall.model.checks.cycles import find_circle
from windfall.model.mistakes import KEPT, MistakeLog
from windfall.model.policies import replica_caps
from windfall.model.policies.expressions import KINDS
from windfall.model.policies.language import pointed
from windfall.model.spec import (
    Axis,
    Bag,
    Capture,
    Check,
    Derived,
    Latin,
    Policy,
    Range,
    Resources,
    Sample,
    Sweep,
    Table,
    Target,
    Value,
    Values,
    Zip,
)  # fmt: skip
from windfall.model.suggest import nearest
from windfall.model.templates import table as csv_table, template as tpl
from windfall.model.templates.render import Space, axis_size, lean_sweep
from windfall.model.templates.sample import parse_law

MAX_FILE = 64 << 20
MAX_SEARCHED = 64 << 20  # characters searched for the lines of mistakes
MAX_TRIES = 50  # lines from the end among which an unfinished entry may begin
MAX_TRIED_LINES = 10_000  # of a file whose parts are read again to find that line
GLOB = "glob:"  # of a parameter's value: the files that match what follows


class Parsed(NamedTuple):
    """A bag, and the places of its files on this machine."""

    bag: Bag
    uploads: Mapping[str, Path | bytes]  # sha256 → file, or its contents
    pythons: dict[str, Path]  # target → the environment or file that `python` names, not packed yet
    results: Mapping[tuple[int, str], str] | None = None  # (task, output) → its place here; None: the usual places
    numbers: Sequence[int] | None = None  # the server's numbers of the tasks, where they differ from those here
    hints: Sequence[str] = ()  # values that look like something else, each with what to write for that


# --- keys ------------------------------------------------------------------------------------------------------

_POLICIES = ("deadline",)
_SO_FAR = ("there is select, rank, requirements, sites, per-host, batch, batch-timeout, provision, replicate, "
           "replicas-per-task, replicas-share, replicas-cost, attempt-deadline, budget and fail-over")
LATER = {
    "task": {},
    "policy": {
        **dict.fromkeys(_POLICIES, _SO_FAR),
        "pipeline": "targets can follow one another whole, with after; batches are of one target's tasks",
    },
}
"""Keys whose mechanism does not exist yet, with a hint at what exists."""

PARTS = ("sweep", "check", "capture")  # tables that a target has
KEYS: dict[str, dict[str, words.KeySpec | None]] = {
    "": dict.fromkeys(("bag", "sweep", "task", "check", "capture", "policy", "targets")),
    "bag": {**words.BAG},
    "task": {**words.TASK},
    "check": {**words.CHECK},
    "policy": {**words.POLICY},
    "targets": {**words.TARGET, **dict.fromkeys(PARTS), **words.TASK},
    "sample": {**words.SAMPLE},
    "csv": {**words.CSV},
    "capture": {**words.CAPTURE},
}

_RESOURCES = {"cores": "cores", "memory": "memory", "gpus": "gpus", "disk": "disk", "whole": "whole-node",
              "nodes": "nodes"}
_FIELDS = {key.replace("-", "_"): key for key in words.TASK if key not in (*_RESOURCES.values(), "inputs", "python")}
"""Fields of Resources and of Target, and the keys that fill them."""

KeyPath = tuple[str | int, ...]


_COLUMN = re.compile(r"^([\w-]+), (?:line \d+, )?column \d+: ")


class KeyLocator:
    """Finds the line of a key for an error."""

    def __init__(self, file: str, text: str):
        self.file, self.text = file, text

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Give an error raised inside the line of this key, unless it has one already."""
        try:
            yield
        except BadInput as error:
            if not error.where and not isinstance(error, Mistakes):
                line, shown = self.find(path, error.text.partition("\n")[0])
                error.where = f"{self.file}:{line}" if line else self.file
                if "\n" not in error.text:
                    error.text = shown or error.text
                elif line:
                    self._point(error, line)
            raise

    def _point(self, error: BadInput, line: int) -> None:
        """Put the caret of an error in an expression below the file's own line."""
        part, caret = error.text.split("\n")
        whole = self.text.split("\n")[line - 1]
        column = whole.find(part) + caret.index("^") - 3
        if part not in whole:
            return  # the file writes the expression differently, with escapes
        error.where = f"{error.where}:{column}"
        error.text = pointed(whole, column)
        error.message = _COLUMN.sub(r"\1: ", error.message)

    def find(self, path: KeyPath, text: str = "") -> tuple[int, str]:
        at = _line_of(_without_long_strings(self.text).split("\n"), path)
        lines = self.text.split("\n")
        if text:  # below the key, or below the table: the line that has the offending text
            start = at or 0
            at = next((n for n in range(start, min(len(lines), start + 100_000)) if text in lines[n]), at)
        if at is None:
            return 0, text
        return at + 1, tpl.excerpt(lines[at].strip())


class OptionsLocator(KeyLocator):
    """Locates nothing: options of the command line have no lines."""

    def __init__(self) -> None:
        super().__init__("", "")

    def find(self, path: KeyPath, text: str = "") -> tuple[int, str]:
        return 0, text


def _without_long_strings(text: str) -> str:
    """Blank out multi-line strings, whose content may look like keys and tables."""
    if '"""' not in text and "'''" not in text:
        return text
    return _LONG_STRING.sub(lambda match: "\n" * match[0].count("\n"), text)


_LONG_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'', re.DOTALL)
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]*?)\s*\]\]?\s*(?:#.*)?$")


def _line_of(lines: list[str], path: KeyPath) -> int | None:
    """Return the best line for a key: its own, that of a part of it, its table's, else None."""
    names = [str(part) for part in path if isinstance(part, str)]
    nth = next((part for part in path if isinstance(part, int)), 0)
    best: tuple[int, int] | None = None  # how much of the path it matches, line
    for number, full in _key_lines(lines, names, nth):
        if full == names[: len(full)] and (best is None or len(full) > best[0]):
            best = (len(full), number)
    return best[1] if best else None


def _key_lines(lines: list[str], names: list[str], nth: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, path of its table or key), without the first `nth` tables of an array on the way to `names`."""
    table: list[str] = []
    seen = 0
    for number, line in enumerate(lines):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _key_parts(header[1])
            if "[[" in line and table == names[: len(table)]:
                seen += 1
                if seen <= nth:
                    table = ["", ""]
                    continue
            yield number, table
        elif key:
            yield number, table + _key_parts(key[1])


def _key_parts(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", text)]


# --- reading ---------------------------------------------------------------------------------------------------


def load(path: str | Path) -> Parsed:
    """Read and parse a bag file, and find its inputs beside it."""
    path = Path(path)
    return parse(read_text(path, "the bag file"), str(path), path.parent)


def read_text(path: Path, what: str) -> str:
    try:
        if path.stat().st_size > MAX_FILE:
            raise TooLarge(f"{what} is larger than {MAX_FILE >> 20} MiB", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {what}: {error.strerror}", where=str(path)) from None
    except ValueError:
        raise BadInput("not a file name", where=repr(str(path))) from None
    try:
        return data.decode("utf-8-sig")  # some editors put a mark at the start
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{what} is not UTF-8 text", where=f"{path}:{line}") from None


def parse(text: str, file: str = "bag", base: Path = Path(".")) -> Parsed:
    """Parse a bag file's text.  `file` is its name in messages, `base` the directory of its inputs."""
    if len(text) > MAX_FILE:
        raise TooLarge(f"the bag file is larger than {MAX_FILE >> 20} MiB", where=file)
    return BagReader(KeyLocator(file, text), base).bag(toml(text, file), Path(file).stem or "bag")


def toml(text: str, file: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput("nested too deeply", where=file) from None
    except ValueError as error:
        found = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
        message = str(error).split(" (at ")[0]
        lines = text.split("\n")
        line = min(int(found[1]), len(lines)) if found else _unfinished(lines)
        hint = "" if message.startswith("Cannot") else _quoted(lines[line - 1][:1_000])
        raise BadInput(
            f"not TOML: {message}", hint, where=f"{file}:{line}", text=tpl.excerpt(lines[line - 1].strip()),
        ) from None


def _unfinished(lines: list[str]) -> int:
    """Return the line where the entry begins that the end of the file cuts off: what stands above it is whole."""
    import tomllib

    last = next((at for at in range(len(lines), 0, -1) if lines[at - 1].strip()), 1)
    for line in range(last, max(0, last - MAX_TRIES) if last < MAX_TRIED_LINES else last, -1):
        try:
            tomllib.loads("\n".join(lines[: line - 1]))
        except ValueError:
            continue
        return line
    return last


def _quoted(line: str) -> str:
    """Return a hint with the right quotes for a line whose text has none, or the same inside as around it; else ""."""
    import tomllib

    found = re.fullmatch(r"\s*([A-Za-z0-9_-]+)\s*=\s*([^\s\[{#][^#]*?)\s*(?:#.*)?", line)
    if found is None:
        return ""
    text = found[2][1:-1] if len(found[2]) > 1 and found[2][0] == found[2][-1] and found[2][0] in "\"'" else found[2]
    text = text.replace("'", '"')
    if text.count('"') % 2:
        return ""  # one was not closed
    right = f"{found[1]} = '{text}'" if '"' in text else f'{found[1]} = "{text}"'
    try:
        tomllib.loads(right)
    except ValueError:
        return ""
    return f"write texts in quotes: {right}"


def from_options(
    command: str | list[str],
    sweeps: list[str],
    name: str,
    task: dict[str, object],
    base: Path = Path("."),
    csv: str = "",
) -> Parsed:
    """Read the options of `windfall run 'cmd {x}' --sweep x=1..100 --memory 2GB`; `task` holds keys of `[task]`."""
    reader = BagReader(OptionsLocator(), base)
    data: dict[str, Any] = {"bag": {"name": name, "command": command}, "task": task}
    sweep: dict[str, object] = {"csv": {"file": csv}} if csv else {}
    for text in sweeps:
        parameter, values = _sweep_option(text)
        if parameter in sweep:
            raise BadInput(f"--sweep names '{parameter}' twice")
        sweep[parameter] = values
    if sweep:
        data["sweep"] = sweep
    return reader.bag(data, name)


def _sweep_option(text: str) -> tuple[str, object]:
    name, equals, given = text.partition("=")
    if not equals or not name.strip():
        raise BadInput(f"--sweep {text}: expected NAME=VALUES", "as in --sweep x=1..100 or --sweep y=a,b,c")
    if "," in given and ("{" not in given or given.startswith(GLOB)):
        return name.strip(), [_plain_value(part) for part in given.split(",")]
    if "{" in given or _RANGE_LIKE.match(given):
        return name.strip(), given
    return name.strip(), [_plain_value(given)]


def _plain_value(text: str) -> Value:
    """Return a number if it is written as this text, else the text: 007 and 1.50 stay as they are."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if repr(value) == text:
            return value
    return text


class BagReader:
    """Reads the tables of a bag file into a bag."""

    def __init__(self, place: KeyLocator, base: Path):
        self.place, self.base = place, base
        self.files = InputFinder(base)
        self.pythons: dict[str, Path] = {}
        self.hints: list[str] = []
        self.mistakes = MistakeLog(max(1, min(KEPT, MAX_SEARCHED // (len(place.text) + 1))), place.file)
        self.unread: set[str] = set()  # targets, and "" for the head, that a mistake left without some of their keys

    def bag(self, data: dict[str, Any], default_name: str) -> Parsed:
        bag = Bag(name="", targets=[])
        with self.mistakes.caught():
            bag = self._bag(data, default_name)
        self.validate(bag)
        return Parsed(bag, self.files.uploads, self.pythons, hints=self.hints)

    def _bag(self, data: dict[str, Any], default_name: str) -> Bag:
        self._keep_unknown(data, "", ())
        whole = not self.mistakes  # an unknown table may be a misspelt one: then targets lack what it holds
        head = self._table(data, "bag")
        self._keep_unknown(head, "bag", ("bag",))
        get = partial(self._try, head, ("bag",), words.BAG)
        targets = list(self._targets(data, head))
        policy = self._policy(self._table(data, "policy"))
        bag = Bag(name=get("name", default_name), targets=targets, effects=get("effects", "none"), policy=policy)
        self.unread.update([] if whole else ["", *(target.name for target in targets)])
        return bag

    def _targets(self, data: dict[str, Any], head: dict[str, Any]) -> Iterator[Target]:
        has_main = "command" in head
        with self.mistakes.caught():
            if has_main:
                yield self._main(data, head["command"])
            elif not self.mistakes:  # else the command may have a misspelt key
                self._no_main(data)
        for name, table in self._table(data, "targets").items():
            with self.mistakes.caught():
                yield from self._further(name, table, has_main)

    def _main(self, data: dict[str, Any], command: object) -> Target:
        self._keep_unknown(self._table(data, "task"), "task", ("task",))
        main = {**self._table(data, "task"), "command": command}
        for part in PARTS:
            if part in data:
                main[part] = self._table(data, part)
        return self._target("main", main, (), ("task",))

    def _no_main(self, data: dict[str, Any]) -> None:
        with self.place.at("bag"):
            if not data.get("targets"):
                raise BadInput("there is no command to run", '[bag] needs command = "prog {x}"')
        for part in ("task", *PARTS):
            with self.place.at(part):
                if part in data:
                    raise BadInput(
                        f"[{part}] applies to the main target, but [bag] has no command", f"use [targets.NAME.{part}]"
                    )

    def validate(self, bag: Bag) -> None:
        """Check the bag as the server does, part by part, so that each error gets the line of its key; tell them."""
        if "" not in self.unread and bag.targets:
            self._located(check.check_head, bag)
        for target in bag.targets:
            is_main = target is bag.targets[0] and target.name == "main"
            if target.name not in self.unread:
                self._checked(target, bag.open, () if is_main else target.name)
        with self.mistakes.caught():
            if not self.mistakes:
                self._whole(bag)
        self.mistakes.tell()

    def _checked(self, target: Target, is_open: bool, where: str | tuple[()]) -> None:
        """Check a target; its texts are rendered only when all else is right."""
        before = len(self.mistakes)
        self._located(lambda each: check.check_tasks(each, is_open), target, where)
        for part in check.PARTS if len(self.mistakes) == before else ():
            self._located(part, target, where)
        if len(self.mistakes) == before:
            self._located(check.check_texts, target, where)

    def _whole(self, bag: Bag) -> None:
        after = {target.name: target.after for target in bag.targets}
        gives = {target.name: bool(target.outputs) for target in bag.targets}
        for target in bag.targets:
            with self.mistakes.caught(), self.place.at("targets", target.name, "after"):
                check.check_after(target.name, after)
            with self.mistakes.caught(), self.place.at("targets", target.name, "command"):
                check.check_takes(target)
                check.check_given(target, gives)
        if self.mistakes:
            return
        circle = find_circle(after)
        with self.place.at("targets", *circle[:1], "after"):
            check.check_whole(bag)

    def _located(self, run_check: Callable[[Any], None], what: object, target: str | tuple[()] = ()) -> None:
        """Run a check, and keep its error with the line of the key that the message begins with."""
        with self.mistakes.caught():
            try:
                run_check(what)
            except BadInput as error:
                with self.place.at(*_home(_key(error.message), ("targets", target) if target else ())):
                    raise

    # --- targets -------------------------------------------------------------------------------------------

    def _further(self, name: str, table: object, has_main: bool) -> Iterator[Target]:
        path = ("targets", name)
        with self.place.at(*path):
            if not isinstance(table, dict):
                raise BadInput(f"[targets] {name} must be a table", f"[targets.{name}]")
            if name == "main" and has_main:
                raise BadInput("the target 'main' already gets its command from [bag]", "give this one another name")
        with self.place.at(*path, "task"):
            if "task" in table:
                raise BadInput(f"[targets.{name}] has no table 'task'", f"write its keys directly in [targets.{name}]")
        before = len(self.mistakes)
        self._keep_unknown(table, "targets", path)
        if len(self.mistakes) > before:
            self.unread.add(name)  # the unknown key may be a misspelt sweep, or command
            if "command" not in table:
                return
        with self.place.at(*path):
            if "command" not in table:
                raise BadInput(f"the target '{name}' has no command")
        yield self._target(name, table, path, path)

    def _target(self, name: str, table: dict[str, Any], parent: KeyPath, path: KeyPath) -> Target:
        """Read a target.  `parent` is the path of the tables of PARTS, `path` that of the task's keys."""
        before = len(self.mistakes)
        source = self._sweep(self._table(table, "sweep", parent), "sweep" in table, (*parent, "sweep"))
        command = self._try(table, path if parent else ("bag",), words.TARGET, "command", "")
        takes: list[str] = []
        with self.mistakes.caught(), self.place.at(*(path if parent else ("bag",)), "command"):
            takes = _takes(command)
        if len(self.mistakes) > before:
            self.unread.add(name)
        target = Target(
            name=name,
            after=self._try(table, path, words.TARGET, "after", []),
            command=command,
            takes=takes,
            source=source,
            capture=list(self._captures(self._table(table, "capture", parent), (*parent, "capture"))),
            check=self._check(self._table(table, "check", parent), (*parent, "check")),
        )
        return self.with_task(target, table, path)

    def with_task(self, target: Target, table: dict[str, Any], path: KeyPath = ()) -> Target:
        """Return the target with the values of the keys of [task] that the table has."""
        target = replace(target, **self._task(target, table, path))
        if "python" in table:
            self._python(target, self._try(table, path, words.TASK, "python", None), path)
        return self._with_inputs(target, self._try(table, path, words.TASK, "inputs", []), (*path, "inputs"))

    def _task(self, target: Target, table: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        """Return the keys that become fields of a target."""
        get = partial(self._try, table, path, words.TASK)
        needs = {field: value for field, key in _RESOURCES.items() if (value := get(key, None)) is not None}
        fields = {field: value for field, key in _FIELDS.items() if (value := get(key, None)) is not None}
        if "outputs" in fields:
            fields["outputs"] = [*target.outputs, *fields["outputs"]]
        return {**fields, "resources": Resources(**needs)}

    def _with_inputs(self, target: Target, texts: list[str], path: KeyPath) -> Target:
        for text in texts:
            with self.mistakes.caught(), self.place.at(*path):
                try:
                    target = self.files.add(target, text)
                except BadInput as error:
                    error.text = error.text or tpl.excerpt(text)
                    raise
        return target

    def _python(self, target: Target, text: str | None, path: KeyPath) -> None:
        if text is None:
            return
        with self.mistakes.caught(), self.place.at(*path, "python"):
            file = self.base / text
            if not text or not file.exists():
                raise BadInput(
                    f"python: '{tpl.excerpt(text)}' does not exist",
                    "name a virtual environment, or a file of requirements, beside the bag file",
                    text=tpl.excerpt(text),
                )
            self.pythons[target.name] = file

    def _check(self, table: dict[str, Any], path: KeyPath) -> Check:
        self._keep_unknown(table, "check", path)
        get = partial(self._try, table, path, words.CHECK)
        schema, text = get("schema", None), ""
        with self.mistakes.caught(), self.place.at(*path, "schema"):
            text = "" if schema is None else self.files.text(schema, "the schema")
        return Check(
            exit=get("exit", [0]), file=get("file", []), match=get("match", ""), schema=text,
            command=get("command", ""), hopeless=get("hopeless", []),
        )

    def _captures(self, table: dict[str, Any], path: KeyPath) -> Iterator[Capture]:
        for name, value in table.items():
            with self.mistakes.caught(), self.place.at(*path, name):
                if isinstance(value, str):
                    yield Capture(name=name, pattern=words.pattern(value, f"capture: {name}"))
                    continue
                if not isinstance(value, dict) or "match" not in value:
                    raise BadInput(
                        f"capture: {tpl.excerpt(name)} must be a regular expression",
                        """as in lod = 'LOD=([0-9.]+)' or lod = { file = "{out}", match = 'LOD=([0-9.]+)' }""",
                    )
                self._known(value, "capture", (*path, name))
                get = partial(self._get, value, (*path, name), words.CAPTURE)
                yield Capture(name=name, pattern=get("match", ""), file=get("file", ""))

    def _policy(self, table: dict[str, Any]) -> Policy:
        before = len(self.mistakes)
        self._keep_unknown(table, "policy", ("policy",))
        get = partial(self._try, table, ("policy",), words.POLICY)
        usual = Policy()
        policy = Policy(
            select=get("select", usual.select), batch=get("batch", usual.batch),
            batch_timeout=get("batch-timeout", usual.batch_timeout), provision=get("provision", usual.provision),
            budget=get("budget", usual.budget), fail_over=get("fail-over", usual.fail_over),
        )
        policy = replace(policy, **self._expressions(table))
        policy = replace(policy, **{key.replace("-", "_"): get(key, "") for key in replica_caps.CAPS})
        for key, text in check.asked_for(policy).items():
            with self.mistakes.caught(), self.place.at("policy", key):
                check.setting(text, key)
        if len(self.mistakes) > before:
            self.unread.add("")
            return policy
        with self.mistakes.caught(), self.place.at("policy", "batch-timeout"):
            if "batch-timeout" in table and policy.batch < 2:
                raise BadInput("batch-timeout has no effect without batch", "set batch to 2 or more, too")
        with self.mistakes.caught(), self.place.at("policy", "batch"):
            check.check_policy(policy)
        if len(self.mistakes) > before:
            self.unread.add("")
        return policy

    def _expressions(self, table: dict[str, Any]) -> dict[str, str]:
        """Return the policies that are expressions, by Windfall's names or by GridBot's."""
        found = {}
        for key in check.EXPRESSIONS:
            names = [name for name in (key, KINDS[key].alias) if name in table]
            with self.mistakes.caught(), self.place.at("policy", *names[1:]):
                if len(names) > 1:
                    raise BadInput(f"{names[1]} is another name of {key}, and both are given", "leave one of them out")
            for name in names:
                found[key.replace("-", "_")] = self._try(table, ("policy",), words.POLICY, name, "")
        return found

    # --- sweeps --------------------------------------------------------------------------------------------

    def _sweep(self, table: dict[str, Any], given: bool, path: KeyPath) -> Sweep:
        axes: list[Axis] = []
        derived: list[Derived] = []
        with self.place.at(*path):
            if given and not table:
                raise BadInput("the sweep is empty", "leave [sweep] out to run the command once")
        before = len(self.mistakes)
        for name, value in table.items():
            with self.mistakes.caught(), self.place.at(*path, name):
                for found in self._entry(name, value, path):
                    if isinstance(found, Derived):
                        derived.append(found)
                    else:
                        axes.append(found)
        sweep = Sweep(axes=axes, derived=derived)
        if len(self.mistakes) > before:
            return sweep
        with self.mistakes.caught(), self.place.at(*path):
            Space(lean_sweep(sweep))  # refuses parameters given twice, unknown ones, circles
        return sweep

    def _entry(self, name: str, value: object, path: KeyPath) -> Iterator[Axis | Derived]:
        """Yield the axes of an entry of `[sweep]`, or its derived parameter."""
        if name == "zip":
            yield from self._zips(value, path)
            return
        sources.parameter_name(name)
        if name == "csv":
            found: Axis | Derived = self._csv(value, (*path, name))
        elif name == "latin":
            found = self._latin(value, (*path, name))
        elif isinstance(value, dict):
            found = self._sample(name, value, (*path, name))
        else:
            found = axis(name, self._with_files(name, value))
            if isinstance(found, Values):
                self._look_again(found, path)
        if not isinstance(found, (Derived, Table)):  # a table that was just read is in good form
            sources.check_axis(found)
        yield found

    def _with_files(self, name: str, value: object) -> object:
        """Return a parameter's value with the paths of files for each text that begins with `glob:`."""
        values = value if isinstance(value, list) else [value]
        if not any(isinstance(each, str) and each.startswith(GLOB) for each in values):
            return value
        return [path for each in values for path in (
            self.files.matching(each[len(GLOB):], f"'{name}':")
            if isinstance(each, str) and each.startswith(GLOB) else [each])]

    def _look_again(self, found: Values, path: KeyPath) -> None:
        """Note a value that its author may have meant as a pattern, or as a range."""
        meant = next(filter(None, (_meant(each) for each in found.values if isinstance(each, str))), None)
        if meant is not None:
            line, _ = self.place.find((*path, found.name))
            where = f"{self.place.file}:{line}: " if line else ""
            self.hints.append(f"{where}'{found.name}' has the text '{meant[0]}' as a value; {meant[1]}")

    def _zips(self, value: object, path: KeyPath) -> Iterator[Zip]:
        if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
            raise BadInput(
                "'zip' is reserved for lists that vary together, and cannot name a parameter",
                "write [[sweep.zip]] and the lists below it, or use another name",
            )
        for number, table in enumerate(value):
            with self.place.at(*path, "zip", number):
                columns = [_zip_column(name, self._with_files(name, each)) for name, each in table.items()]
                if not columns:
                    raise BadInput("[[sweep.zip]] is empty", "give it at least one list")
                found = Zip(columns=columns)
                sources.check_axis(found)
                yield found

    def _sample(self, name: str, table: dict[str, Any], path: KeyPath) -> Sample:
        self._known(table, "sample", path)
        for key in ("sample", "n"):
            if key not in table:
                raise BadInput(f"'{name}': a sample needs {key}", _SAMPLE_EXAMPLE)
        get = partial(self._get, table, path, words.SAMPLE)
        return Sample(law=parse_law(name, get("sample", "")), n=get("n", 0), seed=get("seed", 0))

    def _latin(self, table: object, path: KeyPath) -> Latin:
        if not isinstance(table, dict) or "n" not in table:
            raise BadInput(
                "'latin' is reserved for a Latin hypercube of n points, and cannot name a parameter",
                'below [sweep.latin] n = 100 and laws, as in x = "uniform(0, 1)"',
            )
        get = partial(self._get, table, path, words.SAMPLE)
        laws = []
        for name, law in table.items():
            if name not in ("n", "seed"):
                with self.place.at(*path, name):
                    sources.parameter_name(name)
                    laws.append(parse_law(name, words.string(law, name)))
        return Latin(columns=laws, n=get("n", 0), seed=get("seed", 0))

    def _csv(self, table: object, path: KeyPath) -> Table:
        if not isinstance(table, dict) or "file" not in table:
            raise BadInput(
                "'csv' is reserved for a file of points, and cannot name a parameter",
                'below [sweep.csv] file = "points.csv"',
            )
        self._known(table, "csv", path)
        get = partial(self._get, table, path, words.CSV)
        file, delimiter = get("file", ""), get("delimiter", ",")
        with self.place.at(*path, "delimiter"):
            if len(delimiter) != 1 or delimiter in "\r\n\"":
                raise BadInput("delimiter must be one character", r'as in ";" or "\t"')
        with self.place.at(*path, "columns" if "columns" in table else "file"):
            found = csv_table.read(self.base / file, file, get("columns", None), delimiter)
            for name in found.columns:
                _column_name(name)
        return found

    # --- tables and keys -----------------------------------------------------------------------------------

    def _table(self, data: dict[str, Any], key: str, parent: KeyPath = ()) -> dict[str, Any]:
        table = data.get(key, {})
        with self.place.at(*parent, key):
            if not isinstance(table, dict):
                raise BadInput(f"'{key}' must be a table", f"write [{key}] and its keys below it")
        return table

    def _keep_unknown(self, table: dict[str, Any], kind: str, path: KeyPath) -> None:
        for key in table:
            with self.mistakes.caught():
                self._known([key], kind, path)

    def _known(self, keys: Iterable[str], kind: str, path: KeyPath) -> None:
        later = LATER.get("task" if kind == "targets" else kind, {})
        where = "[" + ".".join(map(str, path)) + "]" if path else "a bag file"
        for key in keys:
            if key in KEYS[kind]:
                continue
            with self.place.at(*path, key):
                if key in later:
                    raise BadInput(f"{where}: '{key}' does not exist yet", later[key], text=key)
                raise BadInput(f"{where} has no key '{tpl.excerpt(key)}'", _suggest(key, kind), text=tpl.excerpt(key))

    def _try(self, *asked: Any) -> Any:
        """Return the value of a key as `_get` does; the default, its last argument, after a mistake, which is kept."""
        with self.mistakes.caught():
            return self._get(*asked)
        return asked[-1]

    def _get(
        self, table: dict[str, Any], path: KeyPath, known: dict[str, words.KeySpec], key: str, default: Any
    ) -> Any:
        if key not in table:
            return default
        with self.place.at(*path, key):
            return known[key].read(table[key], key)


def _suggest(key: str, kind: str) -> str:
    """Return a hint for an unknown key: the table in which it belongs, else the nearest known key."""
    tables = ("bag", "task", "check", "policy", "targets")
    home = next((name for name in tables if name != kind and key in KEYS[name]), "")
    if home:
        return f"'{key}' belongs in [{'targets.NAME' if home == 'targets' else home}]"
    return nearest(key, KEYS[kind])


_KEY_OF_SUBJECT = {"the command": "command", "the environment variable": "environment", "the bag's name": "name",
                   "two inputs": "inputs", "the output": "outputs", "the checkpoint": "checkpoint"}


def _key(message: str) -> str:
    """Return the key that a message is about, from its first words."""
    key = next((key for text, key in _KEY_OF_SUBJECT.items() if message.startswith(text)), "")
    return key or (re.match(r"[\w-]*", message) or [""])[0]


def _home(key: str, target: KeyPath) -> KeyPath:
    """Return the path of a key in the bag file, for a message about it."""
    if key in words.TASK:
        return (*target, key) if target else ("task", key)
    if key in PARTS:
        return (*target, key)
    if key in words.POLICY:
        return ("policy", key)
    if key == "name":
        return ("bag", key)
    return (*target, key) if target else ("bag", key)


def _takes(command: str | list[str]) -> list[str]:
    """Return the targets whose output files the command names."""
    pieces = [tpl.pieces(word) for word in (command if isinstance(command, list) else [command])]
    found = (tpl.taken_target(name) for piece in pieces for name in tpl.names(piece))
    return list(dict.fromkeys(filter(None, found)))


def _column_name(name: str) -> None:
    try:
        sources.parameter_name(name)
    except BadInput as error:
        error.message = f"the column {error.message}"
        error.hint = f'give it another name: columns = ["{tpl.excerpt(name, 40)} -> name"]'
        raise


# --- values ----------------------------------------------------------------------------------------------------

_NUMBER = r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+|\.\d+)"
_RANGE = re.compile(r"\s*(.+?)\s*\.\.\s*([^:]*?)\s*(?::\s*(.*?)\s*)?")
_DOTS = re.compile(r"\.{3,}")
_SAMPLE_EXAMPLE = 'as in { sample = "uniform(0, 1)", n = 50, seed = 7 }'
_RANGE_LIKE = re.compile(r"\s*[-+]?\.?\d[\d.eE+-]*\.\.")


def axis(name: str, value: object) -> Range | Values | Derived:
    """Read a parameter of `[sweep]`: a range, values, or a template of other parameters."""
    if isinstance(value, str):
        if "{" in value or "}" in value:
            tpl.pieces(value)
            return Derived(name=name, template=value)
        return _range(name, value) if _RANGE_LIKE.match(value) else Values(name=name, values=[value])
    if isinstance(value, list):
        return Values(name=name, values=[_value(name, each) for each in value])
    return Values(name=name, values=[_value(name, value)])


def _meant(text: str) -> tuple[str, str] | None:
    """Return a text that looks like a pattern of files or like a range, and what to write for that; else None."""
    shown = tpl.excerpt(text, 40)
    if len(text) > 1 and re.fullmatch(r"\S*[*?]\S*", text):
        return shown, f"for the files that match write {GLOB}{shown}"
    parts = re.fullmatch(r"(0|[1-9]\d{0,8})[-:]([1-9]\d{0,8})", text)
    if parts and int(parts[1]) < int(parts[2]):
        return shown, f"for a range of numbers write {parts[1]}..{parts[2]}"
    return None


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
        sources.check_value(value, name)
        return value
    what = "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else "a date or time"
    raise BadInput(
        f"'{name}': {what} cannot be a value", "values are numbers, texts, true and false; put dates in quotes"
    )


def _zip_column(name: str, value: object) -> Values:
    sources.parameter_name(name)
    found = axis(name, value)
    if isinstance(found, Range):
        size = axis_size(found)
        at_most(size, 1_000_000, f"values of '{name}' in a zip")
        return Values(name=name, values=Space(Sweep(axes=[found])).columns[name].values(range(size)))
    if isinstance(found, Derived) or not isinstance(value, list):
        raise BadInput(f"'{name}' must be a list or a range, since it varies together with others in a zip")
    return found
