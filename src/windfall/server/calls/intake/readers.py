"""From the bodies of submissions to events: decode, check, and find the files that the tasks need.

The functions know of the server only what an `Outline` says, so a worker process can run them as well as a thread can.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import msgspec
from msgspec import structs

from windfall.core.decide.requests.intake import edges_of, submission
from windfall.core.messages import events
from windfall.errors import BadInput, Conflict
from windfall.model.calls import part_files
from windfall.model.checks import bag as check
from windfall.model.checks.parts import check_part
from windfall.model.extend import same_files
from windfall.model.spec import MAX_TASKS, Bag, Items, Part, Source, Target
from windfall.model.templates.render import Files, all_files, lean, source_count
from windfall.server.http import schema

HEAVY = 20_000  # tasks whose costs and files are looked at one by one, beyond which a worker process does it

Submission = events.Submit | events.Append | events.AppendPart
Read = tuple[Submission, dict[str, str]]  # the event, and the blobs that its tasks need, each with a name for messages

_decode_bag = msgspec.json.Decoder(Bag).decode
_decode_append = msgspec.json.Decoder(schema.Append).decode
_decode_part = msgspec.json.Decoder(Part).decode
_decode_extend = msgspec.json.Decoder(schema.Extend).decode
_unpack_bag = msgspec.msgpack.Decoder(Bag).decode
_pack = msgspec.msgpack.Encoder().encode


class Outline(msgspec.Struct):
    """The part of a bag that the readers of appended tasks need; a worker process gets it with its job."""

    number: int
    owner: str
    open: bool
    size: int
    runs: list[tuple[int, int, int]]
    hands_over: bool
    targets: list[Target]
    files: list[list[Files]]  # of each target: those of its families

    def locate(self, task: int) -> tuple[int, int]:
        """Return a task's target and its number within that."""
        first, target, local = self.runs[bisect_right(self.runs, (task, 1 << 62, 0)) - 1]
        return target, task - first + local


class TooHeavy(Exception):
    """The body is short, but checking it takes long."""


def without_texts(target: Target) -> Target:
    """Return the target without the commands that it has: new ones are not compared with them."""
    source = target.source
    return structs.replace(target, source=Items(items=[]) if isinstance(source, Items) else lean(source))


# --- one reader per call --------------------------------------------------------------------------------------


def read_bag(body: bytes | bytearray, owner: str, key: str, *, patient: bool) -> Read:
    bag = _decode_bag(body)
    if not patient:
        check_effort(bag.targets)
    check.validate(bag)
    return submission(0, owner, bag, key), inputs_of(bag)


def check_effort(targets: Iterable[Target]) -> None:
    """Raise TooHeavy where the checks of targets take longer than a thread of the server has."""
    if sum(map(_effort, targets)) > HEAVY:
        raise TooHeavy


def _effort(target: Target) -> int:
    """Return how many tasks the checks look at one by one."""
    return source_count(target.source) if target.cost or target.families else 0


def show_bag(packed: bytes | bytearray) -> bytes:
    """Return a bag's specification as JSON."""
    return msgspec.json.encode(_unpack_bag(packed))


def read_append(body: bytes | bytearray, bag: Outline, key: str) -> Read:
    message = _decode_append(body)
    if not bag.open:
        raise Conflict(f"bag {bag.number} is closed", "make a new bag, or submit it with open = true")
    index = _target_named(bag, message.target)
    check.validate_source(bag.targets[index], message.source)
    source = _pack((index, message.source))
    event = events.Append(key=0, owner=bag.owner, bag=bag.number, target=index, count=source_count(message.source),
                          idempotency=key, source=source)
    return event, _arguments_of(bag.targets[index], message.source)


def read_extension(body: bytes | bytearray, bag: Outline, key: str) -> Read:
    message = _decode_extend(body)
    index = _target_named(bag, message.target)
    target = bag.targets[index]
    if type(message.source) is not type(target.source):
        raise BadInput(f"target '{target.name}' is a {_kind(target.source)}, this is a {_kind(message.source)}",
                       "extend a sweep by a sweep, and lines by lines")
    if len(message.files) not in (0, len(target.families)):
        raise BadInput(f"{len(message.files)} file objects for the {len(target.families)} families of the target",
                       "send one object per family, or none")
    had = bag.files[index]
    same_files(had, message.files or had)
    files = all_files(had, message.files)
    families = [structs.replace(each, files=now) for each, now in zip(target.families, files, strict=True)]
    check.validate_source(structs.replace(target, families=families), message.source)
    source = _pack((index, message.source, message.files))
    event = events.Append(
        key=0, owner=bag.owner, bag=bag.number, target=index, count=source_count(message.source),
        idempotency=message.key or key, source=source, extends=True, seen=message.seen)
    inputs = {sha: name for files in message.files for name, (sha, _, _) in files.items()}
    return event, {**inputs, **_arguments_of(target, message.source)}


def read_part(body: bytes | bytearray, bag: Outline, key: str) -> Read:
    part, targets = _decode_part(body), bag.targets
    if part.flows is not None and not bag.hands_over:
        raise BadInput(f"bag {bag.number} was submitted without flows", "submit it with flows, which may be empty")
    if bag.size < part.first <= MAX_TASKS:  # a smaller `first` may be a repetition: the core compares its key
        raise Conflict(f"bag {bag.number} has {bag.size:,} tasks, but the part begins at {part.first:,}",
                       f"number the part's tasks from {bag.size}")
    pieces = check_part(part, targets, bag.locate)
    own = edges_of(part.edges, None)
    along = (own, part.flows, (part.first, sum(count for _, count in pieces)))
    sources = [_pack((place, piece.source, [], *(() if at else along)))
               for at, ((place, _), piece) in enumerate(zip(pieces, part.pieces, strict=True))]
    edges = own if part.flows is None else edges_of(part.edges, part.flows)
    event = events.AppendPart(
        key=0, bag=bag.number, first=part.first, pieces=pieces, idempotency=key, sources=sources, edges=edges)
    inputs = {blob: "of a flow" for blob, _, _ in part.flows.blobs} if part.flows else {}
    for (place, _), piece in zip(pieces, part.pieces, strict=True):
        inputs.update(_arguments_of(targets[place], piece.source))
    return event, inputs


AppendReader = Callable[[bytes | bytearray, Outline, str], Read]
APPENDERS: dict[str, AppendReader] = {"append": read_append, "extend": read_extension, "part": read_part}


# --- helpers --------------------------------------------------------------------------------------------------


def inputs_of(bag: Bag) -> dict[str, str]:
    """Return the blobs that the bag needs, each with a name for messages."""
    found: dict[str, str] = {blob: "of a flow" for blob, _, _ in bag.flows.blobs} if bag.flows else {}
    for target in bag.targets:
        found.update((each.blob, each.path) for each in target.inputs)
        found.update((blob, name) for family in target.families for name, (blob, _, _) in family.files.items())
        if target.packed is not None:
            found[target.packed.blob] = "packed environment"
        found.update(_arguments_of(target, target.source))
    return found


def _arguments_of(target: Target, source: Source) -> dict[str, str]:
    """Return the blobs of calls' parts that were too large for the call itself."""
    if target.kind != "call" or not isinstance(source, Items):
        return {}
    return {sha: "part of a call" for call in source.items for _, sha, _, _ in part_files(call)}


def _kind(source: Source) -> str:
    return type(source).__name__.lower()


def _target_named(bag: Outline, name: str) -> int:
    names = [target.name for target in bag.targets]
    if name not in names:
        raise BadInput(f"there is no target '{name[:80]}'", f"this bag has {', '.join(names[:10])}")
    return names.index(name)
