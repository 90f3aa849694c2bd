"""`windfall completion SHELL`: print a script for the shell, which calls `windfall completion words` while one types.

Commands, options and choices come from the parsers, bags from a server that runs; completion starts no server.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from windfall.cli.present.output import print_json
from windfall.errors import BadInput, WindfallError

TAKES_VECTOR = True
EXAMPLES = """examples:
  eval "$(windfall completion bash)"                          in ~/.bashrc
  windfall completion zsh > "${fpath[1]}/_windfall"
  windfall completion fish > ~/.config/fish/completions/windfall.fish"""

BASH = """\
_windfall() {
    local IFS=$'\\n'
    COMPREPLY=($(windfall completion words "$COMP_CWORD" -- "${COMP_WORDS[@]}" 2>/dev/null))
}
complete -o default -o bashdefault -F _windfall windfall
"""
ZSH = """\
#compdef windfall
_windfall() {
    local -a found
    found=("${(@f)$(windfall completion words $((CURRENT - 1)) -- "${words[@]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
if [ "$funcstack[1]" = "_windfall" ]; then _windfall "$@"; else compdef _windfall windfall; fi
"""
FISH = """\
function __windfall_words
    set -l before (commandline -opc)
    windfall completion words (count $before) -- $before (commandline -ct) 2>/dev/null
end
complete -c windfall -a '(__windfall_words)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
MOST_BAGS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=(*SCRIPTS, "words"), help="the shell; 'words' is for the scripts themselves")
    parser.add_argument("index", nargs="?", type=int, help="with 'words': index of the word being typed")


def execute(args: argparse.Namespace) -> int:
    if args.shell != "words":
        if args.vector is not None or args.index is not None:
            raise BadInput(f"'windfall completion {args.shell}' takes no further argument")
        if args.json:
            print_json({"script": SCRIPTS[args.shell]})
        else:
            print(SCRIPTS[args.shell], end="")
        return 0
    typed = list(args.vector or [])
    index = len(typed) if args.index is None else args.index
    words = sorted(set(candidates(typed[1:index], typed[index] if index < len(typed) else "")))
    if args.json:
        print_json(words)
    else:
        print("\n".join(words))
    return 0


def candidates(before: list[str], current: str) -> Iterable[str]:
    """Return the words that may follow `before`; none where a file may."""
    from windfall.cli.main import COMMANDS

    if not before:
        found: Iterable[str] = [*COMMANDS, "help"]
    elif before[0] == "help":
        found = COMMANDS
    elif before[0] in COMMANDS and before[0] != "pilot" and "--" not in before:
        found = _of_command(before[0], before[1:], current)
    else:
        return []
    return [word for word in found if word.startswith(current)]


def _of_command(command: str, before: list[str], current: str) -> Iterable[str]:
    from windfall.cli.main import module_of
    from windfall.cli.parser import make

    parser = make(command, "x")
    module_of(command).add_arguments(parser)
    options = {name: action for action in parser._actions for name in action.option_strings}
    if before and before[-1] in options and options[before[-1]].nargs != 0:
        return map(str, options[before[-1]].choices or ())
    if current.startswith("-"):
        return [name for name, action in options.items() if action.help != argparse.SUPPRESS]
    action = _positional(parser, options, before)
    return [] if action is None else _words_for(command, action)


def _words_for(command: str, action: argparse.Action) -> Iterable[str]:
    if command == "site" and action.dest == "name":
        return _sites()
    return _bags() if action.dest in ("bag", "bags") else map(str, action.choices or ())


def _positional(
    parser: argparse.ArgumentParser, options: dict[str, argparse.Action], before: list[str]
) -> argparse.Action | None:
    """Return the positional argument that comes next."""
    given = 0
    is_value = False
    for word in before:
        if is_value:
            is_value = False
        elif word in options:
            is_value = options[word].nargs != 0
        elif not word.startswith("-"):
            given += 1
    actions = [action for action in parser._actions if not action.option_strings]
    if actions and given >= len(actions) and actions[-1].nargs in ("*", "+"):
        return actions[-1]
    return actions[given] if given < len(actions) else None


def _sites() -> list[str]:
    """Return the names of sites, from their files."""
    from windfall.client.profile import home

    return [path.stem for path in (home() / "sites").glob("*.toml") if _plain(path.stem)]


def _plain(name: str) -> bool:
    """Is the name one word to a shell, and no option to the command?"""
    return name.replace("-", "").replace("_", "").isalnum() and not name.startswith("-")


def _bags() -> list[str]:
    from windfall.client.client import Client
    from windfall.client.session import live_profile

    try:
        profile = live_profile()
        if profile is None:
            return []
        with Client(profile, patience=0) as client:
            latest = sorted(client.bags(), key=lambda bag: -bag["bag"])[:MOST_BAGS]
    except WindfallError:
        return []
    names = [bag["name"] for bag in latest if _plain(bag["name"])]
    return [str(bag["bag"]) for bag in latest] + names
