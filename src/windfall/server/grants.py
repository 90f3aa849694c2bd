"""From granted task numbers to what the pilot reads.

What the tasks of one class share is encoded once and kept; what differs is rendered in bulk.  Tasks appended to an open
bag reach its renderers when they are first asked for.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from windfall.core.messages.facts import Group
from windfall.core.state.classes import SAVING
from windfall.errors import Unavailable
from windfall.model.calls import argument_file
from windfall.model.spec import Bag, Flows, Source, Target
from windfall.model.templates.render import Files, Renderer, all_files, lean, source_count
from windfall.server.dataflow.flows import TaskFlows
from windfall.server.http import schema
from windfall.server.http.server import log

MAX_RENDERINGS = 4096  # bags kept ready
File = tuple[str, str, int, int]  # path, blob, size, mode
Find = Callable[[Any, int], Any]  # bag and target → what its tasks take of other targets
MadeBy = Callable[[Any, list[int]], dict[int, list[File]]]  # bag and tasks → the output files of each
_decode_bag = msgspec.msgpack.Decoder(Bag).decode
_encode = msgspec.json.Encoder().encode


class JournaledAppend(msgspec.Struct, array_like=True):
    """What the journal has of tasks that came later."""

    target: int
    source: Source
    files: list[dict[str, tuple[str, int, int]]] = []  # of its families, beyond those they had
    edges: bytes = b""  # with the first piece of a part: int32 pairs (before, after), of all of it
    flows: Flows | None = None
    tasks: tuple[int, int] = (0, 0)  # and all of it: its first task, and how many


class _TargetAppend(msgspec.Struct, array_like=True):
    """The same for who needs tasks of one target only: what is not wanted is skipped."""

    target: int
    source: msgspec.Raw
    files: list[dict[str, tuple[str, int, int]]] = []


class _AppendFlows(msgspec.Struct, array_like=True):
    target: int
    source: msgspec.Raw
    files: msgspec.Raw = msgspec.Raw()
    edges: msgspec.Raw = msgspec.Raw()
    flows: Flows | None = None
    tasks: tuple[int, int] = (0, 0)


_decode_appended = msgspec.msgpack.Decoder(JournaledAppend).decode
_decode_target_append = msgspec.msgpack.Decoder(_TargetAppend).decode
_decode_source = msgspec.msgpack.Decoder(Source).decode
_decode_append_flows = msgspec.msgpack.Decoder(_AppendFlows).decode

MAX_PATH = 4_000


class Rendering:
    """One bag's renderers and encoded specifications."""

    def __init__(self, bag: Any, find: Find, made_by: MadeBy) -> None:
        self._find = find
        spec = _decode_bag(bag.spec)
        self._flows: TaskFlows | None = None
        self._flowed = 0  # how far in bag.appended they are
        self.hands_over = spec.flows is not None  # files may go from its tasks to others, also to some that come later
        if spec.flows is not None:
            self._flows = TaskFlows()
            self._flows.add(spec.flows, 0, sum(source_count(target.source) for target in spec.targets))
        self._made_by = made_by
        self.spec = msgspec.structs.replace(spec, flows=None, edges=[])  # they are kept as columns
        self._bag = bag
        self._renderers: dict[int, Renderer] = {}
        self._raw: dict[tuple[int, int, int], msgspec.Raw] = {}
        self._blobs: dict[int, frozenset[str]] = {}  # target → what all its tasks need
        self._families: dict[int, tuple[int, list[Files]]] = {}  # target → how far in bag.appended, its files by then
        self._appended: dict[int, int] = {}  # target → how far in bag.appended its renderer is

    def renderer(self, target: int) -> Renderer:
        found = self._renderers.get(target)
        if found is None:
            found = self._renderers[target] = Renderer(self.spec.targets[target], self._bag.spec)
            self._let_go(target)
        appended = self._bag.appended
        at = self._appended.get(target, 0)
        if at < len(appended):
            for packed in appended[at:]:
                more = _decode_target_append(packed)
                if more.target == target:
                    found.extend(_decode_source(more.source), more.files, packed)
            self._appended[target] = len(appended)
        return found

    def appended(self, packed: list[bytes]) -> list[schema.AppendedSource]:
        """Of what came after the bag was submitted."""
        names = [target.name for target in self.spec.targets]
        return [schema.AppendedSource(names[more.target], more.source, more.files, _pairs(more.edges), more.flows)
                for more in map(_decode_appended, packed)]

    def family_files(self, target: int) -> list[Files]:
        """What has come for each family of a target by now."""
        seen, files = self._families.get(target, (0, [each.files for each in self.spec.targets[target].families]))
        later = self._bag.appended[seen:] if files else []
        for more in map(_decode_target_append, later):
            if more.target == target:
                files = all_files(files, more.files)
        self._families[target] = (seen + len(later), files)  # both at once: two threads may ask
        return files

    def _let_go(self, target: int) -> None:
        """The renderer has the text of a million commands; once is enough."""
        whole = self.spec.targets[target]
        source = lean(whole.source)
        if source is not whole.source:
            lighter = msgspec.structs.replace(whole, source=source)
            targets = [*self.spec.targets[:target], lighter, *self.spec.targets[target + 1 :]]
            self.spec = msgspec.structs.replace(self.spec, targets=targets)
            self._renderers[target].target = lighter

    def locals(self, tasks: list[int]) -> list[int]:
        """Numbers within the target."""
        runs = self._bag.runs
        if len(runs) == 1:
            return tasks
        locate = self._bag.locate
        return [locate(task)[1] for task in tasks]

    def group(self, group: Group) -> schema.GrantedGroup:
        renderer = self.renderer(group.target)
        indices = self.locals(group.tasks)
        taken = self._taken(renderer, group.target)
        commands = renderer.commands(indices, taken.paths) if taken else renderer.commands(indices)
        tasks: list[Any] = list(zip(group.attempts, commands, strict=True))
        if renderer.target.kind == "call":
            tasks = [_with_arguments(*task) for task in tasks]
        elif renderer.varies or self._bag.checkpoints or self._flowing():
            self._look_up(group.tasks)
            extras = [self._extra(renderer, group.target, *place) for place in zip(group.tasks, indices, strict=True)]
            tasks = [(*task, extra) if extra else task for task, extra in zip(tasks, extras, strict=True)]
        chain = group.chain if group.chain >= 0 else None
        return schema.GrantedGroup(
            self.raw(group.target, group.time_retries, group.memory_retries), tasks, chain, group.prerequisites
        )

    def one(self, task: int) -> dict[str, Any]:
        """All that a pilot is told of a task."""
        target, index = self._bag.locate(task)
        renderer = self.renderer(target)
        taken = self._taken(renderer, target)
        command = renderer.command(index, taken.paths) if taken else renderer.command(index)
        shared = msgspec.json.decode(self.raw(target, 0, 0))
        return {**shared, **self._extra(renderer, target, task, index), "command": command}

    def _taken(self, renderer: Renderer, target: int) -> Any:
        """Output files of other targets (`gather`); None where it takes none."""
        return self._find(self._bag, target) if renderer.target.takes else None

    def _extra(self, renderer: Renderer, target: int, task: int, index: int) -> dict[str, Any]:
        """What this task has otherwise than the others of its class."""
        extra = _own(renderer, index) if renderer.varies else {}
        saved = self._saved(renderer, task, index)
        handed = self._handed(task)
        if saved or handed or "inputs" in extra:
            paths = {file[0] for file in saved}
            files = self._files(renderer, target, index) + handed
            extra["inputs"] = [file for file in files if file[0] not in paths] + saved
        return extra

    def _look_up(self, tasks: list[int]) -> None:
        """All that they are handed at once, rather than one miss after the other."""
        if flows := self._flowing():
            self._made_by(self._bag, flows.before(tasks))

    def _handed(self, task: int) -> list[File]:
        """What earlier tasks have made for it (`handover`)."""
        flows = self._flowing()
        return flows.inputs(task, lambda before: self._made_by(self._bag, before)) if flows else []

    def _flowing(self) -> TaskFlows | None:
        """Files between tasks, those of parts that came by now included."""
        appended = self._bag.appended
        if self._flows is not None and self._flowed < len(appended):
            for more in map(_decode_append_flows, appended[self._flowed :]):
                if more.flows is not None:
                    self._flows.add(more.flows, *more.tasks)
            self._flowed = len(appended)
        return self._flows

    def _files(self, renderer: Renderer, target: int, index: int) -> list[File]:
        if renderer.target.kind == "call":
            file = argument_file(str(renderer.command(index)))
            return [file] if file else []
        taken = self._taken(renderer, target)
        return _inputs(renderer, index) + (taken.inputs if taken else [])

    def _saved(self, renderer: Renderer, task: int, index: int) -> list[File]:
        """What an attempt before this one saved; under other names than it was asked for, it is not wanted."""
        saved = self._bag.checkpoints.get(task)
        return _named(saved, renderer.checkpoint(index)) if saved else []

    def named_saved(self, task: int, saved: list[File]) -> list[File]:
        """Those of an attempt's checkpoint files that the task names."""
        target, index = self._bag.locate(task)
        return _named(saved, self.renderer(target).checkpoint(index))

    def raw(self, target: int, overruns: int, boosts: int) -> msgspec.Raw:
        key = (target, overruns, boosts)
        found = self._raw.get(key)
        if found is None:
            renderer = self.renderer(target)
            spec = _spec(self._bag, self.spec.targets[target], renderer, overruns, boosts)
            if taken := self._taken(renderer, target):
                spec.inputs = [*spec.inputs, *taken.inputs]
            found = self._raw[key] = msgspec.Raw(_encode(spec))
        return found

    def params(self, task: int) -> tuple[str, dict[str, Any]]:
        target, index = self._bag.locate(task)
        return self.spec.targets[target].name, self.renderer(target).params(index)

    def may_read(self, task: int, sha: str) -> bool:
        """Is this one of the blobs that an attempt of the task needs?"""
        place, index = self._bag.locate(task)
        renderer = self.renderer(place)
        if sha in self._shared(renderer.target, place):
            return True
        taken = self._taken(renderer, place)
        if taken is not None and sha in taken.blobs:
            return True
        own = renderer.inputs(index) if renderer.target.families else []
        if renderer.target.kind == "call" and (file := argument_file(str(renderer.command(index)))):
            own = [file]
        own = own + self._handed(task) + self._saved(renderer, task, index)
        return any(sha == blob for _, blob, _, _ in own)

    def _shared(self, target: Target, place: int) -> frozenset[str]:
        """Blobs that all tasks of a target need."""
        found = self._blobs.get(place)
        if found is None:
            packed = [target.packed.blob] if target.packed is not None else []
            found = self._blobs[place] = frozenset([*packed, *(each.blob for each in target.inputs)])
        return found


