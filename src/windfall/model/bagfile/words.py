"""The keys of a bag file's tables: how the parser reads each, and what an editor shows for it.

The parser (`reader.py`) and the JSON schema for editors (`editor_schema.py`) use the same tables, so neither knows a
key that the other does not.  A reading function takes a value and its key; it returns the value for the records, or
raises BadInput.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from windfall.errors import BadInput
from windfall.model import units
from windfall.model.checks import bag
from windfall.model.policies import replica_caps
from windfall.model.policies.attributes import NUMBER
from windfall.model.policies.expressions import KINDS, MAX_LENGTH
from windfall.model.spec import MAX_BATCH, MAX_TIME_RETRIES, Policy
from windfall.model.suggest import nearest
from windfall.model.templates import template as tpl


class KeySpec(NamedTuple):
    read: Callable[[Any, str], Any]
    schema: dict[str, Any]
    says: str


# --- kinds of value --------------------------------------------------------------------------------------------


def wrong(key: str, value: object, wanted: str, hint: str = "") -> BadInput:
    shown = tpl.excerpt(repr(value) if isinstance(value, str) else str(value), 60)
    return BadInput(f"{key} must be {wanted}, not {shown}", hint)


def string(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise wrong(key, value, "a text")
    return value


def strings(value: object, key: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise wrong(key, value, "a list of texts")
    return value


def command(value: object, key: str) -> str | list[str]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise wrong(key, value, "a text or a list of texts")
    return value


def flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(key, value, "true or false")
    return value


def integer(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(key, value, "a whole number")
    return value


def whole(value: object, key: str) -> int:
    if integer(value, key) < 0:
        raise wrong(key, value, "0 or more")
    return integer(value, key)


def count(value: object, key: str) -> int:
    if integer(value, key) < 1:
        raise wrong(key, value, "1 or more")
    return integer(value, key)


def cost(value: object, key: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return string(value, key)


def paths(value: object, key: str) -> list[str]:
    """Read paths of files in the task's directory, which may contain parameters."""
    found = strings(value, key)
    for path in found:
        if path.rstrip().endswith("@stay"):
            raise BadInput(
                f"{key}: files cannot be left in place yet",
                "leave '@stay' out: the pilot uploads all outputs",
                text=tpl.excerpt(path),
            )
        bag.relative_path(path, key)
        tpl.pieces(path)
    return found


