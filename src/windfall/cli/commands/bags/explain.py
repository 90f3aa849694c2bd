"""`windfall explain`: say why a bag or a task is not running, site by site and clause by clause."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag, task_number
from windfall.cli.present.causes import words
from windfall.cli.present.output import print_json, shown
from windfall.cli.watch.explain_line import reason

if TYPE_CHECKING:
    from windfall.client.types import TaskInfo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    parser.add_argument("task", metavar="TASK", nargs="?", type=task_number, help="number of a task")


def execute(args: argparse.Namespace) -> int:
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        found = session.client.explain(bag, args.task)
        why = _ended_by(session.client.task(bag, args.task)) if args.task is not None else ""
    if args.json:
        print_json(found)
        return 0
    if found.get("task") is not None:
        print(f"task {found['task']}: {found.get('state', '')}")
    remedy = f"'windfall wait {bag}' starts one here"
    if session.separate:
        remedy = "start one with 'windfall pilot --ticket FILE', or the server with --pilot"
    print(reason(found, remedy))
    if why:
        print(f"last attempt: {why}; to see its output: windfall logs {bag} {args.task}")
    if sites := found.get("sites"):
        _print_sites(sites)
    return 0


def _print_sites(sites: list[dict[str, Any]]) -> None:
    troubles = _troubles()
    for site in sites:
        print(f"  {shown(site.get('site'))}")
        if trouble := troubles.get(str(site.get("site"))):
            print(f"    NO   trouble: {trouble}")
        for clause in site.get("clauses") or []:
            mark = "yes" if clause.get("holds") else "NO "
            print(f"    {mark}  {shown(clause.get('clause'), 100)}: {shown(clause.get('says'), 200)}")


def _troubles() -> dict[str, str]:
    """Return the trouble at each site, which only the provisioner knows; the server just sees no pilot come."""
    from windfall.cli.commands.sites.test import status

    return {line["site"]: shown(line["trouble"], 1000) for line in status() if line.get("site") and line.get("trouble")}


def _ended_by(task: TaskInfo) -> str:
    """Say why the last attempt of a failed task ended; "" for other tasks."""
    attempts = task.get("attempts") or []
    if task["state"] not in ("failed", "quarantined") or not attempts:
        return ""
    return words(attempts[-1])