class Renderings:
    """Of all bags that were asked for lately."""

    def __init__(self, state: Any) -> None:
        self._bags = state.bags
        self.find: Find = lambda bag, target: None
        self.made_by: MadeBy = lambda bag, tasks: {}
        self._kept: OrderedDict[int, Rendering] = OrderedDict()

    def of(self, bag: Any) -> Rendering:
        found = self._kept.get(bag.number)
        if found is None:
            found = self._kept[bag.number] = Rendering(bag, self.find, self.made_by)
            if len(self._kept) > MAX_RENDERINGS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(bag.number)
        return found

    def forget(self, number: int) -> None:
        self._kept.pop(number, None)

    def grants(self, grants: list[tuple[int, list[Group]]]) -> list[schema.Grant]:
        """One that cannot be rendered (yet) is left out: it is sent again until the pilot acknowledges it."""
        made = []
        for number, groups in grants:
            try:
                made.append(schema.Grant(number, self._groups(groups)))
            except Unavailable:
                continue
            except Exception:  # it keeps no other grant, and no cancellation, from leaving
                log.exception("grant %d could not be rendered", number)
        return made

    def _groups(self, groups: list[Group]) -> list[schema.GrantedGroup]:
        bags = self._bags
        return [self.of(bags[g.bag]).group(g) for g in groups if g.bag in bags]


