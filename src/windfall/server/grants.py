"""Renderings: the task descriptions that a pilot reads, made from granted task numbers.

The part of a description that all tasks of a class share is encoded once and cached; the rest is rendered in bulk.
Renderers take in appended tasks when a call first asks for them.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from windfall.core.messages.facts import Group, time_factor
from windfall.core.state.classes import SAVING
from windfall.core.state.world import BagState, State
from windfall.errors import Unavailable
from windfall.model.calls import part_files
from windfall.model.spec import Bag, Flows, Source, Target
from windfall.model.templates.render import Files, Renderer, all_files, lean, source_count
from windfall.server.dataflow.flows import TaskFlows
from windfall.server.http import schema
from windfall.server.http.server import log

MAX_RENDERINGS = 4096  # bags whose renderings are cached
File = tuple[str, str, int, int]  # path, blob, size, mode
Find = Callable[[Any, int], Any]  # bag and target → output files that its tasks take from other targets
MadeBy = Callable[[Any, list[int]], dict[int, list[File]]]  # bag and tasks → the output files of each
_encode = msgspec.json.Encoder().encode


class _BagOfTargets(Bag, frozen=True):
    """A bag whose edges are not decoded: columns hold them, and there may be millions."""

    edges: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class JournaledAppend(msgspec.Struct, array_like=True):
    """An appended source, as the journal stores it."""

    target: int
    source: Source
    files: list[dict[str, tuple[str, int, int]]] = []  # new files of the target's families
    edges: bytes = b""  # with the first piece of a part: int32 pairs (before, after) of the whole part
    flows: Flows | None = None  # with the first piece of a part: files between its tasks
    tasks: tuple[int, int] = (0, 0)  # with the first piece of a part: its first task, and how many it has


class _TargetAppend(msgspec.Struct, array_like=True):
    """A JournaledAppend without the fields that a renderer of one target skips."""

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


_decode_bag = msgspec.msgpack.Decoder(_BagOfTargets).decode
decode_appended = msgspec.msgpack.Decoder(JournaledAppend).decode
_decode_target_append = msgspec.msgpack.Decoder(_TargetAppend).decode
_decode_source = msgspec.msgpack.Decoder(Source).decode
_decode_append_flows = msgspec.msgpack.Decoder(_AppendFlows).decode

MAX_PATH = 4_000


class Rendering:
    """The renderers and encoded specifications of one bag."""

    def __init__(self, bag: BagState, find: Find, made_by: MadeBy) -> None:
        self._find = find
        self.read = bag.spec  # another one, once the bag has been revised
        spec = _decode_bag(bag.spec)
        self._flows: TaskFlows | None = None
        self._flowed = 0  # entries of bag.appended that `_flows` has taken in
        self.hands_over = spec.flows is not None  # may output files of its tasks become inputs of other tasks?
        if spec.flows is not None:
            self._flows = TaskFlows()
            self._flows.add(spec.flows, 0, sum(source_count(target.source) for target in spec.targets))
        self._made_by = made_by
        self.spec = msgspec.structs.replace(spec, flows=None, edges=[])  # columns hold these two
        self._bag = bag
        self._renderers: dict[int, Renderer] = {}
        self._raw: dict[tuple[int, int, int], msgspec.Raw] = {}
        self._blobs: dict[int, frozenset[str]] = {}  # target → blobs that all its tasks need
        self._families: dict[int, tuple[int, list[Files]]] = {}  # target → entries of bag.appended read, files by then
        self._appended: dict[int, int] = {}  # target → entries of bag.appended that its renderer has taken in

    def renderer(self, target: int) -> Renderer:
        found = self._renderers.get(target)
        if found is None:
            found = self._renderers[target] = Renderer(self.spec.targets[target], self._bag.spec)
            self._release_source(target)
        appended = self._bag.appended
        at = self._appended.get(target, 0)
        if at < len(appended):
            for place, packed in enumerate(appended[at:], at):
                more = _decode_target_append(packed)
                if more.target == target:
                    files = more.files if place >= self._bag.reread else ()
                    found.extend(_decode_source(more.source), files, packed)
            self._appended[target] = len(appended)
        return found

    def appended(self, packed: list[bytes], first: int) -> list[schema.AppendedSource]:
        """Return appended sources, `first` and those after it, decoded for the API."""
        names = [target.name for target in self.spec.targets]
        return [schema.AppendedSource(names[more.target], more.source, more.files if place >= self._bag.reread else [],
                                      _pairs(more.edges), more.flows)
                for place, more in enumerate(map(decode_appended, packed), first)]

    def family_files(self, target: int) -> list[Files]:
        """Return the files of each family of a target, appended ones included."""
        own: list[Files] = [each.files for each in self.spec.targets[target].families]
        seen, files = self._families.get(target, (self._bag.reread, own))
        later = self._bag.appended[seen:] if files else []
        for more in map(_decode_target_append, later):
            if more.target == target:
                files = all_files(files, more.files)
        self._families[target] = (seen + len(later), files)  # one assignment: two threads may ask
        return files

    def _release_source(self, target: int) -> None:
        """Drop the bag's copy of a target's commands: the renderer has one, and a million commands take room."""
        whole = self.spec.targets[target]
        source = lean(whole.source)
        if source is not whole.source:
            lighter = msgspec.structs.replace(whole, source=source)
            targets = [*self.spec.targets[:target], lighter, *self.spec.targets[target + 1 :]]
            self.spec = msgspec.structs.replace(self.spec, targets=targets)
            self._renderers[target].target = lighter

    def locals(self, tasks: list[int]) -> list[int]:
        """Return the tasks' numbers within their target."""
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
            self.raw(group.target, group.time_retries, group.memory_retries), tasks, chain, group.prerequisites,
            group.tasks,
        )

    def one(self, task: int) -> dict[str, Any]:
        """Return the whole description of one task, as a pilot reads it."""
        target, index = self._bag.locate(task)
        renderer = self.renderer(target)
        taken = self._taken(renderer, target)
        command = renderer.command(index, taken.paths) if taken else renderer.command(index)
        shared = msgspec.json.decode(self.raw(target, 0, 0))
        return {**shared, **self._extra(renderer, target, task, index), "command": command}

    def _taken(self, renderer: Renderer, target: int) -> Any:
        """Return the output files of other targets that this target takes (`gather`); None if it takes none."""
        return self._find(self._bag, target) if renderer.target.takes else None

    def _extra(self, renderer: Renderer, target: int, task: int, index: int) -> dict[str, Any]:
        """Return the fields in which this task differs from the others of its class."""
        extra = _rendered_fields(renderer, index) if renderer.varies else {}
        saved = self._saved(renderer, task, index)
        handed = self._handed(task)
        if saved or handed or "inputs" in extra:
            paths = {file[0] for file in saved}
            files = self._files(renderer, target, index) + handed
            extra["inputs"] = [file for file in files if file[0] not in paths] + saved
        return extra

    def _look_up(self, tasks: list[int]) -> None:
        """Look up the files that these tasks take from earlier ones in one query, rather than one per miss."""
        if flows := self._flowing():
            self._made_by(self._bag, flows.before(tasks))

    def _handed(self, task: int) -> list[File]:
        """Return the files that earlier tasks have made for this one (`handover`)."""
        flows = self._flowing()
        return flows.inputs(task, lambda before: self._made_by(self._bag, before)) if flows else []

    def _flowing(self) -> TaskFlows | None:
        """Return the files between tasks, those of appended parts included."""
        appended = self._bag.appended
        if self._flows is not None and self._flowed < len(appended):
            for more in map(_decode_append_flows, appended[self._flowed :]):
                if more.flows is not None:
                    self._flows.add(more.flows, *more.tasks)
            self._flowed = len(appended)
        return self._flows

    def _files(self, renderer: Renderer, target: int, index: int) -> list[File]:
        if renderer.target.kind == "call":
            return part_files(str(renderer.command(index)))
        taken = self._taken(renderer, target)
        return _inputs(renderer, index) + (taken.inputs if taken else [])

    def _saved(self, renderer: Renderer, task: int, index: int) -> list[File]:
        """Return the checkpoint files of an earlier attempt, only under names that the task asks for."""
        saved = self._bag.checkpoints.get(task)
        return _named(saved, renderer.checkpoint(index)) if saved else []

    def named_saved(self, task: int, saved: list[File]) -> list[File]:
        """Return the files of an attempt's checkpoint that the task names."""
        target, index = self._bag.locate(task)
        return _named(saved, self.renderer(target).checkpoint(index))

    def raw(self, target: int, time_retries: int, memory_retries: int) -> msgspec.Raw:
        key = (target, time_retries, memory_retries)
        found = self._raw.get(key)
        if found is None:
            renderer = self.renderer(target)
            spec = _spec(self._bag, renderer, time_retries, memory_retries)
            if taken := self._taken(renderer, target):
                spec.inputs = [*spec.inputs, *taken.inputs]
            found = self._raw[key] = msgspec.Raw(_encode(spec))
        return found

    def params(self, task: int) -> tuple[str, dict[str, Any]]:
        target, index = self._bag.locate(task)
        return self.spec.targets[target].name, self.renderer(target).params(index)

    def may_read(self, task: int, sha: str) -> bool:
        """Is this blob an input of the task?"""
        place, index = self._bag.locate(task)
        renderer = self.renderer(place)
        if sha in self._shared(renderer.target, place):
            return True
        taken = self._taken(renderer, place)
        if taken is not None and sha in taken.blobs:
            return True
        own = renderer.inputs(index) if renderer.target.families else []
        if renderer.target.kind == "call":
            own = part_files(str(renderer.command(index)))
        own = own + self._handed(task) + self._saved(renderer, task, index)
        return any(sha == blob for _, blob, _, _ in own)

    def _shared(self, target: Target, place: int) -> frozenset[str]:
        """Return the blobs that all tasks of a target need."""
        found = self._blobs.get(place)
        if found is None:
            packed = [target.packed.blob] if target.packed is not None else []
            found = self._blobs[place] = frozenset([*packed, *(each.blob for each in target.inputs)])
        return found


