"""`windfall run --dry-run`: the commands as they would run, and what would be sent along.  Nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .output import plural, print_json

if TYPE_CHECKING:
    from ..model.bagfile import Parsed
    from ..model.render import Renderer
    from ..model.spec import Family, Target

SHOWN = 20  # commands; in JSON, SHOWN_JSON
SHOWN_JSON = 1000
SHOWN_TAKEN = 3  # of another target's output files


def dry_run(parsed: Parsed, as_json: bool) -> int:
    from ..model.render import Renderer

    renderers = {target.name: Renderer(target) for target in parsed.bag.targets}
    total = sum(renderer.count for renderer in renderers.values())
    if as_json:
        described = [_described(renderer, _taken(renderers, renderer.target)) for renderer in renderers.values()]
        print_json({"name": parsed.bag.name, "tasks": total, "targets": described})
        return 0
    print(f"{parsed.bag.name}: {plural(total, 'task')}")
    first = 0
    for renderer in renderers.values():
        for line in _lines(renderer, _taken(renderers, renderer.target), first, many=len(renderers) > 1):
            print(line)
        first += renderer.count
    for name, path in parsed.pythons.items():
        print(f"to pack: {path}, for target {name}")
    if parsed.uploads:
        print(f"to send: {_amount([path.stat().st_size for path in parsed.uploads.values()])}")
    return 0


def _taken(renderers: dict[str, Renderer], target: Target) -> dict[str, list[str]]:
    """The first files of each target that `{name.outputs}` stands for."""
    found = {}
    for name in target.takes:
        made = renderers[name]
        files = [path for index in range(min(made.count, SHOWN_TAKEN)) for path in made.outputs(index)]
        more = made.count * len(made.target.outputs) > SHOWN_TAKEN
        found[name] = files[:SHOWN_TAKEN] + (["..."] if more else [])
    return found


def _described(renderer: Renderer, taken: dict[str, list[str]]) -> dict[str, Any]:
    target, shown = renderer.target, range(min(renderer.count, SHOWN_JSON))
    return {
        "name": target.name,
        "after": target.after,
        "tasks": renderer.count,
        "cores": target.resources.cores,
        "memory": target.resources.memory,
        "gpus": target.resources.gpus,
        "disk": target.resources.disk,
        "whole_node": target.resources.whole,
        "time": target.time,
        "retries": target.retries,
        "container": target.container,
        "modules": target.modules,
        "environment": [renderer.environment(index) for index in shown] if target.environment else [],
        "commands": renderer.commands(shown, taken),
        "inputs": [[each.path, each.blob, each.size] for each in target.inputs],
        "task_inputs": [[list(each[:3]) for each in renderer.inputs(index)] for index in shown]
        if target.families
        else [],
        "placed": [renderer.placed(index) for index in shown] if target.placed else [],
        "outputs": [renderer.outputs(index) for index in shown] if target.outputs else [],
        "checkpoint": [renderer.checkpoint(index) for index in shown] if target.checkpoint else [],
        "captured": [each.name for each in target.capture],
    }


def _lines(renderer: Renderer, taken: dict[str, list[str]], first: int, many: bool) -> Iterator[str]:
    target = renderer.target
    if many:
        yield f"target {target.name}" + (f", after {', '.join(target.after)}" if target.after else "")
    for index, command in enumerate(renderer.commands(range(min(renderer.count, SHOWN)), taken), start=first):
        yield f"  {index:>6}  {_words(command)}"
    if renderer.count > SHOWN:
        yield f"          … {renderer.count - SHOWN:,} more"
    for title, text in _facts(renderer):
        yield f"  {title:<7} {text}"


def _facts(renderer: Renderer) -> Iterator[tuple[str, str]]:
    """What goes for each task, one line each."""
    from ..model.units import format_size

    target = renderer.target
    rest = " …" if renderer.count > 1 else ""
    yield "each", _needs(target)
    yield from _surroundings(renderer, rest)
    for each in target.inputs:
        yield "input", f"{each.path} ({format_size(each.size)})"
    for family in target.families:
        yield "input", f"{family.source} -> {family.path}: {_amount([size for _, size, _ in _distinct(family)])}"
    for path, there in renderer.placed(0):
        yield "input", (f"{path} -> {there}" if path else there) + " (there already)" + rest
    if target.outputs:
        yield "output", ", ".join(renderer.outputs(0)) + rest
    if target.checkpoint:
        yield "saved", ", ".join(renderer.checkpoint(0)) + rest
    if target.check.command:
        yield "check", _words(renderer.check_command(0)) + rest
    if target.capture:
        yield "columns", ", ".join(each.name for each in target.capture)


def _surroundings(renderer: Renderer, rest: str) -> Iterator[tuple[str, str]]:
    target = renderer.target
    if target.modules:
        yield "modules", ", ".join(target.modules)
    if target.container:
        yield "inside", target.container
    if target.environment:
        varies = rest if any("{" in value for value in target.environment.values()) else ""
        yield "env", " ".join(f"{name}={_words([value])}" for name, value in renderer.environment(0).items()) + varies


def _distinct(family: Family) -> list[tuple[str, int, int]]:
    return list({blob[0]: blob for blob in family.files.values()}.values())


def _amount(sizes: list[int]) -> str:
    from ..model.units import format_size

    return f"{plural(len(sizes), 'file')}, {format_size(sum(sizes))}"


def _words(command: str | list[str]) -> str:
    from ..model.template import quote_bare

    return command if isinstance(command, str) else " ".join(map(quote_bare, command))


def _needs(target: Target) -> str:
    from ..model.units import exact_duration, exact_size

    needs = target.resources
    parts = ["a whole node, at least " + plural(needs.cores, "core") if needs.whole else plural(needs.cores, "core")]
    parts += [plural(needs.gpus, "GPU")] if needs.gpus else []
    parts += [f"{exact_size(needs.memory)} of memory" if needs.memory else "no limit of memory"]
    parts += [f"{exact_size(needs.disk)} of disk"] if needs.disk else []
    parts += [f"{exact_duration(target.time)} at most" if target.time else "no limit of time"]
    return ", ".join([*parts, f"retries: {target.retries}"])
