"""Validation of JSON documents against the part of JSON Schema (draft 2020-12) that results need.

Rules
  * Known keywords: type, enum, const, properties, required, additionalProperties, items, anyOf, oneOf, allOf, not, the
    limits of numbers, texts and lists, uniqueItems, pattern, $ref into the schema itself (#/…), $defs.  `refuse` names
    an unknown keyword: a check that is silently weaker than it reads is worse than none.
  * Neither schema nor document is trusted: documents have at most MAX_BYTES and LEVELS, schemas at most DEPTH levels.
    The caller bounds the time: patterns and nested schemas can take for ever.
  * A validation reports the first problem, with its place as a JSON pointer.
"""

import json
import re

MAX_BYTES = 16 << 20
DEPTH = 100
LEVELS = 2 * DEPTH + 10      # a schema within a schema is two levels of JSON

_TYPES = {
    "null": "null", "boolean": "true or false", "number": "a number", "integer": "a whole number", "string": "a text",
    "array": "a list", "object": "an object",
}
_NOT_HERE = ("patternProperties", "propertyNames", "prefixItems", "contains", "if", "then", "else", "dependentSchemas",
             "dependentRequired", "unevaluatedProperties", "unevaluatedItems", "multipleOf", "minProperties",
             "maxProperties", "$dynamicRef", "$recursiveRef", "additionalItems", "dependencies")
_WITHIN = ("items", "additionalProperties", "not")
_LISTS = ("anyOf", "oneOf", "allOf")
_NAMED = ("properties", "$defs", "definitions")


class Trouble(Exception):
    """The schema or the document cannot be used; the message says why."""


def problem(schema, text, name):
    """Return what is wrong with a document, or ""; both are texts, and messages call the document `name`."""
    try:
        parsed = load(schema, "the schema")
        refuse(parsed)
        place, complaint = Validation(parsed).find(load(text, name))
    except Trouble as trouble:
        return str(trouble)
    except RecursionError:
        return "{}: nested too deeply".format(name)
    return "{}: {}{}".format(name, place + ": " if place else "", complaint) if complaint else ""


def load(text, name):
    if len(text) > MAX_BYTES:
        raise Trouble("{}: larger than {} MB, too large to be checked".format(name, MAX_BYTES >> 20))
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise Trouble("{}: nested too deeply".format(name))
    except ValueError as error:
        raise Trouble("{}: not JSON: {}".format(name, error))
    if _deeper(value, LEVELS):
        raise Trouble("{}: nested too deeply".format(name))
    return value


def _deeper(value, levels):
    """Are lists and objects nested deeper than `levels`?  The validation calls itself once for each level."""
    layer = [value]
    for _ in range(levels):
        layer = [inner for part in layer if isinstance(part, (dict, list))
                 for inner in (part.values() if isinstance(part, dict) else part) if isinstance(inner, (dict, list))]
        if not layer:
            return False
    return True


def _no_constant(word):
    raise ValueError("{} is not a JSON number".format(word))


def refuse(schema):
    """Raise Trouble if the schema has a keyword that this module does not support, or a malformed one."""
    todo = [(schema, 0)]
    while todo:
        part, depth = todo.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise Trouble("the schema: expected a schema (an object, true or false), got {}".format(show(part)))
        if depth > DEPTH:
            raise Trouble("the schema: nested too deeply")
        for word in part:
            if word in _NOT_HERE:
                raise Trouble("the schema: {!r} is not supported".format(word))
        _check_words(part)
        todo.extend((inner, depth + 1) for inner in _parts(part))


def _parts(schema):
    found = [schema[word] for word in _WITHIN if word in schema]
    for word in _LISTS:
        found.extend(schema.get(word, ()))
    for word in _NAMED:
        found.extend(schema.get(word, {}).values())
    return found


_SHAPES = (
    (("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (int, float), "a number"),
    (("minLength", "maxLength", "minItems", "maxItems"), (int, float), "a number"),
    (("properties", "$defs", "definitions"), dict, "an object"),
    (("anyOf", "oneOf", "allOf", "enum", "required"), list, "a list"),
    (("pattern", "$ref"), str, "a text"),
    (("uniqueItems",), bool, "true or false"),
    (("type",), (str, list), "a text or a list"),
)


def _check_words(schema):
    for words, kinds, expected in _SHAPES:
        for word in words:
            if word in schema and not _is_one_of(schema[word], kinds):
                raise Trouble("the schema: {!r} is not {}".format(word, expected))
    for name in _types(schema):
        if not isinstance(name, str) or name not in _TYPES:
            raise Trouble("the schema: unknown type {}".format(show(name)))
    if "pattern" in schema:
        _check_pattern(schema["pattern"])


def _is_one_of(value, kinds):
    return isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))


def _check_pattern(pattern):
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Trouble("the schema: the pattern {} cannot be used: {}".format(show(pattern), error))


def _types(schema):
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