class Renderings:
    """The renderings of the bags that were used last."""

    def __init__(self, state: State) -> None:
        self._bags = state.bags
        self.find: Find = lambda bag, target: None
        self.made_by: MadeBy = lambda bag, tasks: {}
        self._kept: OrderedDict[int, Rendering] = OrderedDict()

    def of(self, bag: BagState) -> Rendering:
        found = self._kept.get(bag.number)
        if found is None or found.read is not bag.spec:
            found = self._kept[bag.number] = Rendering(bag, self.find, self.made_by)
            if len(self._kept) > MAX_RENDERINGS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(bag.number)
        return found

    def forget(self, number: int) -> None:
        self._kept.pop(number, None)

    def grants(self, grants: list[tuple[int, list[Group]]]) -> list[schema.Grant]:
        """Render the grants of one response.  Leave out a grant that cannot be rendered yet: the core resends each
        grant until the pilot acknowledges it."""
        made = []
        for number, groups in grants:
            try:
                made.append(schema.Grant(number, self._groups(groups)))
            except Unavailable:
                continue
            except Exception:  # the other grants and the cancellations must still go out
                log.exception("grant %d cannot be rendered; its tasks wait", number)
        return made

    def _groups(self, groups: list[Group]) -> list[schema.GrantedGroup]:
        bags = self._bags
        return [self.of(bags[g.bag]).group(g) for g in groups if g.bag in bags]


