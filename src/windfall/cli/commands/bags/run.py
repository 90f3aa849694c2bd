"""`windfall run`: submit a bag, watch it, fetch its files, sum it up."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windfall.cli.commands.bags import policy
from windfall.cli.present.fetch_outputs import OutputPlace, Problems, add_files, bring, lines as home_lines
from windfall.cli.present.output import Bytes, counts_of, print_json, say
from windfall.cli.submission import arguments
from windfall.cli.submission.send_parts import Sent, feed, submit as send
from windfall.cli.watch import departure, detach_prompt, notify
from windfall.errors import BadInput, NoServer, NotFound, TimedOut, Unwritable
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.cli.connect import Session
    from windfall.cli.watch.dagman_run import After, Attendant
    from windfall.cli.watch.progress import Progress
    from windfall.model.bagfile.reader import Parsed

TAKES_VECTOR = True
EXAMPLES = """examples:
  windfall run sweep.toml
  windfall run 'prog --seed {x} > out-{x}.txt' --sweep x=1..100 --output 'out-{x}.txt'
  windfall run --sweep x=1..100 -- /bin/prog --seed {x}
  windfall run sweep.toml --extend sweep"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_arguments(parser)
    parser.add_argument("-o", dest="directory", metavar="DIR", help="where output files land (default: NAME.results)")
    add_files(parser)
    parser.add_argument("-n", "--dry-run", action="store_true", help="show the commands and the files; run nothing")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    departure.add_arguments(parser)
    notify.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    parsed = arguments.parsed(args)
    if args.dry_run:
        from windfall.cli.submission.dry_run import dry_run

        return dry_run(parsed, args.json, args.extend)
    if args.files:
        from windfall.client.files.places import check_template

        check_template(args.files, parsed.bag)
    started, whom, attendant = time.monotonic(), notify.wanted(args), getattr(args, "attendant", None)
    total = count(parsed)
    quiet = args.quiet or args.json
    directory = directory_of(args, parsed.bag.name) if any(t.outputs for t in parsed.bag.targets) else None
    if not quiet:
        say(f"{parsed.bag.name}: {plural(total, 'task')}")
    from windfall.cli.connect import Session
    from windfall.cli.watch.progress import Progress

    with Session(needs_pilot=True) as session:
        if args.extend:
            bag = _extend(session, parsed, args.extend, quiet)
        else:
            sent = submit(session, parsed)
            bag, parsed, total = sent.bag, sent.parsed, count_sent(sent, total, quiet)
        policy.warn_of(session.client, bag, parsed.bag.policy)
        progress = Progress(parsed.bag.name, total, quiet)
        if not args.extend:
            progress({"ready": total})  # the first news may take a while
            feed(session, sent, total, progress)
        home = Home(OutputPlace(directory, args.files, parsed.results) if directory else None, attendant)
        with departure.deadline(args.timeout):
            final = attend(session, bag, progress, directory, attendant)
            if attendant:
                final = _rounds(session, final, parsed, home, quiet)
                bag = final["bag"]
        _remember(session, bag, parsed)
        code = finish(session, final, started, home, args.json)
        notify.tell(whom, final)
        return code


def _rounds(session: Session, final: dict[str, Any], parsed: Parsed, home: Home, quiet: bool) -> dict[str, Any]:
    """Run the retries of a DAG that its attendant asks for, a bag each; return the last bag."""
    from windfall.cli.watch.progress import Progress

    attendant, directory = home.attendant, home.outputs.directory if home.outputs else None
    assert attendant is not None
    while more := attendant.again(session, final["bag"], parsed, directory or Path()):
        parsed = more
        final = attend(session, send(session, parsed).bag, Progress(parsed.bag.name, count(parsed), quiet), directory,
                       attendant)
    return final


def _remember(session: Session, bag: int, parsed: Parsed) -> None:
    if parsed.results is not None:
        from windfall.cli.submission.compile_cache import remember

        session.ask(lambda client: remember(client, bag, parsed))


