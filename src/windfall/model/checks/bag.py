"""Validation of bags.  The server validates every bag that a client sends, and trusts no field of it.

The checks count and never expand: a sweep costs its axes, and the length of the longest text of a template is computed
before any text is made.  Rendering the tasks of a valid bag cannot fail.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.bounds import at_most, check_clean, check_text, distinct, within
from windfall.model.checks.cycles import find_circle, refuse_circle
from windfall.model.checks.flows import check_flows
from windfall.model.checks.patterns import ERRORS, MAX_PATTERN, check_effort
from windfall.model.checks.result_schema import check_schema, schema_patterns
from windfall.model.checks.sources import check_source, longest_values, parameters, swollen
from windfall.model.policies import attributes, expressions, replica_caps
from windfall.model.spec import (
    MAX_BATCH,
    MAX_NAME,
    MAX_TARGETS,
    MAX_TASKS,
    MAX_TEXT,
    MAX_TIME_RETRIES,
    Axis,
    Bag,
    Capture,
    Flows,
    Input,
    Items,
    Lines,
    Origin,
    Placed,
    Policy,
    Source,
    Sweep,
    Table,
    Target,
    Value,
    Values,
    Zip,
)  # fmt: skip
from windfall.model.suggest import nearest
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import text_of
from windfall.model.templates.families import renderings
from windfall.model.templates.render import Renderer, same_parameters, source_count
from windfall.model.templates.table import lines, parse_row
from windfall.model.units import MAX_DURATION, MAX_SIZE, format_core_time, parse_duration
from windfall.wire import patterns

SELECT = ("fcfs", "sjf")
EXPRESSIONS = ("requirements", "rank", "sites", "per-host", "replicate", "attempt-deadline")
TASK_PILOT_POLICIES = ("msr", "broker")  # provisioning policies that bind a pilot to one task before it starts
PROVISION = ("swarm", "demand", *TASK_PILOT_POLICIES)
REPLICATE = ("none", "deadline", "tail-safe", "tail-fast")
USUAL = Policy().replicate
EFFECTS = ("none", "external")
_BARE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")  # a name without quotes
_DURATION = re.compile(r"(\s*[0-9][0-9.]*\s*[A-Za-z]+)+\s*")
_LITERAL = re.compile(r"(-?)\s*([0-9]{0,40}\.?[0-9]{0,40}([eE][+-]?[0-9]{1,9})?)")
KINDS = ("command", "call")
SCRATCH = ("", "failed")
RESULTS = (
    "task", "target", "state", "exit", "signal", "why", "attempt", "site", "host", "granted", "started", "ended",
    "wall", "cpu", "rss", "memory", "out_size", "err_size", "note", "files", "params", "values",
)  # fmt: skip
"""The fixed columns of results; a captured value needs another name."""

LONGEST_LITERAL = 100  # characters: nobody writes a longer number, and matching it would take long
MAX_WORDS = 10_000
MAX_FILES = 10_000
MAX_VARIABLES = 1_000
MAX_EDGES = 50_000_000
SHORTEST_ABSENCE, LONGEST_ABSENCE = 60_000, 365 * 86_400_000  # ms
MAX_BUDGET = 1 << 60  # ms of cores
MAX_CORES = 1 << 20
MAX_RETRIES = 1_000
MAX_FAMILIES = 1_000
MAX_FAMILY = 1_000_000  # files of one family
MAX_NAMED = 5_000_000  # points of all families of a target
MAX_PARAMETERS = 1_000_000  # characters of all parameters of a task: every line of results has them
MAX_CAPTURES = 1_000
MAX_MODULES = 100
MAX_ORDERED = 2_000_000  # each task's cost is worked out when the bag comes in

_HASH = re.compile(r"[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[\w][\w.+/@=-]*", re.ASCII)
_IMAGE = re.compile(r"[\w/.~][\w/.:@+~-]*", re.ASCII)
_VERSION = re.compile(r"3\.\d{1,2}", re.ASCII)
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f]*")


def validate(bag: Bag) -> None:
    """Raise BadInput, or TooLarge, if the bag cannot be run as it is."""
    check_effort(pattern for target in bag.targets for pattern in _patterns(target))
    check_head(bag)
    for target in bag.targets:
        check_target(target, bag.open)
    check_whole(bag)


def _patterns(target: Target) -> Iterator[str]:
    yield target.check.match
    yield from (each.pattern for each in target.capture)
    if target.check.schema:
        yield from schema_patterns(target.check.schema)


def check_head(bag: Bag) -> None:
    """Check the bag's own fields, without its targets."""
    _name(bag.name, "the bag's name")
    _one_of(bag.effects, EFFECTS, "effects")
    check_policy(bag.policy)
    policy = bag.policy
    if wrong := pointless(asked_for(policy), bag.effects == "external", policy.batch, provision=policy.provision):
        raise wrong
    if bag.policy.batch > 1 and bag.effects == "external":
        raise BadInput("batch: tasks with external effects are granted one by one", "leave batch out, or effects")
    if not 0 <= bag.policy.budget < MAX_BUDGET:
        raise BadInput(f"budget must be 0 to {format_core_time(MAX_BUDGET)}, not {format_core_time(bag.policy.budget)}")
    if bag.absence and not (bag.open and SHORTEST_ABSENCE <= bag.absence <= LONGEST_ABSENCE):
        raise BadInput("absence must be 1 min to 365 d, and the bag must be open", "leave it out: the bag stays open")
    if bag.policy.fail_over:
        _name(bag.policy.fail_over, "fail-over")
    if bag.origin is not None:
        check_origin(bag.origin)
    if not bag.targets:
        raise BadInput("the bag has no target", "give it a command")
    at_most(len(bag.targets), MAX_TARGETS, "targets in a bag")


