"""`windfall run --dry-run`: show the commands that would run, and the files that would be sent.  Start nothing.

With `--extend`, ask the server which points the bag has had, and show those that would run, under their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from windfall.cli.present.output import print_json
from windfall.model.checks.bag import asked_for
from windfall.model.units import plural

if TYPE_CHECKING:
    from pathlib import Path

    from windfall.client.client import Client
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Family, Target
    from windfall.model.templates.render import Renderer

T = TypeVar("T")
SHOWN = 20  # commands; in JSON, SHOWN_JSON
SHOWN_JSON = 1000
SHOWN_TAKEN = 3  # output files of another target


class Part(NamedTuple):
    """The tasks of one target that would run."""

    renderer: Renderer
    tasks: range  # within the target
    first: int  # the number in the bag of the first of them


def dry_run(parsed: Parsed, as_json: bool, extends: str | None = None) -> int:
    parts, files = _of_extension(parsed, extends) if extends else (_of_bag(parsed), set(parsed.uploads))
    total = sum(len(part.tasks) for part in parts)
    renderers = {part.renderer.target.name: part.renderer for part in parts}
    shown = [(part, _taken(renderers, part.renderer.target)) for part in parts if part.tasks]
    if as_json:
        targets = [_described(*each) for each in shown]
        print_json({"name": parsed.bag.name, "tasks": total, **_policy_fields(parsed), "targets": targets})
        return 0
    print(f"{parsed.bag.name}: {plural(total, 'new task' if extends else 'task')}")
    for part, taken in shown:
        for line in _lines(part, taken, many=len(parts) > 1):
            print(line)
    for line in _bag_lines(parsed, files):
        print(line)
    return 0


def _policy_fields(parsed: Parsed) -> dict[str, Any]:
    policy, policies = parsed.bag.policy, asked_for(parsed.bag.policy)
    return {**({"batch": policy.batch} if policy.batch > 1 else {}), **({"policy": policies} if policies else {})}


def _bag_lines(parsed: Parsed, files: set[str]) -> Iterator[str]:
    """Yield what holds for the bag as a whole: policies, batches, and what is packed and sent."""
    for key, text in asked_for(parsed.bag.policy).items():
        yield f"{key} = {text}"
    if parsed.bag.policy.batch > 1:
        yield f"in batches of {parsed.bag.policy.batch}: one after the other, in one slot of one pilot"
    for name, path in parsed.pythons.items():
        yield f"to pack: {path}, for target {name}"
    if sizes := [_size(data) for sha, data in parsed.uploads.items() if sha in files]:
        yield f"to send: {_amount(sizes)}"


def _of_bag(parsed: Parsed) -> list[Part]:
    from windfall.model.templates.render import Renderer

    parts: list[Part] = []
    first = 0
    for target in parsed.bag.targets:
        renderer = Renderer(target)
        parts.append(Part(renderer, range(renderer.count), first))
        first += renderer.count
    return parts


def _of_extension(parsed: Parsed, given: str) -> tuple[list[Part], set[str]]:
    """Return the parts that the extension would add, and the hashes of the files that the server does not have."""
    from windfall.cli.connect import Session, find_bag

    with Session() as session:
        bag = find_bag(session.client, given)
        return _extended(session.client, bag, parsed)


def _extended(client: Client, bag: int, parsed: Parsed) -> tuple[list[Part], set[str]]:
    from msgspec.structs import replace

    from windfall.client.extend import extensions
    from windfall.model.templates.render import Renderer

    had, appended, first = client.spec(bag), client.appended(bag), client.bag(bag)["tasks"]
    new = {each.target: each for each in extensions(had, appended, parsed.bag)}
    parts = []
    for before, target in zip(had.targets, parsed.bag.targets, strict=True):
        renderer = Renderer(replace(target, source=before.source))
        for each in appended:
            if each.target == target.name:
                renderer.extend(each.source)
        start = renderer.count
        if target.name in new:
            renderer.extend(new[target.name].source)
        parts.append(Part(renderer, range(start, renderer.count), first))
        first += renderer.count - start
    return parts, {sha for each in new.values() for files in each.files for sha, _, _ in files.values()}


def _taken(renderers: dict[str, Renderer], target: Target) -> dict[str, list[str]]:
    """Return, for each target whose files this one takes, where the first files of `{name.outputs}` will lie."""
    from windfall.model.templates.template import taken_path

    found = {}
    for name in target.takes:
        made = renderers[name]
        first = range(min(made.count, SHOWN_TAKEN))
        files = [taken_path(name, index, path) for index in first for path in made.outputs(index)]
        more = made.count * len(made.target.outputs) > SHOWN_TAKEN
        found[name] = files[:SHOWN_TAKEN] + (["..."] if more else [])
    return found


def _described(part: Part, taken: dict[str, list[str]]) -> dict[str, Any]:
    renderer, shown = part.renderer, part.tasks[:SHOWN_JSON]
    target = renderer.target
    return {
        "name": target.name,
        "after": target.after,
        "first": part.first,
        "tasks": len(part.tasks),
        "cores": target.resources.cores,
        "memory": target.resources.memory,
        "gpus": target.resources.gpus,
        "disk": target.resources.disk,
        "whole_node": target.resources.whole,
        "time": target.time,
        "retries": target.retries,
        "container": target.container,
        "modules": target.modules,
        "environment": _each(renderer.environment, shown, target.environment),
        "commands": renderer.commands(shown, taken),
        "inputs": [[each.path, each.blob, each.size] for each in target.inputs],
        "task_inputs": _each(lambda index: [list(each[:3]) for each in renderer.inputs(index)], shown, target.families),
        "placed": _each(renderer.placed, shown, target.placed),
        "outputs": _each(renderer.outputs, shown, target.outputs),
        "checkpoint": _each(renderer.checkpoint, shown, target.checkpoint),
        "captured": [each.name for each in target.capture],
    }


def _each(render: Callable[[int], T], tasks: range, wanted: object) -> list[T]:
    """Render something for each task, if the target has any of it."""
    return [render(index) for index in tasks] if wanted else []


def _lines(part: Part, taken: dict[str, list[str]], many: bool) -> Iterator[str]:
    target = part.renderer.target
    if many:
        yield f"target {target.name}" + (f", after {', '.join(target.after)}" if target.after else "")
    for number, command in enumerate(part.renderer.commands(part.tasks[:SHOWN], taken), start=part.first):
        yield f"  {number:>6}  {_words(command)}"
    if len(part.tasks) > SHOWN:
        yield f"          … {len(part.tasks) - SHOWN:,} more"
    for title, text in _facts(part.renderer, part.tasks):
        yield f"  {title:<7} {text}"


def _facts(renderer: Renderer, tasks: range) -> Iterator[tuple[str, str]]:
    """Yield the facts that hold for each task of a target, as a title and a text."""
    target, first = renderer.target, tasks[0]
    rest = " …" if len(tasks) > 1 else ""
    yield "each", _needs(target)
    yield from _surroundings(renderer, first, rest)
    for text in _input_texts(renderer, first, rest):
        yield "input", text
    if target.outputs:
        yield "output", ", ".join(renderer.outputs(first)) + rest
    if target.checkpoint:
        yield "saved", ", ".join(renderer.checkpoint(first)) + rest
    if target.check.command:
        yield "check", _words(renderer.check_command(first)) + rest
    if target.capture:
        yield "columns", ", ".join(each.name for each in target.capture)


def _input_texts(renderer: Renderer, first: int, rest: str) -> Iterator[str]:
    from windfall.model.units import format_size

    for each in renderer.target.inputs:
        yield f"{each.path} ({format_size(each.size)})"
    for family in renderer.target.families:
        yield f"{family.source} -> {family.path}: {_amount([size for _, size, _ in _distinct(family)])}"
    for path, there in renderer.placed(first):
        yield (f"{path} -> {there}" if path else there) + " (there already)" + rest


def _surroundings(renderer: Renderer, first: int, rest: str) -> Iterator[tuple[str, str]]:
    target = renderer.target
    if target.modules:
        yield "modules", ", ".join(target.modules)
    if target.container:
        yield "inside", target.container
    if target.environment:
        varies = rest if any("{" in value for value in target.environment.values()) else ""
        environment = renderer.environment(first).items()
        yield "env", " ".join(f"{name}={_words([value])}" for name, value in environment) + varies


def _distinct(family: Family) -> list[tuple[str, int, int]]:
    return list({blob[0]: blob for blob in family.files.values()}.values())


def _amount(sizes: list[int]) -> str:
    from windfall.model.units import format_size

    return f"{plural(len(sizes), 'file')}, {format_size(sum(sizes))}"


def _words(command: str | list[str]) -> str:
    from windfall.model.templates.template import quote_bare

    return command if isinstance(command, str) else " ".join(map(quote_bare, command))


def _needs(target: Target) -> str:
    from windfall.model.units import exact_duration, exact_size

    needs = target.resources
    parts = ["a whole node, at least " + plural(needs.cores, "core") if needs.whole else plural(needs.cores, "core")]
    parts += [plural(needs.gpus, "GPU")] if needs.gpus else []
    parts += [f"{exact_size(needs.memory)} of memory" if needs.memory else "no memory limit"]
    parts += [f"{exact_size(needs.disk)} of disk"] if needs.disk else []
    parts += [f"{exact_duration(target.time)} at most" if target.time else "no time limit"]
    return ", ".join([*parts, f"retries: {target.retries}"])


def _size(data: Path | bytes) -> int:
    return len(data) if isinstance(data, bytes) else data.stat().st_size
