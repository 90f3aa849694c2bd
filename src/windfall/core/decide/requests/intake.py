"""From a validated `Bag` to the event that submits it: what the core reads of a specification, and nothing else."""

from __future__ import annotations

import msgspec
import numpy as np

from windfall.core.messages.events import Submit
from windfall.core.messages.facts import TargetShape
from windfall.model.checks.bag import REPLICATE, given, longest_task
from windfall.model.spec import Bag, Flows, Lines, Policy, Target
from windfall.model.templates.render import Renderer, source_count

ENVELOPE = 64  # bytes around a command
SMALL = 4 << 20  # bytes: all commands together fit into one message


def submission(key: int, owner: str, bag: Bag, idempotency: str = "") -> Submit:
    index = {target.name: i for i, target in enumerate(bag.targets)}
    shapes = [_shape(target, index, bag.policy) for target in bag.targets]
    crowds: dict[str, int] = {}
    for place, (target, shape) in enumerate(zip(bag.targets, shapes, strict=True)):
        shape.concurrency_group = crowds.setdefault(target.crowd, place) if target.crowd else place
    edges = edges_of(bag.edges, bag.flows)
    return Submit(
        key, owner, bag.name, idempotency, _packed(bag), shapes, bag.effects == "external",
        bag.policy.select, bag.open, edges, bag.policy.provision, budget=bag.policy.budget,
        replicate=preset if (preset := bag.policy.replicate.lower()) in REPLICATE else "none",
        policy=given(bag.policy),
        fail_over=bag.policy.fail_over,
    )


def edges_of(edges: list[tuple[int, int]], files: Flows | None) -> bytes:
    """Each prerequisite once, whether files go with it or not."""
    pairs = np.array(edges, dtype="<i4").reshape(-1, 2)
    if files is not None:
        flows = np.array([files.before, files.after], dtype="<i4").T
        pairs = np.unique(np.concatenate([pairs, flows[flows[:, 0] >= 0]]), axis=0)
    return pairs.tobytes()


def _packed(bag: Bag) -> bytes:
    """Exactly as long as it is: the encoder's buffer is half as long again, and this stays."""
    return bytes(memoryview(msgspec.msgpack.encode(bag)))


def _shape(target: Target, index: dict[str, int], policy: Policy) -> TargetShape:
    r = target.resources
    return TargetShape(
        target.name, source_count(target.source), _before(target, index), r.cores, r.memory, r.gpus,
        r.disk, target.time, target.expect, target.grace, bool(target.checkpoint), target.retries,
        target.memory_retries, target.priority, _costs(target) if policy.select == "sjf" else b"", _weight(target),
        r.whole, bool(target.takes), target.kind == "call", bool(target.outputs),
        policy.batch, policy.batch_timeout if policy.batch > 1 else 0, nodes=r.nodes,
        exits_not_retried=target.check.hopeless, at_once=target.at_once,
    )


def _before(target: Target, index: dict[str, int]) -> list[int]:
    """Whose files it takes, it waits for."""
    return [index[name] for name in dict.fromkeys([*target.after, *target.takes])]


def _weight(target: Target) -> int:
    """Bytes a task takes in a message, at most; where all of them together are few, about."""
    source = target.source
    if isinstance(source, Lines) and len(source.text) < SMALL:
        return ENVELOPE + len(source.text) // max(source.count, 1)
    return ENVELOPE + longest_task(target)


def _costs(target: Target) -> bytes:
    if not target.cost:
        return b""
    renderer = Renderer(target)
    return np.array(renderer.costs(range(renderer.count)), dtype="<f4").tobytes()