def _pairs(edges: bytes) -> list[tuple[int, int]]:
    numbers = array("i", edges)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _with_arguments(attempt: int, call: Any) -> Any:
    files = part_files(call)
    return (attempt, call, {"inputs": files}) if files else (attempt, call)


def _named(saved: list[File], names: list[str]) -> list[File]:
    """Return the files that are named or lie in a named directory; skip paths longer than MAX_PATH."""
    under = tuple(f"{name}/" for name in names)
    return [file for file in saved if (file[0] in names or file[0].startswith(under)) and len(file[0]) <= MAX_PATH]


def _inputs(renderer: Renderer, index: int) -> list[File]:
    shared = [(i.path, i.blob, i.size, i.mode) for i in renderer.target.inputs]
    return shared + renderer.inputs(index) if renderer.target.families else shared


def _rendered_fields(renderer: Renderer, index: int) -> dict[str, Any]:
    """Render the fields whose text may contain parameters, if the target has them."""
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


def _spec(bag: BagState, renderer: Renderer, time_retries: int, memory_retries: int) -> schema.TaskSpec:
    """Return the fields that all tasks of a class share.  Each retry for time triples the time limit, each retry for
    memory doubles the memory."""
    target = renderer.target
    need, packed = target.resources, target.packed
    spec = schema.TaskSpec(
        bag=bag.number, target=target.name, kind=target.kind,
        cores=need.cores, memory=need.memory << memory_retries, gpus=need.gpus, disk=need.disk,
        time=target.time * time_factor(time_retries) or None, grace=target.grace,
        need=target.grace + SAVING if target.checkpoint else 0,
        setup=target.setup, modules=target.modules, container=target.container,
        packed=(packed.blob, packed.size, packed.python) if packed else None,
        inputs=[(i.path, i.blob, i.size, i.mode) for i in target.inputs],
        scratch=target.scratch, whole=need.whole, nodes=need.nodes, check=_check(renderer, None),
    )
    if not renderer.varies:
        for name, value in _rendered_fields(renderer, 0).items():
            setattr(spec, name, value)
    return spec


def _check(renderer: Renderer, index: int | None) -> dict[str, Any]:
    """Return the check of a result.  With `index` None, leave out the parts that may differ from task to task."""
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