def check_origin(origin: Origin) -> None:
    texts = [text for words in origin.words.values() for text in (words if isinstance(words, list) else [str(words)])]
    for text in (origin.folder, *origin.words, *texts):
        check_text(text, "origin")
    at_most(sum(map(len, (origin.folder, *origin.words, *texts))), MAX_TEXT, "characters in the bag's origin")


def check_whole(bag: Bag) -> None:
    """Check what concerns all targets together, after each has been checked."""
    total = sum(source_count(target.source) for target in bag.targets)
    if total > MAX_TASKS:
        raise TooLarge(
            f"the bag has {total:,} tasks; at most {MAX_TASKS:,} are allowed", "make fewer points, or several bags"
        )
    if bag.policy.budget and not all(target.time for target in bag.targets):
        raise BadInput("budget: every task needs a time limit, since the budget reserves its worst case",
                       'give [task] time = "30min"')
    if bag.policy.select == "sjf" and total > MAX_ORDERED and any(target.cost for target in bag.targets):
        raise TooLarge(f"sjf can sort at most {MAX_ORDERED:,} tasks by their cost", 'use select = "fcfs"')
    _prerequisites(bag)
    _edges(bag, total)


def validate_source(target: Target, source: Source) -> None:
    """Raise BadInput, or TooLarge, if these tasks cannot be appended to a target."""
    lines_need_lines = isinstance(target.source, Lines) and not isinstance(source, Lines)
    if target.kind == "call" and not isinstance(source, Items):
        raise BadInput("Python calls need `items`, not a sweep or lines")
    if isinstance(source, Sweep) != isinstance(target.source, Sweep) or lines_need_lines:
        raise BadInput(
            f"these tasks cannot be appended to '{target.name}'",
            "append lines to lines, items or lines to items, and a sweep of the same parameters to a sweep",
        )
    check_source(source)
    at_most(source_count(source), MAX_TASKS, "tasks at once")
    if isinstance(source, Sweep) and isinstance(target.source, Sweep):
        same_parameters(parameters(target.source), parameters(source))
        extended = replace(target, source=source)
        _lengths(extended)
        _families(extended)