def count(parsed: Parsed) -> int:
    from windfall.model.templates.render import source_count

    return sum(source_count(target.source) for target in parsed.bag.targets)


def count_sent(sent: Sent, wanted: int, quiet: bool) -> int:
    """Count the tasks of the submitted bag; say how many programs the cache has made unnecessary to compile."""
    total = count(sent.parsed)
    if total < wanted and not quiet:
        say(f"  {plural(wanted - total, 'program')} reused from the cache")
    return total


def directory_of(args: argparse.Namespace, name: str) -> Path:
    if getattr(args, "attendant", None) and not args.directory:
        return Path(args.attendant.graph.base)  # DAGMan leaves files there, and a rescue looks for them there
    if args.directory:
        return Path(args.directory)
    path = Path(re.sub(r"[/\0]+|^\.+", "_", name) + ".results")
    if path.is_symlink():  # it may have come with the files of somebody else, and lead anywhere
        raise BadInput(f"{path}, where the output files would go, is a link to {os.readlink(path)}",
                       f"-o {path} follows it; -o ELSEWHERE puts the files elsewhere")
    return path


def submit(session: Session, parsed: Parsed) -> Sent:
    """Submit a bag; of an application, without tasks whose programs the server has from an earlier compilation."""
    from windfall.cli.submission import compile_cache

    light = compile_cache.lighter(parsed) if parsed.results is not None else parsed
    if light is not parsed:
        try:
            return send(session, light)
        except BadInput as error:
            if not compile_cache.is_missing(error):
                raise
    return send(session, parsed)


def _extend(session: Session, parsed: Parsed, given: str, quiet: bool) -> int:
    bag, new = arguments.extended(session.client, parsed, given)
    if not quiet:
        say(f"  {new:,} of them new" if new else "  none of them is new")
    return bag


def attend(
    session: Session, bag: int, progress: Progress, directory: Path | None = None, attendant: Attendant | None = None
) -> dict[str, Any]:
    """Wait until the bag has ended.  On Ctrl-C, ask the user at the terminal what to do; without a terminal, detach."""
    while True:
        try:
            return _watched(session, bag, progress, attendant)
        except KeyboardInterrupt:
            session.reconnect()  # the old connection may be in the middle of an answer
            choice = detach_prompt.ask(bag) if detach_prompt.can_ask() and not progress.quiet else detach_prompt.DETACH
            if choice == detach_prompt.DETACH:
                _leave(session, bag, directory, attendant)
                raise
            if choice == detach_prompt.CANCEL:
                say(f"bag {bag}: {plural(session.client.cancel(bag), 'task')} cancelled")
        except TimedOut:
            session.reconnect()
            _leave(session, bag, directory, attendant)
            raise


def _leave(session: Session, bag: int, directory: Path | None, attendant: Attendant | None) -> None:
    """Say how to go on with a bag that is not watched any more, and what holds cores for it."""
    say(_interrupted(bag, directory, session.separate))
    if held := departure.holders(session):
        say(held)
    if attendant:
        attendant.interrupted(session, bag, directory)


def _watched(session: Session, bag: int, progress: Progress, attendant: Attendant | None) -> dict[str, Any]:
    from windfall.cli.watch.explain_line import Watchman

    watchman = Watchman(session, bag, progress)

    def look(counts: dict[str, int]) -> None:
        watchman(counts)
        if attendant:
            attendant.look(session, bag, counts)

    try:
        while True:
            try:
                return session.client.wait(bag, look)
            except NoServer:
                progress.finish()
                session.find_next_server()
    finally:
        watchman.stop()
        progress.finish()


def _interrupted(bag: int, directory: Path | None, separate: bool) -> str:
    goes_on = "it goes on without you" if separate else "it goes on when any 'windfall run' or 'wait' runs here"
    fetched = f" -o {directory}" if directory else ""
    return (
        f"bag {bag} is kept; {goes_on}. To stop it: windfall pause {bag}\n"
        f"  watch it: windfall wait {bag}{fetched}\n  give up:  windfall cancel {bag}"
    )