def environment(value: object, key: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wrong(key, value, 'a table, as in { OMP_NUM_THREADS = "1" }')
    found = {}
    for name, each in value.items():
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise wrong(f"{key}: {name}", each, "a text or a number")
        found[name] = each if isinstance(each, str) else repr(each)
    return found


def exit_codes(value: object, key: str) -> list[int]:
    codes = value if isinstance(value, list) else [value]
    return [integer(code, key) for code in codes]


def pattern(value: object, key: str) -> str:
    bag.pattern(string(value, key), key)
    return string(value, key)


def one_of(*known: str) -> Callable[[object, str], str]:
    def read(value: object, key: str) -> str:
        if string(value, key) not in known:
            raise BadInput(
                f"{key} = '{tpl.excerpt(string(value, key))}' does not exist", nearest(string(value, key), known)
            )
        return string(value, key)

    return read


def select(value: object, key: str) -> str:
    bag.check_policy(Policy(select=string(value, key)))
    return string(value, key)


def expression(name: str) -> Callable[[object, str], str]:
    numeric = KINDS[name].type == NUMBER

    def read(value: object, key: str) -> str:
        if numeric and _is_number(value):
            return bag.expression(str(value), name)
        if not isinstance(value, str):
            wanted, example = ("a text or a number", "'Host.Cores'") if numeric else ("a text", EXAMPLES[name])
            raise wrong(key, value, wanted, f"an expression in quotes, as in {key} = {example}")
        return bag.expression(value, name)

    return read


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


_AT_A_SITE = """'Site.Name == "lab"'"""
EXAMPLES = {"requirements": _AT_A_SITE, "sites": _AT_A_SITE, "replicate": "'NumberOfReplicas < 3'"}


# --- what an editor is told of them ------------------------------------------------------------------------------

TEXT = {"type": "string"}
TEXTS = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
COMMAND = {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}
FLAG = {"type": "boolean"}
INTEGER = {"type": "integer"}
WHOLE = {"type": "integer", "minimum": 0}
COUNT = {"type": "integer", "minimum": 1}
SIZE = {"type": "string", "pattern": r"^\s*(0|[0-9]+(\.[0-9]+)?\s*([bB]|[kmgtpKMGTP]([iI]?[bB])?))\s*$"}
DURATION = {"type": "string", "pattern": r"^\s*[0-9][0-9A-Za-z.\s]*$"}
CORE_TIME = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*core-[A-Za-z]+\s*$"}
PERCENT = {"type": "string", "pattern": r"^\s*[0-9]+\s*%\s*$"}
EXPRESSION = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
COST = {"type": ["string", "number"]}
NUMBERS = {"rank": {"type": "number"}, "per-host": {"type": "number", "minimum": 1},
           "attempt-deadline": {"type": "number", "exclusiveMinimum": 0}}  # policies that may be plain numbers
ENVIRONMENT = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
CODE = {"type": "integer", "minimum": 0, "maximum": 255}
EXIT = {"anyOf": [CODE, {"type": "array", "items": CODE, "minItems": 1}]}


def _policy(key: str) -> dict[str, Any]:
    return {"anyOf": [NUMBERS[key], EXPRESSION]} if key in NUMBERS else EXPRESSION


def _choice(*known: str) -> dict[str, Any]:
    return {"enum": list(known)}


# --- the tables --------------------------------------------------------------------------------------------------

BAG = {
    "name": KeySpec(string, TEXT, "what the bag is called"),
    "command": KeySpec(command, COMMAND, "a shell command, or a list of words that no shell sees"),
    "effects": KeySpec(string, _choice(*bag.EFFECTS), "does a task change the outside world?"),
}
TASK = {
    "cores": KeySpec(count, COUNT, "how many a task takes"),
    "memory": KeySpec(units.parse_size, SIZE, "limit, such as 2GB"),
    "gpus": KeySpec(whole, WHOLE, "how many a task takes"),
    "disk": KeySpec(units.parse_size, SIZE, "room it needs in its working directory"),
    "whole-node": KeySpec(flag, FLAG, "no other task beside it"),
    "nodes": KeySpec(count, COUNT, "how many it runs on at once, with `cores` on each"),
    "time": KeySpec(units.parse_duration, DURATION, "limit, such as 30min"),
    "expect": KeySpec(units.parse_duration, DURATION, "how long it will probably take"),
    "cost": KeySpec(cost, COST, "relative cost: a parameter or a number"),
    "priority": KeySpec(integer, INTEGER, "higher goes first among one's own"),
    "inputs": KeySpec(strings, TEXTS, "files and directories there must be before it starts"),
    "outputs": KeySpec(paths, TEXTS, "files it makes, directories, or patterns such as *.png; brought home"),
    "checkpoint": KeySpec(paths, TEXTS, "files saved when it is ended early; the next attempt finds them"),
    "retries": KeySpec(whole, WHOLE, "how often it is tried again"),
    "memory-retries": KeySpec(whole, WHOLE, "how often again with twice the memory"),
    "time-retries": KeySpec(
        whole, {**WHOLE, "maximum": MAX_TIME_RETRIES},
        "how often again with three times the time; by default 3, or 0 where retries is 0",
    ),
    "grace": KeySpec(units.parse_duration, DURATION, "between SIGTERM and SIGKILL"),
    "environment": KeySpec(environment, ENVIRONMENT, "variables"),
    "setup": KeySpec(strings, TEXTS, "shell lines run before the command"),
    "modules": KeySpec(strings, TEXTS, "environment modules to load"),
    "container": KeySpec(string, TEXT, "image to run in"),
    "python": KeySpec(string, TEXT, "virtual environment, or list of requirements, to take along"),
    "at-once": KeySpec(count, COUNT, "how many of its tasks may be in play at a time"),
    "scratch": KeySpec(one_of("failed"), _choice("failed"), "keep the directory of a failed task"),
}
CHECK = {
    "exit": KeySpec(exit_codes, EXIT, "exit codes that mean success"),
    "hopeless": KeySpec(exit_codes, EXIT, "exit codes after which a task is not tried again"),
    "file": KeySpec(paths, TEXTS, "files there must be"),
    "match": KeySpec(pattern, TEXT, "regular expression to be found in the standard output"),
    "schema": KeySpec(string, TEXT, "file with a JSON schema that the file, or the standard output, must fit"),
    "command": KeySpec(command, COMMAND, "run after the task, must end with 0"),
}
POLICY = {
    "select": KeySpec(select, _choice(*bag.SELECT), "which task goes first"),
    "batch": KeySpec(
        count, {**COUNT, "maximum": MAX_BATCH}, "how many tasks go together, one after another in one slot"
    ),
    "batch-timeout": KeySpec(
        units.parse_duration, DURATION, "how long an incomplete batch of an open bag waits for more"
    ),
    "provision": KeySpec(one_of(*bag.PROVISION), _choice(*bag.PROVISION), "how many pilots to ask sites for"),
    "budget": KeySpec(units.parse_core_time, CORE_TIME, "what all tasks may use together, such as 100 core-hours"),
    **{key: KeySpec(expression(key), _policy(key), KINDS[key].says) for key in bag.EXPRESSIONS},
    "replicate": KeySpec(
        expression("replicate"),
        {"anyOf": [_choice(*bag.REPLICATE), EXPRESSION]},
        "whether late tasks may run twice: a preset, or an expression",
    ),
    "attempt-deadline": KeySpec(
        expression("attempt-deadline"),
        _policy("attempt-deadline"),
        "how long an attempt may take before its task is given to another host, too",
    ),
    **{
        KINDS[key].alias: KeySpec(expression(key), _policy(key), f"{key}, as GridBot calls it")
        for key in bag.EXPRESSIONS
    },
    replica_caps.PER_TASK: KeySpec(
        replica_caps.normal,
        {**COUNT, "maximum": replica_caps.MOST[replica_caps.PER_TASK]},
        replica_caps.CAPS[replica_caps.PER_TASK],
    ),
    replica_caps.SHARE: KeySpec(replica_caps.normal, PERCENT, replica_caps.CAPS[replica_caps.SHARE]),
    replica_caps.COST: KeySpec(replica_caps.normal, CORE_TIME, replica_caps.CAPS[replica_caps.COST]),
    "fail-over": KeySpec(string, TEXT, "the site where tasks go that keep failing"),
}
TARGET = {"after": KeySpec(strings, TEXTS, "targets that must have succeeded before"), "command": BAG["command"]}

SAMPLE = {
    "sample": KeySpec(string, TEXT, "law: uniform(0, 1), loguniform(1e-3, 1), normal(0, 1), integer(1, 6)"),
    "n": KeySpec(count, COUNT, "how many"),
    "seed": KeySpec(integer, INTEGER, "the same seed draws the same values"),
}
CSV = {
    "file": KeySpec(string, TEXT, "with a header row"),
    "columns": KeySpec(strings, TEXTS, 'which of them, "header -> name" to call one otherwise'),
    "delimiter": KeySpec(string, {"type": "string", "minLength": 1, "maxLength": 1}, "between fields"),
}
CAPTURE = {
    "file": KeySpec(string, TEXT, "output file to look in"),
    "match": KeySpec(pattern, TEXT, "regular expression; its first group is the value"),
}