# --- one target ------------------------------------------------------------------------------------------------


def check_target(target: Target, is_open: bool) -> None:
    check_tasks(target, is_open)
    for check_part in PARTS:
        check_part(target)
    check_texts(target)


def check_tasks(target: Target, is_open: bool) -> None:
    """Check a target's name, tasks and command."""
    _name(target.name, "a target's name")
    if not tpl.NAME.fullmatch(target.name):
        raise BadInput(f"'{target.name}' cannot be the name of a target", "use letters, digits, - and _")
    _one_of(target.kind, KINDS, "kind")
    check_source(target.source)
    if source_count(target.source) == 0 and not is_open:
        raise BadInput(f"the target '{target.name}' has no tasks", "an empty range or list leaves nothing to run")
    _command(target)


def check_texts(target: Target) -> None:
    """Check what templates become, in a target that is right otherwise."""
    _lengths(target)
    _families(target)
    _cost(target)


def _command(target: Target) -> None:
    command = target.command
    if not isinstance(target.source, Sweep):
        if command:
            raise BadInput("a command template needs a sweep", "leave it out: lines and items are commands themselves")
        if target.kind == "call" and not isinstance(target.source, Items):
            raise BadInput("Python calls need `items`, not lines")
        return
    if target.kind == "call":
        raise BadInput("Python calls need `items`, not a command or a sweep")
    words = command if isinstance(command, list) else [command]
    at_most(len(words), MAX_WORDS, "words in a command")
    if not words or not words[0].strip():
        raise BadInput(f"the target '{target.name}' has no command", 'give one, as in command = "prog {x}"')
    for word in words:
        check_text(word, "the command")


def _numbers(target: Target) -> None:
    needs = target.resources
    within(needs.cores, 1, MAX_CORES, "cores")
    within(needs.memory, 0, MAX_SIZE, "memory")
    within(needs.gpus, 0, MAX_CORES, "gpus")
    within(needs.disk, 0, MAX_SIZE, "disk")
    within(needs.nodes, 1, MAX_CORES, "nodes")
    if needs.nodes > 1 and target.kind == "call":
        raise BadInput("nodes: a Python call runs on one node", "only commands may run on several")
    within(target.time, 0, MAX_DURATION, "time")
    within(target.expect, 0, MAX_DURATION, "expect")
    within(target.grace, 0, MAX_DURATION, "grace")
    within(target.retries, 0, MAX_RETRIES, "retries")
    within(target.memory_retries, 0, 16, "memory-retries")
    within(target.time_retries or 0, 0, MAX_TIME_RETRIES, "time-retries")
    within(target.priority, -(1 << 31), (1 << 31) - 1, "priority")


def _files(target: Target) -> None:
    named_paths = (
        ("outputs", target.outputs),
        ("check: file", target.check.file),
        ("checkpoint", target.checkpoint),
        ("capture", [each.file for each in target.capture if each.file]),
    )
    for what, paths in named_paths:
        at_most(len(paths), MAX_FILES, what)
        for path in paths:
            relative_path(path, what)
            _pattern(path, what)
    at_most(len(target.inputs), MAX_FILES, "inputs")
    for each in target.inputs:
        _input(each)
    at_most(len(target.placed), MAX_FILES, "inputs")
    for placed in target.placed:
        _placed(placed)
    distinct(_places(target), "two inputs have the same path '{}'")
    distinct(target.outputs, "the output '{}' is named twice")
    distinct(target.checkpoint, "the checkpoint file '{}' is named twice")


def _pattern(path: str, what: str) -> None:
    if not patterns.is_pattern(path):
        return
    if what != "outputs":
        raise BadInput(
            f"{what}: '{tpl.excerpt(path)}' is a pattern, and only outputs may be patterns", "name each file",
            text=tpl.excerpt(path),
        )
    patterns.check(path, what)


