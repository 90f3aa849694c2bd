"""The editors' schema accepts what the parser accepts."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from tests.model.everything import EVERYTHING, lay, tables, toml

from windfall.errors import BadInput
from windfall.model.bagfile import reader
from windfall.model.bagfile.editor_schema import bag_schema

ROOT = Path(__file__).parents[2]
SCHEMA = Draft202012Validator(bag_schema())


def test_published_schema_is_current():
    assert json.loads((ROOT / "docs" / "reference" / "bag.schema.json").read_text()) == bag_schema()
    Draft202012Validator.check_schema(bag_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_examples_fit_the_schema(path):
    SCHEMA.validate(tomllib.loads(path.read_text()))


def test_file_with_every_key_fits_the_schema():
    SCHEMA.validate(tomllib.loads(EVERYTHING))


def test_schema_has_every_key_of_the_parser():
    schema = bag_schema()
    known = {**schema["properties"], **schema["$defs"]}
    for table in ("bag", "task", "check", "policy"):
        assert sorted(known[table]["properties"]) == sorted(reader.KEYS[table])
    further = schema["properties"]["targets"]["additionalProperties"]["properties"]
    assert sorted(further) == sorted(reader.KEYS["targets"])


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables())
def test_parser_refuses_whatever_the_schema_refuses(tmp_path, tree):
    lay(tmp_path)
    if SCHEMA.is_valid(tree):
        return
    with pytest.raises(BadInput):
        reader.parse(toml(tree), "b.toml", tmp_path)


@pytest.mark.parametrize(
    "text",
    ["[bag]\nname = 3", "[task]\ncores = 0", "[task]\nmemory = '2 parsecs'", "[sweep]\nx = []", "[sweep]\n'a b' = 1",
     "[polcy]", "[check]\nexit = [300]", "[sweep]\nx = { sample = 'uniform(0,1)' }", "[targets.t]\ncores = 1",
     "[capture]\nx = 1", "[sweep.csv]\ncolumns = ['x']", "[sweep.latin]\nx = 'uniform(0,1)'"],
)  # fmt: skip
def test_schema_refuses_common_mistakes(text):
    assert not SCHEMA.is_valid(tomllib.loads(text))
