"""`windfall rerun`: run again, but only tasks that failed or changed since.

The tasks of a bag start again in the bag itself and keep their numbers.  What is left of an application becomes a bag
of its own, which takes results of earlier bags.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.commands.bags import run
from windfall.cli.connect import Session, find_bag
from windfall.cli.present.fetch_outputs import OutputPlace
from windfall.cli.present.output import print_json, say, shown
from windfall.cli.submission import application
from windfall.cli.watch.progress import Progress
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Bag
    from windfall.workflow.build.reuse import Done, Remainder

EARLIER = 20  # bags of that name whose tasks may count as done
EXAMPLES = """examples:
  windfall rerun product.query --components components/ --set div=4 -o product.results
  windfall rerun 12"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="APP | BAG", help="an application's file, or a bag: its number or its name")
    application.add_options(parser)
    parser.add_argument("--name", help="name of the bags that count as earlier runs (default: the application's)")
    parser.add_argument("-o", dest="directory", metavar="DIR", help="where results land (default: NAME.results)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(args: argparse.Namespace) -> int:
    started = time.monotonic()
    with Session(needs_pilot=True) as session:
        if not args.what.endswith(application.KINDS):
            number = find_bag(session.client, args.what)
            spec = session.client.spec(number)
            if spec.flows is None:
                return _rerun_bag(session, number, spec, started, args)
        parsed = _wanted(args, session.client)
        from windfall.workflow.build.reuse import remainder

        left = remainder(parsed.bag, _done(session.client, parsed.bag.name))
        quiet, directory = args.quiet or args.json, run.directory_of(args, parsed.bag.name)
        if not quiet:
            say(f"{parsed.bag.name}: {plural(run.count(parsed), 'task')}, {len(left.done):,} of them done before")
        fetched = _fetch_earlier(session.client, parsed, left, directory)
        if left.bag is None:
            return _report_nothing_to_run(args, parsed, fetched)
        return _run(session, parsed, left, started, args)


def _rerun_bag(session: Session, number: int, spec: Bag, started: float, args: argparse.Namespace) -> int:
    """Start the failed tasks of a bag again, and attend to it until it ends."""
    count = session.client.retry(number)
    tasks, quiet = session.client.bag(number)["tasks"], args.quiet or args.json
    directory = run.directory_of(args, spec.name) if any(target.outputs for target in spec.targets) else None
    if not quiet:
        say(f"bag {number} '{shown(spec.name)}': {count:,} of {plural(tasks, 'task')} to run again")
    final = run.attend(session, number, Progress(spec.name, tasks, quiet), directory)
    return run.finish(session, final, started, run.Home(OutputPlace(directory) if directory else None), args.json)


def _wanted(args: argparse.Namespace, client: Client) -> Parsed:
    from windfall.model.bagfile.reader import Parsed
    from windfall.workflow.build.streaming import whole

    if args.what.endswith(application.KINDS):
        return application.parsed(args, Path(args.what))
    bag = find_bag(client, args.what)
    return Parsed(whole(client.spec(bag), client.appended(bag))[0], {}, {})


def _done(client: Client, name: str) -> Done:
    """Return the tasks done by earlier bags of that name; where two bags did the same, the later one counts."""
    from windfall.errors import BadInput
    from windfall.workflow.build.reuse import done_by
    from windfall.workflow.build.streaming import whole

    found: Done = {}
    for bag in sorted(each["bag"] for each in client.bags() if each["name"] == name)[-EARLIER:]:
        spec, server_numbers = whole(client.spec(bag), client.appended(bag))
        tasks = {number: task for task, number in enumerate(server_numbers)}
        files = {tasks[row["task"]]: [tuple(file) for file in row["files"]] for row in client.results(bag, "succeeded")
                 if row["task"] in tasks}
        try:
            made = done_by(bag, spec, files)  # type: ignore[arg-type]
        except BadInput:
            continue  # another workflow of the same name
        found.update((key, (number, server_numbers[task], left)) for key, (number, task, left) in made.items())
    return found


def _fetch_earlier(client: Client, parsed: Parsed, left: Remainder, directory: Path) -> int:
    """Fetch results of earlier bags; return how many files came."""
    wanted: dict[int, dict[tuple[int, str], str]] = {}
    for (task, path), name in (parsed.results or {}).items():
        if task in left.done:
            bag, number = left.done[task]
            wanted.setdefault(bag, {})[number, path] = name
    return sum(client.fetch_some(bag, files, directory) for bag, files in wanted.items())


def _report_nothing_to_run(args: argparse.Namespace, parsed: Parsed, fetched: int) -> int:
    total = run.count(parsed)
    if args.json:
        print_json({"bag": None, "name": parsed.bag.name, "state": "succeeded", "tasks": 0, "succeeded": 0, "failed": 0,
                    "cancelled": 0, "done_before": total, "files": fetched})
    else:
        say("  no task failed or changed: there is nothing to run")
    return 0


def _run(session: Session, parsed: Parsed, left: Remainder, started: float, args: argparse.Namespace) -> int:
    assert left.bag is not None
    directory = run.directory_of(args, parsed.bag.name)
    results: Any = parsed.results if parsed.results is None else {
        (left.tasks[task], path): name for (task, path), name in parsed.results.items() if task in left.tasks}
    part = parsed._replace(bag=left.bag, results=results)
    sent, quiet = run.submit(session, part), args.quiet or args.json
    total = run.count_sent(sent, run.count(part), quiet)
    progress = Progress(part.bag.name, total, quiet)
    run.feed(session, sent, total, progress)
    final = run.attend(session, sent.bag, progress, directory)
    home = run.Home(OutputPlace(directory, "", sent.parsed.results))
    return run.finish(session, final, started, home, args.json)
