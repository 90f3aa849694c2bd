"""Events and data by name and index: every awaited event must be notified, all data read must be written.

The check covers every instance, whether its indices are affine or not: the indices of an instance become one number,
and whole columns of numbers are compared at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from windfall.workflow.components.files import Parameter
from windfall.workflow.graphs.dag import distinct
from windfall.workflow.mistakes import MistakeLog, nearest
from windfall.workflow.yvetteml.frame import Data, Frame, Ref, first, spread, take

RANGE = 1 << 62


@dataclass(frozen=True, slots=True)
class Use:
    """A statement's use of a name, in all its instances."""

    ref: Ref
    at: int
    frame: Frame
    node: Data = 0  # event: the node it comes after, or the gate that waits; data: the first of the statement's tasks
    mode: str = ""  # mode of the parameter, for data
    type: str = ""
    collection: bool = False
    parameter: str = ""  # the component's parameter

    def shown(self, row: int) -> str:
        scope, name = self.ref.key
        indices = self.ref.indices[1 if scope else 0 :]
        return name + "".join(f"[{take(each, row)}]" for each in indices)


@dataclass
class Registry:
    notified: dict[tuple[int, str], list[Use]] = field(default_factory=dict)
    waited: dict[tuple[int, str], list[Use]] = field(default_factory=dict)
    data: dict[tuple[int, str], list[Use]] = field(default_factory=dict)
    passed: dict[tuple[int, str], list[Use]] = field(default_factory=dict)  # data passed to graph components
    excused: set[tuple[int, str]] = field(default_factory=set)  # names used by statements left out for a mistake

    def notify(self, use: Use) -> None:
        self.notified.setdefault(use.ref.key, []).append(use)

    def wait(self, use: Use) -> None:
        self.waited.setdefault(use.ref.key, []).append(use)

    def hand_over(self, use: Use) -> None:
        self.passed.setdefault(use.ref.key, []).append(use)

    def access(self, use: Use) -> None:
        self.data.setdefault(use.ref.key, []).append(use)


# --- indices as numbers --------------------------------------------------------------------------------------------


def numbered(uses: list[Use], rank: int) -> np.ndarray:
    """Number all instances of all uses by their first `rank` indices: equal indices get equal numbers."""
    rows = sum(use.frame.n for use in uses)
    numbers, size = np.zeros(rows, np.int64), 1
    if not rows:
        return numbers
    columns = [_stacked([use.ref.indices[dimension] for use in uses], uses) for dimension in range(rank)]
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        if size * span >= RANGE:  # too wide to multiply
            return np.unique(np.stack(columns, 1), axis=0, return_inverse=True)[1].reshape(-1)
        size *= span
        numbers *= span
        numbers += column - low
    return numbers


def _stacked(parts: list[Data], uses: list[Use]) -> np.ndarray:
    return np.concatenate([spread(part, use.frame.n).astype(np.int64) for part, use in zip(parts, uses, strict=True)])


def by_rank(uses: list[Use]) -> dict[int, list[Use]]:
    found: dict[int, list[Use]] = {}
    for use in uses:
        found.setdefault(len(use.ref.indices), []).append(use)
    return found


def _missing(wanted: list[Use], there: list[Use], rank: int) -> np.ndarray:
    """Mark the instances of `wanted` that no instance of `there` matches in the first `rank` indices."""
    numbers = numbered([*wanted, *there], rank)
    count = sum(use.frame.n for use in wanted)
    return ~np.isin(numbers[:count], numbers[count:])


def _tell(found: MistakeLog, uses: list[Use], bad: np.ndarray, message: str, hint: Callable[[Use], str]) -> None:
    for use, row in first_bad(uses, bad):
        found.add(use.frame.source, use.at, f"'{use.shown(row)}' {message}{use.frame.where(row)}", hint(use))


def first_bad(uses: list[Use], bad: np.ndarray) -> Iterator[tuple[Use, int]]:
    """Yield each use that has a bad instance, and its first one."""
    start = 0
    for use in uses:
        mine = bad[start : start + use.frame.n]
        start += use.frame.n
        if mine.any():
            yield use, first(mine)


# --- events --------------------------------------------------------------------------------------------------------


def unheard(registry: Registry, found: MistakeLog) -> None:
    """Report events that are waited for and never notified."""
    for key, waits in registry.waited.items():
        notifies = registry.notified.get(key, [])
        for rank, here in by_rank(waits).items() if key not in registry.excused else ():
            there = by_rank(notifies).get(rank, [])
            _tell(found, here, _missing(here, there, rank), "is waited for and never notified",
                  lambda use: _near(use, registry))


def _near(waits: Use, registry: Registry) -> str:
    key = waits.ref.key
    for use in registry.notified.get(key, []):
        if use.frame.n:
            line, _ = use.frame.source.place(use.at)
            where = f"line {line} notifies" if use.frame.source.lines else "what is notified is"
            return f"{where} '{use.shown(0)}'"
    near = nearest(key[1], (name for scope, name in registry.notified if scope == key[0]))
    return f"did you mean '{near}'?" if near else f"somewhere else: notify({waits.shown(0)});"