class Home(NamedTuple):
    """The end of a run: where output files land, if anywhere, and the attendant of a DAG."""

    outputs: OutputPlace | None
    attendant: Attendant | None = None
    fields: dict[str, Any] = {}  # noqa: RUF012  further ones of the JSON answer


class Outcome(NamedTuple):
    """The facts that a summary tells about a bag that has ended."""

    bag: dict[str, Any]
    elapsed: float  # s
    causes: list[dict[str, Any]]  # of failures
    directory: Path | None
    files: int  # in the directory now
    others: int  # in the directory, but not from this bag
    after: After | None


def finish(session: Session, bag: dict[str, Any], started: float | None, home: Home, as_json: bool) -> int:
    """Fetch the files, sum up, return the exit code.  Without `started`, time counts from the submission."""
    problems, place = Problems(), home.outputs
    files, others, unwritable = _fetch(session, bag["bag"], place, problems) if place else (0, 0, None)
    directory = place.directory if place else None
    elapsed = (bag["ended"] - bag["submitted"]) / 1000 if started is None else time.monotonic() - started
    tasks, succeeded, failed, _ = counts_of(bag)
    causes = session.ask(lambda client: client.failures(bag["bag"])) if failed else []
    after = home.attendant.after(session, bag, directory or Path()) if home.attendant else None
    outcome = Outcome(bag=bag, elapsed=elapsed, causes=causes, directory=directory, files=files, others=others,
                      after=after)  # fmt: skip
    if as_json:
        print_json({**_as_json(outcome), **home.fields})
    else:
        _tell(session, outcome)
    problems.tell()
    if unwritable:
        say(f"windfall: {unwritable}")
        return unwritable.exit_code
    return 1 if problems.count else after.code if after else int(succeeded != tasks)


def _fetch(
    session: Session, bag: int, place: OutputPlace, problems: Problems
) -> tuple[int, int, Unwritable | None]:
    """Fetch the bag's files: count them and the directory's other files, or return why nothing can be written."""
    try:
        return *session.ask(lambda client: bring(client, bag, place, problems)), None
    except Unwritable as error:
        return 0, 0, error


def _as_json(outcome: Outcome) -> dict[str, Any]:
    from windfall.cli.present import summary

    bag = outcome.bag
    tasks, succeeded, failed, cancelled = counts_of(bag)
    return {
        "bag": bag["bag"],
        "name": bag["name"],
        "state": bag["state"],
        "tasks": tasks,
        "succeeded": succeeded,
        "failed": failed,
        "cancelled": cancelled,
        "elapsed": round(outcome.elapsed, 3),
        "files": outcome.files,
        "directory": str(outcome.directory) if outcome.files else None,
        "other_files": outcome.others,
        "causes": summary.as_json(outcome.causes, bag["bag"]),
        **(outcome.after.fields if outcome.after else {}),
    }


def _tell(session: Session, outcome: Outcome) -> None:
    from windfall.cli.present import summary
    from windfall.cli.present.task_logs import FEW, print_few

    bag, directory = outcome.bag, outcome.directory
    tasks, succeeded, _, _ = counts_of(bag)
    if tasks == 1:
        _show_output(session, bag["bag"])
    elif tasks <= FEW:
        session.ask(lambda client: print_few(client, bag["bag"]))
    for line in summary.lines(bag, int(outcome.elapsed * 1000), outcome.causes):
        say(line)
    for line in home_lines(directory, outcome.files, outcome.others) if directory else ():
        say(line)
    for line in outcome.after.lines if outcome.after else ():
        say(line)
    if not outcome.files and tasks > 1 and succeeded:
        say(f"  table: windfall results {bag['bag']}")


def _show_output(session: Session, bag: int) -> None:
    """Print the output of a bag's only task."""
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        try:
            # the server bounds the size of what it keeps
            data = session.ask(lambda client, name=name: b"".join(client.log(bag, 0, name)))
        except NotFound:
            return  # the task was cancelled before it ran
        Bytes(stream).write(data, final=True)