def _places(target: Target) -> Iterator[str]:
    yield from (each.path for each in target.inputs)
    yield from (each.path for each in target.families)
    yield from (each.path for each in target.placed if each.path)


def _input(each: Input) -> None:
    relative_path(each.path, "inputs")
    _blob(each.path, (each.blob, each.size, each.mode))


def _blob(path: str, blob: tuple[str, int, int]) -> None:
    sha, size, mode = blob
    if not _HASH.fullmatch(sha):
        raise BadInput(f"inputs: the blob of '{tpl.excerpt(path)}' is not a SHA-256 (64 hexadecimal digits)")
    within(size, 0, MAX_SIZE, "size of an input")
    within(mode, 0, 0o777, "mode of an input")


def _placed(each: Placed) -> None:
    if each.path:
        relative_path(each.path, "inputs")
    check_text(each.there, "inputs")
    known = each.there.startswith("/") or (each.there and "/" not in each.there)  # a name from the site file
    if not known or not _PRINTABLE.fullmatch(each.there) or len(each.there) > 4000:
        raise BadInput(
            f"inputs: 'site:{tpl.excerpt(each.there)}' must be an absolute path, or a name from the site file",
            'as in "site:/scratch/ref/panel.bin", or "site:panel.bin" with [staged] there',
            text=tpl.excerpt(each.there),
        )


def _families(target: Target) -> None:
    """Check that the bag has every file that an input name with parameters stands for."""
    at_most(len(target.families), MAX_FAMILIES, "inputs with parameters in their names")
    seen = 0
    for family in target.families:
        at_most(len(family.files), MAX_FAMILY, "files of one input")
        for name, blob in family.files.items():
            check_text(name, "inputs")
            _blob(name, blob)
        if not isinstance(target.source, Sweep):
            raise BadInput(
                f"inputs: '{tpl.excerpt(family.source)}' uses parameters, but the target '{target.name}' has no sweep",
                text=tpl.excerpt(family.source),
            )
        for task, (source, path) in renderings(target.source, family.source, family.path):
            seen += 1
            if seen > MAX_NAMED:
                raise TooLarge(f"inputs: the tasks together need more than {MAX_NAMED:,} files")
            if not source:
                continue  # this task has no such file
            if source not in family.files:
                raise BadInput(
                    f"inputs: task {task} needs '{tpl.excerpt(source)}', which did not come with the bag",
                    text=tpl.excerpt(source),
                )
            relative_path(path, "inputs")


def relative_path(path: str, what: str) -> str:
    """Return a path; raise BadInput unless it stays inside the working directory."""
    check_text(path, what)
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or not _PRINTABLE.fullmatch(path) or path.strip("./") == "":
        raise BadInput(
            f"{what}: '{tpl.excerpt(path)}' is not a path inside the task's working directory",
            "name a file below it, without a leading / and without ..",
            text=tpl.excerpt(path),
        )
    if len(path.encode()) > 4000:
        raise BadInput(f"{what}: a path of {len(path)} characters is too long")
    return path


def _environment(target: Target) -> None:
    """Check environment, set-up lines, modules, container, packed Python and scratch."""
    _one_of(target.scratch, SCRATCH, "scratch")
    _variables(target)
    _modules(target.modules)
    _container(target.container)
    if target.packed:
        _blob("python", (target.packed.blob, target.packed.size, 0))
        if not _VERSION.fullmatch(target.packed.python):
            raise BadInput(f"python: '{tpl.excerpt(target.packed.python)}' is not a version, such as 3.11")
    if target.kind == "call" and (target.capture or target.check.command or target.check.schema):
        raise BadInput("Python calls have neither capture nor a check by schema or command",
                       "check the value that the call returns")


def _modules(modules: list[str]) -> None:
    at_most(len(modules), MAX_MODULES, "modules")
    for module in modules:
        if not _MODULE.fullmatch(module) or len(module) > MAX_NAME:
            raise BadInput(
                f"modules: '{tpl.excerpt(module)}' is not the name of a module", 'as in "gcc/12.2"', text=module[:100]
            )