class Validation:
    """The comparison of a document with a schema."""

    def __init__(self, schema):
        self.root = schema

    def find(self, document):
        """Return (place, complaint) of the first problem, or ("", "")."""
        return self._fit(self.root, document, "", 0) or ("", "")

    def _fit(self, schema, value, place, depth):
        """Return (place, complaint) of the first problem of a value, or None."""
        if depth > DEPTH:
            raise Trouble("{}: nested too deeply".format(place[:200]))
        if isinstance(schema, bool):
            return None if schema else (place, "{} is not allowed here".format(show(value)))
        if "$ref" in schema:
            found = self._fit(self._resolve(schema["$ref"]), value, place, depth + 1)
            if found:
                return found
        complaint = _plain(schema, value)
        if complaint:
            return place, complaint
        if isinstance(value, dict):
            found = self._object(schema, value, place, depth)
        elif isinstance(value, list):
            found = self._list(schema, value, place, depth)
        else:
            found = None
        return found or self._combined(schema, value, place, depth)

    def _resolve(self, ref):
        if ref != "#" and not ref.startswith("#/"):
            raise Trouble("the schema: $ref {} does not begin with '#/'".format(show(ref)))
        part = self.root
        for word in ref.split("/")[1:]:
            word = word.replace("~1", "/").replace("~0", "~")
            try:
                part = part[int(word) if isinstance(part, list) else word]
            except (KeyError, IndexError, ValueError, TypeError):
                raise Trouble("the schema: $ref {} names nothing in it".format(show(ref)))
        refuse(part)
        return part

    def _object(self, schema, value, place, depth):
        for name in schema.get("required", ()):
            if name not in value:
                return place, "{} is missing".format(show(name))
        known = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name, inner in value.items():
            part = known[name] if name in known else others
            if part is False and name not in known:
                return place, "{} is not allowed here".format(show(name))
            found = part is not True and self._fit(part, inner, place + "/" + _escaped(name), depth + 1)
            if found:
                return found
        return None

    def _list(self, schema, value, place, depth):
        if len(value) < schema.get("minItems", 0):
            return place, "has {} entries, fewer than {}".format(len(value), schema["minItems"])
        if "maxItems" in schema and len(value) > schema["maxItems"]:
            return place, "has {} entries, more than {}".format(len(value), schema["maxItems"])
        if schema.get("uniqueItems") and _repeated(value):
            return place, "has two equal entries"
        part = schema.get("items", True)
        for number, inner in enumerate(value if part is not True else ()):
            found = self._fit(part, inner, "{}/{}".format(place, number), depth + 1)
            if found:
                return found
        return None

    def _combined(self, schema, value, place, depth):
        for part in schema.get("allOf", ()):
            found = self._fit(part, value, place, depth + 1)
            if found:
                return found
        for word in ("anyOf", "oneOf"):
            if word in schema:
                fitting = sum(not self._fit(part, value, place, depth + 1) for part in schema[word])
                if not fitting:
                    return place, "{} fits none of the {} schemas of {}".format(show(value), len(schema[word]), word)
                if fitting > 1 and word == "oneOf":
                    return place, "{} fits {} schemas of oneOf instead of one".format(show(value), fitting)
        if "not" in schema and not self._fit(schema["not"], value, place, depth + 1):
            return place, "{} fits the schema under 'not'".format(show(value))
        return None


def _plain(schema, value):
    """Return how a value breaks the keywords that do not look inside it, or ""."""
    types = _types(schema)
    if types and not any(is_type(value, name) for name in types):
        return "{} is not {}".format(show(value), " or ".join(_TYPES[name] for name in types))
    return _constant(schema, value) or _limits(schema, value)


def _constant(schema, value):
    if "enum" in schema and not any(_same(value, other) for other in schema["enum"]):
        return "{} is none of {}".format(show(value), show(schema["enum"]))
    if "const" in schema and not _same(value, schema["const"]):
        return "{} is not {}".format(show(value), show(schema["const"]))
    return ""


def _limits(schema, value):
    if is_type(value, "number"):
        return _number(schema, value)
    if isinstance(value, str):
        return _text(schema, value)
    return ""


def _repeated(values):
    seen = set()
    for value in values:
        key = _key(value)
        if key in seen:
            return True
        seen.add(key)
    return False


def _same(one, other):
    return _key(one) == _key(other)


def _key(value):
    """Return a hashable key that is equal for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return "{}", frozenset((name, _key(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return "[]", tuple(map(_key, value))
    return isinstance(value, bool), value


def is_type(value, name):
    if name in ("number", "integer"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return name == "number" or isinstance(value, int) or value.is_integer()
    return isinstance(value, _CLASSES[name])


_CLASSES = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}


def _number(schema, value):
    for word, wrong, relation in (
        ("minimum", lambda limit: value < limit, "less than"),
        ("maximum", lambda limit: value > limit, "more than"),
        ("exclusiveMinimum", lambda limit: value <= limit, "not more than"),
        ("exclusiveMaximum", lambda limit: value >= limit, "not less than"),
    ):
        if word in schema and wrong(schema[word]):
            return "{} is {} {}".format(show(value), relation, show(schema[word]))
    return ""


def _text(schema, value):
    if len(value) < schema.get("minLength", 0):
        return "{} is shorter than {}".format(show(value), schema["minLength"])
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        return "{} is longer than {}".format(show(value), schema["maxLength"])
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return "{} does not match {}".format(show(value), show(schema["pattern"]))
    return ""


def _escaped(name):
    plain = name[:200].encode("utf-8", "backslashreplace").decode("utf-8")  # a report cannot carry half a character
    return plain.replace("~", "~0").replace("/", "~1")


def show(value):
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else text[:60] + "…"
