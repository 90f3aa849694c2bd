import json
import re
from pathlib import Path

import pytest

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.result_schema import KEYWORDS, check_schema

GOOD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["lod"],
    "properties": {
        "lod": {"type": "number", "minimum": 0},
        "tree": {"$ref": "#/$defs/tree"},
        "names": {"type": ["array", "null"], "items": {"pattern": "^[a-z]+$", "minLength": 1}, "uniqueItems": True},
        "any": True,
    },
    "additionalProperties": False,
    "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}, "anyOf": [{"maxItems": 3}, {"const": 1}]}},
}


def test_valid_schemas_are_accepted():
    for schema in (
        GOOD,
        True,
        {},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}},
        {"allOf": [{"$ref": "#/allOf/1"}, {}]},
    ):
        check_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"format": "date"}, "'format'"),
        ({"properties": {"x": {"patternProperties": {}}}}, "'patternProperties' (at #/properties/x)"),
        ({"type": "text"}, "type"),
        ({"type": []}, "type"),
        ({"properties": []}, "object of schemas"),
        ({"items": [{}]}, "expected a schema"),
        ({"items": 3}, "expected a schema"),
        ({"anyOf": []}, "list of schemas"),
        ({"minLength": -1}, "whole number"),
        ({"minLength": 1.5}, "whole number"),
        ({"minimum": "3"}, "a number"),
        ({"minimum": True}, "a number"),
        ({"required": "x"}, "list of texts"),
        ({"uniqueItems": 1}, "true or false"),
        ({"enum": 1}, "a list"),
        ({"pattern": "("}, "regular expression"),
        ({"pattern": 1}, "regular expression"),
        ({"$ref": "http://x/y"}, "part of this schema"),
        ({"$ref": "#/$defs/x"}, "no schema"),
        ({"$ref": "#/enum/0", "enum": [{"anyOf": 3}]}, "no schema"),
        ({"$ref": "#"}, "refers to itself"),
        ({"anyOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}, "itself"),
        ([], "must be an object"),
    ],
)
def test_invalid_schema_is_refused_by_keyword(schema, says):
    with pytest.raises(BadInput) as caught:
        check_schema(json.dumps(schema))
    assert says in caught.value.message


def test_noise_and_oversized_schemas_are_refused():
    deep = {}
    for _ in range(100):
        deep = {"not": deep}
    for text in ("", "{", "[" * 100_000, json.dumps(deep)):
        with pytest.raises(BadInput):
            check_schema(text)
    with pytest.raises(TooLarge):
        check_schema(" " * 300_000)


def test_every_keyword_is_in_the_reference():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "bag-file.md").read_text()
    listed = page.partition("Windfall knows these keywords of JSON Schema")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`([$\w]+)`", listed)) == sorted(KEYWORDS)