def _container(image: str) -> None:
    if image and (not _IMAGE.fullmatch(image) or len(image) > 1000):
        raise BadInput(
            f"container: '{tpl.excerpt(image)}' is not the name of an image",
            'as in "docker://ubuntu:24.04" or "/shared/tools.sif"',
            text=tpl.excerpt(image),
        )


def _variables(target: Target) -> None:
    at_most(len(target.environment), MAX_VARIABLES, "environment variables")
    for name, value in target.environment.items():
        if not _VARIABLE.fullmatch(name) or len(name) > MAX_NAME:
            raise BadInput(f"environment: '{tpl.excerpt(name)}' cannot be the name of an environment variable")
        check_text(value, f"the environment variable {name}")
    at_most(len(target.setup), MAX_WORDS, "set-up lines")
    for line in target.setup:
        check_text(line, "setup")


def _concurrency(target: Target) -> None:
    within(target.at_once, 0, (1 << 31) - 1, "at-once")
    if target.crowd:
        _name(target.crowd, "a concurrency group's name")
        if not target.at_once:
            raise BadInput(f"the target '{target.name}' is in the concurrency group '{target.crowd}' without a limit",
                           "set at-once")


def _check(target: Target) -> None:
    check = target.check
    at_most(len(check.exit), 256, "exit codes")
    if not check.exit:
        raise BadInput("check: exit names no exit code, so no task could succeed", "exit = [0]")
    for code in check.exit:
        within(code, 0, 255, "check: exit")
    at_most(len(check.hopeless), 256, "exit codes")
    for code in check.hopeless:
        within(code, 1, 255, "check: hopeless")
    if both := sorted(set(check.exit) & set(check.hopeless)):
        raise BadInput(f"check: exit code {both[0]} cannot be both good and hopeless", "leave it out of one of them")
    pattern(check.match, "check: match")
    if check.schema:
        check_schema(check.schema)
    words = check.command if isinstance(check.command, list) else [check.command]
    at_most(len(words), MAX_WORDS, "words in a command")
    for word in words:
        check_text(word, "check: command")
    if isinstance(check.command, list) and not (words and words[0].strip()):
        raise BadInput("check: command is empty", "leave it out")


def _captures(target: Target) -> None:
    at_most(len(target.capture), MAX_CAPTURES, "captured values")
    taken = parameters(target.source) if isinstance(target.source, Sweep) else []
    for each in target.capture:
        _capture(each, taken)
    distinct([each.name for each in target.capture], "capture: '{}' is given twice")


def _capture(each: Capture, parameters: list[str]) -> None:
    if not tpl.NAME.fullmatch(each.name) or len(each.name) > MAX_NAME:
        raise BadInput(
            f"capture: '{tpl.excerpt(each.name)}' cannot be the name of a column", "use letters, digits, - and _",
            text=tpl.excerpt(each.name),
        )  # fmt: skip
    if each.name in parameters or each.name in RESULTS:
        what = "a parameter of the sweep" if each.name in parameters else "a fixed column of results"
        raise BadInput(f"capture: '{each.name}' is already {what}", "give it another name", text=each.name)
    if not each.pattern:
        raise BadInput(f"capture: {each.name} has no pattern", "as in lod = 'LOD=([0-9.]+)'", text=each.name)
    pattern(each.pattern, f"capture: {each.name}")


def pattern(text: str, what: str) -> None:
    if len(text) > MAX_PATTERN:
        raise TooLarge(f"{what}: a pattern of {len(text)} characters; at most {MAX_PATTERN}")
    check_text(text, what)
    try:
        re.compile(text)
    except ERRORS as error:
        raise BadInput(f"{what}: not a regular expression: {error}", text=tpl.excerpt(text)) from None


