"""Run `windfall COMMAND …`: import the command's module, call it, turn every error into a sentence and an exit code.

Exit codes: 0 all tasks succeeded, 1 some failed, 2 bad input (also: no such bag or task), 3 no server answered or the
server refused or cannot use its disk, 70 the server ended because of an error of its own, 124 `--timeout`
passed, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from types import ModuleType

from windfall.errors import NotFound, Unwritable, WindfallError

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM)

COMMANDS = {
    "run": "submit a bag, watch it, fetch its results; needs no server",
    "submit": "submit a bag and return at once",
    "ls": "list bags",
    "show": "show a bag, or one of its tasks",
    "wait": "wait for a bag, with a progress bar",
    "results": "show one row per ended task: table, CSV, JSON or Parquet",
    "logs": "show what a task wrote",
    "explain": "say why a bag, or a task, is not running",
    "policy": "show or change a bag's policies; check expressions; list hosts as expressions see them",
    "cancel": "cancel a bag, or some of its tasks",
    "retry": "run failed tasks again",
    "rerun": "run a workflow again, but only tasks that failed or changed",
    "pause": "start no more tasks of a bag",
    "unpause": "start tasks of a paused bag again",
    "rm": "remove bags that have ended, with their results",
    "serve": "run a server",
    "provision": "start pilots at your sites for a server that runs elsewhere",
    "pilot": "run a pilot, which offers this machine's cores to a server",
    "site": "add, list, test and share the sites where pilots can be started",
    "doctor": "check the data of a server, and mend what is damaged",
    "login": "use a server that runs elsewhere",
    "user": "add, list, limit and remove users of this server",
    "token": "make, list and revoke tokens",
    "compile": "check an application in YvetteML, and show what it needs",
    "graph": "draw an application in YvetteML: DOT, SVG, PNG",
    "component": "add, list, show or remove components of your catalogue",
    "simulate": "run a scenario, or a log of jobs, in virtual time",
    "experiment": "run one of the papers' studies, and compare its numbers with ours",
    "completion": "print a script that completes commands, options and bags in your shell",
}

FOLDERS = {
    "bags": ("run", "submit", "ls", "show", "wait", "results", "logs", "explain", "policy", "cancel", "retry", "rerun",
             "pause", "unpause", "rm"),
    "sites": ("site", "provision", "pilot"),
    "server": ("serve", "doctor", "login", "user", "token"),
    "workflows": ("compile", "graph", "component"),
    "studies": ("simulate", "experiment"),
}  # fmt: skip
_MODULES = {name: f"{folder}.{name}" for folder, names in FOLDERS.items() for name in names}


def module_of(command: str) -> ModuleType:
    """Import and return the module of a command of COMMANDS."""
    from importlib import import_module

    return import_module(f"windfall.cli.commands.{_MODULES.get(command, command)}")


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return _guarded(arguments)
    except BrokenPipeError:
        _discard_output()
        return 141
    except KeyboardInterrupt:
        return 130


def _guarded(arguments: list[str]) -> int:
    try:
        code = dispatch(arguments)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except WindfallError as error:
        if os.environ.get("WINDFALL_DEBUG"):
            raise
        return complain(error, "--json" in arguments)
    except Exception as error:
        if os.environ.get("WINDFALL_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            return _unwritable(error)
        print(
            f"windfall: internal error: {type(error).__name__}: {error}\n"
            "  hint: please report this; WINDFALL_DEBUG=1 shows where it happened",
            file=sys.stderr,
        )
        return 1


def _unwritable(error: OSError) -> int:
    where = f" {error.filename}" if error.filename else ""
    _discard_output()
    return complain(Unwritable(f"cannot write{where}: {error.strerror}",
                               "free space or get permission there, or write elsewhere"))


def dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return _help(arguments[1:] if arguments[:1] == ["help"] else [])
    if arguments[0] in ("-V", "--version", "version"):
        from windfall import __version__

        print(f"windfall {__version__}")
        return 0
    return _run(arguments[0], arguments[1:])


def _run(command: str, rest: list[str]) -> int:
    if command not in COMMANDS:
        raise _unknown(command)
    module = module_of(command)
    if command == "pilot":
        return int(module.execute(rest))  # the zipapp, too, parses these
    from windfall.cli.parser import make

    parser = make(command, COMMANDS[command], getattr(module, "EXAMPLES", ""))
    module.add_arguments(parser)
    vector = None
    if "--" in rest:
        at = rest.index("--")
        rest, vector = rest[:at], rest[at + 1 :]
    anywhere = getattr(module, "WORDS_ANYWHERE", False)  # options may stand between the words
    args = parser.parse_intermixed_args(rest) if anywhere else parser.parse_args(rest)
    args.vector = vector
    if vector is not None and not getattr(module, "TAKES_VECTOR", False):
        parser.error(f"'windfall {command}' takes no command after '--'")
    if sys.stdout.isatty():
        from windfall.cli.present.output import Screen

        sys.stdout = Screen(sys.stdout)
    return int(module.execute(args))


def _unknown(command: str) -> WindfallError:
    from difflib import get_close_matches

    from windfall.errors import BadInput

    near = get_close_matches(command, COMMANDS, 1)
    hint = f"did you mean 'windfall {near[0]}'?" if near else "'windfall help' lists the commands"
    if command.endswith(".toml"):
        hint = f"did you mean 'windfall run {command}'?"
    return BadInput(f"there is no command '{command}'", hint)


def _help(about: list[str]) -> int:
    if about:
        return _run(about[0], ["--help"])
    width = max(map(len, COMMANDS))
    print(
        "Windfall: one queue in front of every machine you can log in to.\n\n"
        "  windfall run BAG.toml\n"
        "  windfall run 'prog --seed {x}' --sweep x=1..100\n\nCommands:"
    )
    for name, text in COMMANDS.items():
        print(f"  {name:{width}}  {text}")
    print("\n'windfall COMMAND --help' says more.  Every command but pilot takes --json.")
    return 0


def complain(error: WindfallError, as_json: bool = False) -> int:
    if as_json:
        import json

        print(json.dumps(error.to_wire()))
    from windfall.cli.present.output import harmless

    print(harmless(f"windfall: {error}"), file=sys.stderr)
    return 2 if isinstance(error, NotFound) else error.exit_code


def _discard_output() -> None:
    """Send further output to /dev/null: its reader is gone, and the interpreter's flush at exit must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