@dataclass(frozen=True)
class Meeting:
    """A family of events: each event gets a gate, after all its notifiers and before all its waiters."""

    gates: int
    notifiers: np.ndarray  # nodes that notify
    notified: np.ndarray  # notifier → gate
    waited: np.ndarray  # waiter → gate
    waiters: np.ndarray  # nodes that wait
    sample: Use


def meetings(registry: Registry) -> list[Meeting]:
    """Join notifiers and waiters; an event with several notifiers happens when all have notified."""
    found = []
    for key, waits in registry.waited.items():
        notifies = by_rank(registry.notified.get(key, []))
        found += [_meeting(here, notifies[rank], rank) for rank, here in by_rank(waits).items() if rank in notifies]
    return found


def _meeting(here: list[Use], there: list[Use], rank: int) -> Meeting:
    numbers = numbered([*there, *here], rank)
    count = sum(use.frame.n for use in there)
    events = distinct(numbers[:count])
    gates = np.searchsorted(events, numbers)
    nodes = [_stacked([use.node for use in uses], uses) for uses in (there, here)]
    return Meeting(gates=len(events), notifiers=nodes[0], notified=gates[:count], waited=gates[count:],
                   waiters=nodes[1], sample=there[0])


# --- data ----------------------------------------------------------------------------------------------------------


def data_mistakes(registry: Registry, declared: dict[str, Parameter], found: MistakeLog) -> None:
    for (scope, name), uses in registry.data.items():
        parameter = declared.get(name) if scope == 0 else None
        items = [use for use in uses if not use.collection]
        families = [use for use in uses if use.collection]
        _same_type(uses, registry.passed.get((scope, name), []), parameter, found)
        if _same_rank(items, families, parameter, scope, found) and (scope, name) not in registry.excused:
            _written(uses, parameter, found)


def _same_type(uses: list[Use], passed: list[Use], parameter: Parameter | None, found: MistakeLog) -> None:
    writer = next((use for use in uses if use.mode != "in"), uses[0])
    kind = parameter.type if parameter else writer.type
    for use in (*uses, *passed):
        if use.type != kind and not (kind == "integer" and use.type == "real" and use.mode == "in"):
            line, _ = writer.frame.source.place(writer.at)
            origin = "is declared as" if parameter else f"is, by line {line},"
            found.add(use.frame.source, use.at, f"'{use.ref.key[1]}' {origin} of type {kind}, and {use.type} is asked "
                      "for here", "the types of a component's parameters are in its abstract description")


def _same_rank(
    items: list[Use], families: list[Use], parameter: Parameter | None, scope: int, found: MistakeLog
) -> bool:
    """Report a name used with different numbers of indices; a collection has fewer indices than its members."""
    lead = 1 if scope else 0
    rank = len(items[0].ref.indices) if items else None
    odd = [(use, _odd_item(use, items[0], parameter, lead)) for use in items]
    odd += [(use, _odd_family(use, rank, parameter)) for use in families]
    for use, message in odd:
        if message:
            hint = "indices pick one of a collection: name[i][j]"
            found.add(use.frame.source, use.at, f"'{use.ref.key[1]}' {message}", hint)
    return not any(message for _, message in odd)


def _odd_family(use: Use, rank: int | None, parameter: Parameter | None) -> str:
    single = parameter is not None and not parameter.collection
    if single or (rank is not None and len(use.ref.indices) >= rank):
        return "is one thing, and a collection is asked for here"
    return ""


def _odd_item(use: Use, other: Use, parameter: Parameter | None, lead: int) -> str:
    given, usual = len(use.ref.indices), len(other.ref.indices)
    if parameter and (given > lead) != parameter.collection:
        return "is a collection: say which of it" if parameter.collection else "is no collection, and has no indices"
    if given == usual:
        return ""
    line, _ = other.frame.source.place(other.at)
    return f"has {given - lead} indices here, and {usual - lead} in line {line}"


def _written(uses: list[Use], parameter: Parameter | None, found: MistakeLog) -> None:
    """Report data that is read, not written by any statement and not given from outside."""
    if parameter and parameter.mode != "out":
        return
    writes = by_rank([use for use in uses if use.mode != "in"])
    for rank, reads in by_rank([use for use in uses if use.mode == "in"]).items():
        bad = np.ones(sum(use.frame.n for use in reads), bool)
        for other, there in writes.items():
            bad &= _missing(reads, there, min(rank, other))
        _tell(found, reads, bad, "is read, and nothing writes it", _how_to_write)


def _how_to_write(use: Use) -> str:
    name = use.ref.key[1]
    if not use.frame.source.lines:  # it was made in Python
        return f"some call's result is to go there: ….to({use.shown(0)})"
    value = "" if use.ref.indices else f", give it a value before ({name} := …;)"
    return f"write it as an out parameter of a component{value}, or declare '{name}' in <params>"
