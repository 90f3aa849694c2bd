"""From granted task numbers to what the pilot reads.

What the tasks of one class share is encoded once and kept; what differs is rendered in bulk.  Tasks appended to an open
bag reach its renderers when they are first asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from windfall.core.facts import Group
from windfall.model.render import Renderer, lean
from windfall.model.spec import Bag, Source, Target
from windfall.server import schema

MAX_RENDERINGS = 4096  # bags kept ready
_decode_bag = msgspec.msgpack.Decoder(Bag).decode
_decode_appended = msgspec.msgpack.Decoder(tuple[int, Source]).decode
_encode = msgspec.json.Encoder().encode


class Rendering:
    """One bag's renderers and encoded specifications."""

    def __init__(self, bag: Any) -> None:
        self.spec = _decode_bag(bag.spec)
        self._bag = bag
        self._renderers: dict[int, Renderer] = {}
        self._raw: dict[tuple[int, int, int], msgspec.Raw] = {}
        self._appended: dict[int, int] = {}  # target → how far in bag.appended its renderer is

    def renderer(self, target: int) -> Renderer:
        found = self._renderers.get(target)
        if found is None:
            found = self._renderers[target] = Renderer(self.spec.targets[target], self._bag.spec)
            self._let_go(target)
        appended = self._bag.appended
        at = self._appended.get(target, 0)
        if at < len(appended):
            for entry in appended[at:]:
                where, source = _decode_appended(entry)
                if where == target:
                    found.extend(source)
            self._appended[target] = len(appended)
        return found

    def _let_go(self, target: int) -> None:
        """The renderer has the text of a million commands; once is enough."""
        source = lean(self.spec.targets[target].source)
        if source is not self.spec.targets[target].source:
            light = msgspec.structs.replace(self.spec.targets[target], source=source)
            targets = [*self.spec.targets[:target], light, *self.spec.targets[target + 1 :]]
            self.spec = msgspec.structs.replace(self.spec, targets=targets)
            self._renderers[target].target = light

    def locals(self, tasks: list[int]) -> list[int]:
        """Numbers within the target."""
        runs = self._bag.runs
        if len(runs) == 1:
            return tasks
        locate = self._bag.locate
        return [locate(task)[1] for task in tasks]

    def group(self, group: Group) -> schema.Group:
        renderer = self.renderer(group.target)
        indices = self.locals(group.tasks)
        commands = renderer.commands(indices)
        if not renderer.varies:
            tasks: list[Any] = list(zip(group.attempts, commands, strict=True))
        else:
            tasks = [
                (attempt, command, _extra(renderer, index))
                for attempt, command, index in zip(group.attempts, commands, indices, strict=True)
            ]
        return schema.Group(self.raw(group.target, group.overruns, group.boosts), tasks)

    def raw(self, target: int, overruns: int, boosts: int) -> msgspec.Raw:
        key = (target, overruns, boosts)
        found = self._raw.get(key)
        if found is None:
            spec = _spec(self._bag, self.spec.targets[target], self.renderer(target), overruns, boosts)
            found = self._raw[key] = msgspec.Raw(_encode(spec))
        return found

    def params(self, task: int) -> tuple[str, dict[str, Any]]:
        target, index = self._bag.locate(task)
        return self.spec.targets[target].name, self.renderer(target).params(index)

    def inputs(self) -> frozenset[str]:
        return frozenset(each.blob for target in self.spec.targets for each in target.inputs)


class Renderings:
    """Of all bags that were asked for lately."""

    def __init__(self, state: Any) -> None:
        self._bags = state.bags
        self._kept: OrderedDict[int, Rendering] = OrderedDict()

    def of(self, bag: Any) -> Rendering:
        found = self._kept.get(bag.number)
        if found is None:
            found = self._kept[bag.number] = Rendering(bag)
            if len(self._kept) > MAX_RENDERINGS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(bag.number)
        return found

    def forget(self, number: int) -> None:
        self._kept.pop(number, None)

    def grants(self, grants: list[tuple[int, list[Group]]]) -> list[schema.Grant]:
        bags, made = self._bags, []
        for number, groups in grants:
            rendered = [self.of(bags[g.bag]).group(g) for g in groups if g.bag in bags]
            made.append(schema.Grant(number, rendered))
        return made


def _extra(renderer: Renderer, index: int) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if renderer.target.outputs:
        extra["outputs"] = renderer.outputs(index)
    if renderer.target.environment:
        extra["environment"] = renderer.environment(index)
    if renderer.target.check.file:
        extra["check"] = _check(renderer.target, renderer.check_file(index))
    return extra


def _spec(bag: Any, target: Target, renderer: Renderer, overruns: int, boosts: int) -> schema.Spec:
    """The class's share: limits grow with failures, three times as long, twice the memory."""
    need = target.resources
    fixed = not renderer.varies
    return schema.Spec(
        bag=bag.number, kind=target.kind,
        cores=need.cores, memory=need.memory << boosts, gpus=need.gpus, disk=need.disk,
        time=target.time * 3**overruns or None, grace=target.grace,
        environment=renderer.environment(0) if fixed and target.environment else {},
        setup=target.setup,
        inputs=[(i.path, i.blob, i.size, i.mode) for i in target.inputs],
        outputs=renderer.outputs(0) if fixed and target.outputs else [],
        check=_check(target, renderer.check_file(0) if fixed and target.check.file else []),
    )


def _check(target: Target, files: list[str]) -> dict[str, Any]:
    check: dict[str, Any] = {}
    if target.check.exit != [0]:
        check["exit"] = target.check.exit
    if files:
        check["file"] = files
    if target.check.match:
        check["match"] = target.check.match
    return check
