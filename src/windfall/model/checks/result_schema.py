"""Validation of the JSON schemas for results: the keywords that a pilot supports.

A pilot has the standard library alone, so it supports only the part of JSON Schema below.  Submission refuses any other
keyword by name: a check that silently checks less is worse than none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.patterns import ERRORS, MAX_PATTERN

MAX_SCHEMA = 256 << 10  # characters: it travels with the tasks
MAX_DEPTH = 64

TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")

# Kinds of a keyword's value.
KEYWORDS = {
    "type": "types", "enum": "list", "const": "any",
    "properties": "named", "required": "names", "additionalProperties": "schema",
    "items": "schema", "minItems": "count", "maxItems": "count", "uniqueItems": "flag",
    "minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
    "minLength": "count", "maxLength": "count", "pattern": "pattern",
    "anyOf": "schemas", "oneOf": "schemas", "allOf": "schemas", "not": "schema",
    "$ref": "ref", "$defs": "named", "definitions": "named",
    "title": "any", "description": "any", "$schema": "any", "$id": "any", "default": "any", "examples": "any",
}  # fmt: skip

HERE = ("anyOf", "oneOf", "allOf", "not")
"""Keywords that, as $ref, apply to the same value: a cycle of them would never end."""


def check_schema(text: str, what: str = "check: schema") -> None:
    if len(text) > MAX_SCHEMA:
        raise TooLarge(f"{what}: {len(text):,} characters; at most {MAX_SCHEMA:,}")
    try:
        root = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{what}: not JSON: {error}") from None
    except RecursionError:
        raise BadInput(f"{what}: nested too deeply") from None
    if not isinstance(root, (dict, bool)):
        raise BadInput(f"{what}: a schema must be an object, true or false")
    if not _whole(root):
        raise BadInput(f"{what}: not valid text: half of a surrogate pair is missing")
    schemas: dict[int, dict[str, Any]] = {}
    _walk(root, "#", 0, schemas, what)
    _check_refs(root, schemas, what)


def schema_patterns(text: str) -> list[str]:
    """Return the texts under `pattern` anywhere in a schema; none if the schema is not JSON."""
    try:
        rest, found = [json.loads(text) if len(text) <= MAX_SCHEMA else None], []
    except (ValueError, RecursionError):
        return []
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            found += [value for key, value in part.items() if key == "pattern" and isinstance(value, str)]
        rest += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return found


def _whole(root: Any) -> bool:
    try:
        json.dumps(root, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(schema: Any, at: str, depth: int, schemas: dict[int, dict[str, Any]], what: str) -> None:
    if isinstance(schema, bool):
        return
    if depth > MAX_DEPTH:
        raise BadInput(f"{what}: nested more than {MAX_DEPTH} deep")
    if not isinstance(schema, dict):
        raise BadInput(f"{what}: expected a schema at {at}, not {json.dumps(schema)[:60]}")
    schemas[id(schema)] = schema
    for keyword, value in schema.items():
        kind = KEYWORDS.get(keyword)
        if kind is None:
            raise BadInput(
                f"{what}: the keyword '{keyword[:100]}' (at {at}) is not supported",
                f"supported: {', '.join(KEYWORDS)}",
                text=keyword[:100],
            )
        wrong = _wrong(kind, value)
        if wrong:
            raise BadInput(f"{what}: {keyword} (at {at}) {wrong}", text=keyword)
        for name, below in _below(kind, value):
            _walk(below, f"{at}/{keyword}{name}"[:300], depth + 1, schemas, what)


def _wrong(kind: str, value: Any) -> str:
    """Return what is wrong with a keyword's value, or ""."""
    if kind == "pattern":
        return _wrong_pattern(value)
    fits, wanted = _FORMS.get(kind, (lambda value: True, ""))
    return "" if fits(value) else wanted


def _are_types(value: Any) -> bool:
    types = value if isinstance(value, list) else [value]
    return bool(types) and all(each in TYPES for each in types)


def _is_ref(value: Any) -> bool:
    return isinstance(value, str) and (value == "#" or value.startswith("#/"))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "types": (_are_types, f"must be of {', '.join(TYPES)}"),
    "ref": (_is_ref, 'must name a part of this schema, as "#/$defs/name"'),
    "list": (lambda value: isinstance(value, list), "must be a list"),
    "names": (_are_names, "must be a list of texts"),
    "count": (_is_count, "must be a whole number, 0 or more"),
    "number": (_is_number, "must be a number"),
    "flag": (lambda value: isinstance(value, bool), "must be true or false"),
    "named": (lambda value: isinstance(value, dict), "must be an object of schemas"),
    "schemas": (lambda value: isinstance(value, list) and value != [], "must be a list of schemas"),
}


def _wrong_pattern(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_PATTERN:
        return "must be a regular expression"
    try:
        re.compile(value)
    except ERRORS as error:
        return f"is not a regular expression: {error}"
    return ""


def _below(kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    if kind == "schema":
        yield "", value
    elif kind == "named":
        yield from ((f"/{name}", each) for name, each in value.items())
    elif kind == "schemas":
        yield from ((f"/{number}", each) for number, each in enumerate(value))


def resolve(root: Any, ref: str) -> Any:
    """Return the schema that `#/…` names, or None."""
    found = root
    for part in ref[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found if isinstance(found, (dict, bool)) else None


def _check_refs(root: Any, schemas: dict[int, dict[str, Any]], what: str) -> None:
    """Check that every $ref names a schema, and that no chain of them is a cycle."""
    for schema in schemas.values():
        found = resolve(root, schema["$ref"]) if "$ref" in schema else True
        if not isinstance(found, bool) and id(found) not in schemas:
            raise BadInput(f"{what}: $ref names '{schema['$ref'][:100]}', where there is no schema", text="$ref")
    state: dict[int, str] = {}
    for schema in schemas.values():
        if id(schema) not in state:
            _follow(root, schema, state, what)


def _follow(root: Any, start: dict[str, Any], state: dict[int, str], what: str) -> None:
    stack = [(start, iter(_here(root, start)))]
    state[id(start)] = "open"
    while stack:
        schema, below = stack[-1]
        found = next(below, None)
        if found is None:
            state[id(schema)] = "done"
            stack.pop()
        elif state.get(id(found)) == "open":
            raise BadInput(f"{what}: $ref refers to itself in a circle", text="$ref")
        elif id(found) not in state:
            state[id(found)] = "open"
            stack.append((found, iter(_here(root, found))))


def _here(root: Any, schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that apply to the same value."""
    found = [resolve(root, schema["$ref"])] if "$ref" in schema else []
    found += [below for key in HERE if key in schema for _, below in _below(KEYWORDS[key], schema[key])]
    return [each for each in found if isinstance(each, dict)]