def _pairs(edges: bytes) -> list[tuple[int, int]]:
    numbers = array("i", edges)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _with_arguments(attempt: int, call: Any) -> Any:
    file = argument_file(call)
    return (attempt, call, {"inputs": [file]}) if file else (attempt, call)


def _named(saved: list[File], names: list[str]) -> list[File]:
    """Files that are named, or lie in a directory that is, with paths that a file can have."""
    under = tuple(f"{name}/" for name in names)
    return [file for file in saved if (file[0] in names or file[0].startswith(under)) and len(file[0]) <= MAX_PATH]


def _inputs(renderer: Renderer, index: int) -> list[File]:
    shared = [(i.path, i.blob, i.size, i.mode) for i in renderer.target.inputs]
    return shared + renderer.inputs(index) if renderer.target.families else shared


def _own(renderer: Renderer, index: int) -> dict[str, Any]:
    """Every field of SPEC that has parameters in it, where the target has the field at all."""
    target = renderer.target
    own: dict[str, Any] = {}
    if target.families:
        own["inputs"] = _inputs(renderer, index)
    if target.check.file or target.check.command:
        own["check"] = _check(renderer, index)
    for name in ("outputs", "environment", "placed", "checkpoint", "capture"):
        if getattr(target, name):
            own[name] = getattr(renderer, name)(index)
    return own


def _spec(bag: Any, target: Target, renderer: Renderer, overruns: int, boosts: int) -> schema.TaskSpec:
    """The class's share: limits grow with failures, three times as long, twice the memory."""
    need, packed = target.resources, target.packed
    spec = schema.TaskSpec(
        bag=bag.number, kind=target.kind,
        cores=need.cores, memory=need.memory << boosts, gpus=need.gpus, disk=need.disk,
        time=target.time * 3**overruns or None, grace=target.grace,
        need=target.grace + SAVING if target.checkpoint else 0,
        setup=target.setup, modules=target.modules, container=target.container,
        packed=(packed.blob, packed.size, packed.python) if packed else None,
        inputs=[(i.path, i.blob, i.size, i.mode) for i in target.inputs],
        scratch=target.scratch, whole=need.whole, nodes=need.nodes, check=_check(renderer, None),
    )
    if not renderer.varies:
        for name, value in _own(renderer, 0).items():
            setattr(spec, name, value)
    return spec


def _check(renderer: Renderer, index: int | None) -> dict[str, Any]:
    """None: without what may differ from task to task."""
    wanted = renderer.target.check
    check: dict[str, Any] = {}
    if wanted.exit != [0]:
        check["exit"] = wanted.exit
    if wanted.match:
        check["match"] = wanted.match
    if wanted.schema:
        check["schema"] = wanted.schema
    if index is not None and wanted.file:
        check["file"] = renderer.check_file(index)
    if index is not None and wanted.command:
        check["command"] = renderer.check_command(index)
    return check
