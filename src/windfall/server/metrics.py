"""Figures for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windfall.core.messages.lifecycle import PILOT_STATES, TASK_STATES
from windfall.core.state.world import State
from windfall.server.writer import BUCKETS

Sample = tuple[str, int]  # labels, value


def text(runtime: Any) -> str:
    return "".join((
        _metric("windfall_tasks", "gauge", "Tasks by state.", _tasks(runtime.writer.state)),
        _metric("windfall_pilots", "gauge", "Pilots by state.", _pilots(runtime.writer.state)),
        *(_metric(f"windfall_{name}", kind, text, [("", value)]) for name, kind, text, value in _plain(runtime)),
        _flushes(runtime.writer),
    ))


def _plain(runtime: Any) -> list[tuple[str, str, str, int]]:
    writer, exchanges = runtime.writer, runtime.exchanges
    return [
        ("bags", "gauge", "Bags that have not been removed.", len(writer.state.bags)),
        ("exchanges_total", "counter", "Exchanges received from pilots.", exchanges.count),
        ("reports_total", "counter", "Reports of attempts received from pilots.", exchanges.reports),
        ("parked", "gauge", "Polls of pilots that wait for an answer.", exchanges.parked),
        ("requests_total", "counter", "Requests handled.", runtime.http.served),
        ("connections", "gauge", "Open connections.", len(runtime.http.connections)),
        ("subscribers", "gauge", "Open subscriptions.", runtime.hub.subscribers),
        ("inbox", "gauge", "Events waiting for the writer.", writer.depth),
        ("groups_total", "counter", "Steps of the core.", writer.groups),
        ("events_total", "counter", "Events handled by the core.", writer.events),
        ("position", "gauge", "Rows of the journal.", writer.position),
        ("journal_tail_bytes", "gauge", "Journal after the snapshot.", writer.journal.tail_bytes),
        ("snapshot_failing", "gauge", "1 while no snapshot can be written.", int(bool(writer.snapshot_problem))),
        ("views_behind", "gauge", "Commits that the views have not folded in yet.", runtime.projector.backlog),
        ("unauthorised_total", "counter", "Requests without a valid token.", runtime.auth.failed),
        ("disk_low", "gauge", "1 while the server refuses new work for lack of disk space.", int(runtime.disk.low)),
    ]


def _metric(name: str, kind: str, description: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{labels} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _tasks(state: State) -> list[Sample]:
    totals = [0] * len(TASK_STATES)
    for bag in state.bags.values():
        for place, count in enumerate(bag.counts):
            totals[place] += count
    return [(f'{{state="{name}"}}', int(n)) for name, n in zip(TASK_STATES, totals, strict=True)]


def _pilots(state: State) -> list[Sample]:
    totals = [0] * len(PILOT_STATES)
    for pilot in state.pilots.values():
        totals[pilot.state] += 1
    return [(f'{{state="{name}"}}', n) for name, n in zip(PILOT_STATES, totals, strict=True)]


def _flushes(writer: Any) -> str:
    name = "windfall_flush_seconds"
    lines = [f"# HELP {name} Seconds until a commit is on the disk.", f"# TYPE {name} histogram"]
    total = 0
    for bound, count in zip((*BUCKETS, "+Inf"), writer.flush_times, strict=True):
        total += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
    lines += [f"{name}_sum {writer.flush_total:.6f}", f"{name}_count {total}"]
    return "\n".join(lines) + "\n"
