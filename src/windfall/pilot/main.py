"""Command line of the pilot: `python windfall-pilot.pyz --ticket FILE [options]`.

This module parses the arguments itself: importing argparse would take a sixth of the time until the first task.
"""

import os
import sys

from windfall.errors import BadInput, WindfallError

USAGE = """usage: windfall-pilot --ticket FILE [options]
  --ticket FILE        the server's address and the pilot's token (a file of mode 0600)
  --cores N            cores for tasks (default: all that this process may use)
  --memory BYTES       memory for tasks (default: the host's, or the limit of its control group)
  --gpus N             GPUs for tasks (default: all visible ones)
  --walltime SECONDS   time until the allocation ends
  --dir DIR            directory for scratch, cache and outbox (default: a new one in TMPDIR)
  --outbox DIR         directory for results that could not be delivered (default: DIR/outbox)
  --idle SECONDS       leave after this long without work (default: as the server says)
  --quiet              write nothing but errors
or:    windfall-pilot relay --folder DIR [--listen ADDRESS] [--port N] [--spool] [--no-network]
  on a head node: carry the pilots' connections to the server through stdin and stdout
or:    windfall-pilot reach --ticket FILE
  test which of the ticket's routes lead to the server from here
or:    windfall-pilot salvage --ticket FILE --outbox DIR --nonce NONCE [--nonce NONCE ...]
  deliver the results that these pilots left, and count them
"""

_OPTIONS = {"ticket": str, "cores": int, "memory": int, "gpus": int, "walltime": float, "dir": str, "outbox": str,
            "idle": float}


class Options:
    def __init__(self):
        self.ticket = self.cores = self.memory = self.gpus = self.walltime = self.dir = self.outbox = None
        self.idle = None
        self.quiet = False


def parse(argv):
    options = Options()
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--quiet":
            options.quiet = True
            continue
        kind = _OPTIONS.get(name[2:]) if name.startswith("--") else None
        if kind is None:
            raise _unknown(name)
        if not equals:
            if not rest:
                raise BadInput("{} needs a value".format(name))
            value = rest.pop(0)
        setattr(options, name[2:], _convert(name, kind, value))
    _validate(options)
    return options


def _unknown(name):
    from difflib import get_close_matches

    near = get_close_matches(name[:200], ["--" + option for option in [*_OPTIONS, "quiet", "help", "save"]], 1)
    hint = "did you mean {}?".format(near[0]) if near else "--help lists the options"
    return BadInput("there is no option {}".format(name), hint)


def _convert(name, kind, value):
    try:
        result = kind(value)
    except ValueError:
        raise BadInput("{} needs a number, not {!r}".format(name, value))
    if kind is not str and not 0 <= result < 1 << 62:
        raise BadInput("{} must be 0 or more and less than 2^62, not {}".format(name, value))
    return result


def _validate(options):
    if not options.ticket:
        raise BadInput("--ticket is missing", "see --help")
    if options.cores == 0:
        raise BadInput("--cores must be 1 or more, not 0")


def main(argv=None):
    """Run the pilot; return 0 (all delivered), 2 (bad input) or 3 (refused, unreachable, or results undelivered)."""
    argv = sys.argv[1:] if argv is None else argv
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(USAGE)
        return 0
    if argv and argv[0] in ("relay", "reach", "salvage"):
        return _subcommand(argv[0])(argv[1:])
    try:
        return _run(parse(argv))
    except WindfallError as error:
        sys.stderr.write("windfall-pilot: {}\n".format(error))
        return error.exit_code


def _subcommand(name):
    """Return the main function of a subcommand; import no other one."""
    if name == "relay":
        from windfall.pilot.net.relay import main as function
    elif name == "salvage":
        from windfall.pilot.files.salvage import main as function
    else:
        from windfall.pilot.net.reach import main as function
    return function


def _run(options):
    from windfall.pilot import guardian, ticket as tickets
    from windfall.pilot.files.folders import Folders
    ticket = tickets.read(options.ticket)
    folders = Folders(options.dir, options.outbox)
    mark = os.urandom(8).hex()
    return guardian.watch_over(lambda guard: _agent(options, ticket, folders, mark, guard), mark, folders.clear)


def _agent(options, ticket, folders, mark, guard):
    from windfall.pilot.agent import Agent
    try:
        return Agent(options, ticket, folders, mark, guard).run()
    except WindfallError as error:
        sys.stderr.write("windfall-pilot: {}\n".format(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