PARTS = (_numbers, _files, _environment, _check, _concurrency, _captures)
"""Checks of a target's parts, for a target whose tasks are right: a mistake in one part hides none in another."""


# --- lengths of tasks ------------------------------------------------------------------------------------------


def _lengths(target: Target) -> None:
    """Refuse templates that can grow past MAX_TEXT: derived parameters of derived ones grow exponentially."""
    if not isinstance(target.source, Sweep):
        Renderer(_without_tasks(target))
        return
    Renderer(target)  # compiles every template, refuses unknown parameters and circles
    at_most(sum(longest_values(target.source).values()), MAX_PARAMETERS, "characters in the parameters of a task")
    total = longest_task(target)
    if total > MAX_TEXT:
        raise TooLarge(f"a task of the target '{target.name}' can have {total:,} characters; at most {MAX_TEXT:,}")


def longest_task(target: Target) -> int:
    """Return the most characters that command, environment and file names of a task can have together."""
    source = target.source
    if isinstance(source, Items):
        return max(map(len, source.items), default=0)
    if isinstance(source, Lines):
        return max(map(len, source.text.split("\n")))
    most = longest_values(source)
    words = target.command if isinstance(target.command, list) else [target.command]
    check = target.check.command if isinstance(target.check.command, list) else [target.check.command]
    texts = (
        *words, *target.outputs, *target.check.file, *check, *target.environment.values(), *target.checkpoint,
        *(each.file for each in target.capture), *(each.path for each in target.families),
        *(part for each in target.placed for part in (each.path, each.there)),
    )  # fmt: skip
    return sum(swollen(tpl.pieces(text), most) for text in texts) + 100 * len(target.families)


def _without_tasks(target: Target) -> Target:
    empty: Source = Lines(text="", count=0) if isinstance(target.source, Lines) else Items(items=[])
    return replace(target, source=empty)


def _cost(target: Target) -> None:
    if len(target.cost) > MAX_NAME:
        raise BadInput("cost is too long", 'name one parameter: cost = "{position}"')
    if not target.cost or not isinstance(target.source, Sweep):
        return
    for axis in target.source.axes:
        wrong = next((value for value in _column(axis, target.cost.strip("{}")) if not _is_number(value)), None)
        if wrong is not None:
            name = target.cost.strip("{}")
            raise BadInput(f"cost: '{name}' has values that are not numbers, such as {text_of(wrong)[:60]!r}")


def _column(axis: Axis, name: str) -> Iterator[Value]:
    """Yield the values of a parameter that the axis lists."""
    if isinstance(axis, Table) and name in axis.columns:
        at = axis.columns.index(name)
        yield from (parse_row(line)[at] for line in lines(axis))
    elif isinstance(axis, (Values, Zip)):
        for column in [axis] if isinstance(axis, Values) else axis.columns:
            if column.name == name:
                yield from column.values


def _is_number(value: Value) -> bool:
    if isinstance(value, str):
        try:
            return math.isfinite(float(value))
        except ValueError:
            return False
    return not isinstance(value, bool)


# --- the bag ---------------------------------------------------------------------------------------------------


def check_policy(policy: Policy) -> None:
    if policy.select not in SELECT:
        raise BadInput(f"policy: select = '{tpl.excerpt(policy.select)}' does not exist",
                       f"known: {', '.join(SELECT)}")
    if policy.provision not in PROVISION:
        raise BadInput(f"policy: provision = '{tpl.excerpt(policy.provision)}' does not exist",
                       f"known: {', '.join(PROVISION)}")
    if policy.deadline:
        raise BadInput("policy: deadline does not exist yet", expressions.INSTEAD_OF["deadline"])
    if policy.batch < 0:
        raise BadInput("policy: batch must be 0 or more")
    within(policy.batch_timeout, 0, MAX_DURATION, "policy: batch-timeout (ms)")
    at_most(policy.batch, MAX_BATCH, "batch: tasks that go together")
    for key in (*EXPRESSIONS, *replica_caps.CAPS):
        if text := getattr(policy, key.replace("-", "_")):
            setting(text, key)


