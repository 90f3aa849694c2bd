"""`windfall rerun`: run again, with the files as they are now, but only tasks that failed or changed since.

The tasks of a bag start again in the bag itself and keep their numbers.  What is left of an application becomes a bag
of its own, which takes results of earlier bags.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.commands.bags import run
from windfall.cli.connect import Session, find_bag
from windfall.cli.present.fetch_outputs import OutputPlace
from windfall.cli.present.output import counts_of, print_json, say, shown
from windfall.cli.submission import application, reread
from windfall.cli.submission.origin import with_place
from windfall.cli.submission.reread import Reread
from windfall.cli.watch.progress import Progress
from windfall.errors import BadInput
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.types import BagInfo, RerunDone
    from windfall.model.bagfile.reader import Parsed
    from windfall.model.spec import Bag
    from windfall.workflow.build.reuse import Done, Remainder

EARLIER = 20  # bags of that name whose tasks may count as done
SHOWN = 12  # changes named in a message
EXAMPLES = """examples:
  windfall rerun 12                    what failed, and what a changed file concerns
  windfall rerun sweep.toml --failed   only what failed, with the files as they are now
  windfall rerun 12 --changed -n       show what has changed; run nothing
  windfall rerun product.query --components components/ --set div=4 -o product.results"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="BAG | FILE.toml | APP", help="a bag, by number or name; the file that "
                        "describes it; or an application's file")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--failed", action="store_true", help="only tasks that failed, with the files as they are now")
    choice.add_argument("--changed", action="store_true", help="only tasks that a changed file concerns")
    choice.add_argument("--all", action="store_true", help="all tasks")
    parser.add_argument("-n", "--dry-run", action="store_true", help="tell what has changed and would run; run nothing")
    application.add_options(parser)
    parser.add_argument("--name", help="name of the bag, where it is not the file's own")
    parser.add_argument("-o", dest="directory", metavar="DIR", help="where results land (default: NAME.results)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(args: argparse.Namespace) -> int:
    started = time.monotonic()
    with Session(needs_pilot=True) as session:
        if args.what.endswith(reread.KINDS):
            read = reread.from_file(args.what, args.name)
            return _rerun_bag(session, _bag_named(session.client, read, args.what), read, started, args)
        if not args.what.endswith(application.KINDS):
            number = find_bag(session.client, args.what)
            if session.client.spec(number).flows is None:
                return _rerun_bag(session, number, None, started, args)
        if _which(args) or args.dry_run:
            raise BadInput("an application runs again as a whole: what has failed or changed, and nothing else",
                           "leave out --failed, --changed, --all and --dry-run")
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


def _bag_named(client: Client, read: Reread, file: str) -> int:
    """Return the latest bag of the name that a file gives."""
    name = read.parsed.bag.name
    named = [each["bag"] for each in client.bags() if each["name"] == name]
    if not named:
        raise BadInput(f"{file} has not run: there is no bag '{name}'", f"windfall run {file}")
    if len(named) > 1:
        say(f"{plural(len(named), 'bag')} are called '{shown(name)}'; this is the latest, bag {max(named)}")
    return int(max(named))


# --- a bag, in itself ---------------------------------------------------------------------------------------------


def _rerun_bag(session: Session, number: int, read: Reread | None, started: float, args: argparse.Namespace) -> int:
    """Start tasks of a bag again with its files as they are now, and attend to it until it ends."""
    client, quiet = session.client, args.quiet or args.json
    spec, before = client.spec(number), client.bag(number)
    if read := read or reread.from_origin(spec, number):
        read = reread.with_files_of_appended(read, spec, client.appended(number))
        read = read._replace(parsed=with_place(read.parsed, spec))
    done = client.rerun(number, read and read.parsed, _which(args), args.dry_run)
    if not quiet:
        say("\n".join(_lines(before, read, done, args)))
    if args.dry_run or not done["count"]:
        return _nothing_ran(before, done, args)
    place = _place(spec, args) if any(each.outputs for each in spec.targets) else None
    progress = Progress(spec.name, before["tasks"], quiet)
    final = run.attend(session, number, progress, place.directory if place else None)
    return run.finish(session, final, started, run.Home(place, fields=_fields(done)), args.json)


def _place(bag: Bag, args: argparse.Namespace) -> OutputPlace:
    """Return where the output files land: where they did before, or in the given directory."""
    words = bag.origin.words if bag.origin else {}
    earlier = "" if args.directory else str(words.get("directory", ""))
    return OutputPlace(Path(earlier) if earlier else run.directory_of(args, bag.name), str(words.get("files", "")))


def _which(args: argparse.Namespace) -> str:
    return next((which for which in ("failed", "changed", "all") if getattr(args, which)), "")


def _fields(done: RerunDone) -> dict[str, Any]:
    return {"again": done["count"], "outdated": done["outdated"], "changes": done["changes"]}


def _nothing_ran(bag: BagInfo, done: RerunDone, args: argparse.Namespace) -> int:
    tasks, succeeded, failed, cancelled = counts_of(bag)
    if args.json:
        print_json({"bag": bag["bag"], "name": bag["name"], "state": bag["state"], "tasks": tasks,
                    "succeeded": succeeded, "failed": failed, "cancelled": cancelled, **_fields(done)})
    return 0 if args.dry_run else int(succeeded != tasks)


def _lines(bag: BagInfo, read: Reread | None, done: RerunDone, args: argparse.Namespace) -> Iterator[str]:
    """Yield what has changed, what runs again, and what to do about the rest."""
    number, (tasks, succeeded, _, _) = bag["bag"], counts_of(bag)
    yield from _changes(done)
    if read is None:
        yield f"  bag {number} does not say where its files lie, so they stay as submitted; to change that, name a file"
    yield f"bag {number} '{shown(bag['name'])}': {_count(done, tasks, tasks - succeeded, args)}"
    if done["outdated"]:
        yield (f"  {plural(done['outdated'], 'result')} of the former files stay; to make them anew: "
               f"windfall rerun {number} --changed")
    if args.changed and not done["count"] and succeeded < tasks:
        yield f"  {tasks - succeeded:,} of {plural(tasks, 'task')} have not succeeded: windfall rerun {number} --failed"
    if read is not None:
        yield from _unseen(number, read, done, args)
        yield from _left_alone(number, read.source, done)


def _unseen(bag: int, read: Reread, done: RerunDone, args: argparse.Namespace) -> Iterator[str]:
    """Say that a bag without input files may have changed unseen."""
    named = any(target.inputs or target.families for target in read.parsed.bag.targets)
    if not (named or done["count"] or args.failed):
        yield f"  the bag names no input files; if its program has changed all the same: windfall rerun {bag} --all"


def _left_alone(bag: int, source: str, done: RerunDone) -> Iterator[str]:
    """Yield in what the file differs from the bag, and what a rerun does not take over."""
    if done["kept"]:
        yield f"  not taken over from {source}: {', '.join(done['kept'])} (see: windfall policy {bag})"
    if done["new"]:
        yield (f"  {plural(done['new'], 'point')} of {source} are not in the bag; to add them: "
               f"windfall run {source} --extend {bag}")
    if done["gone"]:
        yield f"  {plural(done['gone'], 'task')} of the bag are not in {source} any more; they stay"


def _count(done: RerunDone, tasks: int, others: int, args: argparse.Namespace) -> str:
    count, verb = done["count"], "would run again" if args.dry_run else "to run again"
    if count:
        some = 0 < others < count and not _which(args)
        return (f"{count:,} of {plural(tasks, 'task')} {verb}"
                + (f" ({others:,} of them failed; --failed takes these alone)" if some else ""))
    looked_for = {"failed": "no task has failed", "changed": "nothing has changed"}.get(
        _which(args), "nothing has failed or changed")
    return f"no task {verb}: {looked_for}"


def _changes(done: RerunDone) -> Iterator[str]:
    several = len({each["target"] for each in done["changes"]}) > 1
    names = [(f"{each['target']}: " if several else "") + shown(each["what"]) for each in done["changes"]]
    for title, concerns in (("changed", True), ("changed, but no result depends on it", False)):
        some = [name for name, each in zip(names, done["changes"], strict=True) if each["concerns"] == concerns]
        rest = done["changed"] - SHOWN if concerns else 0
        if some:
            yield f"  {title}: {', '.join(some[:SHOWN])}" + (f" and {rest:,} more" if rest > 0 else "")


# --- an application, as a bag of its own ---------------------------------------------------------------------------


def _wanted(args: argparse.Namespace, client: Client) -> Parsed:
    from windfall.model.bagfile.reader import Parsed
    from windfall.workflow.build.streaming import whole

    if args.what.endswith(application.KINDS):
        return application.parsed(args, Path(args.what))
    bag = find_bag(client, args.what)
    return Parsed(whole(client.spec(bag), client.appended(bag))[0], {}, {})


def _done(client: Client, name: str) -> Done:
    """Return the tasks done by earlier bags of that name; where two bags did the same, the later one counts."""
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
