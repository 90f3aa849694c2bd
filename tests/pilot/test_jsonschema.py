"""The pilot's JSON Schema validation, compared with the `jsonschema` library."""

import json

import jsonschema as oracle
import pytest
from hypothesis import given, settings, strategies as st

from windfall.pilot.files import json_schema

NAMES = st.sampled_from(["a", "b", "c", "x/y", "~"])
NUMBERS = st.one_of(st.integers(-5, 5), st.floats(-5, 5).map(lambda x: round(x, 1)))
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, st.text("abä", max_size=4))
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8)
TYPES = st.sampled_from(["null", "boolean", "number", "integer", "string", "array", "object"])
SIZES = st.integers(0, 4)
WORDS = {
    "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3)),
    "enum": st.lists(VALUES, max_size=4), "const": VALUES,
    "minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
    "minLength": SIZES, "maxLength": SIZES, "pattern": st.sampled_from(["^a", "b$", "a.b", "[^ä]", ""]),
    "minItems": SIZES, "maxItems": SIZES, "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2, unique=True),
}


def schemas(refs):
    leaf = st.one_of(st.booleans(), st.fixed_dictionaries({}, optional=WORDS), *refs)

    def around(inner):
        some = st.lists(inner, min_size=1, max_size=3)
        return st.fixed_dictionaries({}, optional=dict(WORDS, **{
            "properties": st.dictionaries(NAMES, inner, max_size=3), "items": inner, "additionalProperties": inner,
            "anyOf": some, "oneOf": some, "allOf": some, "not": inner}))

    return st.recursive(leaf, around, max_leaves=6)


REF = st.sampled_from([{"$ref": "#/$defs/p"}, {"$ref": "#/definitions/x~1y"}])
ROOTS = st.builds(lambda root, p, q: dict(root, **{"$defs": {"p": p}, "definitions": {"x/y": q}}),
                  schemas([REF]).filter(lambda schema: isinstance(schema, dict)), schemas([]), schemas([]))


@settings(deadline=None, max_examples=400)
@given(ROOTS, VALUES)
def test_validation_agrees_with_the_jsonschema_library(schema, value):
    said = json_schema.problem(json.dumps(schema), json.dumps(value), "doc")
    assert (said == "") == oracle.Draft202012Validator(schema).is_valid(value), said


def say(schema, text):
    return json_schema.problem(json.dumps(schema), text, "result.json")


def test_problem_names_its_place():
    schema = {"type": "object", "required": ["lod"], "properties": {"lod": {"type": "number", "minimum": 0}}}
    assert say(schema, '{"lod": "x"}') == "result.json: /lod: 'x' is not a number"
    assert say(schema, '{"lod": -1}') == "result.json: /lod: -1 is less than 0"
    assert say(schema, "{}") == "result.json: 'lod' is missing"
    assert say({"items": {"type": "integer"}}, "[1, 2.5]") == "result.json: /1: 2.5 is not a whole number"
    assert say({}, "{") .startswith("result.json: not JSON") and "NaN" in say({}, "NaN")


@pytest.mark.parametrize("schema, part", [
    ({"patternProperties": {}}, "'patternProperties' is not supported"),
    ({"items": {"multipleOf": 2}}, "'multipleOf' is not supported"),
    ({"$ref": "http://somewhere"}, "does not begin"), ({"$ref": "#/$defs/none"}, "names nothing"),
    ({"type": "nummer"}, "unknown type 'nummer'"), ({"pattern": "("}, "cannot be used"), ([], "expected a schema"),
    ({"$ref": "#"}, "nested too deeply"), ({"required": "a"}, "'required' is not a list"),
    ({"properties": {"a": 3}}, "expected a schema"), ({"minLength": True}, "is not a number"),
])
def test_invalid_schemas_are_refused(schema, part):
    assert part in say(schema, '"x"')


def test_depth_is_bounded():
    assert "deep" in say({}, "[" * 100000 + "]" * 100000)
    assert "deep" in say({"items": {"$ref": "#"}}, "[" * 200 + "]" * 200)
    for schema in ({"const": 1}, {"enum": [1]}, {"uniqueItems": True}, {}):
        assert "deep" in say(schema, "[" * 700 + "]" * 700)
        assert "deep" in say(schema, '{"a":' * 700 + "1" + "}" * 700)
    assert "schema: nested" in json_schema.problem('{"const":' + "[" * 700 + "]" * 700 + "}", "1", "doc")
    deep = "[" * json_schema.LEVELS + "]" * json_schema.LEVELS
    assert say({"uniqueItems": True}, deep) == "" and "is not 1" in say({"const": 1}, deep)


def test_half_a_character_is_reported_in_ascii():
    assert say({"additionalProperties": {"type": "null"}}, '{"\\ud800": 1}') == "result.json: /\\ud800: 1 is not null"
    assert "larger than" in json_schema.problem("{}", " " * (json_schema.MAX_BYTES + 1), "doc")
