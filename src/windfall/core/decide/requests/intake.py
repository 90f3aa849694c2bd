"""Intake: from a validated `Bag` to the event that submits it, with what the core reads of a specification."""

from __future__ import annotations

import msgspec
import numpy as np

from windfall.core.messages.events import Submit
from windfall.core.messages.facts import TargetShape
from windfall.model.checks.bag import REPLICATE, given, longest_task
from windfall.model.spec import Bag, Flows, Lines, Policy, Target, usual_time_retries
from windfall.model.templates.render import Renderer, source_count

ENVELOPE = 64  # bytes around a command
SMALL = 4 << 20  # bytes: all commands together fit into one message


def submission(key: int, owner: str, bag: Bag, idempotency: str = "") -> Submit:
    """Return the event that submits a bag; `key` is the driver's."""
    index = {target.name: i for i, target in enumerate(bag.targets)}
    shapes = [_shape(target, index, bag.policy) for target in bag.targets]
    groups: dict[str, int] = {}
    for place, (target, shape) in enumerate(zip(bag.targets, shapes, strict=True)):
        shape.concurrency_group = groups.setdefault(target.crowd, place) if target.crowd else place
    preset = bag.policy.replicate.lower()
    edges = edges_of(bag.edges, bag.flows)
    if bag.flows is None and len(edges) < 8 * len(bag.edges):  # some are named twice
        bag = msgspec.structs.replace(bag, edges=np.frombuffer(edges, "<i4").reshape(-1, 2).tolist())
    return Submit(
        key, owner, bag.name, idempotency, _packed(bag), targets=shapes, external=bag.effects == "external",
        select=bag.policy.select, open=bag.open, edges=edges, provision=bag.policy.provision,
        budget=bag.policy.budget, replicate=preset if preset in REPLICATE else "none", policy=given(bag.policy),
        fail_over=bag.policy.fail_over, absence=bag.absence,
    )


def edges_of(edges: list[tuple[int, int]], files: Flows | None) -> bytes:
    """Return each prerequisite once, whether files go with it or not, as pairs of int32."""
    pairs = np.array(edges, dtype="<i4").reshape(-1, 2)
    if files is None and len(pairs) > 1 and len(numbers := np.unique(pairs.view("<i8"))) < len(pairs):
        return numbers.tobytes()
    if files is not None:
        flows = np.array([files.before, files.after], dtype="<i4").T
        pairs = np.unique(np.concatenate([pairs, flows[flows[:, 0] >= 0]]), axis=0)
    return pairs.tobytes()


def _packed(bag: Bag) -> bytes:
    """Encode a bag in a buffer of its exact size: the encoder's is half as long again, and this one stays."""
    return bytes(memoryview(msgspec.msgpack.encode(bag)))


def _shape(target: Target, index: dict[str, int], policy: Policy) -> TargetShape:
    need = target.resources
    return TargetShape(
        target.name, source_count(target.source), _prerequisites(target, index), need.cores, need.memory,
        gpus=need.gpus, disk=need.disk, limit=target.time, expect=target.expect, grace=target.grace,
        checkpoint=bool(target.checkpoint), retries=target.retries, memory_retries=target.memory_retries,
        priority=target.priority, costs=_costs(target) if policy.select == "sjf" else b"",
        message_bytes=_message_bytes(target), whole=need.whole, gathers=bool(target.takes),
        call=target.kind == "call", outputs=bool(target.outputs), batch=policy.batch,
        patience=policy.batch_timeout if policy.batch > 1 else 0, nodes=need.nodes,
        exits_not_retried=target.check.hopeless, at_once=target.at_once, time_retries=
        usual_time_retries(target.retries) if target.time_retries is None else target.time_retries,
    )


def _prerequisites(target: Target, index: dict[str, int]) -> list[int]:
    """Return the targets that this one names, and those whose files it takes."""
    return [index[name] for name in dict.fromkeys([*target.after, *target.takes])]


def _message_bytes(target: Target) -> int:
    """Return the bytes that one task takes in a message: at most, or about, where all commands together are few."""
    source = target.source
    if isinstance(source, Lines) and len(source.text) < SMALL:
        return ENVELOPE + len(source.text) // max(source.count, 1)
    return ENVELOPE + longest_task(target)


def _costs(target: Target) -> bytes:
    """Return the tasks' estimated costs as float32, or nothing."""
    if not target.cost:
        return b""
    renderer = Renderer(target)
    return np.array(renderer.costs(range(renderer.count)), dtype="<f4").tobytes()
