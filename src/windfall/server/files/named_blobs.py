"""The blobs that bags name: inputs and values of calls, of packed specifications and of tasks appended later."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windfall.model.calls import blobs_in


class _Input(msgspec.Struct):
    blob: str = ""


class _Family(msgspec.Struct):
    files: dict[str, tuple[str, int, int]] = {}


class _Target(msgspec.Struct):
    inputs: list[_Input] = []
    families: list[_Family] = []
    packed: _Input | None = None


class _Flows(msgspec.Struct):
    blobs: list[tuple[str, int, int]] = []


class _Inputs(msgspec.Struct):
    """The input blobs of a bag's specification; the decoder skips all other fields."""

    targets: list[_Target] = []
    flows: _Flows | None = None


_decode_inputs = msgspec.msgpack.Decoder(_Inputs).decode


def inputs_of(spec: bytes) -> set[str]:
    found, inputs = blobs_in(spec), _decode_inputs(spec)
    if inputs.flows is not None:
        found.update(blob for blob, _, _ in inputs.flows.blobs)
    for target in inputs.targets:
        found.update(each.blob for each in target.inputs)
        found.update(blob for family in target.families for blob, _, _ in family.files.values())
        if target.packed is not None:
            found.add(target.packed.blob)
    return found


class _AppendBlobs(msgspec.Struct, array_like=True):
    target: int
    source: msgspec.Raw
    files: list[dict[str, tuple[str, int, int]]] = []
    edges: msgspec.Raw = msgspec.Raw()
    flows: _Flows | None = None


_decode_append_blobs = msgspec.msgpack.Decoder(_AppendBlobs).decode


def appended_blobs(packed: bytes) -> set[str]:
    found, more = blobs_in(packed), _decode_append_blobs(packed)
    found.update(blob for files in more.files for blob, _, _ in files.values())
    if more.flows is not None:
        found.update(blob for blob, _, _ in more.flows.blobs)
    return found


def named(specs: Iterable[bytes], appended: Iterable[bytes]) -> set[str]:
    """Return the blobs that some bags name, from their specifications and what was appended to them."""
    found: set[str] = set()
    for spec in specs:
        found |= inputs_of(spec)
    for more in appended:
        found |= appended_blobs(more)
    return found
