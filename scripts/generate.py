"""Make pages from the code: the lifecycle, the command line, the scenario, the policies, the manual pages, and the
JSON schema of the bag file.

    pages() → {path below the checkout: text}
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from windfall import __version__
from windfall.cli.commands.sites.pilot import usage
from windfall.cli.main import COMMANDS, module_of
from windfall.cli.parser import make
from windfall.core.decide.grant.host_orders import TIMED_AT_ONCE
from windfall.core.messages import lifecycle
from windfall.model.bagfile.editor_schema import bag_schema
from windfall.model.checks.patterns import SHORT
from windfall.model.policies import attributes, expressions, language
from windfall.sim import scenario_words
from windfall.sim.models.laws import KINDS

ROOT = Path(__file__).resolve().parents[1]
NOTE = "<!-- Made by scripts/docs from {}; changes here are lost. -->\n\n"

LIVES = """# The lives of tasks, attempts, pilots and intents

These diagrams are drawn from the tables that the server itself uses. Every move of a task, an attempt or a pilot is
one of these arrows.

A task and its attempts have states of their own. The server may give an attempt up as *lost* while its task goes to
another pilot, and the lost attempt may still bring the result home: the first valid success of a generation counts,
however late ([verdicts](../explanation/verdicts.md)).

## Tasks
{tasks}
*Succeeded, failed, cancelled* and *quarantined* end a generation. A retry or a rerun by the user starts the next
one; the server records results of older generations, and they change nothing. *Validating* is for results that
others must confirm; no code uses it yet.

## Attempts
{attempts}
*Free* is the absence of an attempt: its row in the table of attempts can be used again, under a new number.

An attempt ends in one of these outcomes, and only *failed* costs the task anything:

| outcome | meaning |
|---|---|
{outcomes}

## Pilots
{pilots}
A pilot that enrols again under the same nonce is a new epoch. The older epoch may still report, so no finished work is
lost, but it gets no more grants.

## Intents
{intents}
Windfall submits no job without an intent on the disk; the intent's nonce is the job's name in the batch system, so that
a restart finds the job again. Intended, queued, running and stopping intents count against a site's limits, and reserve
the worst case of its budget until they end.
"""

MEANINGS = {
    "succeeded": "it ended as the bag's `[check]` asks for",
    "failed": "bad exit, failed check, or a limit; counts against `retries`, a time limit against a counter of its own",
    "cancelled": "the user, or the end of its task by another attempt, stopped it",
    "returned": "the pilot gave it back: it had to leave, had not started the task, or was asked to return it",
    "lost": "the server gave it up on evidence or after long silence; never guessed into a success",
}


def _diagram(names: tuple[str, ...], moves: tuple[tuple[int, int, str], ...]) -> str:
    return f"```mermaid\n{lifecycle.mermaid(names, moves)}\n```\n"


def lives() -> str:
    return NOTE.format("src/windfall/core/messages/lifecycle.py") + LIVES.format(
        tasks=_diagram(lifecycle.TASK_STATES, lifecycle.TASK_MOVES),
        attempts=_diagram(lifecycle.ATTEMPT_STATES, lifecycle.ATTEMPT_MOVES),
        pilots=_diagram(lifecycle.PILOT_STATES, lifecycle.PILOT_MOVES),
        intents=_diagram(lifecycle.INTENT_STATES, lifecycle.INTENT_MOVES),
        outcomes="\n".join(f"| {name} | {MEANINGS[name]} |" for name in lifecycle.OUTCOMES),
    )


HEAD = """# The command line

`windfall help` lists the commands, `windfall COMMAND --help` the options of a command. Every command but `pilot` takes
`--json`.

**Exit codes**: 0 all is well, and for `run` and `wait` every task succeeded; 1 some tasks did not, or `logs` found a
task that never ran; 2 bad input, and a bag or task that does not exist, be it named or numbered; 3 no server, or it
refused, or cannot use its disk; 70 the server ended because of an error of its own; 124 `--timeout` has passed; 130
interrupted.

**Which server?** A command uses the server that the file named by `WINDFALL_SERVER_FILE` describes; else the server
running in `WINDFALL_HOME` (default: `~/.local/share/windfall`); else the command starts a server inside itself, on the
data of that home, for as long as it runs. When another command's embedded server ends, a `run` or `wait` that used it
takes over; both wait for a server started with `windfall serve`, and never replace it.