def given(policy: Policy, keys: Iterable[str] = (*EXPRESSIONS, *replica_caps.CAPS)) -> dict[str, str]:
    """Return the policies that are expressions or caps, in the form in which they are stored; presets left out."""
    found = {key: setting(text, key) for key, text in asked_for(policy, keys).items()}
    return {key: text for key, text in found.items() if text not in REPLICATE}


def asked_for(policy: Policy, keys: Iterable[str] = (*EXPRESSIONS, *replica_caps.CAPS)) -> dict[str, str]:
    """Return the texts of these policies that the user set; the default of replicate counts as not set."""
    texts = {key: getattr(policy, key.replace("-", "_")) for key in keys}
    return {key: text for key, text in texts.items() if text and (key, text) != ("replicate", USUAL)}


def pointless(policy: Mapping[str, str], external: bool, batch: int, *, provision: str = "") -> BadInput | None:
    """Return an error if one of these policies can have no effect in such a bag, else None."""
    doubles = ("replicate", "attempt-deadline", *replica_caps.CAPS)
    twice = [key for key in doubles if policy.get(key, "none") != "none"]
    tasks, key = _run_once(external, batch, provision)
    if tasks and twice:
        return BadInput(f"{twice[0]}: {tasks} never run twice at a time", f"leave {twice[0]} out, or {key}")
    if batch > 1 and policy.get("per-host"):
        return BadInput("per-host and batch exclude each other", "a batch runs in one slot, one after another")
    return None


def _run_once(external: bool, batch: int, provision: str) -> tuple[str, str]:
    """Return a name for tasks that never have two attempts at a time, and the key that says so; "" for others."""
    if external:
        return "tasks with external effects", "effects"
    if batch > 1:
        return "tasks that go together in batches", "batch"
    return (
        ("tasks with pilots of their own", f"provision = {provision}") if provision in TASK_PILOT_POLICIES else ("", "")
    )


def setting(text: str, key: str) -> str:
    """Check a policy that can change while the bag runs, and return the form in which it is stored."""
    return replica_caps.normal(text, key) if key in replica_caps.CAPS else expression(text, key)


def expression(text: str, key: str) -> str:
    """Check a policy that is an expression, a preset or a duration, and return the form in which it is stored."""
    if key == "replicate" and text.lower() in REPLICATE:
        return text.lower()
    is_word = _BARE.fullmatch(text) is not None and attributes.find(text) is None
    if key == "replicate" and is_word:
        _refuse_misspelt_preset(text)
    if key == "attempt-deadline":
        text = _in_seconds(text)
    if key == "per-host" and _literal(text, 1) < 1:
        raise BadInput(f"per-host = {tpl.excerpt(text)} would let no host run a task", "use 1 or more")
    try:
        expressions.check(text, key)
    except BadInput as error:
        error.message = f"{key}, {error.message}"
        error.hint = _policy_hint(text, key, is_word, error.hint)
        raise
    return text


def _refuse_misspelt_preset(text: str) -> None:
    near = nearest(text.lower(), REPLICATE)
    if near.startswith("did"):
        raise BadInput(f"replicate: there is no preset '{tpl.excerpt(text)}'", near, text=tpl.excerpt(text))


def _in_seconds(text: str) -> str:
    """Return an attempt-deadline with a duration turned into seconds; refuse one of 0 or less."""
    if len(text) <= expressions.MAX_LENGTH and _DURATION.fullmatch(text):
        seconds = parse_duration(text, "attempt-deadline") / 1000
        text = str(int(seconds) if seconds == int(seconds) else seconds)
    if _literal(text, 1) <= 0:
        raise BadInput(f"attempt-deadline = {tpl.excerpt(text)} leaves no time for an attempt",
                       "leave it out for no deadline")
    return text


