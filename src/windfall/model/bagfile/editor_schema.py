"""The JSON schema of bag files, for editors, made from the parser's own tables.

The schema is weaker than the parser: it accepts every file that the parser accepts, and others.
"""

from __future__ import annotations

from typing import Any

from windfall.model.bagfile import words

Schema = dict[str, Any]

NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
VALUE: Schema = {"type": ["string", "number", "boolean"]}


def bag_schema() -> Schema:
    """Return the schema, in draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windfall bag file",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "bag": _table(words.BAG, "name, command, effects"),
            "sweep": {"$ref": "#/$defs/sweep"},
            "task": _table(words.TASK, "what each task of the main target needs"),
            "check": {"$ref": "#/$defs/check"},
            "capture": {"$ref": "#/$defs/capture"},
            "policy": _table(words.POLICY, "what decides"),
            "targets": {
                "description": "further groups of tasks",
                "type": "object",
                "propertyNames": {"pattern": NAME},
                "additionalProperties": _target(),
            },
        },
        "$defs": {
            "sweep": _sweep(),
            "check": _table(words.CHECK, "what makes a result valid"),
            "capture": _capture(),
        },
    }


def _table(known: dict[str, words.KeySpec], says: str, needed: tuple[str, ...] = ()) -> Schema:
    table: Schema = {
        "description": says,
        "type": "object",
        "additionalProperties": False,
        "properties": {key: {"description": word.says, **word.schema} for key, word in known.items()},
    }
    return {**table, "required": list(needed)} if needed else table


def _target() -> Schema:
    table = _table({**words.TARGET, **words.TASK}, "a further group of tasks", ("command",))
    parts = {part: {"$ref": f"#/$defs/{part}"} for part in ("sweep", "check", "capture")}
    return {**table, "properties": {**table["properties"], **parts}}


def _sweep() -> Schema:
    values: Schema = {"type": "array", "items": VALUE, "minItems": 1}
    column: Schema = {"anyOf": [values, {"type": "string"}]}
    zipped: Schema = {"type": "object", "propertyNames": {"pattern": NAME}, "additionalProperties": column}
    law: Schema = {"type": "string", "description": words.SAMPLE["sample"].says}
    drawn = _table(words.SAMPLE, "drawn at random", ("sample", "n"))
    sized = {key: drawn["properties"][key] for key in ("n", "seed")}
    return {
        "description": "parameters; the tasks are their product, the last one fastest",
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": NAME},
        "properties": {
            "zip": {"description": "lists walked together", "type": "array", "items": zipped, "minItems": 1},
            "latin": {
                "description": "a Latin hypercube",
                "type": "object",
                "properties": sized,
                "additionalProperties": law,
                "required": ["n"],
            },
            "csv": _table(words.CSV, "rows of a file", ("file",)),
        },
        "additionalProperties": {"anyOf": [VALUE, values, drawn]},
    }


def _capture() -> Schema:
    entry = _table(words.CAPTURE, "found in an output file", ("match",))
    return {
        "description": "values that become columns of the results",
        "type": "object",
        "propertyNames": {"pattern": NAME},
        "additionalProperties": {"anyOf": [{"type": "string", "minLength": 1}, entry]},
    }