**Units**: in CSV and JSON times are in milliseconds (moments since 1970), sizes in bytes; `elapsed` of `run --json` and
`wait --json` is in seconds. **Parameters** are in `params` in JSON; in CSV and in the table each has a column, called
`param_NAME` where a column of that name exists already: `param_task` for a parameter `task`.

`WINDFALL_DEBUG=1` shows where an unexpected error came from.

"""


def command_line() -> str:
    return NOTE.format("src/windfall/cli") + HEAD + "\n".join(_command(name, text) for name, text in COMMANDS.items())


def _command(name: str, text: str) -> str:
    lines = [f"## windfall {name}", text[0].upper() + text[1:] + ".", ""]
    if name == "pilot":
        return "\n".join([*lines, "```text", usage().rstrip(), "```", ""])
    module = module_of(name)
    parser = make(name, text)
    module.add_arguments(parser)
    lines += ["| argument | |", "|---|---|"]
    shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    actions = [action for action in shown if "--help" not in action.option_strings]
    lines += [f"| {_shown(action)} | {_escaped(action)} |" for action in actions]
    examples = getattr(module, "EXAMPLES", "").splitlines()[1:]
    if examples:
        lines += ["", "```sh", *(line.strip() for line in examples), "```"]
    return "\n".join([*lines, ""])


def _shown(action: argparse.Action) -> str:
    if not action.option_strings:
        name = str(action.metavar or action.dest)
        if action.choices:
            name = "|".join(map(str, action.choices))
        return f"`{name}`".replace("|", "\\|") + (" (may be left out)" if action.nargs in ("?", "*") else "")
    value = str(action.metavar or "|".join(map(str, action.choices or [action.dest.upper()])))
    value = "" if action.nargs == 0 else " " + value
    return ", ".join(f"`{option}{value}`" for option in action.option_strings).replace("|", "\\|")


def _escaped(action: argparse.Action) -> str:
    return (action.help or "").replace("|", "\\|").replace("<", "&lt;")


# --- manual pages ---------------------------------------------------------------------------------------------

ROFF = """.\\" Made by scripts/docs from src/windfall/cli; changes here are lost.
.TH {title} 1 "" "Windfall {version}" "Windfall"
.SH NAME
{name} \\- {says}
"""


def manual() -> dict[str, str]:
    """Return windfall.1, and one page for each command, by file name."""
    found = {"windfall.1": _overview()}
    for name, text in COMMANDS.items():
        title, page = f"WINDFALL-{name.upper()}", f"windfall-{name}"
        head = ROFF.format(title=title, version=__version__, name=page, says=_roff(text))
        found[f"windfall-{name}.1"] = head + (_pilot_page() if name == "pilot" else _command_page(name, text))
    return found


def _overview() -> str:
    head = ROFF.format(title="WINDFALL", version=__version__, name="windfall",
                       says="one queue in front of every machine you can log in to")
    lines = [".SH SYNOPSIS", ".B windfall", ".I COMMAND", "[options]", ".SH COMMANDS"]
    for name, text in COMMANDS.items():
        lines += [".TP", f".BR windfall-{name} (1)", _roff(text[0].upper() + text[1:] + ".")]
    lines += [".SH EXIT STATUS", "0 all is well; 1 some tasks did not succeed; 2 bad input;",
              "3 no server, or it refused, or cannot use its disk; 70 an error in the server; 130 interrupted.",
              ".SH ENVIRONMENT", ".TP", ".B WINDFALL_HOME", "where data lies", ".TP",
              ".B WINDFALL_SERVER_FILE", "a file that describes the server to use", ".TP", ".B WINDFALL_NOTIFY",
              "whom to tell when a bag has ended", ".TP", ".B NO_COLOR", "no colours"]
    return head + "\n".join(lines) + "\n"


def _pilot_page() -> str:
    return ".SH SYNOPSIS\n.nf\n" + _roff(usage().rstrip()) + "\n.fi\n"


def _command_page(name: str, text: str) -> str:
    module = module_of(name)
    parser = make(name, text)
    module.add_arguments(parser)
    positional = [a for a in parser._actions if not a.option_strings]
    words = [f"[{_word(a)}]" if a.nargs in ("?", "*") else _word(a) for a in positional]
    lines = [".SH SYNOPSIS", f".B windfall {name}", _roff(" ".join(["[options]", *words])), ".SH OPTIONS"]
    for action in parser._actions:
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            lines += [".TP", ".B " + _roff(_heading(action)), _roff(action.help or "")]
    examples = getattr(module, "EXAMPLES", "").splitlines()[1:]
    if examples:
        lines += [".SH EXAMPLES", ".nf", *(_roff(line.strip()) for line in examples), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR windfall (1)"]) + "\n"


def _word(action: argparse.Action) -> str:
    return "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest)


def _heading(action: argparse.Action) -> str:
    if not action.option_strings:
        return _word(action)
    value = str(action.metavar or "|".join(map(str, action.choices or [action.dest])))
    value = "" if action.nargs == 0 else " " + value
    return ", ".join(option + value for option in action.option_strings)


def _roff(text: str) -> str:
    """Return a text that roff shows as it is: roff takes no line of it for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("%%", "%")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.split("\n"))