def _policy_hint(text: str, key: str, is_word: bool, hint: str) -> str:
    if key == "sites" and is_word:
        return f'sites = \'Site.Name == "{tpl.excerpt(text)}"\''
    if key == "replicate":
        return f"{hint}; or one of {', '.join(REPLICATE)}" if hint else ""
    return hint


def _literal(text: str, other: float) -> float:
    """Return the value of a number, and `other` for an expression."""
    found = _LITERAL.fullmatch(text.strip()) if len(text) <= LONGEST_LITERAL else None
    return float(found[1] + found[2]) if found and re.search("^[.]?[0-9]", found[2]) else other


def _prerequisites(bag: Bag) -> None:
    distinct([target.name for target in bag.targets], "two targets are called '{}'")
    after = {target.name: list(target.after) for target in bag.targets}
    for name in after:
        check_after(name, after)
    gives = {target.name: bool(target.outputs) for target in bag.targets}
    for target in bag.targets:
        check_takes(target)
        check_given(target, gives)
    circle = find_circle(after)
    if circle:
        raise BadInput(f"targets wait for one another in a circle: {' → '.join(circle)}", text=circle[1])


def check_after(name: str, after: dict[str, list[str]]) -> None:
    """Check that the targets that a target waits for exist."""
    for each in after[name]:
        if each not in after:
            raise BadInput(
                f"the target '{name}' waits for '{tpl.excerpt(each)}', which does not exist",
                nearest(each, after),
                text=each,
            )
    distinct(after[name], f"'{name}' names '{{}}' twice in after")


def check_takes(target: Target) -> None:
    """Check that a target waits for the targets whose output files its command uses."""
    for each in target.takes:
        if each not in target.after:
            raise BadInput(
                f"the command of '{target.name}' uses {{{tpl.excerpt(each)}.outputs}} but does not wait for it",
                f'after = ["{tpl.excerpt(each)}"]',
                text=f"{{{tpl.excerpt(each)}.outputs}}",
            )
    distinct(target.takes, f"'{target.name}' takes the output files of '{{}}' twice")


def check_given(target: Target, gives: dict[str, bool]) -> None:
    """Check that the targets whose output files a command uses have outputs."""
    for name in target.takes:
        if not gives[name]:
            raise BadInput(
                f"the command of '{target.name}' uses {{{tpl.excerpt(name)}.outputs}}, "
                f"but '{tpl.excerpt(name)}' has no outputs",
                'name the files that its tasks make: outputs = ["…"]',
                text=f"{{{tpl.excerpt(name)}.outputs}}",
            )


def check_blobs(flows: Flows) -> None:
    at_most(len(flows.blobs), MAX_FAMILY, "files of flows")
    for number, blob in enumerate(flows.blobs):
        _blob(f"file {number} of the flows", blob)


def _edges(bag: Bag, total: int) -> None:
    edges, flows = bag.edges, bag.flows
    if flows is not None:
        check_blobs(flows)
        check_flows(flows, bag, total, relative_path)
    at_most(len(edges), MAX_EDGES, "prerequisites between tasks")
    for before, after in edges:
        if not (0 <= before < total and 0 <= after < total):
            raise BadInput(f"task {after} cannot wait for task {before}: the bag has tasks 0 to {total - 1}")
    refuse_circle(bag)


# --- names -----------------------------------------------------------------------------------------------------


def _name(name: str, what: str) -> None:
    if not name.strip() or len(name) > MAX_NAME or not _PRINTABLE.fullmatch(name):
        raise BadInput(f"{what} must have 1 to {MAX_NAME} printable characters", text=tpl.excerpt(name))
    check_clean(name, what)


def _one_of(value: str, known: tuple[str, ...], what: str) -> None:
    if value not in known:
        raise BadInput(
            f"{what} = '{tpl.excerpt(value)}' does not exist", nearest(value, known), text=tpl.excerpt(value)
        )