# --- the scenario -------------------------------------------------------------------------------------------------

SCENARIO = """# The scenario

TOML, for `windfall simulate`: a world of sites, hosts and bags. An unknown key is an error that names the nearest known
key; every error names file, line and remedy. Sizes and durations are written as in a [bag file](bag-file.md). At most
{tasks:,} tasks, {hosts:,} hosts and {processors:,} processors of a site are simulated.

A **law** describes random values: {laws}.
A plain value is a constant. Scales have the unit of the values, as in `weibull(0.45, 4.16h)`; shapes and the deviation
of a lognormal are plain numbers. No law draws a negative value.

Each bag and each group of hosts draws from a generator of its own, made from the seed and its name: two scenarios that
differ only in a policy have the same tasks on the same hosts.

How to use it: [Simulating](../howto/simulate.md).
"""
ROW = "| `{}` | {} | {} |"


def scenario() -> str:
    laws = ", ".join(f"`{name}({', '.join(each for each, _ in kind.arguments)})`" for name, kind in KINDS.items())
    head = SCENARIO.format(tasks=scenario_words.MAX_TASKS, hosts=scenario_words.MAX_HOSTS, laws=laws,
                           processors=scenario_words.MAX_PROCESSORS)
    parts = [NOTE.format("src/windfall/sim/scenario_words.py") + head]
    for name, words in scenario_words.TABLES.items():
        rows = [ROW.format(key, word.says, f"`{word.default}`" if word.default else "") for key, word in words.items()]
        title = f"## [{name}]" if name else "## At the top"
        parts.append("\n".join([title, "| key | | default |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


# --- attributes -----------------------------------------------------------------------------------------------------

POLICIES = """# Policies as expressions

A policy of a bag may be an expression in the ClassAd language of HTCondor. The expression uses attributes of the
host that asks, the task, the bag and so on, and its value is true or false, or a number. `windfall policy --check
'EXPRESSION'` says whether Windfall can read an expression, and which type its value has; `windfall policy
--attributes` lists the attributes.

| policy | value | says | may use | called in GridBot |
|---|---|---|---|---|
{kinds}

Instead of an expression, `replicate` takes one of its [presets](../explanation/replicas.md), `attempt-deadline` a
duration such as `30min`, and `rank`, `per-host` and `attempt-deadline` a number.

**The language.** `||  &&  !`, `==  !=  <  <=  >  >=`, `+  -  *  /  %`, `condition ? one : other`, texts in
double quotes, lists in braces, `true`, `false`, `undefined`, `error`. `==` compares texts without regard to
case, `=?=` and `=!=` (or `is` and `isnt`) compare exactly and are never undefined. Names and words have no
fixed case.

**Three values, and errors.** An unknown attribute is *undefined*, and so is an expression that depends on it:
`Host.ErrorRate < 0.1` at a host that has run nothing. `undefined || true` is true, `undefined && false` is
false. Nonsense such as `1/0` is an *error*. `requirements` and `sites` that are undefined, or an error, match no host;
`Host.ErrorRate is undefined || Host.ErrorRate < 0.1` gives new hosts a chance. Such a `replicate` asks for no replica,
such a `per-host` or `attempt-deadline` sets no limit, and such a `rank` counts as 0. `windfall explain` says which part
failed, and at which value.

**Bounds.** {length:,} bytes, {nesting} levels of nesting, {chain} operators, {calls}
calls of functions, {patterns} of them with patterns, {listed} members of lists; where an expression uses tasks,
a million characters times the bag's targets. A pattern of `regexp` is a literal text of at most {pattern}
characters, repeats single characters or classes only, is looked for in one attribute, and becomes an error after
{steps:,} steps. Expressions have no clock and no random numbers: `Now` is the time.

**Among several.** `rank` orders the bags of one owner, and moves none of them before another owner's. `requirements`
and `sites` hold for replicas, too.

**Changes.** `windfall policy BAG KEY='EXPRESSION'` changes an expression. The change counts for later grants; running
tasks, and tasks that a pilot holds already, go on. A key with nothing behind the `=` removes its expression;
`replicate=` means `none`.

**When values change.** The server takes up what it has learnt of a host once a minute, the host's load and the bag's
numbers whenever the host asks, and `Now` and other times once a second. With {timed} bags that use times, or more, the
server takes these up less often: once in as many seconds as there are times {timed} such bags.

## Functions
| function | |
|---|---|
{functions}

{ads}
## Figure 3 of GridBot, corrected
The printed figure lacks a sign, has a pattern that reads as a comment, and has the arguments of `regexp` the other
way round. Its meaning:

```text
JobRequirements         = !Tail ? true : regexp("myhost", Host.Name) && Host.ErrorRate < 0.1
Rank                    = !Tail ? 1 : Host.JobsToday
ReplicationRequirements = NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1
Concurrency             = 2 * Host.NumCpus
Deadline                = Concurrency * 2000
```
Before the tail the bag runs anywhere; in the tail it runs on hosts called *myhost* that rarely fail, and prefers those
that did much today. A task has one more replica if the first is on a host that fails often. A host gets two tasks per
core, and an attempt has 2,000 s for each task that the host may hold.
"""


def policies() -> str:
    kinds = [f"| `{key}` | {language.NAMES[kind.type]} | {kind.says} | {', '.join(kind.scopes)} | `{kind.alias}` |"
             for key, kind in expressions.KINDS.items()]
    functions = [f"| `{name}` | {function.says} |" for name, function in language.FUNCTIONS.items()]
    tables = [_ad(f"{scope}: {attributes.SAYS[scope]}", f"{scope}.", table) for scope, table in attributes.ADS.items()]
    tables += [_ad("Replicas: of `Task.Replica1` to `Task.Replica16`, beside their hosts", "", attributes.REPLICA),
               _ad("On their own", "", attributes.LONE)]
    return NOTE.format("src/windfall/model/policies/attributes.py, expressions.py and language.py") + POLICIES.format(
        kinds="\n".join(kinds), functions="\n".join(functions), ads="\n".join(tables),
        length=expressions.MAX_LENGTH, nesting=expressions.MAX_NESTING, chain=expressions.MAX_CHAIN, pattern=SHORT,
        calls=expressions.MAX_CALLS, patterns=expressions.MAX_PATTERNS,
        steps=expressions.STEPS, listed=expressions.MAX_LISTED, timed=TIMED_AT_ONCE)


def _ad(title: str, prefix: str, table: tuple[attributes.Attribute, ...]) -> str:
    rows = [f"| `{prefix}{each.name}` | {each.type} | {each.says} | {each.by} | {', '.join(each.aliases)} |"
            for each in table]
    return "\n".join([f"## {title}", "| attribute | type | | known by | also |", "|---|---|---|---|---|", *rows, ""])


def pages() -> dict[str, str]:
    schema = json.dumps(bag_schema(), indent=1, ensure_ascii=False) + "\n"
    return {
        "docs/reference/lifecycle.md": lives(),
        "docs/reference/command-line.md": command_line(),
        "docs/reference/scenario.md": scenario(),
        "docs/reference/policies.md": policies(),
        "docs/reference/bag.schema.json": schema,
        **{f"share/man/man1/{name}": text for name, text in manual().items()},
    }


def main(arguments: list[str]) -> int:
    stale = []
    for name, text in pages().items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in arguments:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    if stale:
        print("stale:" if "--check" in arguments else "written:", *stale)
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
